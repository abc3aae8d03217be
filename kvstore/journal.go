package kvstore

import (
	"context"
	"sync"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// journalMax is how many changes are remembered: 4 MiB, and more than a node makes in
// the seconds that a reader may fall behind.
const journalMax = 1 << 17

// Change says that a block came into a tier, or is not there any more.
type Change struct {
	ID      block.ID
	Tier    prefix.Tier
	Present bool
}

// journal remembers the last changes, numbered from 1 on.
type journal struct {
	mu      sync.Mutex
	changes []Change // that of number n is at n % journalMax
	last    uint64
	wake    chan struct{} // closed with the next change
	asked   bool          // somebody has wake
}

func (j *journal) note(tier prefix.Tier, id block.ID, present bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	c := Change{ID: id, Tier: tier, Present: present}
	if at := int(j.last % journalMax); at < len(j.changes) {
		j.changes[at] = c
	} else {
		if len(j.changes) == 0 {
			j.changes = append(j.changes, Change{}) // there is no number 0
		}
		j.changes = append(j.changes, c)
	}
	if j.asked {
		close(j.wake)
		j.wake, j.asked = make(chan struct{}), false
	}
}

// Changed returns a channel that is closed with the next change.
func (s *Store) Changed() <-chan struct{} {
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = true
	return j.wake
}

// Changes returns up to limit changes after the one of a number, in order, and the
// number of the last that it returns. Not ok: that far back is not remembered, or the
// number is none that was given; then Held tells where to begin.
func (s *Store) Changes(after uint64, limit int) (changes []Change, last uint64, ok bool) {
	j := &s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if after > j.last || j.last-after > journalMax-1 {
		return nil, 0, false
	}
	for last = after; last < j.last && len(changes) < limit; last++ {
		changes = append(changes, j.changes[(last+1)%journalMax])
	}
	return changes, last, true
}

// Held returns what every tier holds, parents before children, and a number whose
// later Changes, applied to that, give the present. It looks at the tree in steps: a
// change that comes meanwhile may be in both, which does no harm.
func (s *Store) Held(ctx context.Context) (held []Change, last uint64, err error) {
	s.journal.mu.Lock()
	last = s.journal.last
	s.journal.mu.Unlock()
	infos, err := s.scan(ctx)
	for _, info := range infos {
		for _, tier := range []prefix.Tier{prefix.RAM, prefix.Disk} {
			if info.Tiers.Has(tier) {
				held = append(held, Change{ID: info.ID, Tier: tier, Present: true})
			}
		}
	}
	return held, last, err
}
