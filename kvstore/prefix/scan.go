package prefix

import "tandem/kvstore/block"

// Info is what the tree knows of a node.
type Info struct {
	Block            // Start and Count are 0 for a root; Count is 0 for a gap whose block was never seen
	Tiers    Tiers   // empty: a root or a gap
	Uses     int     // since it was added
	LastUse  Tick    // 0: never
	Value    float64 // log2 of the decayed uses plus time over half-life: greater is more valuable
	Spared   int     // uses that made computing unnecessary
	Pinned   bool    // itself, not by a block after it
	Leases   int     // on itself
	Children int     // blocks that follow, in any tier
}

// Get tells what is known of a block. False: nothing.
func (t *Tree) Get(id block.ID) (Info, bool) {
	i, ok := t.find[id]
	if !ok {
		return Info{}, false
	}
	return t.info(i), true
}

func (t *Tree) info(i index) Info {
	n := t.at(i)
	info := Info{
		Block: Block{ID: n.id, Start: int(n.start()), Count: int(n.count), Bytes: n.bytes},
		Tiers: n.tiers, Uses: int(n.uses), LastUse: n.lastUse, Value: n.value, Spared: int(n.saved),
		Pinned: n.pinned, Leases: int(n.leases), Children: int(n.children),
	}
	if n.parent != none {
		info.Parent = t.at(n.parent).id
	}
	return info
}

// Path appends a block and all blocks before it that are known, the last first,
// without the root, and at most limit of them.
func (t *Tree) Path(id block.ID, limit int, path []block.ID) []block.ID {
	i, ok := t.find[id]
	if !ok {
		return path
	}
	for ; i != none && t.at(i).end > 0 && limit > 0; limit-- {
		path = append(path, t.at(i).id)
		i = t.at(i).parent
	}
	return path
}

// Scan appends what is known of up to limit nodes, in no particular order, and
// returns where to go on; 0 begins, and a result of 0 ends. The caller may unlock
// in between: nodes that come or go meanwhile may be missed, others are seen once.
func (t *Tree) Scan(from, limit int, infos []Info) ([]Info, int) {
	end := min(from+limit, int(t.slab.used))
	for i := from; i < end; i++ {
		if n := t.at(index(i)); n.tiers != 0 || n.children > 0 || n.held() {
			infos = append(infos, t.info(index(i)))
		}
	}
	if end == int(t.slab.used) {
		end = 0
	}
	return infos, end
}
