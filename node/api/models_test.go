package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func TestModelLists(t *testing.T) {
	n := start(t, Config{})
	model := n.do("GET", "/v1/models", "").json(t)["data"].([]any)[0].(map[string]any)
	if model["id"] != "m:latest" || model["object"] != "model" || model["created"] != 1600000000.0 || model["owned_by"] != "tandem" || model["context_length"] != 512.0 {
		t.Errorf("/v1/models: %v", model)
	}
	tag := n.do("GET", "/api/tags", "").json(t)["models"].([]any)[0].(map[string]any)
	if details := tag["details"].(map[string]any); tag["name"] != "m:latest" || tag["size"] != 123.0 || details["parameter_size"] != "134.52M" || details["quantization_level"] != "Q8_0" {
		t.Errorf("/api/tags: %v", tag)
	}
	ps := n.do("GET", "/api/ps", "").json(t)["models"].([]any)[0].(map[string]any)
	if ps["size_vram"] != 4.0 || ps["context_length"] != 512.0 || ps["expires_at"] != "9999-12-31T23:59:59Z" {
		t.Errorf("/api/ps: %v", ps)
	}
	shown := n.post("/api/show", `{"name":"m"}`).json(t)
	info := shown["model_info"].(map[string]any)
	if info["llama.context_length"] != 512.0 || info["tandem.trained_context_length"] != 8192.0 || shown["template"] != "{{ messages }}" {
		t.Errorf("/api/show: %v", shown)
	}
}

func TestModelByID(t *testing.T) {
	n := start(t, Config{})
	for path, id := range map[string]string{"/v1/models/m": "m", "/v1/models/m:latest": "m:latest", "/v1/models/hf.co/a/b:Q4_K_M": "hf.co/a/b:Q4_K_M",
		"/v1/models/hf.co%2Fa%2Fb%3AQ4_K_M": "hf.co/a/b:Q4_K_M"} {
		if r := n.do("GET", path, ""); r.status != 200 || r.json(t)["id"] != id {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
}

func TestModelRoutesTakeNamesOnly(t *testing.T) {
	n := start(t, Config{})
	for _, name := range []string{"../../../../x/y", "..%2f..%2fx", `..\\..\\x`, "/abs/x", "a//b", `a\u0000b`, `a\nb`, "a b:latest", "~x", "con", strings.Repeat("a", 5000), "", ".", " "} {
		for _, ask := range [][3]string{
			{"POST", "/v1/chat/completions", `{"model":"` + name + `","messages":[` + hello + `]}`},
			{"POST", "/api/chat", `{"model":"` + name + `"}`},
			{"POST", "/v1/embeddings", `{"model":"` + name + `","input":"x"}`},
			{"POST", "/api/show", `{"model":"` + name + `"}`},
			{"POST", "/api/pull", `{"model":"` + name + `"}`},
			{"DELETE", "/api/delete", `{"name":"` + name + `"}`},
			{"POST", "/api/copy", `{"source":"m","destination":"` + name + `"}`},
			{"POST", "/api/copy", `{"source":"` + name + `","destination":"m"}`},
			{"POST", "/api/create", `{"model":"` + name + `","from":"m"}`},
			{"POST", "/api/create", `{"model":"x","from":"` + name + `","files":{}}`},
		} {
			if r := n.do(ask[0], ask[1], ask[2]); r.status != 400 {
				t.Errorf("%s %s with %q: %d", ask[0], ask[1], clip(name, 20), r.status)
			}
		}
	}
	for _, digest := range []string{"sha256:../../../../x", "sha256-../../x", "sha256:" + strings.Repeat("0", 63), "sha256:" + strings.Repeat("G", 64),
		"sha256:" + strings.Repeat("A", 64), "md5:00", "sha256:", "sha256:" + strings.Repeat("0", 64) + "%2f..%2fx", "sha256:" + strings.Repeat("0", 64) + "/../../x"} {
		for _, method := range []string{"HEAD", "POST"} {
			if r := n.do(method, "/api/blobs/"+digest, "abc"); r.status != 400 && r.status != 404 {
				t.Errorf("%s %q: %d", method, digest, r.status)
			}
		}
		if r := n.post("/api/create", `{"model":"p1","files":{"m.gguf":"`+digest+`"}}`); r.status != 400 {
			t.Errorf("create from %q: %d", digest, r.status)
		}
	}
	for _, file := range []string{"../m.gguf", "/m.gguf", "a/b/../../../m.gguf", ""} {
		if r := n.post("/api/create", `{"model":"p2","files":{"`+file+`":"sha256:`+strings.Repeat("0", 64)+`"}}`); r.status != 400 {
			t.Errorf("create with the file %q: %d", file, r.status)
		}
	}
	if asked := n.library.calls(); asked != "" {
		t.Errorf("the library was asked: %s", asked)
	}
}

func TestManagement(t *testing.T) {
	var logged bytes.Buffer
	n := start(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	digest := "sha256:" + strings.Repeat("0", 63)
	for _, tc := range []struct {
		method, path, body string
		status             int
		asked              string
	}{
		{"DELETE", "/api/delete", `{"model":"m"}`, 200, "delete m"},
		{"DELETE", "/api/delete", `{"model":"gone"}`, 404, "delete gone"},
		{"POST", "/api/copy", `{"source":"m","destination":"hf.co/a/b"}`, 200, "copy m hf.co/a/b"},
		{"POST", "/api/create", `{"model":"x","from":"m","stream":false}`, 200, "create x from m"},
		{"POST", "/api/create", `{"model":"x","files":{"m.gguf":"` + digest + `1"}}`, 200, "create x from "},
		{"POST", "/api/create", `{"model":"x","from":"m","system":"you are a cat"}`, 400, ""},
		{"POST", "/api/create", `{"model":"x","from":"m","template":"{{ x }}"}`, 400, ""},
		{"POST", "/api/create", `{"model":"x","from":"m","parameters":{"stop":"x"}}`, 400, ""},
		{"POST", "/api/create", `{"model":"x","from":"m","quantize":"q4_0"}`, 400, ""},
		{"POST", "/api/create", `{"model":"x","from":"m","parameters":{},"license":[],"system":""}`, 200, "create x from m"},
		{"POST", "/api/create", `{"model":"x"}`, 400, ""},
		{"POST", "/api/create", `{"model":"x","from":"m","files":{"m.gguf":"` + digest + `1"}}`, 400, ""},
		{"POST", "/api/show", `{"model":"m","verbose":true}`, 400, ""},
		{"POST", "/api/show", `{"model":"gone"}`, 404, ""},
		{"POST", "/api/pull", `{"model":"m","insecure":true}`, 400, ""},
		{"POST", "/api/pull", `{"model":"https://models.example/x.gguf"}`, 200, "pull https://models.example/x.gguf"},
		{"POST", "/api/pull", `{"model":"https://models.example/../x.gguf"}`, 400, ""},
		{"POST", "/api/pull", `{"model":"http://models.example/x.gguf"}`, 400, ""},
		{"POST", "/api/pull", `{"model":"file:///x.gguf"}`, 400, ""},
		{"HEAD", "/api/blobs/" + digest + "1", "", 200, ""},
		{"HEAD", "/api/blobs/" + digest + "0", "", 404, ""},
		{"POST", "/api/blobs/" + digest + "0", "abc", 201, "put " + digest + "0"},
	} {
		n.library.mu.Lock()
		n.library.asked = nil
		n.library.mu.Unlock()
		r := n.do(tc.method, tc.path, tc.body)
		if r.status != tc.status || n.library.calls() != tc.asked {
			t.Errorf("%s %s %s: %d, asked %q; want %d, %q: %s", tc.method, tc.path, tc.body, r.status, n.library.calls(), tc.status, tc.asked, r.body)
		}
	}
	if logged.Len() > 0 {
		t.Errorf("a fault was logged: %s", logged.String())
	}
}

func TestBlobThatIsNotWhatItSays(t *testing.T) {
	n := start(t, Config{})
	n.library.putBlob = func(_ string, r io.Reader) error {
		data, err := io.ReadAll(r)
		if err != nil || string(data) != "abd" {
			return errors.New("not read")
		}
		return BadRequest("digest", "digest: the upload has another one")
	}
	r := n.post("/api/blobs/sha256:"+strings.Repeat("0", 64), "abd")
	if r.status != 400 || !strings.Contains(r.body, "another one") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestPullFailures(t *testing.T) {
	n := start(t, Config{})
	fail := NotFound("m")
	n.library.pull = func(_ context.Context, _ string, progress func(PullProgress)) error { return fail }
	if r := n.post("/api/pull", `{"model":"m"}`); r.status != 404 || !strings.Contains(r.body, `{"error":"model`) {
		t.Errorf("early: %d %s", r.status, r.body)
	}
	n.library.pull = func(_ context.Context, _ string, progress func(PullProgress)) error {
		progress(PullProgress{Status: "pulling manifest"})
		return fail
	}
	r := n.post("/api/pull", `{"model":"m"}`)
	lines := strings.Split(strings.TrimSpace(r.body), "\n")
	if r.status != 200 || len(lines) != 2 || !strings.HasPrefix(lines[1], `{"error":"model`) {
		t.Errorf("late: %d %s", r.status, r.body)
	}
	if r := n.post("/api/pull", `{"model":"m","stream":false}`); r.status != 404 {
		t.Errorf("whole: %d %s", r.status, r.body)
	}
}

func TestTokenizeRoutes(t *testing.T) {
	n := start(t, Config{})
	for body, want := range map[string]string{
		`{"model":"m","content":"a b"}`:                          `{"count":2,"tokens":[7,7]}`,
		`{"model":"m","prompt":"a b","add_special_tokens":true}`: `{"count":3,"tokens":[1,7,7]}`,
		`{"model":"m","content":""}`:                             `{"count":0,"tokens":[]}`,
		`{"model":"m"}`:                                          "content",
		`{"model":"m","prompt":"a b"}`:                           `{"count":3,"tokens":[1,7,7]}`,
		`{"model":"m","content":"a","with_pieces":true}`:         `{"count":1,"tokens":[{"id":7,"piece":"a"}]}`,
		`{"content":"a"}`:                                        `{"count":1,"tokens":[7]}`,
		`{"model":"","content":"a"}`:                             "is required",
		`{"content":"a","prompt":"b"}`:                           "content",
	} {
		if r := n.post("/tokenize", body); !strings.Contains(r.body, want) {
			t.Errorf("%s: %s", body, r.body)
		}
	}
	for body, want := range map[string]string{
		`{"model":"m","tokens":[1,2]}`: `{"content":"w w ","prompt":"w w "}`,
		`{"model":"m","tokens":"x"}`:   "an array",
		`{"model":"m"}`:                "required",
	} {
		if r := n.post("/detokenize", body); !strings.Contains(r.body, want) {
			t.Errorf("%s: %s", body, r.body)
		}
	}
}

func TestTruncationIsTold(t *testing.T) {
	n := start(t, Config{})
	n.generator.generate = func(_ context.Context, r *Request, out Sink) (Result, error) {
		if !r.Truncate {
			return Result{}, ContextExceeded(1600, 512)
		}
		a := accepted()
		a.Truncated = 1100
		out.Accepted(a)
		return Result{}, out.Finish(0, Finish{Reason: "stop"})
	}
	n.generator.embed = func(_ context.Context, r *EmbedRequest) (EmbedResult, error) {
		if !r.Truncate {
			return EmbedResult{}, ContextExceeded(1600, 512)
		}
		return EmbedResult{Vectors: [][]float32{{1}}, Truncated: 1}, nil
	}
	for path, body := range map[string]string{"/api/chat": `"messages":[` + hello + `],"stream":false`, "/api/generate": `"prompt":"x"`, "/api/embed": `"input":"x"`} {
		if r := n.post(path, `{"model":"m",`+body+`}`); r.status != 400 || !strings.Contains(r.body, "1600") || !strings.Contains(r.body, "512") {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
		r := n.post(path, `{"model":"m","truncate":true,`+body+`}`)
		if r.status != 200 || r.header.Get("X-Tandem-Truncated") == "" || !strings.Contains(r.body, `"truncated":1`) {
			t.Errorf("%s cut: %d %v %s", path, r.status, r.header, r.body)
		}
	}
}
