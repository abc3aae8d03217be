package shm

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// Ranges that are out never overlap and lie within the window, whatever the order in
// which they come back; when all are back there is room for one as large as the window.
func TestPlacesAreApart(t *testing.T) {
	const size = 1 << 14
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		p := newPlaces(size)
		now, cancel := context.WithCancel(t.Context())
		cancel()
		type held struct{ at, n int }
		var out []held
		waited := 0
		for range 2000 {
			if rnd.IntN(2) == 0 {
				n := 1 + rnd.IntN(size/3)
				at, err := p.alloc(now, n)
				if errors.Is(err, context.Canceled) {
					waited++
				} else if err != nil {
					t.Fatal(err)
				} else {
					if at%align != 0 || at < 0 || at+n > size {
						t.Fatalf("seed %d: %d bytes at %d of %d", seed, n, at, size)
					}
					for _, o := range out {
						if at < o.at+o.n && o.at < at+n {
							t.Fatalf("seed %d: %d+%d overlaps %d+%d", seed, at, n, o.at, o.n)
						}
					}
					out = append(out, held{at, n})
				}
			} else if len(out) > 0 {
				i := rnd.IntN(min(len(out), 3))
				p.free(out[i].at)
				out = slices.Delete(out, i, i+1)
			}
		}
		for _, o := range out {
			p.free(o.at)
		}
		if at, err := p.alloc(t.Context(), size); err != nil || at != 0 {
			t.Fatalf("seed %d: no room for all when all is back: %d, %v", seed, at, err)
		}
		if waited == 0 {
			t.Errorf("seed %d: nobody ever waited", seed)
		}
	}
}

func TestPlacesEnd(t *testing.T) {
	p := newPlaces(align)
	if _, err := p.alloc(t.Context(), align+1); !errors.Is(err, ErrTooLarge) {
		t.Errorf("more than there is: %v", err)
	}
	if _, err := p.alloc(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() {
		_, err := p.alloc(t.Context(), 1)
		waiting <- err
	}()
	p.end()
	if err := <-waiting; !errors.Is(err, ErrClosed) {
		t.Errorf("who waits at the end gets %v", err)
	}
}
