package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tandem/node"
	"tandem/node/engine"
	"tandem/node/engine/enginetest"
	"tandem/node/engine/llama"
	"tandem/node/nodetest"
)

// kvGet fetches and decodes what a route under /admin/kv answers.
func kvGet[T any](t *testing.T, n *nodetest.Node, path string) (v T) {
	t.Helper()
	status, body := n.Get(path)
	if status != 200 {
		t.Fatalf("GET %s: %d %s", path, status, body)
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("GET %s: %v: %s", path, err, body)
	}
	return v
}

// kvPost sends a body and decodes the answer, whose status must be as wanted.
func kvPost[T any](t *testing.T, n *nodetest.Node, path, body string, want int) (v T) {
	t.Helper()
	status, _, data := n.Post(path, body)
	if status != want {
		t.Fatalf("POST %s %s: %d %s", path, body, status, data)
	}
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("POST %s: %v: %s", path, err, data)
	}
	return v
}

// filled is a node that keeps one prefix of 300 tokens or a little more.
func filled(t *testing.T, change func(*node.Config)) *nodetest.Node {
	t.Helper()
	n := nodetest.Start(t, enginetest.Options{}, change)
	keeps(n)
	a, _ := ask(t, n, essay(300, ""), 200)
	stored(n, a.Usage.PromptTokens/64)
	return n
}

func TestKVAdminShowsPinsAndEvicts(t *testing.T) {
	n := filled(t, nil)
	list := kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes")
	if list.Total != 1 || len(list.Prefixes) != 1 {
		t.Fatalf("prefixes %+v", list)
	}
	p := list.Prefixes[0]
	if p.Model != nodetest.Model || p.Tokens < 256 || p.RAMBlocks < 4 || p.RAMBytes == 0 || p.Pinned || p.Words != "user an essay." {
		t.Errorf("prefix %+v", p)
	}
	body := fmt.Sprintf(`{"id":%q}`, p.ID)
	kvPost[map[string]any](t, n, "/admin/kv/pin", body, 200)
	if p := kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes").Prefixes[0]; !p.Pinned {
		t.Errorf("not pinned: %+v", p)
	}
	first := fmt.Sprintf(`{"id":%q}`, p.First)
	if e := kvPost[node.KVEvicted](t, n, "/admin/kv/evict", first, 200); e.RAMBlocks != 0 || e.Kept != p.RAMBlocks {
		t.Errorf("evicted though pinned: %+v", e)
	}
	kvPost[map[string]any](t, n, "/admin/kv/unpin", body, 200)
	if e := kvPost[node.KVEvicted](t, n, "/admin/kv/evict", first, 200); e.RAMBlocks != p.RAMBlocks || e.RAMBytes != p.RAMBytes {
		t.Errorf("evicted %+v of %+v", e, p)
	}
	if s := kvGet[node.KVState](t, n, "/admin/kv"); s.RAM.Blocks != 0 || s.RAM.Bytes != 0 {
		t.Errorf("state %+v", s)
	}
	for path, request := range map[string]string{"/admin/kv/pin": body, "/admin/kv/unpin": body, "/admin/kv/evict": first} {
		if fault := kvPost[answer](t, n, path, request, 404); fault.Error.Code != "block_not_found" || !strings.Contains(fault.Error.Message, "kv ls") {
			t.Errorf("%s: %+v", path, fault.Error)
		}
	}
}

func TestKVAdminTellsWhatWasSpared(t *testing.T) {
	n := filled(t, func(c *node.Config) { c.Parallel = 1 })
	ask(t, n, chat("something else that takes the only place of the engine", `,"max_tokens":2`), 200)
	again, _ := ask(t, n, essay(300, ""), 200)
	s := kvGet[node.KVState](t, n, "/admin/kv")
	if !s.Enabled || s.TokensSpared < 256 || s.SecondsSpared <= 0 || s.RAM.Hits < 4 || s.RAM.Budget != 16<<20 {
		t.Errorf("state %+v after %+v", s, again.Usage)
	}
	if len(s.Models) != 1 {
		t.Fatalf("models %+v", s.Models)
	}
	if m := s.Models[0]; m.Name != nodetest.Model || !m.Loaded || !m.Kept || m.BlockTokens != 64 || m.TokensSpared != s.TokensSpared || m.SecondsPerToken <= 0 {
		t.Errorf("model %+v", m)
	}
	list := kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes")
	used := slices.IndexFunc(list.Prefixes, func(p node.KVPrefix) bool { return p.TokensSpared > 0 })
	if used < 0 || list.Prefixes[used].TokensSpared != s.TokensSpared || list.Prefixes[used].Uses < 2 || list.Prefixes[used].LastUse.IsZero() {
		t.Errorf("prefixes %+v", list.Prefixes)
	}
	if one := kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes?limit=1"); len(one.Prefixes) != 1 || one.Total != 2 {
		t.Errorf("prefixes, limited to one: %+v", one)
	}
	// What an unloaded model spared is still told.
	if status, _, body := n.Post("/api/generate", `{"model":"`+nodetest.Model+`","keep_alive":0}`); status != 200 {
		t.Fatalf("unload: %d %s", status, body)
	}
	n.Until("the model is unloaded", func(s node.Status) bool { return len(s.Models) == 0 })
	after := kvGet[node.KVState](t, n, "/admin/kv")
	if len(after.Models) != 1 || after.Models[0].Loaded || after.Models[0].TokensSpared != s.TokensSpared || after.SecondsSpared != s.SecondsSpared {
		t.Errorf("state %+v", after)
	}
}

// With keys, what is shown of a prefix is whose it is, never what it says.
func TestKVAdminShowsNoWordsOfTenants(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) { c.APIKeys = []string{"ann=secret-of-ann", "bob=secret-of-bob"} })
	keeps(n)
	if status, body := n.PostAs("secret-of-ann", "/v1/chat/completions", essay(300, "")); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	stored(n, 4)
	req, err := http.NewRequest(http.MethodGet, n.URL+"/admin/kv/prefixes", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret-of-bob")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var list node.KVPrefixes
	if err := json.Unmarshal(data, &list); err != nil || len(list.Prefixes) != 1 {
		t.Fatalf("%v: %s", err, data)
	}
	if p := list.Prefixes[0]; p.Key != "ann" || p.Model != nodetest.Model || p.Words != "" || bytes.Contains(data, []byte("essay")) {
		t.Errorf("prefix %+v in %s", p, data)
	}
	if status, _ := n.Get("/admin/kv"); status != 401 {
		t.Errorf("without a key: %d", status)
	}
}

func TestKVAdminMovesBlocksBetweenStores(t *testing.T) {
	n := filled(t, nil)
	first := kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes").Prefixes[0]
	res, err := http.Get(n.URL + "/admin/kv/export")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	file, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var exported node.KVExported
	if err := json.Unmarshal([]byte(res.Trailer.Get("X-Tandem-KV-Result")), &exported); err != nil || exported.Blocks != first.Blocks || exported.Bytes != first.RAMBytes {
		t.Errorf("exported %+v, %v", exported, err)
	}
	if v := kvPost[node.KVVerified](t, n, "/admin/kv/verify", "", 200); v.RAMBlocks != first.Blocks || v.Damaged != 0 {
		t.Errorf("verified %+v", v)
	}
	if again := kvPost[node.KVImported](t, n, "/admin/kv/import", string(file), 200); again.Held != exported.Blocks {
		t.Errorf("what is held was imported: %+v", again)
	}
	kvPost[node.KVEvicted](t, n, "/admin/kv/evict", `{"all":true}`, 200)
	if in := kvPost[node.KVImported](t, n, "/admin/kv/import", string(file), 200); in.Blocks != exported.Blocks || in.Damaged+in.Orphans+in.Unknown > 0 {
		t.Errorf("imported %+v", in)
	}
	if list := kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes"); len(list.Prefixes) != 1 || list.Prefixes[0].ID != first.ID || list.Prefixes[0].Model != nodetest.Model {
		t.Errorf("prefixes %+v", list)
	}
	for name, bad := range map[string]string{"rubbish": "no file of blocks", "cut": string(file[:len(file)/2]), "empty": "", "turned": string(file[:100]) + "!" + string(file[101:])} {
		kvPost[node.KVEvicted](t, n, "/admin/kv/evict", `{"all":true}`, 200)
		status, _, body := n.Post("/admin/kv/import", bad)
		if name == "turned" && status == 200 {
			continue // one byte of a payload or a header: the block did not verify
		}
		if status != 400 || !strings.Contains(body, "message") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

func TestKVAdminWithoutAStore(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) { c.KVRAM = 0 })
	n.Until("the reason is known", func(s node.Status) bool { return len(s.Models) > 0 && s.Models[0].KVReason == "--kv-ram is 0" })
	s := kvGet[node.KVState](t, n, "/admin/kv")
	if s.Enabled || s.Reason == "" || len(s.Models) != 1 || s.Models[0].Kept || s.Models[0].Reason != "--kv-ram is 0" {
		t.Errorf("state %+v", s)
	}
	id := `{"id":"` + strings.Repeat("ab", 16) + `"}`
	for path, body := range map[string]string{"pin": id, "unpin": id, "evict": id, "verify": "", "compare": "", "import": "x"} {
		if fault := kvPost[answer](t, n, "/admin/kv/"+path, body, 409); !strings.Contains(fault.Error.Message, "--kv-ram") {
			t.Errorf("%s: %+v", path, fault.Error)
		}
	}
	for _, path := range []string{"prefixes", "export"} {
		if status, body := n.Get("/admin/kv/" + path); status != 409 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestKVCompare(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, nil)
	c := kvPost[node.KVComparison](t, n, "/admin/kv/compare", `{"tokens":300,"generate":12}`, 200)
	if c.Model != nodetest.Model || c.PromptTokens != 300 || c.RestoredTokens != 256 || c.Positions != 12 {
		t.Errorf("comparison %+v", c)
	}
	if !c.EqualText || c.LargestDifference != 0 || c.DifferentAt != -1 || c.ColdText == "" || c.ColdText != c.RestoredText {
		t.Errorf("the fake engine depends on every row, and yet: %+v", c)
	}
	// It leaves nothing, and counts for nothing.
	n.AtRest()
	if s := kvGet[node.KVState](t, n, "/admin/kv"); s.RAM.Blocks != 0 || s.TokensSpared != 0 || s.Models[0].TokensSpared != 0 {
		t.Errorf("state %+v", s)
	}
	for body, words := range map[string]string{
		`{"tokens":5000}`:         "do not fit into the context of 1024",
		`{"tokens":64}`:           "allowed: 65 to 992",
		`{"model":"nobody"}`:      "not on this node",
		`{"tokens":1024}`:         "allowed: up to 992",
		`{"model":"tandem-tiny:"`: "valid JSON",
	} {
		status, _, data := n.Post("/admin/kv/compare", body)
		if status < 400 || status > 404 || !strings.Contains(data, words) {
			t.Errorf("%s: %d %s", body, status, data)
		}
	}
}

// spoilt is a model that restores other rows than it was given.
type spoilt struct{ engine.Backend }

func (b spoilt) Import(seq engine.SeqID, from int, blocks []engine.Rows) error {
	var wrong []engine.Rows
	for _, r := range blocks {
		data := bytes.Clone(r.Data)
		data[len(data)-8] ^= 1
		wrong = append(wrong, engine.Rows{Tokens: r.Tokens, Data: data})
	}
	return b.Backend.Import(seq, from, wrong)
}

func TestKVCompareSeesWrongRows(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) {
		// Not nodetest's own: it would report that the rows are wrong, which they are.
		c.LoadBackend = func(_ context.Context, o llama.Options) (engine.Backend, error) {
			return spoilt{enginetest.New(enginetest.Options{Context: o.Context, Sequences: o.Sequences})}, nil
		}
	})
	c := kvPost[node.KVComparison](t, n, "/admin/kv/compare", `{"tokens":300}`, 200)
	if c.RestoredTokens != 256 || c.EqualText || c.LargestDifference == 0 {
		t.Errorf("comparison %+v", c)
	}
}

// What goes on from a prefix is known by its own words, not by those it shares.
func TestKVAdminTellsBranchesApart(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, nil)
	keeps(n)
	for _, end := range []string{"apples", "bells"} {
		ask(t, n, essay(300, strings.Repeat(end+" ", 40)), 200)
	}
	n.Until("both are kept", func(s node.Status) bool { return s.KV.RAM.Blocks >= 10 })
	words := map[bool]string{}
	for _, p := range kvGet[node.KVPrefixes](t, n, "/admin/kv/prefixes").Prefixes {
		words[p.Start > 0] += p.Words + ";"
	}
	if words[false] != "user an essay.;" || !strings.Contains(words[true], "apples") || !strings.Contains(words[true], "bells") {
		t.Errorf("words %v", words)
	}
}
