package kvstore_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// branches are two prompts that share a beginning: the headers of the beginning, and
// of each prompt's own end.
func branches(shared, own int) (start []block.Header, ends [2][]block.Header) {
	start = headers(1, shared)
	for e := range ends {
		parent := start[shared-1].ID
		for i := range own {
			h := start[0]
			h.Tokens = []block.Token{block.Token(100 + e), block.Token(i), 5, 6}
			h.Parent, h.ID = parent, testKey.Next(parent, h.Tokens)
			h.Start = (shared + i) * testCount
			parent = h.ID
			ends[e] = append(ends[e], h)
		}
	}
	return start, ends
}

func list(t *testing.T, s *kvstore.Store) []kvstore.Prefix {
	t.Helper()
	all, n, err := s.List(context.Background(), 0)
	if err != nil || n != len(all) {
		t.Fatalf("%d of %d prefixes, %v", len(all), n, err)
	}
	return all
}

func TestListShowsWhereItBranches(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	d := newFakeDisk()
	s := open(t, kvstore.Options{Disk: d, Admission: 2, Now: func() time.Time { return now }})
	start, ends := branches(10, 5)
	mustPut(t, s, start)
	mustPut(t, s, ends[0])
	mustPut(t, s, ends[1])
	now = now.Add(time.Minute)
	prompt := append(slices.Clone(start), ends[1]...)
	run := s.Lookup(idsOf(prompt))
	run.Used(4, 12)
	defer run.Close()
	flush(t, s)

	root, size := testKey.Root(testPrint, ""), int64(blockBytes())
	want := []kvstore.Prefix{
		{ID: start[9].ID, First: start[0].ID, Root: root, Tokens: 40, Blocks: 10, RAMBlocks: 10, RAMBytes: 10 * size, DiskBlocks: 10,
			DiskBytes: 10 * size, Uses: 2, LastUse: now, TokensSpared: 24, Branches: 2},
		{ID: ends[1][4].ID, First: ends[1][0].ID, Parent: start[9].ID, Root: root, Start: 40, Tokens: 20, Blocks: 5, RAMBlocks: 5, RAMBytes: 5 * size,
			DiskBlocks: 5, DiskBytes: 5 * size, Uses: 2, LastUse: now, TokensSpared: 8, Leased: true},
		{ID: ends[0][4].ID, First: ends[0][0].ID, Parent: start[9].ID, Root: root, Start: 40, Tokens: 20, Blocks: 5, RAMBlocks: 5, RAMBytes: 5 * size,
			Uses: 1, LastUse: now.Add(-time.Minute)},
	}
	got := list(t, s)
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if s.Stats().TokensSpared != 32 {
		t.Errorf("%d tokens spared, want 32", s.Stats().TokensSpared)
	}
	if err := s.Pin(start[4].ID); err != nil {
		t.Fatal(err)
	}
	if got := list(t, s); len(got) != 4 || got[0].ID != start[4].ID || !got[0].Pinned || got[0].Branches != 1 {
		t.Errorf("with a pin: %+v", got)
	}
	few, n, err := s.List(context.Background(), 2)
	if len(few) != 2 || n != 4 || err != nil {
		t.Errorf("limited: %d of %d, %v", len(few), n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := s.List(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestPinsOutliveTheProcess(t *testing.T) {
	dir, d := t.TempDir(), newFakeDisk()
	o := kvstore.Options{Dir: dir, Disk: d, RAMBytes: ramFor(5)}
	s := open(t, o)
	hs := headers(1, 3)
	if err := s.Pin(hs[0].ID); !errors.Is(err, kvstore.ErrNotFound) {
		t.Errorf("pin of what is not held: %v", err)
	}
	mustPut(t, s, hs)
	for range 2 {
		if err := s.Pin(hs[1].ID); err != nil {
			t.Error(err)
		}
	}
	if d.mu.touched[hs[0].ID] == 0 {
		t.Error("the disk was not told of the pin")
	}
	closeStore(t, s)
	s = open(t, o)
	wantRun(t, s, hs, 3, 3)
	for p := range 5 {
		mustPut(t, s, headers(10+p, 3))
	}
	if run := s.Lookup(idsOf(hs)); run.Len() != 3 || len(run.Blocks()) != 2 {
		t.Errorf("%d of 2 pinned blocks are in RAM", len(run.Blocks()))
	} else {
		run.Close()
	}
	if err := s.Unpin(hs[1].ID); err != nil {
		t.Error(err)
	}
	if err := s.Unpin(hs[1].ID); !errors.Is(err, kvstore.ErrNotFound) {
		t.Errorf("second unpin: %v", err)
	}
	mustPut(t, s, headers(20, 5))
	if run := s.Lookup(idsOf(hs)); len(run.Blocks()) != 0 {
		t.Error("blocks that are not pinned any more stayed")
	} else {
		run.Close()
	}
	closeStore(t, s)
	s = open(t, o)
	if n := s.Stats().Pins; n != 0 {
		t.Errorf("%d pins came back", n)
	}
}

func TestDamagedPinsDoNotStopTheStart(t *testing.T) {
	dir, d := t.TempDir(), newFakeDisk()
	hs := headers(1, 1)
	preload(d, hs)
	text := "rubbish\n" + hs[0].ID.String() + "\n" + string(make([]byte, 1<<20))
	if err := os.WriteFile(filepath.Join(dir, "pins"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, kvstore.Options{Dir: dir, Disk: d})
	if n := s.Stats().Pins; n != 1 {
		t.Errorf("%d pins, want the one that can be read", n)
	}
}

func TestEvictTakesASubtree(t *testing.T) {
	d := newFakeDisk()
	s := open(t, kvstore.Options{Disk: d})
	start, ends := branches(4, 3)
	for _, hs := range [][]block.Header{start, ends[0], ends[1]} {
		mustPut(t, s, hs)
	}
	if _, err := s.Evict(context.Background(), block.ID{9}); !errors.Is(err, kvstore.ErrNotFound) {
		t.Errorf("unknown block: %v", err)
	}
	got, err := s.Evict(context.Background(), ends[0][1].ID)
	if want := (kvstore.Evicted{RAMBlocks: 2, RAMBytes: int64(2 * blockBytes()), DiskBlocks: 2, DiskBytes: int64(2 * blockBytes())}); got != want || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	wantRun(t, s, append(slices.Clone(start), ends[0]...), 5, 5)
	if err := s.Pin(ends[1][0].ID); err != nil {
		t.Fatal(err)
	}
	run := s.Lookup(idsOf(start[:2]))
	got, err = s.Evict(context.Background(), testKey.Root(testPrint, ""))
	if got.RAMBlocks != 3 || got.DiskBlocks != 3 || got.Kept != 5 || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	for i, ref := range run.Blocks() {
		if err := right(ref, start[i]); err != nil {
			t.Error(err)
		}
	}
	run.Close()
	if err := s.Unpin(ends[1][0].ID); err != nil {
		t.Fatal(err)
	}
	got, err = s.Evict(context.Background(), block.ID{})
	if got.RAMBlocks != 5 || got.Kept != 0 || err != nil || d.blocks() != 0 || s.Stats().Arena.Bufs != 0 {
		t.Errorf("got %+v, %v; %d blocks on disk", got, err, d.blocks())
	}
	checkStore(t, s)
}

func TestVerifyFindsDamage(t *testing.T) {
	d := newFakeDisk()
	s := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(6)})
	hs := headers(1, 5)
	mustPut(t, s, hs)
	v, err := s.Verify(context.Background())
	if want := (kvstore.Verified{RAMBlocks: 5, DiskBlocks: 5, Bytes: int64(10 * blockBytes())}); v != want || err != nil {
		t.Errorf("got %+v, %v", v, err)
	}
	run := s.Lookup(idsOf(hs))
	run.Blocks()[4].Payload()[3]++ // a bit of the RAM flips
	run.Close()
	d.mu.held[hs[1].ID].Payload[3]++
	delete(d.mu.held, hs[2].ID)
	v, err = s.Verify(context.Background())
	if v.Damaged != 2 || v.Missing != 1 || err != nil {
		t.Errorf("got %+v, %v", v, err)
	}
	if st := s.Stats(); st.RAM.Corrupt != 1 || st.Disk.Corrupt != 1 {
		t.Errorf("%+v %+v", st.RAM, st.Disk)
	}
	wantRun(t, s, hs, 5, 5) // each damaged block was sound in the other tier
}
