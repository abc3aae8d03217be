package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// maxJSONDepth bounds the nesting of values that come in; schemas that people
// write stay under 20.
const maxJSONDepth = 100

// FromJSON decodes one JSON value, keeping the order of keys. All its strings
// and keys are foreign.
func FromJSON(raw []byte) (Value, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := decodeValue(dec, 0)
	if err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

func decodeValue(dec *json.Decoder, depth int) (Value, error) {
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Delim:
		if depth >= maxJSONDepth {
			return nil, fmt.Errorf("JSON nests deeper than %d levels", maxJSONDepth)
		}
		if tok == '[' {
			return decodeList(dec, depth+1)
		}
		return decodeDict(dec, depth+1)
	case string:
		return Foreign(tok), nil
	case json.Number:
		return decodeNumber(string(tok)), nil
	default: // nil, bool
		return tok, nil
	}
}

func decodeList(dec *json.Decoder, depth int) (Value, error) {
	l := NewList()
	for dec.More() {
		v, err := decodeValue(dec, depth)
		if err != nil {
			return nil, err
		}
		l.Append(v)
	}
	_, err := dec.Token()
	return l, err
}

func decodeDict(dec *json.Decoder, depth int) (Value, error) {
	d := NewDict()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok {
			return nil, errors.New("a JSON key is not a string")
		}
		v, err := decodeValue(dec, depth)
		if err != nil {
			return nil, err
		}
		d.put(Foreign(name), name, v)
	}
	_, err := dec.Token()
	return d, err
}

func decodeNumber(s string) Value {
	if !strings.ContainsAny(s, ".eE") {
		if i, err := strconv.ParseInt(s, 10, 64); err == nil {
			return i
		}
		return bigInt(s)
	}
	f, _ := strconv.ParseFloat(s, 64) // out of range gives an infinity, as in Python
	return f
}

// jsonStyle is the layout of tojson, with Python's defaults.
type jsonStyle struct {
	indent    string // "" puts everything on one line
	multiline bool
	comma     string
	colon     string
	ascii     bool
	sorted    bool
}

// writeJSON is Python's json.dumps.
func (b *builder) writeJSON(v Value, st jsonStyle, level int) error {
	if err := b.m.enter(); err != nil {
		b.m.leave()
		return err
	}
	defer b.m.leave()
	if err := b.m.afford(1, 0); err != nil {
		return err
	}
	switch v := v.(type) {
	case nil:
		b.own("null")
	case bool:
		b.own(strconv.FormatBool(v))
	case int64, bigInt:
		b.repr(v)
	case float64:
		b.own(jsonFloat(v))
	case Text:
		b.jsonString(v, st.ascii)
	case *List:
		return b.jsonList(v, st, level)
	case *Dict:
		return b.jsonDict(v, st, level)
	case Undefined:
		return v.fail()
	default:
		return failf("Object of type %s is not JSON serializable", typeName(v))
	}
	return nil
}

func jsonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case math.IsNaN(f):
		return "NaN"
	}
	return pythonFloat(f)
}

func (b *builder) jsonList(l *List, st jsonStyle, level int) error {
	if len(l.items) == 0 {
		b.own("[]")
		return nil
	}
	b.own("[")
	for i, v := range l.items {
		b.jsonBreak(i > 0, st, level+1)
		if err := b.writeJSON(v, st, level+1); err != nil {
			return err
		}
	}
	b.jsonBreak(false, st, level)
	b.own("]")
	return nil
}

func (b *builder) jsonDict(d *Dict, st jsonStyle, level int) error {
	if d.Len() == 0 {
		b.own("{}")
		return nil
	}
	order, err := b.m.keyOrder(d, st.sorted)
	if err != nil {
		return err
	}
	b.own("{")
	for n, i := range order {
		b.jsonBreak(n > 0, st, level+1)
		if err := b.jsonKey(d.keys[i], st); err != nil {
			return err
		}
		b.own(st.colon)
		if err := b.writeJSON(d.vals[i], st, level+1); err != nil {
			return err
		}
	}
	b.jsonBreak(false, st, level)
	b.own("}")
	return nil
}

func (b *builder) jsonKey(key Value, st jsonStyle) error {
	switch key := key.(type) {
	case Text:
		b.jsonString(key, st.ascii)
	case nil, bool, int64, float64, bigInt:
		b.own(`"`)
		if err := b.writeJSON(key, st, 0); err != nil {
			return err
		}
		b.own(`"`)
	default:
		return failf("keys must be str, not %s", typeName(key))
	}
	return nil
}

// jsonBreak goes to the next element: a comma if there was one before, and a new
// line if the layout has several.
func (b *builder) jsonBreak(comma bool, st jsonStyle, level int) {
	if comma {
		b.own(st.comma)
	}
	if st.multiline && b.m.spend(1, level*len(st.indent)) {
		b.own("\n" + strings.Repeat(st.indent, level))
	}
}

func (b *builder) jsonString(t Text, ascii bool) {
	b.own(`"`)
	b.mapped(t, func(s string) string { return jsonEscape(s, ascii) })
	b.own(`"`)
}

func jsonEscape(s string, ascii bool) string {
	plain := func(r rune) bool {
		return r >= ' ' && r != '"' && r != '\\' && (r < 0x80 || !ascii)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var out strings.Builder
	for _, r := range s {
		switch {
		case plain(r):
			out.WriteRune(r)
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case r == '\b':
			out.WriteString(`\b`)
		case r == '\f':
			out.WriteString(`\f`)
		case r >= 0x10000:
			r -= 0x10000
			fmt.Fprintf(&out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
