package engine

import (
	"context"
	"slices"
	"time"
)

// serveLocked walks along the line of waiters and serves whom it can. It is called
// whenever something has changed: a waiter came or left, a lease was released, a
// load or an unload ended.
func (p *Pool) serveLocked() {
	walk := placing{pool: p}
	waiting := make([]*waiter, 0, len(p.mu.waiters))
	for _, w := range p.mu.waiters {
		if !walk.serve(w) {
			waiting = append(waiting, w)
		}
	}
	p.mu.waiters = waiting
}

// placing is the state of one walk along the line.
type placing struct {
	pool    *Pool
	starved bool      // an earlier waiter needs a place and has none yet
	blocked []*pooled // have to become idle for an earlier waiter: no new leases
}

// serve tells whether the waiter is done: it has a lease or an error.
func (w *placing) serve(c *waiter) bool {
	m := w.pool.findLocked(c.spec)
	switch {
	case m == nil:
		return w.needsPlace(c)
	case m.state == poolLoading:
		c.load = m
		return false
	case m.state == poolUnloading, m.leaving, slices.Contains(w.blocked, m):
		return false
	}
	var waited time.Duration
	if c.load == m {
		waited = min(time.Since(c.since), m.took)
	}
	c.lease = w.pool.leaseLocked(m, waited)
	close(c.done)
	return true
}

// fail ends a call of Acquire with an error.
func (c *waiter) fail(err error) {
	c.err = err
	close(c.done)
}

// needsPlace begins to load the engine for c if there is a place for it, and else
// sees to it that there will be one.
func (w *placing) needsPlace(c *waiter) bool {
	p := w.pool
	if w.starved {
		return false
	}
	have := p.Capacity()
	switch {
	case p.fitsLocked(c, have, poolUnloading):
		c.load = p.loadLocked(c.spec, c.memory)
		return false
	case len(p.mu.models) == 0: // what the machine has left has shrunk meanwhile
		c.fail(&NoMemoryError{Model: c.spec.Name, Need: c.memory, Have: have})
		return true
	}
	w.starved = true
	if p.fitsLocked(c, have, poolReady) {
		return false // what is being unloaded leaves a place
	}
	if m := w.victim((*pooled).idle); m != nil {
		p.unloadLocked(m)
		return false
	}
	if m := w.victim(func(m *pooled) bool { return m.state == poolReady }); m != nil {
		w.blocked = append(w.blocked, m)
	}
	return false
}

// fitsLocked tells whether an engine for c fits beside those that are in a state up
// to the given one.
func (p *Pool) fitsLocked(c *waiter, have int64, upTo poolState) bool {
	count, sum := 0, c.memory.Total()
	for _, m := range p.mu.models {
		if m.state <= upTo {
			count++
			sum += m.memory.Total()
		}
	}
	return count < p.config.MaxLoaded && sum <= have
}

// victim chooses the engine that has to go among those that qualify: one that
// leaves anyway, else the one whose last lease is the oldest.
func (w *placing) victim(qualifies func(*pooled) bool) *pooled {
	var best *pooled
	for _, m := range w.pool.mu.models {
		if !qualifies(m) {
			continue
		}
		if best == nil || m.leaving && !best.leaving || m.leaving == best.leaving && m.used < best.used {
			best = m
		}
	}
	return best
}

// loadLocked begins to load an engine.
func (p *Pool) loadLocked(s Spec, memory Memory) *pooled {
	m := &pooled{spec: s, memory: memory, gone: make(chan struct{}), began: time.Now(), keep: p.config.KeepAlive}
	p.mu.models = append(p.mu.models, m)
	p.tasks.Go(func() {
		e, err := p.config.Load(p.life, s)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.loadFailedLocked(m, err)
		} else {
			m.engine, m.state, m.took = e, poolReady, time.Since(m.began)
		}
		p.serveLocked()
		if err == nil {
			p.restLocked(m, m.keep)
		}
	})
	return m
}

// loadFailedLocked tells all who wait for this load.
func (p *Pool) loadFailedLocked(m *pooled, err error) {
	p.forgetLocked(m)
	p.mu.waiters = slices.DeleteFunc(p.mu.waiters, func(w *waiter) bool {
		if w.load != m {
			return false
		}
		w.fail(err)
		return true
	})
}

// restLocked decides what becomes of an engine that may be idle now: nothing if it
// is not, else it goes at once or stays for keep.
func (p *Pool) restLocked(m *pooled, keep time.Duration) {
	m.keep = keep
	switch {
	case !m.idle():
	case m.leaving || keep == 0:
		p.unloadLocked(m)
	case keep > 0:
		m.expires = time.Now().Add(keep)
		p.poke()
	}
}

// unloadLocked begins to free an idle engine.
func (p *Pool) unloadLocked(m *pooled) {
	m.state = poolUnloading
	p.tasks.Go(func() {
		last := m.engine.Stats()
		m.engine.Close(context.Background()) // cannot fail: its context does not end
		p.config.Unloaded(m.spec, last)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forgetLocked(m)
		p.serveLocked()
	})
}

// forgetLocked removes an engine that is freed or was never loaded.
func (p *Pool) forgetLocked(m *pooled) {
	i := slices.Index(p.mu.models, m)
	p.mu.models = slices.Delete(p.mu.models, i, i+1)
	close(m.gone)
}

// watchExpiries unloads engines whose time has come.
func (p *Pool) watchExpiries() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		if next, ok := p.expire(time.Now()); ok {
			timer.Reset(time.Until(next))
		}
	}
}

// expire unloads what has expired by now and returns the next time at which
// something will.
func (p *Pool) expire(now time.Time) (next time.Time, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.mu.models {
		switch {
		case !m.idle() || m.expires.IsZero():
		case !m.expires.After(now):
			p.unloadLocked(m)
		case !ok || m.expires.Before(next):
			next, ok = m.expires, true
		}
	}
	return next, ok
}

func (p *Pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}
