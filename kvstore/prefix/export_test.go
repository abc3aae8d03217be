package prefix

import (
	"fmt"

	"tandem/kvstore/block"
)

// Check compares the whole tree with its invariants, each recomputed from the
// nodes' own presence, holds and parents.
func (t *Tree) Check() error {
	var totals [tierCount]Totals
	pins, seen := 0, 0
	kids := map[index][tierCount]uint32{}
	children := map[index]uint32{}
	for id, i := range t.find {
		n := t.at(i)
		seen++
		if n.id != id {
			return fmt.Errorf("%v leads to the node of %v", id, n.id)
		}
		if n.pinned {
			pins++
		}
		if n.tiers == 0 && n.children == 0 && !n.held() {
			return fmt.Errorf("%v exists for nobody", id)
		}
		for tier := range tierCount {
			if n.tiers.Has(tier) {
				totals[tier].Blocks++
				totals[tier].Tokens += int64(n.count)
				totals[tier].Bytes += n.bytes
			}
		}
		if n.parent == none {
			if n.count > 0 {
				return fmt.Errorf("%v is known but has no parent", id)
			}
			continue
		}
		p := t.at(n.parent)
		if p.end != n.start() || n.count == 0 {
			return fmt.Errorf("%v starts at %d with %d tokens, its parent ends at %d", id, n.start(), n.count, p.end)
		}
		children[n.parent]++
		k := kids[n.parent]
		for tier := range tierCount {
			if n.occupied(tier) {
				k[tier]++
			}
		}
		kids[n.parent] = k
	}
	if totals != t.totals || pins != t.pins {
		return fmt.Errorf("totals %+v, pins %d; there are %+v and %d", t.totals, t.pins, totals, pins)
	}
	if err := t.checkSlab(seen); err != nil {
		return err
	}
	for id, i := range t.find {
		n := t.at(i)
		if n.children != children[i] || n.kids != kids[i] {
			return fmt.Errorf("%v counts %d children, %v occupied; it has %d, %v", id, n.children, n.kids, children[i], kids[i])
		}
		for tier := range tierCount {
			if (n.heap[tier] > 0) != n.evictable(tier) {
				return fmt.Errorf("%v: evictable from %v is %t, in the heap %t", id, tier, n.evictable(tier), n.heap[tier] > 0)
			}
		}
	}
	return t.checkHeaps()
}

func (t *Tree) checkSlab(used int) error {
	free := 0
	for i := t.slab.free; i != none; i = t.at(i).parent {
		free++
	}
	if free+used != int(t.slab.used) {
		return fmt.Errorf("%d nodes in use and %d free of %d", used, free, t.slab.used)
	}
	return nil
}

func (t *Tree) checkHeaps() error {
	for tier := range tierCount {
		for at, i := range t.heaps[tier].items {
			if int(t.at(i).heap[tier]) != at+1 {
				return fmt.Errorf("%v: place %d of the heap says it is at %d", tier, at, int(t.at(i).heap[tier])-1)
			}
			if at > 0 && t.before(tier, i, t.heaps[tier].items[(at-1)/2]) {
				return fmt.Errorf("%v: place %d of the heap goes before the one above", tier, at)
			}
		}
	}
	return nil
}

// All is what the tree knows of every node.
func (t *Tree) All() map[block.ID]Info {
	all := map[block.ID]Info{}
	for id := range t.find {
		all[id], _ = t.Get(id)
	}
	return all
}
