package grammar

import (
	"encoding/binary"
	"slices"
	"unicode/utf8"
)

// machine follows a text through a grammar like llama.cpp: it keeps all stacks of
// places that the text can have led to. Stacks share their lower parts, and equal
// stacks are one.
type machine struct {
	*cfg
	places  []place
	first   [][]int32 // by rule and alternative: its first place; -1 if it is empty
	nodes   []node
	numbers map[node]int32
	marks   []int // by stack: the set that has it
	mark    int
	work    int // left; below 0 nothing is followed any more
}

// place is a symbol and what follows it.
type place struct {
	symbol
	next int32 // -1: the end of the alternative
}

// node is a stack: its top place, and the stack below.
type node struct{ place, below int32 }

// emptyStack means that the text is complete.
const emptyStack = 0

func newMachine(g *cfg, work int) *machine {
	m := &machine{cfg: g, nodes: []node{{-1, -1}}, numbers: map[node]int32{}, marks: []int{0}, work: work}
	m.first = make([][]int32, len(g.rules))
	for i, r := range g.rules {
		for _, symbols := range r.alternatives {
			first := int32(-1)
			if len(symbols) > 0 {
				first = int32(len(m.places))
			}
			m.first[i] = append(m.first[i], first)
			for j, s := range symbols {
				next := int32(len(m.places) + 1)
				if j == len(symbols)-1 {
					next = -1
				}
				m.places = append(m.places, place{s, next})
			}
		}
	}
	return m
}

// push is the stack with one more place; place -1 adds nothing.
func (m *machine) push(place, below int32) int32 {
	if place < 0 {
		return below
	}
	n := node{place, below}
	id, ok := m.numbers[n]
	if !ok {
		id = int32(len(m.nodes))
		m.numbers[n] = id
		m.nodes = append(m.nodes, n)
		m.marks = append(m.marks, 0)
	}
	return id
}

// start is the stacks before the first character of a rule.
func (m *machine) start(rule int) []int32 {
	m.mark++
	var out []int32
	for _, first := range m.first[rule] {
		out = m.enter(m.push(first, emptyStack), out)
	}
	return out
}

// enter adds to out the stacks that stack leads to without a character: those
// whose top is a character, and the empty one.
func (m *machine) enter(stack int32, out []int32) []int32 {
	if m.work--; m.work < 0 || m.marks[stack] == m.mark {
		return out
	}
	m.marks[stack] = m.mark
	if stack == emptyStack {
		return append(out, stack)
	}
	n := m.nodes[stack]
	p := m.places[n.place]
	if p.kind != symbolRule {
		return append(out, stack)
	}
	below := m.push(p.next, n.below)
	for _, first := range m.first[p.value] {
		out = m.enter(m.push(first, below), out)
	}
	return out
}

// step is the stacks after one more character.
func (m *machine) step(stacks []int32, r rune) []int32 {
	m.mark++
	var out []int32
	for _, s := range stacks {
		if m.work--; m.work < 0 {
			break
		}
		if s != emptyStack && m.matches(m.nodes[s].place, r) {
			n := m.nodes[s]
			out = m.enter(m.push(m.places[n.place].next, n.below), out)
		}
	}
	return out
}

func (m *machine) matches(place int32, r rune) bool {
	p := m.places[place]
	if p.kind == symbolRune {
		return rune(p.value) == r
	}
	return m.classes[p.value].contains(r)
}

// probe follows texts that keep as many stacks alive as possible, from the root
// and from rules that can contain themselves, where stacks can multiply without
// end. It is a search with a budget: what it does not find must be caught by the
// sampler's own limits.
func probe(a *analysis) error {
	starts := a.recursive()
	starts = append(starts[:min(len(starts), probeStarts)], a.ids[rootName])
	m := newMachine(a.cfg, 0)
	for _, rule := range starts {
		m.work = probeWork / len(starts)
		if n := m.widest(rule); n > MaxStacks {
			return a.fail(rule, "it is too ambiguous: a text can be read in more than %d ways at once; let alternatives differ at their beginning", MaxStacks)
		}
	}
	return nil
}

const (
	// probeStarts is how many rules the search begins with.
	probeStarts = 64
	// probeStall is how many texts are followed in vain before the search ends.
	probeStall = 200
	// probeRunes bounds the characters that are tried after a text.
	probeRunes = 16
)

// widest is the largest number of stacks found behind the start of a rule. Of all
// texts tried so far, it goes on with one that keeps the most alive, the latest of
// those.
func (m *machine) widest(rule int) int {
	f := frontier{seen: map[string]bool{}}
	f.add(m.start(rule))
	for stall := 0; stall < probeStall; stall++ {
		stacks := f.next()
		for _, r := range m.candidates(stacks) {
			after := m.step(stacks, r)
			if len(after) > f.widest {
				stall = 0
			}
			f.add(after)
			if m.work < 0 || f.widest > MaxStacks {
				return f.widest
			}
		}
	}
	return f.widest
}

// frontier holds the sets of stacks behind the texts that are not followed yet.
type frontier struct {
	open   [MaxStacks + 1][][]int32 // by number of stacks
	top    int                      // no larger set is open
	widest int                      // the largest number of stacks so far
	seen   map[string]bool
}

func (f *frontier) add(stacks []int32) {
	n := len(stacks)
	if f.widest = max(f.widest, n); n == 0 || n > MaxStacks {
		return
	}
	// Equal sets that were found in another order do not matter here.
	key := make([]byte, 0, 4*n)
	for _, s := range stacks {
		key = binary.LittleEndian.AppendUint32(key, uint32(s))
	}
	if !f.seen[string(key)] {
		f.seen[string(key)] = true
		f.open[n] = append(f.open[n], stacks)
		f.top = max(f.top, n)
	}
}

// next takes the set to go on with, nil if there is none.
func (f *frontier) next() []int32 {
	for ; f.top > 0; f.top-- {
		if n := len(f.open[f.top]); n > 0 {
			stacks := f.open[f.top][n-1]
			f.open[f.top] = f.open[f.top][:n-1]
			return stacks
		}
	}
	return nil
}

// candidates are characters that some stack accepts: the first and the last of
// each class, and those that most stacks wait for before the others.
func (m *machine) candidates(stacks []int32) []rune {
	count := map[rune]int{}
	var out []rune
	add := func(r rune) {
		if count[r]++; count[r] == 1 {
			out = append(out, r)
		}
	}
	for _, s := range stacks {
		if s == emptyStack {
			continue
		}
		p := m.places[m.nodes[s].place]
		if p.kind == symbolRune {
			add(rune(p.value))
			continue
		}
		set := m.classes[p.value]
		add(set[0].lo)
		add(set[0].hi)
		if r := set[len(set)-1].hi; r < utf8.MaxRune {
			add(r)
		}
	}
	slices.SortStableFunc(out, func(a, b rune) int { return count[b] - count[a] })
	return out[:min(len(out), probeRunes)]
}
