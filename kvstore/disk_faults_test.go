package kvstore_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

type getFunc func(ctx context.Context, d *fakeDisk, id block.ID, dst func(int) []byte) (block.Header, error, bool)

// lieAbout makes a disk answer for one block by lie.
func lieAbout(bad block.ID, lie func(r kvstore.Record, dst func(int) []byte) (block.Header, error)) getFunc {
	return func(_ context.Context, d *fakeDisk, id block.ID, dst func(int) []byte) (block.Header, error, bool) {
		if id != bad {
			return block.Header{}, nil, false
		}
		r, _ := d.record(id)
		h, err := lie(r, dst)
		return h, err, true
	}
}

// Whatever the disk says, a wrong block is never visible: the run ends before it, it
// is deleted, and the blocks before it are right.
func TestDiskLies(t *testing.T) {
	const n, bad = 6, 3
	hs := headers(1, n)
	other := sealed(headers(2, n)[bad])
	edited := func(edit func(*kvstore.Record)) func(kvstore.Record, func(int) []byte) (block.Header, error) {
		return func(r kvstore.Record, dst func(int) []byte) (block.Header, error) {
			r.Payload = slices.Clone(r.Payload)
			edit(&r)
			return give(r, dst)
		}
	}
	tests := []struct {
		name    string
		lie     func(kvstore.Record, func(int) []byte) (block.Header, error)
		deleted bool
	}{
		{"one bit is flipped", edited(func(r *kvstore.Record) { r.Payload[100] ^= 4 }), true},
		{"the payload of another block", edited(func(r *kvstore.Record) { r.Payload = other.Payload }), true},
		{"another block", edited(func(r *kvstore.Record) { *r = other }), true},
		{"another block under this id", edited(func(r *kvstore.Record) { *r = other; r.Header.ID = hs[bad].ID; *r = resealed(*r) }), true},
		{"other tokens", edited(func(r *kvstore.Record) {
			r.Header.Tokens = []block.Token{9, 9, 9, 9}
			*r = resealed(*r)
		}), true},
		{"other positions", edited(func(r *kvstore.Record) { r.Header.Start += testCount; *r = resealed(*r) }), true},
		{"not a number", edited(func(r *kvstore.Record) { r.Payload[1] = 0x7e; *r = resealed(*r) }), true},
		{"a short payload", edited(func(r *kvstore.Record) { r.Payload = r.Payload[:len(r.Payload)-1] }), true},
		{"a long payload", edited(func(r *kvstore.Record) { r.Payload = append(r.Payload, 0) }), true},
		{"a huge length", func(r kvstore.Record, dst func(int) []byte) (block.Header, error) {
			if dst(math.MaxInt) != nil || dst(-1) != nil || dst(0) != nil {
				t.Error("memory was given for a wrong length")
			}
			return r.Header, nil
		}, true},
		{"memory asked for twice", func(r kvstore.Record, dst func(int) []byte) (block.Header, error) {
			h, err := give(r, dst)
			if dst(len(r.Payload)) != nil {
				t.Error("memory was given twice")
			}
			h.Digest[0]++
			return h, err
		}, true},
		{"nothing, without an error", func(kvstore.Record, func(int) []byte) (block.Header, error) { return block.Header{}, nil }, true},
		{"only the header", func(r kvstore.Record, _ func(int) []byte) (block.Header, error) { return r.Header, nil }, true},
		{"memory, but no bytes", func(r kvstore.Record, dst func(int) []byte) (block.Header, error) {
			clear(dst(len(r.Payload)))
			return r.Header, nil
		}, true},
		{"an error", func(kvstore.Record, func(int) []byte) (block.Header, error) {
			return block.Header{}, errors.New("input/output error")
		}, true},
		{"an error after all bytes", func(r kvstore.Record, dst func(int) []byte) (block.Header, error) {
			h, _ := give(r, dst)
			return h, errors.New("input/output error")
		}, true},
		{"not found", func(kvstore.Record, func(int) []byte) (block.Header, error) {
			return block.Header{}, kvstore.ErrNotFound
		}, false},
		{"an unknown fingerprint", edited(func(r *kvstore.Record) { r.Header.Fingerprint[0]++; *r = resealed(*r) }), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newFakeDisk()
			preload(d, hs)
			d.onGet = lieAbout(hs[bad].ID, tt.lie)
			var events []kvstore.Event
			s := open(t, kvstore.Options{Disk: d, Events: func(e kvstore.Event) { events = append(events, e) }})
			wantRun(t, s, hs, n, bad)
			if forgot := slices.Contains(d.mu.forgot, hs[bad].ID); forgot != tt.deleted {
				t.Errorf("deleted is %t, want %t", forgot, tt.deleted)
			}
			if got := s.Stats().Disk.Corrupt; (got == 1) != tt.deleted || (len(events) == 1) != tt.deleted {
				t.Errorf("%d damaged blocks counted, events %v", got, events)
			}
			d.onGet = nil
			if tt.name != "an unknown fingerprint" {
				// Nothing but a new computation fills the gap.
				mustPut(t, s, hs[bad:bad+1])
			}
			wantRun(t, s, hs, n, n)
			if err := s.Idle(); err != nil {
				t.Error(err)
			}
		})
	}
}

// resealed makes the digest fit again: a lie that only other checks find.
func resealed(r kvstore.Record) kvstore.Record {
	r.Header.Digest = r.Header.Sum(r.Payload)
	return r
}

func TestBlocksOutliveTheProcess(t *testing.T) {
	d := newFakeDisk()
	hs := headers(1, 150)
	first := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(200)})
	mustPut(t, first, hs)
	closeStore(t, first)
	second := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(200)})
	wantRun(t, second, hs, 150, 150)
	st := second.Stats()
	if st.Disk.Hits != 150 || st.Disk.BlocksOut != 150 || st.RAM.Hits != 0 || st.RAM.Misses != 150 {
		t.Errorf("RAM %+v, disk %+v", st.RAM, st.Disk)
	}
	if d.mu.touched[hs[149].ID] == 0 {
		t.Error("the disk was not told of the use")
	}
	gets := d.mu.gets
	wantRun(t, second, hs, 150, 150)
	if d.mu.gets != gets {
		t.Error("blocks that are in RAM were read again")
	}
}

// What the disk claims at the start is not believed further than it must be.
func TestDamagedKeysAreForgotten(t *testing.T) {
	d := newFakeDisk()
	hs := headers(1, 3)
	preload(d, hs)
	for i, edit := range []func(*block.Header){
		func(h *block.Header) { h.PayloadBytes = -1 },
		func(h *block.Header) { h.PayloadBytes = math.MaxInt },
		func(h *block.Header) { h.Start = -5 },
		func(h *block.Header) { h.Parent = h.ID },
		func(h *block.Header) { h.ID = block.ID{} },
	} {
		h := headers(10+i, 1)[0]
		edit(&h)
		d.mu.held[h.ID] = kvstore.Record{Header: h}
	}
	s := open(t, kvstore.Options{Disk: d})
	if len(d.mu.forgot) != 5 || s.Stats().Disk.Corrupt != 5 || s.Stats().Disk.Blocks != 3 {
		t.Errorf("forgotten %v; %+v", d.mu.forgot, s.Stats().Disk)
	}
	wantRun(t, s, hs, 3, 3)
}

// A disk that says yes and keeps nothing costs misses, no more.
func TestDiskLosesWhatItPromised(t *testing.T) {
	d := newFakeDisk()
	d.onPut = func(context.Context, []kvstore.Record) ([]kvstore.Record, error) { return nil, nil }
	s := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(4)})
	hs := headers(1, 4)
	mustPut(t, s, hs)
	mustPut(t, s, headers(2, 3)) // pushes three out of RAM
	wantRun(t, s, hs, 4, 1)
	wantRun(t, s, hs, 1, 1)
	if st := s.Stats(); st.RAM.EvictedLost != 0 || st.Disk.Corrupt != 0 {
		t.Errorf("%+v", st)
	}
}

func TestFullDiskStopsWritingAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		full := true
		d.onPut = func(_ context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
			if full {
				return b[:len(b)/2], kvstore.ErrFull
			}
			return b, nil
		}
		var events []kvstore.Event
		s := open(t, kvstore.Options{Disk: d, Events: func(e kvstore.Event) { events = append(events, e) }})
		mustPut(t, s, headers(1, 5))
		puts := d.mu.puts
		mustPut(t, s, headers(2, 5)) // is not even tried
		if d.mu.puts != puts {
			t.Error("a full disk was written to")
		}
		st := s.Stats()
		if !st.DiskFull || st.Queue.Errors == 0 || st.Queue.Drops != 10 || st.Queue.Blocks != 0 {
			t.Errorf("%+v", st)
		}
		wantRun(t, s, headers(1, 5), 5, 5) // reading goes on
		wantRun(t, s, headers(2, 5), 5, 5)
		full = false
		time.Sleep(31 * time.Second)
		wantRun(t, s, headers(1, 5), 5, 5) // a use queues them again
		flush(t, s)
		if st := s.Stats(); st.DiskFull || st.Disk.BlocksIn != 5 {
			t.Errorf("after there was room again: %+v", st)
		}
		if len(events) != 2 || events[0].(kvstore.DiskFailed).Full != true || events[1] != (kvstore.DiskResumed{}) {
			t.Errorf("events %v", events)
		}
		closeStore(t, s)
	})
}

func TestFailingDiskIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		d.onPut = func(context.Context, []kvstore.Record) ([]kvstore.Record, error) {
			return nil, errors.New("input/output error")
		}
		s := open(t, kvstore.Options{Disk: d})
		for range 3 {
			wantRun(t, s, headers(1, 2), min(2, s.Stats().RAM.Blocks), min(2, s.Stats().RAM.Blocks))
			put(s, headers(1, 2))
			flush(t, s)
			time.Sleep(6 * time.Second)
		}
		if st := s.Stats(); st.Queue.Errors != 3 || !st.DiskFailing || st.DiskFull {
			t.Errorf("%+v", st)
		}
		closeStore(t, s)
	})
}

// hang makes a disk that does not answer, whatever its context says, until let is
// called.
func hang() (wait func(), let func()) {
	gate := make(chan struct{})
	return func() { <-gate }, func() { close(gate) }
}

func TestSlowReadsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		hs := headers(1, 20)
		preload(d, hs)
		wait, let := hang()
		d.onGet = func(_ context.Context, _ *fakeDisk, _ block.ID, dst func(int) []byte) (block.Header, error, bool) {
			wait()
			return block.Header{}, nil, false
		}
		s := open(t, kvstore.Options{Disk: d})
		run := s.Lookup(idsOf(hs))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		start := time.Now()
		if err := run.Load(ctx, 20); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("load: %v", err)
		}
		cancel()
		if took := time.Since(start); took != time.Second {
			t.Errorf("load took %v", took)
		}
		run.Close()

		// Without a deadline of its own, a load ends by itself, as a miss.
		run = s.Lookup(idsOf(hs))
		start = time.Now()
		if err := run.Load(context.Background(), 20); err != nil || run.Len() != 0 {
			t.Errorf("load: %v, %d blocks", err, run.Len())
		}
		if took := time.Since(start); took != 30*time.Second {
			t.Errorf("load took %v", took)
		}
		run.Close()

		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		let()
		synctest.Wait()
		if a := s.Stats().Arena; a.UsedBytes != 0 {
			t.Errorf("%d bytes are in use", a.UsedBytes)
		}
		if err := s.Idle(); err != nil {
			t.Error(err)
		}
	})
}

// Two requests for the same blocks read them once; the one that gives up does not
// spoil it for the other.
func TestLoadsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		hs := headers(1, 5)
		preload(d, hs)
		wait, let := hang()
		d.onGet = func(context.Context, *fakeDisk, block.ID, func(int) []byte) (block.Header, error, bool) {
			wait()
			return block.Header{}, nil, false
		}
		s := open(t, kvstore.Options{Disk: d})
		impatient, patient := s.Lookup(idsOf(hs)), s.Lookup(idsOf(hs))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 2)
		go func() { done <- impatient.Load(ctx, 5) }()
		go func() { done <- patient.Load(context.Background(), 5) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled load: %v", err)
		}
		impatient.Close()
		let()
		if err := <-done; err != nil || len(patient.Blocks()) != 5 {
			t.Errorf("the other: %v, %d blocks", err, len(patient.Blocks()))
		}
		patient.Close()
		if d.mu.gets != 5 {
			t.Errorf("%d reads of 5 blocks", d.mu.gets)
		}
		closeStore(t, s)
	})
}

func TestFullQueueDropsAndKeepsInRAM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		wait, let := hang()
		d.onPut = func(_ context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
			wait()
			return b, nil
		}
		s := open(t, kvstore.Options{Disk: d, Queue: 3 * blockBytes()})
		put(s, headers(9, 1)) // is being written when the others come
		synctest.Wait()
		hs := headers(1, 8)
		put(s, hs)
		synctest.Wait()
		checkStore(t, s)
		if st := s.Stats(); st.Queue.Blocks != 3 || st.Queue.Drops != 5 || st.Queue.Bytes != int64(3*blockBytes()) {
			t.Errorf("%+v", st.Queue)
		}
		let()
		flush(t, s)
		if d.blocks() != 4 {
			t.Errorf("%d blocks are on disk, want 4", d.blocks())
		}
		wantRun(t, s, hs, 8, 8) // uses them, which queues three of those that were dropped
		flush(t, s)
		if d.blocks() < 7 {
			t.Errorf("%d blocks are on disk, want at least 7", d.blocks())
		}
		closeStore(t, s)
	})
}

// A block that is evicted leaves the queue; one that is being written stays in RAM.
func TestEvictionAndTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		wait, let := hang()
		d.onPut = func(_ context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
			wait()
			return b, nil
		}
		s := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(3)})
		put(s, headers(1, 1))
		synctest.Wait() // it is being written
		put(s, headers(2, 2))
		synctest.Wait()
		if n := put(s, headers(3, 3)); n != 2 {
			t.Errorf("%d blocks were accepted, want the two whose room may be made", n)
		}
		synctest.Wait()
		checkStore(t, s)
		if st := s.Stats(); st.Queue.Drops != 2 || st.RAM.EvictedLost != 2 || st.Queue.Blocks != 2 {
			t.Errorf("%+v %+v", st.Queue, st.RAM)
		}
		let()
		flush(t, s)
		wantRun(t, s, headers(1, 1), 1, 1)
		wantRun(t, s, headers(3, 2), 2, 2)
		closeStore(t, s)
	})
}

func TestAdmissionWaitsForTheSecondUse(t *testing.T) {
	d := newFakeDisk()
	s := open(t, kvstore.Options{Disk: d, Admission: 2})
	hs := headers(1, 6)
	mustPut(t, s, hs)
	if d.blocks() != 0 {
		t.Errorf("%d blocks were written at their first use", d.blocks())
	}
	wantRun(t, s, hs[:2], 2, 2)
	flush(t, s)
	if d.blocks() != 2 {
		t.Errorf("%d blocks are on disk, want the two that were used again", d.blocks())
	}
	closeStore(t, s)
	if d.blocks() != 6 {
		t.Errorf("%d blocks are on disk after the end, want all", d.blocks())
	}
}

// Close writes the most used blocks first and stops in time.
func TestCloseSavesWhatItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDisk()
		d.onPut = func(ctx context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
			select {
			case <-time.After(time.Second):
				return b, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		var closed kvstore.StoreClosed
		s := open(t, kvstore.Options{Disk: d, Admission: 100, RAMBytes: ramFor(300), Events: func(e kvstore.Event) {
			switch e := e.(type) {
			case kvstore.StoreClosed:
				closed = e
			case kvstore.DiskFailed:
				t.Errorf("the end of time is no failure of the disk: %+v", e)
			}
		}})
		cold, hot := headers(1, 100), headers(2, 100)
		mustPut(t, s, cold)
		mustPut(t, s, hot)
		for range 3 {
			wantRun(t, s, hot, 100, 100)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second) // five batches of 32 blocks fit
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		if got := slices.Index(d.mu.order, cold[0].ID); got != 100 {
			t.Errorf("the first unused block is number %d on disk, want 100", got)
		}
		if closed.SavedBlocks != d.blocks() || closed.SavedBlocks+closed.LostBlocks != 200 || closed.LostBlocks == 0 {
			t.Errorf("told %+v, %d are on disk", closed, d.blocks())
		}
	})
}

func TestLostGenerationsLeaveTheTree(t *testing.T) {
	d := newFakeDisk()
	hs := headers(1, 200)
	preload(d, hs)
	var lost int
	s := open(t, kvstore.Options{Disk: d, RAMBytes: ramFor(300), Admission: 100, Events: func(e kvstore.Event) {
		if e, ok := e.(kvstore.BlocksLost); ok {
			lost += e.Blocks
		}
	}})
	wantRun(t, s, hs[:150], 150, 150)
	s.Lost(idsOf(hs[100:]))
	wantRun(t, s, hs, 150, 150)
	if st := s.Stats().Disk; st.Blocks != 100 || st.Evictions != 100 || st.EvictedLost != 50 || lost != 100 {
		t.Errorf("%+v, event tells of %d", st, lost)
	}
}
