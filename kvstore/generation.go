package kvstore

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"tandem/kvstore/block"
)

// generation is one Badger of the ring, in a folder of its own. It is filled once,
// sealed, read, and dropped as a whole; nothing is deleted in it.
//
// Its life: open for writing, with room reserved ahead of every write; full; sealed
// (closed, its files listed with their digests, opened read-only); dropped. The
// keeper of the ring moves it along, the holder of the ring's pen writes to it.
type generation struct {
	seq  uint64
	dir  string
	geo  geometry
	log  *slog.Logger
	room *diskRoom

	// mu is held for reading by those who use db, for writing by those who open or
	// close it. db is nil when there is nothing to read any more.
	mu sync.RWMutex
	db *badger.DB

	// hurt says that Badger panicked while it may have held a lock: this db is
	// never closed, since that could wait for ever.
	hurt   atomic.Bool
	faults atomic.Int32 // damaged values that were met

	// Written by the holder of the pen.
	valueLog *os.File // to reserve room in; nil when sealed
	logBytes int64    // upper bound of what all value logs hold
	reserved int64    // up to where the open value log has room
	position int64    // upper bound of where it is written next
	entries  int

	closed bool // for writing; the keeper's

	// Under the index's lock.
	ids  []block.ID
	live int

	forgetting sync.Mutex // one writer of the forgotten file
	changes    int        // ids in it
	gone       map[block.ID]bool
}

func (g *generation) path(name string) string { return filepath.Join(g.dir, name) }

// Files in a generation's folder besides Badger's.
const (
	ballastName   = "ballast"   // holds room for what Badger is about to make
	forgottenName = "forgotten" // ids that must not come back at the next start
)

// create makes the folder and an empty Badger in it. Everything that can fail for
// lack of room does so here, before Badger maps a page that it cannot have.
func (g *generation) create() error {
	if err := os.Mkdir(g.dir, 0o700); err != nil {
		return err
	}
	if err := g.begin(); err != nil {
		g.closeFiles()
		if g.db != nil {
			g.guard(func() error { return closeUnflushed(g.db) })
			g.db = nil
		}
		os.RemoveAll(g.dir)
		return fmt.Errorf("a new generation: %w", err)
	}
	return nil
}

func (g *generation) begin() error {
	if err := writeState(g.dir, true); err != nil {
		return err
	}
	if err := g.prepare(); err != nil {
		return err
	}
	var err error
	if g.db, err = openBadger(g.options(false)); err != nil {
		return err
	}
	if err := g.reserveLogs(); err != nil {
		return err
	}
	return writeState(g.dir, true)
}

// prepare makes sure that Badger's first pages find room.
func (g *generation) prepare() error {
	// Only garbage collection, which is never used, reads this file. If it were
	// missing, Badger would make it, and end the process if it could not.
	discard, err := os.Create(g.path("DISCARD"))
	if err != nil {
		return err
	}
	defer discard.Close()
	if err := discard.Truncate(1 << 20); err != nil {
		return err
	}
	if err := g.room.take(discard, 0, 4096); err != nil {
		return err
	}
	ballast, err := os.Create(g.path(ballastName))
	if err != nil {
		return err
	}
	defer ballast.Close()
	if err := g.room.take(ballast, 0, g.geo.fixed()+g.geo.step); err != nil {
		return err
	}
	if err := os.Remove(ballast.Name()); err != nil {
		return err
	}
	g.room.give(g.geo.fixed() + g.geo.step)
	return nil
}

// reserveLogs finds the logs that Badger has begun and reserves room in them.
func (g *generation) reserveLogs() error {
	mem, err := newest(g.dir, ".mem")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(mem, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := g.room.take(f, 0, g.geo.memTable); err != nil {
		return err
	}
	log, err := newest(g.dir, ".vlog")
	if err != nil {
		return err
	}
	if g.valueLog, err = os.OpenFile(log, os.O_RDWR, 0); err != nil {
		return err
	}
	g.reserved, g.position = 0, logHead
	return g.reserve(0)
}

// reserve makes room for n more bytes in the value log.
func (g *generation) reserve(n int64) error {
	upTo := g.position + n + logTail
	if upTo <= g.reserved {
		return nil
	}
	more := max(upTo-g.reserved, min(g.geo.step, g.geo.capacity-g.logBytes))
	if err := g.room.take(g.valueLog, g.reserved, more); err != nil {
		return err
	}
	g.reserved += more
	return nil
}

// fits tells whether a batch of so many bytes and entries may still be written.
func (g *generation) fits(bytes int64, entries int) bool {
	return g.logBytes+bytes <= g.geo.capacity && g.entries+entries <= g.geo.entries
}

// write stores encoded blocks in one batch. Room was reserved.
func (g *generation) write(batch []diskItem) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.db == nil {
		return errRingClosed
	}
	return g.guard(func() error {
		wb := g.db.NewWriteBatch()
		defer wb.Cancel()
		for _, it := range batch {
			n := it.meta.bytes()
			g.logBytes += n
			g.position += n
			g.entries++
			if err := wb.SetEntry(badger.NewEntry(it.key, it.value)); err != nil {
				return err
			}
		}
		return wb.Flush()
	})
}

// diskItem is a block as it is written.
type diskItem struct {
	id         block.ID
	meta       diskMeta
	key, value []byte
}

// read gives the payload of a block to dst. ErrNotFound: the generation has gone.
func (g *generation) read(id block.ID, m diskMeta, dst func(n int) []byte) (h block.Header, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.db == nil {
		return h, ErrNotFound
	}
	err = g.guard(func() error {
		return g.db.View(func(txn *badger.Txn) error {
			item, err := txn.Get(appendDiskKey(make([]byte, 0, diskKeyBytes), id, m))
			if err != nil {
				return fmt.Errorf("%w: %s: %w", block.ErrDamaged, id, err)
			}
			return item.Value(func(value []byte) (err error) {
				h, err = readDiskValue(value, id, m, dst)
				return err
			})
		})
	})
	return h, err
}

// guard turns a panic in Badger, also that of a mapped page that cannot be read,
// into an error, and remembers that locks may be held.
func (g *generation) guard(fn func() error) error {
	err, panicked := guarded(fn)
	if panicked {
		g.hurt.Store(true)
	}
	return err
}

// sync writes what is mapped to the disk, so that closing does not take long.
func (g *generation) sync() error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.db == nil || g.closed {
		return nil
	}
	return g.guard(g.db.Sync)
}

// seal closes the generation for writing and opens it read-only. Readers do not
// notice. ENOSPC: it can be read as before, try again later. Damaged: it is of no
// more use.
func (g *generation) seal() error {
	if err := g.switchToReading(); err != nil {
		return fmt.Errorf("%w: %w", block.ErrDamaged, err)
	}
	return writeState(g.dir, false)
}

// switchToReading does its work once. Nobody writes any more, so the log of keys can
// be cut while it is mapped, and two Badgers may have the folder for a moment.
func (g *generation) switchToReading() error {
	if g.closed {
		return nil
	}
	if g.hurt.Load() {
		return errors.New("badger panicked before")
	}
	if err := g.trim(".mem", generationState{}); err != nil {
		return err
	}
	db, err := openBadger(g.options(true))
	if err != nil {
		return err
	}
	g.mu.Lock()
	db, g.db = g.db, db
	g.mu.Unlock()
	return g.closeWriter(db)
}

// closeWriter closes the Badger that wrote, which cuts the value log.
func (g *generation) closeWriter(db *badger.DB) error {
	g.closed = true
	err := g.guard(func() error { return closeUnflushed(db) })
	g.closeFiles()
	os.Remove(g.path("DISCARD"))
	return err
}

// finish closes the generation for good, such that the next start has little to do.
func (g *generation) finish() error {
	open := !g.closed && !g.hurt.Load()
	err := g.close()
	if err == nil && open {
		err = g.trim(".mem", generationState{})
	}
	if err == nil && !g.hurt.Load() {
		err = writeState(g.dir, false)
	}
	return err
}

// close ends all reading and closes Badger.
func (g *generation) close() error {
	g.mu.Lock()
	db := g.db
	g.db = nil
	g.mu.Unlock()
	switch {
	case db == nil || g.hurt.Load():
		g.closeFiles()
		return nil
	case g.closed:
		return g.guard(func() error { return closeUnflushed(db) })
	}
	return g.closeWriter(db)
}

// trim cuts logs with such an ending, but those in the list, behind what is whole in
// them, and with that gives back what was reserved.
func (g *generation) trim(ending string, listed generationState) error {
	cut := trimKeyLog
	if ending == ".vlog" {
		cut = trimValueLog
	}
	for _, name := range fileNames(g.dir) {
		if _, closed := listed.find(name); closed || filepath.Ext(name) != ending {
			continue
		}
		if err := cut(g.path(name)); err != nil {
			return err
		}
	}
	return nil
}

func (g *generation) closeFiles() {
	if g.valueLog != nil {
		g.valueLog.Close()
		g.valueLog = nil
	}
}

// remove deletes the folder. It is renamed first, so that a start after an unclean
// end does not take what is left for a damaged generation. If Badger could not be
// closed its files are still mapped; they are emptied: their space comes back all
// the same.
func (g *generation) remove() error {
	gone := filepath.Join(filepath.Dir(g.dir), gonePrefix+filepath.Base(g.dir))
	if err := os.Rename(g.dir, gone); err != nil {
		return err
	}
	if g.hurt.Load() {
		for _, name := range fileNames(gone) {
			os.Truncate(filepath.Join(gone, name), 0)
		}
	}
	return os.RemoveAll(gone)
}

// forget makes sure that a block does not come back at the next start.
func (g *generation) forget(id block.ID) { g.remember(id, true) }

// recall undoes forget for a block that was written again.
func (g *generation) recall(id block.ID) { g.remember(id, false) }

// remember notes in the forgotten file that a block is gone, or not any more: every
// id in it changes what the one before said of the same block.
func (g *generation) remember(id block.ID, gone bool) {
	g.forgetting.Lock()
	defer g.forgetting.Unlock()
	if g.gone[id] == gone || g.changes >= diskForgottenMax {
		return
	}
	g.changes++
	if g.gone == nil {
		g.gone = map[block.ID]bool{}
	}
	if gone {
		g.gone[id] = true
	} else {
		delete(g.gone, id)
	}
	f, err := os.OpenFile(g.path(forgottenName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return // it may come back, and is verified then as any other, or be missed
	}
	defer f.Close()
	f.Write(id[:])
}

// blocks calls fn for the blocks in the generation, by their keys.
func (g *generation) blocks(fn func(block.ID, diskMeta)) error {
	g.forgetting.Lock()
	g.gone, g.changes = readForgotten(g.path(forgottenName))
	gone := maps.Clone(g.gone)
	g.forgetting.Unlock()
	return g.guard(func() error {
		return g.db.View(func(txn *badger.Txn) error {
			it := txn.NewIterator(badger.IteratorOptions{})
			defer it.Close()
			for it.Rewind(); it.Valid(); it.Next() {
				id, m, ok := parseDiskKey(it.Item().Key())
				if !ok {
					return fmt.Errorf("%w: a key of %d bytes is none of a block", block.ErrDamaged, len(it.Item().Key()))
				}
				g.entries++
				if !gone[id] {
					fn(id, m)
				}
			}
			return nil
		})
	})
}
