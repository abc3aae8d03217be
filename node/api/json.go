package api

import (
	"encoding/json"
	"fmt"
	"iter"
	"unicode/utf8"
)

// checkJSON says whether data is one JSON value and nothing else, nested at most
// MaxDepth deep, in valid UTF-8 and without half surrogate pairs. The functions
// below rely on it: they take values that have been checked.
func checkJSON(data []byte) error {
	s := scanner{data: data}
	s.space()
	if err := s.value(0); err != nil {
		return err
	}
	s.space()
	if s.pos != len(data) {
		return s.fault("there is more after the JSON value")
	}
	return nil
}

type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) fault(what string) error {
	return fmt.Errorf("%s at byte %d", what, s.pos)
}

// peek is 0 at the end; a NUL byte is not JSON anywhere, so the two may be mixed
// up.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.data) && isSpace(s.data[s.pos]) {
		s.pos++
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

func (s *scanner) value(depth int) error {
	if depth >= MaxDepth {
		return s.fault(fmt.Sprintf("values are nested more than %d deep", MaxDepth))
	}
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth)
	case c == '[':
		return s.array(depth)
	case c == '"':
		return s.str()
	case c == '-' || '0' <= c && c <= '9':
		return s.number()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.unexpected()
}

func (s *scanner) unexpected() error {
	if s.pos >= len(s.data) {
		return s.fault("it ends too early")
	}
	return s.fault(fmt.Sprintf("unexpected %q", s.data[s.pos]))
}

func (s *scanner) word(w string) error {
	if rest := s.data[s.pos:]; len(rest) < len(w) || string(rest[:len(w)]) != w {
		return s.fault("unknown word")
	}
	s.pos += len(w)
	return nil
}

func (s *scanner) object(depth int) error {
	s.pos++
	if s.space(); s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		if s.peek() != '"' {
			return s.unexpected()
		}
		if err := s.str(); err != nil {
			return err
		}
		if s.space(); s.peek() != ':' {
			return s.unexpected()
		}
		s.pos++
		s.space()
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if more, err := s.more('}'); !more {
			return err
		}
	}
}

func (s *scanner) array(depth int) error {
	s.pos++
	if s.space(); s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := s.value(depth + 1); err != nil {
			return err
		}
		if more, err := s.more(']'); !more {
			return err
		}
	}
}

// more steps over a comma, or over the end of the container.
func (s *scanner) more(end byte) (bool, error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return true, nil
	case end:
		s.pos++
		return false, nil
	}
	return false, s.unexpected()
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.unexpected()
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.unexpected()
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.unexpected()
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); '0' <= c && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) str() error {
	for s.pos++; s.pos < len(s.data); {
		switch c := s.data[s.pos]; {
		case c == '"':
			s.pos++
			return nil
		case c < 0x20:
			return s.fault("a string holds a control character")
		case c == '\\':
			if err := s.escape(); err != nil {
				return err
			}
		case c < utf8.RuneSelf:
			s.pos++
		default:
			r, n := utf8.DecodeRune(s.data[s.pos:])
			if r == utf8.RuneError && n <= 1 {
				return s.fault("a string is not valid UTF-8")
			}
			s.pos += n
		}
	}
	return s.fault("a string does not end")
}

func (s *scanner) escape() error {
	s.pos++
	switch s.peek() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return nil
	case 'u':
		return s.unicodeEscape()
	}
	return s.fault("a string has an unknown escape")
}

func (s *scanner) unicodeEscape() error {
	switch r := s.hex4(); {
	case r < 0:
		return s.fault("a string has an unknown escape")
	case 0xd800 <= r && r < 0xdc00:
		if s.pos+1 < len(s.data) && s.data[s.pos] == '\\' && s.data[s.pos+1] == 'u' {
			s.pos++
			if low := s.hex4(); 0xdc00 <= low && low < 0xe000 {
				return nil
			}
		}
		return s.fault("a string holds half of a surrogate pair")
	case 0xdc00 <= r && r < 0xe000:
		return s.fault("a string holds half of a surrogate pair")
	}
	return nil
}

// hex4 reads the u of an escape and four digits; -1 if they are not there.
func (s *scanner) hex4() int {
	s.pos++
	if len(s.data)-s.pos < 4 {
		return -1
	}
	r := 0
	for _, c := range s.data[s.pos : s.pos+4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | int(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | int(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	s.pos += 4
	return r
}

// skip is the position after the checked value that starts at pos.
func skip(data []byte, pos int) int {
	switch data[pos] {
	case '"':
		return skipString(data, pos)
	case '{', '[':
		depth := 0
		for {
			switch data[pos] {
			case '"':
				pos = skipString(data, pos)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			if pos++; depth == 0 {
				return pos
			}
		}
	}
	for pos < len(data) && data[pos] != ',' && data[pos] != ']' && data[pos] != '}' && !isSpace(data[pos]) {
		pos++
	}
	return pos
}

func skipString(data []byte, pos int) int {
	for pos++; data[pos] != '"'; pos++ {
		if data[pos] == '\\' {
			pos++
		}
	}
	return pos + 1
}

// members yields key (quoted) and value of each member of a checked object. The
// slices are parts of raw.
func members(raw []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for pos := nextItem(raw, 1); raw[pos] != '}'; pos = nextItem(raw, pos) {
			end := skip(raw, pos)
			start := nextItem(raw, end)
			key := raw[pos:end]
			pos = skip(raw, start)
			if !yield(key, raw[start:pos]) {
				return
			}
		}
	}
}

// elements yields index and value of each element of a checked array.
func elements(raw []byte) iter.Seq2[int, []byte] {
	return func(yield func(i int, value []byte) bool) {
		i := 0
		for pos := nextItem(raw, 1); raw[pos] != ']'; pos = nextItem(raw, pos) {
			start := pos
			pos = skip(raw, start)
			if !yield(i, raw[start:pos]) {
				return
			}
			i++
		}
	}
}

// nextItem steps over blanks, commas and colons.
func nextItem(raw []byte, pos int) int {
	for isSpace(raw[pos]) || raw[pos] == ',' || raw[pos] == ':' {
		pos++
	}
	return pos
}

// unquote decodes a checked string.
func unquote(raw []byte) string {
	for _, c := range raw {
		if c == '\\' {
			var s string
			_ = json.Unmarshal(raw, &s) // cannot fail: raw was checked
			return s
		}
	}
	return string(raw[1 : len(raw)-1])
}

// kindOf names the type of a checked value, with its article.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
