package engine_test

import (
	"testing"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// instant is a backend that computes nothing, so that what is left is the engine's
// own cost.
type instant struct {
	*enginetest.Backend
	piece []byte
}

func (b instant) Decode(*engine.Batch) error                 { return nil }
func (b instant) Remove(engine.SeqID, int) bool              { return true }
func (b instant) Copy(engine.SeqID, engine.SeqID, int) error { return nil }
func (b instant) Sample(int, engine.Sampler, int) (engine.Output, error) {
	return engine.Output{Token: 'x', Piece: b.piece}, nil
}

// streams makes an engine that decodes n streams in turns of the caller.
func streams(t testing.TB, n int) (*engine.Engine, []*engine.Sequence) {
	b := instant{enginetest.New(enginetest.Options{Context: 1 << 30, Sequences: n}), []byte("x")}
	e := engine.NewStepped(b, engine.Config{Parallel: n})
	var all []*engine.Sequence
	for i := range n {
		all = append(all, submit(t, e, engine.Request{Tokens: []engine.Token{engine.Token('a' + i)}}))
	}
	e.Turn()
	return e, all
}

// pump decodes and reads one token of every stream.
func pump(t testing.TB, e *engine.Engine, all []*engine.Sequence) {
	e.Turn()
	for _, s := range all {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkStep is the engine's own cost per step, reader included.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 8} {
		b.Run(map[int]string{1: "1 stream", 8: "8 streams"}[n], func(b *testing.B) {
			e, all := streams(b, n)
			b.ReportAllocs()
			for b.Loop() {
				pump(b, e, all)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/token")
		})
	}
}

// BenchmarkStream is the same with the owner goroutine: each token wakes a reader
// on another goroutine.
func BenchmarkStream(b *testing.B) {
	fake := instant{enginetest.New(enginetest.Options{Context: 1 << 30}), []byte("x")}
	e := engine.New(fake, engine.Config{Parallel: 1})
	defer e.Close(b.Context())
	s := submit(b, e, engine.Request{Tokens: words(b, "x")})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestStepAllocates: growing slices are all that a step may allocate.
func TestStepAllocates(t *testing.T) {
	e, all := streams(t, 8)
	if n := testing.AllocsPerRun(2000, func() { pump(t, e, all) }); n >= 1 {
		t.Errorf("%v allocations per step of 8 streams", n)
	}
}
