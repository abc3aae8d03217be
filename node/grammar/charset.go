package grammar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// span is a range of characters, both ends included.
type span struct{ lo, hi rune }

// charset is a set of characters: spans in ascending order that neither overlap
// nor touch. Surrogates are in no set.
type charset []span

const (
	surrogateMin = 0xd800
	surrogateMax = 0xdfff
)

// newCharset sorts and joins spans.
func newCharset(spans ...span) charset {
	var out charset
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b span) int { return cmp.Compare(a.lo, b.lo) })
	for _, s := range sorted {
		for _, part := range []span{{s.lo, min(s.hi, surrogateMin-1)}, {max(s.lo, surrogateMax+1), s.hi}} {
			if part.lo > part.hi {
				continue
			}
			if n := len(out); n > 0 && part.lo <= out[n-1].hi+1 {
				out[n-1].hi = max(out[n-1].hi, part.hi)
			} else {
				out = append(out, part)
			}
		}
	}
	return out
}

// runes is the set of the characters of s.
func runes(s string) charset {
	var spans []span
	for _, r := range s {
		spans = append(spans, span{r, r})
	}
	return newCharset(spans...)
}

func anyRune() charset { return newCharset(span{0, utf8.MaxRune}) }

func (c charset) union(o charset) charset {
	return newCharset(append(slices.Clone(c), o...)...)
}

// without is every character of c that is not in o.
func (c charset) without(o charset) charset { return c.intersect(o.inverted()) }

func (c charset) inverted() charset {
	var spans []span
	next := rune(0)
	for _, s := range c {
		if s.lo > next {
			spans = append(spans, span{next, s.lo - 1})
		}
		next = s.hi + 1
	}
	if next <= utf8.MaxRune {
		spans = append(spans, span{next, utf8.MaxRune})
	}
	return newCharset(spans...)
}

func (c charset) intersect(o charset) charset {
	var spans []span
	for i, j := 0, 0; i < len(c) && j < len(o); {
		lo, hi := max(c[i].lo, o[j].lo), min(c[i].hi, o[j].hi)
		if lo <= hi {
			spans = append(spans, span{lo, hi})
		}
		if c[i].hi < o[j].hi {
			i++
		} else {
			j++
		}
	}
	return newCharset(spans...)
}

func (c charset) contains(r rune) bool {
	_, ok := slices.BinarySearchFunc(c, r, func(s span, r rune) int {
		switch {
		case s.hi < r:
			return -1
		case s.lo > r:
			return 1
		}
		return 0
	})
	return ok
}

// gbnf is the set as a character class, or as a literal if it has one element.
// Nothing is raw that has a meaning in a class.
func (c charset) gbnf() string {
	if len(c) == 1 && c[0].lo == c[0].hi {
		return quote(string(c[0].lo))
	}
	var b strings.Builder
	b.WriteByte('[')
	for _, s := range c {
		b.WriteString(classRune(s.lo))
		if s.hi > s.lo {
			if s.hi > s.lo+1 {
				b.WriteByte('-')
			}
			b.WriteString(classRune(s.hi))
		}
	}
	b.WriteByte(']')
	return b.String()
}

func classRune(r rune) string {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return string(r)
	case r < 0x100:
		return fmt.Sprintf(`\x%02X`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04X`, r)
	}
	return fmt.Sprintf(`\U%08X`, r)
}

// quote is text as a GBNF literal.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\x%02X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
