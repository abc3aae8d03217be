package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Spec says which engine is wanted. Equal specs share one.
type Spec struct {
	Name       string // of the engine, for people
	Model      string // name of the model
	Path       string // of its file
	Embeddings bool
}

// PoolConfig shapes a pool. Load and Estimate are needed.
type PoolConfig struct {
	// MaxLoaded bounds the engines loaded at the same time, those that are being
	// loaded or unloaded included. 0 means 1.
	MaxLoaded int
	// MemoryBudget bounds the sum of their estimates in bytes. 0 means what the
	// machine and the control groups of the process leave for it.
	MemoryBudget int64
	// KeepAlive is how long an engine stays after its last lease if the lease does
	// not say; negative is for ever, 0 not at all.
	KeepAlive time.Duration
	// WaiterLimit bounds the callers that wait for an engine. 0 means 256.
	WaiterLimit int

	// Load opens an engine; ctx ends when the pool is closed. One call at a time per
	// spec.
	Load func(ctx context.Context, s Spec) (*Engine, error)
	// Estimate tells the memory that Load will take.
	Estimate func(s Spec) (Memory, error)
	// Unloaded is called when an engine has been freed, before its spec may be
	// loaded again, with its last statistics. It may be nil.
	Unloaded func(s Spec, last Stats)
}

// waiterRetry is what a caller is told who finds too many others waiting: loading
// takes seconds.
const waiterRetry = 5 * time.Second

// closeGrace is how long Close waits for leases of engines that it has stopped.
const closeGrace = 5 * time.Second

// Pool loads engines on demand and unloads them when others need their place or
// nobody has used them for a while.
//
// Callers wait in one line. Who finds the engine loaded gets a lease at once.
// Who needs a place waits until one is free: an idle engine goes first, the least
// recently used one; if all are in use, one of them is chosen to take no new leases
// until it is idle, so that its users cannot keep others out for ever. Nobody who
// needs a place overtakes another who does. A load that has begun is finished and
// kept, whoever leaves.
type Pool struct {
	config PoolConfig
	life   context.Context // of loads
	end    context.CancelFunc
	wake   chan struct{} // one slot: expiries have changed
	tasks  sync.WaitGroup

	mu struct {
		sync.Mutex
		closed  bool
		models  []*pooled
		waiters []*waiter // in order
		clock   uint64    // orders leases
	}
}

// pooled is one engine of a pool.
//
// Invariants: engine is set iff state is not poolLoading; leases > 0 only in
// poolReady; expires is zero while leases > 0.
type pooled struct {
	spec    Spec
	memory  Memory
	state   poolState
	engine  *Engine
	gone    chan struct{} // closed when it is freed, or could not be loaded
	began   time.Time     // of the load
	took    time.Duration // the load
	leases  int
	leaving bool          // no new leases: it is unloaded as soon as it is idle
	keep    time.Duration // negative: for ever
	expires time.Time     // zero: never, or in use
	used    uint64        // clock of the last lease
}

type poolState int

const (
	poolLoading poolState = iota
	poolReady
	poolUnloading
)

// idle tells whether m can be unloaded now.
func (m *pooled) idle() bool { return m.state == poolReady && m.leases == 0 }

// waiter is one call of Acquire.
type waiter struct {
	spec   Spec
	memory Memory
	since  time.Time
	load   *pooled       // the load that it waited for, if any
	done   chan struct{} // closed when lease or err is set
	lease  *Lease
	err    error
}

// NewPool makes an empty pool and starts its goroutine, which ends with Close.
func NewPool(c PoolConfig) *Pool {
	if c.MaxLoaded == 0 {
		c.MaxLoaded = 1
	}
	if c.WaiterLimit == 0 {
		c.WaiterLimit = 256
	}
	if c.Unloaded == nil {
		c.Unloaded = func(Spec, Stats) {}
	}
	p := &Pool{config: c, wake: make(chan struct{}, 1)}
	p.life, p.end = context.WithCancel(context.Background())
	p.tasks.Go(p.watchExpiries)
	return p
}

// Acquire returns a lease on the engine of s, loading it if need be. It waits for
// the load and for a place, until ctx ends, whose cause it then returns. Other
// errors: *NoMemoryError, *QueueFullError, ErrClosed, and what Estimate and Load
// return.
func (p *Pool) Acquire(ctx context.Context, s Spec) (*Lease, error) {
	if lease := p.acquireLoaded(s); lease != nil {
		return lease, nil
	}
	memory, err := p.config.Estimate(s)
	if err != nil {
		return nil, err
	}
	if have := p.Capacity(); memory.Total() > have {
		return nil, &NoMemoryError{Model: s.Name, Need: memory, Have: have}
	}
	w := &waiter{spec: s, memory: memory, since: time.Now(), done: make(chan struct{})}
	if err := p.enqueue(ctx, w); err != nil {
		return nil, err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		if !p.abandon(w) && w.lease != nil {
			w.lease.Release(nil)
		}
		return nil, context.Cause(ctx)
	}
	return w.lease, w.err
}

// acquireLoaded leases a loaded engine if nobody waits; else the order counts.
func (p *Pool) acquireLoaded(s Spec) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.findLocked(s)
	if p.mu.closed || len(p.mu.waiters) > 0 || m == nil || m.state != poolReady || m.leaving {
		return nil
	}
	return p.leaseLocked(m, 0)
}

func (p *Pool) enqueue(ctx context.Context, w *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case p.mu.closed:
		return ErrClosed
	case len(p.mu.waiters) >= p.config.WaiterLimit:
		return &QueueFullError{Limit: p.config.WaiterLimit, RetryAfter: waiterRetry}
	}
	p.mu.waiters = append(p.mu.waiters, w)
	p.serveLocked()
	return nil
}

// abandon takes a waiter out of the line. False: it has been served.
func (p *Pool) abandon(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.mu.waiters, w)
	if i < 0 {
		return false
	}
	p.mu.waiters = slices.Delete(p.mu.waiters, i, i+1)
	p.serveLocked() // others may not have to make way for it any more
	return true
}

func (p *Pool) findLocked(s Spec) *pooled {
	for _, m := range p.mu.models {
		if m.spec == s {
			return m
		}
	}
	return nil
}

func (p *Pool) leaseLocked(m *pooled, waited time.Duration) *Lease {
	p.mu.clock++
	m.leases, m.used, m.expires = m.leases+1, p.mu.clock, time.Time{}
	return &Lease{pool: p, model: m, loadTime: waited}
}

// Lease is the right to use an engine. It must be released.
type Lease struct {
	pool     *Pool
	model    *pooled
	loadTime time.Duration
	release  sync.Once
}

// Engine is the leased engine.
func (l *Lease) Engine() *Engine { return l.model.engine }

// LoadTime is how long Acquire waited for the engine to be loaded; 0 if it was.
func (l *Lease) LoadTime() time.Duration { return l.loadTime }

// Release gives the lease back; more than once does nothing. keepAlive is how long
// the engine stays if this was the last lease: nil is the pool's default, negative
// for ever, 0 not at all. Among leases that overlap, the last one released decides.
func (l *Lease) Release(keepAlive *time.Duration) {
	l.release.Do(func() {
		keep := l.pool.config.KeepAlive
		if keepAlive != nil {
			keep = *keepAlive
		}
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		l.model.leases--
		l.pool.restLocked(l.model, keep)
		l.pool.serveLocked()
	})
}

// LoadedModel is the state of one loaded engine.
type LoadedModel struct {
	Spec    Spec
	Memory  Memory
	Expires time.Time // zero: never; while it is leased, as if that ended now
	Leases  int
	Stats   Stats
	Running int // Stats.Running
	Queued  int // Stats.Queued
}

// Loaded lists the engines that are ready, in the order of their loads.
func (p *Pool) Loaded() []LoadedModel {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []LoadedModel
	for _, m := range p.mu.models {
		if m.state != poolReady {
			continue
		}
		l := LoadedModel{Spec: m.spec, Memory: m.memory, Expires: m.expires, Leases: m.leases, Stats: m.engine.Stats()}
		if m.leases > 0 && m.keep >= 0 {
			l.Expires = time.Now().Add(m.keep)
		}
		l.Running, l.Queued = l.Stats.Running, l.Stats.Queued
		out = append(out, l)
	}
	return out
}

// Waiting is the number of callers that wait for an engine.
func (p *Pool) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.waiters)
}

// Unload frees all engines of the given name or model, each once its leases have
// been released, and waits for that until ctx ends, whose cause it then returns;
// they are freed nevertheless. New callers wait and load anew. Nothing loaded under
// that name is no error.
func (p *Pool) Unload(ctx context.Context, name string) error {
	return wait(ctx, p.dismiss(func(s Spec) bool { return s.Name == name || s.Model == name }))
}

// dismiss lets the chosen engines go as soon as they are idle.
func (p *Pool) dismiss(which func(Spec) bool) []*pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	var chosen []*pooled
	for _, m := range p.mu.models {
		if which(m.spec) {
			m.leaving = true
			chosen = append(chosen, m)
		}
	}
	for _, m := range chosen {
		p.restLocked(m, m.keep)
	}
	return chosen
}

// wait returns when all are gone, or with the cause of ctx.
func wait(ctx context.Context, models []*pooled) error {
	for _, m := range models {
		select {
		case <-m.gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close refuses new callers, ends loads and waits until all leases are released
// and all engines freed. When ctx ends it stops the engines, which ends their
// requests with ErrClosed; an engine whose lease is not released soon after is
// left behind, and named in the error.
func (p *Pool) Close(ctx context.Context) error {
	p.mu.Lock()
	p.mu.closed = true
	waiters := p.mu.waiters
	p.mu.waiters = nil
	p.mu.Unlock()
	for _, w := range waiters {
		w.fail(ErrClosed)
	}
	p.end()
	models := p.dismiss(func(Spec) bool { return true })
	if wait(ctx, models) != nil {
		p.stopAll()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
		defer cancel()
		if err := wait(grace, models); err != nil {
			return fmt.Errorf("%d models are still in use after %v: %w", len(p.Loaded()), closeGrace, err)
		}
	}
	p.tasks.Wait()
	return nil
}

// stopAll ends the requests of all engines.
func (p *Pool) stopAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.mu.models {
		if m.state == poolReady {
			m.engine.Stop()
		}
	}
}

// Capacity is the memory that all engines of the pool may take together, in bytes.
func (p *Pool) Capacity() int64 {
	if p.config.MemoryBudget > 0 {
		return p.config.MemoryBudget
	}
	return HostCapacity()
}
