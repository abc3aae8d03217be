package grammar

import (
	"fmt"
	"slices"
	"strings"
)

// This file spells the inside of JSON strings.

// blanks are the characters of which a string may not hold too many in a row. The
// ideographic space is among them because Japanese texts are indented with it.
func blanks() charset { return runes(" \u00a0\u3000") }

// raw is what a JSON string may hold as it is, without C0, DEL and C1.
func raw() charset {
	return newCharset(span{0x20, 0x21}, span{0x23, 0x5b}, span{0x5d, 0x7e}, span{0xa0, 0x10ffff})
}

// oneRune is the rule for one character of set in a JSON string. Any character may
// also be written as an escape if set is everything.
func (b *Builder) oneRune(set charset) string {
	if slices.Equal(set, anyRune()) {
		return b.once("char", raw().gbnf()+` | "\\" `+b.anyEscape())
	}
	if slices.Equal(set, blanks().inverted()) {
		return b.once("dark", raw().without(blanks()).gbnf()+` | "\\" `+b.anyEscape())
	}
	alternatives := spellings(set)
	if len(alternatives) == 1 && !strings.Contains(alternatives[0], " ") {
		return alternatives[0]
	}
	return b.define("char", strings.Join(alternatives, " | "))
}

// anyEscape is what may follow a backslash. Surrogates come in pairs only, since
// half of one is not a character.
func (b *Builder) anyEscape() string {
	const hex = "[0-9a-fA-F]"
	return b.once("escape", `["\\/bfnrt] | "u" ([0-9a-cA-CefEF] `+hex+`{3} | [dD] [0-7] `+hex+`{2} | `+
		`[dD] [89abAB] `+hex+`{2} "\\u" [dD] [c-fC-F] `+hex+`{2})`)
}

// spellings are the ways in which the characters of set stand in a JSON string,
// one way for each. Control characters without a short escape are left out where
// there is something else: nobody wants them, and they would be many.
func spellings(set charset) []string {
	var out []string
	if plain := set.intersect(raw()); len(plain) > 0 {
		out = append(out, plain.gbnf())
	}
	var letters strings.Builder
	for _, r := range "\"\\\b\f\n\r\t" {
		if e, ok := shortEscape(r); ok && set.contains(r) {
			letters.WriteByte(e)
		}
	}
	if letters.Len() > 0 {
		out = append(out, `"\\" `+runes(letters.String()).gbnf())
	}
	if len(out) > 0 {
		return out
	}
	for _, s := range set {
		for r := s.lo; r <= s.hi; r++ {
			out = append(out, quote(fmt.Sprintf(`\u%04x`, r)))
		}
	}
	return out
}

// freeText is any number of characters of set, with a bound on blanks in a row.
func (b *Builder) freeText(set charset) string {
	dark := set.without(blanks())
	light := set.intersect(blanks())
	switch {
	case len(light) == 0:
		return b.oneRune(dark) + "*"
	case len(dark) == 0:
		return times(light.gbnf(), 0, blankRunMax)
	}
	run := b.define("blanks", times(light.gbnf(), 0, blankRunMax))
	return fmt.Sprintf("%s (%s %s)*", run, b.oneRune(dark), run)
}

// countedText is lo to hi characters of set; hi may be unbounded.
func (b *Builder) countedText(set charset, lo, hi int64) string {
	dark, light := set.without(blanks()), set.intersect(blanks())
	one := b.oneRune(set)
	r := repetition{item: one, per: blockRepeat, native: nativeRepeat}
	if len(light) > 0 && len(dark) > 0 {
		block := func() string { return b.darkBlock(set, dark, light) }
		r = repetition{item: one, block: block, per: countedBlock, native: countedBlock - 1}
	}
	if hi == unbounded {
		return join(b.exactly(r, lo), b.freeText(set))
	}
	return b.counted(r, lo, hi)
}

// darkBlock is countedBlock characters of set, of which one at least is dark.
func (b *Builder) darkBlock(set, dark, light charset) string {
	one := b.oneRune(set)
	next := b.oneRune(dark) // one is left and none was dark
	for left := 2; left <= countedBlock; left++ {
		next = b.define("some", fmt.Sprintf("%s %s | %s %s", b.oneRune(dark), times(one, int64(left-1), int64(left-1)), light.gbnf(), next))
	}
	return next
}
