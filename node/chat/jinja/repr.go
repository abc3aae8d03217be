package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// str is Python's str(): what {{ }} prints.
func (m *meter) str(v Value) Text {
	switch v := v.(type) {
	case Text:
		return v
	case Undefined:
		return Text{}
	}
	b := m.newBuilder()
	b.repr(v)
	return b.done()
}

// repr is Python's repr().
func (b *builder) repr(v Value) {
	if b.m.enter() != nil || !b.m.spend(1, 0) {
		b.m.leave()
		return
	}
	defer b.m.leave()
	switch v := v.(type) {
	case nil:
		b.own("None")
	case bool:
		b.own(pythonBool(v))
	case int64:
		b.own(strconv.FormatInt(v, 10))
	case bigInt:
		b.own(string(v))
	case float64:
		b.own(pythonFloat(v))
	case Text:
		b.quoted(v)
	case *List:
		b.reprList(v)
	case *Dict:
		b.reprDict(v)
	case Undefined:
		b.own("Undefined")
	case *namespace:
		b.own("<Namespace ")
		b.reprDict(v.d)
		b.own(">")
	case *Func:
		b.own("<function " + v.name + ">")
	default:
		b.own("<loop>")
	}
}

func (b *builder) reprList(l *List) {
	open, end := "[", "]"
	if l.tuple {
		open, end = "(", ")"
		if len(l.items) == 1 {
			end = ",)"
		}
	}
	b.own(open)
	for i, v := range l.items {
		if i > 0 {
			b.own(", ")
		}
		b.repr(v)
	}
	b.own(end)
}

func (b *builder) reprDict(d *Dict) {
	b.own("{")
	for i := range d.keys {
		if i > 0 {
			b.own(", ")
		}
		b.repr(d.keys[i])
		b.own(": ")
		b.repr(d.vals[i])
	}
	b.own("}")
}

// quoted writes a text as a Python literal.
func (b *builder) quoted(t Text) {
	quote := "'"
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		quote = `"`
	}
	b.own(quote)
	b.mapped(t, func(s string) string { return pythonEscape(s, quote[0]) })
	b.own(quote)
}

func pythonEscape(s string, quote byte) string {
	var out strings.Builder
	for _, r := range s {
		switch {
		case r == '\\' || r == rune(quote):
			out.WriteByte('\\')
			out.WriteRune(r)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			out.WriteString(escapeRune(r))
		}
	}
	return out.String()
}

func escapeRune(r rune) string {
	hex := strconv.FormatInt(int64(r), 16)
	pad := func(n int) string { return strings.Repeat("0", n-len(hex)) + hex }
	switch {
	case r < 0x100:
		return `\x` + pad(2)
	case r < 0x10000:
		return `\u` + pad(4)
	}
	return `\U` + pad(8)
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pythonFloat is the shortest form that reads back as the same number, with an
// exponent outside 1e-4 ... 1e16 as in Python.
func pythonFloat(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	if abs := math.Abs(f); f != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}
