package kvstore

import (
	"context"
	"errors"
	"slices"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// queue is the blocks that wait to be written to disk, the oldest first. It holds no
// reference to their memory: a block that is evicted from RAM leaves the queue.
//
// Invariant: blocks and bytes are those of the items that are queued; the others
// left the queue and are passed over.
type queue struct {
	items  []*held
	blocks int
	bytes  int64
}

func (q *queue) push(h *held) {
	if len(q.items) > 2*q.blocks+batchBlocksMax {
		q.items = slices.DeleteFunc(q.items, func(h *held) bool { return !h.queued })
	}
	h.queued = true
	q.items = append(q.items, h)
	q.blocks++
	q.bytes += int64(h.buf.Len())
}

func (q *queue) remove(h *held) {
	h.queued = false
	q.blocks--
	q.bytes -= int64(h.buf.Len())
}

// first is the oldest block, nil if there is none. It stays in the queue.
func (q *queue) first() *held {
	for len(q.items) > 0 {
		if h := q.items[0]; h.queued {
			return h
		}
		q.items[0] = nil
		q.items = q.items[1:]
	}
	q.items = nil
	return nil
}

// enqueueLocked has a block of RAM written to disk if it has been used often enough
// and is not there. If it cannot wait in the queue it stays in RAM only, until its
// next use.
func (s *Store) enqueueLocked(h *held) {
	if s.disk == nil || h.queued || h.writing {
		return
	}
	info, ok := s.mu.tree.Get(h.header.ID)
	if !ok || info.Tiers.Has(prefix.Disk) || info.Uses < s.opts.Admission {
		return
	}
	if !s.fitsDisk(h.buf.Len()) {
		s.mu.stats.Disk.Refusals++
		return
	}
	q := &s.mu.queue
	full := q.blocks > 0 && q.bytes+int64(h.buf.Len()) > int64(s.opts.Queue)
	if full || s.now() < s.mu.retryAt {
		s.mu.stats.Queue.Drops++
		return
	}
	q.push(h)
	wake(s.toDisk)
}

// fitsDisk tells whether the disk tier takes payloads of that length.
func (s *Store) fitsDisk(bytes int) bool { return s.largest == 0 || int64(bytes) <= s.largest }

// writeBehind writes what is queued, batch by batch.
func (s *Store) writeBehind() {
	var written int64
	for {
		select {
		case <-s.toDisk:
		case <-s.ctx.Done():
			return
		}
		for s.ctx.Err() == nil {
			batch := s.takeBatch()
			if len(batch) == 0 {
				break
			}
			written += s.write(batch)
			if budget := s.disk.Stats().Budget; written > budget/pinsEvery {
				written = 0
				s.touchPins()
			}
		}
	}
}

// takeBatch takes blocks from the queue. They cannot be evicted, and their memory
// stays, until write is done with them.
func (s *Store) takeBatch() []*held {
	s.mu.Lock()
	defer s.mu.Unlock()
	var batch []*held
	bytes := 0
	for h := s.mu.queue.first(); h != nil && len(batch) < batchBlocksMax; h = s.mu.queue.first() {
		if bytes += h.buf.Len(); bytes > batchBytesMax && len(batch) > 0 {
			break
		}
		s.mu.queue.remove(h)
		h.writing = true
		h.buf.Retain()
		s.mu.tree.Lease(h.header.ID)
		batch = append(batch, h)
	}
	s.mu.inFlight = len(batch)
	return batch
}

// write writes a batch and tells how many bytes of payload it had; 0 if it failed.
func (s *Store) write(batch []*held) int64 {
	records := make([]Record, len(batch))
	var bytes int64
	for i, h := range batch {
		records[i] = Record{Header: h.header, Payload: h.buf.Bytes()}
		bytes += int64(h.buf.Len())
	}
	err := s.disk.Put(s.ctx, records)
	s.tell(s.wrote(batch, bytes, err))
	if err != nil {
		return 0
	}
	return bytes
}

// tell reports that writing began to fail, or works again.
func (s *Store) tell(event Event) {
	switch e := event.(type) {
	case nil:
		return
	case DiskFailed:
		s.opts.Log.Warn("KV blocks cannot be written to disk and stay in RAM only", "full", e.Full, "error", e.Error)
	case DiskResumed:
		s.opts.Log.Info("KV blocks are written to disk again")
	}
	s.opts.Events(event)
}

// wrote records the outcome of a batch and returns the event to tell, or nil.
func (s *Store) wrote(batch []*held, bytes int64, err error) Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.mu.progress.Broadcast()
	s.mu.inFlight = 0
	for _, h := range batch {
		h.writing = false
		if err == nil {
			// A conflict means that the block lost its place meanwhile; it is found at
			// the next start, or never.
			_ = s.addLocked(prefix.Disk, h.header)
		}
		s.mu.tree.Release(h.header.ID)
		h.buf.Release() // with the lease: who evicts it now gets its memory
	}
	failing := s.mu.stats.DiskFailing
	if err == nil {
		s.mu.stats.Disk.BlocksIn += int64(len(batch))
		s.mu.stats.Disk.BytesIn += bytes
		s.mu.stats.DiskFailing, s.mu.stats.DiskFull = false, false
		if failing {
			return DiskResumed{}
		}
		return nil
	}
	return s.failedLocked(len(batch), err)
}

// failedLocked gives up what is queued and stops writing for a while.
func (s *Store) failedLocked(blocks int, err error) Event {
	full := errors.Is(err, ErrFull)
	again := failRetry
	if full {
		again = fullRetry
		s.mu.stats.Disk.Refusals += int64(blocks)
	}
	s.mu.retryAt = s.now() + prefix.Tick(again.Milliseconds())
	s.mu.stats.Queue.Errors++
	s.mu.stats.Queue.Drops += int64(blocks + s.mu.queue.blocks)
	for h := s.mu.queue.first(); h != nil; h = s.mu.queue.first() {
		s.mu.queue.remove(h)
	}
	if s.ctx.Err() != nil {
		return nil // Close ran out of time
	}
	known := s.mu.stats.DiskFailing && s.mu.stats.DiskFull == full
	s.mu.stats.DiskFailing, s.mu.stats.DiskFull = true, full
	if known {
		return nil
	}
	return DiskFailed{Full: full, Error: err.Error()}
}

// touchPins tells the disk tier that pinned blocks, and those before them, are worth
// keeping.
func (s *Store) touchPins() {
	var ids []block.ID
	for _, id := range s.pinned() {
		s.mu.Lock()
		ids = s.mu.tree.Path(id, pathMax, ids[:0])
		s.mu.Unlock()
		s.disk.Touch(ids)
	}
}

// Flush waits until all that was committed is visible and the write-behind queue is
// empty, whether its blocks were written or dropped, or until ctx ends.
func (s *Store) Flush(ctx context.Context) error {
	return s.wait(ctx, func() bool { return s.mu.unsealed == 0 && s.mu.queue.blocks == 0 && s.mu.inFlight == 0 })
}

// wait waits until done, which is called under the lock, or ctx ends.
func (s *Store) wait(ctx context.Context, done func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.progress.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !done() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.mu.progress.Wait()
	}
	return nil
}
