package engine

import (
	"slices"
	"time"
)

// park takes the slot of a sequence whose reader does not read, if somebody waits
// for one: its rows become resident, and it queues again as soon as its reader
// reads. One is enough for a turn.
func (e *Engine) park() {
	if len(e.running) < e.config.Parallel || !e.hasQueue() {
		return
	}
	now := e.config.Now()
	var stalled *Sequence
	var longest time.Duration
	for _, s := range e.running {
		if d := s.out.unreadFor(now); (s.paused || d >= e.config.StallTime) && (stalled == nil || d > longest) {
			stalled, longest = s, d
		}
	}
	if stalled == nil {
		return
	}
	e.keepBlocks(stalled, true)
	tokens := stalled.computed
	e.leave(stalled)
	if stalled.entry != nil {
		e.cache.keep(stalled.entry)
		stalled.entry, stalled.computed = nil, 0
	}
	stalled.out.park()
	e.mu.Lock()
	e.mu.slots--
	stalled.state = stateParked
	e.mu.parked = append(e.mu.parked, stalled)
	e.mu.Unlock()
	e.config.Hooks.Parked(stalled.label, tokens)
	e.dirty.Store(true)
}

func (e *Engine) hasQueue() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.mu.queue) > 0
}

// unparkLocked queues the parked sequences that are read again; their age puts them
// before all that came later.
func (e *Engine) unparkLocked() {
	e.mu.parked = slices.DeleteFunc(e.mu.parked, func(s *Sequence) bool {
		if s.out.isParked() {
			return false
		}
		s.state = stateQueued
		i := slices.IndexFunc(e.mu.queue, func(q *Sequence) bool { return q.number > s.number })
		if i < 0 {
			i = len(e.mu.queue)
		}
		e.mu.queue = slices.Insert(e.mu.queue, i, s)
		return true
	})
}
