package kvstore

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// arenaAlign is what the start of every Buf is a multiple of: a cache line, and
	// what vector instructions and network cards ask for.
	arenaAlign = 64
	// faultStep is how much memory is faulted in by one system call: some
	// milliseconds, so that Close need not wait long.
	faultStep = 8 << 20
	// faultAhead is how far the faulted memory is kept ahead of what was ever in use,
	// whatever the process does. All else waits until it has nothing to do: on some
	// virtual machines fresh memory comes at 100 MB/s, which answers would pay for.
	faultAhead = 32 << 20
	// faultPause is how long a busy process is left alone.
	faultPause = 100 * time.Millisecond
)

// Arena is one region of memory outside the Go heap from which payloads are
// allocated. It is reused for ever: fresh memory would cost more in page faults than
// a copy. It is safe for concurrent use; no call waits for anything but a lock that
// is held for less than a microsecond.
type Arena struct {
	region []byte
	free   func() error // unmaps the region
	busy   func() bool  // the process has better things to do
	poison bool         // fill what is freed, and check it when it is given out: for tests

	faulted atomic.Int64  // bytes from the start that were faulted in
	faults  chan struct{} // wakes the goroutine that faults memory in; closed by Close
	done    chan struct{} // closed when it has ended

	mu struct {
		sync.Mutex
		extents
		used   int64
		bufs   int
		high   int64 // end of the highest memory that was ever in use
		closed bool
	}
}

// ArenaStats is what an arena holds.
type ArenaStats struct {
	Bytes        int64 // size
	UsedBytes    int64 // allocated, with what alignment adds
	Bufs         int   // allocations
	FaultedBytes int64 // faulted in ahead of use; 0 where the system cannot
}

// NewArena reserves bytes of memory, rounded down to a multiple of 64. It returns
// at once; memory is faulted in by a goroutine, ahead of its use, most of it while busy,
// which may be nil, says no.
func NewArena(bytes int64, busy func() bool) (*Arena, error) {
	if bytes < arenaAlign || bytes > math.MaxInt-1<<20 {
		return nil, fmt.Errorf("arena of %d bytes: it must have at least %d", bytes, arenaAlign)
	}
	region, free, err := mapMemory(int(bytes))
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of memory for KV blocks: %w", bytes, err)
	}
	if busy == nil {
		busy = func() bool { return false }
	}
	a := &Arena{region: region, free: free, busy: busy, faults: make(chan struct{}, 1), done: make(chan struct{})}
	a.mu.extents = newExtents(int64(len(region)) &^ (arenaAlign - 1))
	go a.faultIn()
	a.wake()
	return a, nil
}

// Buf is a piece of an arena with a count of references. Whoever made it has one;
// the memory goes back to the arena with the last.
type Buf struct {
	arena *Arena
	ext   int32
	off   int64
	n     int
	refs  atomic.Int32
}

// Alloc gives n bytes with one reference, and nil if there is no free piece of that
// size or the arena is closed. The contents are whatever was there before.
func (a *Arena) Alloc(n int) *Buf {
	size := int64(n+arenaAlign-1) &^ (arenaAlign - 1)
	if n <= 0 {
		return nil
	}
	a.mu.Lock()
	if a.mu.closed || size > a.mu.size {
		a.mu.Unlock()
		return nil
	}
	ext, off := a.mu.take(size)
	if ext == noExtent {
		a.mu.Unlock()
		return nil
	}
	a.mu.used += size
	a.mu.bufs++
	rising := off+size > a.mu.high
	a.mu.high = max(a.mu.high, off+size)
	a.mu.Unlock()
	if rising {
		a.wake()
	}
	b := &Buf{arena: a, ext: ext, off: off, n: n}
	b.refs.Store(1)
	if a.poison {
		checkPoison(a.region[off : off+size])
	}
	return b
}

// Bytes is the memory, valid until the last Release.
func (b *Buf) Bytes() []byte {
	if b.refs.Load() <= 0 {
		panic("kvstore: use of a buffer after its last release")
	}
	end := b.off + int64(b.n)
	return b.arena.region[b.off:end:end]
}

// Len is the number of bytes.
func (b *Buf) Len() int { return b.n }

// Retain adds a reference. The caller must have one already, or a lock that keeps
// another one alive.
func (b *Buf) Retain() *Buf {
	if b.refs.Add(1) <= 1 {
		panic("kvstore: retain of a buffer after its last release")
	}
	return b
}

// Release gives one reference back.
func (b *Buf) Release() {
	switch refs := b.refs.Add(-1); {
	case refs < 0:
		panic("kvstore: release of a buffer that nobody holds")
	case refs == 0:
		b.arena.put(b)
	}
}

func (a *Arena) put(b *Buf) {
	size := int64(b.n+arenaAlign-1) &^ (arenaAlign - 1)
	if a.poison {
		fillPoison(a.region[b.off : b.off+size])
	}
	a.mu.Lock()
	a.mu.extents.put(b.ext)
	a.mu.used -= size
	a.mu.bufs--
	last := a.mu.closed && a.mu.bufs == 0
	a.mu.Unlock()
	if last {
		a.unmap()
	}
}

// Stats is what the arena holds now.
func (a *Arena) Stats() ArenaStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ArenaStats{Bytes: a.mu.size, UsedBytes: a.mu.used, Bufs: a.mu.bufs, FaultedBytes: a.faulted.Load()}
}

// Close ends allocation. The memory is unmapped at once, or with the last reference
// to it if there are some; their number is returned.
func (a *Arena) Close() int {
	a.mu.Lock()
	if a.mu.closed {
		defer a.mu.Unlock()
		return a.mu.bufs
	}
	a.mu.closed = true
	bufs := a.mu.bufs
	close(a.faults)
	a.mu.Unlock()
	<-a.done
	if bufs == 0 {
		a.unmap()
	}
	return bufs
}

// unmap runs once: when the arena is closed and the last buffer has gone.
func (a *Arena) unmap() {
	<-a.done
	a.region = nil
	_ = a.free() // of an own mapping; there is nothing to be done about a failure
}

// wake makes the goroutine look whether memory should be faulted in.
func (a *Arena) wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return
	}
	select {
	case a.faults <- struct{}{}:
	default:
	}
}

// faultIn faults all memory in, each byte once, until Close. Where the system cannot do
// it without changing the memory, the first use does it.
func (a *Arena) faultIn() {
	defer close(a.done)
	size := int64(len(a.region))
	for faulted := int64(0); faulted < size; {
		a.mu.Lock()
		soon, closed := min(a.mu.high+faultAhead, size), a.mu.closed
		a.mu.Unlock()
		if closed {
			return
		}
		if faulted >= soon && a.busy() {
			select {
			case <-time.After(faultPause):
			case <-a.faults:
			}
			continue
		}
		end := min(faulted+faultStep, size)
		if populate(a.region[faulted:end]) != nil {
			return
		}
		faulted = end
		a.faulted.Store(end)
	}
}

// poisonByte fills freed memory in tests. As f16 it is a finite number, so that
// only digests, and not luck, find it.
const poisonByte = 0x5B

func fillPoison(b []byte) {
	for i := range b {
		b[i] = poisonByte
	}
}

// checkPoison panics if freed memory was written to. Memory that was never in use
// is zero.
func checkPoison(b []byte) {
	for i, v := range b {
		if v != poisonByte && v != 0 {
			panic(fmt.Sprintf("kvstore: freed memory was written to, at byte %d of %d: %#x", i, len(b), v))
		}
	}
}

// Region is all memory of the RAM tier, for devices that read and write it by
// themselves; nil where it is part of the Go heap. It is there until Close has
// returned without buffers in use; what lies where is the store's business.
func (s *Store) Region() []byte {
	if !mapped {
		return nil
	}
	return s.arena.region
}

// Spare takes memory of the RAM tier that is free now for something else than a block;
// nil if there is none. The caller releases it.
func (s *Store) Spare(bytes int) *Buf { return s.arena.Alloc(bytes) }
