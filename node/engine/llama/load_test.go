package llama

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

func TestInfo(t *testing.T) {
	m := tiny(t, Options{Context: 500, Sequences: 5, Batch: 64, MicroBatch: 32})
	i := m.Info()
	if i.Architecture != "llama" || i.Layers != 2 || i.Context != 500 || i.Sequences != 5 || i.Batch != 64 || i.MicroBatch != 32 ||
		i.ContextTrain != 4096 || i.Embedding != 64 || i.Pooled || !i.CanCut || i.Recurrent || i.SlidingWindow != 0 || i.KVType != "f16" || i.Threads != 1 {
		t.Errorf("%+v", i)
	}
	if want := 2 * 2 * 2 * 16 * 2; i.KV.Bytes() != want { // layers, K and V, heads, values, bytes
		t.Errorf("%d bytes of KV per token, want %d", i.KV.Bytes(), want)
	}
	if i.ChatTemplate != gguftest.ChatML || i.Parameters == 0 || i.SizeBytes == 0 || i.Description == "" {
		t.Errorf("%+v", i)
	}
	if len(i.Devices) == 0 || i.Devices[0].Kind != "cpu" || i.Devices[0].TotalBytes == 0 {
		t.Errorf("devices %+v", i.Devices)
	}
}

func TestInfoKVTypes(t *testing.T) {
	for kv, bytes := range map[string]int{"f16": 64, "q8_0": 34, "q4_0": 18} {
		w := gguftest.Qwen3().Writer() // 2 layers, 2 heads of 32 values
		m := loadWriter(t, w, Options{KVType: kv})
		if want := 2 * 2 * 2 * bytes; m.info.KV.Bytes() != want || m.info.KVType != kv {
			t.Errorf("%s: %d bytes per token, want %d", kv, m.info.KV.Bytes(), want)
		}
	}
}

func TestInfoSlidingWindow(t *testing.T) {
	m := loadWriter(t, gguftest.Gemma3().Writer(), Options{})
	if m.info.SlidingWindow != 64 || !m.info.CanCut {
		t.Errorf("window %d, cut %v", m.info.SlidingWindow, m.info.CanCut)
	}
	if want := 6 * 2 * 32 * 2; m.info.KV.Bytes() != want {
		t.Errorf("%d bytes of KV per token, want %d", m.info.KV.Bytes(), want)
	}
}

func TestValidate(t *testing.T) {
	good := Options{Path: "x"}
	if err := good.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	bad := Options{Context: -1, Sequences: 300, Batch: -1, MicroBatch: 1 << 20, KVType: "q5_0", GPULayers: -2, Threads: 1000}
	err := bad.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"Path", "Context", "Sequences", "Batch", "MicroBatch", "KVType", "GPULayers", "Threads"} {
		if !strings.Contains(err.Error(), field+" is") {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	if _, err := Load(context.Background(), bad); err == nil {
		t.Error("Load takes what Validate refuses")
	}
}

// TestLoadErrors: what is wrong with a file becomes an error that names the file
// but not where it lies.
func TestLoadErrors(t *testing.T) {
	whole := gguftest.Llama().Bytes()
	edit := func(change func(w *gguf.Writer)) []byte {
		w := gguftest.Llama().Writer()
		change(w)
		b, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	tests := []struct {
		name string
		data []byte
		want string
		o    Options
	}{
		{"empty", nil, "", Options{}},
		{"no GGUF", []byte("<html>not a model at all</html>"), "", Options{}},
		{"header only", whole[:24], "", Options{}},
		{"metadata cut", whole[:2000], "", Options{}},
		{"tensors cut", whole[:len(whole)-5000], "", Options{}},
		{"unknown architecture", edit(func(w *gguf.Writer) { w.Set("general.architecture", "quux") }), "unknown model architecture", Options{}},
		{"missing tensor", edit(func(w *gguf.Writer) { w.Remove("blk.1.attn_q.weight") }), "missing tensor", Options{}},
		{"missing key", edit(func(w *gguf.Writer) { w.Unset("llama.block_count") }), "block_count", Options{}},
		{"no heads", edit(func(w *gguf.Writer) { w.Set("llama.attention.head_count", uint32(0)) }), "", Options{}},
		{"wrong shape", edit(func(w *gguf.Writer) { w.Set("llama.embedding_length", uint32(96)) }), "wrong shape", Options{}},
		{"unknown tokenizer", edit(func(w *gguf.Writer) { w.Set("tokenizer.ggml.model", "quux") }), "unknown tokenizer", Options{}},
		{"no merges", edit(func(w *gguf.Writer) { w.Unset("tokenizer.ggml.merges") }), "merges", Options{}},
		{"no vocabulary", edit(func(w *gguf.Writer) {
			w.Set("tokenizer.ggml.model", "no_vocab")
			w.Set("llama.vocab_size", uint32(274))
		}), "no vocabulary", Options{}},
		{"failed assertion", edit(func(w *gguf.Writer) { w.Set("tokenizer.ggml.tokens", slices.Repeat([]string{"x"}, 274)) }), "id_to_token.size() == token_to_id.size()", Options{}},
		{"heads of 16 with q8_0", whole, "multiple of 32", Options{KVType: "q8_0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			tt.o.Path, tt.o.Context, tt.o.Threads = filepath.Join(dir, "broken.gguf"), 256, 1
			if err := os.WriteFile(tt.o.Path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := Load(context.Background(), tt.o)
			if err == nil {
				b.Close()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "broken.gguf") || strings.Contains(err.Error(), dir) {
				t.Errorf("error %q, want %q", err, tt.want)
			}
			t.Log(err)
		})
	}
}

func TestLoadMissing(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(context.Background(), Options{Path: filepath.Join(dir, "none.gguf")})
	if err == nil || !strings.Contains(err.Error(), "none.gguf") || strings.Contains(err.Error(), dir) {
		t.Errorf("error %v", err)
	}
}

func TestLoadCancelled(t *testing.T) {
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	reports := 0
	o := Options{Path: writeModel(t, gguftest.Llama().Writer()), Context: 256, Threads: 1, Progress: func(float32) {
		reports++
		cancel(cause)
	}}
	if _, err := Load(ctx, o); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	if reports != 1 {
		t.Errorf("%d reports of progress after the first cancelled", reports)
	}
	if _, err := Load(ctx, o); !errors.Is(err, cause) {
		t.Errorf("with a done context: error %v", err)
	}
}

func TestLoadProgress(t *testing.T) {
	var seen []float32
	m := tiny(t, Options{Progress: func(p float32) { seen = append(seen, p) }})
	m.Close()
	if len(seen) == 0 || seen[len(seen)-1] != 1 {
		t.Errorf("progress %v", seen)
	}
}

// TestLoadBackends: the log of a folder's own ggml comes to us, a folder without
// backends changes nothing, and GPU layers without a GPU are no error.
func TestLoadBackends(t *testing.T) {
	dir := t.TempDir()
	source, cc := filepath.Join(dir, "base.c"), goEnv(t, "CC")
	const base = `void ggml_log_set(void (*log)(int, const char *, void *), void * data) { log(4, "hello from a backend\n", data); }`
	if err := os.WriteFile(source, []byte(base), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", filepath.Join(dir, "libggml-base.so"), source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	LoadBackends(dir)
	slog.SetDefault(before)
	if runtime.GOOS == "linux" && !strings.Contains(log.String(), "hello from a backend") {
		t.Errorf("log %q", log.String())
	}
	m := tiny(t, Options{GPULayers: -1})
	if len(Devices()) != len(m.info.Devices) {
		t.Errorf("devices %+v", Devices())
	}
}
