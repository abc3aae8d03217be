package llama

import (
	"testing"
	"time"
)

// run lets p see computations of 5 ms in total of d, of which share ran, and
// returns the thread count at the end.
func (p *pace) run(d time.Duration, share float64) int {
	const step = 5 * time.Millisecond
	for range d / step {
		p.observe(step, time.Duration(share*float64(step)))
	}
	return p.now
}

func TestPace(t *testing.T) {
	p := newPace(8)
	if n := p.run(time.Minute, 1); n != 8 {
		t.Fatalf("%d threads on a quiet machine", n)
	}
	for range 10 { // somebody passes by
		p.run(80*time.Millisecond, 0.5)
		p.run(40*time.Millisecond, 1)
	}
	if p.now != 8 {
		t.Errorf("%d threads after moments of disturbance", p.now)
	}
	if n := p.run(120*time.Millisecond, 0.5); n != 6 {
		t.Errorf("%d threads after the first disturbance", n)
	}
	if n := p.run(2*time.Second, 0.5); n != 1 {
		t.Errorf("%d threads on a busy machine", n)
	}
	if n := p.run(500*time.Millisecond, 1); n != 1 {
		t.Errorf("%d threads after half a second of calm", n)
	}
	if n := p.run(5*time.Minute, 1); n != 8 {
		t.Errorf("%d threads long after the disturbance", n)
	}
	p.run(2*time.Second, 0.5)
	if n := p.run(2*time.Minute, 0.9); n != 1 {
		t.Errorf("%d threads on a machine that is not calm", n)
	}
}

// TestPacePatience: trying more threads costs less and less when it keeps failing.
func TestPacePatience(t *testing.T) {
	p := newPace(2)
	tries := 0
	for range 100 * 60 * 10 { // ten minutes in steps of 10 ms
		share := 1.0
		if p.now == 2 {
			share = 0.5
		}
		if p.observe(10*time.Millisecond, time.Duration(share*float64(10*time.Millisecond))) && p.now == 2 {
			tries++
		}
	}
	if tries < 10 || tries > 50 {
		t.Errorf("%d tries in ten minutes", tries)
	}
	p.run(time.Minute, 1)
	if p.now != 2 {
		t.Fatalf("%d threads", p.now)
	}
	p.run(forgivenCalm+time.Second, 1)
	if p.patience != patienceMin {
		t.Errorf("patience %v after a long calm", p.patience)
	}
}

func TestPaceOfOne(t *testing.T) {
	p := newPace(1)
	if n := p.run(time.Minute, 0.1); n != 1 {
		t.Errorf("%d threads", n)
	}
}
