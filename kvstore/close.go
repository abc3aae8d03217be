package kvstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tandem/kvstore/prefix"
)

// Close saves what is in RAM to disk, the most valuable blocks first and also those
// that admission held back, until ctx is about to end; then it waits for the store's
// goroutines and closes the disk. Writers that are open are as good as aborted.
// Memory that runs still show stays until they are closed. An error says what was
// still going on when ctx ended. A second call does nothing.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return nil
	}
	s.mu.closed = true
	s.mu.Unlock()
	s.save(ctx)
	s.cancel()
	s.mu.Lock()
	s.mu.progress.Broadcast()
	s.mu.Unlock()
	err := finish(ctx, "the disk tier still reads or writes", func() error { s.tasks.Wait(); return nil })
	if err == nil && s.disk != nil {
		err = finish(ctx, "the disk tier is still closing", s.disk.Close)
	}
	s.tellClosed()
	s.releaseRAM()
	s.arena.Close()
	if s.lock != nil {
		unlockFile(s.lock)
	}
	if err != nil {
		return fmt.Errorf("close KV store: %w", err)
	}
	return nil
}

// finish runs what takes no context and leaves it alone if ctx ends before it does.
func finish(ctx context.Context, what string, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select { // both may have happened
	case err := <-done:
		return err
	default:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// save writes the RAM tier to disk. An eighth of the time is left for closing.
func (s *Store) save(ctx context.Context) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)*7/8)
		defer cancel()
	}
	if s.wait(ctx, func() bool { return s.mu.unsealed == 0 }) != nil || s.disk == nil {
		return
	}
	s.queueAll()
	// What the time does not suffice for is lost; tellClosed says how much.
	_ = s.wait(ctx, func() bool { return s.mu.queue.blocks == 0 && s.mu.inFlight == 0 })
}

// queueAll queues all blocks of RAM that are not on disk, the most valuable first,
// but not more than the disk can take without losing the first of them again.
func (s *Store) queueAll() {
	type item struct {
		*held
		info prefix.Info
	}
	room := s.disk.Stats().Budget / 4 * 3
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []item
	for id, h := range s.mu.ram {
		if info, ok := s.mu.tree.Get(id); ok && !info.Tiers.Has(prefix.Disk) && !h.writing && s.fitsDisk(h.buf.Len()) {
			items = append(items, item{h, info})
		}
		if h.queued {
			s.mu.queue.remove(h)
		}
	}
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.info.Value, a.info.Value), cmp.Compare(a.info.Start, b.info.Start),
			slices.Compare(a.info.ID[:], b.info.ID[:]))
	})
	s.mu.queue = queue{}
	for _, it := range items {
		if room > 0 && s.mu.queue.bytes+int64(it.buf.Len()) > room {
			break
		}
		s.mu.queue.push(it.held)
	}
	wake(s.toDisk)
}

// tellClosed tells what of the RAM tier is on disk.
func (s *Store) tellClosed() {
	if s.disk == nil {
		return
	}
	var e StoreClosed
	s.mu.Lock()
	for id, h := range s.mu.ram {
		if info, ok := s.mu.tree.Get(id); ok && info.Tiers.Has(prefix.Disk) {
			e.SavedBlocks++
			e.SavedBytes += int64(h.buf.Len())
		} else {
			e.LostBlocks++
			e.LostBytes += int64(h.buf.Len())
		}
	}
	s.mu.Unlock()
	s.opts.Log.Info("the KV store is closed", "saved_blocks", e.SavedBlocks, "saved_bytes", e.SavedBytes,
		"lost_blocks", e.LostBlocks, "lost_bytes", e.LostBytes)
	s.opts.Events(e)
}

// releaseRAM gives up the memory of all blocks and of writers whose block will never
// be visible.
func (s *Store) releaseRAM() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.mu.ram {
		s.removeLocked(id) // from the queue too: the writer may be late
	}
	for _, w := range s.mu.sealing {
		w.buf.Release()
	}
	s.mu.sealing = nil
}
