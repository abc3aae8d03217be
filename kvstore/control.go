package kvstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// Evicted says what Evict did.
type Evicted struct {
	RAMBlocks  int   `json:"ram_blocks"`
	RAMBytes   int64 `json:"ram_bytes"`
	DiskBlocks int   `json:"disk_blocks"`
	DiskBytes  int64 `json:"disk_bytes"` // of payloads; the space comes back with their generations
	Kept       int   `json:"kept"`       // blocks that are pinned, in use, or before such a block
}

// Evict deletes a block and all that follow it from all tiers; the id may be a root,
// and the zero id stands for everything. What is pinned or in use stays, and so does
// what leads to it. ErrNotFound: no such block is known.
func (s *Store) Evict(ctx context.Context, id block.ID) (Evicted, error) {
	infos, err := s.scan(ctx)
	if err != nil {
		return Evicted{}, err
	}
	infos = below(infos, id)
	if len(infos) == 0 && !id.IsZero() {
		return Evicted{}, fmt.Errorf("evict block %v: %w", id, ErrNotFound)
	}
	slices.Reverse(infos) // leaves first
	var out Evicted
	for _, n := range infos {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		s.evictBlock(n.ID, &out)
	}
	return out, nil
}

// below gives those of nodes, parents before children, that are id or follow it.
func below(infos []prefix.Info, id block.ID) []prefix.Info {
	if id.IsZero() {
		return infos
	}
	in := map[block.ID]bool{id: true}
	var out []prefix.Info
	for _, n := range infos {
		if in[n.ID] || in[n.Parent] {
			in[n.ID] = true
			out = append(out, n)
		}
	}
	return out
}

// evictBlock deletes one block from all tiers if it may go.
func (s *Store) evictBlock(id block.ID, out *Evicted) {
	s.mu.Lock()
	ram, inRAM := s.mu.tree.EvictBlock(prefix.RAM, id)
	if inRAM {
		s.dropLocked(id)
		s.mu.stats.RAM.Evictions++
		out.RAMBlocks++
		out.RAMBytes += ram.Bytes
	}
	disk, onDisk := s.mu.tree.EvictBlock(prefix.Disk, id)
	if onDisk {
		s.mu.stats.Disk.Evictions++
		out.DiskBlocks++
		out.DiskBytes += disk.Bytes
	}
	if s.heldLocked(id) {
		out.Kept++
	}
	s.mu.Unlock()
	if onDisk {
		s.disk.Forget(id)
	}
}

// Verified says what Verify found.
type Verified struct {
	RAMBlocks  int   `json:"ram_blocks"`
	DiskBlocks int   `json:"disk_blocks"`
	Bytes      int64 `json:"bytes"`
	Damaged    int   `json:"damaged"` // deleted; each came as an event
	Missing    int   `json:"missing"` // gone from disk, or not readable now
	Unknown    int   `json:"unknown"` // of a shape that nobody knows: not verified
}

// Verify reads every block of every tier and checks it; damaged ones are deleted. It
// goes block by block and disturbs others little, but takes as long as reading the
// disk. It ends early with the cause of ctx.
func (s *Store) Verify(ctx context.Context) (Verified, error) {
	infos, err := s.scan(ctx)
	if err != nil {
		return Verified{}, err
	}
	var out Verified
	var scratch []byte
	for _, n := range infos {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if n.Tiers.Has(prefix.RAM) {
			s.verifyRAM(n, &out)
		}
		if n.Tiers.Has(prefix.Disk) {
			out.DiskBlocks++
			_, err := s.get(ctx, n, reuse(&scratch))
			out.count(n, err)
		}
	}
	return out, nil
}

// reuse gives memory of the Go heap, the same again if it is large enough. Lengths
// were checked against what is known of the block.
func reuse(scratch *[]byte) func(n int) []byte {
	return func(n int) []byte {
		if cap(*scratch) < n {
			*scratch = make([]byte, n)
		}
		return (*scratch)[:n:n]
	}
}

func (s *Store) verifyRAM(n prefix.Info, out *Verified) {
	s.mu.Lock()
	h := s.mu.ram[n.ID]
	if h == nil {
		s.mu.Unlock()
		return
	}
	ref := h.ref()
	s.mu.Unlock()
	defer ref.Release()
	out.RAMBlocks++
	err := s.verify(ref.Header, n, ref.Payload())
	if err != nil && !errors.Is(err, errNoShape) {
		s.discard(prefix.RAM, n.ID, err)
		err = errDeleted
	}
	out.count(n, err)
}

func (v *Verified) count(n prefix.Info, err error) {
	switch {
	case err == nil:
		v.Bytes += n.Bytes
	case errors.Is(err, errDeleted):
		v.Damaged++
	case errors.Is(err, errNoShape):
		v.Unknown++
	default:
		v.Missing++
	}
}
