package kvstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// errBudget says that something would take the folder over its budget.
var errBudget = errors.New("the disk budget is used up")

// diskRoom counts what a folder takes on the file system, so that it never takes
// more than its budget. Everything large is reserved through it, before it is
// written; what Badger writes besides is some pages, for which the margin is.
//
// Invariant: used+margin <= budget after every take that succeeds.
type diskRoom struct {
	dir    string
	budget int64
	margin int64

	mu      sync.Mutex
	used    int64
	changed chan struct{} // closed when there may be more room
}

func newDiskRoom(dir string, g geometry) *diskRoom {
	return &diskRoom{dir: dir, budget: g.budget, margin: g.margin, changed: make(chan struct{})}
}

// take reserves [from, from+n) of a file. Errors match errBudget, or ENOSPC if the
// file system is full.
func (r *diskRoom) take(f *os.File, from, n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+n+r.margin > r.budget {
		return fmt.Errorf("%w: %d of %d bytes are used, %d are wanted", errBudget, r.used, r.budget, n)
	}
	if err := r.spare(n); err != nil {
		return err
	}
	if err := allocateDisk(f, from, n); err != nil {
		return err
	}
	r.used += n
	return nil
}

// diskSpareMax is the most room on the file system that stays free.
const diskSpareMax = 256 << 20

// spare is ENOSPC if the file system, with n more bytes, would have less than a
// sixteenth of its size free, or 256 MiB if that is less: a cache does not take the
// last of a disk, and Badger writes some pages for which no room can be reserved.
func (r *diskRoom) spare(n int64) error {
	free, size, err := diskFree(r.dir)
	if err != nil {
		return err
	}
	if keep := min(size/16, diskSpareMax); free < n+keep {
		return fmt.Errorf("%w: %d bytes are free, %d of them stay so", errNoSpace, free, keep)
	}
	return nil
}

// give says that n reserved bytes are free again.
func (r *diskRoom) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
}

// free is what may still be taken.
func (r *diskRoom) free() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.budget - r.margin - r.used
}

func (r *diskRoom) bytes() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// measure looks at the folder, and wakes those who wait for room.
func (r *diskRoom) measure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = folderBytes(r.dir)
	close(r.changed)
	r.changed = make(chan struct{})
}

// change is closed at the next measure.
func (r *diskRoom) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// folderBytes is what a folder takes with all that is in it. What goes away
// meanwhile counts or not.
func folderBytes(dir string) int64 {
	var sum int64
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil {
			sum += diskBytes(info)
		}
		return nil
	})
	return sum
}
