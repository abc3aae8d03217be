package kvstore

import (
	"context"
	"errors"
	"fmt"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

var (
	// ErrNoRoom says that no memory of the RAM tier can be freed now.
	ErrNoRoom = errors.New("the memory for KV blocks is full")
	// ErrOrphan says that nothing held leads to a block, so that nobody could find it.
	ErrOrphan = errors.New("the block before it is not held")
	// ErrUnknownShape says that no loaded model has blocks of that fingerprint.
	ErrUnknownShape = errors.New("no loaded model has blocks of that fingerprint")
)

// Await gives a block, from RAM or through it from disk, as soon as it is held, or
// the cause of ctx's end. The caller releases it. ErrClosed: the store was closed.
func (s *Store) Await(ctx context.Context, id block.ID) (*Ref, error) {
	for {
		changed := s.Changed()
		ref, err := s.fetch(ctx, id)
		if ref != nil || err != nil {
			return ref, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-s.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// Holds tells whether some tier holds a block.
func (s *Store) Holds(id block.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.mu.closed && s.heldLocked(id)
}

// Incoming is memory of the RAM tier for a block that comes from elsewhere. Nobody
// sees it before Insert. It belongs to one goroutine, which ends it with Insert or
// Drop.
type Incoming struct {
	store    *Store
	header   block.Header
	buf      *Buf // nil when it was ended
	verified bool
}

// Incoming begins to take in a block; other blocks may be evicted for it. h is as its
// maker wrote it. Errors: ErrUnknownShape, ErrNoRoom, ErrClosed, block.ErrDamaged if
// the length is none that blocks of that shape have, block.ErrInvalid.
func (s *Store) Incoming(h block.Header) (*Incoming, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	shape, known := s.opts.Shapes(h.Fingerprint)
	if !known {
		return nil, ErrUnknownShape
	}
	if h.PayloadBytes != h.Count*shape.Bytes() {
		return nil, fmt.Errorf("%w: %d bytes of payload for %d tokens of %d bytes", block.ErrDamaged, h.PayloadBytes, h.Count, shape.Bytes())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil, ErrClosed
	}
	buf := s.allocateLocked(h.PayloadBytes)
	if buf == nil {
		s.mu.stats.RAM.Refusals++
		return nil, ErrNoRoom
	}
	return &Incoming{store: s, header: h, buf: buf}, nil
}

// Bytes is the memory for the payload, valid until Insert or Drop.
func (in *Incoming) Bytes() []byte { return in.buf.Bytes() }

// Verify compares what Bytes holds with the header: its digest, its id, and that all
// numbers are finite. Blocks of one chain may be verified at the same time.
func (in *Incoming) Verify() error {
	h := in.header
	info := prefix.Info{Block: prefix.Block{ID: h.ID, Parent: h.Parent, Start: h.Start, Count: h.Count, Bytes: int64(h.PayloadBytes)}}
	if err := in.store.verify(h, info, in.buf.Bytes()); err != nil {
		in.store.mu.Lock()
		in.store.mu.stats.RAM.Corrupt++
		in.store.mu.Unlock()
		return err
	}
	in.verified = true
	return nil
}

// Insert makes a verified block visible and gives a reference to it, which the caller
// releases; if the block came in another way meanwhile, to that one. Parents come
// before their children: ErrOrphan. Incoming is ended, whatever comes of it.
func (in *Incoming) Insert() (*Ref, error) {
	if !in.verified {
		panic("kvstore: a block that was not verified would become visible")
	}
	s, buf := in.store, in.buf
	in.buf = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.mu.ram[in.header.ID]
	switch {
	case s.mu.closed:
		buf.Release()
		return nil, ErrClosed
	case held != nil:
		buf.Release()
		return held.ref(), nil
	case in.header.Start > 0 && !s.heldLocked(in.header.Parent):
		s.mu.stats.Orphans++
		buf.Release()
		return nil, ErrOrphan
	case !s.insertLocked(in.header, buf):
		return nil, fmt.Errorf("%w: it contradicts what is known of block %v", block.ErrDamaged, in.header.ID)
	}
	s.mu.tree.Touch([]block.ID{in.header.ID}, s.now())
	held = s.mu.ram[in.header.ID]
	s.enqueueLocked(held)
	return held.ref(), nil
}

// Lose leaves the memory unused for as long as the process lives, because something
// may still write there. After Insert or Drop it does nothing.
func (in *Incoming) Lose() { in.buf = nil }

// Drop gives the memory back. After Insert, or a second time, it does nothing.
func (in *Incoming) Drop() {
	if in.buf != nil {
		in.buf.Release()
		in.buf = nil
	}
}
