package kvstore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"strings"
	"unsafe"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/ristretto/v2/z"

	"tandem/kvstore/block"
)

// options are Badger's for one generation. What they have in common: no value goes to
// the value log, and the memtable never fills, so that no table is ever written: keys
// and pointers stay in the log of the memtable.
func (g *generation) options(readOnly bool) badger.Options {
	o := badger.DefaultOptions(g.dir)
	o.Logger = badgerLog{g.log}
	o.ReadOnly = readOnly
	o.BypassLockGuard = true     // the ring holds one lock for all
	o.ValueThreshold = 64        // above all values: pointers, and the ends of transactions
	o.ValueLogFileSize = 1 << 20 // the least; of its empty file one page is ever touched
	o.MemTableSize = g.geo.memTable
	if readOnly {
		o.MemTableSize = max(256<<10, 3*g.memLogs())
	}
	o.NumMemtables = 1
	o.NumCompactors = 0
	o.BlockCacheSize = 0
	o.Compression = options.None
	o.DetectConflicts = false
	o.MetricsEnabled = false
	o.SyncWrites = false // a lost tail is a miss
	o.ChecksumVerificationMode = options.OnTableRead
	return o
}

// memLogs is the length of logs of keys that were never made a table. Badger reads
// them into a memtable, and ends the process if that is too small.
func (g *generation) memLogs() (n int64) {
	for _, name := range fileNames(g.dir) {
		if info, err := os.Stat(g.path(name)); err == nil && filepath.Ext(name) == ".mem" {
			n += info.Size()
		}
	}
	return n
}

// openBadger opens a Badger. The options are ours, so what goes wrong is the
// folder's fault.
func openBadger(o badger.Options) (db *badger.DB, err error) {
	err, _ = guarded(func() error {
		db, err = badger.Open(o)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("badger: %w", err)
	}
	return db, nil
}

// writeKeys stores where blocks are in one batch.
func writeKeys(db *badger.DB, blocks []diskBlock) error {
	wb := db.NewWriteBatch()
	defer wb.Cancel()
	for _, b := range blocks {
		key := appendDiskKey(make([]byte, 0, diskKeyBytes), b.id, b.diskMeta)
		pointer := appendDiskPointer(make([]byte, 0, diskPointerBytes), b)
		if err := wb.SetEntry(badger.NewEntry(key, pointer)); err != nil {
			return err
		}
	}
	return wb.Flush()
}

// readKeys lists the blocks that a Badger knows of, in any order. Errors match
// block.ErrDamaged.
func readKeys(db *badger.DB) (blocks []diskBlock, err error) {
	err = db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			item := it.Item()
			var b diskBlock
			var ok bool
			err := item.Value(func(pointer []byte) error {
				b, ok = parseDiskEntry(item.Key(), pointer)
				return nil
			})
			if err != nil {
				return fmt.Errorf("%w: %w", block.ErrDamaged, err)
			}
			if !ok {
				return fmt.Errorf("%w: a key of %d bytes with a value of %d is none of a block", block.ErrDamaged, item.KeySize(), item.ValueSize())
			}
			blocks = append(blocks, b)
		}
		return nil
	})
	return blocks, err
}

// closeUnflushed closes a Badger without making a table of its memtable. Nobody
// else uses it any more.
//
// Close would write that table through the mapping of a new file, in a goroutine of
// Badger's: on a full disk this ends the process, and no room can be reserved for a
// file that Badger insists on creating. The log of the memtable has all that the
// table would have, and check sums. Since Badger has no way to say so, its memtable
// is taken away: Close, which copes with having none, leaves the log alone. Nor does
// it unmap the logs that a Badger that only reads has in memtables; that is done
// here, too.
func closeUnflushed(db *badger.DB) error {
	inside := reflect.ValueOf(db).Elem()
	current, older := inside.FieldByName("mt"), inside.FieldByName("imm")
	if !current.IsValid() || current.Kind() != reflect.Pointer || !older.IsValid() || older.Kind() != reflect.Slice {
		return errBadgerChanged
	}
	tables := []reflect.Value{current}
	for i := range older.Len() {
		tables = append(tables, older.Index(i))
	}
	var logs []*z.MmapFile
	for _, table := range tables {
		if table.IsNil() {
			continue
		}
		log, err := memtableLog(table)
		if err != nil {
			return err
		}
		logs = append(logs, log)
	}
	*(*unsafe.Pointer)(unsafe.Pointer(current.UnsafeAddr())) = nil
	err := db.Close()
	for _, log := range logs {
		err = errors.Join(err, log.Close(-1))
	}
	return err
}

// errBadgerChanged says that closeUnflushed does not fit the version of Badger: it
// was written for v4.9.6.
var errBadgerChanged = errors.New("this version of Badger keeps the log of its memtable elsewhere")

// memtableLog is the mapped log of a *memTable.
func memtableLog(table reflect.Value) (*z.MmapFile, error) {
	wal := table.Elem().FieldByName("wal")
	if !wal.IsValid() || wal.Kind() != reflect.Pointer || wal.IsNil() {
		return nil, errBadgerChanged
	}
	mapped := wal.Elem().FieldByName("MmapFile")
	if !mapped.IsValid() || mapped.Type() != reflect.TypeFor[*z.MmapFile]() {
		return nil, errBadgerChanged
	}
	return (*z.MmapFile)(mapped.UnsafePointer()), nil
}

// guarded calls fn, which uses a Badger, and turns a panic into an error. That of a
// page of its mapped log that cannot be read, because the disk fails, is one, too.
func guarded(fn func() error) (err error, panicked bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err, panicked = fmt.Errorf("%w: badger panicked: %.200v", block.ErrDamaged, r), true
		}
	}()
	return fn(), false
}

// badgerLog passes Badger's lines on. What it calls information is for debugging.
type badgerLog struct{ log *slog.Logger }

func (l badgerLog) Errorf(format string, args ...any)   { l.log.Warn(badgerLine(format, args)) }
func (l badgerLog) Warningf(format string, args ...any) { l.log.Warn(badgerLine(format, args)) }
func (l badgerLog) Infof(format string, args ...any)    { l.log.Debug(badgerLine(format, args)) }
func (l badgerLog) Debugf(string, ...any)               {}

func badgerLine(format string, args []any) string {
	line := strings.TrimSpace(fmt.Sprintf(format, args...))
	return "badger: " + line[:min(len(line), 300)]
}
