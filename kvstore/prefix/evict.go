package prefix

import (
	"bytes"
	"math"

	"tandem/kvstore/block"
)

// ranksPerHalfLife is how finely values are told apart before it matters whether a
// block would be lost: within an eighth of a half-life they count as equal.
const ranksPerHalfLife = 8

// Victim is a block that Evict took from a tier.
type Victim struct {
	ID     block.ID
	Tokens int
	Bytes  int64
	Left   Tiers // where it still is
}

// Evict takes blocks from a tier until their bytes amount to wanted, there are most
// of them, or no block may go, and appends them to victims in the order in which
// they went: the least valuable of those that nothing follows in that tier. Of about equal ones the
// first to go is held in another tier, too; then the one of less value, which among
// blocks used equally often is the one used longest ago; then the deepest. Blocks that are leased or pinned, or that are
// before such a block, stay.
func (t *Tree) Evict(tier Tier, wanted int64, most int, victims []Victim) []Victim {
	h := &t.heaps[tier]
	for freed := int64(0); freed < wanted && len(h.items) > 0 && most > 0; most-- {
		v := t.evict(h.items[0], tier)
		freed += v.Bytes
		victims = append(victims, v)
	}
	return victims
}

// EvictBlock takes one block from a tier. False: it is not there, or may not go.
func (t *Tree) EvictBlock(tier Tier, id block.ID) (Victim, bool) {
	i, ok := t.find[id]
	if !ok || !t.at(i).evictable(tier) {
		return Victim{}, false
	}
	return t.evict(i, tier), true
}

func (t *Tree) evict(i index, tier Tier) Victim {
	n := t.at(i)
	v := Victim{ID: n.id, Tokens: int(n.count), Bytes: n.bytes, Left: n.tiers.without(tier)}
	t.take(i, tier)
	t.drop(i)
	return v
}

// heap orders the blocks of a tier that may go, the first to go on top.
type heap struct{ items []index }

// settle puts a node where it belongs in the heap of a tier, if it does, after
// something about it changed.
func (t *Tree) settle(i index, tier Tier) {
	n := t.at(i)
	h := &t.heaps[tier]
	at := int(n.heap[tier]) - 1
	switch {
	case !n.evictable(tier):
		if at >= 0 {
			t.pull(tier, at)
		}
		return
	case at < 0:
		h.items = append(h.items, i)
		at = len(h.items) - 1
		n.heap[tier] = uint32(at) + 1
	}
	t.down(tier, t.up(tier, at))
}

// pull takes the node at a place out of the heap.
func (t *Tree) pull(tier Tier, at int) {
	h := &t.heaps[tier]
	last := len(h.items) - 1
	t.at(h.items[at]).heap[tier] = 0
	if at != last {
		t.place(tier, at, h.items[last])
	}
	h.items = h.items[:last]
	if at < last {
		t.down(tier, t.up(tier, at))
	}
}

// place puts node i at a place of the heap.
func (t *Tree) place(tier Tier, at int, i index) {
	t.heaps[tier].items[at] = i
	t.at(i).heap[tier] = uint32(at) + 1
}

// up moves a node towards the top as far as it should go and returns its place.
func (t *Tree) up(tier Tier, at int) int {
	items := t.heaps[tier].items
	i := items[at]
	for at > 0 {
		above := (at - 1) / 2
		if !t.before(tier, i, items[above]) {
			break
		}
		t.place(tier, at, items[above])
		at = above
	}
	t.place(tier, at, i)
	return at
}

// down moves a node away from the top as far as it should go.
func (t *Tree) down(tier Tier, at int) {
	items := t.heaps[tier].items
	i := items[at]
	for {
		below := 2*at + 1
		if below >= len(items) {
			break
		}
		if below+1 < len(items) && t.before(tier, items[below+1], items[below]) {
			below++
		}
		if !t.before(tier, items[below], i) {
			break
		}
		t.place(tier, at, items[below])
		at = below
	}
	t.place(tier, at, i)
}

// before tells whether a goes before b. No two nodes are equal: the ids decide in
// the end.
func (t *Tree) before(tier Tier, i, j index) bool {
	a, b := t.at(i), t.at(j)
	if x, y := math.Floor(a.value*ranksPerHalfLife), math.Floor(b.value*ranksPerHalfLife); x != y {
		return x < y
	}
	if x, y := a.tiers.without(tier) != 0, b.tiers.without(tier) != 0; x != y {
		return x
	}
	if a.value != b.value {
		return a.value < b.value
	}
	if a.end != b.end {
		return a.end > b.end
	}
	return bytes.Compare(a.id[:], b.id[:]) < 0
}
