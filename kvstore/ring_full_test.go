//go:build linux

package kvstore

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"tandem/kvstore/block"
)

// smallDisk mounts a file system of the given size.
func smallDisk(t *testing.T, megabytes string, mayStayBusy bool) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+megabytes+"m"); err != nil {
		t.Skipf("mounting a tmpfs needs root: %v", err)
	}
	t.Cleanup(func() {
		err := syscall.Unmount(dir, 0)
		if err != nil {
			syscall.Unmount(dir, syscall.MNT_DETACH)
		}
		if err != nil && !mayStayBusy {
			t.Errorf("unmount: %v; something is still open there", err)
		}
	})
	return dir
}

// fillDisk writes a file until there is no room, and returns its name.
func fillDisk(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 4096); ; {
		if _, err := f.Write(b); errors.Is(err, syscall.ENOSPC) {
			return f.Name()
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestRingOnFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "40", false)
	dir := filepath.Join(disk, "kv")
	m := newRingMaker(4, 64)
	var later atomic.Int64
	o := RingOptions{Bytes: 64 << 20, RetryAfter: time.Minute, Now: func() time.Time { return time.Unix(later.Load(), 0) }}
	r := openTestRing(t, dir, o)
	var stored []block.ID
	storeUntilFull := func() {
		t.Helper()
		for number := int32(len(stored)); ; number++ {
			batch := m.chain(number, 5)
			err := r.Put(context.Background(), batch)
			if errors.Is(err, ErrFull) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, ringIDs(batch)...)
		}
	}
	allFound := func(when string) {
		t.Helper()
		for _, id := range stored {
			if !m.verify(t, r, id) {
				t.Fatalf("%s: a stored block is not found", when)
			}
		}
	}
	storeUntilFull()
	if len(stored) < 200 || !r.Stats().Full {
		t.Errorf("%d blocks are stored, full is %t", len(stored), r.Stats().Full)
	}
	allFound("full")

	filler := fillDisk(t, disk)
	later.Add(61)
	storeUntilFull()
	allFound("quite full")
	closeRing(t, r)
	r = openTestRing(t, dir, o)
	allFound("opened on a full disk")
	storeUntilFull()

	before := len(stored)
	os.Remove(filler)
	later.Add(59)
	storeUntilFull()
	if len(stored) != before {
		t.Error("it stores before the calm time is over")
	}
	later.Add(2)
	storeUntilFull()
	if len(stored) <= before {
		t.Error("it does not store although there is room again")
	}
	allFound("after there was room again")
	closeRing(t, r)
}

// Somebody else takes the room while the ring writes: it must neither end the
// process, which a mapped page without room would, nor lose anything.
func TestRingWhileDiskFillsUp(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "48", true) // Badger leaves files open if it fails to open
	m := newRingMaker(4, 64)
	var clock atomic.Int64
	r := openTestRing(t, filepath.Join(disk, "kv"), RingOptions{Bytes: 40 << 20, RetryAfter: time.Nanosecond,
		Now: func() time.Time { return time.Unix(clock.Add(1), 0) }})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				os.Remove(fillDisk(t, disk))
			}
		}
	}()
	full, stored := 0, 0
	for number := int32(0); number < 200; number++ {
		batch := m.chain(number, 3)
		err := r.Put(context.Background(), batch)
		switch {
		case errors.Is(err, ErrFull):
			full++
		case err != nil:
			t.Fatal(err)
		default:
			stored++
			if !m.verify(t, r, batch[2].Header.ID) {
				t.Fatal("what was stored is not found")
			}
		}
	}
	close(stop)
	<-done
	t.Logf("%d batches stored, %d met a full disk", stored, full)
	if stored == 0 || full == 0 {
		t.Errorf("%d batches stored, %d met a full disk; wanted some of each", stored, full)
	}
	closeRing(t, r)
}

// A file system without reserved room may take a part of a block only. Nothing points
// to it, and it is written over when there is room.
func TestRingWritesInPart(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "40", false)
	m := newRingMaker(4, 64) // 64 KiB
	var later atomic.Int64
	r := openTestRing(t, filepath.Join(disk, "kv"), RingOptions{Bytes: 64 << 20, RetryAfter: time.Minute,
		Now: func() time.Time { return time.Unix(later.Load(), 0) }})
	before, next := m.chain(1, 3), m.chain(2, 2)
	put(t, r, before...)
	// The keeper must not meet the full disk: nothing would be written for a time.
	until(t, r, "the next generation is prepared", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.mu.next != nil
	})
	<-r.pen
	g := r.active
	const pages = 5
	hole := (g.position + 4095) &^ 4095
	if err := unix.Fallocate(int(g.data.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, hole, g.reserved-hole); err != nil {
		t.Skipf("no holes here: %v", err)
	}
	r.pen <- struct{}{}
	filler := fillDisk(t, disk)
	info, err := os.Stat(filler)
	if err == nil {
		err = os.Truncate(filler, info.Size()-pages*4096)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Put(t.Context(), next); !errors.Is(err, ErrFull) {
		t.Errorf("a block that does not fit: %v", err)
	}
	if info, err := g.data.Stat(); err != nil || info.Size() <= g.position || info.Size() > hole+pages*4096 {
		t.Errorf("the data file has %d bytes, %v; wanted some of those behind %d", info.Size(), err, g.position)
	}
	if m.verify(t, r, next[0].Header.ID) {
		t.Error("a block that was written in part is found")
	}
	os.Remove(filler)
	later.Add(61)
	put(t, r, next...)
	if len(r.generations()) != 1 {
		t.Error("a full disk ended the generation")
	}
	for _, rec := range slices.Concat(before, next) {
		if !m.verify(t, r, rec.Header.ID) {
			t.Errorf("block %s is not found", rec.Header.ID)
		}
	}
	closeRing(t, r)
}
