package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeGenerator does what its fields say; without them it answers "ok".
type fakeGenerator struct {
	generate   func(ctx context.Context, r *Request, out Sink) (Result, error)
	embed      func(ctx context.Context, r *EmbedRequest) (EmbedResult, error)
	detokenize func(model string, tokens []int32) (string, error)
}

func (f *fakeGenerator) Generate(ctx context.Context, r *Request, out Sink) (Result, error) {
	if f.generate != nil {
		return f.generate(ctx, r, out)
	}
	return say(r, out, "ok")
}

// say answers every choice with pieces.
func say(r *Request, out Sink, pieces ...string) (Result, error) {
	if r.LoadOnly {
		return Result{Load: time.Second, Total: time.Second}, nil
	}
	out.Accepted(accepted())
	result := Result{Usage: Usage{PromptTokens: 5, CachedTokens: 2}, Prefill: 2 * time.Millisecond, Decode: 3 * time.Millisecond, Total: 9 * time.Millisecond}
	for choice := range max(len(r.Prompts), 1) * r.N {
		for _, p := range pieces {
			if err := out.Delta(choice, Delta{Content: p}); err != nil {
				return result, err
			}
			result.CompletionTokens++
		}
		if err := out.Finish(choice, Finish{Reason: "stop"}); err != nil {
			return result, err
		}
	}
	return result, nil
}

func accepted() Accepted {
	return Accepted{Model: "m:latest", Node: "n1", Prefill: "local", Reason: "the only node", PromptTokens: 5, Created: time.Unix(1700000000, 0)}
}

func (f *fakeGenerator) Embed(ctx context.Context, r *EmbedRequest) (EmbedResult, error) {
	if f.embed != nil {
		return f.embed(ctx, r)
	}
	res := EmbedResult{Model: r.Model, PromptTokens: 3}
	for range r.Inputs {
		res.Vectors = append(res.Vectors, []float32{0.5, -0.25})
	}
	return res, nil
}

func (f *fakeGenerator) Tokenize(_ context.Context, _, text string, o TokenizeOptions) ([]TextToken, error) {
	tokens := []TextToken{}
	if o.AddSpecial {
		tokens = append(tokens, TextToken{1, []byte("<s>")})
	}
	for _, word := range strings.Fields(text) {
		tokens = append(tokens, TextToken{7, []byte(word)})
	}
	return tokens, nil
}

// Count counts words.
func (f *fakeGenerator) Count(_ context.Context, r *Request) (int, error) {
	n := 0
	for _, m := range r.Messages {
		n += len(strings.Fields(m.Content))
	}
	return n, nil
}

func (f *fakeGenerator) Detokenize(_ context.Context, model string, tokens []int32) (string, error) {
	if f.detokenize != nil {
		return f.detokenize(model, tokens)
	}
	return strings.Repeat("w ", len(tokens)), nil
}

// fakeLibrary has one model, m:latest, and remembers what was asked of it.
type fakeLibrary struct {
	mu      sync.Mutex
	asked   []string
	pull    func(ctx context.Context, ref string, progress func(PullProgress)) error
	putBlob func(digest string, r io.Reader) error
}

func (f *fakeLibrary) note(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, s)
}

func (f *fakeLibrary) calls() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.asked, "; ")
}

func theModel() Model {
	return Model{Name: "m:latest", Digest: strings.Repeat("ab", 32), Size: 123, Modified: time.Unix(1600000000, 0).UTC(), Family: "llama",
		Parameters: 134515008, Quantization: "Q8_0", ContextLength: 512, Capabilities: []string{"completion"}, Source: "tandem", Default: true}
}

func (f *fakeLibrary) List(context.Context) ([]Model, error) { return []Model{theModel()}, nil }

func (f *fakeLibrary) Show(_ context.Context, name string) (ModelDetail, error) {
	if name != "m" && name != "m:latest" && name != "hf.co/a/b:Q4_K_M" {
		return ModelDetail{}, NotFound(name)
	}
	m := theModel()
	m.Name = name
	return ModelDetail{Model: m, Template: "{{ messages }}", Metadata: map[string]any{"llama.context_length": 8192, "general.architecture": "llama"}}, nil
}

func (f *fakeLibrary) Loaded() []LoadedModel {
	return []LoadedModel{{Model: theModel(), MemoryBytes: 10, GPUBytes: 4}}
}

func (f *fakeLibrary) Pull(ctx context.Context, ref string, progress func(PullProgress)) error {
	f.note("pull " + ref)
	if f.pull != nil {
		return f.pull(ctx, ref, progress)
	}
	progress(PullProgress{Status: "pulling manifest"})
	progress(PullProgress{Status: "pulling", Digest: "sha256:ab", Total: 10, Completed: 5})
	return nil
}

func (f *fakeLibrary) Delete(_ context.Context, name string) error {
	f.note("delete " + name)
	if name != "m" {
		return NotFound(name)
	}
	return nil
}

func (f *fakeLibrary) Copy(_ context.Context, from, to string) error {
	f.note("copy " + from + " " + to)
	return nil
}

func (f *fakeLibrary) Create(_ context.Context, c CreateModel) error {
	f.note("create " + c.Name + " from " + c.From)
	return nil
}

func (f *fakeLibrary) HasBlob(digest string) bool { return strings.HasSuffix(digest, "1") }

func (f *fakeLibrary) PutBlob(_ context.Context, digest string, r io.Reader) error {
	f.note("put " + digest)
	if f.putBlob != nil {
		return f.putBlob(digest, r)
	}
	_, err := io.Copy(io.Discard, r)
	return err
}

func (f *fakeLibrary) Unload(context.Context, string) error { return nil }

type fakeAdmin struct {
	ready  error
	events func(ctx context.Context, each func(string, []byte) error) error
}

func (f *fakeAdmin) Ready() error               { return f.ready }
func (f *fakeAdmin) Status(context.Context) any { return map[string]any{"goroutines": 1} }
func (f *fakeAdmin) Events(ctx context.Context, open func(), each func(string, []byte) error) error {
	open()
	if f.events != nil {
		return f.events(ctx, each)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
func (f *fakeAdmin) Metrics(w io.Writer) error {
	_, err := io.WriteString(w, "# TYPE x counter\nx 1\n")
	return err
}

// fakeKV remembers what was asked of it.
type fakeKV struct {
	mu      sync.Mutex
	asked   []string
	pin     func(id string, pinned bool) error
	verify  func(ctx context.Context) (any, error)
	export  func(ctx context.Context, w io.Writer) error
	imports func(ctx context.Context, r io.Reader) (any, error)
}

func (f *fakeKV) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, fmt.Sprintf(format, args...))
}

// calls are what was asked since the last call.
func (f *fakeKV) calls() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := strings.Join(f.asked, "; ")
	f.asked = nil
	return calls
}

func (f *fakeKV) State(context.Context) any { return map[string]any{"enabled": true} }
func (f *fakeKV) Prefixes(_ context.Context, limit int) (any, error) {
	f.note("list %d", limit)
	return map[string]any{"prefixes": []any{}, "total": 0}, nil
}
func (f *fakeKV) Pin(_ context.Context, id string, pinned bool) error {
	f.note("pin %s %v", id, pinned)
	if f.pin != nil {
		return f.pin(id, pinned)
	}
	return nil
}
func (f *fakeKV) Evict(_ context.Context, id string) (any, error) {
	f.note("evict %q", id)
	return map[string]int{"ram_blocks": 3}, nil
}
func (f *fakeKV) Verify(ctx context.Context) (any, error) {
	f.note("verify")
	if f.verify != nil {
		return f.verify(ctx)
	}
	return map[string]int{"ram_blocks": 3}, nil
}
func (f *fakeKV) Export(ctx context.Context, w io.Writer, id string) (any, error) {
	f.note("export %q", id)
	if f.export != nil {
		return map[string]int{"blocks": 1}, f.export(ctx, w)
	}
	_, err := io.WriteString(w, "the file")
	return map[string]int{"blocks": 1}, err
}
func (f *fakeKV) Import(ctx context.Context, r io.Reader) (any, error) {
	if f.imports != nil {
		return f.imports(ctx, r)
	}
	data, err := io.ReadAll(r)
	f.note("import %d bytes", len(data))
	return map[string]int{"blocks": 1}, err
}
func (f *fakeKV) Compare(_ context.Context, c CompareKV) (any, error) {
	f.note("compare %+v", c)
	return map[string]bool{"equal_text": true}, nil
}

// records collects what Observe is told.
type records chan RequestRecord

func (r records) next(t *testing.T) RequestRecord {
	t.Helper()
	select {
	case rec := <-r:
		return rec
	case <-time.After(10 * time.Second):
		t.Fatal("no record within 10 s")
		return RequestRecord{}
	}
}

// testNode is a server on a real loopback port.
type testNode struct {
	*Server
	t         *testing.T
	url       string
	generator *fakeGenerator
	library   *fakeLibrary
	admin     *fakeAdmin
	kv        *fakeKV
	calc      *fakeCalc
	records   records
}

// start serves with cfg, whose missing parts are fakes.
func start(t *testing.T, cfg Config) *testNode {
	t.Helper()
	n := &testNode{t: t, generator: &fakeGenerator{}, library: &fakeLibrary{}, admin: &fakeAdmin{}, kv: &fakeKV{}, calc: &fakeCalc{}, records: make(records, 1000)}
	cfg.Generator, cfg.Library, cfg.Admin, cfg.KV, cfg.Calc = n.generator, n.library, n.admin, n.kv, n.calc
	cfg.Observe = func(r RequestRecord) { n.records <- r }
	cfg.Loopback = true
	n.Server = New(cfg)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := n.HTTPServer()
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(Listener(listener)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	n.url = "http://" + listener.Addr().String()
	return n
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("the answer is not a JSON object: %v: %s", err, r.body)
	}
	return v
}

// do sends a request; headers come in pairs of name and value.
func (n *testNode) do(method, path, body string, headers ...string) reply {
	n.t.Helper()
	req, err := http.NewRequest(method, n.url+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 30 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		n.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, string(data)}
}

func (n *testNode) post(path, body string, headers ...string) reply {
	n.t.Helper()
	return n.do(http.MethodPost, path, body, headers...)
}
