package kvstore_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

var (
	stressSeed  = flag.Uint64("stress-seed", 1, "seed of the stress test")
	stressSteps = flag.Int("stress-steps", 400, "steps of each goroutine of the stress test")
)

const (
	stressPrompts = 12
	stressLength  = 30
)

// faultyDisk lies, loses, fails and is slow at random.
func faultyDisk(seed uint64) *fakeDisk {
	d := newFakeDisk()
	d.budget = ramFor(200)
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 99))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	d.onPut = func(_ context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
		switch roll(12) {
		case 0:
			return nil, errors.New("input/output error")
		case 1:
			return b[:len(b)/2], kvstore.ErrFull
		case 2:
			return b[:len(b)/2], nil // says yes and loses
		}
		return b, nil
	}
	d.onGet = func(_ context.Context, d *fakeDisk, id block.ID, dst func(int) []byte) (block.Header, error, bool) {
		r, ok := d.record(id)
		if !ok {
			return block.Header{}, kvstore.ErrNotFound, true
		}
		switch roll(20) {
		case 0:
			return block.Header{}, nil, true
		case 1:
			return block.Header{}, errors.New("input/output error"), true
		case 2:
			r.Payload = bytes.Clone(r.Payload)
			r.Payload[roll(len(r.Payload))] ^= 1 << roll(8)
		case 3:
			r = sealed(headers(roll(stressPrompts), stressLength)[roll(stressLength)])
		case 4:
			r.Payload = payloadOf(headers(roll(stressPrompts), stressLength)[roll(stressLength)].ID)
		}
		h, err := give(r, dst)
		return h, err, true
	}
	return d
}

// stress is one run of owner, requests, disk and admin against each other.
type stress struct {
	t    *testing.T
	s    *kvstore.Store
	disk *fakeDisk
	seen atomic.Int64 // blocks that a request looked at
}

// own plays the engine: prefill of one prompt after the other.
func (x *stress) own(rnd *rand.Rand) {
	for range *stressSteps {
		hs := headers(rnd.IntN(stressPrompts), 1+rnd.IntN(stressLength))
		var open []*kvstore.Writer
		for _, h := range hs {
			w, ok := x.s.Reserve(h)
			if !ok {
				continue
			}
			copy(w.Bytes(), payloadOf(h.ID))
			open = append(open, w)
		}
		for _, w := range open {
			if rnd.IntN(20) == 0 {
				w.Abort()
			} else {
				w.Commit()
			}
		}
	}
}

// request plays a request, whose client may go away at any time.
func (x *stress) request(rnd *rand.Rand) {
	var closers sync.WaitGroup
	defer closers.Wait()
	for range *stressSteps {
		hs := headers(rnd.IntN(stressPrompts), 1+rnd.IntN(stressLength))
		run := x.s.Lookup(idsOf(hs))
		ctx, cancel := context.WithCancel(context.Background())
		switch rnd.IntN(4) {
		case 0:
			cancel()
		case 1:
			closers.Go(run.Close)
		}
		if err := run.Load(ctx, rnd.IntN(stressLength)); err != nil && !errors.Is(err, context.Canceled) {
			x.t.Error(err)
		}
		cancel()
		if rnd.IntN(2) == 0 {
			x.look(run, hs)
		}
		run.Used(0, run.Len())
		run.Close()
	}
}

// look checks what a run shows. A run that is closed meanwhile may not be looked at,
// so its references are taken from one that nobody closes.
func (x *stress) look(run *kvstore.Run, hs []block.Header) {
	run = x.s.Lookup(idsOf(hs[:min(run.Len(), len(hs))]))
	defer run.Close()
	if err := run.Load(context.Background(), 4); err != nil {
		x.t.Error(err)
	}
	for i, ref := range run.Blocks() {
		x.seen.Add(1)
		if err := right(ref, hs[i]); err != nil {
			x.t.Error(err)
		}
	}
}

// administer plays the web page and the command line.
func (x *stress) administer(rnd *rand.Rand) {
	ctx := context.Background()
	for range *stressSteps / 4 {
		h := headers(rnd.IntN(stressPrompts), stressLength)[rnd.IntN(stressLength)]
		var err error
		switch rnd.IntN(9) {
		case 0:
			_, _, err = x.s.List(ctx, 10)
		case 1:
			err = x.s.Pin(h.ID)
		case 2, 3:
			err = x.s.Unpin(h.ID)
		case 4:
			_, err = x.s.Evict(ctx, h.ID)
		case 5:
			_, err = x.s.Verify(ctx)
		case 6:
			_, err = x.s.Export(ctx, io.Discard, h.ID)
		case 7:
			x.s.Lost([]block.ID{h.ID})
		case 8:
			x.s.Stats()
			err = x.s.Check()
		}
		if err != nil && !errors.Is(err, kvstore.ErrNotFound) {
			x.t.Error(err)
		}
	}
}

func TestStoreUnderStress(t *testing.T) {
	d := faultyDisk(*stressSeed)
	var tick atomic.Int64
	s := open(t, kvstore.Options{
		Disk: d, RAMBytes: ramFor(100), Admission: 2, Queue: 20 * blockBytes(),
		Now: func() time.Time { return time.UnixMilli(tick.Add(200)) }, // so that failures are soon forgotten
	})
	x := &stress{t: t, s: s, disk: d}
	plays := []func(*rand.Rand){x.own, x.request, x.request, x.request, x.administer}
	reached := false
	for wave := 0; wave < 50 && !reached; wave++ { // how they interleave is the scheduler's
		var wg sync.WaitGroup
		for i, play := range plays {
			wg.Go(func() { play(rand.New(rand.NewPCG(*stressSeed, uint64(wave*len(plays)+i)))) })
		}
		wg.Wait()
		flush(t, s)
		st := s.Stats()
		reached = x.seen.Load() > 0 && st.RAM.Evictions > 0 && st.Disk.Corrupt > 0 && st.Disk.BlocksOut > 0
	}
	t.Logf("%d blocks seen; %+v", x.seen.Load(), s.Stats())
	if !reached {
		t.Errorf("the test did not reach what it is for; go test ./kvstore -run %s -stress-seed %d", t.Name(), *stressSeed)
	}
	closeStore(t, s)
	if err := s.Idle(); err != nil {
		t.Error(err)
	}
}
