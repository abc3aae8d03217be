// Package nodetest runs whole nodes inside a test: built with the same node.New
// as the product, on loopback, with data folders of their own. What differs goes
// in through node.Config: a port of the system's choice and a fake engine whose
// answer depends on every KV row.
package nodetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine"
	"tandem/node/engine/enginetest"
	"tandem/node/engine/llama"
	"tandem/node/models/gguf/gguftest"
)

// Model is the name of the model that every node of this package serves.
const Model = "tiny"

// Patience bounds every wait of a test. It is far longer than anything takes, so
// that only a hang reaches it, also on a busy machine.
const Patience = 60 * time.Second

// Node is a running node.
type Node struct {
	*node.Node
	URL  string
	Dir  string
	Name string

	model   string // that it serves
	t       testing.TB
	stop    context.CancelFunc
	ended   chan error
	mu      sync.Mutex
	engines []*enginetest.Backend
}

// Start runs a node with a fake engine until the test ends. change, if it is not
// nil, alters the configuration.
func Start(t testing.TB, o enginetest.Options, change func(*node.Config)) *Node {
	t.Helper()
	n := &Node{t: t, Dir: t.TempDir(), ended: make(chan error, 1)}
	c := Config(t, n.Dir)
	c.LoadBackend = func(_ context.Context, lo llama.Options) (engine.Backend, error) {
		with := o
		with.Context, with.Sequences = lo.Context, lo.Sequences
		with.Pooled = lo.Embeddings
		with.ChatTemplate = gguftest.ChatML
		b := enginetest.New(with)
		n.mu.Lock()
		n.engines = append(n.engines, b)
		n.mu.Unlock()
		return b, nil
	}
	c.OpenReader = func(string) (node.VocabReader, error) { return reader{}, nil }
	if change != nil {
		change(&c)
	}
	n.Name, n.model = c.Name, node.ModelName(c.Models[0])
	built, err := node.New(c)
	if err != nil {
		t.Fatal(err)
	}
	n.Node = built
	ctx, stop := context.WithCancel(context.Background())
	n.stop = stop
	go func() { n.ended <- built.Run(ctx) }()
	t.Cleanup(n.Close)
	select {
	case <-built.Listening():
	case err := <-n.ended:
		n.ended <- err
		t.Fatal(err)
	}
	n.URL = "http://" + built.Addr()
	wait, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := built.WaitReady(wait); err != nil {
		t.Fatal(err)
	}
	return n
}

// Config is the configuration of a test node: the defaults, a small model file and
// free ports.
func Config(t testing.TB, dir string) node.Config {
	t.Helper()
	model := filepath.Join(dir, Model+".gguf")
	if err := gguftest.Llama().WriteFile(model); err != nil {
		t.Fatal(err)
	}
	c, _, err := node.LoadConfig(node.Sources{Flags: map[string][]string{
		"data-dir": {filepath.Join(dir, "data")}, "listen": {"127.0.0.1:0"}, "gossip": {"127.0.0.1:0"}, "peer": {"127.0.0.1:0"},
		"model": {model}, "ctx": {"1024"}, "kv-ram": {"16MiB"}, "kv-disk": {"0"}, "self-bench": {"off"}, "planner": {"off"}, "name": {"n1"}, "log-level": {"error"}}})
	if err != nil {
		t.Fatal(err)
	}
	c.LogOutput, c.Heartbeat = testLog{t}, 200*time.Millisecond
	return c
}

// StartCluster runs nodes n1, n2, ... that have joined each other and know what the
// others have. change, if it is not nil, alters the configuration of the node with a
// number, from 0 on.
func StartCluster(t testing.TB, nodes int, o enginetest.Options, change func(i int, c *node.Config)) []*Node {
	t.Helper()
	var all []*Node
	for i := range nodes {
		all = append(all, Start(t, o, func(c *node.Config) {
			c.Name, c.Secret = fmt.Sprintf("n%d", i+1), "the secret of the tests"
			if i > 0 {
				c.Join = []string{all[0].GossipAddr()}
			}
			if change != nil {
				change(i, c)
			}
		}))
	}
	for _, n := range all {
		n.Until("it knows all nodes", func(s node.Status) bool {
			same, known := 0, 0
			for _, o := range all {
				if o != n && o.model == n.model {
					same++
				}
			}
			if n.Holders(n.model) < same {
				return false // files are the same only if their digests are known
			}
			for _, m := range s.Cluster.Members {
				if m.State == "ready" && len(m.Models) > 1 {
					known++
				}
			}
			return known == nodes && s.Cluster.Quorum && len(s.Cluster.Voters) == min(nodes, 5)
		})
	}
	return all
}

// reader is the vocabulary of the fake engine.
type reader struct{}

func (reader) Vocab() engine.Vocab  { return enginetest.Vocab{} }
func (reader) ChatTemplate() string { return gguftest.ChatML }
func (reader) ContextTrain() int    { return 0 }
func (reader) Pooled() bool         { return false }
func (reader) Close()               {}

// Stop tells the node to end, as SIGTERM does, and returns at once.
func (n *Node) Stop() { n.stop() }

// Wait waits until Run has returned.
func (n *Node) Wait() error {
	select {
	case err := <-n.ended:
		n.ended <- err
		return err
	case <-time.After(Patience):
		n.t.Error("the node did not end")
		return context.DeadlineExceeded
	}
}

// Close ends the node and reports what its engines saw go wrong.
func (n *Node) Close() {
	n.stop()
	if err := n.Wait(); err != nil {
		n.t.Errorf("run: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.engines {
		if err := b.Faults(); err != nil {
			n.t.Errorf("engine: %v", err)
		}
	}
}

// Post sends a JSON body and returns status, head and body of the answer.
func (n *Node) Post(path, body string) (int, http.Header, string) {
	n.t.Helper()
	return n.do(http.MethodPost, path, "", body)
}

// PostAs is Post with an API key.
func (n *Node) PostAs(key, path, body string) (int, string) {
	n.t.Helper()
	status, _, data := n.do(http.MethodPost, path, key, body)
	return status, data
}

// Get fetches a page.
func (n *Node) Get(path string) (int, string) {
	n.t.Helper()
	status, _, data := n.do(http.MethodGet, path, "", "")
	return status, data
}

func (n *Node) do(method, path, key, body string) (int, http.Header, string) {
	n.t.Helper()
	req, err := http.NewRequest(method, n.URL+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

// Until waits for a condition on the node's status.
func (n *Node) Until(what string, holds func(node.Status) bool) {
	n.t.Helper()
	deadline := time.Now().Add(Patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !holds(n.Status(context.Background()).(node.Status)) {
		if time.Now().After(deadline) {
			n.t.Fatalf("waited %v for: %s; status %+v", Patience, what, n.Status(context.Background()))
		}
		<-tick.C
	}
}

// AtRest waits until no request holds anything.
func (n *Node) AtRest() {
	n.t.Helper()
	n.Until("no request holds anything", func(s node.Status) bool {
		return s.Requests.Running == 0 && s.Requests.Queued == 0 && s.OpenStreams == 0 && s.KV.BlocksHeld == 0
	})
}

// testLog writes the node's log to the test's.
type testLog struct{ t testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}
