package kvstore_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// A block that became visible stays while the one after it is still being written.
func TestAWriterProtectsTheBlockBefore(t *testing.T) {
	s := open(t, kvstore.Options{RAMBytes: ramFor(3)})
	hs := headers(1, 2)
	first, _ := s.Reserve(hs[0])
	second, _ := s.Reserve(hs[1])
	copy(first.Bytes(), payloadOf(hs[0].ID))
	first.Commit()
	flush(t, s)
	if n := put(s, headers(2, 3)); n != 1 {
		t.Errorf("%d blocks were accepted, want the one for which there is room", n)
	}
	copy(second.Bytes(), payloadOf(hs[1].ID))
	second.Commit()
	flush(t, s)
	wantRun(t, s, hs, 2, 2)
	if err := s.Idle(); err != nil {
		t.Error(err)
	}
}

func TestReserveCopiesTheTokens(t *testing.T) {
	d := newFakeDisk()
	s := open(t, kvstore.Options{Disk: d})
	hs := headers(1, 1)
	tokens := hs[0].Tokens
	w, _ := s.Reserve(hs[0])
	copy(w.Bytes(), payloadOf(hs[0].ID))
	tokens[0]++ // the engine goes on with its slice
	w.Commit()
	flush(t, s)
	if err := testKey.Verify(d.mu.held[hs[0].ID].Header); err != nil {
		t.Error(err)
	}
}

// The end of the store is no reason to delete what was being read.
func TestAnInterruptedReadDeletesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		hs := headers(1, 1)
		preload(d, hs)
		d.onGet = func(ctx context.Context, _ *fakeDisk, _ block.ID, dst func(int) []byte) (block.Header, error, bool) {
			dst(blockBytes())
			<-ctx.Done()
			return block.Header{}, ctx.Err(), true
		}
		s := open(t, kvstore.Options{Disk: d})
		run := s.Lookup(idsOf(hs))
		loaded := make(chan error)
		go func() { loaded <- run.Load(context.Background(), 1) }()
		synctest.Wait()
		closeStore(t, s)
		if err := <-loaded; err != nil || run.Len() != 0 {
			t.Errorf("load: %v, %d blocks", err, run.Len())
		}
		run.Close()
		if d.blocks() != 1 || s.Stats().Disk.Corrupt != 0 {
			t.Error("the block was deleted")
		}
	})
}

// What is being written to disk keeps its memory, even if the block is deleted from
// RAM meanwhile.
func TestABatchKeepsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		wait, let := hang()
		intact := false
		h := headers(1, 1)[0]
		d.onPut = func(_ context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
			wait()
			want := payloadOf(h.ID)
			want[3]++
			intact = bytes.Equal(b[0].Payload, want)
			return nil, nil
		}
		s := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(1)})
		put(s, []block.Header{h})
		synctest.Wait()
		run := s.Lookup([]block.ID{h.ID})
		run.Blocks()[0].Payload()[3]++
		run.Close()
		if v, err := s.Verify(context.Background()); v.Damaged != 1 || err != nil {
			t.Errorf("verify: %+v, %v", v, err)
		}
		let()
		flush(t, s)
		if !intact {
			t.Error("the memory of a block was given away while it was written")
		}
		closeStore(t, s)
	})
}

// Close does not write more than the disk tier holds: the end of it would push the
// beginning out.
func TestCloseSavesNoMoreThanFits(t *testing.T) {
	d := newFakeDisk()
	d.budget = int64(8 * blockBytes())
	s := open(t, kvstore.Options{Disk: d, Admission: 100})
	mustPut(t, s, headers(1, 20))
	closeStore(t, s)
	if d.blocks() != 6 { // three quarters
		t.Errorf("%d blocks were written, want 6", d.blocks())
	}
}

// A Close that has no time gives everything back all the same.
func TestCloseWithoutTime(t *testing.T) {
	for range 20 {
		s := open(t, kvstore.Options{Disk: newFakeDisk()})
		put(s, headers(1, 90))
		open, _ := s.Reserve(headers(2, 1)[0])
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // it may or may not be done
		open.Abort()
		for deadline := time.Now().Add(10 * time.Second); s.Stats().Arena.Bufs > 0; {
			if time.Now().After(deadline) {
				t.Fatalf("%d buffers are in use", s.Stats().Arena.Bufs)
			}
		}
	}
}
