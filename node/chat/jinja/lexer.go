package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokEOF tokenKind = iota
	tokData
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
)

type token struct {
	kind tokenKind
	text string // of data and strings: their value
	line int
}

// describe names a token in an error.
func (t token) describe() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokData:
		return "text"
	case tokVarBegin:
		return "'{{'"
	case tokVarEnd:
		return "'}}'"
	case tokBlockBegin:
		return "'{%'"
	case tokBlockEnd:
		return "'%}'"
	}
	return "'" + clip(t.text) + "'"
}

// lexer cuts a source into tokens. Whitespace control happens here: trim_blocks
// (a newline right after a block or comment goes), lstrip_blocks (blanks between
// the start of a line and a block or comment go) and the signs - and +.
type lexer struct {
	src       string
	at        int
	line      int
	lineStart bool // what was consumed last ends a line, or nothing was consumed yet
	out       []token
}

func lex(source string) ([]token, error) {
	src := strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
	for l.at < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.emit(tokEOF, "")
	return l.out, nil
}

func (l *lexer) emit(k tokenKind, text string) {
	l.out = append(l.out, token{kind: k, text: text, line: l.line})
}

func (l *lexer) fail(format string, args ...any) error {
	e := failf(format, args...)
	return &Error{Kind: Syntax, Line: l.line, Reason: e.Reason}
}

// take consumes n bytes.
func (l *lexer) take(n int) string {
	s := l.src[l.at : l.at+n]
	l.at += n
	l.line += strings.Count(s, "\n")
	if s != "" {
		l.lineStart = s[len(s)-1] == '\n'
	}
	return s
}

func (l *lexer) takeSpace() {
	rest := l.src[l.at:]
	l.take(len(rest) - len(strings.TrimLeftFunc(rest, isSpace)))
}

// takeEnd consumes a closing mark that starts at the present place, with its
// sign and the whitespace that goes with it. It reports false if there is none.
func (l *lexer) takeEnd(mark string, trimNewline bool) bool {
	rest := l.src[l.at:]
	switch {
	case strings.HasPrefix(rest, "-"+mark):
		l.take(1 + len(mark))
		l.takeSpace()
	case trimNewline && strings.HasPrefix(rest, "+"+mark):
		l.take(1 + len(mark))
	case strings.HasPrefix(rest, mark):
		l.take(len(mark))
		if trimNewline && strings.HasPrefix(l.src[l.at:], "\n") {
			l.take(1)
		}
	default:
		return false
	}
	return true
}

// opener finds the next {{, {% or {#.
func opener(s string) int {
	for i := 0; ; {
		n := strings.IndexByte(s[i:], '{')
		if n < 0 || i+n+1 >= len(s) {
			return -1
		}
		i += n
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
		i++
	}
}

// next consumes text up to the next tag, and the tag.
func (l *lexer) next() error {
	rest := l.src[l.at:]
	n := opener(rest)
	if n < 0 {
		l.data(l.take(len(rest)))
		return nil
	}
	lineStart := l.lineStart
	text, line := l.take(n), l.line
	mark := l.take(2)
	sign := l.sign()
	text = controlled(text, sign, mark != "{{", lineStart)
	if text != "" {
		l.out = append(l.out, token{kind: tokData, text: text, line: line})
	}
	switch {
	case mark == "{#":
		return l.comment()
	case mark == "{{":
		l.emit(tokVarBegin, mark)
		return l.inside(tokVarEnd, "}}")
	}
	if raw, err := l.raw(); raw || err != nil {
		return err
	}
	l.emit(tokBlockBegin, mark)
	return l.inside(tokBlockEnd, "%}")
}

func (l *lexer) data(s string) {
	if s != "" {
		l.emit(tokData, s)
	}
}

// sign consumes the - or + right after an opener.
func (l *lexer) sign() byte {
	if l.at < len(l.src) && (l.src[l.at] == '-' || l.src[l.at] == '+') {
		return l.take(1)[0]
	}
	return 0
}

// controlled strips the text before a tag.
func controlled(text string, sign byte, lstrip, lineStart bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	if sign == '+' || !lstrip {
		return text
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if (start > 0 || lineStart) && strings.TrimLeftFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

func (l *lexer) comment() error {
	n := strings.Index(l.src[l.at:], "#}")
	if n < 0 {
		return l.fail("a comment is not closed")
	}
	if n > 0 && strings.IndexByte("-+", l.src[l.at+n-1]) >= 0 {
		n--
	}
	l.take(n)
	l.takeEnd("#}", true)
	return nil
}

// raw handles {% raw %} ... {% endraw %}, after the opener and its sign.
func (l *lexer) raw() (bool, error) {
	n, ok := rawTag(l.src[l.at:], "raw")
	if !ok {
		return false, nil
	}
	l.take(n)
	l.takeEnd("%}", false)
	for from := l.at; ; {
		n := strings.Index(l.src[from:], "{%")
		if n < 0 {
			return true, l.fail("a raw block is not closed")
		}
		from += n
		tag, sign := l.src[from+2:], byte(0)
		if tag != "" && (tag[0] == '-' || tag[0] == '+') {
			sign, tag = tag[0], tag[1:]
		}
		skip, ok := rawTag(tag, "endraw")
		if !ok {
			from += 2
			continue
		}
		lineStart, line := l.lineStart, l.line
		text := controlled(l.take(from-l.at), sign, true, lineStart)
		if text != "" {
			l.out = append(l.out, token{kind: tokData, text: text, line: line})
		}
		l.take(len(l.src) - l.at - len(tag) + skip)
		l.takeEnd("%}", true)
		return true, nil
	}
}

// rawTag matches blanks, a word and blanks before the end of a block; n is where
// the end mark with its sign begins.
func rawTag(s, word string) (n int, ok bool) {
	t := strings.TrimLeftFunc(s, isSpace)
	t, ok = strings.CutPrefix(t, word)
	if !ok {
		return 0, false
	}
	t = strings.TrimLeftFunc(t, isSpace)
	for _, end := range []string{"%}", "-%}", "+%}"} {
		if strings.HasPrefix(t, end) {
			return len(s) - len(t), true
		}
	}
	return 0, false
}

// inside consumes the tokens of an expression up to the closing mark, which does
// not count between brackets.
func (l *lexer) inside(end tokenKind, mark string) error {
	depth := 0
	for {
		l.takeSpace()
		if l.at >= len(l.src) {
			return l.fail("expected '%s' before the end of the template", mark)
		}
		line := l.line
		if depth == 0 && l.takeEnd(mark, end == tokBlockEnd) {
			l.out = append(l.out, token{kind: end, text: mark, line: line})
			return nil
		}
		if err := l.one(); err != nil {
			return err
		}
		if t := l.out[len(l.out)-1]; t.kind == tokOp {
			switch t.text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
			if depth < 0 {
				return l.fail("unexpected '%s'", t.text)
			}
		}
	}
}

// one consumes a single token of an expression.
func (l *lexer) one() error {
	rest := l.src[l.at:]
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '\'' || r == '"':
		return l.quoted(byte(r))
	case r >= '0' && r <= '9':
		l.number()
		return nil
	case r == '_' || unicode.IsLetter(r):
		n := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		})
		if n < 0 {
			n = len(rest)
		}
		l.emit(tokName, rest[:n])
		l.take(n)
		return nil
	}
	for _, op := range []string{"//", "**", "==", "!=", ">=", "<="} {
		if strings.HasPrefix(rest, op) {
			l.emit(tokOp, l.take(2))
			return nil
		}
	}
	if strings.IndexByte("+-/*%~[](){}<>=.:|,;", rest[0]) >= 0 {
		l.emit(tokOp, l.take(1))
		return nil
	}
	return l.fail("unexpected character %q", r)
}

// number consumes an integer or a float; a dot counts only between digits.
func (l *lexer) number() {
	rest := l.src[l.at:]
	if n := radixLen(rest); n > 0 {
		l.emit(tokInt, rest[:n])
		l.take(n)
		return
	}
	n := digits(rest)
	kind := tokInt
	if n+1 < len(rest) && rest[n] == '.' && isDigit(rest[n+1]) && !l.afterDot() {
		kind = tokFloat
		n += 1 + digits(rest[n+1:])
	}
	if e := exponentLen(rest[n:]); e > 0 && !l.afterDot() {
		kind = tokFloat
		n += e
	}
	l.emit(kind, rest[:n])
	l.take(n)
}

// afterDot tells a.0.1 (items of items) from 0.1.
func (l *lexer) afterDot() bool {
	return l.at > 0 && l.src[l.at-1] == '.'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits counts leading digits, with single underscores between them.
func digits(s string) int {
	n := 0
	for n < len(s) && (isDigit(s[n]) || s[n] == '_' && n+1 < len(s) && isDigit(s[n+1])) {
		n++
	}
	return n
}

func exponentLen(s string) int {
	if s == "" || s[0] != 'e' && s[0] != 'E' {
		return 0
	}
	n := 1
	if n < len(s) && (s[n] == '+' || s[n] == '-') {
		n++
	}
	if d := digits(s[n:]); d > 0 {
		return n + d
	}
	return 0
}

// radixLen is the length of a hexadecimal, octal or binary number, or 0.
func radixLen(s string) int {
	if len(s) < 3 || s[0] != '0' {
		return 0
	}
	var set string
	switch s[1] {
	case 'x', 'X':
		set = "0123456789abcdefABCDEF"
	case 'o', 'O':
		set = "01234567"
	case 'b', 'B':
		set = "01"
	}
	n := len(s) - len(strings.TrimLeft(s[2:], set))
	if n == 2 {
		return 0
	}
	return n
}

// quoted consumes a string literal.
func (l *lexer) quoted(quote byte) error {
	rest := l.src[l.at:]
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case quote:
			value, err := unescape(rest[1:i])
			if err != nil {
				return l.fail("%s", err)
			}
			l.emit(tokString, value)
			l.take(i + 1)
			return nil
		}
	}
	return l.fail("a string is not closed")
}
