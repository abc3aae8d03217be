package kvstore

import (
	"slices"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// Writer is a block that is being written. It belongs to one goroutine, which must
// end it with Commit or Abort: until then its memory is taken, and the block before
// it cannot be evicted.
type Writer struct {
	store  *Store
	header block.Header
	buf    *Buf

	// Guarded by Store.mu.
	leased    bool      // the parent, in the tree
	followers []*Writer // blocks that were reserved after this one, before it was visible
	ended     bool
}

// Reserve begins a block: it gives memory for the payload of h, for which other
// blocks may be evicted. It never blocks and does no I/O. h.Digest is ignored,
// h.Tokens is copied.
//
// It returns false, and the block is not to be written now, if the block is in RAM
// already, or is being written; if no memory can be freed (counted as a refusal); if
// it is not a first block and the one before it is neither held nor being written,
// so that nobody could find it (counted as an orphan); and if h is not valid or the
// store is closed.
func (s *Store) Reserve(h block.Header) (*Writer, bool) {
	if h.Validate() != nil {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed || s.mu.ram[h.ID] != nil || s.mu.writing[h.ID] != nil {
		return nil, false
	}
	w := &Writer{store: s, header: h}
	before := s.mu.writing[h.Parent]
	if h.Start > 0 && before == nil {
		if w.leased = s.mu.tree.Lease(h.Parent); !w.leased {
			s.mu.stats.Orphans++
			return nil, false
		}
	}
	if w.buf = s.allocateLocked(h.PayloadBytes); w.buf == nil {
		s.mu.stats.RAM.Refusals++
		w.releaseParentLocked()
		return nil, false
	}
	if before != nil {
		before.followers = append(before.followers, w)
	}
	w.header.Tokens = slices.Clone(h.Tokens)
	s.mu.writing[h.ID] = w
	return w, true
}

// Bytes is the memory for the payload, PayloadBytes long. It holds anything at
// first, and is not to be touched after Commit or Abort.
func (w *Writer) Bytes() []byte { return w.buf.Bytes() }

// Commit hands the payload over. The block becomes visible soon, when its digest is
// made, in the order of the commits. It does not block. A second call, or one after
// Abort, does nothing.
func (w *Writer) Commit() {
	s := w.store
	s.mu.Lock()
	if w.ended || s.mu.closed {
		s.mu.Unlock()
		w.Abort()
		return
	}
	w.ended = true
	s.mu.sealing = append(s.mu.sealing, w)
	s.mu.unsealed++
	s.mu.Unlock()
	wake(s.toSeal)
}

// Abort gives the memory back. It does not block. A second call, or one after
// Commit, does nothing.
func (w *Writer) Abort() {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended {
		return
	}
	w.ended = true
	s.endLocked(w, false)
	w.buf.Release()
}

// endLocked says that a block is not being written any more; visible tells whether
// the tree has it, so that those that follow it can protect it.
func (s *Store) endLocked(w *Writer, visible bool) {
	delete(s.mu.writing, w.header.ID)
	for _, f := range w.followers {
		if visible && s.mu.writing[f.header.ID] == f && !f.leased {
			f.leased = s.mu.tree.Lease(w.header.ID)
		}
	}
	w.followers = nil
	w.releaseParentLocked()
}

func (w *Writer) releaseParentLocked() {
	if w.leased {
		w.store.mu.tree.Release(w.header.Parent)
		w.leased = false
	}
}

// seal makes the digests of committed blocks and shows them, in order.
func (s *Store) seal() {
	for {
		select {
		case <-s.toSeal:
		case <-s.ctx.Done():
			return
		}
		for w := s.nextToSeal(); w != nil; w = s.nextToSeal() {
			w.header.Digest = w.header.Sum(w.buf.Bytes())
			s.publish(w)
		}
	}
}

// nextToSeal is the block that was committed first, nil if there is none.
func (s *Store) nextToSeal() *Writer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.sealing) == 0 || s.ctx.Err() != nil {
		return nil
	}
	w := s.mu.sealing[0]
	s.mu.sealing[0] = nil
	if s.mu.sealing = s.mu.sealing[1:]; len(s.mu.sealing) == 0 {
		s.mu.sealing = nil
	}
	return w
}

// publish makes a sealed block visible in RAM and gives its writer's reference to
// the tier. A block that came in another way meanwhile stays as it is.
func (s *Store) publish(w *Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.mu.progress.Broadcast()
	s.mu.unsealed--
	id := w.header.ID
	visible := s.mu.ram[id] != nil
	switch {
	case visible || s.ctx.Err() != nil:
		w.buf.Release()
	case w.header.Start > 0 && !w.leased && !s.heldLocked(w.header.Parent):
		s.mu.stats.Orphans++
		w.buf.Release()
	default:
		visible = s.insertLocked(w.header, w.buf)
		if visible {
			s.mu.tree.Touch([]block.ID{id}, s.now())
			s.enqueueLocked(s.mu.ram[id])
		}
	}
	s.endLocked(w, visible)
}

// heldLocked tells whether some tier holds a block.
func (s *Store) heldLocked(id block.ID) bool {
	info, ok := s.mu.tree.Get(id)
	return ok && info.Tiers != 0
}

// insertLocked puts a verified block that is not in RAM there, with one reference
// to its memory. False: it contradicts what is known; the reference is gone.
func (s *Store) insertLocked(h block.Header, buf *Buf) bool {
	if err := s.addLocked(prefix.RAM, h); err != nil {
		s.mu.stats.RAM.Refusals++
		buf.Release()
		return false
	}
	s.mu.ram[h.ID] = &held{header: h, buf: buf}
	s.mu.stats.RAM.BlocksIn++
	s.mu.stats.RAM.BytesIn += int64(h.PayloadBytes)
	return true
}
