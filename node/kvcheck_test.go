package node_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine"
	"tandem/node/engine/enginetest"
	"tandem/node/engine/llama"
	"tandem/node/nodetest"
)

// slow is a model whose tokens cost enough for its engine to restore every time.
var slow = enginetest.Options{TokenTime: 100 * time.Microsecond}

// restoredOnce makes a node restore a prompt whose resident rows were lost.
func restoredOnce(t *testing.T, n *nodetest.Node) {
	t.Helper()
	keeps(n)
	a, _ := ask(t, n, essay(300, ""), 200)
	stored(n, a.Usage.PromptTokens/64)
	ask(t, n, chat("something else that takes the only place of the engine", `,"max_tokens":2`), 200)
	ask(t, n, essay(300, ""), 200)
	n.Until("a prompt was restored", func(s node.Status) bool { return s.KV.TokensSpared > 0 })
}

func TestKVCheckComparesWhatWasRestored(t *testing.T) {
	n := nodetest.Start(t, slow, func(c *node.Config) { c.Parallel, c.KVCheck = 1, 1 })
	restoredOnce(t, n)
	n.Until("it was checked", func(node.Status) bool { return kvGet[node.KVState](t, n, "/admin/kv").Checks.Done > 0 })
	n.AtRest()
	s := kvGet[node.KVState](t, n, "/admin/kv")
	if c := s.Checks; c.Every != 1 || c.Different != 0 || c.LargestDifference != 0 {
		t.Errorf("checks %+v", c)
	}
	if s.TokensSpared != s.Models[0].TokensSpared || s.RAM.Blocks < 4 {
		t.Errorf("the check counts as use, or took the blocks away: %+v", s)
	}
	if _, metrics := n.Get("/metrics"); !strings.Contains(metrics, `tandem_kv_checks_total{result="equal"} 1`) {
		t.Error("no check in the metrics")
	}
}

func TestKVCheckSeesWrongRows(t *testing.T) {
	n := nodetest.Start(t, slow, func(c *node.Config) {
		c.Parallel, c.KVCheck = 1, 1
		c.LogLevel = "error"
		c.LoadBackend = func(_ context.Context, o llama.Options) (engine.Backend, error) {
			return spoilt{enginetest.New(enginetest.Options{Context: o.Context, Sequences: o.Sequences, TokenTime: slow.TokenTime})}, nil
		}
	})
	restoredOnce(t, n)
	n.Until("the difference was seen", func(node.Status) bool { return kvGet[node.KVState](t, n, "/admin/kv").Checks.Different > 0 })
	if c := kvGet[node.KVState](t, n, "/admin/kv").Checks; c.LargestDifference == 0 {
		t.Errorf("checks %+v", c)
	}
}

func TestKVCheckTakesEveryNth(t *testing.T) {
	n := nodetest.Start(t, slow, func(c *node.Config) { c.Parallel, c.KVCheck = 1, 1000 })
	restoredOnce(t, n)
	n.AtRest()
	if c := kvGet[node.KVState](t, n, "/admin/kv").Checks; c.Every != 1000 || c.Done != 0 {
		t.Errorf("checks %+v", c)
	}
}
