package shm

import (
	"context"
	"sync"
)

// places gives out ranges of a window in the order of addresses, round and round. A
// range becomes free with all that were given out before it: whoever reads does so in
// that order, or nearly.
type places struct {
	size int

	mu    sync.Mutex
	out   []place       // oldest first
	freed chan struct{} // closed and made anew when room comes, or it is over
	over  bool
}

type place struct {
	at, n int
	free  bool
}

func newPlaces(size int) *places { return &places{size: size, freed: make(chan struct{})} }

// alloc waits for n bytes until ctx ends. Errors: ErrTooLarge, ErrClosed, the cause of
// ctx's end.
func (p *places) alloc(ctx context.Context, n int) (at int, err error) {
	n = (n + align - 1) / align * align
	if n <= 0 || n > p.size {
		return 0, ErrTooLarge
	}
	for {
		p.mu.Lock()
		at, ok := p.fitLocked(n)
		if ok {
			p.out = append(p.out, place{at: at, n: n})
		}
		freed, over := p.freed, p.over
		p.mu.Unlock()
		switch {
		case over:
			return 0, ErrClosed
		case ok:
			return at, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// fitLocked finds room behind the newest range, or at the start of the window.
func (p *places) fitLocked(n int) (at int, ok bool) {
	if p.over || len(p.out) == 0 {
		return 0, !p.over
	}
	first, last := p.out[0], p.out[len(p.out)-1]
	end, limit := last.at+last.n, p.size
	if last.at < first.at { // the newest ones lie before the oldest
		limit = first.at
	}
	switch {
	case end+n <= limit:
		return end, true
	case limit == p.size && n <= first.at:
		return 0, true
	}
	return 0, false
}

// free gives a range back; one that is not out is ignored.
func (p *places) free(at int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.out {
		if p.out[i].at == at && !p.out[i].free {
			p.out[i].free = true
			break
		}
	}
	n := 0
	for n < len(p.out) && p.out[n].free {
		n++
	}
	if n > 0 {
		p.out = p.out[:copy(p.out, p.out[n:])]
		p.wakeLocked()
	}
}

// end lets nobody wait any more.
func (p *places) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.wakeLocked()
}

func (p *places) wakeLocked() {
	close(p.freed)
	p.freed = make(chan struct{})
}
