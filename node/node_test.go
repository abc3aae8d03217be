package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// says is a model that answers text and then ends.
func says(text string) enginetest.Options {
	return enginetest.Options{Script: func(string) (string, bool) { return text, true }}
}

func chat(content, more string) string {
	return fmt.Sprintf(`{"model":"tiny","messages":[{"role":"user","content":%q}],"temperature":0%s}`, content, more)
}

func quote(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

type answer struct {
	Choices []struct {
		Index   int
		Message struct {
			Content   string
			ToolCalls []struct {
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		Details          struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	Error struct{ Message, Code, Param string }
}

func ask(t *testing.T, n *nodetest.Node, body string, status int) (answer, http.Header) {
	t.Helper()
	got, head, data := n.Post("/v1/chat/completions", body)
	if got != status {
		t.Fatalf("status %d, want %d: %s", got, status, data)
	}
	return decode(t, data), head
}

func decode(t *testing.T, data string) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(data), &a); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return a
}

func TestChatTellsWhatAndWhy(t *testing.T) {
	n := nodetest.Start(t, says("Hello there."), nil)
	a, head := ask(t, n, chat("hi", ""), 200)
	if c := a.Choices[0]; c.Message.Content != "Hello there." || c.FinishReason != "stop" {
		t.Errorf("answer %+v", c)
	}
	if a.Usage.CompletionTokens != len("Hello there.") || a.Usage.Details.Cached != 0 {
		t.Errorf("usage %+v", a.Usage)
	}
	if head.Get("X-Tandem-Node") != "n1" || head.Get("X-Tandem-Prefill") != "local" || head.Get("X-Tandem-Reason") == "" {
		t.Errorf("headers %v", head)
	}
	again, _ := ask(t, n, chat("hi", ""), 200)
	if u := again.Usage; u.Details.Cached == 0 || u.Details.Cached >= u.PromptTokens {
		t.Errorf("the same prompt again: usage %+v; some but not all of the prompt is cached", u)
	}
	n.AtRest()
}

func TestStopStringEndsTheWork(t *testing.T) {
	n := nodetest.Start(t, says("one two END three"), nil)
	a, _ := ask(t, n, chat("count", `,"stop":["END"]`), 200)
	if c := a.Choices[0]; c.Message.Content != "one two " || c.FinishReason != "stop" {
		t.Errorf("answer %+v", c)
	}
	n.AtRest()
}

func TestSeveralChoicesShareThePrompt(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, nil)
	a, _ := ask(t, n, chat("say something", `,"n":3,"max_tokens":8,"seed":1`), 200)
	seen := map[int]bool{}
	for _, c := range a.Choices {
		seen[c.Index] = true
		if c.FinishReason != "length" || len(c.Message.Content) != 8 {
			t.Errorf("choice %+v", c)
		}
	}
	if len(seen) != 3 || a.Usage.CompletionTokens != 24 {
		t.Errorf("indexes %v, usage %+v", seen, a.Usage)
	}
	n.AtRest()
}

func TestToolCallsAreParsed(t *testing.T) {
	n := nodetest.Start(t, says(`{"tool_calls":[{"name":"look","arguments":{"at":"sky"}}]}`), nil)
	a, _ := ask(t, n, chat("look at the sky", `,"tool_choice":"required","tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object","properties":{"at":{"type":"string"}}}}}]`), 200)
	c := a.Choices[0]
	if c.FinishReason != "tool_calls" || len(c.Message.ToolCalls) != 1 {
		t.Fatalf("answer %+v", c)
	}
	if f := c.Message.ToolCalls[0].Function; f.Name != "look" || f.Arguments != `{"at":"sky"}` {
		t.Errorf("call %+v", f)
	}
}

func TestRefusalsNameTheFault(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, nil)
	long := strings.Repeat("word ", 400)
	for _, tt := range []struct {
		name, body string
		status     int
		says       []string
	}{
		{"a prompt that does not fit", chat(long, ""), 400, []string{"1024", "tokens"}},
		{"a model that is not here", strings.Replace(chat("x", ""), "tiny", "nope", 1), 404, []string{"nope", "tandem pull"}},
		{"a schema without end", chat("x", `,"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"$ref":"#"}}}`), 400, []string{"$ref"}},
		{"a grammar without root", chat("x", `,"grammar":"a ::= \"x\""`), 400, []string{"root"}},
		{"a format beside tools", chat("x", `,"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}]`), 400, []string{"response_format", "tools"}},
		{"a value out of range", chat("x", `,"top_p":9`), 400, []string{"top_p", "9"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := ask(t, n, tt.body, tt.status)
			for _, word := range tt.says {
				if !strings.Contains(a.Error.Message, word) {
					t.Errorf("message %q does not say %q", a.Error.Message, word)
				}
			}
		})
	}
	n.AtRest()
}

// openStream starts an answer that does not end by itself and reads its first
// events.
func openStream(t *testing.T, ctx context.Context, n *nodetest.Node, content string) (*http.Response, *bufio.Reader) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.URL+"/v1/chat/completions", strings.NewReader(chat(content, `,"stream":true,"max_tokens":800`)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return resp, r
}

func TestAClientThatLeavesFreesEverything(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{StepTime: time.Millisecond}, nil)
	ctx, leave := context.WithCancel(context.Background())
	resp, _ := openStream(t, ctx, n, "go on")
	n.Until("it runs", func(s node.Status) bool { return s.Requests.Running == 1 && s.KV.BlocksHeld > 0 })
	leave()
	resp.Body.Close()
	n.AtRest()
}

func TestAFullQueueIsRefusedWithATime(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{StepTime: time.Millisecond}, func(c *node.Config) { c.Parallel, c.Queue = 1, 1 })
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	resp, _ := openStream(t, ctx, n, "first")
	defer resp.Body.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, n.URL+"/v1/chat/completions", strings.NewReader(chat("second", "")))
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	})
	n.Until("one waits", func(s node.Status) bool { return s.Requests.Queued == 1 })
	a, head := ask(t, n, chat("third", ""), 429)
	if head.Get("Retry-After") == "" || a.Error.Message == "" {
		t.Errorf("headers %v, error %+v", head, a.Error)
	}
	leave()
	wg.Wait()
	n.AtRest()
}

func TestAnEngineFaultIsRetriedOnceAndThenTold(t *testing.T) {
	var mu sync.Mutex
	faults := 1
	o := says("fine")
	o.FailDecode = func(int, *engine.Batch) error {
		mu.Lock()
		defer mu.Unlock()
		if faults == 0 {
			return nil
		}
		faults--
		return fmt.Errorf("a planted fault")
	}
	n := nodetest.Start(t, o, nil)
	if a, _ := ask(t, n, chat("x", ""), 200); a.Choices[0].Message.Content != "fine" {
		t.Errorf("after one fault: %+v", a)
	}
	mu.Lock()
	faults = 1 << 30
	mu.Unlock()
	ask(t, n, chat("y", ""), 500)
	mu.Lock()
	faults = 0
	mu.Unlock()
	if a, _ := ask(t, n, chat("z", ""), 200); a.Choices[0].Message.Content != "fine" {
		t.Errorf("after the faults: %+v", a)
	}
	n.AtRest()
}

func TestOutcomesAddUp(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{StepTime: time.Millisecond}, nil)
	for range 3 {
		ask(t, n, chat("hi", `,"max_tokens":2`), 200)
	}
	for range 2 {
		ask(t, n, chat("hi", `,"temperature":7`), 400)
	}
	ctx, leave := context.WithCancel(context.Background())
	resp, _ := openStream(t, ctx, n, "go on")
	leave()
	resp.Body.Close()
	n.AtRest()
	want := map[string]int{"length": 3, "rejected": 2, "cancelled": 1}
	line := regexp.MustCompile(`(?m)^tandem_requests_total\{.*outcome="(\w+)"\} (\d+)`)
	_, text := n.Get("/metrics")
	got := map[string]int{}
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		count, _ := strconv.Atoi(m[2])
		got[m[1]] += count
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("outcomes %v, want %v", got, want)
	}
}

func TestAStoppedNodeFinishesWhatRuns(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{StepTime: time.Millisecond}, nil)
	resp, r := openStream(t, context.Background(), n, "go on")
	defer resp.Body.Close()
	n.Stop()
	rest, err := io.ReadAll(r)
	if err != nil || !strings.Contains(string(rest), "[DONE]") {
		t.Errorf("the stream did not end by itself: %v, %q", err, rest[max(0, len(rest)-200):])
	}
	if err := n.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := http.Get(n.URL + "/healthz"); err == nil {
		t.Error("the port is still open")
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 2 {
		n := nodetest.Start(t, says("x"), nil)
		ask(t, n, chat("hi", ""), 200)
		n.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	deadline := time.Now().Add(nodetest.Patience)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if now := runtime.NumGoroutine(); now > before {
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines before, %d after:\n%s", before, now, stacks[:runtime.Stack(stacks, true)])
	}
}

func TestADataFolderBelongsToOneProcess(t *testing.T) {
	n := nodetest.Start(t, says("x"), nil)
	_, err := node.New(nodetest.Config(t, n.Dir))
	if err == nil || !strings.Contains(err.Error(), "--data-dir") || !strings.Contains(err.Error(), "another tandem process") {
		t.Errorf("error %v", err)
	}
}

func TestIdentityAndKeyOutliveTheNode(t *testing.T) {
	dir := t.TempDir()
	open := func() (id, key string) {
		c := nodetest.Config(t, dir)
		c.Listen = "0.0.0.0:0" // never opened: New opens no port
		n, err := node.New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := n.Run(ctx); err != nil {
			t.Fatal(err)
		}
		return n.Status(context.Background()).(node.Status).Node.ID, node.FirstKey(c)
	}
	id, key := open()
	id2, key2 := open()
	if id == "" || id != id2 || !strings.HasPrefix(key, "sk-tandem-") || key != key2 {
		t.Errorf("id %q then %q, key %q then %q", id, id2, key, key2)
	}
	info, err := os.Stat(filepath.Join(dir, "data", "api-key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", info, err)
	}
}

func TestEmbeddingsOfAGeneratingModel(t *testing.T) {
	n := nodetest.Start(t, says("x"), nil)
	status, _, body := n.Post("/v1/embeddings", `{"model":"tiny","input":["one","two"],"encoding_format":"float"}`)
	var got struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil || len(got.Data) != 2 {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	sum := 0.0
	for _, x := range got.Data[0].Embedding {
		sum += x * x
	}
	if sum < 0.999 || sum > 1.001 {
		t.Errorf("the square of the length is %f", sum)
	}
	ask(t, n, chat("still chats", ""), 200)
}
