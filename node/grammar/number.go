package grammar

import (
	"fmt"
	"slices"
)

// numberSpec is what the keywords of a schema demand of a number.
type numberSpec struct {
	min, max                   *decimal
	exclusiveMin, exclusiveMax bool
	integer                    bool
	places                     int // digits after the point, at most; unbounded: as many as we like
}

func (s numberSpec) bounded() bool { return s.min != nil || s.max != nil || s.places != unbounded }

// number is an expression for the numbers that s allows; ok is false if there are
// none.
func (b *Builder) number(s numberSpec) (expr string, ok bool) {
	if !s.bounded() {
		if s.integer {
			return b.anyInteger(), true
		}
		return b.anyNumber(), true
	}
	a := newNumberMachine(s).automaton()
	if len(a.states) == 0 {
		return "", false
	}
	return b.automaton(a, func(set charset) []string { return []string{set.gbnf()} }), true
}

// numberMachine reads a decimal number digit by digit and keeps how it compares
// with both bounds, which is all that it needs to know: numbers are written
// without leading zeros and without exponent.
type numberMachine struct {
	integer  bool
	fraction int         // digits after the point, at most
	positive *magnitudes // of the numbers without sign, and 0
	negative *magnitudes // of those with "-"

	number map[numberState]int
	todo   []numberState
}

// magnitudes is a range of numbers from 0 on. A bound that is not there counts as
// kept from the start.
type magnitudes struct {
	min, max                   decimal
	noMin, noMax               bool
	exclusiveMin, exclusiveMax bool
	whole                      int // digits before the point, at most
}

// numberState is a place inside a number.
type numberState struct {
	part   numberPart
	minus  bool
	zero   bool // the digit before the point is 0, and the only one
	digits int  // read in this part
	// vsMin and vsMax compare the digits up to here with as many of the bound's.
	vsMin, vsMax int
}

type numberPart uint8

const (
	numberStart numberPart = iota
	numberWhole            // before the point; no digit yet is right after "-"
	numberPoint
	numberFraction
)

func newNumberMachine(s numberSpec) *numberMachine {
	m := &numberMachine{integer: s.integer, fraction: fractionDigits}
	for _, bound := range []*decimal{s.min, s.max} {
		if bound != nil {
			m.fraction = max(m.fraction, len(bound.fraction)+1)
		}
	}
	if s.places != unbounded {
		m.fraction = min(m.fraction, s.places)
	}
	if m.fraction == 0 {
		m.integer = true
	}
	zero := decimal{whole: "0"}
	if s.max == nil || !s.max.negative {
		m.positive = newMagnitudes(s.min, s.max, s.exclusiveMin, s.exclusiveMax)
	}
	if s.min == nil || s.min.negative {
		m.negative = newMagnitudes(negatedOrNil(s.max), negatedOrNil(s.min), s.exclusiveMax, s.exclusiveMin)
		if m.negative.min.compare(zero) == 0 {
			m.negative.exclusiveMin, m.negative.noMin = true, false // there is no -0
		}
	}
	return m
}

func negatedOrNil(d *decimal) *decimal {
	if d == nil {
		return nil
	}
	n := d.negated()
	return &n
}

// newMagnitudes cuts a range at zero. Without a maximum the number of digits is
// bounded.
func newMagnitudes(lo, hi *decimal, exclusiveLo, exclusiveHi bool) *magnitudes {
	m := &magnitudes{min: decimal{whole: "0"}, noMin: true, noMax: true}
	if lo != nil && !lo.negative {
		m.min, m.exclusiveMin = *lo, exclusiveLo
		m.noMin = lo.isZero() && !exclusiveLo
	}
	m.whole = max(integerDigits, len(m.min.whole)+1)
	if hi != nil {
		m.max, m.exclusiveMax, m.noMax = *hi, exclusiveHi, false
		m.whole = len(hi.whole)
	}
	return m
}

// start is the state before the first digit.
func (m *magnitudes) start(minus bool) numberState {
	s := numberState{part: numberWhole, minus: minus}
	if m.noMin {
		s.vsMin = 1
	}
	if m.noMax {
		s.vsMax = -1
	}
	return s
}

// automaton explores the machine.
func (m *numberMachine) automaton() automaton {
	var a automaton
	start := numberState{}
	m.number = map[numberState]int{start: 0}
	m.todo = []numberState{start}
	for i := 0; i < len(m.todo); i++ {
		s := m.todo[i]
		if tail, ok := m.free(s); ok {
			a.states = append(a.states, state{accept: true, tail: tail})
			continue
		}
		a.states = append(a.states, state{accept: m.accepts(s), edges: m.edges(s)})
	}
	return a.trimmed()
}

// free tells whether any digits may follow, and gives the expression for them.
func (m *numberMachine) free(s numberState) (tail string, ok bool) {
	if s.part == numberFraction {
		return times(digits().gbnf(), 0, int64(m.fraction-s.digits)), s.vsMin > 0 && s.vsMax < 0
	}
	if s.part != numberWhole || s.digits == 0 {
		return "", false
	}
	vsMin, vsMax := m.compareWhole(s)
	if vsMin <= 0 || vsMax >= 0 || s.vsMax >= 0 && !s.zero {
		return "", false
	}
	if !s.zero {
		tail = times(digits().gbnf(), 0, int64(m.bounds(s).whole-s.digits))
	}
	if !m.integer {
		tail = join(tail, fmt.Sprintf(`("." %s)?`, times(digits().gbnf(), 1, int64(m.fraction))))
	}
	return tail, true
}

func (m *numberMachine) edges(s numberState) []edge {
	var edges []edge
	add := func(r rune, to numberState) {
		n, ok := m.number[to]
		if !ok {
			n = len(m.todo)
			m.number[to] = n
			m.todo = append(m.todo, to)
		}
		if i := slices.IndexFunc(edges, func(e edge) bool { return e.to == n }); i >= 0 {
			edges[i].set = edges[i].set.union(charset{{r, r}})
			return
		}
		edges = append(edges, edge{charset{{r, r}}, n})
	}
	if s.part == numberStart {
		if m.negative != nil {
			add('-', m.negative.start(true))
		}
		if m.positive == nil {
			return edges
		}
		s = m.positive.start(false)
	}
	for d := rune('0'); d <= '9'; d++ {
		if to, ok := m.digit(s, byte(d)); ok {
			add(d, to)
		}
	}
	if to, ok := m.point(s); ok {
		add('.', to)
	}
	return edges
}

func (m *numberMachine) bounds(s numberState) *magnitudes {
	if s.minus {
		return m.negative
	}
	return m.positive
}

// digit is the state after one more digit.
func (m *numberMachine) digit(s numberState, d byte) (numberState, bool) {
	b := m.bounds(s)
	if s.part == numberWhole {
		if s.digits >= b.whole || s.zero {
			return s, false
		}
		s.zero = s.digits == 0 && d == '0'
		s.vsMin = refine(s.vsMin, d, b.min.whole, s.digits)
		s.vsMax = refine(s.vsMax, d, b.max.whole, s.digits)
		if s.digits++; s.digits > len(b.min.whole) {
			s.vsMin = 1
		}
		return s, true
	}
	if s.digits >= m.fraction || s.vsMax == 0 && s.digits > len(b.max.fraction)+1 {
		return s, false // what equals the maximum needs few zeros more
	}
	s.vsMin = refine(s.vsMin, d, b.min.fraction, s.digits)
	s.vsMax = refine(s.vsMax, d, b.max.fraction, s.digits)
	s.part, s.digits = numberFraction, s.digits+1
	return s, s.vsMin >= 0 && s.vsMax <= 0
}

// refine compares one more digit with digit i of the bound, 0 behind its end.
func refine(c int, d byte, bound string, i int) int {
	if c != 0 {
		return c
	}
	other := byte('0')
	if i < len(bound) {
		other = bound[i]
	}
	switch {
	case d < other:
		return -1
	case d > other:
		return 1
	}
	return 0
}

// compareWhole compares the part before the point, which is complete, with those
// of the bounds.
func (m *numberMachine) compareWhole(s numberState) (vsMin, vsMax int) {
	b := m.bounds(s)
	vsMin, vsMax = s.vsMin, s.vsMax
	if !b.noMin {
		vsMin = wholeVersus(s.digits, vsMin, b.min.whole)
	}
	if !b.noMax {
		vsMax = wholeVersus(s.digits, vsMax, b.max.whole)
	}
	return vsMin, vsMax
}

func wholeVersus(digits, compared int, bound string) int {
	switch {
	case digits < len(bound):
		return -1
	case digits > len(bound):
		return 1
	}
	return compared
}

// point is the state after the decimal point.
func (m *numberMachine) point(s numberState) (numberState, bool) {
	if m.integer || s.part != numberWhole || s.digits == 0 {
		return s, false
	}
	vsMin, vsMax := m.compareWhole(s)
	return numberState{part: numberPoint, minus: s.minus, vsMin: vsMin, vsMax: vsMax}, vsMin >= 0 && vsMax <= 0
}

// accepts tells whether the number may end here.
func (m *numberMachine) accepts(s numberState) bool {
	b := m.bounds(s)
	vsMin, vsMax := s.vsMin, s.vsMax
	read := s.digits // of the fraction
	switch {
	case s.part == numberStart || s.part == numberPoint || s.digits == 0:
		return false
	case s.part == numberWhole:
		vsMin, vsMax = m.compareWhole(s)
		read = 0
	}
	// What is equal so far is equal, unless the bound goes on: its last digit is
	// not 0.
	if vsMin == 0 && len(b.min.fraction) > read {
		vsMin = -1
	}
	if vsMax == 0 && len(b.max.fraction) > read {
		vsMax = -1
	}
	return (vsMin > 0 || vsMin == 0 && !b.exclusiveMin) && (vsMax < 0 || vsMax == 0 && !b.exclusiveMax)
}
