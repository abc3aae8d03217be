package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// told is one event of /admin/cluster/events.
type told struct {
	Time time.Time       `json:"time"`
	Node string          `json:"node"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// watching is a page that follows the cluster at a node.
type watching struct {
	t    *testing.T
	scan *bufio.Scanner
}

func watch(t *testing.T, n *nodetest.Node) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), nodetest.Patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/admin/cluster/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("events: %s", resp.Status)
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 4<<20)
	return &watching{t, scan}
}

// until reads events until one is what is wanted.
func (w *watching) until(what string, wanted func(told) bool) told {
	w.t.Helper()
	for w.scan.Scan() {
		data, ok := strings.CutPrefix(w.scan.Text(), "data: ")
		if !ok {
			continue
		}
		var e told
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			w.t.Fatalf("event %s: %v", data, err)
		}
		if wanted(e) {
			return e
		}
	}
	w.t.Fatalf("the stream ended before: %s: %v", what, w.scan.Err())
	return told{}
}

func (e told) about(id string) bool {
	var d struct{ ID string }
	return json.Unmarshal(e.Data, &d) == nil && d.ID == id
}

// TestPagesSeeAllNodes: what happens on one node is told at another, also what happened
// before the page was opened.
func TestPagesSeeAllNodes(t *testing.T) {
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{}, nil)
	_, head := ask(t, nodes[1], chat("before", `,"max_tokens":3`), 200)
	before := head.Get("X-Tandem-Request-Id")
	page := watch(t, nodes[0])
	hello := page.until("hello", func(told) bool { return true })
	if hello.Kind != "hello" || hello.Node != nodes[0].ID() {
		t.Fatalf("the first event is %+v", hello)
	}
	seen := map[string]bool{}
	page.until("both nodes tell their state, and what was before comes", func(e told) bool {
		if e.Kind == "status" {
			var s node.Status
			if err := json.Unmarshal(e.Data, &s); err != nil || s.Node.ID != e.Node {
				t.Fatalf("status of %s: %s %v", e.Node, e.Data, err)
			}
			seen["status "+e.Node] = true
		}
		if e.Kind == "request_finished" && e.about(before) && e.Node == nodes[1].ID() {
			seen["before"] = true
		}
		return len(seen) == 3
	})
	_, head = ask(t, nodes[1], chat("meanwhile", `,"max_tokens":3`), 200)
	now := head.Get("X-Tandem-Request-Id")
	placed := page.until("a request at the other node is placed", func(e told) bool { return e.Kind == "request_placed" && e.about(now) })
	var scores struct{ Scores []node.PlaceScore }
	if err := json.Unmarshal(placed.Data, &scores); err != nil || len(scores.Scores) != 2 {
		t.Errorf("a placement with a choice of two nodes tells %s", placed.Data)
	}
	var finished node.RequestFinished
	end := page.until("it ends", func(e told) bool { return e.Kind == "request_finished" && e.about(now) })
	if err := json.Unmarshal(end.Data, &finished); err != nil || finished.Prefill <= 0 || finished.Decode <= 0 || finished.Prefill+finished.Decode > finished.Seconds {
		t.Errorf("the times of a request are %s", end.Data)
	}
}

// TestPagesAreBounded: one more page than allowed is refused, and a place is free again
// when a page is closed.
func TestPagesAreBounded(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, nil)
	open := func() (*http.Response, context.CancelFunc) {
		ctx, cancel := context.WithTimeout(context.Background(), nodetest.Patience)
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+"/admin/cluster/events", nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cancel(); resp.Body.Close() })
		return resp, cancel
	}
	var last context.CancelFunc
	for i := range 16 {
		resp, cancel := open()
		if resp.StatusCode != 200 {
			t.Fatalf("page %d: %s", i+1, resp.Status)
		}
		last = cancel
	}
	if resp, _ := open(); resp.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("one page too many: %s", resp.Status)
	}
	last()
	deadline := time.Now().Add(nodetest.Patience)
	for {
		if resp, _ := open(); resp.StatusCode == 200 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the place of a page that was closed is not free again")
		}
	}
}

// TestAdministrationOfOtherNodes: a page drives any node by way of the one that serves
// it.
func TestAdministrationOfOtherNodes(t *testing.T) {
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{}, func(_ int, c *node.Config) { c.Disagg = "never" })
	one, two := nodes[0], nodes[1]
	there := "/admin/nodes/" + two.ID()
	for path, want := range map[string]string{
		there + "/admin/status":                        `"id":"` + two.ID() + `"`,
		"/admin/nodes/self/admin/status":               `"id":"` + one.ID() + `"`,
		"/admin/nodes/" + one.ID() + "/admin/status":   `"id":"` + one.ID() + `"`,
		there + "/v1/models":                           `"memory_bytes"`,
		there + "/admin/kv/prefixes?limit=5":           `"total":`,
		"/admin/cluster/join":                          `"address":"` + one.GossipAddr() + `"`,
		"/admin/nodes/" + two.ID() + "/api/tags?x=../": nodetest.Model,
	} {
		if status, body := one.Get(path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", path, status, body, want)
		}
	}
	for _, refused := range []struct {
		method, path, body string
		status             int
		words              string
	}{
		{"GET", "/admin/nodes/" + strings.Repeat("a", 32) + "/admin/status", "", 404, "not the id of a node"},
		{"GET", "/admin/nodes/n2/admin/status", "", 404, "not the id of a node"},
		{"GET", there + "/metrics", "", 404, "no such route"},
		{"POST", there + "/v1/chat/completions", chat("x", ""), 404, "no such route"},
		{"GET", there + "/admin/nodes/self/admin/status", "", 404, "no such route"},
		{"POST", there + "/admin/status", "", 404, "no such route"},
		{"POST", there + "/admin/kv/pin", `{"id":"5"}`, 400, "32 hexadecimal digits"},
		{"POST", "/admin/cluster/role", `{"role":"boss"}`, 400, "auto, hybrid, prefill, decode"},
		{"POST", "/admin/cluster/role", `{}`, 400, "is needed"},
		{"POST", "/admin/cluster/remove", `{"node":"` + two.ID() + `"}`, 409, "is there"},
		{"POST", "/admin/cluster/remove", `{"node":"x"}`, 404, "not the id of a node"},
		{"POST", "/admin/cluster/join", `{"secret":true}`, 403, "asks for no API key"},
		{"POST", "/admin/models/load", `{"model":"unheard"}`, 404, "unheard"},
		{"POST", "/admin/kv/fetch", `{"from":"x","id":"0123456789abcdef0123456789abcdef"}`, 404, "not the id of a node"},
		{"POST", "/admin/kv/fetch", `{"from":"` + two.ID() + `","id":"0123456789abcdef0123456789abcdef"}`, 404, "no such block"},
	} {
		var status int
		var body string
		if refused.method == "GET" {
			status, body = one.Get(refused.path)
		} else {
			status, _, body = one.Post(refused.path, refused.body)
		}
		if status != refused.status || !strings.Contains(body, refused.words) {
			t.Errorf("%s %s %s: %d %s, want %d %s", refused.method, refused.path, refused.body, status, body, refused.status, refused.words)
		}
	}

	post := func(path, body string) {
		t.Helper()
		if status, _, data := one.Post(path, body); status != 200 {
			t.Fatalf("%s %s: %d %s", path, body, status, data)
		}
	}
	member := func(state, role string) func(node.Status) bool {
		return func(s node.Status) bool {
			return slices.ContainsFunc(s.Cluster.Members, func(m node.Member) bool { return m.ID == two.ID() && m.State == state && m.Role == role })
		}
	}
	post(there+"/admin/cluster/role", `{"role":"prefill"}`)
	one.Until("the other node has another role", member("ready", "prefill"))
	post(there+"/admin/cluster/role", `{"role":"auto"}`)
	post(there+"/admin/cluster/drain", `{"on":true}`)
	one.Until("the other node drains", member("draining", "hybrid"))
	post(there+"/admin/cluster/drain", `{"on":false}`)
	one.Until("it takes requests again", member("ready", "hybrid"))
	post(there+"/admin/models/load", fmt.Sprintf(`{"model":%q,"loaded":false}`, nodetest.Model))
	two.Until("the model is unloaded", func(s node.Status) bool { return len(s.Models) == 0 })
	post(there+"/admin/models/load", fmt.Sprintf(`{"model":%q}`, nodetest.Model))
	two.Until("it is loaded again", func(s node.Status) bool { return len(s.Models) == 1 })
}

// TestPrefixesAreCopied: a node takes over a prefix that only another one holds.
func TestPrefixesAreCopied(t *testing.T) {
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{}, func(_ int, c *node.Config) { c.Disagg = "never" })
	drain(t, nodes[0], nodes[1]) // so that the other one computes it
	ask(t, nodes[0], chat(prompted(1), `,"max_tokens":3`), 200)
	var list node.KVPrefixes
	nodes[1].Until("it keeps the prefix", func(node.Status) bool {
		_, body := nodes[0].Get("/admin/nodes/" + nodes[1].ID() + "/admin/kv/prefixes")
		return json.Unmarshal([]byte(body), &list) == nil && len(list.Prefixes) > 0
	})
	if _, body := nodes[0].Get("/admin/kv/prefixes"); !strings.Contains(body, `"total":0`) {
		t.Fatalf("the first node holds something already: %s", body)
	}
	id := list.Prefixes[0].ID.String()
	status, _, body := nodes[0].Post("/admin/kv/fetch", fmt.Sprintf(`{"from":%q,"id":%q}`, nodes[1].ID(), id))
	var done node.KVImported
	if err := json.Unmarshal([]byte(body), &done); status != 200 || err != nil || done.Blocks == 0 {
		t.Fatalf("fetch: %d %s", status, body)
	}
	if _, body := nodes[0].Get("/admin/kv/prefixes"); !strings.Contains(body, id) {
		t.Errorf("after it was fetched the first node lists %s", body)
	}
}

// TestSecretIsToldToHoldersOfAKey: and to nobody else.
func TestSecretIsToldToHoldersOfAKey(t *testing.T) {
	const key = "a-key-of-the-tests"
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) { c.APIKeys, c.Secret = []string{key}, "the secret of the tests" })
	if status, body := n.PostAs("", "/admin/cluster/join", `{"secret":true}`); status != 401 || strings.Contains(body, "the secret") {
		t.Errorf("without a key: %d %s", status, body)
	}
	if status, body := n.PostAs(key, "/admin/cluster/join", `{}`); status != 200 || strings.Contains(body, "the secret") {
		t.Errorf("not asked for: %d %s", status, body)
	}
	if status, body := n.PostAs(key, "/admin/cluster/join", `{"secret":true}`); status != 200 || !strings.Contains(body, "the secret of the tests") {
		t.Errorf("with a key: %d %s", status, body)
	}
}
