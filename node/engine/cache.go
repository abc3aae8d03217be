package engine

import "slices"

// cache is what the engine knows of the backend's KV cache: which tokens each
// sequence id holds, and who uses them. It belongs to the owner goroutine.
//
// Invariants, checked in export_test.go: every id is either in free or that of
// exactly one entry; the backend holds under an entry's id the rows of exactly
// entry.tokens, from position 0 on; ledger.used is the number of distinct rows.
type cache struct {
	backend Backend
	cells   int
	canCut  bool
	evicted func(tokens int)

	ledger  ledger
	free    []SeqID
	entries []*entry
	clock   uint64 // orders the uses of entries
}

// entry is one sequence id in use, by a running sequence or, after its end, as
// resident tokens that a later one may take over or share.
type entry struct {
	id     SeqID
	salt   string
	tokens []Token // whose rows are in the cache
	end    *run    // of the chain that counts them; nil if there are none
	owner  *Sequence
	used   uint64
}

func newCache(b Backend, evicted func(int)) cache {
	info := b.Info()
	c := cache{backend: b, cells: info.Cells, canCut: info.CanCut, evicted: evicted}
	for id := info.Sequences - 1; id >= 0; id-- {
		c.free = append(c.free, SeqID(id))
	}
	return c
}

// match finds the entry that spares most of the given tokens, and how many. The
// last token is never spared: its logits are wanted. Where the cache cannot be cut
// only a resident entry of which nothing is left over will do.
func (c *cache) match(tokens []Token, salt string) (best *entry, n int) {
	limit := len(tokens) - 1
	for _, en := range c.entries {
		if en.salt != salt {
			continue
		}
		common := commonPrefix(en.tokens, tokens[:limit])
		if !c.canCut && !en.whole(common) {
			continue
		}
		if common > n || common == n && n > 0 && en.whole(n) {
			best, n = en, common
		}
	}
	return best, n
}

// whole tells whether taking the first n tokens over leaves nothing behind.
func (en *entry) whole(n int) bool { return en.owner == nil && len(en.tokens) == n }

// open makes an entry for s that begins with the first n tokens of src; n may be
// 0. It takes src over if that loses nothing, else it shares its rows.
func (c *cache) open(s *Sequence, src *entry, n int) *entry {
	if n > 0 && src.whole(n) {
		return c.adopt(s, src)
	}
	if src != nil {
		c.touch(src)
	}
	if len(c.free) == 0 && !c.evict(src) {
		// Every id but src is that of a running sequence: src loses its tail.
		if !c.cut(src, n) {
			c.drop(src)
			return c.open(s, nil, 0)
		}
		return c.adopt(s, src)
	}
	en := &entry{id: c.free[len(c.free)-1], salt: s.salt, owner: s}
	c.free = c.free[:len(c.free)-1]
	c.entries = append(c.entries, en)
	c.touch(en)
	if n > 0 {
		c.backend.Copy(src.id, en.id, 0, n)
		en.tokens = src.tokens[:n:n]
		en.end = c.ledger.fork(src.end, len(src.tokens), n)
	}
	return en
}

// adopt makes a resident entry that of s.
func (c *cache) adopt(s *Sequence, en *entry) *entry {
	en.owner = s
	c.ledger.enliven(en.end)
	c.touch(en)
	return en
}

// cut drops a resident entry's tokens from n on. False: the model cannot.
func (c *cache) cut(en *entry, n int) bool {
	if n == 0 || !c.backend.Remove(en.id, n, -1) {
		return false
	}
	end := c.ledger.fork(en.end, len(en.tokens), n)
	c.ledger.drop(en.end)
	c.ledger.retire(end)
	en.tokens, en.end = en.tokens[:n], end
	return true
}

// grow says that rows of a running entry were computed: it now holds tokens.
func (c *cache) grow(en *entry, tokens []Token) {
	en.end = c.ledger.grow(en.end, len(tokens)-len(en.tokens))
	en.tokens = tokens
}

// keep makes a running entry resident, unless nobody could want it because
// another one holds its tokens too.
func (c *cache) keep(en *entry) {
	c.ledger.retire(en.end)
	en.owner = nil
	c.touch(en)
	if len(en.tokens) == 0 {
		c.drop(en)
		return
	}
	if !c.canCut {
		return // a longer state cannot stand for a shorter one
	}
	for i := len(c.entries) - 1; i >= 0; i-- {
		other := c.entries[i]
		if other == en || other.owner != nil || other.salt != en.salt {
			continue
		}
		switch commonPrefix(other.tokens, en.tokens) {
		case len(en.tokens):
			c.touch(other)
			c.drop(en)
			return
		case len(other.tokens):
			c.drop(other)
		}
	}
}

// drop frees an entry: its id at once, its cells unless they are shared.
func (c *cache) drop(en *entry) {
	if en.owner != nil {
		c.ledger.retire(en.end)
		en.owner = nil
	}
	c.ledger.drop(en.end)
	c.backend.Remove(en.id, 0, -1)
	c.free = append(c.free, en.id)
	i := slices.Index(c.entries, en)
	c.entries = slices.Delete(c.entries, i, i+1)
}

// evict drops the resident entry that was used least recently, except spare, and
// returns false if there is none.
func (c *cache) evict(spare *entry) bool {
	var oldest *entry
	for _, en := range c.entries {
		if en.owner == nil && en != spare && (oldest == nil || en.used < oldest.used) {
			oldest = en
		}
	}
	if oldest == nil {
		return false
	}
	c.evicted(len(oldest.tokens))
	c.drop(oldest)
	return true
}

// makeRoom evicts until n cells are free and returns how many are: fewer if running
// sequences hold the rest.
func (c *cache) makeRoom(n int) int {
	for c.cells-c.ledger.used < n && c.evict(nil) {
	}
	return c.cells - c.ledger.used
}

func (c *cache) touch(en *entry) {
	c.clock++
	en.used = c.clock
}

// commonPrefix is the number of leading tokens that a and b have in common.
func commonPrefix(a, b []Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
