package kvstore

import "tandem/kvstore/prefix"

// TierStats is what a tier holds and what it has done since Open.
type TierStats struct {
	Blocks int   `json:"blocks"`
	Tokens int64 `json:"tokens"`
	Bytes  int64 `json:"bytes"`  // of payloads in RAM; on disk, by st_blocks
	Budget int64 `json:"budget"` // most that Bytes may be

	Hits        int64 `json:"hits"`         // blocks that Lookup found here, and in no faster tier
	Misses      int64 `json:"misses"`       // blocks that Lookup asked for and did not find here or in a faster tier
	TokensHit   int64 `json:"tokens_hit"`   // tokens of the hits
	BlocksIn    int64 `json:"blocks_in"`    // blocks that came in
	BytesIn     int64 `json:"bytes_in"`     // their payloads
	BlocksOut   int64 `json:"blocks_out"`   // blocks that were read from disk; 0 for RAM
	BytesOut    int64 `json:"bytes_out"`    // their payloads
	Evictions   int64 `json:"evictions"`    // blocks that made room or were dropped
	EvictedLost int64 `json:"evicted_lost"` // of these, blocks that no other tier held
	Refusals    int64 `json:"refusals"`     // blocks for which there was no room
	Corrupt     int64 `json:"corrupt"`      // blocks that did not verify and were deleted
}

// QueueStats is the state of the write-behind queue.
type QueueStats struct {
	Blocks int   `json:"blocks"`
	Bytes  int64 `json:"bytes"`
	Budget int64 `json:"budget"`
	Drops  int64 `json:"drops"`  // times that a block was not written, or not in time
	Errors int64 `json:"errors"` // batches that failed
}

// Stats is the state of a Store.
type Stats struct {
	RAM, Disk    TierStats
	Queue        QueueStats
	Arena        ArenaStats
	Generations  int   // of the disk tier
	SetAside     int64 // damaged generations since Open
	DiskFull     bool  // the last batch found no room
	DiskFailing  bool  // the last batch failed, for whatever reason
	TokensSpared int64 // tokens that were not computed, see Run.Used
	Pins         int   // pinned blocks, not counting those that they protect
	Writers      int   // blocks that are being written
	Orphans      int64 // blocks that Reserve refused because nothing leads to them
	Unknown      int64 // blocks that were passed over because nobody knows their shape
}

// Stats tells the state of the store. It does no I/O.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	out := s.mu.stats
	ram, disk := s.mu.tree.Totals(prefix.RAM), s.mu.tree.Totals(prefix.Disk)
	out.Queue.Blocks, out.Queue.Bytes, out.Queue.Budget = s.mu.queue.blocks, s.mu.queue.bytes, int64(s.opts.Queue)
	out.Pins, out.Writers = s.mu.tree.Pins(), len(s.mu.writing)
	s.mu.Unlock()
	out.RAM.Blocks, out.RAM.Tokens, out.RAM.Bytes, out.RAM.Budget = ram.Blocks, ram.Tokens, ram.Bytes, s.opts.RAMBytes
	out.Disk.Blocks, out.Disk.Tokens, out.Disk.Bytes = disk.Blocks, disk.Tokens, disk.Bytes
	out.Arena = s.arena.Stats()
	if s.disk != nil {
		d := s.disk.Stats()
		out.Disk.Bytes, out.Disk.Budget = d.Bytes, d.Budget
		out.Generations, out.SetAside = d.Generations, d.SetAside
	}
	return out
}
