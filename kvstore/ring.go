package kvstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"tandem/kvstore/block"
)

// RingOptions are for OpenRing.
type RingOptions struct {
	// Bytes is the most that the folder takes on the file system, counted by blocks
	// (st_blocks), with everything in it, at all times.
	Bytes int64
	// BlockBytes is the largest payload that must fit. 0: any that happens to fit
	// into a sixteenth or an eighth of Bytes; larger ones are refused by Put.
	BlockBytes int64
	// RetryAfter is for how long nothing is stored after the disk was full. 0: 30 s.
	RetryAfter time.Duration
	// Lost is called with blocks that went with their generation, by the ring's own
	// goroutine. It may call the ring, except Close, but should be short.
	Lost func(ids []block.ID)
	Log  *slog.Logger     // nil: none
	Now  func() time.Time // nil: time.Now
}

const (
	// putWait is the longest that a Put waits for room.
	putWait = 30 * time.Second
	// faultsMax is how many damaged blocks a generation may show before all of it
	// is set aside.
	faultsMax = 8
)

// errNoGeneration says that the next generation is not prepared yet.
var errNoGeneration = errors.New("no generation is open for writing")

// Ring is the disk tier: a ring of generations, each a data file with a small Badger
// as its index, written once and dropped as a whole, because one Badger with deletes
// does not give its space back; see docs/decisions/0011-disk-tier.md and
// 0020-data-files.md.
//
// One goroutine, the keeper, prepares, seals and drops generations, off the path
// of writing and reading. Whoever holds the pen writes.
//
// Invariants: gens is ordered by age, oldest first; only the last of them may be
// active; each block in the index is in a generation of gens.
type Ring struct {
	dir   string
	opt   RingOptions
	geo   geometry
	log   *slog.Logger
	lock  *os.File
	index diskIndex
	room  *diskRoom

	pen    chan struct{} // holds one token; whoever has it may use what follows
	active *generation   // nil: none is open for writing

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	kick   chan struct{} // one slot: there is work for the keeper
	kept   chan struct{} // closed when the keeper has ended
	closed sync.Once

	mu struct {
		sync.Mutex
		gens      []*generation
		next      *generation // prepared, empty
		sequence  uint64      // of the newest generation
		condition map[*generation]condition
		lost      []block.ID // to be told by the keeper
		fullUntil time.Time
	}
	wanted   atomic.Int64 // bytes that a writer waits for
	full     atomic.Bool
	dropped  atomic.Int64
	setAside atomic.Int64
}

// condition is what the keeper has to know of a generation in gens.
type condition int

const (
	isActive    condition = iota
	isFull                // to be sealed
	isSealed              // read-only
	isCondemned           // to be set aside
)

var _ Disk = (*Ring)(nil)

// Put implements Disk.
func (r *Ring) Put(ctx context.Context, batch []Record) error {
	for _, rec := range batch {
		if err := checkRecord(rec); err != nil {
			return err
		}
		if n := diskMetaOf(rec.Header).bytes(); n > r.geo.record() {
			return fmt.Errorf("block %s takes %d bytes on disk; a generation of this budget holds %d", rec.Header.ID, n, r.geo.record())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, putWait)
	defer cancel()
	for len(batch) > 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := splitBatch(batch, min(diskBatchBytes, r.geo.record()))
		if err := r.store(ctx, batch[:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// splitBatch is how many records, at least one, have at most limit bytes.
func splitBatch(batch []Record, limit int64) int {
	for i, rec := range batch {
		if limit -= diskMetaOf(rec.Header).bytes(); limit < 0 && i > 0 {
			return i
		}
	}
	return len(batch)
}

// store writes one batch, and waits for the keeper if it must make room first.
func (r *Ring) store(ctx context.Context, batch []Record) error {
	for {
		if r.isFullNow() {
			return ErrFull
		}
		change := r.room.change()
		err := r.tryStore(ctx, batch, nil)
		switch {
		case err == nil:
			r.full.Store(false)
			r.wanted.Store(0)
			return nil
		case isNoSpace(err):
			r.noteFull(err)
			return ErrFull
		case !errors.Is(err, errBudget) && !errors.Is(err, errNoGeneration):
			return err
		}
		r.wake()
		select {
		case <-change:
		case <-r.ctx.Done():
			return errRingClosed
		case <-ctx.Done():
			return fmt.Errorf("waiting for room on disk: %w", context.Cause(ctx))
		}
	}
}

// tryStore writes a batch that one generation has room for, or nothing. With from
// set it moves blocks from there, and may use the room kept for that.
func (r *Ring) tryStore(ctx context.Context, batch []Record, from *generation) error {
	select {
	case <-r.pen:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ctx.Done():
		return errRingClosed
	}
	defer func() { r.pen <- struct{}{} }()
	if r.ctx.Err() != nil {
		return errRingClosed
	}
	batch = r.unstored(batch, from)
	if len(batch) == 0 {
		return nil
	}
	var bytes int64
	for _, rec := range batch {
		bytes += diskMetaOf(rec.Header).bytes()
	}
	g, err := r.writable(bytes, len(batch))
	if err != nil {
		return err
	}
	if from == nil && r.room.free() < bytes+r.geo.copies {
		r.wanted.Store(bytes)
		return errBudget
	}
	if err := g.reserve(bytes); err != nil {
		return err
	}
	blocks, err := g.write(batch)
	if err != nil {
		if !isNoSpace(err) {
			r.retire()
		}
		return err
	}
	for _, b := range blocks {
		g.recall(b.id)
		if from == nil {
			r.index.add(b, g)
		} else if !r.index.move(b, from, g) {
			g.forget(b.id)
		}
	}
	return nil
}

// unstored leaves out blocks that need not be written.
func (r *Ring) unstored(batch []Record, from *generation) []Record {
	out := make([]Record, 0, len(batch))
	seen := make(map[block.ID]bool, len(batch))
	for _, rec := range batch {
		e, held := r.index.get(rec.Header.ID)
		if held == (from != nil) && (from == nil || e.gen == from) && !seen[rec.Header.ID] {
			seen[rec.Header.ID] = true
			out = append(out, rec)
		}
	}
	return out
}

// writable is the active generation, or the next one if that is full. The pen is
// held.
func (r *Ring) writable(bytes int64, entries int) (*generation, error) {
	if g := r.active; g != nil {
		if r.conditionOf(g) == isActive && g.fits(bytes, entries) {
			return g, nil
		}
		r.retire()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.mu.next
	if g == nil {
		return nil, errNoGeneration
	}
	r.mu.next = nil
	r.mu.gens = append(r.mu.gens, g)
	r.mu.condition[g] = isActive
	r.active = g
	return g, nil
}

// retire hands the active generation to the keeper. The pen is held.
func (r *Ring) retire() {
	r.mu.Lock()
	if r.mu.condition[r.active] == isActive {
		r.mu.condition[r.active] = isFull
	}
	r.mu.Unlock()
	r.active = nil
	r.wake()
}

// Get implements Disk.
func (r *Ring) Get(ctx context.Context, id block.ID, dst func(n int) []byte) (block.Header, error) {
	if err := ctx.Err(); err != nil {
		return block.Header{}, err
	}
	// A block may move on between the look into the index and the read.
	const tries = 3
	for range tries {
		e, held := r.index.get(id)
		if !held {
			break
		}
		h, err := e.gen.read(id, e, dst)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, block.ErrDamaged):
			r.damaged(id, e.gen, err)
			return block.Header{}, err
		case !errors.Is(err, ErrNotFound):
			return block.Header{}, err
		}
	}
	return block.Header{}, ErrNotFound
}

// damaged forgets a block that cannot be read, and condemns its generation if
// there are too many.
func (r *Ring) damaged(id block.ID, g *generation, err error) {
	if r.index.remove(id, g) == nil {
		return
	}
	g.forget(id)
	if n := g.faults.Add(1); n >= faultsMax {
		r.condemn(g, err)
	}
}

// condemn takes a generation out of use. The keeper sets it aside.
func (r *Ring) condemn(g *generation, err error) {
	r.mu.Lock()
	known := r.mu.condition[g] == isCondemned
	r.mu.condition[g] = isCondemned
	r.mu.Unlock()
	if known {
		return
	}
	r.log.Warn("a generation of the KV disk tier is damaged and set aside", "generation", g.seq, "err", err)
	r.lose(g)
	r.wake()
}

// lose forgets all that is in a generation.
func (r *Ring) lose(g *generation) {
	ids := r.index.removeAll(g)
	r.dropped.Add(int64(len(ids)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.lost = append(r.mu.lost, ids...)
}

// Walk implements Disk.
func (r *Ring) Walk(fn func(h block.Header, bytes int64) bool) error {
	for _, g := range r.generations() {
		if !r.index.each(g, func(id block.ID, e diskEntry) bool { return fn(e.header(id), e.bytes()) }) {
			return nil
		}
	}
	return nil
}

// Forget implements Disk.
func (r *Ring) Forget(id block.ID) {
	if g := r.index.remove(id, nil); g != nil {
		g.forget(id)
		if r.index.live(g) == 0 {
			r.wake()
		}
	}
}

// Touch implements Disk.
func (r *Ring) Touch(ids []block.ID) { r.index.touch(ids) }

// Stats implements Disk.
func (r *Ring) Stats() DiskStats {
	return DiskStats{
		Bytes: r.room.bytes(), Budget: r.opt.Bytes, Blocks: r.index.len(), Generations: len(r.generations()),
		Dropped: r.dropped.Load(), SetAside: r.setAside.Load(), Full: r.full.Load(),
	}
}

func (r *Ring) generations() []*generation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*generation(nil), r.mu.gens...)
}

func (r *Ring) conditionOf(g *generation) condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.condition[g]
}

func (r *Ring) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// isFullNow tells whether the disk was full a short time ago.
func (r *Ring) isFullNow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opt.Now().Before(r.mu.fullUntil)
}

// noteFull stops storing for a time: the disk is full, or does not take what is
// written for another reason.
func (r *Ring) noteFull(err error) {
	r.mu.Lock()
	r.mu.fullUntil = r.opt.Now().Add(r.opt.RetryAfter)
	r.mu.Unlock()
	if !r.full.Swap(true) {
		r.log.Warn("KV blocks cannot be written and are not stored for now", "dir", r.dir, "err", err, "retry", r.opt.RetryAfter)
	}
}
