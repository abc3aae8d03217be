package kvstore

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// listMax is the most prefixes that List gives, whatever is asked for.
const listMax = 10_000

// Prefix is a piece of a path of the tree that does not branch: a system prompt that
// many requests begin with, or the rest of one conversation.
type Prefix struct {
	ID     block.ID `json:"id"`     // of its last block: what to pin, or to export
	First  block.ID `json:"first"`  // of its first block: what to evict
	Parent block.ID `json:"parent"` // last block of the prefix that it goes on from; zero: none
	Root   block.ID `json:"root"`   // stands for fingerprint and tenant; zero: what leads to it was lost

	Start      int   `json:"start"`  // tokens before it
	Tokens     int64 `json:"tokens"` // in its blocks that some tier holds
	Blocks     int   `json:"blocks"` // that some tier holds
	RAMBlocks  int   `json:"ram_blocks"`
	RAMBytes   int64 `json:"ram_bytes"`
	DiskBlocks int   `json:"disk_blocks"`
	DiskBytes  int64 `json:"disk_bytes"` // of payloads

	Uses         int       `json:"uses"`          // of its most used block, since it was added
	LastUse      time.Time `json:"last_use"`      // zero: not since the start
	TokensSpared int64     `json:"tokens_spared"` // that were not computed
	Pinned       bool      `json:"pinned"`        // its last block, by Pin
	Leased       bool      `json:"leased"`        // some block is being used now
	Branches     int       `json:"branches"`      // prefixes that go on from it
}

// List gives the prefixes that are held, those used last first, up to limit (0: up
// to 10,000), and how many there are in all. It looks at the tree in steps, so it may
// miss what comes meanwhile.
func (s *Store) List(ctx context.Context, limit int) ([]Prefix, int, error) {
	infos, err := s.scan(ctx)
	if err != nil {
		return nil, 0, err
	}
	all := prefixes(infos)
	slices.SortFunc(all, func(a, b Prefix) int {
		return cmp.Or(b.LastUse.Compare(a.LastUse), cmp.Compare(a.Start, b.Start), bytes.Compare(a.ID[:], b.ID[:]))
	})
	if limit <= 0 || limit > listMax {
		limit = listMax
	}
	return slices.Clip(all[:min(limit, len(all))]), len(all), nil
}

// scan copies what the tree knows of all its nodes, parents before children.
func (s *Store) scan(ctx context.Context) ([]prefix.Info, error) {
	var infos []prefix.Info
	step := make([]prefix.Info, 0, scanStep) // infos grows outside of the lock
	for from, first := 0, true; first || from > 0; first = false {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.mu.Lock()
		step, from = s.mu.tree.Scan(from, scanStep, step[:0])
		s.mu.Unlock()
		infos = append(infos, step...)
	}
	slices.SortFunc(infos, func(a, b prefix.Info) int {
		return cmp.Or(cmp.Compare(a.Start+a.Count, b.Start+b.Count), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return infos, nil
}

// prefixes joins nodes, parents before children, into pieces that do not branch. A
// pinned block ends its piece, so that its id is the one to unpin.
func prefixes(infos []prefix.Info) []Prefix {
	type place struct {
		piece    int // -1: a root
		root     block.ID
		children int
		pinned   bool
	}
	places := make(map[block.ID]*place, len(infos))
	for _, n := range infos {
		places[n.ID] = &place{piece: -1, pinned: n.Pinned}
	}
	for _, n := range infos {
		if p := places[n.Parent]; p != nil {
			p.children++
		}
	}
	var out []Prefix
	for _, n := range infos {
		at, p := places[n.ID], places[n.Parent]
		if n.Start+n.Count == 0 {
			at.root = n.ID
			continue
		}
		if p != nil {
			at.root = p.root
		}
		switch {
		case p == nil || p.piece < 0:
			out = append(out, Prefix{First: n.ID, Root: at.root, Start: n.Start})
			at.piece = len(out) - 1
		case p.children > 1 || p.pinned:
			out[p.piece].Branches++
			out = append(out, Prefix{First: n.ID, Parent: n.Parent, Root: at.root, Start: n.Start})
			at.piece = len(out) - 1
		default:
			at.piece = p.piece
		}
		out[at.piece].add(n)
	}
	return slices.DeleteFunc(out, func(p Prefix) bool { return p.Blocks == 0 })
}

// add appends a block to the piece.
func (p *Prefix) add(n prefix.Info) {
	p.ID, p.Pinned = n.ID, n.Pinned
	p.Leased = p.Leased || n.Leases > 0
	if n.Tiers != 0 {
		p.Blocks++
		p.Tokens += int64(n.Count)
	}
	if n.Tiers.Has(prefix.RAM) {
		p.RAMBlocks++
		p.RAMBytes += n.Bytes
	}
	if n.Tiers.Has(prefix.Disk) {
		p.DiskBlocks++
		p.DiskBytes += n.Bytes
	}
	p.Uses = max(p.Uses, n.Uses)
	p.TokensSpared += int64(n.Spared) * int64(n.Count)
	if at := timeOf(n.LastUse); at.After(p.LastUse) {
		p.LastUse = at
	}
}
