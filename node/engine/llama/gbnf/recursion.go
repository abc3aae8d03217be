package gbnf

// leftRecursion finds a rule that can call itself before it has matched a byte;
// -1 if there is none. Such a rule would need a stack without end.
func (g *Grammar) leftRecursion() int32 {
	calls := g.firstCalls()
	const (
		unseen = iota
		active
		done
	)
	mark := make([]uint8, len(g.starts))
	var visit func(rule int32) int32
	visit = func(rule int32) int32 {
		mark[rule] = active
		for _, called := range calls[rule] {
			if mark[called] == active {
				return called
			}
			if mark[called] == unseen {
				if r := visit(called); r >= 0 {
					return r
				}
			}
		}
		mark[rule] = done
		return -1
	}
	for rule := range g.starts {
		if mark[rule] == unseen {
			if r := visit(int32(rule)); r >= 0 {
				return r
			}
		}
	}
	return -1
}

// place is an instruction of a rule.
type place struct{ rule, pc int32 }

// firstCalls are, for each rule, the rules that it can call before it has
// matched a byte. The work is linear: no instruction is visited twice.
func (g *Grammar) firstCalls() [][]int32 {
	calls := make([][]int32, len(g.starts))
	nullable := make([]bool, len(g.starts)) // matches the empty text
	waiting := make([][]place, len(g.starts))
	seen := make([]bool, len(g.prog))
	todo := make([]place, 0, len(g.starts))
	for rule, start := range g.starts {
		todo = append(todo, place{int32(rule), start})
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at.pc] {
			continue
		}
		seen[at.pc] = true
		switch i := g.prog[at.pc]; i.op {
		case opSplit:
			todo = append(todo, place{at.rule, i.next}, place{at.rule, i.arg})
		case opReturn:
			nullable[at.rule] = true
			todo = append(todo, waiting[at.rule]...)
			waiting[at.rule] = nil
		case opCall:
			calls[at.rule] = append(calls[at.rule], i.arg)
			after := place{at.rule, i.next}
			if nullable[i.arg] {
				todo = append(todo, after)
			} else {
				waiting[i.arg] = append(waiting[i.arg], after)
			}
		}
	}
	return calls
}
