package grammar

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// choice is one of several literal texts and what follows it: an expression, or ""
// for nothing.
type choice struct{ text, then string }

// literals is an expression for one of the choices, whose texts differ. Common
// beginnings are shared, so that a reader of the text has one way open instead of
// one for each choice; common ends are shared, too.
func (b *Builder) literals(choices []choice) string {
	sorted := slices.Clone(choices)
	slices.SortFunc(sorted, func(a, b choice) int { return cmp.Compare(a.text, b.text) })
	return b.branch(sorted, 0).expression()
}

// branch is a literal beginning and what follows.
type branch struct{ text, then string }

func (t branch) expression() string {
	if t.text == "" {
		if t.then == "" {
			return `""`
		}
		return t.then
	}
	return join(quote(t.text), t.then)
}

// branch makes the choices, which agree in their first from bytes, without those.
func (b *Builder) branch(sorted []choice, from int) branch {
	first := sorted[0].text[from:]
	if len(sorted) == 1 {
		return branch{first, sorted[0].then}
	}
	shared := commonPrefix(first, sorted[len(sorted)-1].text[from:])
	from += len(shared)
	var ways []branch // by first character
	if len(sorted[0].text) == from {
		ways = append(ways, branch{"", sorted[0].then})
		sorted = sorted[1:]
	}
	for len(sorted) > 0 {
		_, size := utf8.DecodeRuneInString(sorted[0].text[from:])
		head := sorted[0].text[:from+size]
		n := 1
		for n < len(sorted) && strings.HasPrefix(sorted[n].text, head) {
			n++
		}
		rest := b.branch(sorted[:n], from+size)
		ways = append(ways, branch{head[from:] + rest.text, rest.then})
		sorted = sorted[n:]
	}
	return branch{shared, b.define("t", alternatives(ways))}
}

// commonPrefix is the beginning, of whole characters, that a and b share.
func commonPrefix(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return a[:n]
}

// alternatives joins ways. Neighbouring characters that are followed by the same
// become one class.
func alternatives(ways []branch) string {
	var out []string
	for len(ways) > 0 {
		set, rest, n := runOf(ways)
		if n == 1 {
			out = append(out, ways[0].expression())
		} else if rest.text == "" {
			out = append(out, join(set.gbnf(), rest.then))
		} else {
			out = append(out, set.gbnf()+" "+rest.expression())
		}
		ways = ways[n:]
	}
	return strings.Join(out, " | ")
}

// runOf finds how many of the first ways differ by consecutive characters only.
func runOf(ways []branch) (set charset, rest branch, n int) {
	r, size := utf8.DecodeRuneInString(ways[0].text)
	if size == 0 {
		return nil, rest, 1
	}
	rest = branch{ways[0].text[size:], ways[0].then}
	for n = 1; n < len(ways); n++ {
		next, size := utf8.DecodeRuneInString(ways[n].text)
		if next != r+rune(n) || ways[n].text[size:] != rest.text || ways[n].then != rest.then {
			break
		}
	}
	return charset{{r, r + rune(n) - 1}}, rest, n
}
