package node_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// keeps waits until the blocks of the test model are kept.
func keeps(n *nodetest.Node) {
	n.Until("blocks are kept", func(s node.Status) bool { return len(s.Models) > 0 && s.Models[0].KVKept })
}

// stored waits until the tier in memory has so many blocks.
func stored(n *nodetest.Node, blocks int) {
	n.Until(fmt.Sprintf("%d blocks in memory", blocks), func(s node.Status) bool { return s.KV.RAM.Blocks >= blocks })
}

// essay is a chat of n bytes or a little more, and so of tokens.
func essay(n int, more string) string {
	return chat(strings.Repeat("an essay. ", n/10)+more, `,"max_tokens":5`)
}

func TestKVOutlivesTheModel(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, nil)
	keeps(n)
	first, _ := ask(t, n, essay(300, ""), 200)
	if first.Usage.Details.Cached != 0 {
		t.Errorf("usage %+v", first.Usage)
	}
	stored(n, first.Usage.PromptTokens/64)
	if status, _, body := n.Post("/api/generate", `{"model":"`+nodetest.Model+`","keep_alive":0}`); status != 200 {
		t.Fatalf("unload: %d %s", status, body)
	}
	n.Until("the model is unloaded", func(s node.Status) bool { return len(s.Models) == 0 })
	ask(t, n, chat("wake up", `,"max_tokens":1`), 200)
	keeps(n)
	again, head := ask(t, n, essay(300, ""), 200)
	if want := (first.Usage.PromptTokens - 1) / 64 * 64; again.Usage.Details.Cached < want {
		t.Errorf("%d of %d tokens cached, want %d or more", again.Usage.Details.Cached, again.Usage.PromptTokens, want)
	}
	if again.Choices[0].Message.Content != first.Choices[0].Message.Content {
		t.Errorf("restored %q, computed %q", again.Choices[0].Message.Content, first.Choices[0].Message.Content)
	}
	if reason := head.Get("X-Tandem-Reason"); !strings.Contains(reason, "is kept") {
		t.Errorf("reason %q", reason)
	}
	n.AtRest()
}

// TestKVComesBackIntoTheEngine asks for more prefixes than the engine has sequences.
func TestKVComesBackIntoTheEngine(t *testing.T) {
	// To compute must take longer than to restore, or nothing is restored.
	n := nodetest.Start(t, enginetest.Options{TokenTime: 200 * time.Microsecond}, func(c *node.Config) { c.Parallel = 1 })
	keeps(n)
	var answers [3]string
	for round := range 2 {
		for i := range answers {
			a, _ := ask(t, n, chat(fmt.Sprint(i, strings.Repeat(" once more", 30)), `,"max_tokens":5`), 200)
			text := a.Choices[0].Message.Content
			if round == 0 {
				answers[i] = text
				stored(n, (i+1)*5)
				continue
			}
			if a.Usage.Details.Cached < 256 || text != answers[i] {
				t.Errorf("prefix %d: usage %+v; %q, before %q", i, a.Usage, text, answers[i])
			}
		}
	}
	if s := n.Status(t.Context()).(node.Status); s.Models[0].Restored == 0 || s.KV.TokensSpared == 0 || s.KV.RAM.Hits == 0 {
		t.Errorf("status %+v %+v", s.Models, s.KV)
	}
	_, metrics := n.Get("/metrics")
	for _, want := range []string{`tandem_kv_blocks{tier="ram"} 1`, `tandem_kv_hits_total{tier="ram"}`, `tandem_kv_spared_tokens_total`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// TestKVOfTenantsIsApart: nobody learns from the time of an answer what others
// asked.
func TestKVOfTenantsIsApart(t *testing.T) {
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) { c.APIKeys = []string{"ann=secret-of-ann", "bob=secret-of-bob"} })
	keeps(n)
	cached := func(key string) int {
		status, body := n.PostAs(key, "/v1/chat/completions", essay(300, ""))
		if status != 200 {
			t.Fatalf("%d: %s", status, body)
		}
		return decode(t, body).Usage.Details.Cached
	}
	if first, other, again := cached("secret-of-ann"), cached("secret-of-bob"), cached("secret-of-ann"); first != 0 || other != 0 || again == 0 {
		t.Errorf("cached tokens: first %d, of another tenant %d, again %d", first, other, again)
	}
}

func TestNoKVIsKept(t *testing.T) {
	for name, tt := range map[string]struct {
		options enginetest.Options
		change  func(*node.Config)
		reason  string
	}{
		"turned off": {enginetest.Options{}, func(c *node.Config) { c.KVRAM = 0 }, "--kv-ram is 0"},
		"recurrent":  {enginetest.Options{Recurrent: true}, nil, "recurrent"},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodetest.Start(t, tt.options, tt.change)
			n.Until("the reason is known", func(s node.Status) bool {
				return len(s.Models) > 0 && strings.Contains(s.Models[0].KVReason, tt.reason)
			})
			a, _ := ask(t, n, essay(300, ""), 200)
			b, _ := ask(t, n, essay(300, ""), 200)
			if a.Choices[0].Message.Content != b.Choices[0].Message.Content {
				t.Errorf("%q, then %q", a.Choices[0].Message.Content, b.Choices[0].Message.Content)
			}
			n.AtRest()
		})
	}
}

// TestKVOutlivesTheNode starts a second node on the folder of the first.
func TestKVOutlivesTheNode(t *testing.T) {
	dir := t.TempDir()
	run := func(secret string) answer {
		n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) {
			c.DataDir, c.KVDisk, c.Secret = dir, 64<<20, secret
		})
		keeps(n)
		a, _ := ask(t, n, essay(300, ""), 200)
		n.Close()
		return a
	}
	first, again, other := run(""), run(""), run("another secret of the cluster")
	if want := (first.Usage.PromptTokens - 1) / 64 * 64; first.Usage.Details.Cached != 0 || again.Usage.Details.Cached != want {
		t.Errorf("cached at first %+v, again %+v, want 0 and %d", first.Usage, again.Usage, want)
	}
	if other.Usage.Details.Cached != 0 {
		t.Errorf("with another secret %+v", other.Usage)
	}
	if a, b, c := first.Choices[0].Message.Content, again.Choices[0].Message.Content, other.Choices[0].Message.Content; a != b || a != c {
		t.Errorf("computed %q, restored %q, computed %q", a, b, c)
	}
}

// TestDamagedKVIsComputed damages what a node left on disk in many ways; the next
// one starts and answers as if nothing had been kept.
func TestDamagedKVIsComputed(t *testing.T) {
	dir := t.TempDir()
	change := func(c *node.Config) { c.DataDir, c.KVDisk = dir, 64<<20 }
	var want string
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 6 {
		n := nodetest.Start(t, enginetest.Options{}, change)
		keeps(n)
		a, _ := ask(t, n, essay(400, ""), 200)
		if text := a.Choices[0].Message.Content; round == 0 {
			want = text
		} else if text != want {
			t.Errorf("round %d: %q, at first %q", round, text, want)
		}
		n.Close()
		damage(t, rng, filepath.Join(dir, "kv"))
	}
}

// damage flips a bit in, or cuts the end off, about half of the files of a folder.
func damage(t *testing.T, rng *rand.Rand, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || rng.IntN(2) == 0 {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			return err
		}
		if rng.IntN(4) == 0 {
			data = data[:rng.IntN(len(data))]
		} else {
			data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
		}
		return os.WriteFile(path, data, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
