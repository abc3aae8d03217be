package grammar

import "strings"

// automaton is deterministic; it begins in its first state, and from every state
// it can still accept. Without states it accepts nothing.
type automaton struct{ states []state }

type state struct {
	accept bool
	edges  []edge // with disjoint sets, one for each following state
	// tail is an expression that follows in an accepting state without edges.
	tail string
}

type edge struct {
	set charset
	to  int
}

// trimmed drops the states from which nothing is accepted.
func (a automaton) trimmed() automaton {
	into := make([][]int, len(a.states))
	live := make([]bool, len(a.states))
	var todo []int
	for i, s := range a.states {
		for _, e := range s.edges {
			into[e.to] = append(into[e.to], i)
		}
		if s.accept {
			live[i] = true
			todo = append(todo, i)
		}
	}
	for len(todo) > 0 {
		last := len(todo) - 1
		i := todo[last]
		todo = todo[:last]
		for _, from := range into[i] {
			if !live[from] {
				live[from] = true
				todo = append(todo, from)
			}
		}
	}
	number := make([]int, len(a.states))
	var out automaton
	for i := range a.states {
		if live[i] {
			number[i] = len(out.states)
			out.states = append(out.states, a.states[i])
		}
	}
	if len(live) == 0 || !live[0] {
		return automaton{}
	}
	for i := range out.states {
		var edges []edge
		for _, e := range out.states[i].edges {
			if live[e.to] {
				edges = append(edges, edge{e.set, number[e.to]})
			}
		}
		out.states[i].edges = edges
	}
	return out
}

// automaton is an expression for what a accepts; spell gives the ways to write the
// characters of a set.
func (b *Builder) automaton(a automaton, spell func(charset) []string) string {
	e := emitter{b: b, a: a, spell: spell, entries: make([]int, len(a.states)), names: make([]string, len(a.states))}
	for _, s := range a.states {
		for _, edge := range s.edges {
			e.entries[edge.to] += len(spell(edge.set))
		}
	}
	return e.emit()
}

// emitter turns an automaton into rules: one for each state, but for those that
// are entered in one place only and go on in one way only.
type emitter struct {
	b       *Builder
	a       automaton
	spell   func(charset) []string
	entries []int    // places where a state is entered
	names   []string // of the rules that have been begun
	todo    []int
}

func (e *emitter) emit() string {
	start := e.enter(0)
	for len(e.todo) > 0 {
		i := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		e.b.fill(e.names[i], e.body(i))
	}
	return start
}

// enter is the name of the rule of a state, which is made if need be.
func (e *emitter) enter(i int) string {
	if e.names[i] == "" {
		e.names[i] = e.b.reserve("s")
		e.todo = append(e.todo, i)
	}
	return e.names[i]
}

func (e *emitter) body(i int) string {
	var alternatives []string
	for _, edge := range e.a.states[i].edges {
		for _, spelling := range e.spell(edge.set) {
			alternatives = append(alternatives, join(spelling, e.rest(edge.to)))
		}
	}
	if s := e.a.states[i]; s.accept && s.tail == "" {
		alternatives = append(alternatives, `""`)
	} else if s.accept {
		alternatives = append(alternatives, s.tail)
	}
	return strings.Join(alternatives, " | ")
}

// rest is what follows on entering state i: its parts for as long as there is one
// way to go on, then a rule.
func (e *emitter) rest(i int) string {
	var parts []string
	for {
		s := e.a.states[i]
		if s.accept && len(s.edges) == 0 {
			return join(append(parts, s.tail)...)
		}
		if s.accept || len(s.edges) != 1 || e.entries[i] != 1 || i == 0 {
			break
		}
		ways := e.spell(s.edges[0].set)
		if len(ways) != 1 {
			break
		}
		parts = append(parts, ways[0])
		i = s.edges[0].to
	}
	return join(append(parts, e.enter(i))...)
}
