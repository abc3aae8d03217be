package grammar

import (
	"fmt"
	"slices"
)

// Check makes sure that a grammar of a client works and does no harm: it is
// complete and within the limits, no rule begins with itself, every rule can come
// to an end, and no text makes the sampler keep too many parse states. The error is
// a *SyntaxError.
func Check(gbnf string) error {
	g, err := parseGrammar(gbnf)
	if err != nil {
		return err
	}
	a := newAnalysis(g)
	for _, check := range []func() error{a.checkEnds, a.checkLeft, a.checkBranches} {
		if err := check(); err != nil {
			return err
		}
	}
	return probe(a)
}

// analysis is what can be told about the rules of a grammar without a text.
type analysis struct {
	*cfg
	nullable []bool // the rule matches the empty text
	ends     []bool // the rule matches some text
	// order lists the rules such that those a rule can begin with come before it.
	order []int
}

func newAnalysis(g *cfg) *analysis {
	a := &analysis{cfg: g}
	a.nullable = a.fixpoint(func(s symbol) bool { return false })
	a.ends = a.fixpoint(func(s symbol) bool { return true })
	return a
}

// fixpoint finds the rules with an alternative whose symbols all hold: characters
// as given, rules by themselves. The work is linear.
func (a *analysis) fixpoint(character func(symbol) bool) []bool {
	holds := make([]bool, len(a.rules))
	type place struct{ rule, alternative, at int }
	waiting := make([][]place, len(a.rules)) // for a rule to hold
	var todo []place
	for i, r := range a.rules {
		for j := range r.alternatives {
			todo = append(todo, place{i, j, 0})
		}
	}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		symbols := a.rules[p.rule].alternatives[p.alternative]
		for !holds[p.rule] {
			if p.at == len(symbols) {
				holds[p.rule] = true
				todo = append(todo, waiting[p.rule]...)
				waiting[p.rule] = nil
				break
			}
			s := symbols[p.at]
			if s.kind != symbolRule {
				if !character(s) {
					break
				}
			} else if !holds[s.value] {
				waiting[s.value] = append(waiting[s.value], p)
				break
			}
			p.at++
		}
	}
	return holds
}

// fail names a rule.
func (a *analysis) fail(rule int, format string, args ...any) error {
	r := a.rules[rule]
	return &SyntaxError{Line: r.line, Rule: r.name, Reason: fmt.Sprintf(format, args...)}
}

func (a *analysis) checkEnds() error {
	for i, ends := range a.ends {
		if !ends {
			return a.fail(i, "it can never end: every alternative needs something that never ends")
		}
	}
	return nil
}

// eachFirst calls do for the rules that a rule can begin with.
func (a *analysis) eachFirst(rule int, do func(first int)) {
	for _, symbols := range a.rules[rule].alternatives {
		for _, s := range symbols {
			if s.kind != symbolRule {
				break
			}
			do(s.value)
			if !a.nullable[s.value] {
				break
			}
		}
	}
}

// checkLeft refuses rules that begin with themselves, perhaps behind something
// empty, and too long ways to the first character. It finds the order.
func (a *analysis) checkLeft() error {
	pending := make([]int, len(a.rules)) // rules it begins with that are not in order yet
	users := make([][]int32, len(a.rules))
	depth := make([]int, len(a.rules))
	for i := range a.rules {
		a.eachFirst(i, func(first int) {
			pending[i]++
			users[first] = append(users[first], int32(i))
		})
	}
	for i, n := range pending {
		if n == 0 {
			a.order = append(a.order, i)
		}
	}
	for at := 0; at < len(a.order); at++ {
		rule := a.order[at]
		for _, user := range users[rule] {
			if depth[user] = max(depth[user], depth[rule]+1); depth[user] > MaxLeftDepth {
				return a.fail(int(user), "more than %d rules are entered before its first character", MaxLeftDepth)
			}
			if pending[user]--; pending[user] == 0 {
				a.order = append(a.order, int(user))
			}
		}
	}
	for i, n := range pending {
		if n > 0 && a.returns(i, pending) {
			return a.fail(i, "it begins with itself, or repeats something empty; let it begin with what differs and go on with itself")
		}
	}
	return nil
}

// returns tells whether a rule is on the circle itself, not only before it, so
// that the message names the one at fault. It follows one way through the rules
// that are left, each of which leads to another.
func (a *analysis) returns(rule int, pending []int) bool {
	seen := map[int]bool{}
	todo := []int{rule}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		found := false
		a.eachFirst(at, func(first int) {
			if first == rule {
				found = true
			}
			if pending[first] > 0 && !seen[first] {
				seen[first] = true
				todo = append(todo, first)
			}
		})
		if found {
			return true
		}
	}
	return false
}

// checkBranches counts the ways from the start of each rule to a first character
// or to its end. llama.cpp walks them one by one, equal ones too.
func (a *analysis) checkBranches() error {
	starts := make([]int, len(a.rules)) // ways to a character
	empty := make([]int, len(a.rules))  // ways to the end
	for _, rule := range a.order {
		for _, symbols := range a.rules[rule].alternatives {
			ways := 1
			for _, s := range symbols {
				if s.kind != symbolRule {
					starts[rule] += ways
					ways = 0
					break
				}
				starts[rule] = min(starts[rule]+ways*starts[s.value], MaxBranches+1)
				if ways = min(ways*empty[s.value], MaxBranches+1); ways == 0 {
					break
				}
			}
			empty[rule] = min(empty[rule]+ways, MaxBranches+1)
		}
		if starts[rule]+empty[rule] > MaxBranches {
			return a.fail(rule, "there are more than %d ways to begin it; share the beginnings of its alternatives", MaxBranches)
		}
	}
	return nil
}

// recursive lists rules that can contain themselves with something behind them, so
// that stacks grow: one of each set of rules that contain each other.
func (a *analysis) recursive() []int {
	component := a.components()
	listed := map[int]bool{}
	var out []int
	for i, r := range a.rules {
		if listed[component[i]] {
			continue
		}
		grows := func(s symbol) bool { return s.kind == symbolRule && component[s.value] == component[i] }
		if slices.ContainsFunc(r.alternatives, func(symbols []symbol) bool {
			return slices.ContainsFunc(symbols[:max(len(symbols)-1, 0)], grows)
		}) {
			listed[component[i]] = true
			out = append(out, i)
		}
	}
	return out
}

// components numbers the sets of rules that contain each other. It is Tarjan's
// algorithm; its recursion is as deep as there are rules.
func (a *analysis) components() []int {
	component := make([]int, len(a.rules)) // 0: not known yet
	low := make([]int, len(a.rules))       // 0: not visited yet
	var open []int
	visited, found := 0, 0
	var visit func(rule int)
	visit = func(rule int) {
		visited++
		number := visited
		low[rule] = number
		open = append(open, rule)
		for _, symbols := range a.rules[rule].alternatives {
			for _, s := range symbols {
				if s.kind != symbolRule || component[s.value] != 0 {
					continue
				}
				if low[s.value] == 0 {
					visit(s.value)
				}
				low[rule] = min(low[rule], low[s.value])
			}
		}
		if low[rule] < number {
			return
		}
		for found++; component[rule] == 0; open = open[:len(open)-1] {
			component[open[len(open)-1]] = found
		}
	}
	for rule := range a.rules {
		if low[rule] == 0 {
			visit(rule)
		}
	}
	return component
}
