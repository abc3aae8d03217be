package llama

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

// TestReader: a file without its weights has the vocabulary and the template of the
// whole one.
func TestReader(t *testing.T) {
	dir, m := t.TempDir(), tiny(t, Options{})
	file := gguftest.Llama().Bytes()
	parsed, err := gguf.Read(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	begin := parsed.DataOffset
	head := filepath.Join(dir, "head.gguf")
	f, err := os.Create(head)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(file[:begin]); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(len(file))); err != nil {
		t.Fatal(err)
	}
	r, err := OpenReader(head)
	if err != nil {
		t.Fatal(err)
	}
	if r.Vocab().Size() != m.Vocab().Size() || r.ChatTemplate() != m.Info().ChatTemplate || r.Pooled() {
		t.Errorf("%d tokens, template %q, pooled %v", r.Vocab().Size(), r.ChatTemplate(), r.Pooled())
	}
	for _, text := range []string{"the end", "", "all <s> work", "\xff\x00"} {
		for _, special := range []bool{false, true} {
			want, errWant := m.Vocab().Tokenize(text, special)
			got, err := r.Vocab().Tokenize(text, special)
			if !slices.Equal(got, want) || (err == nil) != (errWant == nil) {
				t.Errorf("%q: %v, %v; want %v, %v", text, got, err, want, errWant)
			}
		}
	}
	r.Close()
	if _, err := r.Vocab().Tokenize("the end", false); err == nil {
		t.Error("a closed vocabulary tokenises")
	}
	for name, n := range map[string]int64{"half a head": begin / 2, "nothing": 0} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, file[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenReader(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
