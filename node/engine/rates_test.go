package engine

import (
	"math"
	"testing"
	"time"
)

// A line is found again from steps of a prompt, and old steps are forgotten.
func TestPrefillLine(t *testing.T) {
	var l prefillLine
	prompt := func(first, doubles float64) {
		for pos := 0.0; pos < 4096; pos += 256 {
			x := pos + 128
			l.add(256, x, time.Duration(256*first*(1+x/doubles)*float64(time.Second)))
		}
	}
	near := func(got time.Duration, gotDoubles, first, doubles float64) bool {
		return math.Abs(got.Seconds()/first-1) < 0.02 && math.Abs(gotDoubles/doubles-1) < 0.05
	}
	prompt(0.002, 1500)
	if first, doubles := l.fit(); !near(first, doubles, 0.002, 1500) {
		t.Errorf("%v, %v; want 2 ms, 1500", first, doubles)
	}
	for range 30 {
		prompt(0.001, 6000)
	}
	if first, doubles := l.fit(); !near(first, doubles, 0.001, 6000) {
		t.Errorf("after many others: %v, %v; want 1 ms, 6000", first, doubles)
	}
	l = prefillLine{}
	if first, doubles := l.fit(); first != 0 || doubles != 0 {
		t.Errorf("of nothing: %v, %v", first, doubles)
	}
	l.add(64, 32, 64*time.Millisecond)
	l.add(64, 32, 64*time.Millisecond)
	if first, doubles := l.fit(); first != time.Millisecond || doubles != 0 {
		t.Errorf("of one position: %v, %v; want 1 ms and no slope", first, doubles)
	}
	l.add(512, 4000, time.Millisecond) // later tokens were faster: noise
	if first, doubles := l.fit(); first <= 0 || doubles != 0 {
		t.Errorf("of a line that falls: %v, %v", first, doubles)
	}
}

// The first steps of a model say little.
func TestDecodeRateIsKnownAfterSomeSteps(t *testing.T) {
	var r rates
	for range stepsKnown - 1 {
		r.decoded(1, time.Second)
	}
	if step, _ := r.decode(); step != 0 {
		t.Errorf("%v after %d steps", step, stepsKnown-1)
	}
	for range 200 {
		r.decoded(2, time.Millisecond)
	}
	if step, width := r.decode(); step > 1100*time.Microsecond || width < 1.9 {
		t.Errorf("%v with %v; want 1 ms with 2", step, width)
	}
}
