package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// split cuts at a separator, or at whitespace without one.
func split(fromRight bool) textFunc {
	return func(f *frame, t Text, a args) (Value, error) {
		p, err := a.bind("split", "sep", "maxsplit")
		if err != nil {
			return nil, err
		}
		most, err := orInt("split", p[1], -1)
		if err != nil {
			return nil, err
		}
		f.m.spend(1+len(t.s)/bytesPerStep, 0)
		if !given(p[0]) || p[0] == nil {
			return f.pieces(t, fieldSpans(f.m, t.s, most, fromRight))
		}
		sep, err := orText("split", p[0], "")
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, failf("empty separator")
		}
		return f.pieces(t, sepSpans(f.m, t.s, sep.s, most, fromRight))
	}
}

func (f *frame) pieces(t Text, spans []Span) (Value, error) {
	items := make([]Value, len(spans))
	for i, sp := range spans {
		items[i] = f.m.sub(t, sp.Start, sp.End)
	}
	return f.newList(items)
}

// sepSpans lists what stands between separators; most < 0 means all.
func sepSpans(m *meter, s, sep string, most int64, fromRight bool) []Span {
	var out []Span
	start, end := 0, len(s)
	for ; most != 0 && m.spend(1, itemBytes); most-- {
		if fromRight {
			i := strings.LastIndex(s[:end], sep)
			if i < 0 {
				break
			}
			out = append(out, Span{i + len(sep), end})
			end = i
			continue
		}
		i := strings.Index(s[start:], sep)
		if i < 0 {
			break
		}
		out = append(out, Span{start, start + i})
		start += i + len(sep)
	}
	out = append(out, Span{start, end})
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

// fieldSpans lists the words of a text; after most of them the rest is one piece.
func fieldSpans(m *meter, s string, most int64, fromRight bool) []Span {
	var out []Span
	start, end := 0, len(s)
	for m.spend(1, itemBytes) {
		if fromRight {
			end = start + len(strings.TrimRightFunc(s[start:end], isSpace))
		} else {
			start = end - len(strings.TrimLeftFunc(s[start:end], isSpace))
		}
		if start == end {
			break
		}
		cut := strings.IndexFunc(s[start:end], isSpace)
		if fromRight {
			cut = strings.LastIndexFunc(s[start:end], isSpace)
		}
		if cut < 0 || int64(len(out)) == most {
			out = append(out, Span{start, end})
			break
		}
		cut += start
		if fromRight {
			_, size := utf8.DecodeRuneInString(s[cut:])
			out = append(out, Span{cut + size, end})
			end = cut
		} else {
			out = append(out, Span{start, cut})
			start = cut
		}
	}
	if fromRight {
		slices.Reverse(out)
	}
	return out
}

func splitLines(f *frame, t Text, a args) (Value, error) {
	p, err := a.bind("splitlines", "keepends")
	if err != nil {
		return nil, err
	}
	return f.pieces(t, lineSpans(f.m, t.s, orBool(p[0], false)))
}

// lineSpans lists lines; a final line end does not begin another line.
func lineSpans(m *meter, s string, keepEnds bool) []Span {
	var out []Span
	for at := 0; at < len(s) && m.spend(1, itemBytes); {
		n := strings.IndexAny(s[at:], "\n\r")
		if n < 0 {
			return append(out, Span{at, len(s)})
		}
		end, next := at+n, at+n+1
		if s[end] == '\r' && next < len(s) && s[next] == '\n' {
			next++
		}
		if keepEnds {
			end = next
		}
		out = append(out, Span{at, end})
		at = next
	}
	return out
}

func partition(fromRight bool) textFunc {
	return func(f *frame, t Text, a args) (Value, error) {
		p, err := a.bind("partition", "sep")
		if err != nil {
			return nil, err
		}
		sep, err := needText("partition", p[0])
		if err != nil {
			return nil, err
		}
		if sep.s == "" {
			return nil, failf("empty separator")
		}
		f.m.spend(1+len(t.s)/bytesPerStep, 0)
		if fromRight {
			i := strings.LastIndex(t.s, sep.s)
			if i < 0 {
				return newTuple(Text{}, Text{}, t), nil
			}
			return newTuple(f.m.sub(t, 0, i), sep, f.m.sub(t, i+len(sep.s), len(t.s))), nil
		}
		i := strings.Index(t.s, sep.s)
		if i < 0 {
			return newTuple(t, Text{}, Text{}), nil
		}
		return newTuple(f.m.sub(t, 0, i), sep, f.m.sub(t, i+len(sep.s), len(t.s))), nil
	}
}
