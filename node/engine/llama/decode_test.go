package llama

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tandem/node/engine"
	"tandem/node/models/gguf/gguftest"
)

// prompts are different in text and length.
func prompts(t testing.TB, m *model, n int) [][]engine.Token {
	t.Helper()
	out := make([][]engine.Token, n)
	for i := range out {
		out[i] = tokenize(t, m, strings.Repeat(fmt.Sprintf("the %d other and ", i*37), 2+i))
	}
	return out
}

// together answers all prompts, each in its own sequence, one token of each per
// batch.
func together(t *testing.T, m *model, p engine.Sampling, prompts [][]engine.Token, n int) [][]engine.Token {
	t.Helper()
	streams := make([]*stream, len(prompts))
	var b engine.Batch
	for i, prompt := range prompts {
		streams[i] = newStream(t, m, engine.SeqID(i), p, prompt, nil)
		for k, tok := range prompt {
			streams[i].entry = b.Add(tok, k, engine.SeqID(i), k == len(prompt)-1)
		}
		streams[i].pos = len(prompt)
	}
	for range n {
		if err := m.Decode(&b); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		for _, s := range streams {
			out := s.sample()
			s.entry = b.Add(out.Token, s.pos, s.seq, true)
			s.pos++
		}
	}
	out := make([][]engine.Token, len(streams))
	for i, s := range streams {
		out[i] = s.tokens
	}
	return out
}

// endless is greedy sampling that does not stop, so that texts have one length.
func endless() engine.Sampling {
	p := plain()
	p.IgnoreEOS = true
	return p
}

func TestBatchEqualsAlone(t *testing.T) {
	m := tiny(t, Options{Sequences: 4})
	ps := prompts(t, m, 4)
	got := together(t, m, endless(), ps, 20)
	for i, p := range ps {
		if want := answer(t, m, endless(), p, 20).tokens; !slices.Equal(got[i], want) {
			t.Errorf("sequence %d: together %v, alone %v", i, got[i], want)
		}
	}
	if slices.Equal(got[0], got[1]) {
		t.Error("different prompts have the same answer")
	}
}

func TestChunksEqualWhole(t *testing.T) {
	whole := tiny(t, Options{})
	prompt := slices.Concat(prompts(t, whole, 4)...)
	want := answer(t, whole, endless(), prompt, 20).tokens
	chunked := tiny(t, Options{Batch: 7, MicroBatch: 5})
	if got := answer(t, chunked, endless(), prompt, 20).tokens; !slices.Equal(got, want) {
		t.Errorf("in chunks %v, whole %v", got, want)
	}
}

// TestReuse: rows that are kept, cut or shared give the text that computing
// everything gives.
func TestReuse(t *testing.T) {
	models := map[string]func() *model{
		"full attention": func() *model { return tiny(t, Options{Sequences: 4}) },
		"sliding window": func() *model { return loadWriter(t, gguftest.Gemma3().Writer(), Options{Sequences: 4}) },
		"q8_0":           func() *model { return loadWriter(t, gguftest.Qwen3().Writer(), Options{Sequences: 4, KVType: "q8_0"}) },
	}
	for name, open := range models {
		t.Run(name, func(t *testing.T) {
			m := open()
			common := tokenize(t, m, strings.Repeat("the end and ", 12)) // longer than the window
			first := slices.Concat(common, tokenize(t, m, "one"))
			second := slices.Concat(common, tokenize(t, m, "another two"))
			want := answer(t, m, endless(), second, 20).tokens

			s := answer(t, m, endless(), first, 20)
			if !m.Remove(0, len(common)) {
				t.Fatal("the tail could not be cut")
			}
			s.pos, s.tokens = len(common), nil
			s.prefill(second[len(common):])
			if got := s.generate(20); !slices.Equal(got, want) {
				t.Errorf("after a cut %v, want %v", got, want)
			}

			answer(t, m, endless(), first, 20)
			if err := m.Copy(0, 3, len(common)); err != nil {
				t.Fatal(err)
			}
			m.Remove(0, 0)
			shared := newStream(t, m, 3, endless(), second, nil)
			shared.pos = len(common)
			shared.prefill(second[len(common):])
			if got := shared.generate(20); !slices.Equal(got, want) {
				t.Errorf("after a copy %v, want %v", got, want)
			}
			m.Remove(3, 0)
		})
	}
}

// TestDecodeRefused: wrong batches are errors, not the end of the process, and
// leave the model usable.
func TestDecodeRefused(t *testing.T) {
	m := tiny(t, Options{Context: 256, Sequences: 2, Batch: 16})
	one := func(tok engine.Token, pos int, seq engine.SeqID) engine.Batch {
		var b engine.Batch
		b.Add(tok, pos, seq, true)
		return b
	}
	var tooLong engine.Batch
	for i := range 17 {
		tooLong.Add(1, i, 0, false)
	}
	tests := []struct {
		name  string
		batch engine.Batch
		want  string
	}{
		{"empty", engine.Batch{}, "1 to 16 tokens"},
		{"too long", tooLong, "1 to 16 tokens"},
		{"negative token", one(-1, 0, 0), "invalid token"},
		{"unknown token", one(100000, 0, 0), "invalid token"},
		{"sequence below", one(1, 0, -1), "sequence id -1"},
		{"sequence above", one(1, 0, 2), "sequence id 2"},
		{"gap", one(1, 9, 0), "batch"},
		{"position twice", one(1, 1, 0), "batch"},
		{"negative position", one(1, -3, 1), "position -3"},
		{"beyond the context", one(1, 256, 1), "position 256"},
	}
	prompt := tokenize(t, m, "ab ")
	newStream(t, m, 0, plain(), nil, nil).prefill(prompt)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := m.Decode(&tt.batch)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	answer(t, m, endless(), prompt, 5)
}

func TestWrongSequence(t *testing.T) {
	m := tiny(t, Options{})
	for name, call := range map[string]func(){
		"remove": func() { m.Remove(1, 0) },
		"copy":   func() { m.Copy(0, -1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			call()
		})
	}
}

func TestSampleWithoutLogits(t *testing.T) {
	m := tiny(t, Options{})
	s := newStream(t, m, 0, plain(), nil, nil)
	if _, err := m.Sample(0, s.sampler, 0); err == nil {
		t.Error("logits before the first Decode")
	}
	s.prefill(tokenize(t, m, "abc"))
	for _, i := range []int{-1, 0, 1, 3, 1 << 20} {
		if _, err := m.Sample(i, s.sampler, 3); err == nil {
			t.Errorf("logits of entry %d", i)
		}
	}
}

// vector is the embedding of a text, computed in chunks of at most n tokens.
func vector(t *testing.T, m *model, seq engine.SeqID, tokens []engine.Token, n int) []float32 {
	t.Helper()
	m.Remove(seq, 0)
	s := &stream{t: t, m: m, seq: seq}
	for chunk := range slices.Chunk(tokens, n) {
		s.prefill(chunk)
	}
	v, err := m.Embedding(seq)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(v)
}

func cosine(a, b []float32) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab += float64(a[i]) * float64(b[i])
		aa += float64(a[i]) * float64(a[i])
		bb += float64(b[i]) * float64(b[i])
	}
	return ab / math.Sqrt(aa*bb)
}

func TestEmbedding(t *testing.T) {
	mean := gguftest.Qwen3().Writer()
	mean.Set("qwen3.pooling_type", uint32(1))
	models := map[string]*model{
		"by option": tiny(t, Options{Sequences: 2, Embeddings: true}),
		"last":      loadWriter(t, gguftest.Qwen3().Embedder(), Options{Sequences: 2}),
		"mean":      loadWriter(t, mean, Options{Sequences: 2}),
	}
	for name, m := range models {
		t.Run(name, func(t *testing.T) {
			if !m.Info().Pooled {
				t.Fatal("Info().Pooled is false")
			}
			a, b := tokenize(t, m, "the end of the world"), tokenize(t, m, "another and thing")
			va, vb := vector(t, m, 0, a, 512), vector(t, m, 1, b, 512)
			if len(va) != m.info.Embedding {
				t.Fatalf("%d values, want %d", len(va), m.info.Embedding)
			}
			if c := cosine(va, vb); c > 0.99 {
				t.Errorf("different texts are alike: %v", c)
			}
			if c := cosine(va, vector(t, m, 1, a, 512)); c < 0.9999 {
				t.Errorf("the same text in another sequence: %v", c)
			}
			var batch engine.Batch
			for i, tok := range a {
				batch.Add(tok, i, 0, i == len(a)-1)
			}
			for i, tok := range b {
				batch.Add(tok, i, 1, i == len(b)-1)
			}
			m.Remove(0, 0)
			m.Remove(1, 0)
			if err := m.Decode(&batch); err != nil {
				t.Fatal(err)
			}
			for seq, want := range [][]float32{va, vb} {
				got, err := m.Embedding(engine.SeqID(seq))
				if err != nil {
					t.Fatal(err)
				}
				if c := cosine(got, want); c < 0.9999 {
					t.Errorf("sequence %d in one batch and alone: %v", seq, c)
				}
			}
			if name != "mean" {
				if c := cosine(va, vector(t, m, 0, a, 3)); c < 0.9999 {
					t.Errorf("in pieces: %v", c)
				}
			}
		})
	}
}

// TestEmbeddingSizes: how long a text may be does not depend on how it is
// computed.
func TestEmbeddingSizes(t *testing.T) {
	m := tiny(t, Options{Context: 2048, Batch: 2048, MicroBatch: 2048, Embeddings: true})
	if m.info.Batch != 2048 || m.info.MicroBatch != 2048 || m.info.Context != 2048 {
		t.Errorf("%+v", m.info)
	}
	long := tokenize(t, m, strings.Repeat("ab ", 600))
	if c := cosine(vector(t, m, 0, long, 2048), vector(t, m, 0, long, 100)); c < 0.9999 {
		t.Errorf("in one batch and in many: %v", c)
	}
	mean := gguftest.Qwen3().Writer()
	mean.Set("qwen3.pooling_type", uint32(1))
	m = loadWriter(t, mean, Options{Context: 4096, Batch: 100})
	if m.info.Batch != 2048 || m.info.MicroBatch != 2048 || m.info.Context != 2048 {
		t.Errorf("%+v", m.info)
	}
}

func TestEmbeddingErrors(t *testing.T) {
	m := tiny(t, Options{})
	newStream(t, m, 0, plain(), nil, nil).prefill(tokenize(t, m, "abc"))
	if _, err := m.Embedding(0); err == nil {
		t.Error("an embedding of a model that generates")
	}
	e := tiny(t, Options{Sequences: 2, Embeddings: true})
	if _, err := e.Embedding(0); err == nil {
		t.Error("an embedding before the first Decode")
	}
	vector(t, e, 0, tokenize(t, e, "abc"), 512)
	if _, err := e.Embedding(1); err == nil {
		t.Error("an embedding of a sequence that was not in the batch")
	}
}
