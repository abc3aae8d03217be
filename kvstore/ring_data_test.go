package kvstore

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
)

// killedRing is a copy of the folder of a ring that is open and has blocks: what a
// process leaves that is killed. They were written one by one. data is the data file.
func killedRing(t *testing.T, chain []Record) (dir, data string) {
	t.Helper()
	open := ringDir(t)
	r := openTestRing(t, open, RingOptions{Bytes: 32 << 20})
	for _, rec := range chain {
		put(t, r, rec)
	}
	dir = ringDir(t)
	copyFolder(t, dir, open)
	found, err := filepath.Glob(filepath.Join(dir, generationPrefix+"*", dataName))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	slices.Sort(found) // the next generation may be there, too
	return dir, found[0]
}

func fileBytes(t *testing.T, path string) (length, onDisk int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size(), diskBytes(info)
}

// What was reserved, or written without a key, behind the last block is given back
// when a generation is sealed, and at the next start if the process was killed.
func TestRingGivesRoomInDataFileBack(t *testing.T) {
	t.Parallel()
	m := newRingMaker(4, 64)
	chain := m.chain(1, 5)
	var end int64
	for _, rec := range chain {
		end += diskMetaOf(rec.Header).bytes()
	}
	check := func(when, data string) {
		t.Helper()
		length, onDisk := fileBytes(t, data)
		if length != end || onDisk > end+64<<10 {
			t.Errorf("%s: the data file has %d bytes and takes %d; its blocks end at %d", when, length, onDisk, end)
		}
	}

	dir, data := killedRing(t, chain)
	f, err := os.OpenFile(data, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{7}, 50_000), end); err != nil {
		t.Fatal(err)
	}
	if err := allocateDisk(f, end, 2<<20); err != nil {
		t.Fatal(err)
	}
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	check("killed", data)
	for _, rec := range chain {
		if !m.verify(t, r, rec.Header.ID) {
			t.Errorf("block at %d is not found", rec.Header.Start)
		}
	}

	r = openTestRing(t, ringDir(t), RingOptions{Bytes: 32 << 20})
	put(t, r, chain...)
	g := r.generations()[0]
	if _, onDisk := fileBytes(t, g.path(dataName)); onDisk < end {
		t.Errorf("%d bytes are reserved; %d were written", onDisk, end)
	}
	rollRing(t, r)
	check("sealed", g.path(dataName))
	for _, name := range fileNames(g.dir) {
		if ending := filepath.Ext(name); ending == ".vlog" || ending == ".sst" || name == "DISCARD" {
			t.Errorf("a sealed generation has a file %s", name)
		}
	}
}

// A power cut may take the end of the data with it although keys point there: those
// blocks are misses, and nothing else is lost.
func TestRingLosesOnlyTheEndOfCutData(t *testing.T) {
	t.Parallel()
	m := newRingMaker(4, 64)
	chain := m.chain(1, 10)
	dir, data := killedRing(t, chain)
	each := diskMetaOf(chain[0].Header).bytes()
	if err := os.Truncate(data, 6*each+100); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
		for i, rec := range chain {
			if found := m.verify(t, r, rec.Header.ID); found != (i < 6) {
				t.Errorf("block %d: found is %t", i, found)
			}
		}
		if s := r.Stats(); s.SetAside > 0 || m.bad.Load() > 0 {
			t.Errorf("%d generations set aside, %d blocks damaged", s.SetAside, m.bad.Load())
		}
		closeRing(t, r)
	}
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	put(t, r, chain...)
	for i, rec := range chain {
		if !m.verify(t, r, rec.Header.ID) {
			t.Errorf("block %d, stored anew, is not found", i)
		}
	}
}

// Blocks whose keys cannot be written are not found, those before them are; the next
// ones go to another generation.
func TestRingWhoseKeysCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	before, failed, after := m.chain(1, 5), m.chain(2, 3), m.chain(3, 5)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	put(t, r, before...)
	<-r.pen
	g := r.active
	refused := reflect.ValueOf(g.db).Elem().FieldByName("blockWrites") // Badger's own
	(*atomic.Int32)(refused.Addr().UnsafePointer()).Store(1)
	r.pen <- struct{}{}
	if err := r.Put(t.Context(), failed); err == nil {
		t.Error("blocks are stored although their keys cannot be written")
	}
	if length, _ := fileBytes(t, g.path(dataName)); length < 8*diskMetaOf(failed[0].Header).bytes() {
		t.Errorf("the data file has %d bytes: keys came before data", length)
	}
	put(t, r, after...)
	for range 2 {
		for _, rec := range slices.Concat(before, after) {
			if !m.verify(t, r, rec.Header.ID) {
				t.Error("a block is gone")
			}
		}
		for _, rec := range failed {
			if m.verify(t, r, rec.Header.ID) {
				t.Error("a block without a key is found")
			}
		}
		if s := r.Stats(); s.SetAside > 0 || s.Blocks != 10 {
			t.Errorf("%+v; wanted 10 blocks and nothing set aside", s)
		}
		closeRing(t, r)
		r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	}
}

// A block whose key points into another's place makes its generation damaged, although
// the key is right by itself and lies within the file.
func TestRingSetsBlocksWithinOthersAside(t *testing.T) {
	t.Parallel()
	m := newRingMaker(4, 64)
	chain := m.chain(1, 4)
	open := ringDir(t)
	r := openTestRing(t, open, RingOptions{Bytes: 32 << 20})
	put(t, r, chain[:3]...)
	<-r.pen
	err := writeKeys(r.active.db, []diskBlock{{chain[3].Header.ID, diskMetaOf(chain[3].Header), 100}})
	r.pen <- struct{}{}
	if err != nil {
		t.Fatal(err)
	}
	killed := ringDir(t)
	copyFolder(t, killed, open)
	closeRing(t, r)
	for _, dir := range []string{killed, open} {
		r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
		if s := r.Stats(); s.SetAside != 1 || s.Blocks != 0 {
			t.Errorf("killed is %t: %+v; wanted one generation set aside", dir == killed, s)
		}
		put(t, r, chain...)
		for _, rec := range chain {
			if !m.verify(t, r, rec.Header.ID) {
				t.Error("a block that was stored anew is not found")
			}
		}
	}
}

// Small blocks end a generation before Badger's memtable is full: it would become a
// table then, for which no room is reserved.
func TestRingOfSmallBlocksWritesNoTable(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(1, 2) // 512 bytes
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	chain := m.chain(1, 3*r.geo.entries)
	for batch := range slices.Chunk(chain, 100) {
		put(t, r, batch...)
		for _, name := range ringFiles(t, dir) {
			if filepath.Ext(name) == ".sst" {
				t.Fatalf("there is a table: %s", name)
			}
		}
	}
	if n := r.Stats().Generations; n < 3 {
		t.Errorf("%d blocks are in %d generations; one holds %d", len(chain), n, r.geo.entries)
	}
	for range 2 {
		for _, rec := range chain {
			if !m.verify(t, r, rec.Header.ID) {
				t.Fatalf("block at %d is not found", rec.Header.Start)
			}
		}
		closeRing(t, r)
		r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	}
}
