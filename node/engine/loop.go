package engine

import (
	"slices"
	"time"
)

// turnResult says what the owner goroutine has to do next.
type turnResult int

const (
	turnAgain  turnResult = iota
	turnIdle              // nothing can be computed until somebody pokes
	turnClosed            // everything has ended
)

// turn is one round of the owner goroutine: see what callers want, give slots to
// waiting requests, compute one step.
func (e *Engine) turn() turnResult {
	looked := e.dirty.Swap(false)
	if looked {
		e.forgetRates()
		if stopped, closed := e.look(); stopped {
			e.endAll()
			if closed {
				return turnClosed
			}
		}
	}
	e.settle()
	e.park()
	if looked {
		e.admit()
	}
	e.tidy()
	restored := e.restoreRows()
	idle := !e.embedStep() && !e.step() && !restored
	e.publish(idle)
	if e.config.afterTurn != nil {
		e.config.afterTurn(e)
	}
	if idle && !e.dirty.Load() {
		return turnIdle
	}
	return turnAgain
}

// tidy keeps the ids of running sequences together, one move a turn.
func (e *Engine) tidy() {
	if err := e.cache.tidy(); err != nil {
		e.config.Hooks.KVFailed("", err)
	}
}

// look takes note of cancelled sequences and of readers that read again, and tells
// whether the engine was stopped and closed.
func (e *Engine) look() (stopped, closed bool) {
	e.mu.Lock()
	stopped, closed = e.mu.stopped, e.mu.closed
	e.unparkLocked()
	e.wakeLocked()
	e.mu.Unlock()
	for i := len(e.running) - 1; i >= 0; i-- {
		s := e.running[i]
		if cause := e.cancelCause(s); cause != nil {
			e.finish(s, FinishCancelled, cause)
		} else if s.paused {
			s.paused = s.out.isFull()
		}
	}
	return stopped, closed
}

func (e *Engine) cancelCause(s *Sequence) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.cancel
}

// admit gives free slots to waiting requests, in order.
func (e *Engine) admit() {
	for len(e.running) < e.config.Parallel {
		s := e.dequeue()
		if s == nil {
			return
		}
		s.running = true
		s.paused = s.out.isFull()
		e.running = append(e.running, s)
		e.config.Hooks.Admitted(s.label, e.config.Now().Sub(s.submitted))
		e.place(s)
	}
}

// dequeue takes the first waiting sequence.
func (e *Engine) dequeue() *Sequence {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mu.queue) == 0 {
		return nil
	}
	s := e.mu.queue[0]
	e.mu.queue = slices.Delete(e.mu.queue, 0, 1)
	s.state = stateRunning
	e.mu.slots++
	return s
}

// mayShare tells whether s may use rows of another running sequence.
func (e *Engine) mayShare(s, other *Sequence) bool {
	return e.cache.canCopy && !s.noReuse && !s.retried && s.salt == other.salt
}

// finish ends a running sequence. When its reader learns of it, slot and sampler
// are free and its rows are resident or gone.
func (e *Engine) finish(s *Sequence, reason FinishReason, err error) {
	e.keepBlocks(s, true)
	e.leave(s)
	switch {
	case s.entry == nil:
	case s.background:
		e.giveUp(s)
	default:
		e.cache.keep(s.entry)
		s.entry = nil
	}
	e.mu.Lock()
	s.state = stateEnded
	e.mu.slots--
	e.publishLocked()
	if !s.started.IsZero() && !s.background {
		e.mu.hold = smooth(e.mu.hold, e.config.Now().Sub(s.started))
	}
	e.mu.Unlock()
	e.dirty.Store(true) // a slot is free
	s.end(reason, err)
}

// leave takes s out of the list of running sequences.
func (e *Engine) leave(s *Sequence) {
	i := slices.Index(e.running, s)
	e.running = slices.Delete(e.running, i, i+1)
	s.running, s.leader, s.fetching, s.rows = false, nil, false, nil
}

// giveUp drops the rows of a sequence.
func (e *Engine) giveUp(s *Sequence) {
	e.cache.drop(s.entry)
	s.entry, s.computed, s.kept = nil, 0, 0
}

// publish makes the state after a turn visible to Stats.
func (e *Engine) publish(idle bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.publishLocked()
	e.mu.idle = idle
	if !idle {
		e.mu.since = e.stats.LastStep
	}
}

func (e *Engine) publishLocked() {
	e.stats.KVTokens, e.stats.Resident = e.cache.held()
	for _, s := range e.running {
		if s.background && s.entry != nil {
			e.stats.KVTokens -= len(s.entry.tokens)
		}
	}
	e.stats.TokenTime, e.stats.TokenDoubles = e.rates.prefill.fit()
	e.stats.StepTime, e.stats.StepWidth = e.rates.decode()
	e.stats.RestoreRate, e.stats.ExportRate = e.pace.restore, e.pace.export
	e.stats.TokensKnown, e.stats.StepsKnown = e.rates.known()
	e.stats.Waiting = 0
	for _, s := range e.running {
		if !s.background {
			e.stats.Waiting += s.pending() - 1
		}
	}
	e.mu.stats = e.stats
}

// endAll ends every request with ErrClosed and waits until nobody else uses the
// backend.
func (e *Engine) endAll() {
	for len(e.running) > 0 {
		e.finish(e.running[0], FinishCancelled, ErrClosed)
	}
	e.mu.Lock()
	queue, embeds := append(e.mu.queue, e.mu.parked...), e.mu.embeds
	e.mu.queue, e.mu.parked, e.mu.embeds = nil, nil, nil
	for _, s := range queue {
		s.state = stateEnded
	}
	for _, j := range embeds {
		j.ended = true
	}
	e.mu.Unlock()
	for _, s := range queue {
		s.end(FinishCancelled, ErrClosed)
	}
	for _, j := range embeds {
		j.end(ErrClosed)
	}
	e.mu.users.Wait()
}

// smooth is a moving average with a weight of 1/4 for the new value.
func smooth(average, value time.Duration) time.Duration {
	if average == 0 {
		return value
	}
	return average + (value-average)/4
}
