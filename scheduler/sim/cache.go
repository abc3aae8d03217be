package sim

// cache is an LRU set of blocks. A use touches the last block first, so that of a
// chain the end goes before its beginning.
type cache struct {
	room  int
	items map[uint64]*item
	root  item // root.next is the youngest, root.prev the oldest
}

type item struct {
	block      uint64
	prev, next *item
}

func newCache(room int) *cache {
	c := &cache{room: room, items: map[uint64]*item{}}
	c.root.prev, c.root.next = &c.root, &c.root
	return c
}

// held is the leading run of a chain that is there.
func (c *cache) held(chain []uint64) int {
	for i, b := range chain {
		if c.items[b] == nil {
			return i
		}
	}
	return len(chain)
}

// use adds what is not there, and makes all of the chain the youngest. It returns
// what is new and what had to go.
func (c *cache) use(chain []uint64) (added, evicted []uint64) {
	for i := len(chain) - 1; i >= 0; i-- {
		it := c.items[chain[i]]
		if it == nil {
			it = &item{block: chain[i]}
			c.items[chain[i]] = it
			added = append(added, chain[i])
		} else {
			it.prev.next, it.next.prev = it.next, it.prev
		}
		it.prev, it.next = &c.root, c.root.next
		it.prev.next, it.next.prev = it, it
	}
	for len(c.items) > c.room {
		it := c.root.prev
		it.prev.next, it.next.prev = it.next, it.prev
		delete(c.items, it.block)
		evicted = append(evicted, it.block)
	}
	for i, j := 0, len(added)-1; i < j; i, j = i+1, j-1 {
		added[i], added[j] = added[j], added[i]
	}
	return added, evicted
}
