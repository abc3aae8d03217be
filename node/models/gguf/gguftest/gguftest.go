// Package gguftest builds small random models that llama.cpp loads, for tests of
// everything that handles model files or runs an engine. Their answers mean
// nothing, but they are the same on every run: weights are a function of the
// seed.
//
// A Model says what to build; Llama, Qwen3 and Gemma3 are ready-made. Writer
// gives the keys and tensors to change, for files that must be refused; Bytes
// and WriteFile give the whole file, of some hundred kilobytes.
package gguftest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"

	"tandem/node/models/gguf"
)

// Model describes a model to build. All sizes must be set.
type Model struct {
	Arch      string // llama, qwen3, gemma3: decides which tensors there are
	Name      string // general.name
	Layers    int
	Embedding int
	Heads     int
	KVHeads   int
	HeadDim   int
	FF        int
	Context   int  // tokens as trained
	Window    int  // gemma3: sliding window
	SPM       bool // SentencePiece vocabulary, else byte-level BPE
	Template  string
	Type      gguf.TensorType // of matrices: F32, F16, Q8_0
	Seed      uint64
}

// ChatML is the chat template of the ready-made models.
const ChatML = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

// Llama is a Llama with grouped-query attention and a BPE vocabulary.
func Llama() Model {
	return Model{Arch: "llama", Name: "tiny llama", Layers: 2, Embedding: 64, Heads: 4, KVHeads: 2, HeadDim: 16, FF: 128, Context: 4096,
		Template: ChatML, Type: gguf.F32, Seed: 1}
}

// Qwen3 is a Qwen3: heads wider than the embedding's share, with their own norms.
func Qwen3() Model {
	return Model{Arch: "qwen3", Name: "tiny qwen3", Layers: 2, Embedding: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FF: 128, Context: 4096,
		Template: ChatML, Type: gguf.F16, Seed: 2}
}

// Gemma3 is a Gemma 3: five layers of six see a sliding window; SPM vocabulary.
func Gemma3() Model {
	return Model{Arch: "gemma3", Name: "tiny gemma3", Layers: 6, Embedding: 64, Heads: 4, KVHeads: 1, HeadDim: 32, FF: 128, Context: 4096, Window: 64,
		SPM: true, Template: ChatML, Type: gguf.Q8_0, Seed: 3}
}

// Embedder is a Qwen3 that pools its last token into an embedding.
func (m Model) Embedder() *gguf.Writer {
	w := m.Writer()
	w.Set(m.Arch+".pooling_type", uint32(3))
	return w
}

// Bytes is the whole file.
func (m Model) Bytes() []byte {
	b, err := m.Writer().Bytes()
	if err != nil {
		panic(err) // Type is none of those that can be encoded
	}
	return b
}

// WriteFile writes the file at path.
func (m Model) WriteFile(path string) error {
	return os.WriteFile(path, m.Bytes(), 0o600)
}

// Writer holds the keys and tensors of the model.
func (m Model) Writer() *gguf.Writer {
	w := &gguf.Writer{}
	m.keys(w)
	vocab := bpe()
	if m.SPM {
		vocab = spm()
	}
	vocab.set(w)
	if m.Template != "" {
		w.Set("tokenizer.chat_template", m.Template)
	}
	b := &builder{w: w, m: m, rng: rand.New(rand.NewPCG(m.Seed, 0))}
	b.tensors(uint64(len(vocab.tokens)))
	return w
}

func (m Model) keys(w *gguf.Writer) {
	fileType := map[gguf.TensorType]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q8_0: 7}[m.Type]
	w.Set("general.architecture", m.Arch)
	w.Set("general.type", "model")
	w.Set("general.name", m.Name)
	w.Set("general.file_type", fileType)
	for _, k := range []struct {
		name  string
		value int
	}{
		{"block_count", m.Layers}, {"context_length", m.Context}, {"embedding_length", m.Embedding}, {"feed_forward_length", m.FF},
		{"attention.head_count", m.Heads}, {"attention.head_count_kv", m.KVHeads}, {"attention.key_length", m.HeadDim},
		{"attention.value_length", m.HeadDim}, {"attention.sliding_window", m.Window},
	} {
		if k.value > 0 {
			w.Set(m.Arch+"."+k.name, uint32(k.value))
		}
	}
	w.Set(m.Arch+".attention.layer_norm_rms_epsilon", float32(1e-5))
	w.Set(m.Arch+".rope.freq_base", float32(10000))
}

// builder makes tensors of random weights.
type builder struct {
	w   *gguf.Writer
	m   Model
	rng *rand.Rand
}

func (b *builder) tensors(vocab uint64) {
	m := b.m
	embedding, ff := uint64(m.Embedding), uint64(m.FF)
	q, kv := uint64(m.Heads*m.HeadDim), uint64(m.KVHeads*m.HeadDim)
	b.matrix("token_embd.weight", embedding, vocab)
	b.norm("output_norm.weight", embedding)
	for i := range m.Layers {
		name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
		b.norm(name("attn_norm"), embedding)
		b.matrix(name("attn_q"), embedding, q)
		b.matrix(name("attn_k"), embedding, kv)
		b.matrix(name("attn_v"), embedding, kv)
		b.matrix(name("attn_output"), q, embedding)
		if m.Arch == "qwen3" || m.Arch == "gemma3" {
			b.norm(name("attn_q_norm"), uint64(m.HeadDim))
			b.norm(name("attn_k_norm"), uint64(m.HeadDim))
		}
		if m.Arch == "gemma3" {
			b.norm(name("post_attention_norm"), embedding)
			b.norm(name("post_ffw_norm"), embedding)
		}
		b.norm(name("ffn_norm"), embedding)
		b.matrix(name("ffn_gate"), embedding, ff)
		b.matrix(name("ffn_up"), embedding, ff)
		b.matrix(name("ffn_down"), ff, embedding)
	}
}

// matrix adds in×out weights that keep the size of what is multiplied with them.
func (b *builder) matrix(name string, in, out uint64) {
	values := make([]float32, in*out)
	for i := range values {
		values[i] = float32(b.rng.NormFloat64() / math.Sqrt(float64(in)))
	}
	b.w.Floats(name, b.m.Type, []uint64{in, out}, values)
}

func (b *builder) norm(name string, n uint64) {
	values := make([]float32, n)
	for i := range values {
		values[i] = 1 + float32(b.rng.NormFloat64())/8
	}
	b.w.Floats(name, gguf.F32, []uint64{n}, values)
}
