package kvstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

var (
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("the KV store is closed")
	// ErrInUse says that another process has the directory open.
	ErrInUse = errors.New("another process uses this folder of KV blocks")
)

// Store holds KV blocks in RAM and on disk. It is safe for concurrent use.
//
// Invariants, under mu: ram has exactly the blocks that the tree has in prefix.RAM,
// and holds a reference to each one's memory; writing has the blocks that were
// reserved and are not visible yet; a block is in at most one of ram and writing,
// or the writer loses; queue holds only blocks of ram that are not on disk.
type Store struct {
	opts  Options
	arena *Arena
	disk  Disk     // nil: there is none
	lock  *os.File // nil: no directory

	// largest is the longest payload that the disk tier takes; larger blocks would
	// fail with the whole batch that they are in. 0: any.
	largest int64

	ctx    context.Context // ends when Close stops waiting
	cancel context.CancelFunc
	tasks  sync.WaitGroup // all goroutines
	reads  chan struct{}  // one slot for each block that is being read
	toSeal chan struct{}  // wakes the goroutine that makes digests
	toDisk chan struct{}  // wakes the goroutine that writes

	pinsFile sync.Mutex // held while the file of pins is written

	journal journal // of what comes and goes; written under mu

	mu struct {
		sync.Mutex
		tree     *prefix.Tree
		ram      map[block.ID]*held
		writing  map[block.ID]*Writer
		loading  map[block.ID]*load
		sealing  []*Writer // committed, in order, without a digest yet
		unsealed int       // committed and not visible yet
		queue    queue
		inFlight int                   // blocks of the batch that is being written
		retryAt  prefix.Tick           // before it nothing is queued: the disk failed
		pins     map[block.ID]struct{} // what is to be pinned whenever it is held
		stats    Stats                 // only its counters
		victims  []prefix.Victim       // reused by allocateLocked
		closed   bool
		progress *sync.Cond // a block was sealed, a batch was written, or Close goes on
	}
}

// held is a block in RAM.
type held struct {
	header block.Header
	buf    *Buf

	// Guarded by Store.mu.
	queued  bool // in the queue
	writing bool // in the batch that is being written
}

// Open makes a store, with what its directory holds. It takes the time of a walk
// over the keys on disk. ErrInUse: another process has the directory.
func Open(o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open KV store: %w", err)
	}
	s := &Store{
		opts: o.withDefaults(), reads: make(chan struct{}, readsMax),
		toSeal: make(chan struct{}, 1), toDisk: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mu.tree = prefix.New(prefix.Tick(halfLife))
	s.journal.wake = make(chan struct{})
	s.mu.tree.Changed = s.journal.note
	s.mu.ram, s.mu.writing = map[block.ID]*held{}, map[block.ID]*Writer{}
	s.mu.loading, s.mu.pins = map[block.ID]*load{}, map[block.ID]struct{}{}
	s.mu.progress = sync.NewCond(&s.mu)
	if err := s.open(); err != nil {
		s.abandon()
		return nil, fmt.Errorf("open KV store: %w", err)
	}
	s.start(s.seal)
	if s.disk != nil {
		s.start(s.writeBehind)
	}
	return s, nil
}

// open takes the directory, reads the pins, reserves the memory and walks the disk,
// in this order: what is quick to refuse comes first.
func (s *Store) open() (err error) {
	if s.opts.Dir != "" {
		if err := s.lockDir(); err != nil {
			return err
		}
		if err := s.readPins(); err != nil {
			return err
		}
	}
	if s.arena, err = NewArena(s.opts.RAMBytes, s.opts.Busy); err != nil {
		return err
	}
	if s.disk, err = s.openDisk(); err != nil || s.disk == nil {
		return err
	}
	return s.walk()
}

// walk puts what the disk tier holds into the tree. What cannot be a block, or
// contradicts another one, is forgotten.
func (s *Store) walk() error {
	var bad []block.ID
	err := s.disk.Walk(func(h block.Header, _ int64) bool {
		if h.PayloadBytes <= 0 || h.PayloadBytes > block.PayloadBytesMax || s.addDisk(h) != nil {
			bad = append(bad, h.ID)
		}
		return true
	})
	for _, id := range bad {
		s.disk.Forget(id)
	}
	s.mu.Lock()
	s.mu.stats.Disk.Corrupt += int64(len(bad))
	s.mu.Unlock()
	return err
}

// openDisk gives the disk tier, or nil.
func (s *Store) openDisk() (Disk, error) {
	if s.opts.Disk != nil || s.opts.DiskBytes == 0 {
		return s.opts.Disk, nil
	}
	return openRing(s)
}

// addDisk puts a block of the disk tier into the tree.
func (s *Store) addDisk(h block.Header) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addLocked(prefix.Disk, h)
}

// addLocked puts a block into the tree, with its pin.
func (s *Store) addLocked(tier prefix.Tier, h block.Header) error {
	err := s.mu.tree.Add(tier, prefix.Block{
		ID: h.ID, Parent: h.Parent, Start: h.Start, Count: h.Count, Bytes: int64(h.PayloadBytes),
	})
	if err != nil {
		return err
	}
	if _, ok := s.mu.pins[h.ID]; ok {
		s.mu.tree.Pin(h.ID)
	}
	return nil
}

func (s *Store) lockDir() error {
	if err := os.MkdirAll(s.opts.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.opts.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	locked, err := lockFile(f)
	if err == nil && !locked {
		err = fmt.Errorf("%s: %w", s.opts.Dir, ErrInUse)
	}
	if err != nil {
		f.Close()
		return err
	}
	s.lock = f
	return nil
}

// abandon gives back what a failed Open had taken.
func (s *Store) abandon() {
	s.cancel()
	if s.disk != nil {
		s.disk.Close()
	}
	if s.arena != nil {
		s.arena.Close()
	}
	if s.lock != nil {
		unlockFile(s.lock)
	}
}

// start runs a goroutine that Close waits for.
func (s *Store) start(run func()) { s.tasks.Go(run) }

func (s *Store) now() prefix.Tick { return prefix.Tick(s.opts.Now().UnixMilli()) }

func timeOf(t prefix.Tick) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(t))
}

// wake fills a channel of one slot that a goroutine reads.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// lost is called by the disk tier when blocks went with their generation.
func (s *Store) lost(ids []block.ID) {
	for from := 0; from < len(ids); from += lookupStep {
		s.mu.Lock()
		for _, id := range ids[from:min(from+lookupStep, len(ids))] {
			if !s.mu.tree.Remove(prefix.Disk, id) {
				continue
			}
			s.mu.stats.Disk.Evictions++
			if _, ok := s.mu.ram[id]; !ok {
				s.mu.stats.Disk.EvictedLost++
			}
		}
		s.mu.Unlock()
	}
	if len(ids) > 0 {
		s.opts.Events(BlocksLost{Blocks: len(ids)})
	}
}

// discard deletes a block that did not verify from a tier.
func (s *Store) discard(tier prefix.Tier, id block.ID, why error) {
	s.mu.Lock()
	if tier == prefix.RAM {
		s.removeLocked(id)
		s.mu.stats.RAM.Corrupt++
	} else {
		s.mu.tree.Remove(prefix.Disk, id)
		s.mu.stats.Disk.Corrupt++
	}
	s.mu.Unlock()
	if tier == prefix.Disk {
		s.disk.Forget(id)
	}
	s.opts.Log.Warn("a KV block did not verify and was deleted", "tier", tier.String(), "id", id.String(), "error", why)
	s.opts.Events(BlockDamaged{Tier: tier.String(), ID: id, Error: why.Error()})
}

// removeLocked takes a block out of RAM, whoever uses it. Readers keep its memory.
func (s *Store) removeLocked(id block.ID) {
	if s.mu.tree.Remove(prefix.RAM, id) {
		s.dropLocked(id)
	}
}

// dropLocked gives up the memory of a block that the tree does not have in RAM any
// more.
func (s *Store) dropLocked(id block.ID) {
	h := s.mu.ram[id]
	delete(s.mu.ram, id)
	if h.queued {
		s.mu.queue.remove(h)
		s.mu.stats.Queue.Drops++
	}
	h.buf.Release()
}

// allocateLocked gives memory in the RAM tier, for which it evicts up to evictStep
// blocks. nil: it cannot be had now.
func (s *Store) allocateLocked(n int) *Buf {
	for evicted := 0; ; {
		if b := s.arena.Alloc(n); b != nil {
			return b
		}
		if n <= 0 || int64(n) > s.opts.RAMBytes || evicted >= evictStep {
			return nil
		}
		victims := s.mu.tree.Evict(prefix.RAM, int64(n), evictStep-evicted, s.mu.victims[:0])
		if len(victims) == 0 {
			return nil
		}
		for _, v := range victims {
			s.dropLocked(v.ID)
			s.mu.stats.RAM.Evictions++
			if v.Left == 0 {
				s.mu.stats.RAM.EvictedLost++
			}
		}
		evicted += len(victims)
		s.mu.victims = victims
	}
}
