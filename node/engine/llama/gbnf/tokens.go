package gbnf

import (
	"bytes"
	"cmp"
	"slices"
)

// Tokens is a vocabulary in an order in which tokens with equal beginnings are
// neighbours. It never changes.
type Tokens struct {
	size   int
	ids    []int32
	texts  [][]byte
	shared []uint16 // bytes that a token begins with like its predecessor

	literal []int32 // tokens for AdvanceLiteral
	spelled [][]byte
}

// tokenBytesMax is the longest text of a token that a grammar can allow.
const tokenBytesMax = 1 << 12

// NewTokens makes the vocabulary of size tokens. A token without text is never
// allowed by a grammar; a literal one only where AdvanceLiteral takes its text.
// The texts are kept.
func NewTokens(size int, token func(id int) (text []byte, literal bool)) *Tokens {
	t := &Tokens{size: size}
	for id := range size {
		switch p, literal := token(id); {
		case len(p) == 0 || len(p) > tokenBytesMax:
		case literal:
			t.literal, t.spelled = append(t.literal, int32(id)), append(t.spelled, p)
		default:
			t.ids = append(t.ids, int32(id))
		}
	}
	text := func(id int32) []byte {
		p, _ := token(int(id))
		return p
	}
	slices.SortFunc(t.ids, func(a, b int32) int { return cmp.Or(bytes.Compare(text(a), text(b)), cmp.Compare(a, b)) })
	var last []byte
	for _, id := range t.ids {
		p := text(id)
		n := 0
		for n < len(p) && n < len(last) && p[n] == last[n] {
			n++
		}
		t.texts, t.shared = append(t.texts, p), append(t.shared, uint16(n))
		last = p
	}
	return t
}

// Mask is the set of tokens that may follow s, one bit each, lowest first; nil
// if the grammar is too ambiguous to tell in time. It must not be changed. All
// calls for one grammar must be with the same t.
func (g *Grammar) Mask(s *State, t *Tokens) []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.mask != nil {
		return s.mask
	}
	g.budget = budget
	mask := make([]uint64, (t.size+63)/64)
	g.walk(s, t, mask)
	for i, text := range t.spelled {
		if g.spell(s, text) != nil {
			mask[t.literal[i]/64] |= 1 << (t.literal[i] % 64)
		}
	}
	if g.budget <= 0 {
		return nil
	}
	if g.masks >= masksMax {
		for _, k := range g.states {
			k.mask = nil
		}
		g.masks = 0
	}
	s.mask = mask
	g.masks++
	return mask
}

// walk steps through the tokens like through a tree: path[n] is the state after
// the first n bytes of the current token.
func (g *Grammar) walk(s *State, t *Tokens, mask []uint64) {
	path := make([]*State, 1, 64)
	path[0] = s
	for i := 0; i < len(t.ids); {
		path = path[:t.shared[i]+1]
		text := t.texts[i]
		for len(path) <= len(text) {
			n := g.step(path[len(path)-1], text[len(path)-1])
			if n == dead {
				break
			}
			path = append(path, n)
		}
		matched := len(path) - 1
		if matched == len(text) {
			mask[t.ids[i]/64] |= 1 << (t.ids[i] % 64)
			i++
			continue
		}
		// All that share the refused byte are refused, too.
		for i++; i < len(t.ids) && int(t.shared[i]) > matched; i++ {
		}
	}
}
