package quorum

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// errDamaged marks a file that is there and does not hold what it should.
var errDamaged = errors.New("damaged")

// disk owns the file. One goroutine alone touches it, so that a disk that stalls
// holds up nobody who does not wait for it, and a page that cannot be read is an error
// and not the end of the process.
type disk struct {
	path  string
	fault func(op string) error // nil but in tests: called before each operation

	ops     chan diskOp
	closing chan struct{} // closed: nobody waits for the disk any more
	once    sync.Once
	done    chan struct{} // closed when the goroutine has ended

	since atomic.Int64 // when the operation that runs now began, in monotonic nanoseconds; 0: none
	epoch time.Time    // what since counts from

	db *bolt.DB // the goroutine's
}

type diskOp struct {
	name string
	do   func(*bolt.Tx) error
	done chan error
}

// openDisk opens or creates the file. The error is ErrInUse, errDamaged or the
// operating system's.
func openDisk(path string, fault func(string) error) (*disk, error) {
	d := &disk{path: path, fault: fault, ops: make(chan diskOp), closing: make(chan struct{}), done: make(chan struct{}), epoch: time.Now()}
	opened := make(chan error, 1)
	go d.run(opened)
	if err := <-opened; err != nil {
		<-d.done
		return nil, err
	}
	return d, nil
}

func (d *disk) run(opened chan<- error) {
	defer close(d.done)
	debug.SetPanicOnFault(true) // of this goroutine: the file is mapped
	if err := d.open(); err != nil {
		opened <- err
		return
	}
	opened <- nil
	for {
		select {
		case op := <-d.ops:
			d.since.Store(int64(time.Since(d.epoch)) + 1)
			op.done <- d.update(op)
			d.since.Store(0)
		case <-d.closing:
			_ = guard(d.db.Close)
			return
		}
	}
}

func (d *disk) open() error {
	var file *os.File
	err := guard(func() (err error) {
		d.db, err = bolt.Open(d.path, 0o600, &bolt.Options{
			Timeout:      time.Second,
			NoStatistics: true,
			// The list of free pages is kept in the file: to rebuild it, bbolt reads every page
			// in a goroutine of its own, where a page that is not there ends the process.
			NoFreelistSync: false,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				var err error
				file, err = os.OpenFile(name, flag, mode)
				return file, err
			},
		})
		return err
	})
	if errors.Is(err, errDamaged) && file != nil {
		_ = file.Close() // gives back the lock of a file in which opening has panicked
	}
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%s: %w", d.path, ErrInUse)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return fmt.Errorf("%s: %w: %w", d.path, errDamaged, err)
	}
	return err
}

func (d *disk) update(op diskOp) error {
	if d.fault != nil {
		if err := d.fault(op.name); err != nil {
			return err
		}
	}
	return guard(func() error { return d.db.Update(op.do) })
}

// guard turns a panic into an error: bbolt panics on pages that make no sense.
func guard(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", errDamaged, r)
		}
	}()
	return do()
}

// do runs an operation in one transaction and waits until it is on disk, or until
// nobody waits any more; what do captures must therefore be its own.
func (d *disk) do(name string, do func(*bolt.Tx) error) error {
	op := diskOp{name: name, do: do, done: make(chan error, 1)}
	select {
	case d.ops <- op:
	case <-d.closing:
		return ErrClosed
	}
	select {
	case err := <-op.done:
		return err
	case <-d.closing:
		return ErrClosed
	}
}

// stalled is for how long the operation that runs now has been running.
func (d *disk) stalled() time.Duration {
	since := d.since.Load()
	if since == 0 {
		return 0
	}
	return max(0, time.Since(d.epoch)-time.Duration(since))
}

// release lets everybody go who waits for the disk and begins to close the file.
func (d *disk) release() { d.once.Do(func() { close(d.closing) }) }
