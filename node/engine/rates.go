package engine

import (
	"math"
	"time"
)

// rates are what is told of the engine's speed, for decisions about where to compute.
type rates struct {
	prefill prefillLine
	step    time.Duration // of a step without prompts
	width   float64       // sequences in it
	steps   int
}

// stepsKnown is how many steps say something of the next ones: the first are slow.
const stepsKnown = 8

// decoded learns from a step without prompts.
func (r *rates) decoded(sequences int, took time.Duration) {
	r.steps++
	if r.steps == 1 {
		r.step, r.width = took, float64(sequences)
	}
	r.step += (took - r.step) / stepMemory
	r.width += (float64(sequences) - r.width) / stepMemory
}

// decode is how long a step takes, and with how many sequences; 0: not known yet.
func (r *rates) decode() (step time.Duration, width float64) {
	if r.steps < stepsKnown {
		return 0, 0
	}
	return r.step, r.width
}

// known is on how much the figures are based: prompt tokens and steps.
func (r *rates) known() (tokens, steps int) {
	return min(int(r.prefill.n), RatesFull), min(r.steps, RatesFull)
}

// RatesFull is the most that Stats.TokensKnown and StepsKnown tell.
const RatesFull = 1 << 14

// prefillLine is the time of a prompt's token as a line over its position: attention
// makes later ones dearer. It is fitted by least squares over the steps so far, of
// which older ones count less.
type prefillLine struct{ n, x, y, xx, xy float64 }

// lineMemory is after how many tokens a step counts a third.
const lineMemory = 16384

// add learns from a step that took so long for tokens at positions that are position
// on average.
func (l *prefillLine) add(tokens int, position float64, took time.Duration) {
	keep := math.Exp(-float64(tokens) / lineMemory)
	n := float64(tokens)
	y := took.Seconds() / n
	for _, sum := range []struct {
		of  *float64
		add float64
	}{{&l.n, n}, {&l.x, n * position}, {&l.y, n * y}, {&l.xx, n * position * position}, {&l.xy, n * position * y}} {
		*sum.of = *sum.of*keep + sum.add
	}
}

// fit is the time of a token at position 0, and the position at which it takes twice
// as long; 0: not known, as nothing was measured at different positions.
func (l *prefillLine) fit() (first time.Duration, doubles float64) {
	if l.n == 0 {
		return 0, 0
	}
	mean, x := l.y/l.n, l.x/l.n
	spread := l.xx/l.n - x*x
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	if spread < lineSpread*lineSpread {
		return seconds(mean), 0
	}
	slope := (l.xy/l.n - x*mean) / spread
	start := mean - slope*x
	if slope <= 0 || start < mean/lineSteepest { // noise, or curved
		return seconds(mean), 0
	}
	return seconds(start), start / slope
}

const (
	// lineSpread is how far apart, in tokens, positions must be to tell a slope.
	lineSpread = 128
	// lineSteepest bounds how much of a token's time may be its position's.
	lineSteepest = 20
)
