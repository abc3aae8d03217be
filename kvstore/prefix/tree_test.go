package prefix_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

const (
	halfLife   = 1000
	blockBytes = 100
	blockCount = 4
)

// id makes the id of the n-th block of a chain; equal arguments give equal ids.
func id(chain, n int) block.ID {
	var out block.ID
	binary.BigEndian.PutUint64(out[:8], uint64(chain))
	binary.BigEndian.PutUint64(out[8:], uint64(n+1))
	return out
}

// chain makes a root's chain of blocks.
func chain(c, length int) (blocks []prefix.Block, ids []block.ID) {
	for n := range length {
		blocks = append(blocks, prefix.Block{
			ID: id(c, n), Parent: id(c, n-1), Start: n * blockCount, Count: blockCount, Bytes: blockBytes,
		})
		ids = append(ids, id(c, n))
	}
	return blocks, ids
}

func add(t *testing.T, tree *prefix.Tree, tier prefix.Tier, blocks ...prefix.Block) {
	t.Helper()
	for _, b := range blocks {
		if err := tree.Add(tier, b); err != nil {
			t.Fatal(err)
		}
	}
	check(t, tree)
}

func check(t *testing.T, tree *prefix.Tree) {
	t.Helper()
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
}

func evict(t *testing.T, tree *prefix.Tree, tier prefix.Tier, bytes int64) []block.ID {
	t.Helper()
	var ids []block.ID
	for _, v := range tree.Evict(tier, bytes, 1<<30, nil) {
		ids = append(ids, v.ID)
	}
	check(t, tree)
	return ids
}

func wantIDs(t *testing.T, what string, got []block.ID, want ...block.ID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestMatchEndsAtTheFirstGap(t *testing.T) {
	tree := prefix.New(halfLife)
	blocks, ids := chain(1, 5)
	add(t, tree, prefix.RAM, blocks[:2]...)
	add(t, tree, prefix.Disk, blocks[1], blocks[2], blocks[4])
	at := tree.Match(ids, nil)
	want := []prefix.Found{
		{Tiers: 1 << prefix.RAM, Tokens: blockCount, Bytes: blockBytes},
		{Tiers: 1<<prefix.RAM | 1<<prefix.Disk, Tokens: blockCount, Bytes: blockBytes},
		{Tiers: 1 << prefix.Disk, Tokens: blockCount, Bytes: blockBytes},
	}
	if !slices.Equal(at, want) {
		t.Errorf("got %v, want %v", at, want)
	}
	add(t, tree, prefix.RAM, blocks[3])
	if at := tree.Match(ids, nil); len(at) != 5 {
		t.Errorf("with the gap filled %d of 5 match", len(at))
	}
}

func TestOrderOfArrivalDoesNotMatter(t *testing.T) {
	blocks, ids := chain(1, 6)
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}, {3, 0, 5, 1, 4, 2}} {
		tree := prefix.New(halfLife)
		for _, n := range order {
			add(t, tree, prefix.RAM, blocks[n])
		}
		if got := len(tree.Match(ids, nil)); got != 6 {
			t.Errorf("order %v: %d of 6 match", order, got)
		}
		if totals := tree.Totals(prefix.RAM); totals != (prefix.Totals{Blocks: 6, Tokens: 24, Bytes: 600}) {
			t.Errorf("order %v: totals %+v", order, totals)
		}
		wantIDs(t, "evicted", evict(t, tree, prefix.RAM, 600), id(1, 5), id(1, 4), id(1, 3), id(1, 2), id(1, 1), id(1, 0))
		if tree.Len() != 0 {
			t.Errorf("order %v: %d nodes remain", order, tree.Len())
		}
	}
}

func TestEvictTakesTheLeastValuableLeaves(t *testing.T) {
	tree := prefix.New(halfLife)
	old, oldIDs := chain(1, 2)
	busy, busyIDs := chain(2, 2)
	young, youngIDs := chain(3, 2)
	for _, c := range [][]prefix.Block{old, busy, young} {
		add(t, tree, prefix.RAM, c...)
	}
	tree.Touch(oldIDs, 1000)
	for range 8 { // worth three half-lives
		tree.Touch(busyIDs, 1000)
	}
	tree.Touch(youngIDs, 3000) // worth two
	wantIDs(t, "evicted", evict(t, tree, prefix.RAM, 3*blockBytes+1), id(1, 1), id(1, 0), id(3, 1), id(3, 0))
	tree.Touch(nil, 0)
	wantIDs(t, "the rest", evict(t, tree, prefix.RAM, 1e9), id(2, 1), id(2, 0))
}

func TestEvictPrefersWhatIsNotLost(t *testing.T) {
	tree := prefix.New(halfLife)
	first, _ := chain(1, 1)
	second, _ := chain(2, 1)
	add(t, tree, prefix.RAM, first[0], second[0])
	tree.Touch([]block.ID{id(1, 0)}, 10_000)
	tree.Touch([]block.ID{id(2, 0)}, 10_010) // about equal, later
	add(t, tree, prefix.Disk, second[0])
	wantIDs(t, "about equal", evict(t, tree, prefix.RAM, 1), id(2, 0))
	add(t, tree, prefix.RAM, second[0])
	tree.Touch([]block.ID{id(2, 0)}, 10_020) // now twice as valuable
	wantIDs(t, "unequal", evict(t, tree, prefix.RAM, 1), id(1, 0))
}

func TestEvictBreaksTies(t *testing.T) {
	tree := prefix.New(halfLife)
	long, longIDs := chain(1, 3)
	short, shortIDs := chain(2, 1)
	add(t, tree, prefix.RAM, long...)
	add(t, tree, prefix.RAM, short...)
	tree.Touch(shortIDs, 10_000)
	tree.Touch(longIDs, 10_000)
	wantIDs(t, "the deepest of equal ones", evict(t, tree, prefix.RAM, 1), id(1, 2))
	tree.Touch(longIDs, 10_000)
	tree.Touch(shortIDs, 10_010) // of one rank, but later
	wantIDs(t, "the oldest of one rank", evict(t, tree, prefix.RAM, 1), id(1, 1))
}

func TestHeldBlocksAndThoseBeforeThemStay(t *testing.T) {
	tree := prefix.New(halfLife)
	blocks, _ := chain(1, 5)
	add(t, tree, prefix.RAM, blocks[:2]...)
	add(t, tree, prefix.Disk, blocks[2:]...)
	if !tree.Lease(id(1, 3)) || tree.Lease(id(9, 9)) {
		t.Fatal("a lease is given for what is held, and only for that")
	}
	if got := evict(t, tree, prefix.RAM, 1e9); len(got) > 0 {
		t.Errorf("evicted %v from RAM, before a leased block on disk", got)
	}
	wantIDs(t, "behind the lease", evict(t, tree, prefix.Disk, 1e9), id(1, 4))
	tree.Pin(id(1, 0))
	tree.Release(id(1, 3))
	wantIDs(t, "behind the pin", evict(t, tree, prefix.RAM, 1e9), id(1, 1))
	if !tree.Unpin(id(1, 0)) || tree.Unpin(id(1, 0)) {
		t.Error("a pin ends once")
	}
	wantIDs(t, "free", evict(t, tree, prefix.RAM, 1e9), id(1, 0))
}

func TestEvictBlockTakesOnlyWhatMayGo(t *testing.T) {
	tree := prefix.New(halfLife)
	blocks, _ := chain(1, 3)
	add(t, tree, prefix.RAM, blocks...)
	tree.Lease(id(1, 0))
	for n, want := range []bool{false, false, true} { // followed, followed, last
		if _, ok := tree.EvictBlock(prefix.RAM, id(1, n)); ok != want {
			t.Errorf("block %d: evicted is %t, want %t", n, ok, want)
		}
		check(t, tree)
	}
	if v, ok := tree.EvictBlock(prefix.RAM, id(1, 1)); !ok || v.Tokens != blockCount || v.Bytes != blockBytes || v.Left != 0 {
		t.Errorf("evicted %+v, %t", v, ok)
	}
	if _, ok := tree.EvictBlock(prefix.RAM, id(1, 0)); ok {
		t.Error("a leased block was evicted")
	}
	if _, ok := tree.EvictBlock(prefix.Disk, id(1, 0)); ok {
		t.Error("a block was evicted from where it was not")
	}
}

func TestALeaseOutlivesItsBlock(t *testing.T) {
	tree := prefix.New(halfLife)
	blocks, _ := chain(1, 3)
	add(t, tree, prefix.RAM, blocks...)
	tree.Lease(id(1, 2))
	tree.Remove(prefix.RAM, id(1, 2)) // it was damaged
	check(t, tree)
	if got := evict(t, tree, prefix.RAM, 1e9); len(got) > 0 {
		t.Errorf("evicted %v", got)
	}
	tree.Release(id(1, 2))
	check(t, tree)
	wantIDs(t, "after the release", evict(t, tree, prefix.RAM, 1e9), id(1, 1), id(1, 0))
	defer func() {
		if recover() == nil {
			t.Error("a second release passed")
		}
	}()
	tree.Release(id(1, 2))
}

func TestDamagedDescriptionsAreRefused(t *testing.T) {
	good, _ := chain(1, 3)
	tests := []struct {
		name string
		edit func(*prefix.Block)
	}{
		{"no tokens", func(b *prefix.Block) { b.Count = 0 }},
		{"too many tokens", func(b *prefix.Block) { b.Count = 1 << 16 }},
		{"negative start", func(b *prefix.Block) { b.Start = -4 }},
		{"end overflows", func(b *prefix.Block) { b.Start = 1<<63 - 1 }},
		{"negative bytes", func(b *prefix.Block) { b.Bytes = -1 }},
		{"no id", func(b *prefix.Block) { b.ID = block.ID{} }},
		{"own parent", func(b *prefix.Block) { b.ID = id(7, 7); b.Parent = b.ID }},
		{"other parent", func(b *prefix.Block) { b.Parent = id(7, 7) }},
		{"other size", func(b *prefix.Block) { b.Bytes++ }},
		{"other start", func(b *prefix.Block) { b.Start++ }},
		{"a cycle", func(b *prefix.Block) { b.ID, b.Parent, b.Start = id(1, 0), id(1, 2), 12 }},
		{"parent ends elsewhere", func(b *prefix.Block) { b.ID, b.Start = id(7, 7), 6 }},
		{"a gap that ends elsewhere", func(b *prefix.Block) { b.ID, b.Parent, b.Start = id(8, 0), id(8, -1), 0 }},
	}
	tree := prefix.New(halfLife)
	add(t, tree, prefix.RAM, good...)
	add(t, tree, prefix.RAM, prefix.Block{ID: id(8, 1), Parent: id(8, 0), Start: 64, Count: 4, Bytes: 1})
	before := tree.All()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := good[1]
			tt.edit(&b)
			var conflict *prefix.ConflictError
			if err := tree.Add(prefix.Disk, b); !errors.As(err, &conflict) {
				t.Errorf("%+v: got %v, want a conflict", b, err)
			}
			check(t, tree)
			after := tree.All()
			for id, info := range before {
				if after[id] != info {
					t.Errorf("%v changed from %+v to %+v", id, info, after[id])
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d nodes, before %d", len(after), len(before))
			}
		})
	}
}

func TestScanSeesEveryNodeOnce(t *testing.T) {
	tree := prefix.New(halfLife)
	for c := range 10 {
		blocks, _ := chain(c, 100)
		add(t, tree, prefix.RAM, blocks...)
	}
	tree.Evict(prefix.RAM, 1e9, 500, nil)
	seen := map[block.ID]int{}
	for from, first := 0, true; first || from > 0; first = false {
		var infos []prefix.Info
		infos, from = tree.Scan(from, 64, nil)
		for _, info := range infos {
			seen[info.ID]++
		}
	}
	for id, info := range tree.All() {
		if seen[id] != 1 {
			t.Errorf("%v (%+v) was seen %d times", id, info, seen[id])
		}
	}
	if len(seen) != tree.Len() {
		t.Errorf("%d nodes were seen, there are %d", len(seen), tree.Len())
	}
}

func TestPathGoesToTheRoot(t *testing.T) {
	tree := prefix.New(halfLife)
	blocks, _ := chain(1, 4)
	add(t, tree, prefix.RAM, blocks...)
	wantIDs(t, "path", tree.Path(id(1, 2), 100, nil), id(1, 2), id(1, 1), id(1, 0))
	wantIDs(t, "short path", tree.Path(id(1, 2), 2, nil), id(1, 2), id(1, 1))
	wantIDs(t, "unknown", tree.Path(id(2, 2), 2, nil))
}
