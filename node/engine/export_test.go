package engine

import (
	"fmt"
	"slices"
)

// Holder is what the invariants need to know of a fake backend.
type Holder interface {
	Backend
	Held(SeqID) []Token
}

// NewChecked starts an engine that calls fail with the first broken invariant it
// finds after a turn.
func NewChecked(b Holder, cfg Config, fail func(error)) *Engine {
	cfg.afterTurn = func(e *Engine) {
		if err := e.Check(); err != nil {
			fail(err)
		}
	}
	return New(b, cfg)
}

// NewStepped makes an engine whose turns the test takes itself.
func NewStepped(b Backend, cfg Config) *Engine { return newEngine(b, cfg) }

// LimitOutput changes the output buffer of requests to come.
func LimitOutput(e *Engine, n int) { e.config.OutputBuffer = n }

// Turn takes one turn and tells whether there is more to do.
func (e *Engine) Turn() bool { return e.turn() == turnAgain }

// BatchSizes is how many tokens of each running sequence, by label, the last step
// computed.
func (e *Engine) BatchSizes() map[string]int {
	sizes := map[string]int{}
	for _, w := range e.work {
		sizes[w.s.label] = w.n
	}
	return sizes
}

// Check compares everything that the owner goroutine keeps, and the backend, with
// the invariants.
func (e *Engine) Check() error {
	if err := e.cache.check(); err != nil {
		return err
	}
	if h, ok := e.backend.(Holder); ok {
		if err := e.checkBackend(h); err != nil {
			return err
		}
	}
	return e.checkSequences()
}

func (e *Engine) checkBackend(h Holder) error {
	for _, en := range e.cache.entries {
		if held := h.Held(en.id); !slices.Equal(held, en.tokens) {
			return fmt.Errorf("id %d holds %d tokens, the entry says %d or others", en.id, len(held), len(en.tokens))
		}
	}
	return nil
}

func (e *Engine) checkSequences() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.slots != len(e.running) || e.mu.slots > e.config.Parallel {
		return fmt.Errorf("%d slots taken, %d sequences run, %d slots in all", e.mu.slots, len(e.running), e.config.Parallel)
	}
	if !slices.IsSortedFunc(e.mu.queue, func(a, b *Sequence) int { return int(a.number) - int(b.number) }) {
		return fmt.Errorf("the queue is not in order of arrival")
	}
	for _, s := range e.running {
		if err := s.check(); err != nil {
			return fmt.Errorf("sequence %q: %w", s.label, err)
		}
	}
	return nil
}

func (s *Sequence) check() error {
	switch {
	case !s.running || s.state != stateRunning:
		return fmt.Errorf("runs in state %d", s.state)
	case s.entry == nil && (s.computed != 0 || s.leader == nil && !s.fetching):
		return fmt.Errorf("%d tokens computed without an entry or leader", s.computed)
	case s.leader != nil && (s.entry != nil || s.leader.number >= s.number):
		return fmt.Errorf("follows a younger one, or has an entry itself")
	case s.entry != nil && (s.entry.owner != s || !slices.Equal(s.entry.tokens, s.tokens[:s.computed])):
		return fmt.Errorf("its entry is another's")
	case s.pending() < 1:
		return fmt.Errorf("nothing pending")
	case len(s.tokens) >= s.limit:
		return fmt.Errorf("%d tokens reach the limit %d", len(s.tokens), s.limit)
	}
	return nil
}

func (c *cache) check() error {
	for i, en := range c.entries {
		if en.id != SeqID(i) {
			return fmt.Errorf("entry %d has the id %d", i, en.id)
		}
		if s := en.owner; s != nil && s.entry != en {
			return fmt.Errorf("id %d is owned by a sequence that does not know", en.id)
		}
	}
	if len(c.entries) != c.backend.Info().Sequences {
		return fmt.Errorf("%d entries of %d", len(c.entries), c.backend.Info().Sequences)
	}
	return nil
}

// CloseStepped ends an engine of NewStepped.
func (e *Engine) CloseStepped() {
	e.mu.Lock()
	e.mu.stopped, e.mu.closed = true, true
	e.mu.Unlock()
	e.poke()
	for e.turn() != turnClosed {
	}
	e.backend.Close()
}

// UsedIDs are the ids of running sequences, in order.
func (e *Engine) UsedIDs() []SeqID {
	var ids []SeqID
	for _, en := range e.cache.entries {
		if en.owner != nil {
			ids = append(ids, en.id)
		}
	}
	return ids
}
