package cluster

import (
	"context"
	"sync"

	"tandem/cluster/member"
)

// changes are members that differ from what was told. It holds at most one for each.
type changes struct {
	mu     sync.Mutex
	order  []member.ID
	latest map[member.ID]member.Member
	poke   chan struct{}
}

func newChanges() *changes {
	return &changes{latest: map[member.ID]member.Member{}, poke: make(chan struct{}, 1)}
}

func (c *changes) add(m member.Member) {
	c.mu.Lock()
	if _, waiting := c.latest[m.ID]; !waiting {
		c.order = append(c.order, m.ID)
	}
	c.latest[m.ID] = m
	c.mu.Unlock()
	poke(c.poke)
}

func (c *changes) next() (member.Member, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.order) == 0 {
		return member.Member{}, false
	}
	id := c.order[0]
	c.order = c.order[1:]
	m := c.latest[id]
	delete(c.latest, id)
	return m, true
}

func (c *changes) run(ctx context.Context, tell func(member.Member)) {
	for {
		select {
		case <-c.poke:
		case <-ctx.Done():
			return
		}
		for m, ok := c.next(); ok && ctx.Err() == nil; m, ok = c.next() {
			tell(m)
		}
	}
}
