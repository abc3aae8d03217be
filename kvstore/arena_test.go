package kvstore_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"tandem/kvstore"
)

func newArena(t testing.TB, bytes int64) *kvstore.Arena {
	t.Helper()
	a, err := kvstore.NewArena(bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := a.Close(); n > 0 {
			t.Errorf("%d buffers were never released", n)
		}
	})
	return a
}

func checkArena(t *testing.T, a *kvstore.Arena) {
	t.Helper()
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
}

// Buffers keep what was written, whatever is allocated and released meanwhile.
func TestArenaKeepsBuffersApart(t *testing.T) {
	type held struct {
		buf  *kvstore.Buf
		fill byte
	}
	const size = 1 << 20
	for seed := range uint64(3) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		a := newArena(t, size)
		a.Poison()
		var all []held
		refused, total := 0, 0
		for range 3000 {
			if n := rnd.IntN(40_000) + 1; rnd.IntN(5) < 3 {
				buf := a.Alloc(n)
				if buf == nil {
					refused++
					continue
				}
				h := held{buf, byte(rnd.IntN(256))}
				copy(buf.Bytes(), bytes.Repeat([]byte{h.fill}, n))
				if len(buf.Bytes()) != n || uintptr(unsafe.Pointer(&buf.Bytes()[0]))%64 != 0 {
					t.Fatalf("seed %d: a buffer of %d bytes has %d at %p", seed, n, len(buf.Bytes()), &buf.Bytes()[0])
				}
				all = append(all, h)
				total++
			} else if len(all) > 0 {
				i := rnd.IntN(len(all))
				h := all[i]
				if bytes.Count(h.buf.Bytes(), []byte{h.fill}) != h.buf.Len() {
					t.Fatalf("seed %d: a buffer holds what was written to another", seed)
				}
				h.buf.Release()
				all[i] = all[len(all)-1]
				all = all[:len(all)-1]
			}
			checkArena(t, a)
		}
		if refused == 0 || total < 500 {
			t.Errorf("seed %d: %d allocations, %d refused: the arena was never full", seed, total, refused)
		}
		for _, h := range all {
			h.buf.Release()
		}
		checkArena(t, a)
		if whole := a.Alloc(size); whole == nil {
			t.Errorf("seed %d: the empty arena is in pieces", seed)
		} else {
			whole.Release()
		}
	}
}

// Blocks of one size fill the arena to the last, also after it was in pieces.
func TestArenaReusesHolesOfTheSameSize(t *testing.T) {
	const n, size = 100, 1000 * 64
	a := newArena(t, n*size)
	var bufs []*kvstore.Buf
	for range n {
		bufs = append(bufs, a.Alloc(size))
	}
	if a.Alloc(1) != nil {
		t.Fatal("a full arena gave memory")
	}
	for i := 0; i < n; i += 2 {
		bufs[i].Release()
	}
	for i := 0; i < n; i += 2 {
		if bufs[i] = a.Alloc(size); bufs[i] == nil {
			t.Fatalf("hole %d was not found", i)
		}
	}
	for _, b := range bufs {
		b.Release()
	}
	checkArena(t, a)
}

func TestArenaSizes(t *testing.T) {
	for _, size := range []int64{-1, 0, 63, 1<<63 - 1} {
		if a, err := kvstore.NewArena(size, nil); err == nil {
			a.Close()
			t.Errorf("an arena of %d bytes was made", size)
		}
	}
	a := newArena(t, 1<<16)
	for _, n := range []int{-1, 0, 1<<16 + 1, 1<<63 - 1} {
		if b := a.Alloc(n); b != nil {
			t.Errorf("%d bytes were given", n)
		}
	}
}

func TestArenaCountsReferences(t *testing.T) {
	a := newArena(t, 1<<16)
	b := a.Alloc(100)
	b.Retain().Release()
	if got := a.Stats(); got.UsedBytes != 128 || got.Bufs != 1 {
		t.Errorf("with one reference: %+v", got)
	}
	b.Release()
	if got := a.Stats(); got.UsedBytes != 0 || got.Bufs != 0 {
		t.Errorf("without: %+v", got)
	}
	for name, misuse := range map[string]func(*kvstore.Buf){
		"release": (*kvstore.Buf).Release,
		"retain":  func(b *kvstore.Buf) { b.Retain() },
		"bytes":   func(b *kvstore.Buf) { b.Bytes() },
	} {
		func() {
			b := a.Alloc(100)
			b.Release()
			defer func() {
				if recover() == nil {
					t.Errorf("%s after the last release passed", name)
				}
			}()
			misuse(b)
		}()
	}
}

func TestPoisonFindsWritesAfterRelease(t *testing.T) {
	a, err := kvstore.NewArena(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Poison()
	b := a.Alloc(4096)
	late := b.Bytes()
	b.Release()
	late[100] = 1
	defer func() {
		if recover() == nil {
			t.Error("the write was not found")
		}
		late[100] = 0
	}()
	a.Alloc(4096)
}

// Memory stays mapped while somebody reads it.
func TestArenaCloseWaitsForReaders(t *testing.T) {
	a, err := kvstore.NewArena(1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := a.Alloc(1000)
	b.Bytes()[999] = 42
	if n := a.Close(); n != 1 {
		t.Errorf("close tells of %d buffers, want 1", n)
	}
	if a.Alloc(1) != nil {
		t.Error("a closed arena gave memory")
	}
	if b.Bytes()[999] != 42 {
		t.Error("the buffer changed")
	}
	b.Release()
	if n := a.Close(); n != 0 {
		t.Errorf("closing again tells of %d buffers", n)
	}
}

func TestArenaIsSafeForConcurrentUse(t *testing.T) {
	a := newArena(t, 1<<18)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 2))
			for range 2000 {
				b := a.Alloc(rnd.IntN(20_000) + 1)
				if b == nil {
					continue
				}
				p := b.Bytes()
				p[0], p[len(p)-1] = byte(g), byte(g)
				wg.Go(func() {
					if p := b.Bytes(); p[0] != byte(g) || p[len(p)-1] != byte(g) {
						t.Error("somebody else wrote into the buffer")
					}
					b.Release()
				})
			}
		})
	}
	wg.Wait()
	checkArena(t, a)
}

// A busy process has a little memory faulted in ahead of its use, and all of it once it
// has time.
func TestArenaFaultsAhead(t *testing.T) {
	const mib = 1 << 20
	var busy atomic.Bool
	busy.Store(true)
	a, err := kvstore.NewArena(160*mib, busy.Load)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	wait := func(want int64) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); a.Stats().FaultedBytes != want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are faulted in, want %d", a.Stats().FaultedBytes, want)
			}
		}
	}
	if !kvstore.CanPopulate() {
		t.Skip("this system faults memory in when it is first used")
	}
	wait(32 * mib)
	first := a.Alloc(40 * mib)
	wait(72 * mib)
	first.Release()
	first = a.Alloc(40 * mib)
	wait(72 * mib)
	busy.Store(false)
	wait(160 * mib)
	first.Release()
}

func BenchmarkArena(b *testing.B) {
	a := newArena(b, 1<<30)
	var ring [200]*kvstore.Buf
	n := 0
	for b.Loop() {
		at := n % len(ring)
		if ring[at] != nil {
			ring[at].Release()
		}
		ring[at] = a.Alloc(1<<20 + n*64%(3<<20))
		n++
	}
	for _, buf := range ring {
		if buf != nil {
			buf.Release()
		}
	}
}
