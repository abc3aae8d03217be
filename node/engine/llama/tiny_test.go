package llama

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"tandem/node/engine"
	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

// tiny loads a small random model. Threads 1 spares the tests the waiting of
// compute threads for each other on a busy machine.
func tiny(t testing.TB, o Options) *model {
	t.Helper()
	return loadWriter(t, gguftest.Llama().Writer(), o)
}

func loadWriter(t testing.TB, w *gguf.Writer, o Options) *model {
	t.Helper()
	if o.Context == 0 {
		o.Context = 512
	}
	if o.Threads == 0 {
		o.Threads = 1
	}
	o.Path = writeModel(t, w)
	m, err := load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func writeModel(t testing.TB, w *gguf.Writer) string {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// defaultSmol is where tools/smollm2.sh puts a real model.
const defaultSmol = "../../../build/SmolLM2-135M-Instruct.Q4_1.gguf"

// real loads the model that TANDEM_TEST_MODEL names, or skips.
func real(t testing.TB, o Options) *model {
	t.Helper()
	o.Path = os.Getenv("TANDEM_TEST_MODEL")
	if o.Path == "" {
		o.Path = defaultSmol
	}
	if _, err := os.Stat(o.Path); err != nil {
		t.Skip("no model; set TANDEM_TEST_MODEL to a GGUF file")
	}
	m, err := load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func tokenize(t testing.TB, m *model, text string) []engine.Token {
	t.Helper()
	tokens, err := m.vocab.Tokenize(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// plain is sampling without anything: greedy.
func plain() engine.Sampling {
	return engine.Sampling{TopP: 1, TypicalP: 1, RepeatPenalty: 1, TopLogprobs: -1}
}

// stream is one sequence that generates.
type stream struct {
	t       testing.TB
	m       *model
	seq     engine.SeqID
	sampler engine.Sampler
	pos     int
	entry   int // of the last Decode, whose logits come next
	tokens  []engine.Token
	text    []byte
}

func newStream(t testing.TB, m *model, seq engine.SeqID, p engine.Sampling, prompt, generated []engine.Token) *stream {
	t.Helper()
	s, err := m.NewSampler(p, prompt, generated)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &stream{t: t, m: m, seq: seq, sampler: s}
}

// prefill computes tokens at the end of the stream's sequence.
func (s *stream) prefill(tokens []engine.Token) {
	s.t.Helper()
	for len(tokens) > 0 {
		var b engine.Batch
		n := min(len(tokens), s.m.info.Batch)
		for i, tok := range tokens[:n] {
			s.entry = b.Add(tok, s.pos, s.seq, i == n-1)
			s.pos++
		}
		if err := s.m.Decode(&b); err != nil {
			s.t.Fatal(err)
		}
		tokens = tokens[n:]
	}
}

// sample draws the next token.
func (s *stream) sample() engine.Output {
	s.t.Helper()
	out, err := s.m.Sample(s.entry, s.sampler, s.pos)
	if err != nil {
		s.t.Fatal(err)
	}
	s.tokens = append(s.tokens, out.Token)
	s.text = append(s.text, out.Piece...)
	return out
}

// generate draws up to n tokens and returns all so far; it stops at the end of
// the text.
func (s *stream) generate(n int) []engine.Token {
	s.t.Helper()
	for range n {
		out := s.sample()
		if s.m.vocab.IsEOG(out.Token) {
			break
		}
		s.prefill([]engine.Token{out.Token})
	}
	return s.tokens
}

// answer computes prompt in sequence 0, which is emptied, and generates.
func answer(t testing.TB, m *model, p engine.Sampling, prompt []engine.Token, n int) *stream {
	t.Helper()
	m.Remove(0, 0)
	s := newStream(t, m, 0, p, prompt, nil)
	s.prefill(prompt)
	s.generate(n)
	return s
}
