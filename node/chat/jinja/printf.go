package jinja

import (
	"fmt"
	"strings"
)

// maxWidth bounds padding in formats; prompts have no wide columns.
const maxWidth = 1000

// printf is the % operator of texts, with one value or a tuple or mapping of them.
func (f *frame) printf(format Text, v Value) (Value, error) {
	vals := []Value{v}
	if l, ok := v.(*List); ok && l.tuple {
		vals = l.items
	}
	b := f.m.newBuilder()
	at, used := 0, 0
	for f.m.spend(1, 0) {
		n := strings.IndexByte(format.s[at:], '%')
		if n < 0 {
			break
		}
		b.text(f.m.sub(format, at, at+n))
		at += n + 1
		spec, size, err := parseVerb(format.s[at:])
		if err != nil {
			return nil, err
		}
		at += size
		if spec.verb == '%' {
			b.own("%")
			continue
		}
		var arg Value
		if arg, used, err = pick(spec, v, vals, used); err != nil {
			return nil, err
		}
		if err := b.verb(spec, arg); err != nil {
			return nil, err
		}
	}
	b.text(format.slice(at, len(format.s)))
	if _, isDict := v.(*Dict); used < len(vals) && !isDict {
		return nil, failf("not all arguments converted during string formatting")
	}
	return b.done(), f.m.err
}

// verbSpec is one conversion of a format.
type verbSpec struct {
	key   string // %(key)s
	named bool
	flags string // of "-+ 0#"
	width int
	prec  int // -1: none
	verb  byte
}

// parseVerb reads what follows a percent sign.
func parseVerb(s string) (spec verbSpec, size int, err error) {
	spec.prec = -1
	at := 0
	if strings.HasPrefix(s, "(") {
		end := strings.IndexByte(s, ')')
		if end < 0 {
			return spec, 0, failf("incomplete format key")
		}
		spec.key, spec.named = s[1:end], true
		at = end + 1
	}
	from := at
	for at < len(s) && strings.IndexByte("-+ 0#", s[at]) >= 0 {
		at++
	}
	spec.flags = s[from:at]
	spec.width, at = decimal(s, at)
	if at < len(s) && s[at] == '.' {
		spec.prec, at = decimal(s, at+1)
	}
	if at >= len(s) {
		return spec, 0, failf("incomplete format")
	}
	if spec.width > maxWidth || spec.prec > maxWidth || len(spec.flags) > 5 {
		return spec, 0, failf("a format is wider than %d characters", maxWidth)
	}
	spec.verb = s[at]
	return spec, at + 1, nil
}

// decimal reads digits; a value past maxWidth stops growing.
func decimal(s string, at int) (value, next int) {
	for at < len(s) && isDigit(s[at]) {
		value = min(value*10+int(s[at]-'0'), maxWidth+1)
		at++
	}
	return value, at
}

// pick chooses the argument of a conversion.
func pick(spec verbSpec, v Value, vals []Value, used int) (Value, int, error) {
	if spec.named {
		d, ok := v.(*Dict)
		if !ok {
			return nil, used, failf("format requires a mapping")
		}
		item, ok := d.get(spec.key)
		if !ok {
			return nil, used, failf("the key '%s' is not in the mapping", clip(spec.key))
		}
		return item, used, nil
	}
	if used >= len(vals) {
		return nil, used, failf("not enough arguments for format string")
	}
	return vals[used], used + 1, nil
}

// verb writes one converted argument.
func (b *builder) verb(spec verbSpec, arg Value) error {
	pattern := "%" + spec.flags
	if spec.width > 0 {
		pattern += fmt.Sprint(spec.width)
	}
	if spec.prec >= 0 {
		pattern += fmt.Sprintf(".%d", spec.prec)
	}
	switch spec.verb {
	case 's', 'r':
		return b.textVerb(spec, arg)
	case 'd', 'i', 'u', 'x', 'X', 'o', 'c':
		n, ok := integer(arg)
		if x, isFloat := arg.(float64); isFloat {
			n, ok = int64(x), true
		}
		if !ok {
			return failf("%%%c format: a number is required, not %s", spec.verb, typeName(arg))
		}
		verb := spec.verb
		if verb == 'i' || verb == 'u' {
			verb = 'd'
		}
		b.own(fmt.Sprintf(pattern+string(verb), n))
		return nil
	case 'f', 'F', 'e', 'E', 'g', 'G':
		x, ok := number(arg)
		if !ok {
			return failf("%%%c format: a number is required, not %s", spec.verb, typeName(arg))
		}
		b.own(fmt.Sprintf(pattern+string(spec.verb), x))
		return nil
	}
	return failf("unsupported format character '%c'", spec.verb)
}

func (b *builder) textVerb(spec verbSpec, arg Value) error {
	t := b.m.str(arg)
	if spec.verb == 'r' {
		r := b.m.newBuilder()
		r.repr(arg)
		t = r.done()
	}
	n := len([]rune(t.s))
	if spec.prec >= 0 && spec.prec < n {
		n = spec.prec
		t = t.slice(0, byteOffset(t.s, n))
	}
	fill := strings.Repeat(" ", max(spec.width-n, 0))
	if !strings.Contains(spec.flags, "-") {
		b.own(fill)
		fill = ""
	}
	b.text(t)
	b.own(fill)
	return nil
}

// formatMethod is str.format with plain fields: {}, {0} and {name}.
func formatMethod(f *frame, t Text, a args) (Value, error) {
	b := f.m.newBuilder()
	at, auto := 0, 0
	for f.m.spend(1, 0) {
		n := strings.IndexAny(t.s[at:], "{}")
		if n < 0 {
			break
		}
		b.text(f.m.sub(t, at, at+n))
		at += n
		if double := t.s[at : at+1]; strings.HasPrefix(t.s[at+1:], double) {
			b.text(t.slice(at, at+1))
			at += 2
			continue
		}
		end := strings.IndexByte(t.s[at:], '}')
		if t.s[at] == '}' || end < 0 {
			return nil, failf("a single '%c' in a format string", t.s[at])
		}
		v, err := a.field(t.s[at+1:at+end], &auto)
		if err != nil {
			return nil, err
		}
		b.text(f.m.str(v))
		at += end + 1
	}
	b.text(t.slice(at, len(t.s)))
	return b.done(), nil
}

// field finds the argument that a field of str.format names.
func (a args) field(name string, auto *int) (Value, error) {
	for i, n := range a.names {
		if n == name {
			return a.kw[i], nil
		}
	}
	at, next := decimal(name, 0)
	if name == "" {
		at = *auto
		*auto++
	} else if next != len(name) {
		return nil, failf("a format field may only be a number or the name of an argument, not '%s'", clip(name))
	}
	if at >= len(a.pos) {
		return nil, failf("replacement index %d out of range", at)
	}
	return a.pos[at], nil
}
