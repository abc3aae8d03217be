package gbnf

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// normal sorts spans and joins those that touch.
func normal(spans []span) class {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	var out class
	for _, s := range spans {
		if n := len(out); n > 0 && s.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, s.hi)
			continue
		}
		out = append(out, s)
	}
	return out
}

// invert is every character but NUL that is not in spans.
func invert(spans []span) class {
	var out class
	next := rune(1)
	for _, s := range normal(spans) {
		if s.lo > next {
			out = append(out, span{next, s.lo - 1})
		}
		next = max(next, s.hi+1)
	}
	if next <= utf8.MaxRune {
		out = append(out, span{next, utf8.MaxRune})
	}
	return out
}

// Values of an automaton's transitions; the others are states.
const (
	classDead = 0
	classDone = 1 // the character is complete
	classInit = 2 // where a character begins
)

// automaton recognises the UTF-8 bytes of the characters of a class.
type automaton struct {
	states [][256]uint16 // the first two are unused
}

func (a *automaton) step(state int32, b byte) int32 { return int32(a.states[state][b]) }

// byteSpan is a range of one byte of an encoded character.
type byteSpan struct{ lo, hi byte }

// newAutomaton returns nil if c needs more than limit states.
func newAutomaton(c class, limit int) *automaton {
	a := &automaton{states: make([][256]uint16, classInit+1)}
	for _, s := range c {
		for _, enc := range encodings(s) {
			if !a.add(enc, limit) {
				return nil
			}
		}
	}
	return a
}

// add inserts one sequence. Sequences of disjoint spans either share a leading
// byte that is the only one of its span, or share none: a wider span is always
// followed by all continuations.
func (a *automaton) add(enc []byteSpan, limit int) bool {
	state := uint16(classInit)
	for i, s := range enc {
		last := i == len(enc)-1
		next := a.states[state][s.lo]
		if last {
			next = classDone
		} else if next == classDead {
			if len(a.states) >= limit {
				return false
			}
			next = uint16(len(a.states))
			a.states = append(a.states, [256]uint16{})
		}
		for b := int(s.lo); b <= int(s.hi); b++ {
			a.states[state][b] = next
		}
		state = next
	}
	return true
}

// encodings splits a span into products of byte spans.
func encodings(s span) [][]byteSpan {
	var out [][]byteSpan
	// Lengths of an encoding, and the gap of the surrogates, which UTF-8 lacks.
	for _, part := range []span{{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, utf8.MaxRune}} {
		lo, hi := max(s.lo, part.lo), min(s.hi, part.hi)
		if lo <= hi {
			out = split(out, lo, hi)
		}
	}
	return out
}

// split appends lo to hi, which are encoded with the same number of bytes, cut
// such that each piece is a product of byte spans.
func split(out [][]byteSpan, lo, hi rune) [][]byteSpan {
	n := utf8.RuneLen(lo)
	for i := 1; i < n; i++ {
		mask := rune(1)<<(6*i) - 1
		if lo&^mask == hi&^mask {
			continue
		}
		if lo&mask != 0 {
			return split(split(out, lo, lo|mask), lo|mask+1, hi)
		}
		if hi&mask != mask {
			return split(split(out, lo, hi&^mask-1), hi&^mask, hi)
		}
	}
	var a, b [utf8.UTFMax]byte
	utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	enc := make([]byteSpan, n)
	for i := range enc {
		enc[i] = byteSpan{a[i], b[i]}
	}
	return append(out, enc)
}
