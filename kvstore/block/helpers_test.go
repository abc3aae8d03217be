package block_test

import (
	"encoding/binary"
	"math/rand/v2"

	"tandem/kvstore/block"
)

// mixed is a shape with every type, an odd row length and a layer without V.
var mixed = block.Shape{Layers: []block.Layer{
	{K: block.Row{Type: block.F16, Values: 5}, V: block.Row{Type: block.F16, Values: 3}},
	{K: block.Row{Type: block.Q8_0, Values: 64}, V: block.Row{Type: block.Q4_0, Values: 32}},
	{K: block.Row{Type: block.Q4_0, Values: 96}, V: block.Row{Type: block.F16}},
}}

// full has no zero field, so that each can be changed.
func full() block.Traits {
	return block.Traits{
		Model: [32]byte{1, 2, 3}, Architecture: "qwen3", Engine: "ec98e2002/1", Backend: "cuda",
		Shape: mixed, KVLayers: []int{0, 2, 5}, HeadK: 64, HeadV: 32, BlockTokens: 64,
		FlashAttention: true, Causal: true, FullWindow: true,
		RopeType: "neox", RopeDimensions: 64, RopeSections: [4]int{16, 24, 24, 1},
		RopeBase: 1e6, RopeScale: 0.25, RopeBaseWindow: 1e4, RopeScaleWindow: 0.5, RopeScaling: "yarn",
		YarnExtFactor: 1, YarnAttnFactor: 1.125, YarnBetaFast: 32, YarnBetaSlow: 2, YarnOrigContext: 32768,
		LongRope: block.LongRopeShort,
		Adapters: []block.Adapter{
			{Kind: "lora", Digest: [32]byte{9}, Scale: 0.75, FirstLayer: 1, LastLayer: 2},
			{Kind: "control", Digest: [32]byte{8}, Scale: -0.5, FirstLayer: 3, LastLayer: 9},
		},
	}
}

// rows makes a payload of count tokens with finite numbers.
func rows(seed uint64, shape block.Shape, count int) []byte {
	out := make([]byte, count*shape.Bytes())
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	random.Read(out)
	for _, s := range shape.Segments(count) {
		group, _ := groupBytes(s.Type)
		region := out[s.Offset:][:s.Rows*s.RowBytes]
		for ; len(region) > 0; region = region[group:] {
			binary.LittleEndian.PutUint16(region, binary.LittleEndian.Uint16(region)&^0x4000)
		}
	}
	return out
}

// groupBytes is how often a number of a type can be not finite, and whether there are
// others in between.
func groupBytes(t block.Type) (n int, quantised bool) {
	switch t {
	case block.Q8_0:
		return 34, true
	case block.Q4_0:
		return 18, true
	}
	return 2, false
}

// sealed is a block that passes every check.
func sealed(seed uint64, shape block.Shape, start, count int) (block.Header, []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	payload := rows(seed, shape, count)
	h := block.Header{Start: start, Count: count, PayloadBytes: len(payload)}
	for range count {
		h.Tokens = append(h.Tokens, block.Token(r.Int32()))
	}
	for _, b := range [][]byte{h.Parent[:], h.Fingerprint[:]} {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	h.ID = testKey.Next(h.Parent, h.Tokens)
	h.Digest = h.Sum(payload)
	return h, payload
}

var testKey = block.Key{7, 7, 7}
