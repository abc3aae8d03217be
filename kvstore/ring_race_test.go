package kvstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tandem/kvstore/block"
)

// Blocks are read, touched and forgotten while generations come and go.
func TestRingReadsWhileGenerationsGo(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	var mu sync.Mutex
	var ids []block.ID
	recent := func(n int) []block.ID {
		mu.Lock()
		defer mu.Unlock()
		return append([]block.ID(nil), ids[max(0, len(ids)-n):]...)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var hits, misses atomic.Int64
	for reader := range 4 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				all := recent(500)
				if len(all) == 0 {
					continue
				}
				id := all[(i*7919+reader)%len(all)]
				if m.verify(t, r, id) {
					hits.Add(1)
				} else {
					misses.Add(1)
				}
				switch i % 16 {
				case 0:
					r.Touch(all[:1])
				case 1:
					r.Stats()
				case 2:
					r.Forget(id)
				}
			}
		})
	}
	for number := range int32(160) {
		batch := m.chain(number, 5)
		put(t, r, batch...)
		mu.Lock()
		ids = append(ids, ringIDs(batch)...)
		mu.Unlock()
	}
	close(stop)
	readers.Wait()
	s := r.Stats()
	t.Logf("%d hits, %d misses, %+v", hits.Load(), misses.Load(), s)
	if hits.Load() == 0 || misses.Load() == 0 || s.Dropped == 0 {
		t.Error("wanted hits, misses and dropped blocks")
	}
	if m.bad.Load() > 0 || s.SetAside > 0 {
		t.Errorf("%d blocks damaged, %d generations set aside", m.bad.Load(), s.SetAside)
	}
	checkRing(t, r)
}

// checkRing compares the index with its invariants. Nothing else runs.
func checkRing(t *testing.T, r *Ring) {
	t.Helper()
	until(t, r, "nothing is left to do", func() bool { return len(r.inCondition(isFull))+len(r.inCondition(isCondemned)) == 0 })
	live := map[*generation]int{}
	known := map[*generation]bool{}
	for _, g := range r.generations() {
		known[g] = true
	}
	r.index.mu.RLock()
	defer r.index.mu.RUnlock()
	for id, e := range r.index.blocks {
		live[e.gen]++
		if !known[e.gen] {
			t.Errorf("block %s is in generation %d, which has gone", id, e.gen.seq)
		}
	}
	for g := range known {
		if g.live != live[g] {
			t.Errorf("generation %d counts %d blocks and has %d", g.seq, g.live, live[g])
		}
	}
}

func TestRingClosesWhileItIsUsed(t *testing.T) {
	t.Parallel()
	for round := range 3 {
		dir := ringDir(t)
		m := newRingMaker(4, 64)
		r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
		var users sync.WaitGroup
		var stored atomic.Int64
		begun := make(chan struct{}, 1000)
		for user := range int32(3) {
			users.Go(func() {
				for number := user * 1000; ; number++ {
					batch := m.chain(number, 3)
					err := r.Put(context.Background(), batch)
					if errors.Is(err, errRingClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					stored.Add(3)
					m.verify(t, r, batch[0].Header.ID)
					begun <- struct{}{}
				}
			})
		}
		for range 10 + 30*round {
			<-begun
		}
		closeRing(t, r)
		users.Wait()
		if _, err := r.Get(t.Context(), block.ID{1}, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("Get after Close: %v", err)
		}
		r.Forget(block.ID{1})
		r.Touch([]block.ID{{1}})
		before := r.Stats().Blocks
		r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
		if n := r.Stats().Blocks; n != before || n == 0 {
			t.Errorf("%d blocks after opening again; there were %d", n, before)
		}
	}
}

func TestRingRefusesSecondProcess(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	_, err := OpenRing(dir, RingOptions{Bytes: 32 << 20})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "another process is using it") {
		t.Errorf("the second says: %v", err)
	}
	closeRing(t, r)
	closeRing(t, openTestRing(t, dir, RingOptions{Bytes: 32 << 20}))
}

func TestRingBudgets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ budget, payload int64 }{{0, 0}, {1 << 20, 0}, {32<<20 - 1, 0}, {64 << 20, 8 << 20}, {100 << 20, 64 << 20}} {
		_, err := OpenRing(ringDir(t), RingOptions{Bytes: c.budget, BlockBytes: c.payload})
		if err == nil {
			t.Fatalf("a budget of %d for blocks of %d passes", c.budget, c.payload)
		}
		var least int64
		if i := strings.Index(err.Error(), "at least "); i < 0 {
			t.Fatalf("%v does not say what is allowed", err)
		} else if _, err := fmt.Sscanf(err.Error()[i:], "at least %d", &least); err != nil {
			t.Fatal(err)
		}
		if _, err := planRing(least, c.payload); err != nil {
			t.Errorf("the smallest budget that is allowed is not: %v", err)
		}
		if _, err := planRing(least-1<<20, c.payload); err == nil {
			t.Errorf("for blocks of %d less than %d is allowed", c.payload, least)
		}
	}
	for budget := int64(32 << 20); budget <= ringBudgetMax; budget += budget/3 + 1 {
		g, err := planRing(budget, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := budget / g.generation
		if n < generationsFew || g.capacity*n < budget*8/10 || g.fixed()+g.margin+g.copies+g.generation > budget || g.entries < 1000 {
			t.Errorf("budget %d: %+v", budget, g)
		}
	}
	if _, err := planRing(ringBudgetMax+1, 0); err == nil {
		t.Error("there is no upper limit")
	}
}

func TestRingRefusesBadRecords(t *testing.T) {
	t.Parallel()
	r := openTestRing(t, ringDir(t), RingOptions{Bytes: 32 << 20})
	m := newRingMaker(4, 64)
	short := m.chain(1, 1)[0]
	short.Payload = short.Payload[1:]
	empty := m.chain(1, 1)[0]
	empty.Header.ID = block.ID{}
	large := newRingMaker(320, 64).chain(1, 1)[0] // 5 MiB in a generation of 4
	for _, rec := range []Record{short, empty, large} {
		if err := r.Put(t.Context(), []Record{rec}); err == nil {
			t.Errorf("block %s of %d bytes passes", rec.Header.ID, len(rec.Payload))
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Put(cancelled, m.chain(1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled Put: %v", err)
	}
	if n := r.Stats().Blocks; n != 0 {
		t.Errorf("%d blocks are held", n)
	}
}

func TestRingSetsOtherFormatsAside(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	put(t, r, m.chain(1, 5)...)
	closeRing(t, r)
	gens, err := filepath.Glob(filepath.Join(dir, generationPrefix+"*"))
	if err != nil || len(gens) != 1 {
		t.Fatalf("%v, %v", gens, err)
	}
	state, err := readState(gens[0])
	if err != nil {
		t.Fatal(err)
	}
	state.Format = generationFormat - 1 // and all else as it should be
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	writeStateText(t, gens[0], string(text))
	for i := range 5 { // more than are kept
		other := filepath.Join(dir, fmt.Sprintf("%s%08d", generationPrefix, 1000+i))
		if err := os.Mkdir(other, 0o700); err != nil {
			t.Fatal(err)
		}
		writeStateText(t, other, `{"format":7,"open":true,"files":[{"name":"MANIFEST"}]}`)
	}
	r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	if s := r.Stats(); s.SetAside != 6 || s.Blocks != 0 {
		t.Errorf("%+v; wanted 6 set aside", s)
	}
	if n := len(r.asides()); n != asidesMax {
		t.Errorf("%d folders are kept; wanted %d", n, asidesMax)
	}
	put(t, r, m.chain(1, 5)...)
}

func writeStateText(t *testing.T, dir, text string) {
	t.Helper()
	if err := replaceFile(filepath.Join(dir, stateName), stateText([]byte(text)), false); err != nil {
		t.Fatal(err)
	}
}

func TestRingForgets(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	chain := m.chain(1, 10)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	put(t, r, chain...)
	r.Forget(chain[4].Header.ID)
	r.Forget(chain[4].Header.ID)
	rollRing(t, r)
	r.Forget(chain[9].Header.ID)
	for range 2 {
		for i, rec := range chain {
			if found := m.verify(t, r, rec.Header.ID); found != (i != 4 && i != 9) {
				t.Errorf("block %d: found is %t", i, found)
			}
		}
		closeRing(t, r)
		r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	}
	for _, rec := range chain {
		r.Forget(rec.Header.ID)
	}
	until(t, r, "the empty generation has gone", func() bool { return r.Stats().Generations == 0 })
	if n := folderBytes(dir); n > 2<<20 {
		t.Errorf("%d bytes on disk after all was forgotten", n)
	}
}

// TestRingStoresWhatWasForgotten writes blocks again into the generation in which
// they were forgotten, any number of times.
func TestRingStoresWhatWasForgotten(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	chain := m.chain(1, 6)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	put(t, r, chain...)
	for i := range 5 { // block i is forgotten i times, and once more if i is odd
		for range i {
			r.Forget(chain[i].Header.ID)
			put(t, r, chain[i])
		}
		if i%2 == 1 {
			r.Forget(chain[i].Header.ID)
		}
	}
	for range 2 {
		for i, rec := range chain {
			if found := m.verify(t, r, rec.Header.ID); found != (i != 1 && i != 3) {
				t.Errorf("block %d: found is %t", i, found)
			}
		}
		closeRing(t, r)
		r = openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	}
}
