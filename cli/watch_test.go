package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
)

// startNode runs a node and returns the environment in which commands find it.
func startNode(t *testing.T, change func(*node.Config)) (*nodetest.Node, []string) {
	t.Helper()
	n := nodetest.Start(t, enginetest.Options{}, change)
	return n, []string{"NODE_LISTEN=" + n.Addr()}
}

func askNode(t *testing.T, n *nodetest.Node, key string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, n.URL+"/v1/chat/completions", strings.NewReader(`{"model":"tiny","max_tokens":4,"messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 {
		t.Fatalf("%s: %s", resp.Status, body)
	}
}

func TestTopAndTrace(t *testing.T) {
	n, env := startNode(t, nil)
	askNode(t, n, "")
	askNode(t, n, "")
	_, out, errs := run(t, env, "trace")
	for range 1000 { // the record comes after the answer
		if strings.Count(out, "\n") == 2 {
			break
		}
		_, out, errs = run(t, env, "trace")
	}
	dec := json.NewDecoder(strings.NewReader(out))
	for i := range 2 {
		var r node.RequestTimeline
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("%v in %q, %s", err, out, errs)
		}
		if r.Seq != uint64(i+1) || r.Endpoint != "chat" || r.Outcome != "length" || r.CompletionTokens != 4 || r.Node != "n1" || r.Reason == "" || r.PrefillSeconds <= 0 || r.Seconds < r.PrefillSeconds+r.DecodeSeconds {
			t.Errorf("%+v", r)
		}
	}
	if _, out, _ := run(t, env, "trace", "--limit", "1"); !strings.Contains(out, `"seq":2`) || strings.Count(out, "\n") != 1 {
		t.Errorf("the last one is %q", out)
	}
	if code, _, errs := run(t, env, "trace", "--limit", "0"); code != 2 || !strings.Contains(errs, "1 to 256") {
		t.Errorf("%d, %s", code, errs)
	}

	code, out, errs := run(t, env, "top")
	for _, want := range []string{"n1", "MODEL", "tiny", "ENDED", "length"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("top: %d, %s: no %q in\n%s", code, errs, want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Errorf("top writes sequences for terminals where there is none:\n%q", out)
	}
	_, out, _ = run(t, env, "top", "--json")
	var both topJSON
	if err := json.Unmarshal([]byte(out), &both); err != nil || both.Status.Node.Name != "n1" || len(both.Requests) != 2 {
		t.Errorf("%v, %q", err, out)
	}
	if code, _, errs := run(t, env, "top", "--every", "1ms"); code != 2 || !strings.Contains(errs, "200ms") {
		t.Errorf("%d, %s", code, errs)
	}
}

// What is followed begins with what was there and goes on with what ends.
func TestTraceFollows(t *testing.T) {
	n, _ := startNode(t, nil)
	askNode(t, n, "")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	r, w := io.Pipe()
	defer context.AfterFunc(ctx, func() { w.CloseWithError(context.Cause(ctx)) })()
	c, _, err := node.LoadConfig(node.Sources{Flags: map[string][]string{"listen": {n.Addr()}, "data-dir": {t.TempDir()}}})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- (&tracePrinter{client: newClient(c), out: w}).follow(ctx, 10) }()
	dec := json.NewDecoder(r)
	for i := range 3 {
		var got node.RequestTimeline
		if err := dec.Decode(&got); err != nil || got.Seq != uint64(i+1) {
			t.Fatalf("%v, %+v", err, got)
		}
		askNode(t, n, "")
	}
	cancel()
	go io.Copy(io.Discard, r) // what ended meanwhile
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTopShowsRatesAndTrouble(t *testing.T) {
	v := &topView{}
	at := time.Unix(1000, 0)
	s := node.Status{Models: []node.ModelStatus{{Name: "m", Slots: 4, Computed: 100, Generated: 10}}}
	v.learn(s, at)
	if len(v.rates) != 0 {
		t.Errorf("rates from one look: %v", v.rates)
	}
	s.Models = []node.ModelStatus{{Name: "m", Slots: 4, Computed: 300, Generated: 30}}
	v.learn(s, at.Add(2*time.Second))
	if r := v.rates["m"]; r.prefill != 100 || r.decode != 10 {
		t.Errorf("%+v", r)
	}
	s.Models = []node.ModelStatus{{Name: "m", Computed: 5, Generated: 1}} // loaded anew
	v.learn(s, at.Add(3*time.Second))
	if _, ok := v.rates["m"]; ok {
		t.Error("a rate below zero")
	}
	var screen bytes.Buffer
	if err := v.draw(&screen, 0, errNoNode{"http://x"}); err != nil {
		t.Fatal(err)
	}
	if text := screen.String(); !strings.HasPrefix(text, screenHome+"NO ANSWER") || !strings.HasSuffix(text, screenRest) || strings.Count(text, "\n") != strings.Count(text, lineRest+"\r\n") {
		t.Errorf("%q", text)
	}
	screen.Reset()
	if err := v.draw(&screen, 4, nil); err != nil || strings.Count(screen.String(), "\n") != 3 {
		t.Errorf("%v, on 4 rows: %q", err, screen.String())
	}
}

func TestKeysCommand(t *testing.T) {
	_, env := startNode(t, func(c *node.Config) {
		c.APIKeys = []string{"app:infer:60rpm=secret-of-app", "root=secret-of-root"}
	})
	env = append(env, "NODE_API_KEY=app:infer:60rpm=secret-of-app,root=secret-of-root")
	code, out, errs := run(t, env, "keys")
	if code != 0 || !strings.Contains(out, "app") || !strings.Contains(out, "60") || strings.Contains(out, "secret-of") {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	if code, _, errs := run(t, env, "keys", "revoke", "root"); code != 1 || !strings.Contains(errs, "is the key of this request") {
		t.Errorf("%d, %s", code, errs)
	}
	if code, out, errs := run(t, env, "keys", "revoke", "app"); code != 0 || !strings.Contains(out, "app is refused") {
		t.Errorf("%d, %s, %s", code, out, errs)
	}
	if code, out, errs := run(t, []string{"NODE_LISTEN=127.0.0.1:1"}, "__complete", "run", ""); code != 0 || !strings.Contains(out, "tandem-tiny") {
		t.Errorf("models are not completed: %d, %s, %s", code, out, errs)
	}
	if code, out, _ := run(t, nil, "__complete", "serve", "--kv-type", ""); code != 0 || !strings.Contains(out, "q8_0") {
		t.Errorf("values are not completed: %d, %s", code, out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, errs := run(t, nil, "completion", shell); code != 0 || !strings.Contains(out, "tandem") {
			t.Errorf("%s: %d, %s", shell, code, errs)
		}
	}
}

func TestVersionAsJSON(t *testing.T) {
	_, out, _ := run(t, nil, "version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Version != node.Version || v.Go == "" {
		t.Errorf("%v, %q", err, out)
	}
}

// Every command that prints something can print it as JSON.
func TestEveryCommandHasJSON(t *testing.T) {
	without := map[string]bool{"serve": true, "completion": true, "help": true}
	for _, c := range newRoot(Env{}).Commands() {
		if !without[c.Name()] && c.Flags().Lookup("json") == nil && !c.HasSubCommands() {
			t.Errorf("%s has no --json", c.Name())
		}
	}
}
