package kvstore

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"

	"tandem/kvstore/block"
)

const testBudget = 64 << 20

func TestRingKeepsBlocks(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	chain := m.chain(1, 40)
	r := openTestRing(t, dir, RingOptions{Bytes: testBudget})
	put(t, r, chain...)
	put(t, r, chain[:3]...) // again: nothing happens
	check := func(when string) {
		t.Helper()
		for _, rec := range chain {
			if !m.verify(t, r, rec.Header.ID) {
				t.Fatalf("%s: block at %d is not found", when, rec.Header.Start)
			}
		}
		found := map[block.ID]block.Header{}
		r.Walk(func(h block.Header, bytes int64) bool {
			if bytes < int64(h.PayloadBytes) {
				t.Errorf("%s: %d bytes for a payload of %d", when, bytes, h.PayloadBytes)
			}
			found[h.ID] = h
			return true
		})
		for _, rec := range chain {
			want, got := rec.Header, found[rec.Header.ID]
			want.Tokens, want.Digest = nil, block.Digest{}
			if got.ID != want.ID || got.Parent != want.Parent || got.Start != want.Start || got.Count != want.Count ||
				got.PayloadBytes != want.PayloadBytes || got.Fingerprint != want.Fingerprint {
				t.Fatalf("%s: Walk gives %+v; wanted %+v", when, got, want)
			}
		}
		if s := r.Stats(); s.Blocks != len(chain) || len(found) != len(chain) {
			t.Errorf("%s: %d blocks by Stats, %d by Walk; wanted %d", when, s.Blocks, len(found), len(chain))
		}
	}
	check("at once")
	closeRing(t, r)
	for range 3 {
		r = openTestRing(t, dir, RingOptions{Bytes: testBudget})
		check("after a restart")
		more := m.next(chain[len(chain)-1].Header.ID, len(chain)*m.count, 7)
		put(t, r, more)
		chain = append(chain, more)
		check("after one more")
		closeRing(t, r)
	}
	r = openTestRing(t, dir, RingOptions{Bytes: testBudget})
	if _, err := r.Get(context.Background(), chain[0].Header.ID, func(int) []byte { return nil }); !errors.Is(err, errNoMemory) {
		t.Errorf("without memory: %v", err)
	}
	if !m.verify(t, r, chain[0].Header.ID) {
		t.Error("the block is gone because there was no memory for it")
	}
}

// KV_BUDGET_MB=1024 writes 6 GiB.
func TestRingStaysWithinItsBudget(t *testing.T) {
	t.Parallel()
	testBudget := int64(32 << 20)
	if s := os.Getenv("KV_BUDGET_MB"); s != "" {
		n, _ := strconv.ParseInt(s, 10, 64)
		testBudget = n << 20
	}
	dir := ringDir(t)
	m := newRingMaker(8, 64) // 128 KiB
	lost := map[block.ID]bool{}
	r := openTestRing(t, dir, RingOptions{Bytes: testBudget, Lost: func(ids []block.ID) {
		for _, id := range ids {
			lost[id] = true
		}
	}})
	hot := m.chain(1, 6) // within what is copied forward
	put(t, r, hot...)
	s := sample(dir)
	written := int64(0)
	var last block.ID
	for number := int32(1000); written < 6*testBudget; number++ {
		batch := m.chain(number, 4)
		put(t, r, batch...)
		r.Touch(ringIDs(hot))
		last = batch[3].Header.ID
		for _, rec := range batch {
			written += int64(len(rec.Payload))
		}
	}
	most, mean, n := s.end()
	t.Logf("%d samples: most %.3f, mean %.3f of the budget", n, float64(most)/float64(testBudget), mean/float64(testBudget))
	if most > testBudget {
		t.Errorf("%d bytes on disk; the budget is %d", most, testBudget)
	}
	for _, rec := range hot {
		if !m.verify(t, r, rec.Header.ID) {
			t.Errorf("block at %d was touched all the time and is gone", rec.Header.Start)
		}
	}
	if !m.verify(t, r, last) {
		t.Error("the last block is not found")
	}
	closeRing(t, r)
	for _, rec := range hot {
		if lost[rec.Header.ID] {
			t.Error("a block that was kept is reported lost")
		}
	}
	if int64(len(lost)) < 5*testBudget/(150<<10) {
		t.Errorf("%d blocks reported lost of %d bytes", len(lost), written)
	}
	if n := folderBytes(dir); n > testBudget {
		t.Errorf("%d bytes after closing", n)
	}
}

// Each start begins a generation. They must not push the full ones out.
func TestRingMergesSmallGenerations(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(4, 64)
	var stored []block.ID
	for number := range int32(20) {
		r := openTestRing(t, dir, RingOptions{Bytes: testBudget})
		n := 3
		if number == 0 {
			n = 80 // most of one generation
		}
		batch := m.chain(number, n)
		put(t, r, batch...)
		stored = append(stored, ringIDs(batch)...)
		until(t, r, "there are few generations", func() bool { return r.Stats().Generations <= r.geo.generations() })
		closeRing(t, r)
	}
	r := openTestRing(t, dir, RingOptions{Bytes: testBudget})
	for _, id := range stored {
		if !m.verify(t, r, id) {
			t.Fatal("a block is gone")
		}
	}
	if n := r.Stats().Generations; n < 2 || n > r.geo.generations() {
		t.Errorf("%d generations; wanted at most %d", n, r.geo.generations())
	}
}

func TestRingWithSmallerBudget(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(8, 64)
	r := openTestRing(t, dir, RingOptions{Bytes: testBudget})
	var stored []block.ID
	for number := range int32(80) {
		batch := m.chain(number, 5)
		put(t, r, batch...)
		stored = append(stored, ringIDs(batch)...)
	}
	closeRing(t, r)
	const less = testBudget / 2
	if n := folderBytes(dir); n < less {
		t.Fatalf("only %d bytes are on disk", n)
	}
	r = openTestRing(t, dir, RingOptions{Bytes: less})
	if n := folderBytes(dir); n > less {
		t.Errorf("%d bytes on disk; the budget is %d", n, less)
	}
	if !m.verify(t, r, stored[len(stored)-1]) || m.verify(t, r, stored[0]) {
		t.Error("wanted the youngest block and not the oldest")
	}
}
