package engine

import "slices"

// aheadMax is how many steps the backend makes by itself at most. It waits for nobody
// between them; what somebody wants meanwhile ends it after the step that runs, or,
// should this goroutine not come to run, after these.
const aheadMax = 16

// ahead is how many steps the backend may make with what was planned: more than one if
// all that it computes are answers of which it can draw the next token, nothing else
// waits, and nothing is to be done between the steps.
func (e *Engine) ahead() int {
	r, able := e.backend.(Runner)
	if !able || len(e.work) == 0 || e.dirty.Load() || e.embedsWait() {
		return 1
	}
	steps := aheadMax
	for _, s := range e.running {
		if len(s.rows) > 0 || s.suspect || s.entry != nil && !s.paused && s.pending() != 1 {
			return 1
		}
	}
	for _, w := range e.work {
		s := w.s
		if s.background || s.started.IsZero() || s.computed < s.prompt || !r.Draws(s.sampler) {
			return 1
		}
		steps = min(steps, s.limit-len(s.tokens), s.out.room(), s.blockEnds())
	}
	return steps
}

// blockEnds is after how many steps of one token a block is complete, which is handed
// out between steps.
func (s *Sequence) blockEnds() int {
	if s.blocks == nil || s.retried || s.entry == nil {
		return aheadMax
	}
	return s.kept + s.blocks.Size() - s.computed
}

func (e *Engine) embedsWait() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.mu.embeds) > 0
}

// stepAhead lets the backend make some steps and hands out each one's tokens while the
// next is computed.
func (e *Engine) stepAhead(steps int) {
	e.samplers = e.samplers[:0]
	for _, w := range e.work {
		e.samplers = append(e.samplers, w.s.sampler)
	}
	start := e.config.Now()
	err := e.backend.(Runner).Run(&e.batch, e.samplers, steps, func(drawn []Output) bool {
		end := e.config.Now()
		e.stats.Steps++
		e.stats.LastStep = end
		for i, w := range e.work {
			s := w.s
			s.computed++
			e.cache.grow(s.entry, s.tokens[:s.computed])
			e.take(s, drawn[i], end)
		}
		e.rates.decoded(len(e.work), end.Sub(start))
		e.publish(false)
		start = end
		return !e.dirty.Load()
	})
	if err != nil {
		e.stats.Steps++
		e.stats.LastStep = e.config.Now()
		for _, w := range slices.Clone(e.work) {
			if w.s.running {
				e.retry(w.s, err)
			}
		}
		return
	}
	e.keepAllBlocks()
}
