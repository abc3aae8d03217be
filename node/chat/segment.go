package chat

import (
	"cmp"
	"slices"

	"tandem/node/chat/jinja"
)

// Segment is a piece of a prompt. A plain one is tokenised without control
// tokens, whatever it looks like.
type Segment struct {
	Text  string
	Plain bool
}

// matcher finds control texts: an Aho-Corasick automaton, so that the time does
// not depend on how many there are or how they overlap.
type matcher struct {
	nodes []matchNode
	first [256]int32 // the children of the root, by their byte; 0: none
}

// matchNode is a prefix of some control texts. The children of a node are a
// chain of siblings.
type matchNode struct {
	char           byte
	child, sibling int32 // 0: none
	fail           int32 // the longest proper suffix that is a prefix too
	length         int   // of the longest control text that ends here; 0: none
}

func newMatcher(texts []string) *matcher {
	m := &matcher{nodes: make([]matchNode, 1)}
	for _, text := range texts {
		at := int32(0)
		for i := range len(text) {
			at = m.grow(at, text[i])
		}
		if at != 0 {
			m.nodes[at].length = len(text)
		}
	}
	for n := m.nodes[0].child; n != 0; n = m.nodes[n].sibling {
		m.first[m.nodes[n].char] = n
	}
	m.link()
	return m
}

func (m *matcher) child(at int32, c byte) int32 {
	n := m.nodes[at].child
	for n != 0 && m.nodes[n].char != c {
		n = m.nodes[n].sibling
	}
	return n
}

func (m *matcher) grow(at int32, c byte) int32 {
	if n := m.child(at, c); n != 0 {
		return n
	}
	n := int32(len(m.nodes))
	m.nodes = append(m.nodes, matchNode{char: c, sibling: m.nodes[at].child})
	m.nodes[at].child = n
	return n
}

// link sets the fail links, from the shortest prefixes to the longest.
func (m *matcher) link() {
	queue := []int32{0}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for n := m.nodes[at].child; n != 0; n = m.nodes[n].sibling {
			queue = append(queue, n)
			if at == 0 {
				continue
			}
			m.nodes[n].fail = m.step(m.nodes[at].fail, m.nodes[n].char)
			if m.nodes[n].length == 0 {
				m.nodes[n].length = m.nodes[m.nodes[n].fail].length
			}
		}
	}
}

// step is where the automaton goes from a state on a byte.
func (m *matcher) step(at int32, c byte) int32 {
	for at != 0 {
		if n := m.child(at, c); n != 0 {
			return n
		}
		at = m.nodes[at].fail
	}
	return m.first[c]
}

// each calls found with the longest control text that ends at each place.
func (m *matcher) each(s string, found func(start, end int)) {
	at := int32(0)
	for i := range len(s) {
		at = m.step(at, s[i])
		if n := m.nodes[at].length; n > 0 {
			found(i+1-n, i+1)
		}
	}
}

// segments cuts a rendered prompt so that no control text with a foreign byte in
// it lies within one special segment: the foreign bytes of such a text become
// plain segments of their own. It does not matter whether a user typed the text,
// or it came together from two fields, or from a field and the template around
// it. Control texts that are wholly the template's are left alone, and so is all
// other text, which therefore is tokenised as if it had not been cut.
func (m *matcher) segments(t jinja.Text) []Segment {
	s := t.String()
	var plain []jinja.Span
	foreign := t.ForeignSpans()
	m.each(s, func(start, end int) {
		i, _ := slices.BinarySearchFunc(foreign, start, func(sp jinja.Span, at int) int {
			return cmp.Compare(sp.End, at+1)
		})
		for ; i < len(foreign) && foreign[i].Start < end; i++ {
			plain = addSpan(plain, max(foreign[i].Start, start), min(foreign[i].End, end))
		}
	})
	return cut(s, plain)
}

// addSpan adds a range to ranges in order; it begins at or before the end of the
// last one, or after all of them, because control texts are found by their ends.
func addSpan(spans []jinja.Span, start, end int) []jinja.Span {
	for n := len(spans); n > 0 && spans[n-1].End >= start; n = len(spans) {
		start = min(start, spans[n-1].Start)
		end = max(end, spans[n-1].End)
		spans = spans[:n-1]
	}
	return append(spans, jinja.Span{Start: start, End: end})
}

// cut makes the given ranges plain segments and what is around them special ones.
func cut(s string, plain []jinja.Span) []Segment {
	var out []Segment
	at := 0
	for _, sp := range plain {
		if at < sp.Start {
			out = append(out, Segment{Text: s[at:sp.Start]})
		}
		out = append(out, Segment{Text: s[sp.Start:sp.End], Plain: true})
		at = sp.End
	}
	if at < len(s) {
		out = append(out, Segment{Text: s[at:]})
	}
	return out
}
