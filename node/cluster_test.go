package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/models/gguf/gguftest"
	"tandem/node/nodetest"
)

// babble is a model that babbles without end, a token every few milliseconds.
func babble() enginetest.Options { return enginetest.Options{StepTime: 2 * time.Millisecond} }

// drain makes other nodes answer what comes to n.
func drain(t *testing.T, n *nodetest.Node, others ...*nodetest.Node) {
	t.Helper()
	status, _, data := n.Post("/admin/cluster/drain", `{"on":true}`)
	if status != 200 {
		t.Fatalf("drain: %d %s", status, data)
	}
	for _, o := range append(others, n) {
		o.Until("it knows that a node drains", func(s node.Status) bool {
			return slices.ContainsFunc(s.Cluster.Members, func(m node.Member) bool { return m.ID == n.ID() && m.State == "draining" })
		})
	}
}

// streamed is what a client sees of a stream.
type streamed struct {
	text, node, reason string
	ids                map[string]bool
	completion, prompt int
}

// read reads a stream to its end.
func read(t *testing.T, resp *http.Response, each func(text string)) streamed {
	t.Helper()
	defer resp.Body.Close()
	out := streamed{node: resp.Header.Get("X-Tandem-Node"), ids: map[string]bool{}}
	lines, done := bufio.NewScanner(resp.Body), false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if done = data == "[DONE]"; done {
			continue
		}
		var e struct {
			ID      string
			Choices []struct {
				Delta        struct{ Content string }
				FinishReason string `json:"finish_reason"`
			}
			Usage *struct {
				Prompt     int `json:"prompt_tokens"`
				Completion int `json:"completion_tokens"`
			}
			Error *struct{ Message string }
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil || e.Error != nil {
			t.Fatalf("event %s: %v", data, err)
		}
		out.ids[e.ID] = true
		for _, c := range e.Choices {
			out.text += c.Delta.Content
			if c.FinishReason != "" {
				out.reason = c.FinishReason
			}
		}
		if e.Usage != nil {
			out.prompt, out.completion = e.Usage.Prompt, e.Usage.Completion
		}
		if each != nil {
			each(out.text)
		}
	}
	if err := lines.Err(); err != nil || !done {
		t.Fatalf("the stream broke off after %q: %v", out.text, err)
	}
	return out
}

func openChat(t *testing.T, ctx context.Context, n *nodetest.Node, content, more string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.URL+"/v1/chat/completions", strings.NewReader(chat(content, `,"stream":true,"stream_options":{"include_usage":true}`+more)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestClusterAnswersAsOne: whoever is asked, the answer is the same, and work is
// shared when there is much of it.
func TestClusterAnswersAsOne(t *testing.T) {
	// Measured while they are idle: the first few steps on a busy machine say little.
	nodes := nodetest.StartCluster(t, 3, babble(), func(_ int, c *node.Config) { c.SelfBench = "auto" })
	for _, n := range nodes {
		n.Until("the model is measured", func(s node.Status) bool { return len(s.Models) == 1 && s.Models[0].Rates.Measured != nil })
	}
	want, _ := ask(t, nodes[0], chat("who are you", `,"max_tokens":40`), 200)
	for _, n := range nodes {
		if got, _ := ask(t, n, chat("who are you", `,"max_tokens":40`), 200); got.Choices[0].Message.Content != want.Choices[0].Message.Content {
			t.Errorf("%q, want %q", got.Choices[0].Message.Content, want.Choices[0].Message.Content)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	served, reasons := map[string]int{}, map[string]bool{}
	for i := range 48 {
		wg.Go(func() {
			resp := openChat(t, t.Context(), nodes[0], fmt.Sprintf("question %d", i), `,"max_tokens":60`)
			s := read(t, resp, nil)
			mu.Lock()
			defer mu.Unlock()
			served[s.node]++
			reasons[resp.Header.Get("X-Tandem-Reason")] = true
		})
	}
	wg.Wait()
	if len(served) != 3 {
		t.Errorf("48 requests at once went to %v: %q", served, slices.Sorted(maps.Keys(reasons)))
	}
	for _, n := range nodes {
		n.AtRest()
	}
}

// TestStreamOutlivesItsNode: an answer goes on on another node, as if nothing had
// happened, when the one that computes it stops.
func TestStreamOutlivesItsNode(t *testing.T) {
	for name, sampling := range map[string]string{"greedy": "", "seeded": `,"temperature":1,"seed":7`} {
		t.Run(name, func(t *testing.T) {
			nodes := nodetest.StartCluster(t, 3, babble(), func(_ int, c *node.Config) { c.DrainTime = time.Millisecond })
			byName := map[string]*nodetest.Node{"n1": nodes[0], "n2": nodes[1], "n3": nodes[2]}
			more := `,"max_tokens":400,"logprobs":true` + strings.Replace(sampling, `"temperature":1,`, "", 1)
			want := read(t, openChat(t, t.Context(), nodes[0], "tell me all", more), nil)
			drain(t, nodes[0], nodes[1:]...)
			resp := openChat(t, t.Context(), nodes[0], "tell me all", more)
			server := byName[resp.Header.Get("X-Tandem-Node")]
			if server == nil || server == nodes[0] {
				t.Fatalf("node %q answers", resp.Header.Get("X-Tandem-Node"))
			}
			stopped := false
			got := read(t, resp, func(text string) {
				if !stopped && len(text) > 50 {
					stopped = true
					server.Stop()
				}
			})
			if got.text != want.text || len(got.ids) != 1 || got.completion != want.completion || got.prompt != want.prompt || got.reason != want.reason {
				t.Errorf("%d tokens, %d ids, %q: %q\nwant %d, %q: %q", got.completion, len(got.ids), got.reason, got.text, want.completion, want.reason, want.text)
			}
			for _, n := range nodes {
				if n != server {
					n.AtRest()
				}
			}
		})
	}
}

// TestClientLeavesThroughCluster: what another node computes is freed there when the
// client of this one leaves.
func TestClientLeavesThroughCluster(t *testing.T) {
	nodes := nodetest.StartCluster(t, 2, babble(), nil)
	drain(t, nodes[0], nodes[1])
	ctx, leave := context.WithCancel(t.Context())
	resp := openChat(t, ctx, nodes[0], "go on", `,"max_tokens":800`)
	nodes[1].Until("it computes for the other", func(s node.Status) bool { return s.Requests.Running == 1 && s.KV.BlocksHeld > 0 })
	leave()
	resp.Body.Close()
	for _, n := range nodes {
		n.AtRest()
	}
}

// TestModelOfAnotherNode: a node answers with a model that only others have, lists it,
// and can get it from them.
func TestModelOfAnotherNode(t *testing.T) {
	nodes := nodetest.StartCluster(t, 3, says("from afar"), func(i int, c *node.Config) {
		if i == 0 {
			c.Models = []string{filepath.Join(t.TempDir(), "own.gguf")}
			if err := gguftest.Qwen3().WriteFile(c.Models[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
	nodes[0].Until("the other model has its digest", func(node.Status) bool {
		_, list := nodes[0].Get("/api/tags")
		return strings.Contains(list, `"tiny`) && strings.Contains(list, `"own`) && !strings.Contains(list, `"digest":""`)
	})
	a, head := ask(t, nodes[0], chat("hi", ""), 200)
	if c := a.Choices[0]; c.Message.Content != "from afar" || head.Get("X-Tandem-Node") == "n1" {
		t.Errorf("answer %+v of %s", c, head.Get("X-Tandem-Node"))
	}
	if status, _, data := nodes[0].Post("/v1/embeddings", `{"model":"tiny","input":"x"}`); status != 200 || !strings.Contains(data, "embedding") {
		t.Errorf("embeddings: %d %s", status, data)
	}
	if status, _, data := nodes[0].Post("/v1/chat/completions", strings.Replace(chat("hi", ""), "tiny", "nobody", 1)); status != 404 {
		t.Errorf("an unknown model: %d %s", status, data)
	}
	status, _, data := nodes[0].Post("/api/pull", `{"model":"tiny","stream":false}`)
	if status != 200 {
		t.Fatalf("pull: %d %s", status, data)
	}
	drain(t, nodes[1], nodes[0], nodes[2])
	drain(t, nodes[2], nodes[0], nodes[1])
	if _, head := ask(t, nodes[0], chat("hi", ""), 200); head.Get("X-Tandem-Node") != "n1" {
		t.Errorf("a model that was copied is answered by %s: %s", head.Get("X-Tandem-Node"), head.Get("X-Tandem-Reason"))
	}
}

// TestSpread: a model of one node comes to all others, which copy it from there.
func TestSpread(t *testing.T) {
	nodes := nodetest.StartCluster(t, 3, says("everywhere"), func(i int, c *node.Config) {
		if i == 0 {
			c.Models = []string{filepath.Join(t.TempDir(), "own.gguf")}
			if err := gguftest.Qwen3().WriteFile(c.Models[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
	nodes[0].Until("its digest is known", func(node.Status) bool {
		status, _, _ := nodes[0].Post("/admin/cluster/spread", `{"model":"own"}`)
		return status == 200
	})
	for _, n := range nodes[1:] {
		if status, data := n.Get("/v1/models/own"); status != 200 {
			t.Errorf("%d %s", status, data)
		}
		if _, _, list := n.Post("/api/show", `{"model":"own"}`); !strings.Contains(list, "qwen3") {
			t.Errorf("it is not there: %.300s", list)
		}
	}
	if status, _, data := nodes[0].Post("/admin/cluster/spread", `{"model":"nobody"}`); status != 404 {
		t.Errorf("an unknown model: %d %s", status, data)
	}
}

// TestSettings: what one node changes all have; nonsense is refused.
func TestSettings(t *testing.T) {
	nodes := nodetest.StartCluster(t, 3, says("x"), nil)
	if status, _, data := nodes[1].Post("/admin/cluster/settings", `{"name":"slo_ttft_ms","value":"700"}`); status != 200 {
		t.Fatalf("%d %s", status, data)
	}
	for _, n := range nodes {
		n.Until("the setting came", func(node.Status) bool {
			_, data := n.Get("/admin/cluster/settings")
			return strings.Contains(data, `"value":"700"`)
		})
	}
	for _, bad := range []string{`{"name":"slo_ttft_ms","value":"soon"}`, `{"name":"colour","value":"red"}`, `{"name":"slo_ttft_ms"}`} {
		if status, _, data := nodes[2].Post("/admin/cluster/settings", bad); status != 400 {
			t.Errorf("%s: %d %s", bad, status, data)
		}
	}
}

// TestForwardedStop: an answer that another node computes and that a stop string ends
// has the usage of one that was computed here.
func TestForwardedStop(t *testing.T) {
	nodes := nodetest.StartCluster(t, 2, says("one two END three"), nil)
	want, _ := ask(t, nodes[1], chat("count", `,"stop":["END"]`), 200)
	drain(t, nodes[0], nodes[1])
	got, head := ask(t, nodes[0], chat("count", `,"stop":["END"]`), 200)
	if head.Get("X-Tandem-Node") != "n2" || got.Usage.PromptTokens != want.Usage.PromptTokens || got.Usage.CompletionTokens != want.Usage.CompletionTokens || got.Usage.Details.Cached == 0 {
		t.Errorf("%s: %+v, want %+v with cached tokens", head.Get("X-Tandem-Node"), got.Usage, want.Usage)
	}
}

// TestOtherName: the same file under another name here is found by its digest.
func TestOtherName(t *testing.T) {
	nodes := nodetest.StartCluster(t, 2, says("mine"), func(i int, c *node.Config) {
		if i == 0 {
			c.Models = []string{filepath.Join(t.TempDir(), "mine.gguf")}
			if err := gguftest.Llama().WriteFile(c.Models[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
	if _, head := ask(t, nodes[0], chat("hi", ""), 200); head.Get("X-Tandem-Node") == "" {
		t.Errorf("headers %v", head)
	}
	drain(t, nodes[1], nodes[0])
	if a, head := ask(t, nodes[0], chat("hi", ""), 200); head.Get("X-Tandem-Node") != "n1" || a.Choices[0].Message.Content != "mine" {
		t.Errorf("%+v of %s", a, head.Get("X-Tandem-Node"))
	}
}
