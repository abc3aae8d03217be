package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is the type of a JSON value.
type kind uint8

const (
	kindNull kind = iota
	kindFalse
	kindTrue
	kindNumber
	kindString
	kindArray
	kindObject
)

// value is a JSON value that knows its place in the schema and the order of its
// members.
type value struct {
	kind   kind
	text   string           // of a string, or the literal of a number
	items  []*value         // of an array or an object
	keys   []string         // of an object, beside items
	index  map[string]int32 // of keys, if there are many
	parent *value
	key    string // in parent
	id     int    // in order of the text, from 0
}

// indexedKeys is the size from which an object gets an index.
const indexedKeys = 12

// get is the member named key, or nil.
func (v *value) get(key string) *value {
	if v.kind != kindObject {
		return nil
	}
	if v.index != nil {
		if i, ok := v.index[key]; ok {
			return v.items[i]
		}
		return nil
	}
	if i := slices.Index(v.keys, key); i >= 0 {
		return v.items[i]
	}
	return nil
}

// path is the JSON pointer to v.
func (v *value) path() string {
	var parts []string
	for ; v.parent != nil; v = v.parent {
		parts = append(parts, pointerEscaper.Replace(v.key))
	}
	slices.Reverse(parts)
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("/" + p)
	}
	return b.String()
}

var (
	pointerEscaper   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// lookup follows a JSON pointer in the form of a URI fragment, without "#"; nil
// if it leads nowhere.
func (v *value) lookup(fragment string) *value {
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return nil
	}
	if pointer == "" {
		return v
	}
	if pointer[0] != '/' {
		return nil
	}
	for _, part := range strings.Split(pointer[1:], "/") {
		part = pointerUnescaper.Replace(part)
		if v.kind == kindArray {
			i, err := strconv.ParseUint(part, 10, 31)
			if err != nil || int(i) >= len(v.items) {
				return nil
			}
			v = v.items[i]
		} else if v = v.get(part); v == nil {
			return nil
		}
	}
	return v
}

// parseValue reads a schema within its limits.
func parseValue(src json.RawMessage) (*value, error) {
	switch {
	case len(src) > MaxSchemaBytes:
		return nil, &Error{Reason: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(src), MaxSchemaBytes)}
	case !utf8.Valid(src):
		return nil, &Error{Reason: "it is not valid UTF-8"}
	case loneSurrogate(src):
		return nil, &Error{Reason: `it has half of a surrogate pair (\ud800 to \udfff), which is not a character`}
	}
	p := valueParser{dec: json.NewDecoder(bytes.NewReader(src))}
	p.dec.UseNumber()
	v, err := p.value(nil, "", 0)
	if err == nil {
		err = p.end()
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Reason: "it is not JSON: " + clip(err.Error())}
		}
		return nil, e
	}
	return v, nil
}

// loneSurrogate finds an escape that the decoder would replace.
func loneSurrogate(src []byte) bool {
	for i := 0; i < len(src); i++ {
		if src[i] != '\\' {
			continue
		}
		i++
		if n := surrogateAt(src, i); n == surrogateHigh {
			if i+5 >= len(src) || src[i+5] != '\\' || surrogateAt(src, i+6) != surrogateLow {
				return true
			}
			i += 10
		} else if n == surrogateLow {
			return true
		}
	}
	return false
}

const (
	surrogateNone = iota
	surrogateHigh
	surrogateLow
)

// surrogateAt tells which half src[i:], which follows a backslash, escapes.
func surrogateAt(src []byte, i int) int {
	if i+5 > len(src) || src[i] != 'u' {
		return surrogateNone
	}
	n, err := strconv.ParseUint(string(src[i+1:i+5]), 16, 16)
	switch {
	case err != nil || n < 0xd800 || n > 0xdfff:
		return surrogateNone
	case n < 0xdc00:
		return surrogateHigh
	}
	return surrogateLow
}

type valueParser struct {
	dec *json.Decoder
	n   int
}

// end makes sure that nothing follows the value.
func (p *valueParser) end() error {
	if _, err := p.dec.Token(); err != io.EOF {
		return errors.New("something follows the value")
	}
	return nil
}

func (p *valueParser) value(parent *value, key string, depth int) (*value, error) {
	tok, err := p.dec.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	v := &value{parent: parent, key: key, id: p.n}
	if p.n++; p.n > MaxSchemaValues {
		return nil, &Error{Reason: fmt.Sprintf("it has more than %d values", MaxSchemaValues)}
	}
	switch tok := tok.(type) {
	case bool:
		v.kind = kindFalse
		if tok {
			v.kind = kindTrue
		}
	case json.Number:
		v.kind, v.text = kindNumber, tok.String()
	case string:
		v.kind, v.text = kindString, tok
	case json.Delim:
		if depth >= MaxSchemaDepth {
			return nil, &Error{Reason: fmt.Sprintf("it is nested more than %d levels deep", MaxSchemaDepth)}
		}
		if tok == '[' {
			err = p.array(v, depth)
		} else {
			err = p.object(v, depth)
		}
	}
	return v, err
}

func (p *valueParser) array(v *value, depth int) error {
	v.kind = kindArray
	for p.dec.More() {
		item, err := p.value(v, strconv.Itoa(len(v.items)), depth+1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := p.dec.Token()
	return err
}

func (p *valueParser) object(v *value, depth int) error {
	v.kind = kindObject
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return err
		}
		key, _ := tok.(string) // the decoder accepts nothing else here
		if v.get(key) != nil {
			return &Error{Path: v.path(), Keyword: clip(key), Reason: "it is there twice"}
		}
		item, err := p.value(v, key, depth+1)
		if err != nil {
			return err
		}
		v.keys, v.items = append(v.keys, key), append(v.items, item)
		v.indexLast()
	}
	_, err := p.dec.Token()
	return err
}

// indexLast puts the last member into the index, which begins with enough of them.
func (v *value) indexLast() {
	n := len(v.keys)
	if n < indexedKeys {
		return
	}
	if v.index == nil {
		v.index = make(map[string]int32, 2*n)
		for i, k := range v.keys {
			v.index[k] = int32(i)
		}
	}
	v.index[v.keys[n-1]] = int32(n - 1)
}

// appendJSON appends v as compact JSON, strings without needless escapes.
func (v *value) appendJSON(b []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(b, "null"...)
	case kindFalse:
		return append(b, "false"...)
	case kindTrue:
		return append(b, "true"...)
	case kindNumber:
		return append(b, v.text...)
	case kindString:
		return appendQuoted(b, v.text)
	case kindArray:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.appendJSON(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, item := range v.items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendQuoted(b, v.keys[i]), ':')
		b = item.appendJSON(b)
	}
	return append(b, '}')
}

// identity is a text that is equal for equal values: 1.0 is 1, and the order of
// members means nothing.
func (v *value) identity() string {
	switch v.kind {
	case kindNumber:
		if d, err := parseDecimal(v.text); err == nil {
			return d.String()
		}
		return v.text
	case kindArray:
		parts := make([]string, len(v.items))
		for i, item := range v.items {
			parts[i] = item.identity()
		}
		return "[" + strings.Join(parts, ",") + "]"
	case kindObject:
		parts := make([]string, len(v.items))
		for i, item := range v.items {
			parts[i] = string(appendQuoted(nil, v.keys[i])) + ":" + item.identity()
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	}
	return string(v.appendJSON(nil))
}

// appendQuoted appends s as a JSON string. It has one spelling for each
// character: control characters are escaped, everything else is as it is.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		b = appendStringRune(b, r)
	}
	return append(b, '"')
}

// appendStringRune appends one character as it is spelled inside a JSON string.
func appendStringRune(b []byte, r rune) []byte {
	if e, ok := shortEscape(r); ok {
		return append(b, '\\', e)
	}
	if isControl(r) {
		return fmt.Appendf(b, `\u%04x`, r)
	}
	return utf8.AppendRune(b, r)
}

// isControl tells whether generated strings hold r as an escape only.
func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// shortEscape is the letter after the backslash of characters that have one.
func shortEscape(r rune) (byte, bool) {
	switch r {
	case '"', '\\':
		return byte(r), true
	case '\b':
		return 'b', true
	case '\f':
		return 'f', true
	case '\n':
		return 'n', true
	case '\r':
		return 'r', true
	case '\t':
		return 't', true
	}
	return 0, false
}
