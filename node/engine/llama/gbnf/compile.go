package gbnf

import (
	"fmt"
	"sync"
)

type op uint8

const (
	opByte   op = iota // arg is the byte
	opClass            // arg is the automaton
	opSplit            // goes on at next and at arg
	opCall             // arg is the rule, which returns to next
	opReturn           // the end of a rule
)

type inst struct {
	op   op
	arg  int32
	next int32
}

// Grammar is a compiled grammar.
type Grammar struct {
	prog    []inst
	starts  []int32 // of the rules; 0 is root
	classes []*automaton

	mu     sync.Mutex
	frames map[frameKey]*frame
	states map[string]*State
	ids    uint32 // of frames
	kept   int    // threads of all states
	masks  int    // states with a mask
	start  *State
	work   closure
	budget int // left of the running Advance or Mask
}

// Compile reads a grammar whose text is what the rule "root" matches.
func Compile(src string) (*Grammar, error) {
	p, err := parse(src)
	if err != nil {
		return nil, err
	}
	c := &compiler{parser: p, rules: map[string]int32{}, classes: map[string]int32{}}
	if err := c.compile(); err != nil {
		return nil, err
	}
	g := &Grammar{prog: c.prog, starts: c.starts, classes: c.automata}
	if name := g.leftRecursion(); name >= 0 {
		return nil, &Error{Reason: fmt.Sprintf("rule %s begins with itself; write it with a repetition, or with itself at the end", c.names[name])}
	}
	g.reset()
	if g.start == dead {
		return nil, &Error{Reason: "it is too ambiguous: a text can begin in too many ways"}
	}
	return g, nil
}

// compiler works from the end to the start: each node is compiled with the place
// where the text goes on after it.
type compiler struct {
	*parser
	prog     []inst
	starts   []int32
	names    []string
	rules    map[string]int32
	bodies   []node
	classes  map[string]int32
	automata []*automaton

	classStates int // of all automata
}

func (c *compiler) compile() (err error) {
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bad)
			if !ok {
				panic(r)
			}
			err = b.err
		}
	}()
	if c.parser.rules["root"] == nil {
		return &Error{Reason: `it has no rule "root"`}
	}
	c.declare("root", c.parser.rules["root"])
	for _, name := range c.order {
		if name != "root" {
			c.declare(name, c.parser.rules[name])
		}
	}
	for i := 0; i < len(c.bodies); i++ { // grows by anonymous rules
		c.starts = append(c.starts, 0)
		end := c.emit(inst{op: opReturn})
		c.starts[i] = c.node(c.bodies[i], end)
	}
	return nil
}

func (c *compiler) declare(name string, body node) int32 {
	id := int32(len(c.bodies))
	c.rules[name] = id
	c.names = append(c.names, name)
	c.bodies = append(c.bodies, body)
	return id
}

func (c *compiler) emit(i inst) int32 {
	if len(c.prog) >= instsMax {
		panic(bad{&Error{Reason: fmt.Sprintf("it is too large: compiled it has more than %d steps", instsMax)}})
	}
	c.prog = append(c.prog, i)
	return int32(len(c.prog) - 1)
}

// node compiles n such that the text goes on at next.
func (c *compiler) node(n node, next int32) int32 {
	switch n := n.(type) {
	case literal:
		for i := len(n) - 1; i >= 0; i-- {
			next = c.emit(inst{opByte, int32(n[i]), next})
		}
		return next
	case class:
		return c.emit(inst{opClass, c.class(n), next})
	case ref:
		rule, ok := c.rules[n.name]
		if !ok {
			c.fail(n.at, "rule %s is not defined", n.name)
		}
		return c.emit(inst{opCall, rule, next})
	case seq:
		for i := len(n) - 1; i >= 0; i-- {
			next = c.node(n[i], next)
		}
		return next
	case choice:
		start := c.node(n[len(n)-1], next)
		for i := len(n) - 2; i >= 0; i-- {
			start = c.emit(inst{opSplit, start, c.node(n[i], next)})
		}
		return start
	case repeat:
		return c.repeat(n, next)
	}
	panic(fmt.Sprintf("gbnf: node %T", n))
}

func (c *compiler) repeat(r repeat, next int32) int32 {
	if copies := max(r.min, r.max); copies > 1 && !small(r.of) {
		// One rule and many calls instead of many copies.
		id := c.declare("("+fmt.Sprint(len(c.bodies))+")", r.of)
		return c.repeatBody(r, next, func(next int32) int32 { return c.emit(inst{opCall, id, next}) })
	}
	return c.repeatBody(r, next, func(next int32) int32 { return c.node(r.of, next) })
}

func (c *compiler) repeatBody(r repeat, next int32, body func(next int32) int32) int32 {
	out := next
	if r.max < 0 {
		loop := c.emit(inst{op: opSplit, arg: out})
		c.prog[loop].next = body(loop)
		next = loop
	}
	for range r.max - r.min {
		next = c.emit(inst{opSplit, out, body(next)})
	}
	for range r.min {
		next = body(next)
	}
	return next
}

// small nodes compile to one instruction.
func small(n node) bool {
	switch n := n.(type) {
	case literal:
		return len(n) <= 1
	case class, ref:
		return true
	}
	return false
}

func (c *compiler) class(n class) int32 {
	key := fmt.Sprint(n)
	if id, ok := c.classes[key]; ok {
		return id
	}
	a := newAutomaton(n, classStatesMax-c.classStates)
	if a == nil {
		panic(bad{&Error{Reason: "it has too many different character classes"}})
	}
	c.classStates += len(a.states)
	id := int32(len(c.automata))
	c.automata = append(c.automata, a)
	c.classes[key] = id
	return id
}
