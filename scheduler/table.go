package scheduler

import (
	"encoding/binary"

	"tandem/kvstore/block"
)

// index is the place of an entry; none is no entry.
type index = int32

const none index = -1

// Entries and bucket heads lie in chunks, so that growing never copies.
const (
	chunkEntries = 1024
	chunkHeads   = 4096
)

// entry is a block that some node holds. A free one has the zero id.
type entry struct {
	id    block.ID
	held  [tierCount]uint64 // per tier, a bit for each node's slot
	link  index             // the next entry of its bucket, or of the free list
	next  index             // hint: the block that was seen after this one
	used  uint32            // Index.tick of the last use
	depth uint16            // hint: blocks before it in its chain
}

func (e *entry) any() (bits uint64) {
	for _, b := range e.held {
		bits |= b
	}
	return bits
}

// table finds entries by id: linear hashing, which splits one bucket for each entry
// that is added and so never stops to rehash a million of them. Ids are keyed hashes
// already; their bits are used as they are.
//
// Invariants: there is a bucket for each entry that there ever was at one time, so
// chains have one entry on average; buckets = 1<<level + a number below 1<<level.
type table struct {
	chunks  []*[chunkEntries]entry
	fresh   index // entries that were ever in use
	free    index
	count   int
	heads   []*[chunkHeads]index
	buckets uint32
	level   uint
}

func newTable() table {
	t := table{free: none}
	t.addBucket()
	return t
}

func (t *table) at(i index) *entry { return &t.chunks[i/chunkEntries][i%chunkEntries] }

func (t *table) head(bucket uint32) *index { return &t.heads[bucket/chunkHeads][bucket%chunkHeads] }

// bucket is where an id belongs.
func (t *table) bucket(id *block.ID) uint32 {
	h := binary.LittleEndian.Uint32(id[:4])
	if b := h & (2<<t.level - 1); b < t.buckets {
		return b
	}
	return h & (1<<t.level - 1)
}

// find looks an id up.
func (t *table) find(id *block.ID) index {
	i := *t.head(t.bucket(id))
	for i != none && t.at(i).id != *id {
		i = t.at(i).link
	}
	return i
}

// after finds the entry of an id that probably follows entry i; along a chain that
// was stored in order this reads memory in order.
func (t *table) after(i index, id *block.ID) index {
	if i == none {
		return t.find(id)
	}
	if next := t.at(i).next; next != none && t.at(next).id == *id && !id.IsZero() {
		return next
	}
	found := t.find(id)
	if found != none {
		t.at(i).next = found
	}
	return found
}

// add makes an entry for an id that has none.
func (t *table) add(id *block.ID) index {
	i := t.free
	if i != none {
		t.free = t.at(i).link
	} else {
		if int(t.fresh) == len(t.chunks)*chunkEntries {
			t.chunks = append(t.chunks, new([chunkEntries]entry))
		}
		i = t.fresh
		t.fresh++
	}
	if t.count++; t.count > int(t.buckets) {
		t.addBucket()
	}
	head := t.head(t.bucket(id))
	*t.at(i) = entry{id: *id, link: *head, next: none}
	*head = i
	return i
}

// remove frees an entry.
func (t *table) remove(i index) {
	p := t.head(t.bucket(&t.at(i).id))
	for *p != i {
		p = &t.at(*p).link
	}
	*p = t.at(i).link
	*t.at(i) = entry{link: t.free, next: none}
	t.free = i
	t.count--
}

// addBucket makes one more bucket and moves to it what now belongs there.
func (t *table) addBucket() {
	added := t.buckets
	if int(added) == len(t.heads)*chunkHeads {
		t.heads = append(t.heads, new([chunkHeads]index))
	}
	*t.head(added) = none
	t.buckets++
	if added == 0 {
		return
	}
	if added == 2<<t.level {
		t.level++
	}
	p := t.head(added - 1<<t.level)
	for *p != none {
		i := *p
		if t.bucket(&t.at(i).id) != added {
			p = &t.at(i).link
			continue
		}
		*p = t.at(i).link
		t.at(i).link = *t.head(added)
		*t.head(added) = i
	}
}
