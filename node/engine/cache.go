package engine

// cache is what the engine knows of the backend's KV cache: which tokens each
// sequence id holds, and who uses them. It belongs to the owner goroutine.
//
// Every id has a stream of rows of its own, with room for a whole context: rows
// are never shared, so that nobody's tokens cost others attention or room, and a
// sequence's rows lie in the order of their positions.
//
// Invariants, checked in export_test.go: entries[i].id is i; the backend holds
// under an id the rows of exactly entry.tokens, from position 0 on.
type cache struct {
	backend Backend
	canCut  bool
	canCopy bool
	evicted func(tokens int)
	entries []*entry
	clock   uint64 // orders the uses of entries
}

// entry is one sequence id: empty, in use by a running sequence, or, after its end,
// resident: tokens that a later one may take over or copy.
type entry struct {
	id     SeqID
	salt   string
	tokens []Token // whose rows are in the cache
	owner  *Sequence
	used   uint64
}

func newCache(b Backend, evicted func(int)) cache {
	info := b.Info()
	c := cache{backend: b, canCut: info.CanCut, canCopy: info.CanCut && len(info.KV.Layers) > 0, evicted: evicted}
	for id := range info.Sequences {
		c.entries = append(c.entries, &entry{id: SeqID(id)})
	}
	return c
}

// match finds the entry that spares most of the given tokens, and how many. The
// last token is never spared: its logits are wanted. Where the cache cannot be cut
// only a resident entry of which nothing is left over will do; where it cannot be
// copied, only a resident one.
func (c *cache) match(tokens []Token, salt string) (best *entry, n int) {
	limit := len(tokens) - 1
	for _, en := range c.entries {
		if en.salt != salt || en.owner != nil && !c.canCopy {
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

// cheapTail is the part of a prefix up to which the tokens behind it are given up
// rather than the prefix copied: most likely the old end of the same conversation.
const cheapTail = 4

// open makes an entry for s that begins with the first n tokens of src; n may be
// 0. It takes src over if that loses little, else it copies its rows.
func (c *cache) open(s *Sequence, src *entry, n int) (*entry, error) {
	if n == 0 {
		return c.empty(s), nil
	}
	c.touch(src)
	if src.owner == nil && len(src.tokens)-n <= n/cheapTail || !c.canCopy {
		return c.adopt(s, c.cut(src, n)), nil
	}
	dst := c.victim(src)
	if dst == nil { // every other id is that of a running sequence
		return c.adopt(s, c.cut(src, n)), nil
	}
	c.clear(dst)
	if err := c.backend.Copy(src.id, dst.id, n); err != nil {
		return c.adopt(s, dst), err
	}
	dst.tokens = src.tokens[:n:n]
	return c.adopt(s, dst), nil
}

// empty makes an entry for s that holds nothing.
func (c *cache) empty(s *Sequence) *entry { return c.adopt(s, c.clear(c.victim(nil))) }

// adopt makes an entry that nobody uses that of s.
func (c *cache) adopt(s *Sequence, en *entry) *entry {
	en.owner, en.salt = s, s.salt
	c.touch(en)
	return en
}

// victim is the entry to be used anew: best one next to an id in use, because
// neighbours are computed together; then an empty one; then the resident one that was
// used least recently. Nil: there is none besides spare.
func (c *cache) victim(spare *entry) *entry {
	var best *entry
	for _, en := range c.entries {
		if en.owner == nil && en != spare && (best == nil || c.better(en, best)) {
			best = en
		}
	}
	return best
}

// better tells which of two entries that nobody uses is rather to be used anew.
func (c *cache) better(a, b *entry) bool {
	if x, y := c.besideUsed(a), c.besideUsed(b); x != y {
		return x
	}
	if x, y := len(a.tokens) == 0, len(b.tokens) == 0; x != y {
		return x
	}
	return len(a.tokens) > 0 && a.used < b.used
}

// besideUsed tells whether a neighbour of an entry is in use.
func (c *cache) besideUsed(en *entry) bool {
	i := int(en.id)
	return i > 0 && c.entries[i-1].owner != nil || i+1 < len(c.entries) && c.entries[i+1].owner != nil
}

// tidy moves one running sequence next to the others if their ids have a gap: each
// gap costs a pass over all weights in every step, a move costs a copy of its rows.
// The longest row of neighbours stays, and the shortest of the others moves, so that
// each call comes nearer to the end.
func (c *cache) tidy() error {
	first, n, stray := c.neighbours()
	if stray == nil || !c.canCopy {
		return nil
	}
	dst := c.entries[(first+n)%len(c.entries)]
	if first > 0 && (first+n == len(c.entries) || len(c.entries[first-1].tokens) == 0) {
		dst = c.entries[first-1]
	}
	c.clear(dst)
	if len(stray.tokens) > 0 {
		if err := c.backend.Copy(stray.id, dst.id, len(stray.tokens)); err != nil {
			return err
		}
	}
	dst.tokens, dst.salt, dst.owner, dst.used = stray.tokens, stray.salt, stray.owner, stray.used
	dst.owner.entry = dst
	c.drop(stray)
	return nil
}

// neighbours finds the longest row of entries in use, n from first on, and the
// shortest entry in use outside it; nil: there is none.
func (c *cache) neighbours() (first, n int, stray *entry) {
	for i := 0; i < len(c.entries); i++ {
		begin := i
		for i < len(c.entries) && c.entries[i].owner != nil {
			i++
		}
		if i-begin > n {
			first, n = begin, i-begin
		}
	}
	for i, en := range c.entries {
		outside := i < first || i >= first+n
		if en.owner != nil && outside && (stray == nil || len(en.tokens) < len(stray.tokens)) {
			stray = en
		}
	}
	return first, n, stray
}

// clear empties an entry.
func (c *cache) clear(en *entry) *entry {
	if n := len(en.tokens); n > 0 {
		c.evicted(n)
	}
	c.drop(en)
	return en
}

// cut drops a resident entry's tokens from n on, all if the model cannot.
func (c *cache) cut(en *entry, n int) *entry {
	if len(en.tokens) > n && !c.backend.Remove(en.id, n) {
		return c.clear(en)
	}
	en.tokens = en.tokens[:n]
	return en
}

// grow says that rows of a running entry were computed: it now holds tokens.
func (c *cache) grow(en *entry, tokens []Token) { en.tokens = tokens }

// keep makes a running entry resident, unless nobody could want it because
// another one holds its tokens too.
func (c *cache) keep(en *entry) {
	en.owner = nil
	c.touch(en)
	if !c.canCut {
		return // a longer state cannot stand for a shorter one
	}
	for _, other := range c.entries {
		if other == en || other.owner != nil || other.salt != en.salt || len(other.tokens) == 0 {
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

// drop gives up what an entry holds.
func (c *cache) drop(en *entry) {
	en.owner = nil
	en.tokens = nil
	c.backend.Remove(en.id, 0)
}

// held counts the tokens of running sequences and of resident entries.
func (c *cache) held() (live, resident int) {
	for _, en := range c.entries {
		if en.owner != nil {
			live += len(en.tokens)
		} else {
			resident += len(en.tokens)
		}
	}
	return live, resident
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
