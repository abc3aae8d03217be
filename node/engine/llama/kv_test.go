package llama

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tandem/node/engine"
	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

// movable are models whose rows can be moved, small and random.
func movable() map[string]func(kv string) (*gguf.Writer, Options) {
	with := func(w *gguf.Writer) func(string) (*gguf.Writer, Options) {
		return func(kv string) (*gguf.Writer, Options) { return w, Options{Sequences: 4, KVType: kv} }
	}
	return map[string]func(string) (*gguf.Writer, Options){
		"llama":          with(gguftest.Llama().Writer()),
		"q and k norm":   with(gguftest.Qwen3().Writer()),
		"sliding window": with(gguftest.Gemma3().Writer()),
	}
}

// export reads [from, to) of a sequence.
func export(t testing.TB, m *model, seq engine.SeqID, from, to int) []byte {
	t.Helper()
	dst := make([]byte, (to-from)*m.info.KV.Bytes())
	if err := m.Export(seq, from, to, dst); err != nil {
		t.Fatal(err)
	}
	return dst
}

// inBlocks exports the first n positions in blocks of size tokens and a rest.
func inBlocks(t testing.TB, m *model, seq engine.SeqID, n, size int) []engine.Rows {
	t.Helper()
	var out []engine.Rows
	for from := 0; from < n; from += size {
		to := min(n, from+size)
		out = append(out, engine.Rows{Tokens: to - from, Data: export(t, m, seq, from, to)})
	}
	return out
}

// tell generates n tokens with the numbers behind each choice, to the bit.
func (s *stream) tell(n int) []string {
	s.t.Helper()
	var out []string
	for range n {
		o := s.sample()
		out = append(out, fmt.Sprint(o.Token, " ", o.Logprob.Logprob, o.Logprob.Top))
		s.prefill([]engine.Token{o.Token})
	}
	return out
}

func telling() engine.Sampling {
	p := endless()
	p.TopLogprobs = 5
	return p
}

// TestRestored: a sequence put together from exported rows goes on exactly as the
// one that was computed, whatever the others do meanwhile.
func TestRestored(t *testing.T) {
	var lengths []int
	for n := range 18 { // every length up to two blocks and around their borders
		lengths = append(lengths, n+1)
	}
	lengths = append(lengths, 63, 64, 65, 127, 128, 129)
	for name, make := range movable() {
		for _, kv := range []string{"f16", "q8_0", "q4_0"} {
			w, o := make(kv)
			if kv != "f16" && name == "llama" {
				continue // its heads are smaller than a quantised group
			}
			t.Run(name+"/"+kv, func(t *testing.T) { restored(t, loadWriter(t, w, o), lengths, 8) })
		}
	}
}

// TestRestoredReal is the same for the model that TANDEM_TEST_MODEL names.
func TestRestoredReal(t *testing.T) {
	if os.Getenv("TANDEM_TEST_MODEL") == "" {
		t.Skip("TANDEM_TEST_MODEL is not set")
	}
	for _, kv := range []string{"f16", "q8_0"} {
		t.Run(kv, func(t *testing.T) {
			restored(t, real(t, Options{Context: 512, Sequences: 4, KVType: kv, Threads: 1}), []int{1, 2, 33, 62, 63, 64, 65, 66, 100, 126, 127, 128, 129, 130}, 64)
		})
	}
}

func restored(t *testing.T, m *model, lengths []int, size int) {
	prompt := tokenize(t, m, strings.Repeat("the end and the beginning of all ", 30))
	for _, n := range lengths {
		rest := prompt[n : n+3]
		cold := newStream(t, m, 0, telling(), prompt[:n+3], nil)
		cold.prefill(prompt[:n])
		blocks := inBlocks(t, m, 0, n, size)
		cold.prefill(rest)
		want := cold.tell(10)

		other := newStream(t, m, 1, telling(), prompt[5:100], nil)
		other.prefill(prompt[5:100])
		for from := 0; len(blocks) > 0; { // one, then two, then all others
			piece := blocks[:min(len(blocks), 1+from/size)]
			if from > 2*size {
				piece = blocks
			}
			if err := m.Import(3, from, piece); err != nil {
				t.Fatal(err)
			}
			for _, b := range piece {
				from += b.Tokens
			}
			blocks = blocks[len(piece):]
		}
		warm := newStream(t, m, 3, telling(), prompt[:n+3], nil)
		warm.pos = n
		warm.prefill(rest)
		if got := warm.tell(10); !slices.Equal(got, want) {
			t.Errorf("%d tokens: restored\n%v, computed\n%v", n, got, want)
		}
		for seq := range engine.SeqID(4) {
			m.Remove(seq, 0)
		}
	}
}

// TestExportedBytes: the same tokens have the same rows, in whatever pieces they
// were computed and exported.
func TestExportedBytes(t *testing.T) {
	for name, make := range movable() {
		t.Run(name, func(t *testing.T) {
			w, o := make("f16")
			m := loadWriter(t, w, o)
			prompt := tokenize(t, m, strings.Repeat("all work and no play ", 10))[:40]
			whole := newStream(t, m, 0, endless(), prompt, nil)
			whole.prefill(prompt)
			pieces := newStream(t, m, 2, endless(), prompt, nil)
			for _, p := range [][]engine.Token{prompt[:1], prompt[1:16], prompt[16:17], prompt[17:]} {
				pieces.prefill(p)
			}
			for _, r := range [][2]int{{0, 40}, {0, 1}, {7, 23}, {39, 40}} {
				if !bytes.Equal(export(t, m, 0, r[0], r[1]), export(t, m, 2, r[0], r[1])) {
					t.Errorf("rows %v differ", r)
				}
			}
			blocks := inBlocks(t, m, 0, 40, 16)
			if err := errors.Join(m.Import(1, 0, blocks[:2]), m.Import(1, 32, blocks[2:])); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(export(t, m, 0, 0, 40), export(t, m, 1, 0, 40)) {
				t.Error("imported rows differ")
			}
			m.Remove(1, 25)
			if !bytes.Equal(export(t, m, 0, 3, 25), export(t, m, 1, 3, 25)) {
				t.Error("rows before a cut differ")
			}
			if err := m.Copy(0, 1, 30); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(export(t, m, 0, 0, 30), export(t, m, 1, 0, 30)) {
				t.Error("copied rows differ")
			}
		})
	}
}

func TestRowsRefused(t *testing.T) {
	m := tiny(t, Options{Context: 256, Sequences: 2})
	size := m.info.KV.Bytes()
	prompt := tokenize(t, m, "ab cd ef gh")
	newStream(t, m, 0, endless(), prompt, nil).prefill(prompt)
	n := len(prompt)
	rows := func(tokens, bytes int) []engine.Rows {
		return []engine.Rows{{Tokens: tokens, Data: make([]byte, bytes)}}
	}
	for name, call := range map[string]func() error{
		"export of nothing":         func() error { return m.Export(0, 1, 1, nil) },
		"export beyond the end":     func() error { return m.Export(0, 0, n+1, make([]byte, (n+1)*size)) },
		"export from below":         func() error { return m.Export(0, -1, 1, make([]byte, 2*size)) },
		"export of an empty one":    func() error { return m.Export(1, 0, 1, make([]byte, size)) },
		"export into little":        func() error { return m.Export(0, 0, 2, make([]byte, size)) },
		"import of nothing":         func() error { return m.Import(1, 0, nil) },
		"import of short rows":      func() error { return m.Import(1, 0, rows(2, 2*size-1)) },
		"import of no tokens":       func() error { return m.Import(1, 0, rows(0, 0)) },
		"import beyond the context": func() error { return m.Import(1, 0, rows(257, 257*size)) },
		"import from below":         func() error { return m.Import(1, -1, rows(1, size)) },
		"import behind nothing":     func() error { return m.Import(1, 1, rows(1, size)) },
		"copy onto itself":          func() error { return m.Copy(0, 0, 1) },
		"copy beyond the end":       func() error { return m.Copy(0, 1, n+1) },
		"copy of an empty one":      func() error { return m.Copy(1, 0, 1) },
	} {
		if call() == nil {
			t.Errorf("%s: no error", name)
		}
		if name == "copy of an empty one" {
			newStream(t, m, 0, endless(), prompt, nil).prefill(prompt) // a failed copy leaves nothing
		}
	}
	e := tiny(t, Options{Embeddings: true, Sequences: 2})
	if len(e.info.KV.Layers) != 0 || e.Import(0, 0, rows(1, size)) == nil || e.Export(0, 0, 1, make([]byte, size)) == nil || e.Copy(0, 1, 1) == nil {
		t.Error("an embedding model moves rows")
	}
}

// BenchmarkRows is the rate of export and import beside that of a plain copy.
func BenchmarkRows(b *testing.B) {
	const n = 1000
	m := real(b, Options{Context: 1024, Sequences: 2})
	prompt := tokenize(b, m, strings.Repeat("All work and no play makes Jack a dull boy. ", 100))[:n]
	s := &stream{t: b, m: m}
	s.prefill(prompt)
	blocks := inBlocks(b, m, 0, n, 64)
	total := int64(n * m.info.KV.Bytes())
	whole, other := export(b, m, 0, 0, n), make([]byte, total)
	b.Run("export", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			for i, r := range blocks {
				if err := m.Export(0, i*64, i*64+r.Tokens, r.Data); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("import", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			if err := m.Import(1, 0, blocks); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("memcpy", func(b *testing.B) {
		b.SetBytes(total)
		for b.Loop() {
			copy(other, whole)
		}
	})
}
