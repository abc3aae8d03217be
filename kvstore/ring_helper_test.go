package kvstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/kvstore/block"
)

// ringShape has layers of 64 f16 values for K and V: 256 bytes a token and layer.
func ringShape(layers int) block.Shape {
	row := block.Row{Type: block.F16, Values: 64}
	s := block.Shape{}
	for range layers {
		s.Layers = append(s.Layers, block.Layer{K: row, V: row})
	}
	return s
}

// ringMaker makes blocks whose payload follows from their id, so that whatever is
// read can be compared with what must have been written, by anybody.
type ringMaker struct {
	shape block.Shape
	count int
	bad   *atomic.Int64 // blocks that were found damaged
	key   block.Key
	root  block.ID
}

func newRingMaker(layers, count int) ringMaker {
	m := ringMaker{bad: new(atomic.Int64), shape: ringShape(layers), count: count, key: block.Key{1}}
	m.root = m.key.Root(m.fingerprint(), "")
	return m
}

func (m ringMaker) fingerprint() block.Fingerprint {
	return block.Fingerprint{byte(len(m.shape.Layers))}
}

// payload is a pattern of random finite f16 numbers, over and over.
func (m ringMaker) payload(id block.ID) []byte {
	r := rand.NewPCG(binary.LittleEndian.Uint64(id[:]), binary.LittleEndian.Uint64(id[8:]))
	var pattern []byte
	for range 64 {
		pattern = binary.LittleEndian.AppendUint64(pattern, r.Uint64()&^0x4000400040004000)
	}
	return bytes.Repeat(pattern, m.count*m.shape.Bytes()/len(pattern))
}

// next is the block after parent, at position start, whose tokens begin with n.
func (m ringMaker) next(parent block.ID, start int, n int32) Record {
	h := block.Header{Parent: parent, Fingerprint: m.fingerprint(), Start: start, Count: m.count, PayloadBytes: m.count * m.shape.Bytes()}
	for i := range m.count {
		h.Tokens = append(h.Tokens, n+int32(i))
	}
	h.ID = m.key.Next(parent, h.Tokens)
	p := m.payload(h.ID)
	h.Digest = h.Sum(p)
	return Record{Header: h, Payload: p}
}

// chain is n blocks after the root; chains of different numbers share none.
func (m ringMaker) chain(number int32, n int) []Record {
	var out []Record
	parent := m.root
	for i := range n {
		out = append(out, m.next(parent, i*m.count, number))
		parent = out[i].Header.ID
	}
	return out
}

// verify reads a block. Anything but the right bytes or a miss is reported;
// ok is false for a miss.
func (m ringMaker) verify(t testing.TB, d Disk, id block.ID) (ok bool) {
	t.Helper()
	var payload []byte
	h, err := d.Get(context.Background(), id, func(n int) []byte {
		payload = make([]byte, n)
		return payload
	})
	if err != nil {
		if !errors.Is(err, ErrNotFound) && !errors.Is(err, block.ErrDamaged) {
			t.Errorf("block %s: %v; wanted a miss or damage", id, err)
		}
		if !errors.Is(err, ErrNotFound) {
			m.bad.Add(1)
		}
		return false
	}
	if h.ID != id {
		t.Errorf("asked for block %s, got %s", id, h.ID)
	}
	// A damaged payload is the caller's to find; it counts as a miss here, too.
	if err := h.Check(m.shape, payload); err != nil {
		m.bad.Add(1)
		return false
	}
	if err := m.key.Verify(h); err != nil {
		t.Errorf("block %s: %v", id, err)
	}
	if !bytes.Equal(payload, m.payload(id)) {
		t.Errorf("block %s: it verifies, but is not what was written", id)
	}
	return true
}

func ringIDs(batch []Record) []block.ID {
	var ids []block.ID
	for _, r := range batch {
		ids = append(ids, r.Header.ID)
	}
	return ids
}

func openTestRing(t testing.TB, dir string, o RingOptions) *Ring {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	}
	r, err := OpenRing(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeRing(t, r) })
	return r
}

func closeRing(t testing.TB, r *Ring) {
	t.Helper()
	if err := r.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(b)))
	return len(b), nil
}

func put(t testing.TB, r *Ring, batch ...Record) {
	t.Helper()
	if err := r.Put(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition, looking again after each round of the keeper.
func until(t testing.TB, r *Ring, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		change := r.room.change()
		if cond() {
			return
		}
		r.wake()
		select {
		case <-change:
		case <-deadline:
			t.Fatalf("in vain: waiting until %s", what)
		}
	}
}

// sampler measures a folder over and over until stopped.
type sampler struct {
	stop chan struct{}
	done sync.WaitGroup
	most int64
	sum  float64
	n    int
}

func sample(dir string) *sampler {
	s := &sampler{stop: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			n := folderBytes(dir)
			for range 2 {
				// A look takes time: what was deleted and what was written meanwhile
				// may both be counted. It is too much only if it stays so.
				if n > s.most {
					n = min(n, folderBytes(dir))
				}
			}
			s.most = max(s.most, n)
			s.sum += float64(n)
			s.n++
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	})
	return s
}

// end is the most and the mean of what was seen.
func (s *sampler) end() (most int64, mean float64, n int) {
	close(s.stop)
	s.done.Wait()
	return s.most, s.sum / float64(s.n), s.n
}

// ringDir is a folder in memory, if there is room for it: many tests wait for the
// disk more than for anything else. KV_TEST_DIR names another place.
func ringDir(t testing.TB) string {
	t.Helper()
	base := os.Getenv("KV_TEST_DIR")
	if base == "" {
		base = "/dev/shm"
		if free, _, err := diskFree(base); err != nil || free < 1<<30 {
			return filepath.Join(t.TempDir(), "kv")
		}
	}
	dir, err := os.MkdirTemp(base, "tandem-kv-")
	if err != nil {
		return filepath.Join(t.TempDir(), "kv")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "kv")
}
