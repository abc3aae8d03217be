package kvstore

import (
	"context"
	"errors"
	"fmt"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// load is a block that is being read from disk, for all who want it.
type load struct {
	done chan struct{} // closed when the block is in RAM or will not be
}

// errDeleted says that a block did not verify and was deleted.
var errDeleted = errors.New("the block was damaged and is deleted")

// errNoShape says that nobody knows what blocks of a fingerprint look like.
var errNoShape = errors.New("the fingerprint is not that of a loaded model")

// fetch gives a block from RAM, where it brings it from disk if need be. Without
// error the result is nil if the block cannot be had.
func (s *Store) fetch(ctx context.Context, id block.ID) (*Ref, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errSlow)
	defer cancel()
	ref, l, err := s.fetchOrJoin(id)
	if l == nil {
		return ref, err
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, errSlow) {
			return nil, err
		}
		return nil, nil // a miss
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.mu.ram[id]; h != nil {
		return h.ref(), nil
	}
	return nil, nil
}

// errSlow is the cause that ends the wait for a disk that does not answer.
var errSlow = errors.New("the disk took too long")

// fetchOrJoin gives a block that is in RAM, or the load that will bring it, which it
// begins unless somebody has.
func (s *Store) fetchOrJoin(id block.ID) (*Ref, *load, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.mu.ram[id]; h != nil {
		return h.ref(), nil, nil
	}
	if s.mu.closed {
		return nil, nil, ErrClosed
	}
	if l := s.mu.loading[id]; l != nil {
		return nil, l, nil
	}
	info, ok := s.mu.tree.Get(id)
	if !ok || !info.Tiers.Has(prefix.Disk) {
		return nil, nil, nil
	}
	l := &load{done: make(chan struct{})}
	s.mu.loading[id] = l
	s.start(func() { s.read(info, l) })
	return nil, l, nil
}

// read brings a block from disk into RAM.
func (s *Store) read(info prefix.Info, l *load) {
	defer func() {
		s.mu.Lock()
		delete(s.mu.loading, info.ID)
		s.mu.Unlock()
		close(l.done)
	}()
	ctx, cancel := context.WithTimeout(s.ctx, readTimeout)
	defer cancel()
	select {
	case s.reads <- struct{}{}:
		defer func() { <-s.reads }()
	case <-ctx.Done():
		return
	}
	room := true
	var buf *Buf
	h, err := s.get(ctx, info, func(n int) []byte {
		s.mu.Lock()
		buf = s.allocateLocked(n)
		s.mu.Unlock()
		if room = buf != nil; !room {
			return nil
		}
		return buf.Bytes()
	})
	if !room {
		s.mu.Lock()
		s.mu.stats.RAM.Refusals++
		s.mu.Unlock()
		return
	}
	if err != nil {
		if buf != nil {
			buf.Release()
		}
		return
	}
	s.loaded(h, buf)
}

// loaded puts a verified block that was read into RAM, unless it came there in
// another way or was given up meanwhile.
func (s *Store) loaded(h block.Header, buf *Buf) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stats.Disk.BlocksOut++
	s.mu.stats.Disk.BytesOut += int64(h.PayloadBytes)
	if s.mu.ram[h.ID] != nil || s.ctx.Err() != nil || !s.heldLocked(h.ID) {
		buf.Release()
		return
	}
	s.insertLocked(h, buf)
}

// get reads a block into memory that dst gives, and verifies it. A block that is not
// there leaves the tree; one that is damaged is deleted. dst is called at most once,
// with the length that is known.
func (s *Store) get(ctx context.Context, info prefix.Info, dst func(n int) []byte) (block.Header, error) {
	var payload []byte
	asked, denied := false, false
	h, err := s.disk.Get(ctx, info.ID, func(n int) []byte {
		if asked || int64(n) != info.Bytes {
			return nil
		}
		asked = true
		payload = dst(n)
		denied = payload == nil
		return payload
	})
	switch {
	case denied:
		return h, errors.New("no memory to read a block into")
	case err != nil && ctx.Err() != nil:
		return h, context.Cause(ctx) // it says nothing about the block
	case errors.Is(err, ErrNotFound):
		s.mu.Lock()
		s.mu.tree.Remove(prefix.Disk, info.ID)
		s.mu.Unlock()
		return h, err
	case err == nil:
		err = s.verify(h, info, payload)
	}
	switch {
	case errors.Is(err, errNoShape):
		s.mu.Lock()
		s.mu.stats.Unknown++
		s.mu.Unlock()
	case err != nil:
		s.discard(prefix.Disk, info.ID, err)
		err = errDeleted
	}
	return h, err
}

// verify tells whether a header and a payload are those of the block that info
// describes. errNoShape: it cannot be told.
func (s *Store) verify(h block.Header, info prefix.Info, payload []byte) error {
	b := prefix.Block{ID: h.ID, Parent: h.Parent, Start: h.Start, Count: h.Count, Bytes: int64(h.PayloadBytes)}
	if b != info.Block {
		return fmt.Errorf("%w: it is block %v after %v, tokens %d to %d, %d bytes; wanted %v after %v, %d to %d, %d",
			block.ErrDamaged, b.ID, b.Parent, b.Start, b.Start+b.Count, b.Bytes,
			info.ID, info.Parent, info.Start, info.Start+info.Count, info.Bytes)
	}
	if s.opts.Key != (block.Key{}) {
		if err := s.opts.Key.Verify(h); err != nil {
			return err
		}
	}
	shape, ok := s.opts.Shapes(h.Fingerprint)
	if !ok {
		return errNoShape
	}
	return h.Check(shape, payload)
}
