package engine_test

import (
	"math"
	"strings"
	"testing"

	"tandem/node/engine"
)

// smol is the geometry of SmolLM2-135M-Instruct in Q4_1.
func smol() engine.Geometry {
	heads := make([]uint32, 30)
	for i := range heads {
		heads[i] = 3
	}
	return engine.Geometry{WeightBytes: 92 << 20, Layers: 30, Embedding: 576, FeedForward: 1536, Vocab: 49152, KVHeads: heads, KeyLength: 64, ValueLength: 64}
}

func TestEstimateMemory(t *testing.T) {
	shape := engine.Shape{Context: 4096, Sequences: 4, MicroBatch: 512, KVType: "f16"}
	with := func(change func(g *engine.Geometry, s *engine.Shape)) (engine.Geometry, engine.Shape) {
		g, s := smol(), shape
		change(&g, &s)
		return g, s
	}
	base := engine.Memory{Weights: 92 << 20, KV: 16384 * 23040, Compute: 512*4*(49152+6*576+3*1536) + 512*4096*6 + 32<<20}
	tests := []struct {
		name   string
		change func(g *engine.Geometry, s *engine.Shape)
		want   engine.Memory
	}{
		{"f16", func(*engine.Geometry, *engine.Shape) {}, base},
		{"q8_0", func(_ *engine.Geometry, s *engine.Shape) { s.KVType = "q8_0" }, engine.Memory{Weights: base.Weights, KV: base.KV * 17 / 32, Compute: base.Compute}},
		{"q4_0", func(_ *engine.Geometry, s *engine.Shape) { s.KVType = "q4_0" }, engine.Memory{Weights: base.Weights, KV: base.KV * 9 / 32, Compute: base.Compute}},
		{"all on the GPU", func(_ *engine.Geometry, s *engine.Shape) { s.GPULayers = -1 }, engine.Memory{Compute: base.Compute, Device: base.Weights + base.KV}},
		{"some on the GPU", func(g *engine.Geometry, s *engine.Shape) { g.Layers, s.GPULayers = 7, 2 },
			engine.Memory{Weights: base.Weights * 3 / 4, KV: base.KV * 3 / 4, Compute: base.Compute, Device: (base.Weights + base.KV) / 4}},
		{"recurrent", func(g *engine.Geometry, _ *engine.Shape) { g.KVHeads, g.StateBytes = nil, 1000 }, engine.Memory{Weights: base.Weights, KV: 4000, Compute: base.Compute}},
		{"absurd sizes", func(g *engine.Geometry, s *engine.Shape) {
			g.KeyLength, g.ValueLength, s.Context = math.MaxInt32, math.MaxInt32, math.MaxInt32
		},
			engine.Memory{Weights: base.Weights, KV: 1 << 60, Compute: base.Compute + 512*6*(math.MaxInt32-4096)}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, s := with(tt.change)
			got, err := engine.EstimateMemory(g, s)
			if err != nil || got != tt.want {
				t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
			}
			if got.Total() <= 0 {
				t.Errorf("total %d", got.Total())
			}
		})
	}
	if _, err := engine.EstimateMemory(smol(), engine.Shape{KVType: "banana"}); err == nil || !strings.Contains(err.Error(), "banana") {
		t.Errorf("unknown KV type: %v", err)
	}
}
