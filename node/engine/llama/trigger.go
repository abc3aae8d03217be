package llama

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// Limits of a lazy grammar's triggers.
const (
	triggersMax     = 64
	triggerBytesMax = 4096
	triggerInstsMax = 4096 // of the compiled expression
)

// trigger is a regular expression that a growing text is to match as a whole. It
// remembers where the expression can be at the end of the text, so that a token
// costs no more late in a text than early. Each trigger belongs to one sequence.
type trigger struct {
	prog    *syntax.Prog
	prev    rune // before pos, -1 at the start
	pos     int
	partial []byte // the beginning of a character at the end of the text

	// Threads in the order in which the expression prefers them. They wait for
	// the character at pos.
	waiting []matchThread
	ready   []matchThread // scratch
	seen    []int         // the round in which an instruction was reached
	round   int
}

// matchThread is one way to match the text up to here.
type matchThread struct {
	pc    uint32
	group int // where the first group begins, -1: nowhere yet
}

func newTrigger(pattern string) (*trigger, error) {
	if len(pattern) > triggerBytesMax {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(pattern), triggerBytesMax)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	if len(prog.Inst) > triggerInstsMax {
		return nil, fmt.Errorf("compiled it has %d steps, at most %d are allowed", len(prog.Inst), triggerInstsMax)
	}
	t := &trigger{prog: prog, prev: -1, seen: make([]int, len(prog.Inst))}
	t.waiting = []matchThread{{uint32(prog.Start), -1}}
	return t, nil
}

// push appends text to what is to be matched.
func (t *trigger) push(text []byte) {
	t.partial = append(t.partial, text...)
	for len(t.partial) > 0 && utf8.FullRune(t.partial) {
		r, n := utf8.DecodeRune(t.partial)
		t.step(r)
		t.pos += n
		t.partial = t.partial[n:]
	}
}

// step consumes one character.
func (t *trigger) step(r rune) {
	t.reach(syntax.EmptyOpContext(t.prev, r))
	t.waiting = t.waiting[:0]
	for _, th := range t.ready {
		if i := &t.prog.Inst[th.pc]; i.Op != syntax.InstMatch && i.MatchRune(r) {
			t.waiting = append(t.waiting, matchThread{i.Out, th.group})
		}
	}
	t.prev = r
}

// match is where the first group begins, 0 without a group; ok if the whole text
// matches.
func (t *trigger) match() (at int, ok bool) {
	if len(t.partial) > 0 {
		return 0, false
	}
	t.reach(syntax.EmptyOpContext(t.prev, -1))
	for _, th := range t.ready {
		if t.prog.Inst[th.pc].Op == syntax.InstMatch {
			return max(0, th.group), true
		}
	}
	return 0, false
}

// forget drops the ways to match whose group begins at; false if there are none.
func (t *trigger) forget(at int) bool {
	before := len(t.waiting)
	t.waiting = slices.DeleteFunc(t.waiting, func(th matchThread) bool { return th.group == at })
	return len(t.waiting) < before
}

// reach follows everything that needs no character.
func (t *trigger) reach(here syntax.EmptyOp) {
	t.ready = t.ready[:0]
	t.round++
	for _, th := range t.waiting {
		t.follow(th, here)
	}
}

// follow is as deep as the expression is long.
func (t *trigger) follow(th matchThread, here syntax.EmptyOp) {
	if t.seen[th.pc] == t.round {
		return
	}
	t.seen[th.pc] = t.round
	i := &t.prog.Inst[th.pc]
	switch i.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		t.follow(matchThread{i.Out, th.group}, here)
		t.follow(matchThread{i.Arg, th.group}, here)
	case syntax.InstCapture:
		if th.group < 0 && i.Arg >= 2 && i.Arg%2 == 0 {
			th.group = t.pos
		}
		t.follow(matchThread{i.Out, th.group}, here)
	case syntax.InstEmptyWidth:
		if syntax.EmptyOp(i.Arg)&^here == 0 {
			t.follow(matchThread{i.Out, th.group}, here)
		}
	case syntax.InstNop:
		t.follow(matchThread{i.Out, th.group}, here)
	case syntax.InstFail:
	default: // a character, or the match
		t.ready = append(t.ready, th)
	}
}
