package block_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"tandem/kvstore/block"
)

// Targets: Chain at most 0.2 us a token; Sum, Finite and Check at least 3 GB/s on one
// core; reading a header below 20 us.

func BenchmarkChain(b *testing.B) {
	const n = 100_000
	prompt := tokens(rand.New(rand.NewPCG(1, 1)), n)
	root := testKey.Root(block.Fingerprint{1}, "tenant")
	for _, size := range []int{16, 32, 64, 256} {
		b.Run(fmt.Sprintf("blocks of %d", size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testKey.Chain(root, prompt, size)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/token")
		})
	}
}

func BenchmarkNext(b *testing.B) {
	prompt := tokens(rand.New(rand.NewPCG(1, 1)), 64)
	for b.Loop() {
		testKey.Next(block.ID{1}, prompt)
	}
}

func BenchmarkFingerprint(b *testing.B) {
	traits := full()
	traits.Shape = uniform(block.F16, 1024, 28)
	for b.Loop() {
		traits.Fingerprint()
	}
}

// blocks of 64 tokens.
var benchShapes = []struct {
	name  string
	shape block.Shape
}{
	{"SmolLM2-135M f16, 1.4 MiB", uniform(block.F16, 3*64, 30)},
	{"Qwen3-1.7B f16, 7 MiB", uniform(block.F16, 8*128, 28)},
	{"Qwen3-1.7B q8_0, 3.7 MiB", uniform(block.Q8_0, 8*128, 28)},
	{"Qwen3-1.7B q4_0, 2 MiB", uniform(block.Q4_0, 8*128, 28)},
}

func benchBlocks(b *testing.B, run func(b *testing.B, h block.Header, shape block.Shape, payload []byte)) {
	for _, s := range benchShapes {
		h, payload := sealed(1, s.shape, 0, 64)
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			run(b, h, s.shape, payload)
		})
	}
}

func BenchmarkSum(b *testing.B) {
	benchBlocks(b, func(b *testing.B, h block.Header, _ block.Shape, payload []byte) {
		for b.Loop() {
			h.Sum(payload)
		}
	})
}

func BenchmarkFinite(b *testing.B) {
	benchBlocks(b, func(b *testing.B, _ block.Header, shape block.Shape, payload []byte) {
		for b.Loop() {
			if !block.Finite(shape.Layers[0].K.Type, payload) {
				b.Fatal("not finite")
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	benchBlocks(b, func(b *testing.B, h block.Header, shape block.Shape, payload []byte) {
		for b.Loop() {
			if err := h.Check(shape, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	benchBlocks(b, func(b *testing.B, _ block.Header, shape block.Shape, payload []byte) {
		whole := make([]byte, 8*len(payload))
		blocks := [][]byte{payload, payload, payload, payload, payload, payload, payload, payload}
		b.SetBytes(int64(len(whole)))
		for b.Loop() {
			if err := shape.Merge(whole, blocks); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	h, _ := sealed(1, mixed, 0, 64)
	encoded := block.AppendHeader(nil, h)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Decode(encoded); err != nil {
			b.Fatal(err)
		}
	}
}
