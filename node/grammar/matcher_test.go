package grammar

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// matcher tells which texts a grammar matches.
type matcher struct {
	machine *machine
	heights []int // by rule: the least number of nested rules of a text
}

func newMatcher(t testing.TB, gbnf string) *matcher {
	t.Helper()
	if err := Check(gbnf); err != nil {
		t.Fatalf("Check: %v\n%s", err, gbnf)
	}
	g, err := parseGrammar(gbnf)
	if err != nil {
		t.Fatal(err)
	}
	m := &matcher{machine: newMachine(g, 0)}
	m.findHeights()
	return m
}

func schemaMatcher(t testing.TB, schema string) *matcher {
	t.Helper()
	gbnf, err := FromSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatalf("FromSchema(%s): %v", schema, err)
	}
	return newMatcher(t, gbnf)
}

// matches reports whether the whole text matches, and the most stacks on the way.
func (m *matcher) matches(text string) (ok bool, widest int) {
	m.machine.work = 1 << 40
	stacks := m.machine.start(m.machine.ids[rootName])
	for _, r := range text {
		widest = max(widest, len(stacks))
		stacks = m.machine.step(stacks, r)
	}
	for _, s := range stacks {
		ok = ok || s == emptyStack
	}
	return ok, widest
}

// complete reports whether a text that matches so far is complete and nothing can
// follow it.
func (m *matcher) final(text string) bool {
	m.machine.work = 1 << 40
	stacks := m.machine.start(m.machine.ids[rootName])
	for _, r := range text {
		stacks = m.machine.step(stacks, r)
	}
	return len(stacks) == 1 && stacks[0] == emptyStack
}

func (m *matcher) findHeights() {
	rules := m.machine.rules
	m.heights = make([]int, len(rules))
	for i := range m.heights {
		m.heights[i] = 1 << 20
	}
	for changed := true; changed; {
		changed = false
		for i := len(rules) - 1; i >= 0; i-- {
			for _, a := range rules[i].alternatives {
				if h := m.height(a); h+1 < m.heights[i] {
					m.heights[i] = h + 1
					changed = true
				}
			}
		}
	}
}

func (m *matcher) height(symbols []symbol) int {
	h := 0
	for _, s := range symbols {
		if s.kind == symbolRule {
			h = max(h, m.heights[s.value])
		}
	}
	return h
}

// sample is a random text that matches. Once it is long the shortest ways are
// taken.
func (m *matcher) sample(rng *rand.Rand, long int) string {
	var b strings.Builder
	todo := []symbol{{symbolRule, m.machine.ids[rootName]}}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch s.kind {
		case symbolRune:
			b.WriteRune(rune(s.value))
		case symbolClass:
			b.WriteRune(randomRune(rng, m.machine.classes[s.value]))
		default:
			a := m.choose(rng, s.value, b.Len() > long)
			for i := len(a) - 1; i >= 0; i-- {
				todo = append(todo, a[i])
			}
		}
	}
	return b.String()
}

func (m *matcher) choose(rng *rand.Rand, rule int, shortest bool) []symbol {
	alternatives := m.machine.rules[rule].alternatives
	if !shortest {
		return alternatives[rng.IntN(len(alternatives))]
	}
	best := alternatives[0]
	for _, a := range alternatives {
		if h, least := m.height(a), m.height(best); h < least || h == least && len(a) < len(best) {
			best = a
		}
	}
	return best
}

func randomRune(rng *rand.Rand, set charset) rune {
	s := set[rng.IntN(len(set))]
	if rng.IntN(4) == 0 {
		return s.hi
	}
	r := s.lo + rng.Int32N(min(s.hi-s.lo+1, 200))
	if !utf8.ValidRune(r) {
		return s.lo
	}
	return r
}

// decode reads a JSON text.
func decode(t testing.TB, text string) *value {
	t.Helper()
	v, err := parseValue(json.RawMessage(text))
	if err != nil {
		t.Fatalf("a grammar made %q: %v", text, err)
	}
	return v
}
