package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const someBlock = "0123456789abcdef0123456789abcdef"

func TestKVRoutes(t *testing.T) {
	n := start(t, Config{})
	for name, tc := range map[string]struct {
		method, path, body string
		asked, answer      string
	}{
		"state":             {"GET", "/admin/kv", "", "", `"enabled":true`},
		"list":              {"GET", "/admin/kv/prefixes", "", "list 100", `"total":0`},
		"list, limited":     {"GET", "/admin/kv/prefixes?limit=7", "", "list 7", `"total":0`},
		"pin":               {"POST", "/admin/kv/pin", `{"id":"` + someBlock + `"}`, "pin " + someBlock + " true", `"pinned":true`},
		"unpin":             {"POST", "/admin/kv/unpin", `{"id":"` + strings.ToUpper(someBlock) + `"}`, "pin " + someBlock + " false", `"pinned":false`},
		"evict":             {"POST", "/admin/kv/evict", `{"id":"` + someBlock + `"}`, `evict "` + someBlock + `"`, `"ram_blocks":3`},
		"evict all":         {"POST", "/admin/kv/evict", `{"all":true}`, `evict ""`, `"ram_blocks":3`},
		"verify":            {"POST", "/admin/kv/verify", "", "verify", `"ram_blocks":3`},
		"compare":           {"POST", "/admin/kv/compare", "", "compare {Model: Tokens:0 Generate:0}", `"equal_text":true`},
		"compare, in words": {"POST", "/admin/kv/compare", `{"model":"m:latest","tokens":500,"generate":9}`, "compare {Model:m:latest Tokens:500 Generate:9}", `"equal_text":true`},
		"export":            {"GET", "/admin/kv/export?id=" + someBlock, "", `export "` + someBlock + `"`, "the file"},
		"export all":        {"GET", "/admin/kv/export", "", `export ""`, "the file"},
		"export, head":      {"HEAD", "/admin/kv/export", "", "", ""},
		"import":            {"POST", "/admin/kv/import", "the file", "import 8 bytes", `"blocks":1`},
	} {
		r := n.do(tc.method, tc.path, tc.body)
		if r.status != 200 || !strings.Contains(r.body, tc.answer) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if asked := n.kv.calls(); asked != tc.asked {
			t.Errorf("%s: asked %q, want %q", name, asked, tc.asked)
		}
	}
}

func TestKVRefusals(t *testing.T) {
	n := start(t, Config{})
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		param, words       string
	}{
		"no id":              {"POST", "/admin/kv/pin", "{}", 400, "id", "32 hexadecimal digits"},
		"no body":            {"POST", "/admin/kv/evict", "", 400, "id", "is required"},
		"short":              {"POST", "/admin/kv/pin", `{"id":"0123"}`, 400, "id", `"0123" is not the id of a block`},
		"no hex":             {"POST", "/admin/kv/unpin", `{"id":"` + strings.Repeat("z", 32) + `"}`, 400, "id", "32 hexadecimal digits"},
		"a number":           {"POST", "/admin/kv/pin", `{"id":5}`, 400, "id", "must be a string"},
		"a path":             {"POST", "/admin/kv/evict", `{"id":"../../etc/passwd"}`, 400, "id", "is not the id"},
		"zeros":              {"POST", "/admin/kv/evict", `{"id":"` + strings.Repeat("0", 32) + `"}`, 400, "id", "is not the id"},
		"an empty id":        {"POST", "/admin/kv/evict", `{"id":""}`, 400, "id", "is not the id"},
		"all and one":        {"POST", "/admin/kv/evict", `{"all":true,"id":"` + someBlock + `"}`, 400, "id", "cannot be combined"},
		"all, false":         {"POST", "/admin/kv/evict", `{"all":false}`, 400, "id", "is required"},
		"no JSON":            {"POST", "/admin/kv/verify", `{`, 400, "", "valid JSON"},
		"long":               {"GET", "/admin/kv/export?id=" + strings.Repeat("a", 1000), "", 400, "id", "is not the id"},
		"empty in the query": {"GET", "/admin/kv/export?id=", "", 400, "id", "is not the id"},
		"limit, none":        {"GET", "/admin/kv/prefixes?limit=0", "", 400, "limit", "from 1 to 10000"},
		"limit, high":        {"GET", "/admin/kv/prefixes?limit=10001", "", 400, "limit", "from 1 to 10000"},
		"limit, words":       {"GET", "/admin/kv/prefixes?limit=all", "", 400, "limit", `"all"`},
		"tokens":             {"POST", "/admin/kv/compare", `{"tokens":1}`, 400, "tokens", "out of range"},
		"model":              {"POST", "/admin/kv/compare", `{"model":"../x"}`, 400, "model", "not a name"},
		"generate":           {"POST", "/admin/kv/compare", `{"generate":5000}`, 400, "generate", "from 1 to 1024"},
		"by GET":             {"GET", "/admin/kv/evict", "", 405, "", "only POST"},
		"by POST":            {"POST", "/admin/kv/export", "", 405, "", "only GET"},
		"unknown":            {"GET", "/admin/kv/secrets", "", 404, "", "no such route"},
	} {
		r := n.do(tc.method, tc.path, tc.body)
		fault, _ := r.json(t)["error"].(map[string]any)
		if text, _ := fault["message"].(string); r.status != tc.status || !strings.Contains(text, tc.words) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
		if param, _ := fault["param"].(string); param != tc.param {
			t.Errorf("%s: the field at fault is %q, want %q", name, param, tc.param)
		}
	}
	if r := n.post("/admin/kv/import", "x", "Content-Encoding", "gzip"); r.status != 415 {
		t.Errorf("a packed import: %d %s", r.status, r.body)
	}
	if asked := n.kv.calls(); asked != "" {
		t.Errorf("the store was asked: %s", asked)
	}
}

// A page of another site must not see what is kept, and even less change it.
func TestForeignPagesReachNoKV(t *testing.T) {
	n := start(t, Config{})
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Host", "evil.example"},
		{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
		{"Origin", "https://evil.example", "Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"},
	} {
		for _, route := range []string{"GET /admin/kv", "GET /admin/kv/prefixes", "GET /admin/kv/export", "POST /admin/kv/pin", "POST /admin/kv/unpin",
			"POST /admin/kv/evict", "POST /admin/kv/verify", "POST /admin/kv/compare", "POST /admin/kv/import"} {
			method, path, _ := strings.Cut(route, " ")
			if r := n.do(method, path, `{"id":"`+someBlock+`"}`, headers...); r.status != 403 {
				t.Errorf("%s %s: %d", route, headers, r.status)
			}
		}
	}
	if asked := n.kv.calls(); asked != "" {
		t.Errorf("the store was asked: %s", asked)
	}
}

func TestKVErrorsReachTheClient(t *testing.T) {
	n := start(t, Config{})
	n.kv.pin = func(string, bool) error {
		return &Error{Status: 404, Code: "block_not_found", Message: "no such block"}
	}
	if r := n.post("/admin/kv/pin", `{"id":"`+someBlock+`"}`); r.status != 404 || !strings.Contains(r.body, "no such block") {
		t.Errorf("%d %s", r.status, r.body)
	}
	n.kv.pin = func(string, bool) error { return errors.New("open /var/lib/secret: no") }
	if r := n.post("/admin/kv/pin", `{"id":"`+someBlock+`"}`); r.status != 500 || strings.Contains(r.body, "/var") {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestKVExport(t *testing.T) {
	n := start(t, Config{})
	file := bytes.Repeat([]byte("block "), 100_000)
	n.kv.export = func(_ context.Context, w io.Writer) error {
		_, err := w.Write(file)
		return err
	}
	res, err := http.Get(n.url + "/admin/kv/export?id=" + someBlock)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Equal(data, file) {
		t.Errorf("%d bytes of %d, %v", len(data), len(file), err)
	}
	if name := res.Header.Get("Content-Disposition"); !strings.Contains(name, "tandem-0123456789ab.kv") {
		t.Errorf("file name: %s", name)
	}
	if got := res.Trailer.Get("X-Tandem-KV-Result"); got != `{"blocks":1}` {
		t.Errorf("trailer %q", got)
	}
	n.kv.export = func(context.Context, io.Writer) error { return &Error{Status: 404, Message: "no such block"} }
	if r := n.do("GET", "/admin/kv/export", ""); r.status != 404 || r.header.Get("Content-Disposition") != "" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("an export that is refused: %d %v %s", r.status, r.header, r.body)
	}
}

// An export that breaks off must not look like a whole file.
func TestKVExportThatFailsMidwayBreaksOff(t *testing.T) {
	n := start(t, Config{})
	n.kv.export = func(_ context.Context, w io.Writer) error {
		_, _ = io.WriteString(w, "half of ")
		return errors.New("the disk is gone")
	}
	res, err := http.Get(n.url + "/admin/kv/export")
	if err == nil {
		defer res.Body.Close()
		_, err = io.ReadAll(res.Body)
	}
	if err == nil {
		t.Error("the client saw the end of a file")
	}
	if n.Panics() != 0 {
		t.Errorf("%d panics were counted", n.Panics())
	}
}

// A client that leaves ends the work.
func TestKVWorkEndsWithItsClient(t *testing.T) {
	for name, head := range map[string]string{
		"verify": "POST /admin/kv/verify HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
		"export": "GET /admin/kv/export HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"import": "POST /admin/kv/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nbegins",
	} {
		n := start(t, Config{})
		begun, ended := make(chan struct{}), make(chan error, 1)
		wait := func(ctx context.Context) error {
			close(begun)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return context.Cause(ctx)
		}
		n.kv.verify = func(ctx context.Context) (any, error) { return nil, wait(ctx) }
		n.kv.export = func(ctx context.Context, _ io.Writer) error { return wait(ctx) }
		n.kv.imports = func(_ context.Context, r io.Reader) (any, error) {
			close(begun)
			_, err := io.Copy(io.Discard, r)
			ended <- err
			return nil, err
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		<-begun
		conn.Close()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s ended by itself", name)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s goes on without its client", name)
		}
	}
}

// What an import may read is bounded, and read as it comes.
func TestKVImportIsBounded(t *testing.T) {
	n := start(t, Config{})
	got := n.raw("POST /admin/kv/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000000000\r\n\r\n")
	if len(got) == 0 || got[0] != http.StatusRequestEntityTooLarge {
		t.Errorf("two terabytes: %v", got)
	}
	n.kv.imports = func(_ context.Context, r io.Reader) (any, error) {
		_, err := io.ReadFull(r, make([]byte, 4)) // and no more, as after a damaged block
		if err == nil {
			err = BadRequest("", "damaged")
		}
		return nil, err
	}
	if r := n.post("/admin/kv/import", strings.Repeat("x", 10<<20)); r.status != 400 || !strings.Contains(r.body, "damaged") {
		t.Errorf("%d %s", r.status, r.body)
	}
	n.kv.imports = func(_ context.Context, r io.Reader) (any, error) {
		_, err := io.Copy(io.Discard, r)
		return map[string]int{}, err
	}
	for _, size := range []int{0, 1, 1 << 20} {
		if r := n.post("/admin/kv/import", strings.Repeat("x", size)); r.status != 200 {
			t.Errorf("%d bytes: %d %s", size, r.status, r.body)
		}
	}
}
