package gbnf

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Limits of what a text may need.
const (
	threadsMax = 1 << 14 // of one state
	visitsMax  = 1 << 16 // of instructions between two bytes
	depthMax   = 1 << 12 // of rules within each other
	framesMax  = 1 << 16 // kept
	statesMax  = 1 << 11 // kept, 2 KiB each
	keptMax    = 1 << 20 // threads of all states that are kept
	masksMax   = 1 << 7  // kept, one bit per token each

	// budget bounds the time of one Advance or Mask to some 0.1 s. Looking at a
	// thread costs 1, following an instruction visitCost.
	budget    = 1 << 24
	visitCost = 16
)

// frame is a stack of places to return to; nil is the empty one. Equal stacks
// are one frame as long as the grammar keeps it.
type frame struct {
	ret    int32
	depth  int32
	id     uint32
	parent *frame
}

type frameKey struct {
	ret    int32
	parent *frame
}

// thread waits for a byte at an opByte or opClass.
type thread struct {
	pc    int32
	sub   int32 // state of the class's automaton
	stack *frame
}

// State is where a text is in a grammar. It never changes for its users.
type State struct {
	threads  []thread
	complete bool
	next     [256]*State // nil: not known yet; dead: refused
	mask     []uint64    // tokens that may follow, if known
}

// Complete tells whether the text up to here matches the grammar.
func (s *State) Complete() bool { return s.complete }

// Final tells whether nothing can follow.
func (s *State) Final() bool { return len(s.threads) == 0 }

// dead is the state of a text that does not match.
var dead = &State{}

// Start is the state of the empty text.
func (g *Grammar) Start() *State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.start
}

// Advance is the state after text; nil if it does not match, or if it takes too
// long to tell.
func (g *Grammar) Advance(s *State, text []byte) *State {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.budget = budget
	for _, b := range text {
		if s = g.step(s, b); s == dead {
			return nil
		}
	}
	return s
}

// AdvanceLiteral is like Advance for a text that the grammar must spell out: no
// byte of it may be matched by a character class.
func (g *Grammar) AdvanceLiteral(s *State, text []byte) *State {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.budget = budget
	return g.spell(s, text)
}

// spell needs g.mu.
func (g *Grammar) spell(s *State, text []byte) *State {
	for _, b := range text {
		if g.budget <= 0 {
			return nil
		}
		g.work.begin()
		for _, t := range s.threads {
			if i := g.prog[t.pc]; i.op == opByte && i.arg == int32(b) {
				g.work.add(g, i.next, t.stack)
			}
		}
		g.budget -= len(s.threads) + visitCost*len(g.work.seen)
		if s = g.intern(); s == dead {
			return nil
		}
	}
	return s
}

// reset forgets all states but those that users hold.
func (g *Grammar) reset() {
	for _, s := range g.states {
		s.next = [256]*State{}
		s.mask = nil
	}
	g.frames, g.states, g.kept, g.masks = map[frameKey]*frame{}, map[string]*State{}, 0, 0
	g.work.begin()
	g.work.add(g, g.starts[0], nil)
	g.start = g.intern()
}

// step needs g.mu. It is dead without being kept when the budget is used up.
func (g *Grammar) step(s *State, b byte) *State {
	if n := s.next[b]; n != nil {
		return n
	}
	if g.budget <= 0 {
		return dead
	}
	g.work.begin()
	for _, t := range s.threads {
		switch i := g.prog[t.pc]; i.op {
		case opByte:
			if i.arg == int32(b) {
				g.work.add(g, i.next, t.stack)
			}
		case opClass:
			switch sub := g.classes[i.arg].step(t.sub, b); sub {
			case classDead:
			case classDone:
				g.work.add(g, i.next, t.stack)
			default:
				g.work.wait(thread{t.pc, sub, t.stack})
			}
		}
	}
	g.budget -= len(s.threads) + visitCost*len(g.work.seen)
	n := g.intern()
	s.next[b] = n
	return n
}

// intern makes the state of the threads in g.work. When too many are kept, all
// are forgotten first.
func (g *Grammar) intern() *State {
	w := &g.work
	if w.overflow || (len(w.threads) == 0 && !w.complete) {
		return dead
	}
	slices.SortFunc(w.threads, func(a, b thread) int {
		return cmp.Or(cmp.Compare(a.pc, b.pc), cmp.Compare(a.sub, b.sub), cmp.Compare(a.stack.number(), b.stack.number()))
	})
	b := w.key[:0]
	for _, t := range w.threads {
		b = binary.LittleEndian.AppendUint32(b, uint32(t.pc))
		b = binary.LittleEndian.AppendUint32(b, uint32(t.sub))
		b = binary.LittleEndian.AppendUint32(b, t.stack.number())
	}
	if w.complete {
		b = append(b, 1)
	}
	w.key = b
	if s, ok := g.states[string(b)]; ok {
		return s
	}
	s, key := &State{threads: slices.Clone(w.threads), complete: w.complete}, string(b)
	if len(g.states) >= statesMax || len(g.frames) >= framesMax || g.kept >= keptMax {
		g.reset()
	}
	g.states[key] = s
	g.kept += len(s.threads)
	return s
}

func (f *frame) number() uint32 {
	if f == nil {
		return 0
	}
	return f.id
}

// push is the stack with one more place to return to.
func (g *Grammar) push(ret int32, parent *frame) *frame {
	key := frameKey{ret, parent}
	if f, ok := g.frames[key]; ok {
		return f
	}
	g.ids++
	f := &frame{ret: ret, id: g.ids, parent: parent, depth: 1}
	if parent != nil {
		f.depth = parent.depth + 1
	}
	g.frames[key] = f
	return f
}

// closure collects the threads that can be reached without matching a byte.
type closure struct {
	threads  []thread
	seen     map[thread]struct{} // visited places
	todo     []thread
	complete bool
	overflow bool
	key      []byte
}

func (w *closure) begin() {
	w.threads, w.todo, w.complete, w.overflow = w.threads[:0], w.todo[:0], false, false
	if w.seen == nil {
		w.seen = map[thread]struct{}{}
	}
	clear(w.seen)
}

// wait adds a thread that waits for a byte.
func (w *closure) wait(t thread) {
	if _, ok := w.seen[t]; ok {
		return
	}
	w.seen[t] = struct{}{}
	if len(w.threads) >= threadsMax {
		w.overflow = true
		return
	}
	w.threads = append(w.threads, t)
}

// add follows everything that needs no byte from pc on.
func (w *closure) add(g *Grammar, pc int32, stack *frame) {
	w.todo = append(w.todo, thread{pc: pc, stack: stack})
	for len(w.todo) > 0 && !w.overflow {
		t := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		i := g.prog[t.pc]
		switch i.op {
		case opByte:
			w.wait(t)
			continue
		case opClass:
			t.sub = classInit
			w.wait(t)
			continue
		}
		if _, ok := w.seen[t]; ok {
			continue
		}
		w.seen[t] = struct{}{}
		if len(w.seen) > visitsMax {
			w.overflow = true
			return
		}
		w.follow(g, i, t.stack)
	}
}

func (w *closure) follow(g *Grammar, i inst, stack *frame) {
	switch i.op {
	case opSplit:
		w.todo = append(w.todo, thread{pc: i.next, stack: stack}, thread{pc: i.arg, stack: stack})
	case opCall:
		// A call at the end of a rule needs no way back: repetition by
		// recursion does not grow the stack.
		if g.prog[i.next].op != opReturn {
			stack = g.push(i.next, stack)
		}
		if stack != nil && stack.depth > depthMax {
			w.overflow = true
			return
		}
		w.todo = append(w.todo, thread{pc: g.starts[i.arg], stack: stack})
	case opReturn:
		if stack == nil {
			w.complete = true
			return
		}
		w.todo = append(w.todo, thread{pc: stack.ret, stack: stack.parent})
	}
}
