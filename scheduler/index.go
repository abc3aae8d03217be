package scheduler

import (
	"cmp"
	"math/bits"
	"slices"

	"tandem/cluster/member"
	"tandem/kvstore/block"
)

// Limits of an Index.
const (
	// NodesMax is the most nodes: a bit each in a word. Those that were forgotten
	// count until they are swept out, which happens at once if room is needed.
	NodesMax = 64
	// BlocksMaxDefault is 63 MB.
	BlocksMaxDefault = 1 << 20
	// NodeBlocksMaxDefault lets no node take the whole index.
	NodeBlocksMaxDefault = BlocksMaxDefault / 2
	// Among victimSample blocks the least useful one goes when there is no room;
	// victimReach entries are looked at to find them.
	victimSample = 8
	victimReach  = 64
	// sweepStep is how many entries are rid of forgotten nodes by each call: some
	// microseconds.
	sweepStep = 128
)

// Limits bound the memory of an Index, which takes 60 bytes for each block that any
// node holds. What does not fit is left out: of some blocks the one that was longest
// not used goes, of equal ones the deepest in its chain, so that chains lose their
// ends first. A node is then thought to hold less than it does.
type Limits struct {
	Blocks     int // of all nodes together; 0: BlocksMaxDefault
	NodeBlocks int // of one node; 0: half of Blocks
}

// Index knows which blocks each node holds in which tier.
//
// Invariants: slots of live nodes, of dead ones that wait to be swept, of those being
// swept, and free ones are disjoint; only bits of live slots are ever set or matched.
// An entry has at least one bit. A node's blocks are the entries with its bit in some
// tier.
type Index struct {
	limits      Limits
	table       table
	nodes       map[member.ID]*indexed
	order       []*indexed // by id
	free        uint64     // slots
	live        uint64
	dead        uint64
	sweeping    uint64
	sweepAt     index
	victimDraw  uint32
	tick        uint32
	dropped     uint64
	predictions []prediction
	heat        heat
}

// indexed is a node of an Index.
type indexed struct {
	id      member.ID
	slot    int
	origin  uint64
	seq     uint64
	retired uint64 // the origin before; its late events are passed over
	blocks  int
}

func (n *indexed) bit() uint64 { return 1 << n.slot }

// NewIndex makes an empty index.
func NewIndex(limits Limits) *Index {
	if limits.Blocks <= 0 {
		limits.Blocks = BlocksMaxDefault
	}
	if limits.NodeBlocks <= 0 {
		limits.NodeBlocks = max(1, limits.Blocks/2)
	}
	return &Index{limits: limits, table: newTable(), nodes: map[member.ID]*indexed{}, free: ^uint64(0), heat: newHeat()}
}

// IndexStats is what an Index holds.
type IndexStats struct {
	Nodes       int
	Blocks      int    // held by any node
	Predictions int    // some may have ended
	Dropped     uint64 // times that a block did not fit, for ever
}

// Stats tells what the index holds.
func (x *Index) Stats() IndexStats {
	return IndexStats{Nodes: len(x.nodes), Blocks: x.table.count, Predictions: len(x.predictions), Dropped: x.dropped}
}

// NodeBlocks is the number of blocks that a node is known to hold.
func (x *Index) NodeBlocks(id member.ID) int {
	if n, ok := x.nodes[id]; ok {
		return n.blocks
	}
	return 0
}

// Apply takes an event of a node. Old and repeated events, and those of the process
// before, are passed over. A *GapError asks for a snapshot: the index is unchanged. A
// *NodesError says that there is no room for one more node.
func (x *Index) Apply(id member.ID, e Event) error {
	x.sweep(sweepStep)
	n := x.nodes[id]
	switch {
	case n != nil && n.origin == e.Origin && e.Seq <= n.seq:
		return nil
	case n != nil && n.origin == e.Origin && e.Seq != n.seq+1:
		return &GapError{Node: id, Want: n.seq + 1, Got: e.Seq}
	case n != nil && n.retired == e.Origin && n.origin != e.Origin:
		return nil
	case n == nil || n.origin != e.Origin:
		if e.Seq != 1 {
			return &GapError{Node: id, Got: e.Seq}
		}
		var err error
		if n, err = x.restart(id, e.Origin); err != nil {
			return err
		}
	}
	n.seq = e.Seq
	switch e.Kind {
	case Stored:
		x.store(n, e.Tier, e.IDs)
	case Removed:
		x.unstore(n, e.Tier, e.IDs)
	case Cleared:
		x.clear(n)
	}
	return nil
}

// Replace says what a node holds; all that was known before is wrong.
func (x *Index) Replace(id member.ID, s Snapshot) error {
	n, err := x.restart(id, s.Origin)
	if err != nil {
		return err
	}
	n.seq = s.Seq
	x.tick++
	last := none
	for i := range s.Held {
		last = x.hold(n, last, &s.Held[i].ID, s.Held[i].Tiers)
	}
	return nil
}

// Forget drops all that is known, and predicted, of a node. It is quick: entries go
// bit by bit with later calls.
func (x *Index) Forget(id member.ID) {
	n, ok := x.nodes[id]
	if !ok {
		x.unpredict(id)
		return
	}
	x.kill(n)
	delete(x.nodes, id)
	x.order = slices.DeleteFunc(x.order, func(o *indexed) bool { return o == n })
}

// restart makes a node that holds nothing.
func (x *Index) restart(id member.ID, origin uint64) (*indexed, error) {
	n, ok := x.nodes[id]
	if ok {
		if n.origin != origin {
			n.retired, n.origin = n.origin, origin
		}
		x.clear(n)
		return n, nil
	}
	slot, ok := x.takeSlot()
	if !ok {
		return nil, &NodesError{Node: id}
	}
	n = &indexed{id: id, slot: slot, origin: origin}
	x.nodes[id] = n
	at, _ := slices.BinarySearchFunc(x.order, id, func(o *indexed, id member.ID) int { return cmp.Compare(o.id, id) })
	x.order = slices.Insert(x.order, at, n)
	return n, nil
}

// clear gives a node a new slot, which no entry has.
func (x *Index) clear(n *indexed) {
	x.kill(n)
	n.blocks = 0
	n.slot, _ = x.takeSlot() // its own is free again, if no other is
}

// kill makes a node's bits and predictions count no more.
func (x *Index) kill(n *indexed) {
	x.live &^= n.bit()
	x.dead |= n.bit()
	x.unpredict(n.id)
}

func (x *Index) takeSlot() (int, bool) {
	for x.free == 0 && x.dead|x.sweeping != 0 {
		x.sweep(int(x.table.fresh) + 1)
	}
	if x.free == 0 {
		return 0, false
	}
	slot := bits.TrailingZeros64(x.free)
	x.free &^= 1 << slot
	x.live |= 1 << slot
	return slot, true
}

// sweep looks at most at n entries to rid them of the bits of dead slots.
func (x *Index) sweep(n int) {
	if x.sweeping == 0 {
		if x.dead == 0 {
			return
		}
		x.sweeping, x.dead, x.sweepAt = x.dead, 0, 0
	}
	for ; n > 0 && x.sweepAt < x.table.fresh; n-- {
		e := x.table.at(x.sweepAt)
		if e.any()&x.sweeping != 0 {
			for t := range e.held {
				e.held[t] &^= x.sweeping
			}
			if e.any() == 0 {
				x.table.remove(x.sweepAt)
			}
		}
		x.sweepAt++
	}
	if x.sweepAt == x.table.fresh {
		x.free |= x.sweeping
		x.sweeping = 0
	}
}

func (x *Index) store(n *indexed, tier Tier, ids []block.ID) {
	if tier >= tierCount {
		return
	}
	x.tick++
	last := none
	for i := range ids {
		last = x.hold(n, last, &ids[i], 1<<tier)
	}
}

// hold notes a block of a node, which probably follows entry last in its chain.
func (x *Index) hold(n *indexed, last index, id *block.ID, tiers Tiers) index {
	if id.IsZero() || tiers&allTiers == 0 {
		return last
	}
	i := x.table.after(last, id)
	if i == none || x.table.at(i).any()&n.bit() == 0 {
		if n.blocks >= x.limits.NodeBlocks && !x.evict(n) || i == none && x.table.count >= x.limits.Blocks && !x.evict(nil) {
			x.dropped++
			return last
		}
		if i = x.table.after(last, id); i == none { // it may have been the victim
			i = x.table.add(id)
			if last != none {
				x.table.at(last).next = i
				x.table.at(i).depth = satDepth(int(x.table.at(last).depth) + 1)
			}
		}
		n.blocks++
	}
	e := x.table.at(i)
	e.used = x.tick
	for t := range tierCount {
		if tiers.Has(t) {
			e.held[t] |= n.bit()
		}
	}
	return i
}

func satDepth(n int) uint16 { return uint16(min(n, 1<<16-1)) }

func (x *Index) unstore(n *indexed, tier Tier, ids []block.ID) {
	if tier >= tierCount {
		return
	}
	last := none
	for k := range ids {
		i := x.table.after(last, &ids[k])
		if i == none || x.table.at(i).held[tier]&n.bit() == 0 {
			continue
		}
		e := x.table.at(i)
		e.held[tier] &^= n.bit()
		if e.any()&n.bit() == 0 {
			n.blocks--
		}
		if e.any() == 0 {
			x.table.remove(i)
			i = none
		}
		last = i
	}
}

// evict makes room for one block, of one node or (nil) in the table. False: nothing
// was found.
func (x *Index) evict(n *indexed) bool {
	victim, seen := none, 0
	for range victimReach {
		// Drawn, as neighbours mostly are of one chain. The seed is always the same.
		x.victimDraw = x.victimDraw*1664525 + 1013904223
		i := index(uint64(x.victimDraw) * uint64(x.table.fresh) >> 32)
		e := x.table.at(i)
		if e.id.IsZero() || n != nil && e.any()&n.bit() == 0 {
			continue
		}
		if victim == none || x.lessUseful(e, x.table.at(victim)) {
			victim = i
		}
		if seen++; seen == victimSample {
			break
		}
	}
	if victim == none {
		return false
	}
	x.dropped++
	x.drop(victim, n)
	return true
}

// lessUseful compares by age: ticks wrap, ages do not.
func (x *Index) lessUseful(a, b *entry) bool {
	if a.used != b.used {
		return x.tick-a.used > x.tick-b.used
	}
	return a.depth > b.depth
}

// drop takes a block from a node, or (nil) from all.
func (x *Index) drop(i index, of *indexed) {
	e := x.table.at(i)
	gone := e.any()
	if of != nil {
		gone = of.bit()
	}
	for _, n := range x.order {
		if e.any()&gone&n.bit() != 0 {
			n.blocks--
		}
	}
	for t := range e.held {
		e.held[t] &^= gone
	}
	if e.any() == 0 {
		x.table.remove(i)
	}
}
