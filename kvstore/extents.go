package kvstore

import "math/bits"

// extents is the free list of an arena: a two-level segregated fit. A region is cut
// into extents, free or not, that form a list by address; free ones are also in a
// list of their class of sizes. Take and put are O(1); a free extent is joined with
// free neighbours at once.
//
// Invariants: the extents cover the region without gap; no two neighbours are free;
// a free extent is in exactly the list of its class, and the bit of a class is set
// if and only if its list is not empty.
type extents struct {
	size   int64
	all    []extent
	unused int32 // list of slots of all, through next
	heads  [classCount]int32
	bits   [(classCount + 63) / 64]uint64
}

type extent struct {
	off, size      int64
	before, behind int32 // by address
	previous, next int32 // in the list of the class
	free           bool
	_              [7]byte
}

const (
	noExtent int32 = -1

	// Each power of two is split into 16 classes, so that a free extent is at most
	// a sixteenth larger than another one of its class.
	classBits  = 4
	classCount = 64 << classBits

	// classScan is how many extents of the class of the wanted size are looked at
	// before a larger class, all of whose extents fit, is taken. Blocks of one model
	// have one size: the first one fits.
	classScan = 32
)

func newExtents(size int64) extents {
	e := extents{size: size, unused: noExtent}
	for i := range e.heads {
		e.heads[i] = noExtent
	}
	first := e.slot()
	e.all[first] = extent{size: size, before: noExtent, behind: noExtent}
	e.list(first)
	return e
}

// classOf is the class of a size that is at least arenaAlign.
func classOf(size int64) int {
	top := bits.Len64(uint64(size)) - 1
	return top<<classBits | int(size>>(top-classBits)&(1<<classBits-1))
}

// take gives an extent of a size that is a multiple of arenaAlign, or noExtent.
func (e *extents) take(size int64) (i int32, off int64) {
	i = e.fit(size)
	if i == noExtent {
		return noExtent, 0
	}
	e.unlist(i)
	if rest := e.all[i].size - size; rest > 0 {
		r := e.slot()
		x := &e.all[i]
		e.all[r] = extent{off: x.off + size, size: rest, before: i, behind: x.behind}
		if x.behind != noExtent {
			e.all[x.behind].before = r
		}
		x.behind, x.size = r, size
		e.list(r)
	}
	return i, e.all[i].off
}

// fit finds a free extent of at least that size.
func (e *extents) fit(size int64) int32 {
	class := classOf(size)
	for i, n := e.heads[class], 0; i != noExtent && n < classScan; i, n = e.all[i].next, n+1 {
		if e.all[i].size >= size {
			return i
		}
	}
	for word := (class + 1) / 64; word < len(e.bits); word++ {
		set := e.bits[word]
		if word == (class+1)/64 {
			set &^= 1<<((class+1)%64) - 1
		}
		if set != 0 {
			return e.heads[word*64+bits.TrailingZeros64(set)]
		}
	}
	return noExtent
}

// put gives an extent back.
func (e *extents) put(i int32) {
	if b := e.all[i].behind; b != noExtent && e.all[b].free {
		e.unlist(b)
		e.join(i, b)
	}
	if b := e.all[i].before; b != noExtent && e.all[b].free {
		e.unlist(b)
		e.join(b, i)
		i = b
	}
	e.list(i)
}

// join adds extent j to i, which lies just before it.
func (e *extents) join(i, j int32) {
	e.all[i].size += e.all[j].size
	e.all[i].behind = e.all[j].behind
	if b := e.all[j].behind; b != noExtent {
		e.all[b].before = i
	}
	e.all[j] = extent{next: e.unused}
	e.unused = j
}

// slot gives a free place in all.
func (e *extents) slot() int32 {
	if i := e.unused; i != noExtent {
		e.unused = e.all[i].next
		return i
	}
	e.all = append(e.all, extent{})
	return int32(len(e.all) - 1)
}

// list makes an extent free.
func (e *extents) list(i int32) {
	class := classOf(e.all[i].size)
	x := &e.all[i]
	x.free, x.previous, x.next = true, noExtent, e.heads[class]
	if x.next != noExtent {
		e.all[x.next].previous = i
	}
	e.heads[class] = i
	e.bits[class/64] |= 1 << (class % 64)
}

// unlist makes an extent not free.
func (e *extents) unlist(i int32) {
	x := &e.all[i]
	class := classOf(x.size)
	x.free = false
	if x.next != noExtent {
		e.all[x.next].previous = x.previous
	}
	if x.previous != noExtent {
		e.all[x.previous].next = x.next
		return
	}
	e.heads[class] = x.next
	if x.next == noExtent {
		e.bits[class/64] &^= 1 << (class % 64)
	}
}
