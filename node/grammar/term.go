package grammar

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

// A term is a regular expression over characters, with intersection. Equal terms
// are one term, so that a term can be the state of an automaton: derive gives the
// term for what may follow a character.
type term struct {
	op       termOp
	set      charset // of termClass
	subs     []*term // of termConcat (two), termOr, termAnd, termRepeat (one)
	min, max int     // of termRepeat
	id       int
	nullable bool // it matches the empty string
}

type termOp uint8

const (
	termNone   termOp = iota // no string
	termEmpty                // the empty string
	termClass                // one character
	termConcat               // one after the other
	termOr
	termAnd
	termRepeat
)

// unbounded is the maximum of a repetition that has none.
const unbounded = -1

// terms makes terms. Its work is charged to *work, which counts down.
type terms struct {
	known       map[string]*term
	none, empty *term
	key         []byte
	work        *int
}

func newTerms(work *int) *terms {
	ts := &terms{known: map[string]*term{}, work: work}
	ts.none = ts.intern(term{op: termNone})
	ts.empty = ts.intern(term{op: termEmpty, nullable: true})
	return ts
}

// check fails once the work is used up.
func (ts *terms) check() error {
	if *ts.work < 0 {
		return errTooMuchWork
	}
	return nil
}

func (ts *terms) intern(t term) *term {
	k := append(ts.key[:0], byte(t.op))
	k = binary.AppendVarint(binary.AppendVarint(k, int64(t.min)), int64(t.max))
	for _, s := range t.subs {
		k = binary.AppendUvarint(k, uint64(s.id))
	}
	for _, s := range t.set {
		k = binary.AppendUvarint(binary.AppendUvarint(k, uint64(s.lo)), uint64(s.hi))
	}
	ts.key = k
	*ts.work -= 1 + len(k)/16
	if known, ok := ts.known[string(k)]; ok {
		return known
	}
	t.id = len(ts.known)
	known := &t
	ts.known[string(k)] = known
	return known
}

func (ts *terms) class(set charset) *term {
	if len(set) == 0 {
		return ts.none
	}
	return ts.intern(term{op: termClass, set: set})
}

// concat nests to the right, so that deriving touches the front only.
func (ts *terms) concat(parts ...*term) *term {
	out := ts.empty
	for _, p := range slices.Backward(parts) {
		out = ts.concat2(p, out)
	}
	return out
}

func (ts *terms) concat2(a, b *term) *term {
	switch {
	case a == ts.none || b == ts.none:
		return ts.none
	case a == ts.empty:
		return b
	case b == ts.empty:
		return a
	}
	var front []*term // of a, which is a list itself
	for a.op == termConcat {
		front, a = append(front, a.subs[0]), a.subs[1]
	}
	out := ts.intern(term{op: termConcat, subs: []*term{a, b}, nullable: a.nullable && b.nullable})
	for _, f := range slices.Backward(front) {
		out = ts.intern(term{op: termConcat, subs: []*term{f, out}, nullable: f.nullable && out.nullable})
	}
	return out
}

func (ts *terms) or(subs ...*term) *term {
	var set []span
	var flat []*term
	for _, s := range ts.flatten(termOr, subs) {
		switch s.op {
		case termNone:
		case termClass:
			set = append(set, s.set...)
		default:
			flat = append(flat, s)
		}
	}
	if len(set) > 0 {
		flat = append(flat, ts.class(newCharset(set...)))
	}
	flat = uniqueTerms(flat)
	if nullable := slices.ContainsFunc(flat, func(t *term) bool { return t.nullable && t != ts.empty }); nullable {
		flat = slices.DeleteFunc(flat, func(t *term) bool { return t == ts.empty })
	}
	switch len(flat) {
	case 0:
		return ts.none
	case 1:
		return flat[0]
	}
	return ts.intern(term{op: termOr, subs: flat, nullable: slices.ContainsFunc(flat, func(t *term) bool { return t.nullable })})
}

func (ts *terms) and(subs ...*term) *term {
	flat := uniqueTerms(ts.flatten(termAnd, subs))
	switch {
	case len(flat) == 0 || slices.Contains(flat, ts.none):
		return ts.none
	case len(flat) == 1:
		return flat[0]
	}
	nullable := !slices.ContainsFunc(flat, func(t *term) bool { return !t.nullable })
	if !nullable && slices.Contains(flat, ts.empty) {
		return ts.none
	}
	return ts.intern(term{op: termAnd, subs: flat, nullable: nullable})
}

// flatten replaces subs of the same kind by their own subs. Once the work is used
// up it forgets them, since terms are not needed any more then.
func (ts *terms) flatten(op termOp, subs []*term) []*term {
	for _, s := range subs {
		*ts.work -= 1 + len(s.subs)/2
	}
	if *ts.work < 0 {
		return nil
	}
	var flat []*term
	for _, s := range subs {
		if s.op == op {
			flat = append(flat, s.subs...)
		} else {
			flat = append(flat, s)
		}
	}
	return flat
}

// uniqueTerms sorts terms and drops equal ones.
func uniqueTerms(terms []*term) []*term {
	slices.SortFunc(terms, func(a, b *term) int { return cmp.Compare(a.id, b.id) })
	return slices.Compact(terms)
}

func (ts *terms) repeat(t *term, lo, hi int) *term {
	switch {
	case hi == 0 || t == ts.empty || t == ts.none && lo == 0:
		return ts.empty
	case t == ts.none || lo == 1 && hi == 1:
		return t
	}
	if t.nullable {
		lo = 0
	}
	if t.op == termRepeat && t.min <= 1 && lo <= 1 && hi == unbounded {
		// (x{0,n})* and the like: any number of x.
		t, lo = t.subs[0], lo*t.min
	}
	return ts.intern(term{op: termRepeat, subs: []*term{t}, min: lo, max: hi, nullable: lo == 0})
}

// derive is what may follow r at the beginning of t.
func (ts *terms) derive(t *term, r rune) *term {
	*ts.work--
	switch t.op {
	case termClass:
		if t.set.contains(r) {
			return ts.empty
		}
	case termConcat:
		return ts.deriveConcat(t, r)
	case termOr, termAnd:
		subs := make([]*term, len(t.subs))
		for i, s := range t.subs {
			subs[i] = ts.derive(s, r)
		}
		if t.op == termOr {
			return ts.or(subs...)
		}
		return ts.and(subs...)
	case termRepeat:
		lo, hi := max(t.min-1, 0), t.max
		if hi != unbounded {
			hi--
		}
		if first := ts.derive(t.subs[0], r); first != ts.none {
			return ts.concat2(first, ts.repeat(t.subs[0], lo, hi))
		}
	}
	return ts.none
}

// matches tells whether t matches all of s.
func (ts *terms) matches(t *term, s string) bool {
	for _, r := range s {
		if t = ts.derive(t, r); t == ts.none {
			return false
		}
	}
	return t.nullable
}

// deriveConcat goes along the list for as long as its parts may be empty.
func (ts *terms) deriveConcat(t *term, r rune) *term {
	var options []*term
	for *ts.work >= 0 {
		*ts.work--
		if t.op != termConcat {
			options = append(options, ts.derive(t, r))
			break
		}
		options = append(options, ts.concat2(ts.derive(t.subs[0], r), t.subs[1]))
		if !t.subs[0].nullable {
			break
		}
		t = t.subs[1]
	}
	return ts.or(options...)
}

// cuts appends where the sets of first characters of t begin and end: between two
// neighbouring cuts, all characters have the same derivative.
func (ts *terms) cuts(t *term, out []rune) []rune {
	if *ts.work -= 1 + len(t.set); *ts.work < 0 {
		return out
	}
	switch t.op {
	case termClass:
		for _, s := range t.set {
			out = append(out, s.lo, s.hi+1)
		}
	case termConcat:
		for ; t.op == termConcat && *ts.work >= 0; t = t.subs[1] {
			*ts.work--
			if out = ts.cuts(t.subs[0], out); !t.subs[0].nullable {
				return out
			}
		}
		return ts.cuts(t, out)
	case termOr, termAnd, termRepeat:
		for _, s := range t.subs {
			out = ts.cuts(s, out)
		}
	}
	return out
}

// soleRepeat tells whether t is nothing but repeated characters of one set.
func (t *term) soleRepeat() (set charset, lo, hi int, ok bool) {
	switch {
	case t.op == termClass:
		return t.set, 1, 1, true
	case t.op == termRepeat && t.subs[0].op == termClass:
		return t.subs[0].set, t.min, t.max, true
	}
	return nil, 0, 0, false
}

// loopsOver tells whether t can repeat characters of set without a close limit.
// Parts that are shared are looked at once.
func (t *term) loopsOver(set charset, limit int, seen map[*term]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if t.op == termRepeat && (t.max == unbounded || t.max > limit) && t.mentions(set, map[*term]bool{}) {
		return true
	}
	return slices.ContainsFunc(t.subs, func(s *term) bool { return s.loopsOver(set, limit, seen) })
}

func (t *term) mentions(set charset, seen map[*term]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if t.op == termClass {
		return len(t.set.intersect(set)) > 0
	}
	return slices.ContainsFunc(t.subs, func(s *term) bool { return s.mentions(set, seen) })
}

// automaton has at most limit states.
func (ts *terms) automaton(t *term, limit int) (automaton, error) {
	var a automaton
	number := map[*term]int{t: 0}
	todo := []*term{t}
	for i := 0; i < len(todo); i++ {
		if len(todo) > limit {
			return a, fmt.Errorf("it needs more than %d states", limit)
		}
		if err := ts.check(); err != nil {
			return a, err
		}
		s := state{accept: todo[i].nullable}
		for _, e := range ts.follow(todo[i]) {
			to, ok := number[e.next]
			if !ok {
				to = len(todo)
				number[e.next] = to
				todo = append(todo, e.next)
			}
			s.edges = append(s.edges, edge{newCharset(e.spans...), to})
		}
		a.states = append(a.states, s)
	}
	return a.trimmed(), ts.check()
}

type termEdge struct {
	spans []span
	next  *term
}

// follow lists what may follow t, in the order of the first characters.
func (ts *terms) follow(t *term) []termEdge {
	cuts := ts.cuts(t, nil)
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var edges []termEdge
	at := map[*term]int{}
	for i := range len(cuts) - 1 {
		next := ts.derive(t, cuts[i])
		if next == ts.none {
			continue
		}
		n, ok := at[next]
		if !ok {
			n = len(edges)
			at[next] = n
			edges = append(edges, termEdge{next: next})
		}
		edges[n].spans = append(edges[n].spans, span{cuts[i], cuts[i+1] - 1})
	}
	return edges
}
