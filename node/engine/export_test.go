package engine

import (
	"fmt"
	"slices"
)

// Holder is what the invariants need to know of a fake backend.
type Holder interface {
	Backend
	Used() int
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
	if h.Used() != e.cache.ledger.used {
		return fmt.Errorf("%d cells are in use, the ledger says %d", h.Used(), e.cache.ledger.used)
	}
	for _, en := range e.cache.entries {
		if held := h.Held(en.id); !slices.Equal(held, en.tokens) {
			return fmt.Errorf("id %d holds %d tokens, the entry says %d or others", en.id, len(held), len(en.tokens))
		}
	}
	for _, id := range e.cache.free {
		if n := len(h.Held(id)); n > 0 {
			return fmt.Errorf("free id %d holds %d tokens", id, n)
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
	case s.entry == nil && (s.computed != 0 || s.leader == nil):
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
	seen := map[SeqID]bool{}
	for _, id := range c.free {
		if seen[id] {
			return fmt.Errorf("id %d is free twice", id)
		}
		seen[id] = true
	}
	for _, en := range c.entries {
		if seen[en.id] {
			return fmt.Errorf("id %d is used twice, or used and free", en.id)
		}
		seen[en.id] = true
	}
	if len(seen) != c.backend.Info().Sequences {
		return fmt.Errorf("%d ids of %d", len(seen), c.backend.Info().Sequences)
	}
	if c.ledger.used > c.cells {
		return fmt.Errorf("%d cells used of %d", c.ledger.used, c.cells)
	}
	return c.checkLedger()
}

// checkLedger counts references and cells anew.
func (c *cache) checkLedger() error {
	refs, live := map[*run]int{}, map[*run]int{}
	for _, en := range c.entries {
		length := 0
		for r := en.end; r != nil; r = r.parent {
			length += r.n
			if en.owner != nil {
				live[r]++
			}
			if refs[r]++; refs[r] > 1 {
				for p := r.parent; p != nil; p = p.parent {
					length += p.n
					if en.owner != nil {
						live[p]++
					}
				}
				break
			}
		}
		if length != len(en.tokens) {
			return fmt.Errorf("chain of %d rows for %d tokens", length, len(en.tokens))
		}
	}
	used, alive := 0, 0
	for r, n := range refs {
		if r.refs != n || r.live != live[r] || r.n <= 0 {
			return fmt.Errorf("run of %d rows: %d references, counted %d; live %d, counted %d", r.n, r.refs, n, r.live, live[r])
		}
		used += r.n
		if r.live > 0 {
			alive += r.n
		}
	}
	if used != c.ledger.used || alive != c.ledger.live {
		return fmt.Errorf("ledger says %d used, %d live; counted %d, %d", c.ledger.used, c.ledger.live, used, alive)
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
