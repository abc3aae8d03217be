package engine

import "slices"

// giveWay ends the background requests: another one has come.
func (e *Engine) giveWay() {
	e.mu.Lock()
	back := slices.Clone(e.mu.back)
	e.mu.Unlock()
	for _, s := range back {
		e.cancel(s, ErrGaveWay)
	}
}

// ended takes note of a sequence that is in no list any more.
func (e *Engine) ended(s *Sequence) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.background {
		e.mu.back = slices.DeleteFunc(e.mu.back, func(b *Sequence) bool { return b == s })
	} else {
		e.mu.used = e.config.Now()
	}
}

// background tells whether only background requests run.
func (e *Engine) background() bool {
	return !slices.ContainsFunc(e.running, func(s *Sequence) bool { return !s.background })
}

// ForgetRates drops what was measured of prompts and steps of requests, for a caller
// that has measured better since. It takes effect with the next turn.
func (e *Engine) ForgetRates() {
	e.mu.Lock()
	e.mu.forget = true
	e.mu.Unlock()
	e.poke()
}

func (e *Engine) forgetRates() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.forget {
		e.mu.forget, e.rates = false, rates{}
	}
}
