package sim

// tier is a set of blocks in the order of their use. Blocks that running sequences
// use are pinned and never go.
//
// Invariants: len(places) = the blocks on the list + pinned; a block is on the list iff
// its pins are 0.
type tier struct {
	places map[uint64]int32
	cells  []cell // the first is the list's: its next is the youngest, its prev the oldest
	free   int32
	pinned int
}

type cell struct {
	block      uint64
	prev, next int32
	pins       int32
}

func newTier() *tier {
	return &tier{places: map[uint64]int32{}, cells: []cell{{}}, free: -1}
}

func (t *tier) size() int { return len(t.places) }

func (t *tier) has(block uint64) bool { _, ok := t.places[block]; return ok }

// held is the leading run of a chain that is there, from a place on.
func (t *tier) held(chain []uint64, from int) int {
	for i := from; i < len(chain); i++ {
		if !t.has(chain[i]) {
			return i
		}
	}
	return max(from, len(chain))
}

func (t *tier) unlink(i int32) {
	c := &t.cells[i]
	t.cells[c.prev].next, t.cells[c.next].prev = c.next, c.prev
}

func (t *tier) front(i int32) {
	c := &t.cells[i]
	c.prev, c.next = 0, t.cells[0].next
	t.cells[c.next].prev = i
	t.cells[0].next = i
}

// add makes a block that is not there the youngest.
func (t *tier) add(block uint64) int32 {
	i := t.free
	if i >= 0 {
		t.free = t.cells[i].next
	} else {
		i = int32(len(t.cells))
		t.cells = append(t.cells, cell{})
	}
	t.cells[i] = cell{block: block}
	t.places[block] = i
	t.front(i)
	return i
}

// use adds a block, or makes it the youngest. It tells whether it is new.
func (t *tier) use(block uint64) (added bool) {
	i, ok := t.places[block]
	if !ok {
		t.add(block)
		return true
	}
	if t.cells[i].pins == 0 {
		t.unlink(i)
		t.front(i)
	}
	return false
}

// pin keeps a block that is there.
func (t *tier) pin(block uint64) {
	i := t.places[block]
	if t.cells[i].pins == 0 {
		t.unlink(i)
		t.pinned++
	}
	t.cells[i].pins++
}

// unpin makes the block the youngest once nobody keeps it.
func (t *tier) unpin(block uint64) {
	i := t.places[block]
	if t.cells[i].pins--; t.cells[i].pins == 0 {
		t.front(i)
		t.pinned--
	}
}

// evict drops the oldest block that nobody keeps. False: there is none.
func (t *tier) evict() (block uint64, ok bool) {
	i := t.cells[0].prev
	if i == 0 {
		return 0, false
	}
	block = t.cells[i].block
	t.unlink(i)
	delete(t.places, block)
	t.cells[i] = cell{next: t.free}
	t.free = i
	return block, true
}
