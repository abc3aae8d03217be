package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// kvNode plays the routes under /admin/kv of a node and remembers what was asked.
type kvNode struct {
	*httptest.Server
	answers map[string]string // by path; a body, for which the status is 200 unless it has an error
	cut     bool              // exports break off

	mu    sync.Mutex
	asked []string
}

const (
	firstID  = "aaaa1111222233334444555566667777"
	lastID   = "aaaa9999888877776666555544443333"
	otherID  = "aabb0000000000000000000000000001"
	zeroID   = "00000000000000000000000000000000"
	theState = `{"enabled":true,"ram":{"bytes":2097152,"budget":1073741824},"disk":{"bytes":1048576,"budget":2147483648},"queue":{"blocks":2},
		"tokens_spared":12345,"seconds_spared":75.5,"checks":{"every":10,"done":9,"different":1,"largest_difference":0.5},"models":[{"name":"mamba","loaded":true,"kept":false,"reason":"recurrent layers"},{"name":"m","loaded":true,"kept":true}]}`
)

func prefixJSON(id, first, words string) string {
	quoted, _ := json.Marshal(words)
	return fmt.Sprintf(`{"id":%q,"first":%q,"parent":%q,"root":%q,"start":64,"tokens":256,"blocks":4,"ram_blocks":4,"ram_bytes":4096,"uses":7,
		"last_use":"0001-01-01T00:00:00Z","tokens_spared":512,"pinned":true,"model":"m","words":%s}`, id, first, zeroID, zeroID, quoted)
}

func startKVNode(t *testing.T) *kvNode {
	t.Helper()
	n := &kvNode{answers: map[string]string{
		"/admin/kv": theState,
		"/admin/kv/prefixes": `{"total":3,"prefixes":[` + prefixJSON(lastID, firstID, "You are a \u001b[31mhelpful") + `,` +
			prefixJSON(otherID, otherID, "") + `]}`,
		"/admin/kv/pin":     `{"pinned":true}`,
		"/admin/kv/unpin":   `{"pinned":false}`,
		"/admin/kv/evict":   `{"ram_blocks":4,"ram_bytes":4096,"disk_blocks":1,"disk_bytes":1024,"kept":2}`,
		"/admin/kv/verify":  `{"ram_blocks":4,"disk_blocks":5,"bytes":9216,"damaged":1,"unknown":3}`,
		"/admin/kv/import":  `{"blocks":4,"bytes":4096,"held":1,"unknown":2,"damaged":1}`,
		"/admin/kv/compare": `{"model":"m","prompt_tokens":300,"restored_tokens":256,"positions":32,"largest_difference":0.00125,"different_at":-1,"equal_text":true,"cold_seconds":1.5,"restored_seconds":0.0125}`,
	}}
	n.Server = httptest.NewServer(n)
	t.Cleanup(n.Close)
	return n
}

func (n *kvNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	n.mu.Lock()
	n.asked = append(n.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	n.mu.Unlock()
	if r.URL.Path == "/admin/kv/export" {
		w.Header().Set("Trailer", "X-Tandem-KV-Result")
		_, _ = io.WriteString(w, "the file")
		if n.cut {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("X-Tandem-KV-Result", `{"blocks":4,"bytes":4096,"skipped":1}`)
		return
	}
	answer := n.answers[r.URL.Path]
	if strings.Contains(answer, `"error"`) || answer == "" {
		w.WriteHeader(http.StatusBadRequest)
	}
	_, _ = io.WriteString(w, answer)
}

// run executes a command line against the node.
func (n *kvNode) run(t *testing.T, args ...string) (code int, out, errs string, asked string) {
	t.Helper()
	n.asked = nil
	code, out, errs = run(t, []string{"NODE_LISTEN=" + strings.TrimPrefix(n.URL, "http://")}, args...)
	n.mu.Lock()
	defer n.mu.Unlock()
	return code, out, errs, strings.Join(n.asked, "; ")
}

func TestKVCommands(t *testing.T) {
	n := startKVNode(t)
	file := filepath.Join(t.TempDir(), "blocks.kv")
	if err := os.WriteFile(file, []byte("blocks"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args  []string
		asked string   // the last request
		says  []string // on standard output
	}{
		{[]string{"kv", "ls"}, "GET /admin/kv/prefixes?limit=50", []string{"memory: 2.0 MiB of 1.0 GiB; disk: 1.0 MiB of 2.0 GiB; 2 blocks wait", "12,345 tokens, about 1m16s",
			"9 restored prompts, of which 1 had another text; largest difference 0.5", "nothing of mamba is kept: recurrent layers", "aaaa99998888", "pinned", "You are a [31mhelpful", "and 1 more"}},
		{[]string{"kv", "ls", "--limit", "5"}, "GET /admin/kv/prefixes?limit=5", nil},
		{[]string{"kv", "pin", "aaaa9"}, `POST /admin/kv/pin {"id":"` + lastID + `"}`, []string{"pinned: " + lastID}},
		{[]string{"kv", "unpin", "AABB"}, `POST /admin/kv/unpin {"id":"` + otherID + `"}`, []string{"unpinned: " + otherID}},
		{[]string{"kv", "unpin", strings.Repeat("c", 32)}, `POST /admin/kv/unpin {"id":"` + strings.Repeat("c", 32) + `"}`, nil},
		{[]string{"kv", "evict", "aaaa9"}, `POST /admin/kv/evict {"id":"` + firstID + `"}`, []string{"evicted: 4 blocks (4.0 KiB) from memory, 1 (1.0 KiB) from disk", "2 blocks stay"}},
		{[]string{"kv", "evict", "aaaa9", "aabb"}, `POST /admin/kv/evict {"id":"` + otherID + `"}`, []string{"evicted: 8 blocks", "4 blocks stay"}},
		{[]string{"kv", "evict", "--all"}, `POST /admin/kv/evict {"all":true}`, []string{"evicted: 4 blocks"}},
		{[]string{"kv", "verify"}, `POST /admin/kv/verify {}`, []string{"4 blocks in memory, 5 on disk, 9.0 KiB; 1 damaged", "3 blocks belong to models"}},
		{[]string{"kv", "import", file}, `POST /admin/kv/import blocks`, []string{"imported: 4 blocks, 4.0 KiB; 1 were held", "2 blocks were passed over: they belong to models", "another --secret"}},
		{[]string{"verify-kv", "--model", "m", "--tokens", "300"}, `POST /admin/kv/compare {"model":"m","tokens":300}`,
			[]string{"300 tokens, of which 256 were restored", "1500.0 ms cold, 12.5 ms restored", "0.001250 of a log-probability", "equal, token for token"}},
		{[]string{"verify-kv"}, `POST /admin/kv/compare {}`, nil},
	} {
		code, out, errs, asked := n.run(t, tt.args...)
		if code != 0 || !strings.HasSuffix(asked, tt.asked) {
			t.Errorf("%v: status %d, asked %q, %s", tt.args, code, asked, errs)
		}
		for _, words := range tt.says {
			if !strings.Contains(out, words) {
				t.Errorf("%v: no %q in\n%s", tt.args, words, out)
			}
		}
		if strings.ContainsRune(out, '\x1b') {
			t.Errorf("%v: words of a prompt reach the terminal as they are: %q", tt.args, out)
		}
		args := append(tt.args, "--json")
		if code, out, errs, _ = n.run(t, args...); code != 0 || !json.Valid([]byte(out)) {
			t.Errorf("%v: status %d, %s, %s", args, code, out, errs)
		}
	}
}

func TestKVExport(t *testing.T) {
	n := startKVNode(t)
	file := filepath.Join(t.TempDir(), "blocks.kv")
	code, out, errs, asked := n.run(t, "kv", "export", file, "aaaa9")
	data, _ := os.ReadFile(file)
	if code != 0 || string(data) != "the file" || !strings.Contains(asked, "GET /admin/kv/export?id="+firstID) {
		t.Errorf("status %d, file %q, asked %q, %s", code, data, asked, errs)
	}
	if !strings.Contains(out, "exported: 4 blocks, 4.0 KiB") || !strings.Contains(out, "1 blocks were passed over") {
		t.Errorf("output %q", out)
	}
	if code, out, errs, _ = n.run(t, "kv", "export", "-", "--json"); code != 0 || out != "the file" || !strings.Contains(errs, `"blocks": 4`) {
		t.Errorf("to standard output: status %d, %q, %q", code, out, errs)
	}
	// What broke off leaves neither a file nor a piece of one, and not the old file's end.
	n.cut = true
	code, _, errs, _ = n.run(t, "kv", "export", file)
	if data, _ := os.ReadFile(file); code != 1 || string(data) != "the file" || !strings.Contains(errs, "broke off") {
		t.Errorf("status %d, file %q, %s", code, data, errs)
	}
	if left, _ := filepath.Glob(file + "?*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestKVFaultsSayWhatToDo(t *testing.T) {
	n := startKVNode(t)
	n.answers["/admin/kv/import"] = `{"error":{"message":"this is not a file that export wrote"}}`
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"kv", "dance"}, 2, "--help"},
		{[]string{"kv", "pin"}, 2, "ids of prefixes, from `kv ls`"},
		{[]string{"kv", "evict"}, 2, "--all"},
		{[]string{"kv", "evict", "--all", "aaaa9"}, 2, "not both"},
		{[]string{"kv", "ls", "--limit", "0"}, 2, "1 to 10000"},
		{[]string{"kv", "pin", "ffff"}, 1, "`kv ls` lists them"},
		{[]string{"kv", "pin", "aa"}, 1, "give more digits"},
		{[]string{"kv", "export"}, 2, "a file"},
		{[]string{"kv", "export", "/does/not/exist/x"}, 1, "/does/not/exist"},
		{[]string{"kv", "import", "/does/not/exist"}, 1, "/does/not/exist"},
		{[]string{"kv", "import", "kv_test.go"}, 1, "not a file that export wrote"},
		{[]string{"verify-kv", "--model", "a", "--model", "b"}, 2, "one model"},
		{[]string{"verify-kv", "--tokens", "many"}, 2, "--tokens"},
	} {
		if code, _, errs, _ := n.run(t, tt.args...); code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%v: status %d, %q does not say %q", tt.args, code, errs, tt.says)
		}
	}
	n.answers["/admin/kv"] = `{"enabled":false,"reason":"--kv-ram is 0"}`
	if code, out, _, asked := n.run(t, "kv", "ls"); code != 0 || !strings.Contains(out, "nothing is kept: --kv-ram is 0") || asked != "GET /admin/kv" {
		t.Errorf("status %d, %q, asked %q", code, out, asked)
	}
	n.answers["/admin/kv/compare"] = `{"equal_text":false,"different_at":3,"margin":0.5,"cold_text":"a\n","restored_text":"b"}`
	if code, out, errs, _ := n.run(t, "verify-kv"); code != 1 || !strings.Contains(out, "differs from token 4 on, where the cold one led by 0.5") || !strings.Contains(errs, "the texts differ") {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
	if code, _, errs := run(t, nil, "kv", "ls"); code != 1 || !strings.Contains(errs, "start one") {
		t.Errorf("without a node: status %d, %q", code, errs)
	}
}
