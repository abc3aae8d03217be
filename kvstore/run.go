package kvstore

import (
	"context"
	"sync"
	"sync/atomic"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// Run is a beginning of a chain of blocks, each of which some tier holds. Until Close
// none of them is evicted from RAM; one that is only on disk may still be lost, and
// then Load ends the run there. Its methods may be called from any goroutine.
type Run struct {
	store *Store
	ids   []block.ID
	found []prefix.Found

	mu struct {
		sync.Mutex
		n      int    // blocks that the run still has
		refs   []*Ref // by place in the run; nil: not in RAM
		tip    block.ID
		leased bool // tip
		closed bool
	}
}

// Ref is a verified block in RAM that cannot go away.
type Ref struct {
	Header   block.Header // Tokens are not to be changed
	buf      *Buf
	released atomic.Bool
}

// Payload is the block's rows, valid until Release and not to be changed.
func (r *Ref) Payload() []byte {
	if r.released.Load() {
		panic("kvstore: use of a block after its release")
	}
	return r.buf.Bytes()
}

// Offset is where its payload lies in Region.
func (r *Ref) Offset() uint64 { return uint64(r.buf.off) }

// Release gives the block back. A second call does nothing.
func (r *Ref) Release() {
	if !r.released.Swap(true) {
		r.buf.Release()
	}
}

// Lookup finds the longest run of leading ids of which each is held in some tier,
// and counts a use of each block found. It does no I/O. The caller closes the run,
// also an empty one, and does not change ids before.
func (s *Store) Lookup(ids []block.ID) *Run {
	r := &Run{store: s, ids: ids, found: make([]prefix.Found, 0, len(ids))}
	r.mu.refs = make([]*Ref, 0, len(ids))
	onDisk := false
	for from := 0; from < len(ids); from += lookupStep {
		step := ids[from:min(from+lookupStep, len(ids))]
		found := s.lookup(r, step)
		for _, f := range r.found[len(r.found)-found:] {
			onDisk = onDisk || f.Tiers.Has(prefix.Disk)
		}
		if found < len(step) {
			break
		}
	}
	r.ids = ids[:len(r.found)]
	r.mu.n = len(r.found)
	s.mu.Lock()
	missed := int64(len(ids) - len(r.found))
	s.mu.stats.RAM.Misses += missed
	s.mu.stats.Disk.Misses += missed
	s.mu.Unlock()
	if onDisk {
		s.disk.Touch(r.ids)
	}
	return r
}

// lookup goes on with a run by some blocks under one hold of the lock, and tells how
// many were found.
func (s *Store) lookup(r *Run, ids []block.ID) int {
	refs := make([]Ref, len(ids)) // at once, and not under the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return 0
	}
	at := len(r.found)
	r.found = s.mu.tree.Match(ids, r.found)
	found := r.found[at:]
	if len(found) == 0 {
		return 0
	}
	// The lease on the last block protects all before it: first the new one, then
	// away with the old.
	old, leased := r.mu.tip, r.mu.leased
	r.mu.tip = ids[len(found)-1]
	r.mu.leased = s.mu.tree.Lease(r.mu.tip)
	if leased {
		s.mu.tree.Release(old)
	}
	s.mu.tree.Touch(ids[:len(found)], s.now())
	for i, f := range found {
		r.mu.refs = append(r.mu.refs, s.hitLocked(ids[i], f, &refs[i]))
	}
	return len(found)
}

// hitLocked counts a block that was found, and makes ref a reference to it and
// returns it if the block is in RAM.
func (s *Store) hitLocked(id block.ID, f prefix.Found, ref *Ref) *Ref {
	tier := &s.mu.stats.RAM
	if !f.Tiers.Has(prefix.RAM) {
		s.mu.stats.RAM.Misses++
		tier = &s.mu.stats.Disk
	}
	tier.Hits++
	tier.TokensHit += int64(f.Tokens)
	if !f.Tiers.Has(prefix.RAM) {
		return nil
	}
	h := s.mu.ram[id]
	if !f.Tiers.Has(prefix.Disk) {
		s.enqueueLocked(h)
	}
	ref.Header, ref.buf = h.header, h.buf.Retain()
	return ref
}

// ref gives a reference to a block of RAM, under the store's lock.
func (h *held) ref() *Ref { return &Ref{Header: h.header, buf: h.buf.Retain()} }

// Len is the number of blocks in the run. Load may shorten it.
func (r *Run) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.n
}

// InRAM is how many leading blocks of the run are in RAM.
func (r *Run) InRAM() int { return len(r.Blocks()) }

// Span tells of the first n blocks, or as many as there are, how many tokens they
// have and how many bytes of payload are not in RAM yet.
func (r *Run) Span(n int) (tokens int, toLoad int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, f := range r.found[:min(max(n, 0), r.mu.n)] {
		tokens += int(f.Tokens)
		if r.mu.closed || r.mu.refs[i] == nil {
			toLoad += f.Bytes
		}
	}
	return tokens, toLoad
}

// Blocks are the leading blocks that are in RAM and verified. They stay valid until
// each one's Release or the run's Close.
func (r *Run) Blocks() []*Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(r.mu.refs) && r.mu.refs[n] != nil {
		n++
	}
	return append([]*Ref(nil), r.mu.refs[:n]...)
}

// Used says that blocks from (included) to to (not included) made computing their
// tokens unnecessary.
func (r *Run) Used(from, to int) {
	from, to = max(from, 0), min(to, len(r.ids))
	for ; from < to; from += lookupStep {
		end := min(from+lookupStep, to)
		s := r.store
		s.mu.Lock()
		s.mu.tree.Spared(r.ids[from:end])
		for _, f := range r.found[from:end] {
			s.mu.stats.TokensSpared += int64(f.Tokens)
		}
		s.mu.Unlock()
	}
}

// Close releases all blocks of the run. More than once is harmless, and so is a Load
// that still runs: what it brings stays in RAM for others.
func (r *Run) Close() {
	r.mu.Lock()
	refs, tip, leased := r.mu.refs, r.mu.tip, r.mu.leased
	r.mu.refs, r.mu.leased, r.mu.closed, r.mu.n = nil, false, true, 0
	r.mu.Unlock()
	for _, ref := range refs {
		if ref != nil {
			ref.Release()
		}
	}
	if leased {
		r.store.mu.Lock()
		r.store.mu.tree.Release(tip)
		r.store.mu.Unlock()
	}
}

// Load brings the first upTo blocks, or as many as there are, into RAM; up to
// readsMax are read at once. A block that is gone, does not verify, takes longer
// than readTimeout or finds no room in RAM ends the run there: see Len and Blocks.
// The error is that of ctx, or ErrClosed; what was loaded until then can be used.
func (r *Run) Load(ctx context.Context, upTo int) error {
	missing := r.missing(upTo)
	if len(missing) == 0 {
		return nil
	}
	work := make(chan int, len(missing))
	for _, i := range missing {
		work <- i
	}
	close(work)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range min(readsMax, len(missing)) {
		wg.Go(func() {
			for i := range work {
				if i >= r.Len() {
					return // after a block that failed, or closed
				}
				if err := r.loadOne(ctx, i); err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// missing are the places of the first upTo blocks that are not in RAM.
func (r *Run) missing(upTo int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int
	for i := 0; i < min(upTo, r.mu.n); i++ {
		if r.mu.refs[i] == nil {
			out = append(out, i)
		}
	}
	return out
}

// loadOne brings one block into RAM, or ends the run before it.
func (r *Run) loadOne(ctx context.Context, i int) error {
	ref, err := r.store.fetch(ctx, r.ids[i])
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
	case r.mu.closed || i >= r.mu.n || r.mu.refs[i] != nil:
		if ref != nil {
			ref.Release()
		}
	case ref == nil:
		for j, late := range r.mu.refs[i:r.mu.n] {
			if late != nil {
				late.Release()
				r.mu.refs[i+j] = nil
			}
		}
		r.mu.n, r.mu.refs = i, r.mu.refs[:i]
	default:
		r.mu.refs[i] = ref
	}
	return err
}
