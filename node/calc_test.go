package node_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"tandem/node"
	"tandem/node/calc"
	"tandem/node/engine/enginetest"
	"tandem/node/engine/llama"
	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
	"tandem/node/nodetest"
)

// What the calculator says that the engine keeps of a token is what llama.cpp keeps.
func TestCalcAgreesWithTheEngine(t *testing.T) {
	for _, build := range []gguftest.Model{gguftest.Llama(), gguftest.Qwen3(), gguftest.Gemma3()} {
		for _, kvType := range []string{"f16", "q8_0", "q4_0"} {
			if kvType != "f16" && build.HeadDim%32 != 0 {
				continue // neither of the two does that
			}
			path := filepath.Join(t.TempDir(), "m.gguf")
			if err := build.WriteFile(path); err != nil {
				t.Fatal(err)
			}
			backend, err := llama.Load(context.Background(), llama.Options{Path: path, Context: 256, Sequences: 2, Batch: 64, MicroBatch: 64, KVType: kvType, Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			want := backend.Info().KV.Bytes()
			backend.Close()
			file, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			r, err := calc.Answer(calc.FromGGUF(file), calc.Question{KVType: kvType, Tokens: 100, Context: 256, Sequences: 2, MicroBatch: 64})
			if err != nil {
				t.Fatal(err)
			}
			if r.KV.EngineBytesToken != float64(want) {
				t.Errorf("%s, %s: %v bytes a token, the engine keeps %d", build.Arch, kvType, r.KV.EngineBytesToken, want)
			}
		}
	}
}

// The route answers for the node's model, with its settings and its memory.
func TestCalcRoute(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) { c.Context, c.Parallel = 512, 3 })
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	get := func(query string, want int) (r calc.Report, body string) {
		t.Helper()
		status, body := n.Get("/admin/calc" + query)
		if status != want {
			t.Fatalf("%s: %d %s", query, status, body)
		}
		if status == http.StatusOK {
			if err := json.Unmarshal([]byte(body), &r); err != nil {
				t.Fatal(err)
			}
		}
		return r, body
	}
	r, _ := get("", 200)
	if r.Model.Name != nodetest.Model || r.KV.Tokens != 512 || r.Memory.Context != 512 || r.Memory.Sequences != 3 || len(r.Links) != 6 || len(r.Memory.Boxes) != 1 || !r.Memory.Boxes[0].Fits {
		t.Errorf("%+v", r)
	}
	r, _ = get("?model="+nodetest.Model+"&tokens=100&kv_type=f16&link=7&prefill_rate=10", 200)
	if r.KV.Type != "f16" || len(r.Links) != 1 || r.Links[0].Gbit != 7 || r.Links[0].BreakEvenTokens == nil {
		t.Errorf("%+v", r)
	}
	for query, says := range map[string]string{"?kv_type=q5_1": "kv_type", "?kv_type=q8_0": "multiple of 32", "?parallel=5000": "parallel", "?tokens=x": "tokens"} {
		if _, body := get(query, 400); !strings.Contains(body, says) {
			t.Errorf("%s: %s", query, body)
		}
	}
	get("?model=nobody", 404)
}
