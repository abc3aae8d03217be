package prefix

import "tandem/kvstore/block"

// Lease protects a block and all blocks before it from eviction, in every tier,
// until Release. Leases are counted. False: no tier holds the block.
func (t *Tree) Lease(id block.ID) bool {
	i, ok := t.find[id]
	if !ok || t.at(i).tiers == 0 {
		return false
	}
	n := t.at(i)
	was := t.occupancy(n)
	n.leases++
	t.changed(i, was)
	return true
}

// Release ends one lease. It panics if there is none: somebody else's block would
// lose its protection.
func (t *Tree) Release(id block.ID) {
	i, ok := t.find[id]
	if !ok || t.at(i).leases == 0 {
		panic("prefix: release of a block that is not leased: " + id.String())
	}
	n := t.at(i)
	was := t.occupancy(n)
	n.leases--
	t.changed(i, was)
	t.drop(i)
}

// Pin protects a block and all blocks before it from eviction, in every tier, until
// Unpin. A pinned block is not counted: pinning twice is pinning once. False: no
// tier holds it.
func (t *Tree) Pin(id block.ID) bool {
	i, ok := t.find[id]
	if !ok || t.at(i).tiers == 0 {
		return false
	}
	if n := t.at(i); !n.pinned {
		was := t.occupancy(n)
		n.pinned = true
		t.pins++
		t.changed(i, was)
	}
	return true
}

// Unpin ends a pin. False: it was not pinned.
func (t *Tree) Unpin(id block.ID) bool {
	i, ok := t.find[id]
	if !ok || !t.at(i).pinned {
		return false
	}
	n := t.at(i)
	was := t.occupancy(n)
	n.pinned = false
	t.pins--
	t.changed(i, was)
	t.drop(i)
	return true
}

// Pins is the number of pinned blocks, not counting those that they protect.
func (t *Tree) Pins() int { return t.pins }
