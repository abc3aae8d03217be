package kvstore

import (
	"cmp"
	"slices"
	"sync"

	"tandem/kvstore/block"
)

// diskIndex knows in which generation each block is. It is rebuilt from keys at
// open and says what Get finds.
//
// Invariants: generation.live is the number of entries that point to it; every id
// in blocks is in the ids of its generation, which may hold others: those that
// were forgotten or moved on.
type diskIndex struct {
	mu     sync.RWMutex
	blocks map[block.ID]diskEntry
}

type diskEntry struct {
	diskMeta
	offset  int64 // of the block in the data file of gen
	gen     *generation
	touched bool // since it was written to gen
}

func (x *diskIndex) get(id block.ID) (diskEntry, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.blocks[id]
	return e, ok
}

func (x *diskIndex) len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.blocks)
}

// add enters a block that was written to g, unless it is already held.
func (x *diskIndex) add(b diskBlock, g *generation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, held := x.blocks[b.id]; held {
		return
	}
	x.blocks[b.id] = diskEntry{diskMeta: b.diskMeta, offset: b.offset, gen: g}
	g.ids = append(g.ids, b.id)
	g.live++
}

// move says that a block was copied to b in another generation. False: it is no
// longer in from, because it was forgotten meanwhile, and the copy must not be found
// either.
func (x *diskIndex) move(b diskBlock, from, to *generation) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, held := x.blocks[b.id]
	if !held || e.gen != from {
		return false
	}
	x.blocks[b.id] = diskEntry{diskMeta: b.diskMeta, offset: b.offset, gen: to}
	from.live--
	to.ids = append(to.ids, b.id)
	to.live++
	return true
}

// remove forgets a block and returns its generation; nil if it is not held. With
// only set, a block that is in another generation stays.
func (x *diskIndex) remove(id block.ID, only *generation) *generation {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, held := x.blocks[id]
	if !held || only != nil && e.gen != only {
		return nil
	}
	delete(x.blocks, id)
	e.gen.live--
	return e.gen
}

// removeAll forgets all blocks of g and returns them.
func (x *diskIndex) removeAll(g *generation) []block.ID {
	x.mu.Lock()
	defer x.mu.Unlock()
	lost := make([]block.ID, 0, g.live)
	for _, id := range g.ids {
		if e, held := x.blocks[id]; held && e.gen == g {
			delete(x.blocks, id)
			lost = append(lost, id)
		}
	}
	g.ids, g.live = nil, 0
	return lost
}

func (x *diskIndex) touch(ids []block.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range ids {
		if e, held := x.blocks[id]; held && !e.touched {
			e.touched = true
			x.blocks[id] = e
		}
	}
}

func (x *diskIndex) live(g *generation) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return g.live
}

// diskChunk is how many blocks are looked at under one hold of the lock.
const diskChunk = 1024

// each calls fn, without the lock, for every block of g that is held at that time.
func (x *diskIndex) each(g *generation, fn func(block.ID, diskEntry) bool) bool {
	type item struct {
		id block.ID
		e  diskEntry
	}
	var chunk []item
	for from := 0; ; from += diskChunk {
		chunk = chunk[:0]
		x.mu.RLock()
		end := min(from+diskChunk, len(g.ids))
		for i := from; i < end; i++ {
			if e, held := x.blocks[g.ids[i]]; held && e.gen == g {
				chunk = append(chunk, item{g.ids[i], e})
			}
		}
		done := end >= len(g.ids)
		x.mu.RUnlock()
		for _, it := range chunk {
			if !fn(it.id, it.e) {
				return false
			}
		}
		if done {
			return true
		}
	}
}

// diskSurvivor is a block of a generation that is about to go, worth copying.
type diskSurvivor struct {
	id block.ID
	diskMeta
}

// survivors picks the blocks of old to copy forward, of at most limit bytes:
// first those that were touched, then those that have descendants in younger
// generations. A block comes with its ancestors in old and after them, so that
// neither the limit nor a copy that stops half-way leaves a hole in a chain.
func (x *diskIndex) survivors(old *generation, younger []*generation, limit int64) []diskSurvivor {
	held := map[block.ID]diskMeta{}
	var touched, parents []block.ID
	x.each(old, func(id block.ID, e diskEntry) bool {
		held[id] = e.diskMeta
		if e.touched {
			touched = append(touched, id)
		}
		return true
	})
	for _, g := range younger {
		x.each(g, func(_ block.ID, e diskEntry) bool {
			if _, here := held[e.parent]; here {
				parents = append(parents, e.parent)
			}
			return true
		})
	}
	out, left := climb(nil, held, touched, limit)
	if left {
		out, _ = climb(out, held, parents, limit-survivorBytes(out))
	}
	return out
}

// all is every block of a generation, in the order and up to the limit of survivors.
func (x *diskIndex) all(g *generation, limit int64) []diskSurvivor {
	held := map[block.ID]diskMeta{}
	var ids []block.ID
	x.each(g, func(id block.ID, e diskEntry) bool {
		held[id] = e.diskMeta
		ids = append(ids, id)
		return true
	})
	out, _ := climb(nil, held, ids, limit)
	return out
}

// climb appends the wanted blocks with their ancestors, and takes them out of held.
// Roots come first. False: the limit is reached.
func climb(out []diskSurvivor, held map[block.ID]diskMeta, wanted []block.ID, limit int64) ([]diskSurvivor, bool) {
	var more []diskSurvivor
	for _, id := range wanted {
		for m, here := held[id]; here; m, here = held[id] {
			more = append(more, diskSurvivor{id, m})
			delete(held, id)
			id = m.parent
		}
	}
	slices.SortFunc(more, func(a, b diskSurvivor) int {
		return cmp.Or(cmp.Compare(a.start, b.start), slices.Compare(a.id[:], b.id[:]))
	})
	for _, s := range more {
		if limit -= s.bytes(); limit < 0 {
			return out, false
		}
		out = append(out, s)
	}
	return out, true
}

func survivorBytes(list []diskSurvivor) (n int64) {
	for _, s := range list {
		n += s.bytes()
	}
	return n
}
