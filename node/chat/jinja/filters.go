package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

type filterFunc func(f *frame, v Value, a args) (Value, error)

// filterNamed is the filter with that name, or nil.
func filterNamed(name string) filterFunc {
	switch name {
	case "abs":
		return filterAbs
	case "attr":
		return filterAttr
	case "batch":
		return filterBatch
	case "capitalize":
		return textFilter(func(f *frame, t Text) Text { return f.capitalized(t) })
	case "center":
		return filterCenter
	case "default", "d":
		return filterDefault
	case "dictsort":
		return filterDictSort
	case "escape", "e", "forceescape":
		return textFilter(func(f *frame, t Text) Text { return f.m.mapText(t, htmlEscaper.Replace) })
	case "first":
		return filterFirst
	case "float":
		return filterFloat
	case "format":
		return filterFormat
	case "groupby":
		return filterGroupBy
	case "indent":
		return filterIndent
	case "int":
		return filterInt
	case "items":
		return filterItems
	case "join":
		return filterJoin
	case "last":
		return filterLast
	case "length", "count":
		return filterLength
	case "list":
		return filterList
	case "lower":
		return textFilter(func(f *frame, t Text) Text { return f.m.mapText(t, strings.ToLower) })
	case "map":
		return filterMap
	case "max":
		return extreme("max", 1)
	case "min":
		return extreme("min", -1)
	case "reject":
		return selecting(false, false)
	case "rejectattr":
		return selecting(true, false)
	case "replace":
		return filterReplace
	case "reverse":
		return filterReverse
	case "round":
		return filterRound
	case "safe":
		return func(_ *frame, v Value, _ args) (Value, error) { return v, nil }
	case "select":
		return selecting(false, true)
	case "selectattr":
		return selecting(true, true)
	case "sort":
		return filterSort
	case "string":
		return textFilter(func(_ *frame, t Text) Text { return t })
	case "sum":
		return filterSum
	case "title":
		return textFilter(func(f *frame, t Text) Text { return f.titled(t, titleBorder) })
	case "tojson":
		return filterToJSON
	case "trim":
		return filterTrim
	case "truncate":
		return filterTruncate
	case "unique":
		return filterUnique
	case "upper":
		return textFilter(func(f *frame, t Text) Text { return f.m.mapText(t, strings.ToUpper) })
	case "wordcount":
		return filterWordCount
	}
	return nil
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

func titleBorder(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) }

// textFilter is a filter that only looks at the text of its value.
func textFilter(change func(*frame, Text) Text) filterFunc {
	return func(f *frame, v Value, _ args) (Value, error) {
		return change(f, f.m.str(v)), nil
	}
}

func filterAbs(_ *frame, v Value, _ args) (Value, error) {
	if i, ok := integer(v); ok {
		if i < 0 {
			return intOp("-", 0, i)
		}
		return i, nil
	}
	if x, ok := v.(float64); ok {
		return math.Abs(x), nil
	}
	return nil, failf("bad operand type for abs(): '%s'", typeName(v))
}

func filterAttr(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("attr", "name")
	if err != nil {
		return nil, err
	}
	name, err := needText("attr", p[0])
	if err != nil {
		return nil, err
	}
	return attribute(v, name.s)
}

func filterCenter(f *frame, v Value, a args) (Value, error) {
	if len(a.pos)+len(a.kw) == 0 {
		a.pos = []Value{int64(80)}
	}
	return textMethod("center")(f, f.m.str(v), a)
}

func filterDefault(_ *frame, v Value, a args) (Value, error) {
	p, err := a.bind("default", "default_value", "boolean")
	if err != nil {
		return nil, err
	}
	_, missing := v.(Undefined)
	if !missing && !(orBool(p[1], false) && !truth(v)) {
		return v, nil
	}
	if !given(p[0]) {
		return Text{}, nil
	}
	return p[0], nil
}

func filterFloat(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("float", "default")
	if err != nil {
		return nil, err
	}
	if x, ok := number(v); ok {
		return x, nil
	}
	if t, ok := v.(Text); ok {
		if x, err := strconv.ParseFloat(strings.TrimFunc(t.s, isSpace), 64); err == nil {
			return x, nil
		}
	}
	if given(p[0]) {
		return p[0], nil
	}
	return 0.0, nil
}

func filterInt(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("int", "default", "base")
	if err != nil {
		return nil, err
	}
	base, err := orInt("int", p[1], 10)
	if err != nil {
		return nil, err
	}
	if i, ok := toInt(v, int(base)); ok {
		return i, nil
	}
	if given(p[0]) {
		return p[0], nil
	}
	return int64(0), nil
}

func toInt(v Value, base int) (int64, bool) {
	if i, ok := integer(v); ok {
		return i, true
	}
	x, ok := v.(float64)
	if t, isText := v.(Text); isText {
		s := strings.TrimFunc(t.s, isSpace)
		if base >= 2 && base <= 36 {
			if i, err := strconv.ParseInt(s, base, 64); err == nil {
				return i, true
			}
		}
		var err error
		x, err = strconv.ParseFloat(s, 64)
		ok = err == nil
	}
	if !ok || math.IsNaN(x) || math.Abs(x) >= math.MaxInt64 {
		return 0, false
	}
	return int64(x), true
}

func filterFormat(f *frame, v Value, a args) (Value, error) {
	if len(a.kw) > 0 {
		d, err := dictFunc(f, args{names: a.names, kw: a.kw})
		if err != nil {
			return nil, err
		}
		return f.printf(f.m.str(v), d)
	}
	return f.printf(f.m.str(v), newTuple(a.pos...))
}

// filterIndent puts blanks before each line but the first.
func filterIndent(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("indent", "width", "first", "blank")
	if err != nil {
		return nil, err
	}
	indent, ok := p[0].(Text)
	if !ok {
		width, err := orInt("indent", p[0], 4)
		if err != nil {
			return nil, err
		}
		if width > maxWidth {
			return nil, failf("indent is at most %d wide", maxWidth)
		}
		indent = Own(strings.Repeat(" ", int(max(width, 0))))
	}
	first, blank := orBool(p[1], false), orBool(p[2], false)
	t := f.m.str(v)
	// A text that ends with a line end has an empty last line.
	t = f.m.concat(t, Own("\n"))
	b := f.m.newBuilder()
	for i, sp := range lineSpans(f.m, t.s, false) {
		if i > 0 {
			b.own("\n")
		}
		if i == 0 && first || i > 0 && (blank || sp.Start < sp.End) {
			b.text(indent)
		}
		b.text(f.m.sub(t, sp.Start, sp.End))
	}
	return b.done(), nil
}

func filterLength(f *frame, v Value, _ args) (Value, error) {
	switch v := v.(type) {
	case Text:
		f.m.spend(1+len(v.s)/bytesPerStep, 0)
		return int64(utf8.RuneCountInString(v.s)), nil
	case *List:
		return int64(len(v.items)), nil
	case *Dict:
		return int64(v.Len()), nil
	case Undefined:
		return int64(0), nil
	}
	return nil, failf("object of type '%s' has no len()", typeName(v))
}

func filterReplace(f *frame, v Value, a args) (Value, error) {
	return replaceMethod(f, f.m.str(v), a)
}

func filterRound(_ *frame, v Value, a args) (Value, error) {
	p, err := a.bind("round", "precision", "method")
	if err != nil {
		return nil, err
	}
	places, err := orInt("round", p[0], 0)
	if err != nil {
		return nil, err
	}
	method, err := orText("round", p[1], "common")
	if err != nil {
		return nil, err
	}
	x, ok := number(v)
	if !ok {
		return nil, failf("round expects a number, got '%s'", typeName(v))
	}
	if _, ok := integer(v); ok && places >= 0 {
		return v, nil
	}
	scale := math.Pow(10, float64(places))
	switch method.s {
	case "common":
		return math.RoundToEven(x*scale) / scale, nil
	case "ceil":
		return math.Ceil(x*scale) / scale, nil
	case "floor":
		return math.Floor(x*scale) / scale, nil
	}
	return nil, failf("round's method is common, ceil or floor, not '%s'", clip(method.s))
}

func filterToJSON(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("tojson", "ensure_ascii", "indent", "separators", "sort_keys")
	if err != nil {
		return nil, err
	}
	st := jsonStyle{comma: ", ", colon: ": ", ascii: orBool(p[0], false), sorted: orBool(p[3], false)}
	if err := st.layout(p[1]); err != nil {
		return nil, err
	}
	if given(p[2]) && p[2] != nil {
		l, ok := p[2].(*List)
		if !ok || len(l.items) != 2 {
			return nil, failf("tojson's separators are two strings")
		}
		st.comma, st.colon = f.m.str(l.items[0]).s, f.m.str(l.items[1]).s
	}
	b := f.m.newBuilder()
	if err := b.writeJSON(v, st, 0); err != nil {
		return nil, err
	}
	return b.done(), nil
}

// layout sets the indent: a number of blanks or a text.
func (st *jsonStyle) layout(v Value) error {
	if !given(v) || v == nil {
		return nil
	}
	st.multiline, st.comma = true, ","
	if t, ok := v.(Text); ok {
		st.indent = t.s
	} else {
		n, err := orInt("tojson", v, 0)
		if err != nil {
			return err
		}
		if n > 0 {
			st.indent = strings.Repeat(" ", int(min(n, maxWidth+1)))
		}
	}
	if len(st.indent) > maxWidth {
		return failf("indent is at most %d wide", maxWidth)
	}
	return nil
}

func filterTrim(f *frame, v Value, a args) (Value, error) {
	return strip(true, true)(f, f.m.str(v), a)
}

func filterTruncate(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("truncate", "length", "killwords", "end", "leeway")
	if err != nil {
		return nil, err
	}
	length, err := orInt("truncate", p[0], 255)
	if err != nil {
		return nil, err
	}
	end, err := orText("truncate", p[2], "...")
	if err != nil {
		return nil, err
	}
	leeway, err := orInt("truncate", p[3], 5)
	if err != nil {
		return nil, err
	}
	t := f.m.str(v)
	keep := length - int64(utf8.RuneCountInString(end.s))
	if keep < 0 || leeway < 0 {
		return nil, failf("truncate's length is less than that of its end")
	}
	f.m.spend(len(t.s)/bytesPerStep, 0)
	if n := int64(utf8.RuneCountInString(t.s)); n <= length || n-length <= leeway {
		return t, nil
	}
	cut := f.m.sub(t, 0, byteOffset(t.s, int(keep)))
	if !orBool(p[1], false) {
		if i := strings.LastIndexByte(cut.s, ' '); i >= 0 {
			cut = cut.slice(0, i)
		}
	}
	return f.m.concat(cut, end), nil
}

func filterWordCount(f *frame, v Value, _ args) (Value, error) {
	return int64(len(fieldSpans(f.m, f.m.str(v).s, -1, false))), nil
}
