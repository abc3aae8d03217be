package kvstore

import (
	"fmt"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// Poison makes the arena fill what is freed and check it when it is given out.
func (a *Arena) Poison() { a.poison = true }

// Check compares the arena with its invariants.
func (a *Arena) Check() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	listed, err := a.mu.checkLists()
	if err != nil {
		return err
	}
	var at, used int64
	bufs, before, free := 0, noExtent, false
	for i := int32(0); i != noExtent; i = a.mu.all[i].behind {
		x := a.mu.all[i]
		switch {
		case x.off != at || x.before != before || x.size <= 0 || x.size%arenaAlign != 0:
			return fmt.Errorf("extent %d is %+v; it should begin at %d after %d", i, x, at, before)
		case x.free && free:
			return fmt.Errorf("extents %d and %d are free neighbours", before, i)
		case x.free != listed[i]:
			return fmt.Errorf("extent %d: free is %t, listed %t", i, x.free, listed[i])
		case !x.free:
			used += x.size
			bufs++
		}
		at, before, free = at+x.size, i, x.free
	}
	if at != a.mu.size || used != a.mu.used || bufs != a.mu.bufs {
		return fmt.Errorf("extents end at %d of %d; %d bytes in %d buffers, counted %d in %d", at, a.mu.size, used, bufs, a.mu.used, a.mu.bufs)
	}
	return nil
}

func (e *extents) checkLists() (map[int32]bool, error) {
	listed := map[int32]bool{}
	for class, head := range e.heads {
		if set := e.bits[class/64]>>(class%64)&1 != 0; set != (head != noExtent) {
			return nil, fmt.Errorf("class %d: the bit is %t, the first extent %d", class, set, head)
		}
		for i := head; i != noExtent; i = e.all[i].next {
			if classOf(e.all[i].size) != class {
				return nil, fmt.Errorf("extent %d of %d bytes is in class %d", i, e.all[i].size, class)
			}
			listed[i] = true
		}
	}
	return listed, nil
}

// Poison makes the store's arena fill what is freed.
func (s *Store) Poison() { s.arena.Poison() }

// Check compares the store with its invariants.
func (s *Store) Check() error {
	if err := s.arena.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes, queued int64
	blocks := 0
	for id, h := range s.mu.ram {
		info, ok := s.mu.tree.Get(id)
		if !ok || !info.Tiers.Has(prefix.RAM) {
			return fmt.Errorf("block %v is in RAM, the tree says %+v", id, info)
		}
		if h.buf.refs.Load() < 1 {
			return fmt.Errorf("block %v has no reference to its memory", id)
		}
		if h.queued {
			queued += int64(h.buf.Len())
			blocks++
		}
		if h.queued && info.Tiers.Has(prefix.Disk) {
			return fmt.Errorf("block %v is queued, yet on disk", id)
		}
		bytes += int64(h.buf.Len())
	}
	if totals := s.mu.tree.Totals(prefix.RAM); totals.Blocks != len(s.mu.ram) || totals.Bytes != bytes {
		return fmt.Errorf("RAM has %d blocks of %d bytes, the tree says %+v", len(s.mu.ram), bytes, totals)
	}
	if q := &s.mu.queue; q.blocks != blocks || q.bytes != queued {
		return fmt.Errorf("%d blocks of %d bytes are queued, counted %d of %d", blocks, queued, q.blocks, q.bytes)
	}
	return nil
}

// Idle tells whether nothing is being written, sealed or read, and nothing leased.
func (s *Store) Idle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.writing)+len(s.mu.loading)+s.mu.unsealed+s.mu.inFlight > 0 {
		return fmt.Errorf("%d blocks are being written, %d loaded, %d sealed, %d are in flight",
			len(s.mu.writing), len(s.mu.loading), s.mu.unsealed, s.mu.inFlight)
	}
	infos, _ := s.mu.tree.Scan(0, 1<<30, nil)
	for _, n := range infos {
		if n.Leases > 0 {
			return fmt.Errorf("block %v has %d leases", n.ID, n.Leases)
		}
	}
	return nil
}

// Lost is what the disk tier calls.
func (s *Store) Lost(ids []block.ID) { s.lost(ids) }

// CanPopulate tells whether the system can fault memory in without changing it.
func CanPopulate() bool {
	b, free, err := mapMemory(faultStep)
	if err != nil {
		return false
	}
	defer func() { _ = free() }()
	return populate(b) == nil
}
