package calc

import (
	"bytes"
	"testing"

	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

func readGGUF(t *testing.T, path string) *Model {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return FromGGUF(f)
}

func meta(arch string, pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[arch+"."+pairs[i].(string)] = pairs[i+1]
	}
	return m
}

// Headers of kinds of models for which there is no file to build: only what the reader
// looks at is there.
func TestKindsOfGGUF(t *testing.T) {
	repeat := func(n int, v uint32) []uint32 {
		out := make([]uint32, n)
		for i := range out {
			out[i] = v
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		file   gguf.File
		kinds  map[Kind]int
		token  float64 // by the formula, f16
		engine float64
		state  int64
	}{
		{"deepseek2, absorbed", gguf.File{Summary: gguf.Summary{Architecture: "deepseek2", Layers: 61, Heads: repeat(61, 128), KVHeads: repeat(61, 1), KeyLength: 576, ValueLength: 512},
			Metadata: meta("deepseek2", "attention.key_length_mla", uint32(192), "attention.kv_lora_rank", uint32(512))}, map[Kind]int{Latent: 61}, 70_272, 132_736, 0},
		{"deepseek2, unfolded", gguf.File{Summary: gguf.Summary{Architecture: "deepseek2", Layers: 61, Heads: repeat(61, 128), KVHeads: repeat(61, 128), KeyLength: 192, ValueLength: 128}},
			map[Kind]int{Full: 61}, 61 * 128 * 320 * 2, 61 * 128 * 320 * 2, 0},
		{"qwen3next", gguf.File{Summary: gguf.Summary{Architecture: "qwen3next", IsHybrid: true, Layers: 48, Heads: repeat(48, 16), KVHeads: repeat(48, 2), KeyLength: 256, ValueLength: 256},
			Metadata: meta("qwen3next", "ssm.conv_kernel", uint32(4), "ssm.inner_size", uint32(4096), "ssm.group_count", uint32(16), "ssm.state_size", uint32(128))},
			map[Kind]int{Full: 12, Recurrent: 36}, 24_576, 24_576, 36 * 4 * (3*8192 + 128*4096)},
		{"falcon-h1", gguf.File{Summary: gguf.Summary{Architecture: "falcon-h1", IsHybrid: true, Layers: 2, Heads: repeat(2, 8), KVHeads: repeat(2, 2), KeyLength: 64, ValueLength: 64},
			Metadata: meta("falcon-h1", "ssm.conv_kernel", uint32(4), "ssm.inner_size", uint32(64), "ssm.group_count", uint32(1), "ssm.state_size", uint32(16))},
			map[Kind]int{Full: 2}, 2 * 2 * 128 * 2, 2 * 2 * 128 * 2, 2 * 4 * (3*96 + 16*64)},
		{"rwkv7", gguf.File{Summary: gguf.Summary{Architecture: "rwkv7", IsRecurrent: true, Layers: 3, Embedding: 128, Heads: repeat(3, 0), KVHeads: repeat(3, 0)},
			Metadata: meta("rwkv7", "wkv.head_size", uint32(64))}, map[Kind]int{Recurrent: 3}, 0, 0, 3 * 4 * 128 * (2 + 64)},
		{"gemma3n", gguf.File{Summary: gguf.Summary{Architecture: "gemma3n", Layers: 35, Heads: repeat(35, 8), KVHeads: repeat(35, 2), KeyLength: 256, ValueLength: 256, SlidingWindow: 512}},
			map[Kind]int{Windowed: 16, Full: 4, Nothing: 15}, 20 * 2 * 512 * 2, 20 * 2 * 512 * 2, 0},
		{"smallthinker", gguf.File{Summary: gguf.Summary{Architecture: "smallthinker", Layers: 8, Heads: repeat(8, 4), KVHeads: repeat(8, 2), KeyLength: 64, ValueLength: 64, SlidingWindow: 4096}},
			map[Kind]int{Windowed: 6, Full: 2}, 8 * 2 * 128 * 2, 8 * 2 * 128 * 2, 0},
		{"glm4moe with a layer that is not computed", gguf.File{Summary: gguf.Summary{Architecture: "glm4moe", Layers: 4, Heads: repeat(4, 4), KVHeads: repeat(4, 2), KeyLength: 64, ValueLength: 64},
			Metadata: meta("glm4moe", "nextn_predict_layers", uint32(1))}, map[Kind]int{Full: 3, Nothing: 1}, 3 * 2 * 128 * 2, 3 * 2 * 128 * 2, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := FromGGUF(&tt.file)
			for k, want := range tt.kinds {
				if got := m.count(k); got != want {
					t.Errorf("%d layers are %s, want %d", got, k, want)
				}
			}
			token, _, inEngine := sizeOf(t, m, "f16").perToken()
			if token != tt.token || inEngine != tt.engine || m.stateBytes() != tt.state {
				t.Errorf("%v and %v bytes a token, state %d; want %v, %v, %d", token, inEngine, m.stateBytes(), tt.token, tt.engine, tt.state)
			}
		})
	}
}

// FuzzGGUF: of no file that passed the checks of package gguf the answer fails.
func FuzzGGUF(f *testing.F) {
	for _, m := range []gguftest.Model{gguftest.Llama(), gguftest.Qwen3(), gguftest.Gemma3()} {
		f.Add(m.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Read(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		q := Question{KVType: "f16", Tokens: MaxTokens, Context: MaxTokens, Sequences: MaxSequences, MicroBatch: 512, PrefillRate: 1, Memory: []int64{1 << 40}}
		r, err := Answer(FromGGUF(file), q)
		if err != nil || r.KV.EngineBytes < r.KV.Bytes || r.KV.Bytes < 0 || r.Memory.Total <= 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}
