package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"
)

// work is what one step computes of one sequence.
type work struct {
	s      *Sequence
	n      int
	logits int // index of the batch entry to sample from, -1: more tokens follow
}

// step computes one batch: one token of every sequence that decodes and pieces of
// the prompts of those that catch up. False: nobody has anything to compute.
func (e *Engine) step() bool {
	if !e.plan() {
		return false
	}
	e.fillBatch()
	start := e.config.Now()
	err := e.backend.Decode(&e.batch)
	end := e.config.Now()
	e.stats.Steps++
	e.stats.LastStep = end
	if err != nil {
		for _, w := range e.work {
			e.retry(w.s, err)
		}
		return true
	}
	e.advance(start, end)
	return true
}

// fillBatch writes the planned work into the batch, in the order of ids, which is
// what lets the backend compute neighbours together.
func (e *Engine) fillBatch() {
	e.batch.Reset()
	slices.SortFunc(e.work, func(a, b work) int { return cmp.Compare(a.s.entry.id, b.s.entry.id) })
	for i := range e.work {
		w := &e.work[i]
		s := w.s
		w.logits = -1
		last := -1
		for pos := s.computed; pos < s.computed+w.n; pos++ {
			last = e.batch.Add(s.tokens[pos], pos, s.entry.id, pos == len(s.tokens)-1)
		}
		if w.n == s.pending() {
			w.logits = last
		}
	}
}

// advance takes note of a step that was computed and draws the next token of
// every sequence that has caught up.
func (e *Engine) advance(start, end time.Time) {
	prompt, positions, back := 0, 0.0, false
	for _, w := range e.work {
		s := w.s
		if s.started.IsZero() {
			s.started = start
			s.result.Queue = start.Sub(s.submitted)
		}
		back = back || s.background
		if n := min(s.computed+w.n, s.prompt) - s.computed; n > 0 {
			prompt += n
			positions += float64(n) * (float64(s.computed) + float64(n)/2)
		}
		s.computed += w.n
		e.cache.grow(s.entry, s.tokens[:s.computed])
		if w.logits >= 0 {
			e.sample(s, w.logits, end)
		}
	}
	alone := !slices.ContainsFunc(e.running, (*Sequence).decodes)
	for _, w := range e.work { // readers have their tokens first
		e.keepBlocks(w.s, alone)
	}
	if back {
		e.pace.observe(prompt, e.batch.Len(), end.Sub(start))
		return
	}
	e.stats.Computed += int64(prompt)
	e.observe(prompt, positions, end.Sub(start))
}

// observe learns from the time of a step with some tokens of prompts, at positions
// that are so much together.
func (e *Engine) observe(prompt int, positions float64, took time.Duration) {
	total := e.batch.Len()
	e.pace.observe(prompt, total, took)
	switch {
	case prompt == 0:
		e.rates.decoded(total, took)
	case prompt == total && prompt >= budgetMin:
		e.rates.prefill.add(prompt, positions/float64(prompt), took)
	}
}

// sample draws the next token of s and hands it to the reader.
func (e *Engine) sample(s *Sequence, logits int, now time.Time) {
	out, err := e.backend.Sample(logits, s.sampler, len(s.tokens))
	if err != nil {
		e.sampleFailed(s, err)
		return
	}
	s.suspect = false
	first := s.first.IsZero()
	if first {
		s.first = now
		s.result.Prefill = now.Sub(s.started)
	}
	if e.vocab.IsEOG(out.Token) {
		e.finish(s, FinishStop, nil)
		return
	}
	s.tokens = append(s.tokens, out.Token)
	s.result.Generated++
	s.result.Decode = now.Sub(s.first)
	if !s.background {
		e.stats.Generated++
	}
	if first {
		e.config.Hooks.FirstToken(s.label, s.result)
	}
	s.paused = s.out.put(out, &s.result, now)
	if len(s.tokens) == s.limit {
		e.finish(s, FinishLength, nil)
	}
}

// sampleFailed runs s once more with a fresh sampler: what the old one holds after
// an error is unknown.
func (e *Engine) sampleFailed(s *Sequence, err error) {
	if !s.retried {
		fresh, newErr := e.backend.NewSampler(s.sampling, s.tokens[:s.prompt], s.tokens[s.prompt:])
		if newErr != nil {
			e.giveUp(s)
			e.finish(s, FinishFailed, errors.Join(err, newErr))
			return
		}
		s.sampler.Close()
		s.sampler = fresh
	}
	e.retry(s, err)
}

// retry gives a sequence that an error hit a second chance: all its tokens are
// computed again, in steps of its own, so that a sequence that breaks steps cannot
// break others' twice. The second error is its end.
func (e *Engine) retry(s *Sequence, err error) {
	e.giveUp(s)
	if s.retried {
		e.finish(s, FinishFailed, err)
		return
	}
	s.retried, s.suspect = true, true
	e.config.Hooks.Retried(s.label, err)
	e.place(s)
}
