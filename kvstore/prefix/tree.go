package prefix

import (
	"fmt"

	"tandem/kvstore/block"
)

// Tick is a time in a unit and from an origin that the caller chooses; 0 is "never".
type Tick uint64

// Tier is a place where blocks are held.
type Tier uint8

// The tiers.
const (
	RAM Tier = iota
	Disk
	tierCount
)

// String is the tier's name in messages, lists and metrics.
func (t Tier) String() string {
	switch t {
	case RAM:
		return "ram"
	case Disk:
		return "disk"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// Tiers is a set of tiers.
type Tiers uint8

// Has tells whether the set contains t.
func (s Tiers) Has(t Tier) bool { return s>>t&1 != 0 }

func (s Tiers) with(t Tier) Tiers    { return s | 1<<t }
func (s Tiers) without(t Tier) Tiers { return s &^ (1 << t) }

// Limits of a block, far above what package block allows.
const (
	countMax = 1<<16 - 1 // tokens of a block
	endMax   = 1<<31 - 1 // tokens up to the end of a block
)

// Block is what the tree is told of a block.
type Block struct {
	ID, Parent block.ID
	Start      int   // position of its first token; 0: Parent is a root
	Count      int   // tokens
	Bytes      int64 // of its payload
}

// ConflictError says that a block does not fit what is known: a known id with
// another parent or span, or a parent that ends elsewhere. Ids are digests of just
// that, so one of the two comes from damaged data.
type ConflictError struct {
	ID   block.ID
	What string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("block %v contradicts what is known: %s", e.ID, e.What)
}

// Totals is what a tier holds.
type Totals struct {
	Blocks int
	Tokens int64
	Bytes  int64
}

// index is the place of a node in the slab; none is no node.
type index = int32

const none index = -1

// node is a block, a root, or a gap whose block is not held.
//
// Invariants, for every tier: kids[tier] is the number of children that are
// occupied in it; a node is occupied in a tier if it is present there, held by a
// lease or pin, or has kids[tier] > 0; it is in the tier's heap, at heap[tier]-1, if
// and only if it is present, not held, and kids[tier] is 0. A node is known (count
// > 0) if it was ever added; then parent is not none. The end of a parent is the
// start of each child, so ends grow along every path and no path is a cycle. A node
// exists while it is present anywhere, held, or has children.
type node struct {
	id       block.ID
	next     index // hint: the child that was looked up last, or another node by now
	count    uint16
	tiers    Tiers
	pinned   bool
	bytes    int64
	value    float64 // log2 of the decayed uses, see touch
	lastUse  Tick
	parent   index // none: not known yet, or a root
	end      uint32
	uses     uint32
	saved    uint32
	leases   uint32
	children uint32
	kids     [tierCount]uint32
	heap     [tierCount]uint32 // place in the heap + 1; 0: not in it
}

func (n *node) held() bool { return n.pinned || n.leases > 0 }

func (n *node) occupied(t Tier) bool { return n.tiers.Has(t) || n.kids[t] > 0 || n.held() }

func (n *node) evictable(t Tier) bool { return n.tiers.Has(t) && n.kids[t] == 0 && !n.held() }

// start is the position of the node's first token.
func (n *node) start() uint32 { return n.end - uint32(n.count) }

// Tree is the set of blocks that are held.
type Tree struct {
	halfLife float64 // in ticks
	slab     slab
	find     map[block.ID]index
	heaps    [tierCount]heap
	totals   [tierCount]Totals
	pins     int

	// Changed is called whenever a block comes into a tier or goes; it must not use
	// the tree. It may be nil.
	Changed func(tier Tier, id block.ID, present bool)
}

// New makes an empty tree in which a use counts half after halfLife ticks.
// halfLife must not be 0.
func New(halfLife Tick) *Tree {
	if halfLife == 0 {
		panic("prefix: the half-life is 0; it must be at least 1 tick")
	}
	return &Tree{halfLife: float64(halfLife), slab: slab{free: none}, find: map[block.ID]index{}}
}

// Len is the number of nodes: blocks in any tier, roots, and gaps.
func (t *Tree) Len() int { return len(t.find) }

// Totals is what a tier holds.
func (t *Tree) Totals(tier Tier) Totals { return t.totals[tier] }

// Add says that a tier holds a block. It is no use: call Touch for that. Adding
// what is there already changes nothing. A *ConflictError leaves the tree as it was.
func (t *Tree) Add(tier Tier, b Block) error {
	if err := t.check(b); err != nil {
		return err
	}
	i, ok := t.find[b.ID]
	if !ok {
		i = t.make(b.ID, b.Start+b.Count)
	}
	n := t.at(i)
	if n.count == 0 {
		n.count, n.bytes = uint16(b.Count), b.Bytes
		t.link(i, b)
		n = t.at(i)
	}
	if n.tiers.Has(tier) {
		return nil
	}
	was := t.occupancy(n)
	n.tiers = n.tiers.with(tier)
	t.count(n, tier, 1)
	t.changed(i, was)
	return nil
}

// check tells whether a block fits what is known.
func (t *Tree) check(b Block) error {
	conflict := func(format string, args ...any) error {
		return &ConflictError{ID: b.ID, What: fmt.Sprintf(format, args...)}
	}
	if b.Start < 0 || b.Count < 1 || b.Count > countMax || b.Start > endMax-b.Count || b.Bytes < 0 {
		return conflict("tokens %d to %d, %d bytes", b.Start, b.Start+b.Count, b.Bytes)
	}
	if b.ID == b.Parent || b.ID.IsZero() {
		return conflict("it is its own parent, or has no id")
	}
	if i, ok := t.find[b.ID]; ok {
		n := t.at(i)
		if int(n.end) != b.Start+b.Count {
			return conflict("it ends at token %d, others say %d", b.Start+b.Count, n.end)
		}
		if n.count > 0 && (int(n.count) != b.Count || n.bytes != b.Bytes || t.at(n.parent).id != b.Parent) {
			return conflict("%d tokens, %d bytes after block %v; it was added with %d, %d and %v",
				b.Count, b.Bytes, b.Parent, n.count, n.bytes, t.at(n.parent).id)
		}
	}
	if i, ok := t.find[b.Parent]; ok && int(t.at(i).end) != b.Start {
		return conflict("it starts at token %d, its parent ends at %d", b.Start, t.at(i).end)
	}
	return nil
}

// link makes a node that was not known the child of its parent, which is made if it
// is not there.
func (t *Tree) link(i index, b Block) {
	p, ok := t.find[b.Parent]
	if !ok {
		p = t.make(b.Parent, b.Start)
	}
	n := t.at(i)
	n.parent = p
	t.at(p).children++
	t.at(p).next = i
	for tier := range tierCount {
		if n.occupied(tier) {
			t.raise(p, tier, 1)
		}
	}
}

// make makes a node without presence.
func (t *Tree) make(id block.ID, end int) index {
	i := t.slab.get()
	*t.at(i) = node{id: id, end: uint32(end), parent: none, next: none}
	t.find[id] = i
	return i
}

// Remove says that a tier does not hold a block any more, whoever uses it. It
// returns false if the tier did not.
func (t *Tree) Remove(tier Tier, id block.ID) bool {
	i, ok := t.find[id]
	if !ok || !t.at(i).tiers.Has(tier) {
		return false
	}
	t.take(i, tier)
	t.drop(i)
	return true
}

// take ends the presence of a node in a tier.
func (t *Tree) take(i index, tier Tier) {
	n := t.at(i)
	was := t.occupancy(n)
	n.tiers = n.tiers.without(tier)
	t.count(n, tier, -1)
	t.changed(i, was)
}

func (t *Tree) count(n *node, tier Tier, sign int) {
	s := &t.totals[tier]
	s.Blocks += sign
	s.Tokens += int64(sign) * int64(n.count)
	s.Bytes += int64(sign) * n.bytes
	if t.Changed != nil {
		t.Changed(tier, n.id, sign > 0)
	}
}

// drop removes a node that nobody needs, and its ancestors that were there only for
// its sake.
func (t *Tree) drop(i index) {
	for i != none {
		n := t.at(i)
		if n.tiers != 0 || n.children > 0 || n.held() {
			return
		}
		p := n.parent
		if p != none {
			t.at(p).children--
		}
		delete(t.find, n.id)
		t.slab.put(i)
		i = p
	}
}

// occupancy is in which tiers a node is occupied.
func (t *Tree) occupancy(n *node) (s Tiers) {
	for tier := range tierCount {
		if n.occupied(tier) {
			s = s.with(tier)
		}
	}
	return s
}

// changed restores the invariants after presence or holds of a node changed; was is
// its occupancy before.
func (t *Tree) changed(i index, was Tiers) {
	n := t.at(i)
	for tier := range tierCount {
		t.settle(i, tier)
		now := n.occupied(tier)
		if now == was.Has(tier) || n.parent == none {
			continue
		}
		if now {
			t.raise(n.parent, tier, 1)
		} else {
			t.raise(n.parent, tier, -1)
		}
	}
}

// raise says that one more or one less child of i is occupied, and goes up as far
// as that makes a difference.
func (t *Tree) raise(i index, tier Tier, by int32) {
	for i != none {
		n := t.at(i)
		was := n.occupied(tier)
		n.kids[tier] += uint32(by)
		t.settle(i, tier)
		if n.occupied(tier) == was {
			return
		}
		i = n.parent
	}
}

// Found is what Match tells of a block.
type Found struct {
	Tiers  Tiers
	Tokens int32
	Bytes  int64
}

// Match finds the longest run of leading ids of which each is in some tier, and
// appends to found what is known of each.
func (t *Tree) Match(ids []block.ID, found []Found) []Found {
	i := none
	for _, id := range ids {
		i = t.after(i, id)
		if i == none || t.at(i).tiers == 0 {
			break
		}
		n := t.at(i)
		found = append(found, Found{Tiers: n.tiers, Tokens: int32(n.count), Bytes: n.bytes})
	}
	return found
}

// after finds the node of an id that probably follows node i. Following the hints
// of a path is several times faster than the map, whose accesses miss all caches.
func (t *Tree) after(i index, id block.ID) index {
	if i != none {
		if next := t.at(i).next; next != none && t.at(next).id == id && !id.IsZero() {
			return next
		}
	}
	found, ok := t.find[id]
	if !ok {
		return none
	}
	if i != none {
		t.at(i).next = found
	}
	return found
}
