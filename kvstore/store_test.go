package kvstore_test

import (
	"context"
	"errors"
	"testing"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

func TestCommittedBlocksAreFound(t *testing.T) {
	s := open(t, kvstore.Options{})
	hs := headers(1, 200)[:90]
	mustPut(t, s, hs)
	wantRun(t, s, hs, 90, 90)
	wantRun(t, s, headers(1, 200), 90, 90)
	wantRun(t, s, headers(2, 3), 0, 0)
	if n := put(s, hs); n > 0 {
		t.Errorf("%d blocks that are held were accepted again", n)
	}
	st := s.Stats()
	if st.RAM.Hits != 180 || st.RAM.Misses != 113 || st.RAM.TokensHit != 720 || st.RAM.Blocks != 90 || st.RAM.Tokens != 360 {
		t.Errorf("RAM: %+v", st.RAM)
	}
}

func TestReserveRefuses(t *testing.T) {
	s := open(t, kvstore.Options{RAMBytes: ramFor(3)})
	hs := headers(1, 5)
	invalid := hs[0]
	invalid.Count = 0
	if _, ok := s.Reserve(invalid); ok {
		t.Error("an invalid header was accepted")
	}
	if _, ok := s.Reserve(hs[1]); ok {
		t.Error("a block that nothing leads to was accepted")
	}
	first, ok := s.Reserve(hs[0])
	if !ok {
		t.Fatal("refused")
	}
	if _, ok := s.Reserve(hs[0]); ok {
		t.Error("a block was accepted twice")
	}
	second, ok := s.Reserve(hs[1]) // its parent is being written
	if !ok {
		t.Fatal("refused")
	}
	if got := s.Stats(); got.Writers != 2 || got.Orphans != 1 || got.Arena.Bufs != 2 {
		t.Errorf("stats: %+v", got)
	}
	first.Abort()
	first.Abort()
	second.Commit() // the block before it never came
	second.Commit()
	flush(t, s)
	if got := s.Stats(); got.Writers != 0 || got.Orphans != 2 || got.Arena.Bufs != 0 || got.RAM.Blocks != 0 {
		t.Errorf("stats: %+v", got)
	}
	larger := hs[0]
	larger.PayloadBytes *= 10
	if _, ok := s.Reserve(larger); ok {
		t.Error("a block that is larger than the RAM was accepted")
	}
}

// A prompt that is longer than the RAM does not push its own beginning out.
func TestLongPromptKeepsItsBeginning(t *testing.T) {
	s := open(t, kvstore.Options{RAMBytes: ramFor(10)})
	hs := headers(1, 25)
	for _, h := range hs { // one by one, as prefill goes on
		put(s, []block.Header{h})
		flush(t, s)
	}
	wantRun(t, s, hs, 10, 10)
	st := s.Stats()
	if st.RAM.Refusals != 1 || st.Orphans != 14 || st.RAM.Evictions != 0 {
		t.Errorf("refusals %d, orphans %d, evictions %d", st.RAM.Refusals, st.Orphans, st.RAM.Evictions)
	}
	other := headers(2, 6)
	mustPut(t, s, other)
	wantRun(t, s, other, 6, 6)
	wantRun(t, s, hs, 4, 4) // the end went, not the beginning
}

func TestRunsProtectTheirBlocks(t *testing.T) {
	s := open(t, kvstore.Options{RAMBytes: ramFor(10)})
	hs := headers(1, 8)
	mustPut(t, s, hs)
	run := s.Lookup(idsOf(hs[:7]))
	if n := put(s, headers(2, 9)); n != 3 {
		t.Errorf("%d blocks were accepted, want 3: two free, one evicted", n)
	}
	flush(t, s)
	for i, ref := range run.Blocks() {
		if err := right(ref, hs[i]); err != nil {
			t.Error(err)
		}
	}
	run.Close()
	run.Close()
	if n := put(s, headers(3, 9)); n != 9 {
		t.Errorf("%d of 9 blocks were accepted after the run was closed", n)
	}
	flush(t, s)
	if err := s.Idle(); err != nil {
		t.Error(err)
	}
}

// A reference outlives the block's eviction, and the store.
func TestReferencesOutliveTheStore(t *testing.T) {
	s := open(t, kvstore.Options{})
	hs := headers(1, 2)
	mustPut(t, s, hs)
	run := s.Lookup(idsOf(hs))
	ref := run.Blocks()[1]
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := right(ref, hs[1]); err != nil {
		t.Error(err)
	}
	run.Close()
	ref.Release()
	defer func() {
		if recover() == nil {
			t.Error("a released block was shown")
		}
	}()
	ref.Payload()
}

func TestClosedStoreRefuses(t *testing.T) {
	s := open(t, kvstore.Options{})
	hs := headers(1, 2)
	late, _ := s.Reserve(hs[0])
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	late.Commit()
	if put(s, hs) > 0 {
		t.Error("a closed store accepted a block")
	}
	run := s.Lookup(idsOf(hs))
	if run.Len() > 0 {
		t.Error("a closed store found something")
	}
	run.Close()
	if err := s.Pin(hs[0].ID); !errors.Is(err, kvstore.ErrClosed) {
		t.Errorf("pin: %v", err)
	}
}

func TestOptionsNameEveryFault(t *testing.T) {
	_, err := kvstore.Open(kvstore.Options{RAMBytes: 0, DiskBytes: -1, Admission: -2, Queue: -3})
	var faults interface{ Unwrap() []error }
	if err == nil || !errors.As(err, &faults) || len(faults.Unwrap()) != 4 {
		t.Errorf("got %v", err)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, kvstore.Options{Dir: dir})
	if _, err := kvstore.Open(kvstore.Options{Dir: dir, RAMBytes: 1 << 20}); !errors.Is(err, kvstore.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	closeStore(t, s)
	closeStore(t, open(t, kvstore.Options{Dir: dir}))
}
