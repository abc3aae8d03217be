package jinja

import (
	"sort"
	"strings"
)

// Span is the half-open byte range [Start, End) of a text.
type Span struct{ Start, End int }

// Text is a string that knows which of its bytes are foreign, that is, do not
// come from the template.
//
// Invariant: the spans are in order, not empty, inside the string, and neither
// overlap nor touch.
type Text struct {
	s       string
	foreign []Span
}

// Own is text that the template's author or the server answers for.
func Own(s string) Text { return Text{s: s} }

// Foreign is text from outside.
func Foreign(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{s: s, foreign: []Span{{0, len(s)}}}
}

func (t Text) String() string { return t.s }

// ForeignSpans returns the ranges that are foreign; the caller must not change them.
func (t Text) ForeignSpans() []Span { return t.foreign }

// slice returns the bytes [i, j).
func (t Text) slice(i, j int) Text {
	out := Text{s: t.s[i:j]}
	first := sort.Search(len(t.foreign), func(k int) bool { return t.foreign[k].End > i })
	for _, sp := range t.foreign[first:] {
		if sp.Start >= j {
			break
		}
		out.foreign = append(out.foreign, Span{max(sp.Start, i) - i, min(sp.End, j) - i})
	}
	return out
}

// runs calls each with the longest pieces that are wholly foreign or wholly own.
func (t Text) runs(each func(s string, foreign bool)) {
	at := 0
	for _, sp := range t.foreign {
		if at < sp.Start {
			each(t.s[at:sp.Start], false)
		}
		each(t.s[sp.Start:sp.End], true)
		at = sp.End
	}
	if at < len(t.s) {
		each(t.s[at:], false)
	}
}

// builder joins pieces to a text and charges them to its meter. After the
// budget has run out it takes nothing more; the meter holds the error.
type builder struct {
	m       *meter
	b       strings.Builder
	foreign []Span
}

func (m *meter) newBuilder() *builder { return &builder{m: m} }

func (b *builder) piece(s string, foreign bool) {
	if s == "" || !b.m.spend(1, len(s)) {
		return
	}
	start := b.b.Len()
	if b.b.Cap()-start < len(s) {
		b.b.Grow(max(start, len(s))) // doubling: append grows large buffers by a quarter, five times the garbage
	}
	b.b.WriteString(s)
	if !foreign {
		return
	}
	if n := len(b.foreign); n > 0 && b.foreign[n-1].End == start {
		b.foreign[n-1].End = b.b.Len()
		return
	}
	if b.m.spend(0, spanBytes) {
		b.foreign = append(b.foreign, Span{start, b.b.Len()})
	}
}

func (b *builder) own(s string) { b.piece(s, false) }
func (b *builder) text(t Text)  { t.runs(b.piece) }
func (b *builder) len() int     { return b.b.Len() }
func (b *builder) done() Text   { return Text{s: b.b.String(), foreign: b.foreign} }
func (b *builder) mapped(t Text, change func(string) string) {
	t.runs(func(s string, foreign bool) { b.piece(change(s), foreign) })
}

// mapText applies change to each run of t.
func (m *meter) mapText(t Text, change func(string) string) Text {
	if !m.spend(1+len(t.s)/bytesPerStep, len(t.s)) {
		return Text{}
	}
	b := m.newBuilder()
	b.mapped(t, change)
	return b.done()
}

// sub slices t and charges for it.
func (m *meter) sub(t Text, i, j int) Text {
	out := t.slice(i, j)
	m.spend(1, textBytes+spanBytes*len(out.foreign))
	return out
}

// concat joins texts.
func (m *meter) concat(texts ...Text) Text {
	b := m.newBuilder()
	for _, t := range texts {
		b.text(t)
	}
	return b.done()
}
