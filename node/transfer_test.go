package node_test

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// prompted is a long prompt of its own.
func prompted(i int) string {
	return fmt.Sprintf("story %d: %s", i, strings.Repeat(fmt.Sprintf("and then %d ", i), 50+i%20))
}

// counted is the value of a metric with all its labels.
func counted(t *testing.T, n *nodetest.Node, series string) float64 {
	t.Helper()
	_, text := n.Get("/metrics")
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// alone answers prompts on a node that knows no other.
func alone(t *testing.T, prompts []string) []string {
	t.Helper()
	n := nodetest.Start(t, enginetest.Options{}, nil)
	out := make([]string, len(prompts))
	for i, p := range prompts {
		a, _ := ask(t, n, chat(p, `,"max_tokens":30`), 200)
		out[i] = a.Choices[0].Message.Content
	}
	n.Close()
	return out
}

// TestPromptsComputedElsewhere: the answer is the same whoever computes the prompt, and
// however its blocks come, and nothing of it stays anywhere.
func TestPromptsComputedElsewhere(t *testing.T) {
	prompts := make([]string, 24)
	for i := range prompts {
		prompts[i] = prompted(i)
	}
	want := alone(t, prompts)
	for _, shared := range []string{"off", "auto"} {
		t.Run("shared memory "+shared, func(t *testing.T) { computedElsewhere(t, shared, prompts, want) })
	}
}

func computedElsewhere(t *testing.T, shared string, prompts, want []string) {
	// Computing takes a while: what is computed in no time is not waited for.
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{TokenTime: 100 * time.Microsecond}, func(_ int, c *node.Config) {
		c.Disagg, c.KVShared = "always", shared
	})
	if shared == "auto" && runtime.GOOS == "linux" {
		for _, n := range nodes {
			n.Until("memory is shared with the other one", func(s node.Status) bool {
				return len(s.Cluster.Links) == 1 && slices.ContainsFunc(s.Cluster.Links[0].KV, func(w node.BulkWay) bool { return w.Transport == "shm" && w.Used })
			})
		}
	}
	var wg sync.WaitGroup
	for i, p := range prompts {
		wg.Go(func() {
			got, head := ask(t, nodes[i%2], chat(p, `,"max_tokens":30`), 200)
			if got.Choices[0].Message.Content != want[i] {
				t.Errorf("prompt %d, %s: %q, want %q", i, head.Get("X-Tandem-Reason"), got.Choices[0].Message.Content, want[i])
			}
		})
		if i%4 == 3 {
			wg.Wait()
		}
	}
	wg.Wait()
	moved := 0.0
	for _, n := range nodes {
		moved += counted(t, n, `tandem_kv_moves_total{outcome="complete"}`)
		n.AtRest()
	}
	if moved < 20 {
		_, metrics := nodes[0].Get("/metrics")
		t.Errorf("%v complete transfers of 24: %q", moved, regexp.MustCompile(`(?m)^tandem_kv_moves_total.*$`).FindAllString(metrics, -1))
	}
}

// TestKVFetched: what one node has computed, another one does not compute again.
func TestKVFetched(t *testing.T) {
	p := prompted(1)
	want := alone(t, []string{p})
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{TokenTime: 200 * time.Microsecond}, func(_ int, c *node.Config) { c.Disagg = "never" })
	ask(t, nodes[1], chat("warm up, so that it is known how fast this is: "+prompted(2), `,"max_tokens":1`), 200)
	first, head := ask(t, nodes[0], chat(p, `,"max_tokens":30`), 200)
	answered := head.Get("X-Tandem-Node")
	a, b := nodes[0], nodes[1]
	if answered != a.Name {
		a, b = b, a
	}
	b.Until("it knows what the other one has", func(s node.Status) bool {
		return slices.ContainsFunc(s.Cluster.Members, func(m node.Member) bool { return m.ID == a.ID() && m.Blocks >= 9 })
	})
	drain(t, a, b)
	again, head := ask(t, b, chat(p, `,"max_tokens":30`), 200)
	if first.Choices[0].Message.Content != want[0] || again.Choices[0].Message.Content != want[0] {
		t.Errorf("%q and %q, want %q", first.Choices[0].Message.Content, again.Choices[0].Message.Content, want[0])
	}
	if got := head.Get("X-Tandem-Node"); got != b.Name || again.Usage.Details.Cached < 512 {
		t.Errorf("%s answered with %d cached tokens: %s", got, again.Usage.Details.Cached, head.Get("X-Tandem-Reason"))
	}
	if !strings.Contains(head.Get("X-Tandem-Reason"), "tokens come from "+a.Name) {
		t.Errorf("the reason does not name who had the KV: %s", head.Get("X-Tandem-Reason"))
	}
	a.AtRest()
	b.AtRest()
}
