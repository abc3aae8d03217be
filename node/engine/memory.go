package engine

import (
	"fmt"
	"math"
)

// Geometry is what a model file says of its sizes.
type Geometry struct {
	WeightBytes int64 // of all tensors
	Layers      int
	Embedding   int // width of a token between layers
	FeedForward int // width inside a layer; 0: 4 × Embedding
	Vocab       int
	KVHeads     []uint32 // per layer; 0: no attention there
	KeyLength   int      // values of one head's key
	ValueLength int
	StateBytes  int64 // of recurrent state per sequence
}

// Shape is how a model is to be loaded.
type Shape struct {
	Context    int // tokens of one sequence
	Sequences  int // with room for a whole context each
	MicroBatch int
	KVType     string // f16, q8_0, q4_0
	GPULayers  int    // on devices with memory of their own; negative: all
}

// Memory is what a model takes while it is loaded, in bytes. Host memory is the
// sum of Weights, KV and Compute.
type Memory struct {
	Weights int64
	KV      int64
	Compute int64
	Device  int64 // on devices with memory of their own
}

// Total is the host memory.
func (m Memory) Total() int64 { return m.Weights + m.KV + m.Compute }

// KVBits is the number of bits of one value by type: blocks of 32 values with a
// 16-bit scale for the quantised ones.
func KVBits(kvType string) (float64, error) {
	switch kvType {
	case "f16", "":
		return 16, nil
	case "q8_0":
		return 8.5, nil
	case "q4_0":
		return 4.5, nil
	}
	return 0, fmt.Errorf("KV type %q: allowed are f16, q8_0 and q4_0", kvType)
}

// computeBase is what the engine takes apart from what grows with the sizes.
const computeBase = 32 << 20

// EstimateMemory tells what a model will take before it is loaded:
//
//	weights = the tensors of the file
//	KV      = sequences × context × Σ over layers of KV heads × (key + value length) × bytes per value
//	          + sequences × recurrent state
//	compute = micro-batch × 4 × (vocabulary + 6 × embedding + 3 × feed-forward)
//	          + micro-batch × context × 6 (the mask of the attention, as f32 and f16)
//	          + 32 MiB
//
// The compute part is the largest set of tensors of one step that live at the same
// time: the logits, or the activations of one layer; their sum is an upper bound.
// Weights and KV are divided between host and devices by layers; the output layer
// counts as one.
func EstimateMemory(g Geometry, s Shape) (Memory, error) {
	bits, err := KVBits(s.KVType)
	if err != nil {
		return Memory{}, err
	}
	heads := 0.0
	for _, n := range g.KVHeads {
		heads += float64(n)
	}
	wide := g.FeedForward
	if wide == 0 {
		wide = 4 * g.Embedding
	}
	// Floating point, because sizes from a file may multiply beyond 64 bits.
	context, micro := float64(s.Context), float64(s.MicroBatch)
	kv := float64(s.Sequences)*context*heads*float64(g.KeyLength+g.ValueLength)*bits/8 + float64(s.Sequences)*float64(g.StateBytes)
	compute := micro*4*float64(g.Vocab+6*g.Embedding+3*wide) + micro*context*6 + computeBase
	offloaded := 0.0
	if total := g.Layers + 1; s.GPULayers < 0 || s.GPULayers >= total {
		offloaded = 1
	} else {
		offloaded = float64(s.GPULayers) / float64(total)
	}
	weights := float64(g.WeightBytes)
	return Memory{
		Weights: bytes(weights * (1 - offloaded)), KV: bytes(kv * (1 - offloaded)), Compute: bytes(compute),
		Device: bytes((weights + kv) * offloaded),
	}, nil
}

// bytes rounds up and stops where sums of some of them still fit into 64 bits.
func bytes(n float64) int64 { return int64(min(math.Ceil(n), 1<<60)) }

// NoMemoryError refuses a model that does not fit, even with all others unloaded.
type NoMemoryError struct {
	Model string
	Need  Memory
	Have  int64 // bytes for all models together
}

func (e *NoMemoryError) Error() string {
	return fmt.Sprintf("model %s needs %s of memory (weights %s, KV cache %s, buffers %s), but there are %s for models; a shorter context, fewer parallel requests, a smaller KV type or a smaller quantisation need less",
		e.Model, size(e.Need.Total()), size(e.Need.Weights), size(e.Need.KV), size(e.Need.Compute), size(e.Have))
}

// size writes bytes for people.
func size(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
