package kvstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"

	"tandem/kvstore/block"
)

// generation is a data file and a Badger that knows where in it blocks are, in a
// folder of their own. It is filled once, sealed, read, and dropped as a whole; nothing
// is deleted in it.
//
// Its life: open for writing, with room reserved ahead of every write; full; sealed
// (Badger closed, the files listed with their digests); dropped. The keeper of the
// ring moves it along, the holder of the ring's pen writes to it. Reading needs the
// data file alone, and goes on all the time.
//
// Invariant: what the keys in Badger point to was written to the data file before.
type generation struct {
	seq  uint64
	dir  string
	geo  geometry
	log  *slog.Logger
	room *diskRoom

	// mu is held for reading by those who read data, for writing by who closes it:
	// then there are no readers left. data is nil when there is nothing to read any
	// more. It is written to, and cut, without mu, where nobody reads.
	mu   sync.RWMutex
	data *os.File

	faults atomic.Int32 // damaged blocks that were met

	// Of the holder of the pen while it is written to, of the keeper afterwards.
	db       *badger.DB // nil when sealed
	position int64      // behind the last block; bytes of the data file
	reserved int64      // up to where the data file has room
	entries  int

	// hurt says that Badger panicked while it may have held a lock: it is never
	// closed, since that could wait for ever.
	hurt bool

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
	dataName      = "data"      // encoded blocks, one behind the other
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
		g.close()
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
	if err := g.reserveKeyLog(); err != nil {
		return err
	}
	if g.data, err = os.OpenFile(g.path(dataName), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return err
	}
	if err := g.reserve(1); err != nil { // the first step
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

// reserveKeyLog finds the log that Badger has begun and reserves room in it.
func (g *generation) reserveKeyLog() error {
	mem, err := newest(g.dir, ".mem")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(mem, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return g.room.take(f, 0, g.geo.memTable)
}

// reserve makes room for n more bytes in the data file, a step at a time.
func (g *generation) reserve(n int64) error {
	upTo := g.position + n
	if upTo <= g.reserved {
		return nil
	}
	more := max(upTo-g.reserved, min(g.geo.step, g.geo.capacity-g.reserved))
	if err := g.room.take(g.data, g.reserved, more); err != nil {
		return err
	}
	g.reserved += more
	return nil
}

// fits tells whether a batch of so many bytes and entries may still be written.
func (g *generation) fits(bytes int64, entries int) bool {
	return g.position+bytes <= g.geo.capacity && g.entries+entries <= g.geo.entries
}

// write stores blocks in one batch and tells where they are. Room was reserved. After
// an error that matches ENOSPC it may be tried again: what was written in vain is
// written over, or left.
func (g *generation) write(batch []Record) ([]diskBlock, error) {
	blocks, err := writeBlocks(g.data, g.position, batch)
	if err != nil {
		return nil, err
	}
	g.position = blocks[len(blocks)-1].end()
	g.entries += len(blocks)
	return blocks, g.guard(func() error { return writeKeys(g.db, blocks) })
}

// read gives the payload of a block to dst. ErrNotFound: the generation has gone.
func (g *generation) read(id block.ID, e diskEntry, dst func(n int) []byte) (block.Header, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.data == nil {
		return block.Header{}, ErrNotFound
	}
	return readBlock(g.data, diskBlock{id, e.diskMeta, e.offset}, dst)
}

// guard turns a panic in Badger into an error, and remembers that locks may be held.
func (g *generation) guard(fn func() error) error {
	err, panicked := guarded(fn)
	g.hurt = g.hurt || panicked
	return err
}

// seal ends writing: Badger is closed, the data file stays open. Readers do not notice.
// Damaged: the generation is of no more use. After any other error it can be read as
// before, try again later.
func (g *generation) seal() error {
	if g.db != nil {
		if err := g.data.Sync(); err != nil {
			return err
		}
		if err := g.closeWriter(); err != nil {
			return fmt.Errorf("%w: %w", block.ErrDamaged, err)
		}
	}
	return writeState(g.dir, false)
}

// closeWriter closes Badger and gives back what was reserved and is not needed.
func (g *generation) closeWriter() error {
	if err := g.closeBadger(); err != nil {
		return err
	}
	os.Remove(g.path("DISCARD"))
	if err := g.data.Truncate(g.position); err != nil {
		return err
	}
	return g.trimKeyLogs(g.position)
}

func (g *generation) closeBadger() error {
	db := g.db
	g.db = nil
	if g.hurt {
		return errors.New("badger panicked before")
	}
	return g.guard(func() error { return closeUnflushed(db) })
}

// finish closes the generation for good, such that the next start has little to do.
func (g *generation) finish() error {
	return errors.Join(g.seal(), g.close())
}

// close ends all reading and writing.
func (g *generation) close() error {
	g.mu.Lock()
	data := g.data
	g.data = nil
	g.mu.Unlock()
	var err error
	if g.db != nil {
		err = g.closeBadger()
	}
	if data != nil {
		err = errors.Join(err, data.Close())
	}
	return err
}

// load opens the data file and lists the blocks in it, but those that were forgotten.
// If the generation was not sealed, what was reserved is given back.
func (g *generation) load(unsealed bool) ([]diskBlock, error) {
	var err error
	if g.data, err = os.Open(g.path(dataName)); err != nil {
		return nil, err
	}
	info, err := g.data.Stat()
	if err != nil {
		return nil, err
	}
	if unsealed {
		if err := g.trimKeyLogs(info.Size()); err != nil {
			return nil, err
		}
	}
	blocks, err := g.readIndex()
	if err != nil {
		return nil, err
	}
	g.entries = len(blocks)
	if g.position, err = checkPlaces(blocks, info.Size()); err != nil {
		return nil, err
	}
	if unsealed {
		if err := os.Truncate(g.path(dataName), g.position); err != nil {
			return nil, err
		}
	}
	g.forgetting.Lock()
	defer g.forgetting.Unlock()
	g.gone, g.changes = readForgotten(g.path(forgottenName))
	return slices.DeleteFunc(blocks, func(b diskBlock) bool { return g.gone[b.id] }), nil
}

// readIndex opens Badger for as long as its keys are read.
func (g *generation) readIndex() ([]diskBlock, error) {
	var err error
	if g.db, err = openBadger(g.options(true)); err != nil {
		return nil, err
	}
	var blocks []diskBlock
	err = g.guard(func() (err error) {
		blocks, err = readKeys(g.db)
		return err
	})
	return blocks, errors.Join(err, g.closeBadger())
}

// trimKeyLogs cuts the logs of keys behind what is whole in them, and in the data file
// of so many bytes. Badger's value log, in which nothing ever is, is deleted: Badger
// makes one when it opens for writing, and needs none to read.
func (g *generation) trimKeyLogs(dataBytes int64) error {
	for _, name := range fileNames(g.dir) {
		var err error
		switch filepath.Ext(name) {
		case ".mem":
			err = trimKeyLog(g.path(name), dataBytes)
		case ".vlog":
			err = os.Remove(g.path(name))
		}
		if err != nil {
			return err
		}
	}
	return nil
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
	if g.hurt {
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
