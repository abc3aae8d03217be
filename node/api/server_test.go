package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// everyPath is each route, and the spellings that have been used to get around
// checks of routes.
var everyPath = []string{
	"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/m", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/responses/input_tokens", "/invocations",
	"/api/chat", "/api/generate", "/api/tags", "/api/ps", "/api/show", "/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete", "/api/embed",
	"/api/embeddings", "/api/version", "/api/blobs/sha256:" + strings.Repeat("0", 64), "/metrics", "/debug/pprof/", "/debug/vars", "/slots", "/props",
	"/tokenize", "/detokenize", "/cluster", "/api/cluster", "/admin", "/admin/status", "/admin/events", "/admin/calc",
	"/admin/kv", "/admin/kv/prefixes", "/admin/kv/pin", "/admin/kv/unpin", "/admin/kv/evict", "/admin/kv/verify", "/admin/kv/compare",
	"/admin/kv/export", "/admin/kv/import", "//v1/models", "/V1/models", "/v1/./models",
	"/x/../v1/models", "/v1/models/", "/v1%2fmodels", "/v1/models?key=k", "/v1/models;x", "/ui/../v1/models", "/ui/%2e%2e/v1/models", "/ui/..%2fv1/models",
	"/ui//v1/models", "/ui/./x", "/healthz/", "/healthz/../v1/models", "/healthz%2f", "/%76%31/models", "//", "/ui/..",
}

func page() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "the page at "+r.URL.Path) })
}

func TestKeyIsAskedForEverywhere(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "a", Secret: "k"}}, Page: page()})
	for _, path := range everyPath {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "get", "TRACE"} {
			r := n.do(method, path, "{}")
			if r.status != http.StatusUnauthorized {
				t.Errorf("%s %s without a key: %d", method, path, r.status)
			}
			if strings.Contains(r.body, "page") {
				t.Errorf("%s %s shows the page", method, path)
			}
		}
	}
	if asked := n.library.calls(); asked != "" {
		t.Errorf("the library was asked: %s", asked)
	}
	if asked := n.kv.calls(); asked != "" {
		t.Errorf("the KV store was asked: %s", asked)
	}
}

func TestOpenRoutes(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Secret: "k"}}, Page: page()})
	for path, want := range map[string]string{
		"/healthz": "ok", "/livez": "ok", "/readyz": "ok", "/health": "ok", "/": "Ollama is running", "/ui/": "the page at /ui/", "/ui/assets/x.js": "the page at /ui/assets/x.js",
	} {
		if r := n.do("GET", path, ""); r.status != 200 || !strings.Contains(r.body, want) {
			t.Errorf("GET %s: %d %s", path, r.status, r.body)
		}
		if r := n.do("HEAD", path, ""); r.status != 200 || r.body != "" {
			t.Errorf("HEAD %s: %d %q", path, r.status, r.body)
		}
		if r := n.do("POST", path, "{}"); r.status != 401 {
			t.Errorf("POST %s: %d", path, r.status)
		}
	}
	if r := n.do("GET", "/", "", "Accept", "text/html,*/*"); r.body != "the page at /" {
		t.Errorf("a browser gets %q", r.body)
	}
	if r := n.do("GET", "/ui", ""); r.status != http.StatusPermanentRedirect || r.header.Get("Location") != "/ui/" {
		t.Errorf("GET /ui: %d %s", r.status, r.header.Get("Location"))
	}
}

func TestCredentials(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "a", Secret: "key-a"}, {Name: "b", Secret: "key-b"}, {Secret: ""}}})
	for name, tc := range map[string]struct {
		headers []string
		status  int
	}{
		"bearer":             {[]string{"Authorization", "Bearer key-a"}, 200},
		"second key":         {[]string{"Authorization", "Bearer key-b"}, 200},
		"scheme's case":      {[]string{"Authorization", "bearer key-a"}, 200},
		"blank behind":       {[]string{"Authorization", "Bearer key-a "}, 200},
		"x-api-key":          {[]string{"X-Api-Key", "key-a"}, 200},
		"none":               {nil, 401},
		"empty":              {[]string{"Authorization", "Bearer "}, 401},
		"no scheme":          {[]string{"Authorization", "key-a"}, 401},
		"wrong":              {[]string{"Authorization", "Bearer wrong"}, 401},
		"start of a key":     {[]string{"Authorization", "Bearer key-"}, 401},
		"longer":             {[]string{"Authorization", "Bearer key-a1"}, 401},
		"basic":              {[]string{"Authorization", "Basic key-a"}, 401},
		"list":               {[]string{"Authorization", "Bearer key-a, Bearer wrong"}, 401},
		"wrong beside right": {[]string{"Authorization", "Bearer wrong", "X-Api-Key", "key-a"}, 401},
		"empty x-api-key":    {[]string{"X-Api-Key", ""}, 401},
		"own tenant header":  {[]string{"X-Tandem-Tenant", "a"}, 401},
	} {
		if r := n.do("GET", "/v1/models", "", tc.headers...); r.status != tc.status {
			t.Errorf("%s: %d, want %d", name, r.status, tc.status)
		}
	}
	for name, request := range map[string]string{
		"two headers": "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\r\nAuthorization: Bearer key-a\r\n\r\n",
		"NUL":         "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer key-a\x00\r\n\r\n",
	} {
		if got := n.raw(request); got[0] != 401 && got[0] != 400 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// raw sends bytes and returns the status of each response until the connection
// closes or is silent for a second.
func (n *testNode) raw(request string) []int {
	n.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		n.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	var statuses []int
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return statuses
		}
		_, _ = io.Copy(io.Discard, res.Body)
		statuses = append(statuses, res.StatusCode)
	}
}

func TestTenantComesFromTheKey(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "a", Secret: "1"}, {Name: "b", Secret: "2"}, {Name: "a", Secret: "3"}, {Secret: "4"}, {Secret: "a"}, {Name: "4", Secret: "5"}}})
	seen := map[string]string{}
	n.generator.generate = func(_ context.Context, r *Request, out Sink) (Result, error) {
		seen[r.Prompts[0].Text] = r.Tenant
		return say(r, out, "x")
	}
	for _, secret := range []string{"1", "2", "3", "4", "a", "5"} {
		if r := n.post("/v1/completions", `{"model":"m","prompt":"`+secret+`","tenant":"b","user":"b"}`, "Authorization", "Bearer "+secret, "X-Tandem-Tenant", "b"); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		if rec := n.records.next(t); rec.Tenant != seen[secret] {
			t.Errorf("recorded for tenant %q, want %q", rec.Tenant, seen[secret])
		}
	}
	if seen["1"] != seen["3"] {
		t.Error("two keys of one name are two tenants")
	}
	distinct := map[string]bool{}
	for _, tenant := range seen {
		if tenant == "" || strings.ContainsAny(tenant, "ghijklmnopqrstuvwxyz") {
			t.Errorf("odd tenant %q", tenant)
		}
		distinct[tenant] = true
	}
	if len(distinct) != 5 {
		t.Errorf("%d tenants, want 5: %v", len(distinct), seen)
	}
}

func TestHosts(t *testing.T) {
	for _, tc := range []struct {
		host                string
		loopback, elsewhere bool
	}{
		{"127.0.0.1:9494", true, true}, {"localhost:9494", true, true}, {"LocalHost", true, true}, {"[::1]:9494", true, true}, {"127.0.0.2", true, true},
		{"localhost.", true, true}, {"x.localhost", true, true}, {"[::ffff:127.0.0.1]:1", true, true}, {"", true, true},
		{"evil.example", false, false}, {"evil.example:9494", false, false}, {"127.0.0.1.evil.example", false, false}, {"localhost.evil.example", false, false},
		{"127.0.0.1@evil.example", false, false}, {"notlocalhost.com", false, false}, {"192.168.1.5:9494", false, true}, {"box:9494", false, true},
		{"box.lan", false, true}, {"box.local", false, true}, {"box.home.arpa", false, true}, {"evil.lan.example", false, false},
		{"ai.example", true, true}, {"ai.example:9494", true, true}, {"ai.example.evil", false, false},
	} {
		near := guard{keyless: true, loopback: true, hosts: []string{"ai.example"}}
		far := guard{keyless: true, hosts: []string{"ai.example"}}
		if got := near.hostAllowed(tc.host); got != tc.loopback {
			t.Errorf("on loopback %q: %v", tc.host, got)
		}
		if got := far.hostAllowed(tc.host); got != tc.elsewhere {
			t.Errorf("elsewhere %q: %v", tc.host, got)
		}
	}
}

func TestForeignPagesAndHosts(t *testing.T) {
	n := start(t, Config{AllowedOrigins: []string{"https://chat.example"}})
	port := n.url[strings.LastIndex(n.url, ":"):]
	for name, tc := range map[string]struct {
		headers []string
		status  int
	}{
		"plain":              {nil, 200},
		"rebinding":          {[]string{"Host", "evil.example"}, 403},
		"rebinding, port":    {[]string{"Host", "evil.example" + port}, 403},
		"rebinding, both":    {[]string{"Host", "evil.example" + port, "Origin", "http://evil.example" + port}, 403},
		"foreign page":       {[]string{"Origin", "https://evil.example"}, 403},
		"sandboxed page":     {[]string{"Origin", "null"}, 403},
		"extension":          {[]string{"Origin", "chrome-extension://abc"}, 403},
		"looks local":        {[]string{"Origin", "http://localhost.evil.example"}, 403},
		"user info":          {[]string{"Origin", "http://localhost@evil.example"}, 403},
		"own page":           {[]string{"Origin", n.url}, 200},
		"other port":         {[]string{"Origin", "http://localhost:3000"}, 200},
		"IPv6":               {[]string{"Origin", "http://[::1]:3000"}, 200},
		"allowed page":       {[]string{"Origin", "https://chat.example"}, 200},
		"allowed, other":     {[]string{"Origin", "http://chat.example"}, 403},
		"image of a page":    {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		"link from a page":   {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		"typed by the owner": {[]string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200},
	} {
		for _, path := range []string{"/v1/models", "/api/tags", "/healthz", "/"} {
			if r := n.do("GET", path, "", tc.headers...); r.status != tc.status {
				t.Errorf("%s, %s: %d, want %d", name, path, r.status, tc.status)
			}
		}
	}
	r := n.do("DELETE", "/api/delete", `{"model":"m"}`, "Origin", "https://evil.example", "Content-Type", "text/plain")
	if r.status != 403 || n.library.calls() != "" {
		t.Errorf("a foreign page deletes: %d %s", r.status, n.library.calls())
	}
}

func TestCORS(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Secret: "k"}}, AllowedOrigins: []string{"https://chat.example"}})
	ask := func(origin string) reply {
		return n.do("OPTIONS", "/v1/chat/completions", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "authorization,x-stainless-os", "Access-Control-Request-Private-Network", "true")
	}
	r := ask("https://chat.example")
	for name, want := range map[string]string{"Access-Control-Allow-Origin": "https://chat.example", "Access-Control-Allow-Headers": "authorization,x-stainless-os",
		"Access-Control-Allow-Private-Network": "true", "Access-Control-Allow-Methods": "GET, HEAD, POST, DELETE", "Access-Control-Allow-Credentials": ""} {
		if got := r.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.status != 204 {
		t.Errorf("preflight: %d", r.status)
	}
	if r := ask("https://evil.example"); r.status != 401 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("foreign preflight: %d %v", r.status, r.header)
	}
	r = n.do("GET", "/v1/models", "", "Origin", "https://chat.example", "Authorization", "Bearer k")
	if r.status != 200 || r.header.Get("Access-Control-Allow-Origin") != "https://chat.example" || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "X-Tandem-Node") {
		t.Errorf("allowed page: %d %v", r.status, r.header)
	}
	if r := n.do("GET", "/v1/models", "", "Origin", "https://evil.example", "Authorization", "Bearer k"); r.status != 200 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("with a key from elsewhere: %d %v", r.status, r.header)
	}
}

func TestShapesOfRefusals(t *testing.T) {
	n := start(t, Config{})
	for _, tc := range []struct {
		method, path string
		status       int
		ollama       bool
		words        string
	}{
		{"GET", "/v1/nope", 404, false, "no such route"}, {"GET", "/api/nope", 404, true, "no such route"}, {"GET", "/nope", 404, false, "no such route"},
		{"GET", "//v1/models", 404, false, "no such route"}, {"GET", "/x/../v1/models", 404, false, "no such route"}, {"GET", "/ui/", 404, false, "no such route"},
		{"GET", "/v1/chat/completions", 405, false, "only POST"}, {"DELETE", "/v1/models", 405, false, "only GET"}, {"POST", "/api/delete", 405, true, "only DELETE"},
		{"PUT", "/api/tags", 405, true, "only GET"}, {"POST", "/healthz", 405, false, "only GET"}, {"POST", "/api/push", 501, true, "cannot be pushed"},
		{"GET", "/v1/models/none", 404, false, "not on this node"}, {"GET", "/v1/models/..%2F..%2Fx", 404, false, "not a name"}, {"GET", "/v1/models/", 404, false, ""},
		{"POST", "/api/chat", 400, true, "valid JSON"}, {"POST", "/v1/chat/completions", 400, false, "valid JSON"},
	} {
		r := n.do(tc.method, tc.path, "")
		if r.status != tc.status {
			t.Errorf("%s %s: %d, want %d", tc.method, tc.path, r.status, tc.status)
		}
		fault := r.json(t)["error"]
		text, isText := fault.(string)
		if object, ok := fault.(map[string]any); ok {
			text = fmt.Sprint(object["message"])
			for _, field := range []string{"type", "param", "code"} {
				if _, ok := object[field]; !ok {
					t.Errorf("%s %s: no %s in %s", tc.method, tc.path, field, r.body)
				}
			}
		}
		if isText != tc.ollama || !strings.Contains(text, tc.words) {
			t.Errorf("%s %s: %s", tc.method, tc.path, r.body)
		}
		if tc.status == 405 && r.header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", tc.method, tc.path)
		}
	}
}

func TestErrorTable(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		status int
		words  string
	}{
		"ours":     {ContextExceeded(1600, 512), 400, "1600 tokens, but the context holds 512"},
		"wrapped":  {fmt.Errorf("loading: %w", NotFound("x")), 404, "not on this node"},
		"full":     {Busy(429, 3*time.Second, "full"), 429, "full"},
		"deadline": {fmt.Errorf("engine: %w", context.DeadlineExceeded), 504, "too long"},
		"unknown":  {errors.New("open /home/me/models/x.gguf: permission denied"), 500, "internal error"},
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			n := start(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			n.generator.generate = func(context.Context, *Request, Sink) (Result, error) { return Result{}, tc.err }
			for _, body := range []string{chatBody(""), chatBody(`"stream":true`)} {
				r := n.post("/v1/chat/completions", body)
				if r.status != tc.status || !strings.Contains(r.body, tc.words) || strings.Contains(r.body, "/home") || r.header.Get("Content-Type") != "application/json" {
					t.Errorf("%d %s", r.status, r.body)
				}
				n.records.next(t)
				if tc.status == 429 && r.header.Get("Retry-After") != "3" {
					t.Errorf("Retry-After: %q", r.header.Get("Retry-After"))
				}
				if id := r.header.Get("X-Tandem-Request-Id"); tc.status == 500 && !strings.Contains(logged.String(), id) {
					t.Errorf("the log does not have %s: %s", id, logged.String())
				}
			}
		})
	}
}

func TestPanics(t *testing.T) {
	n := start(t, Config{})
	n.generator.generate = func(_ context.Context, r *Request, out Sink) (Result, error) {
		if r.Prompts[0].Text == "late" {
			out.Accepted(accepted())
			_ = out.Delta(0, Delta{Content: "x"})
		}
		if r.Prompts[0].Text == "index" {
			out.Accepted(accepted())
			_ = out.Delta(7, Delta{Content: "x"})
		}
		panic("secret /home/me")
	}
	for prompt, status := range map[string]int{"early": 500, "late": 200, "index": 200} {
		r := n.post("/v1/completions", `{"model":"m","stream":true,"prompt":"`+prompt+`"}`)
		if r.status != status || !strings.Contains(r.body, "internal_error") || strings.Contains(r.body, "home") || strings.Contains(r.body, "goroutine") {
			t.Errorf("%s: %d %s", prompt, r.status, r.body)
		}
		if rec := n.records.next(t); rec.Outcome != OutcomeError {
			t.Errorf("%s: outcome %s", prompt, rec.Outcome)
		}
	}
	n.library.pull = func(context.Context, string, func(PullProgress)) error { panic("x") }
	if r := n.post("/api/pull", `{"model":"m"}`); r.status != 500 || !strings.Contains(r.body, `"error":"internal error`) {
		t.Errorf("pull: %d %s", r.status, r.body)
	}
	if got := n.Panics(); got != 4 {
		t.Errorf("%d panics counted, want 4", got)
	}
	n.generator.generate = nil
	if r := n.post("/v1/chat/completions", chatBody("")); r.status != 200 {
		t.Errorf("afterwards: %d %s", r.status, r.body)
	}
	if n.OpenStreams() != 0 {
		t.Errorf("%d streams are open", n.OpenStreams())
	}
}

func TestBodies(t *testing.T) {
	n := start(t, Config{})
	large := chatBody(`"user":"` + strings.Repeat("x", MaxBody) + `"`)
	if r := n.post("/v1/chat/completions", large); r.status != 413 || !strings.Contains(r.body, "16777216") {
		t.Errorf("large body: %d %s", r.status, r.body)
	}
	n.records.next(t)
	chunked, _ := http.NewRequest("POST", n.url+"/api/chat", io.MultiReader(strings.NewReader(large)))
	if res, err := http.DefaultClient.Do(chunked); err != nil || res.StatusCode != 413 {
		t.Errorf("large body without a length: %v %v", res, err)
	} else {
		res.Body.Close()
	}
	if rec := n.records.next(t); rec.Outcome != OutcomeRejected || rec.Status != 413 {
		t.Errorf("recorded as %s %d", rec.Outcome, rec.Status)
	}
	if r := n.post("/v1/chat/completions", "\x1f\x8b", "Content-Encoding", "gzip"); r.status != 415 {
		t.Errorf("packed body: %d", r.status)
	}
	if r := n.post("/v1/chat/completions", chatBody(""), "Content-Type", "application/x-www-form-urlencoded"); r.status != 200 {
		t.Errorf("curl -d: %d %s", r.status, r.body)
	}
}

func TestSmuggling(t *testing.T) {
	n := start(t, Config{})
	host := "Host: localhost\r\n"
	for name, request := range map[string]string{
		"two lengths and chunks": "POST /v1/chat/completions HTTP/1.1\r\n" + host + "Content-Length: 4\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n" + host + "\r\n",
		"two lengths":            "POST /v1/chat/completions HTTP/1.1\r\n" + host + "Content-Length: 4\r\nContent-Length: 6\r\n\r\nGET /metrics HTTP/1.1\r\n" + host + "\r\n",
		"two hosts":              "GET /v1/models HTTP/1.1\r\n" + host + "Host: evil.example\r\n\r\n",
	} {
		if got := n.raw(request); len(got) != 1 || got[0] != 400 {
			t.Errorf("%s: responses %v, want one 400", name, got)
		}
	}
	if got := n.raw("OPTIONS * HTTP/1.1\r\n" + host + "\r\n"); len(got) != 1 || got[0] != 404 {
		t.Errorf("OPTIONS *: %v", got)
	}
	if got := n.raw("GET http://evil.example/v1/models HTTP/1.1\r\n" + host + "\r\n"); len(got) != 1 || got[0] != 403 {
		t.Errorf("absolute form: %v", got)
	}
}

func TestInnerHeadersAreDropped(t *testing.T) {
	n := start(t, Config{})
	seen := make(chan http.Header, 1)
	n.cfg.Page = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	n.do("GET", "/ui/", "", "X-Tandem-Tenant", "a", "x-tandem-forward-to", "127.0.0.1:1", "X-Other", "stays")
	got := <-seen
	if got.Get("X-Tandem-Tenant") != "" || got.Get("X-Tandem-Forward-To") != "" || got.Get("X-Other") != "stays" {
		t.Errorf("got %v", got)
	}
}

func TestHealth(t *testing.T) {
	n := start(t, Config{})
	n.admin.ready = errors.New("loading m: 40 %")
	for path, status := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": 503, "/health": 503} {
		r := n.do("GET", path, "")
		if r.status != status {
			t.Errorf("%s: %d", path, r.status)
		}
		if status == 503 && r.json(t)["reason"] != "loading m: 40 %" {
			t.Errorf("%s does not say why: %s", path, r.body)
		}
	}
}

func TestAdmin(t *testing.T) {
	n := start(t, Config{Version: "1.2.3"})
	if r := n.do("GET", "/metrics", ""); !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain; version=0.0.4") || !strings.Contains(r.body, "x 1") {
		t.Errorf("metrics: %v %s", r.header, r.body)
	}
	if r := n.do("GET", "/admin/status", ""); r.json(t)["goroutines"] != 1.0 {
		t.Errorf("status: %s", r.body)
	}
	if r := n.do("GET", "/api/version", ""); r.json(t)["server_version"] != "1.2.3" || r.json(t)["version"] == "" {
		t.Errorf("version: %s", r.body)
	}
	n.admin.events = func(_ context.Context, each func(string, []byte) error) error {
		return errors.Join(each("one", []byte(`{"a":1}`)), each("two\r\n", []byte("{\n}")))
	}
	if r := n.do("GET", "/admin/events", ""); r.body != "event: one\ndata: {\"a\":1}\n\nevent: two\ndata: {\ndata: }\n\n" || r.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("events: %q", r.body)
	}
}

func TestEventsEndWithTheClient(t *testing.T) {
	n := start(t, Config{})
	ended := make(chan error, 1)
	n.admin.events = func(ctx context.Context, _ func(string, []byte) error) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "GET", n.url+"/admin/events", nil)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	if err := <-ended; err == nil {
		t.Error("no cause")
	}
}

func TestHeaderText(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "a\r\nX: y": "a  X: y", "é\x00z": "??z", " x ": "x", strings.Repeat("a", 30): strings.Repeat("a", 20)} {
		if got := headerText(in, 20); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
