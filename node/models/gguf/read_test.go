package gguf_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

func read(b []byte) (*gguf.File, error) { return gguf.Read(bytes.NewReader(b), int64(len(b))) }

func TestSummary(t *testing.T) {
	for _, tc := range []struct {
		name  string
		model gguftest.Model
		want  gguf.Summary
	}{
		{"llama", gguftest.Llama(), gguf.Summary{Architecture: "llama", Name: "tiny llama", Quantization: "F32", ContextLength: 4096, Layers: 2, Embedding: 64,
			KeyLength: 16, ValueLength: 16, VocabSize: 274, Tokenizer: "gpt2", ChatTemplate: gguftest.ChatML}},
		{"qwen3", gguftest.Qwen3(), gguf.Summary{Architecture: "qwen3", Name: "tiny qwen3", Quantization: "F16", ContextLength: 4096, Layers: 2, Embedding: 64,
			KeyLength: 32, ValueLength: 32, VocabSize: 274, Tokenizer: "gpt2", ChatTemplate: gguftest.ChatML}},
		{"gemma3", gguftest.Gemma3(), gguf.Summary{Architecture: "gemma3", Name: "tiny gemma3", Quantization: "Q8_0", ContextLength: 4096, Layers: 6, Embedding: 64,
			KeyLength: 32, ValueLength: 32, VocabSize: 372, SlidingWindow: 64, Tokenizer: "llama", ChatTemplate: gguftest.ChatML}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := read(tc.model.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			got := f.Summary
			if len(got.Heads) != got.Layers || got.Heads[0] != uint32(tc.model.Heads) || got.KVHeads[1] != uint32(tc.model.KVHeads) {
				t.Errorf("heads %v, for keys and values %v", got.Heads, got.KVHeads)
			}
			if got.Parameters < 80_000 || got.WeightBytes < got.Parameters {
				t.Errorf("%d parameters in %d bytes", got.Parameters, got.WeightBytes)
			}
			if !got.CanChat() {
				t.Error("cannot chat")
			}
			got.Heads, got.KVHeads, got.Parameters, got.WeightBytes = nil, nil, 0, 0
			if a, b := toJSON(t, got), toJSON(t, tc.want); a != b {
				t.Errorf("got  %s\nwant %s", a, b)
			}
		})
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestKinds(t *testing.T) {
	embedder, err := gguftest.Qwen3().Embedder().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := read(embedder)
	if err != nil {
		t.Fatal(err)
	}
	if !f.IsEmbedding || f.CanChat() || f.Pooling != "last" {
		t.Errorf("pooled model: embedding %v, chat %v, pooling %q", f.IsEmbedding, f.CanChat(), f.Pooling)
	}
	plain := gguftest.Llama()
	plain.Template = ""
	if f, err = read(plain.Bytes()); err != nil || f.CanChat() {
		t.Errorf("without a template: chat %v, %v", f != nil && f.CanChat(), err)
	}
}

// TestRefused holds one file for each thing that is checked; the message must
// name the field.
func TestRefused(t *testing.T) {
	llama, qwen, gemma := gguftest.Llama(), gguftest.Qwen3(), gguftest.Gemma3()
	tensor := func(name string, change func(*gguf.Tensor)) func(*gguf.Writer) {
		return func(w *gguf.Writer) {
			w.Edit(func(t *gguf.Tensor) {
				if t.Name == name {
					change(t)
				}
			})
		}
	}
	set := func(key string, value any) func(*gguf.Writer) { return func(w *gguf.Writer) { w.Set(key, value) } }
	unset := func(key string) func(*gguf.Writer) { return func(w *gguf.Writer) { w.Unset(key) } }
	zeros := func(name string, shape ...uint64) func(*gguf.Writer) {
		return func(w *gguf.Writer) {
			n := uint64(1)
			for _, d := range shape {
				n *= d
			}
			w.Floats(name, gguf.F32, shape, make([]float32, n))
		}
	}
	manyTokens := func(change func([]string)) func(*gguf.Writer) {
		return func(w *gguf.Writer) {
			tokens := make([]string, 274)
			for i := range tokens {
				tokens[i] = strings.Repeat("x", i+1)
			}
			change(tokens)
			w.Set("tokenizer.ggml.tokens", tokens)
		}
	}
	for _, tc := range []struct {
		name  string
		base  gguftest.Model
		edit  func(*gguf.Writer)
		field string // in the message
	}{
		{"architecture missing", llama, unset("general.architecture"), "general.architecture is missing"},
		{"architecture a number", llama, set("general.architecture", uint32(1)), "general.architecture is of type"},
		{"architecture unknown", llama, set("general.architecture", "lama"), `general.architecture is "lama"`},
		{"architecture with a zero byte", llama, set("general.architecture", "llama\x00"), "general.architecture"},
		{"vision part", llama, set("general.architecture", "clip"), "vision part"},
		{"adapter", llama, set("general.type", "adapter"), "general.type"},
		{"split", llama, set("split.count", uint16(3)), "split.count"},
		{"split as another type", llama, set("split.count", uint32(0)), "split.count"},
		{"file type a string", llama, set("general.file_type", "q4"), "general.file_type"},
		{"alignment 16", llama, set("general.alignment", uint32(16)), "general.alignment is 16"},
		{"alignment 48", llama, set("general.alignment", uint32(48)), "general.alignment is 48"},
		{"alignment 2^17", llama, set("general.alignment", uint32(1<<17)), "general.alignment"},
		{"key with a control byte", llama, set("a\x00b", uint32(1)), "key"},
		{"empty key", llama, set("", uint32(1)), "key"},
		{"key too long", llama, set(strings.Repeat("k", 2000), uint32(1)), "has 2000 bytes"},

		{"layers missing", llama, unset("llama.block_count"), "llama.block_count is missing"},
		{"no layers", llama, set("llama.block_count", uint32(0)), "llama.block_count is 0"},
		{"2^32-1 layers", llama, set("llama.block_count", ^uint32(0)), "llama.block_count"},
		{"more layers than there are", llama, set("llama.block_count", uint32(3)), "blk.2 has no tensor"},
		{"layers as uint64", llama, set("llama.block_count", uint64(2)), "llama.block_count is of type uint64"},
		{"no embedding", llama, set("llama.embedding_length", uint32(0)), "llama.embedding_length is 0"},
		{"no context", llama, set("llama.context_length", uint32(0)), "llama.context_length is 0"},
		{"context over 2^30", llama, set("llama.context_length", uint32(1<<31)), "llama.context_length"},
		{"no heads", llama, set("llama.attention.head_count", uint32(0)), "llama.attention.head_count"},
		{"heads missing", llama, unset("llama.attention.head_count"), "llama.attention.head_count"},
		{"no heads for keys", llama, set("llama.attention.head_count_kv", uint32(0)), "llama.attention.head_count_kv is 0"},
		{"heads do not divide", llama, set("llama.attention.head_count_kv", uint32(3)), "llama.attention.head_count_kv is 3"},
		{"heads array too short", llama, set("llama.attention.head_count_kv", []int32{2}), "has 1 elements, allowed are 2"},
		{"heads array negative", llama, set("llama.attention.head_count_kv", []int32{2, -1}), "element 1 is -1"},
		{"heads array of floats", llama, set("llama.attention.head_count_kv", []float32{2, 2}), "llama.attention.head_count_kv"},
		{"ff array of strings", llama, set("llama.feed_forward_length", []string{"a", "b"}), "llama.feed_forward_length"},
		{"key length 0", llama, set("llama.attention.key_length", uint32(0)), "llama.attention.key_length"},
		{"value length differs", llama, set("llama.attention.value_length", uint32(8)), "llama.attention.value_length is 8"},
		{"rope wider than a head", llama, set("llama.rope.dimension_count", uint32(32)), "llama.rope.dimension_count is 32"},
		{"rope of a part", llama, set("llama.rope.dimension_count", uint32(8)), "allowed is 16"},
		{"rope scaling unknown", llama, set("llama.rope.scaling.type", "magic"), "llama.rope.scaling.type"},
		{"sections of nothing", llama, set("llama.rope.dimension_sections", []int32{0, 0, 0, 0}), "add up to 0"},
		{"epsilon negative", llama, set("llama.attention.layer_norm_rms_epsilon", float32(-1)), "epsilon is -1"},
		{"epsilon missing", llama, unset("llama.attention.layer_norm_rms_epsilon"), "epsilon is missing"},
		{"not a number", llama, set("llama.rope.freq_base", nan()), "llama.rope.freq_base is NaN"},
		{"experts over the limit", llama, set("llama.expert_count", uint32(513)), "llama.expert_count is 513"},
		{"experts but none used", llama, set("llama.expert_count", uint32(4)), "llama.expert_used_count"},
		{"used without experts", llama, set("llama.expert_used_count", uint32(1)), "llama.expert_used_count"},
		{"gating unknown", llama, set("llama.expert_gating_func", uint32(9)), "llama.expert_gating_func"},
		{"pooling unknown", llama, set("llama.pooling_type", uint32(7)), "llama.pooling_type is 7"},
		{"labels of numbers", llama, set("llama.classifier.output_labels", []int32{1}), "llama.classifier.output_labels"},
		{"window without full layers", gemma, set("gemma3.block_count", uint32(5)), "gemma3.block_count is 5"},

		{"tokenizer missing", llama, unset("tokenizer.ggml.model"), "tokenizer.ggml.model is missing"},
		{"tokenizer none", llama, set("tokenizer.ggml.model", "no_vocab"), `tokenizer.ggml.model is "no_vocab"`},
		{"tokens missing", llama, unset("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens is missing"},
		{"tokens empty", llama, set("tokenizer.ggml.tokens", []string{}), "tokenizer.ggml.t"},
		{"tokens of numbers", llama, set("tokenizer.ggml.tokens", []int32{1}), "tokenizer.ggml.tokens is of type array of int32"},
		{"token twice", llama, manyTokens(func(s []string) { s[9] = s[3] }), "tokenizer.ggml.tokens holds"},
		{"token twice up to a zero byte", llama, manyTokens(func(s []string) { s[9] = s[3] + "\x00tail" }), "tokenizer.ggml.tokens holds"},
		{"token like an empty one's name", llama, manyTokens(func(s []string) { s[3], s[9] = "[EMPTY_9]", "" }), "tokenizer.ggml.tokens holds"},
		{"token too long", llama, manyTokens(func(s []string) { s[9] = strings.Repeat("y", 9000) }), "has 9000 bytes"},
		{"merges missing", llama, unset("tokenizer.ggml.merges"), "tokenizer.ggml.merges is missing"},
		{"merges of numbers", llama, set("tokenizer.ggml.merges", []int32{1}), "tokenizer.ggml.merges"},
		{"types too short", llama, set("tokenizer.ggml.token_type", []int32{1, 1}), "tokenizer.ggml.token_type has 2 elements"},
		{"type unknown", llama, set("tokenizer.ggml.token_type", []int32{1, 7}), "element 1 is 7"},
		{"types of floats", llama, set("tokenizer.ggml.token_type", []float32{1}), "tokenizer.ggml.token_type"},
		{"bytes in WordPiece", gemma, set("tokenizer.ggml.model", "bert"), "tokenizer.ggml.token_type holds 6"},
		{"scores too short", gemma, set("tokenizer.ggml.scores", []float32{1}), "tokenizer.ggml.scores has 1 elements"},
		{"scores of doubles", gemma, set("tokenizer.ggml.scores", []float64{1}), "tokenizer.ggml.scores"},
		{"eos out of range", llama, set("tokenizer.ggml.eos_token_id", uint32(274)), "tokenizer.ggml.eos_token_id is 274"},
		{"eos a string", llama, set("tokenizer.ggml.eos_token_id", "x"), "tokenizer.ggml.eos_token_id is of type string"},
		{"assumed token out of range", llama, func(w *gguf.Writer) {
			w.Set("tokenizer.ggml.tokens", []string{"a", "b"})
			w.Set("tokenizer.ggml.token_type", []int32{1, 1})
			w.Unset("tokenizer.ggml.bos_token_id")
		}, "tokenizer.ggml.bos_token_id is missing"},

		{"no tensors", llama, func(w *gguf.Writer) { *w = *withoutTensors(w) }, "tensor count is 0"},
		{"no embeddings", llama, func(w *gguf.Writer) { w.Remove("token_embd.weight") }, "token_embd.weight is missing"},
		{"embeddings of other tokens", llama, manyTokens(func(s []string) {}), ""},
		{"tensor twice", llama, tensor("blk.0.attn_k.weight", func(t *gguf.Tensor) { t.Name = "blk.0.attn_v.weight" }), "is there twice"},
		{"tensor name too long", llama, zeros(strings.Repeat("n", 64), 1), "has 64 bytes"},
		{"tensor name with a zero byte", llama, zeros("a\x00b", 1), "name"},
		{"tensor without dimensions", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Shape = nil }), "dimensions are 0"},
		{"tensor of five dimensions", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Shape = []uint64{64, 1, 1, 1, 1} }), "dimensions are 5"},
		{"dimension 0", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Shape[0] = 0 }), "output_norm.weight shape"},
		{"shape overflows", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Shape = []uint64{1 << 62, 1 << 62, 4} }), "output_norm.weight shape"},
		{"shape over the file", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Shape[0] = 1 << 40 }), "output_norm.weight shape"},
		{"half a block", gemma, tensor("blk.0.attn_q.weight", func(t *gguf.Tensor) { t.Shape = []uint64{16, 4} }), "multiples of 32"},
		{"type unknown to ggml", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Type = 40 }), "type is 40"},
		{"type of integers", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Type = 26 }), "type is 26"},
		{"tensors overlap", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Offset = -64 }), "offset"},
		{"gap between tensors", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Offset = 64 }), "offset"},
		{"norm not in F32", llama, tensor("output_norm.weight", func(t *gguf.Tensor) { t.Type, t.Shape[0] = gguf.F16, 128 }), "output_norm.weight type is F16"},
		{"rotary factors not in F32", llama, func(w *gguf.Writer) {
			w.Floats("rope_freqs.weight", gguf.F16, []uint64{8, 2}, make([]float32, 16))
		}, "rope_freqs.weight type"},
		{"embeddings in three dimensions", llama, tensor("token_embd.weight", func(t *gguf.Tensor) { t.Shape = []uint64{64, 137, 2} }), "token_embd.weight shape"},
		{"expert tensor without experts", llama, zeros("blk.0.ffn_up_exps.weight", 64, 16, 2), "expert_used_count is 0"},
		{"bias longer than its weight", llama, zeros("blk.0.attn_q.bias", 128), "attn_q.bias shape"},
		{"queries of other heads", llama, func(w *gguf.Writer) {
			w.Set("llama.attention.head_count", uint32(2))
		}, "attn_q.weight shape"},
		{"norm of other keys", qwen, func(w *gguf.Writer) {
			w.Remove("blk.0.attn_k_norm.weight")
			zeros("blk.0.attn_k_norm.weight", 24)(w)
		}, "attn_k_norm.weight shape"},
		{"embedding of other length", llama, func(w *gguf.Writer) {
			w.Remove("token_embd.weight")
			zeros("token_embd.weight", 32, 274)(w)
		}, "token_embd.weight shape is [32 274]"},
		{"vision inside", llama, zeros("v.blk.0.attn_q.weight", 8), "vision or audio"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := tc.base.Writer()
			tc.edit(w)
			b, err := w.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			_, err = read(b)
			if tc.field == "" && err == nil {
				return // only in the table to show that this is allowed
			}
			var refused *gguf.FormatError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a FormatError", err)
			}
			if !strings.Contains(err.Error(), tc.field) {
				t.Errorf("got %q, want %q in it", err, tc.field)
			}
		})
	}
}

func nan() float32 {
	zero := float32(0)
	return zero / zero
}

// withoutTensors copies the keys of a writer by way of a file.
func withoutTensors(w *gguf.Writer) *gguf.Writer {
	names := []string{}
	w.Edit(func(t *gguf.Tensor) { names = append(names, t.Name) })
	for _, n := range names {
		w.Remove(n)
	}
	return w
}

// TestHostile reads headers that lie about lengths and counts. Each is refused
// quickly and with next to no memory.
func TestHostile(t *testing.T) {
	text, err := os.ReadFile("testdata/hostile.json")
	if err != nil {
		t.Fatal(err)
	}
	var files map[string][]byte
	if err := json.Unmarshal(text, &files); err != nil {
		t.Fatal(err)
	}
	if len(files) != 25 {
		t.Fatalf("%d files, want 25", len(files))
	}
	for name, b := range files {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := read(b)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			var refused *gguf.FormatError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a FormatError", err)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
				t.Errorf("allocated %d bytes", grown)
			}
			if took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// TestMemory reads a vocabulary of 200,000 tokens: what is allocated stays
// within a small multiple of the header.
func TestMemory(t *testing.T) {
	w := gguftest.Llama().Writer()
	tokens := make([]string, 200_000)
	types := make([]int32, len(tokens))
	for i := range tokens {
		tokens[i] = "token " + base64.StdEncoding.EncodeToString([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	}
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.token_type", types)
	w.Set("tokenizer.ggml.merges", tokens)
	w.Remove("token_embd.weight")
	w.Tensor("token_embd.weight", gguf.F16, []uint64{64, 200_000}, make([]byte, 2*64*200_000))
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := read(b)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	if f.VocabSize != len(tokens) {
		t.Errorf("vocabulary of %d", f.VocabSize)
	}
	if a, ok := f.Metadata["tokenizer.ggml.merges"].(gguf.Array); !ok || a.Len != len(tokens) || a.Values != nil {
		t.Errorf("merges are kept: %d values", len(a.Values))
	}
	if grown, limit := int64(after.TotalAlloc-before.TotalAlloc), 6*f.DataOffset; grown > limit {
		t.Errorf("allocated %d bytes for a header of %d, limit %d", grown, f.DataOffset, limit)
	}
}

func TestTruncated(t *testing.T) {
	b := gguftest.Llama().Bytes()
	f, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	cuts := []int64{0, 3, 4, 8, 23, 24, 30, 100, 5000, f.DataOffset - 1, f.DataOffset, f.Size - 33}
	for _, n := range cuts {
		var refused *gguf.FormatError
		if _, err := read(b[:n]); !errors.As(err, &refused) {
			t.Errorf("cut to %d bytes: got %v, want a FormatError", n, err)
		}
	}
	// A file that is shorter than its directory entry says while it is read.
	var refused *gguf.FormatError
	if _, err := gguf.Read(bytes.NewReader(b[:1000]), int64(len(b))); !errors.As(err, &refused) {
		t.Errorf("got %v, want a FormatError", err)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := gguftest.Qwen3().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Text("general.name") != "tiny qwen3" {
		t.Errorf("name %q", f.Text("general.name"))
	}
	if n, ok := f.Uint("qwen3.block_count"); !ok || n != 2 {
		t.Errorf("block_count %d, %v", n, ok)
	}
	if v, ok := f.Float("qwen3.rope.freq_base"); !ok || v != 10000 {
		t.Errorf("freq_base %v, %v", v, ok)
	}
	if v, ok := f.Bool("tokenizer.ggml.add_bos_token"); !ok || v {
		t.Errorf("add_bos_token %v, %v", v, ok)
	}
	var refused *gguf.FormatError
	if _, err := gguf.Open(filepath.Dir(path)); !errors.As(err, &refused) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := gguf.Open(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSniff(t *testing.T) {
	good := gguftest.Llama().Bytes()
	for _, tc := range []struct {
		name string
		head []byte
		ok   bool
	}{
		{"a model", good[:1000], true},
		{"too short to tell", good[:23], true},
		{"a page", []byte("<!DOCTYPE html><html><head>"), false},
		{"a version to come", append([]byte("GGUF\x09\x00\x00\x00"), good[8:100]...), false},
		{"absurd counts", append([]byte("GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff"), good[13:100]...), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := gguf.Sniff(tc.head); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// seed is the header of a model with few tokens and layers: short enough for the
// fuzzer to shrink what it finds.
func seed(f *testing.F, m gguftest.Model) []byte {
	m.Layers = 1
	w := m.Writer()
	w.Set("tokenizer.ggml.tokens", []string{"a", "b", "ab"})
	w.Set("tokenizer.ggml.token_type", []int32{1, 1, 1})
	w.Set("tokenizer.ggml.scores", []float32{0, 0, 0})
	w.Set("tokenizer.ggml.merges", []string{"a b"})
	w.Set("tokenizer.ggml.bos_token_id", uint32(0))
	w.Set("tokenizer.ggml.eos_token_id", uint32(1))
	w.Set("tokenizer.chat_template", "{{ messages }}")
	w.Remove("token_embd.weight")
	w.Floats("token_embd.weight", gguf.F32, []uint64{64, 3}, make([]float32, 192))
	b, err := w.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	return b[:min(len(b), 2500)]
}

func FuzzRead(f *testing.F) {
	for _, m := range []gguftest.Model{gguftest.Llama(), gguftest.Qwen3(), gguftest.Gemma3()} {
		f.Add(seed(f, m))
	}
	text, err := os.ReadFile("testdata/hostile.json")
	if err != nil {
		f.Fatal(err)
	}
	var files map[string][]byte
	if err := json.Unmarshal(text, &files); err != nil {
		f.Fatal(err)
	}
	for _, b := range files {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// The size is made up, so that headers whose tensors are cut off get to
		// the later checks.
		file, err := gguf.Read(bytes.NewReader(b), int64(len(b))+1<<20)
		if err == nil && (file.Layers < 1 || file.Layers > gguf.MaxLayers || file.VocabSize < 1 || len(file.Tensors) == 0) {
			t.Errorf("accepted %+v", file.Summary)
		}
	})
}
