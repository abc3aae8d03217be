package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSimRuns(t *testing.T) {
	dir := t.TempDir()
	page, log, each := filepath.Join(dir, "out.html"), filepath.Join(dir, "log.jsonl"), filepath.Join(dir, "each.csv")
	args := []string{"sim", "--load", "chat,requests=60,rate=3", "--nodes", "2xRTX4090=prefill,2xRTX3090@2.5gbit,1xcpu", "--policy", "cost,random", "--disagg", "auto,dynamo", "--slo", "ttft=2s,itl=100ms",
		"--outages", "3:5s-9s,2:freeze:4s-6s", "--html", page, "--write-log", log, "--each", each}
	code, out, errs := run(t, nil, args...)
	if code != 0 || strings.Count(out, "60/60") != 4 || !strings.Contains(errs, "240 requests in") {
		t.Fatalf("status %d\n%s\n%s", code, out, errs)
	}
	if b, err := os.ReadFile(page); err != nil || !strings.Contains(string(b), "<svg") || !strings.Contains(string(b), "node sim --load chat") {
		t.Errorf("page of %d bytes, %v", len(b), err)
	}
	if b, err := os.ReadFile(each); err != nil || strings.Count(string(b), "\n") != 61 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	// The same from the log, the scenario in a file: the same figures.
	scenario := filepath.Join(dir, "s.json")
	if err := os.WriteFile(scenario, []byte(`{"nodes":"1xcpu","slo":"ttft=2s,itl=100ms","policies":["cost"],"trace":`+quote(log)+`}`), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs = run(t, nil, "sim", "--scenario", scenario, "--nodes", "4xRTX3090", "--json")
	var got struct {
		Scenario struct{ Nodes, Link string }
		Results  []struct{ Answered int }
	}
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || len(got.Results) != 1 || got.Results[0].Answered != 60 || got.Scenario.Nodes != "4xRTX3090" || got.Scenario.Link != "10gbit" {
		t.Errorf("status %d, %v, %+v\n%s", code, err, got, errs)
	}
}

func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

func TestSimSearches(t *testing.T) {
	code, out, errs := run(t, nil, "sim", "--goodput", "--slo", "ttft=1s,itl=50ms", "--load", "poisson,requests=60", "--nodes", "2xRTX3090")
	if code != 0 || !strings.Contains(out, "REQUESTS/S") {
		t.Errorf("status %d\n%s\n%s", code, out, errs)
	}
	code, out, errs = run(t, nil, "sim", "--regret", "5", "--load", "chat,requests=20", "--nodes", "2xRTX3090")
	if code != 0 || !strings.Contains(out, "REGRET MEAN MS") {
		t.Errorf("status %d\n%s\n%s", code, out, errs)
	}
	code, out, errs = run(t, nil, "sim", "--tables")
	if code != 0 || !strings.Contains(out, "RTX3090") || !strings.Contains(out, "llama-3.1-8b") {
		t.Errorf("status %d\n%s\n%s", code, out, errs)
	}
}

func TestSimRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--nodes", "8xRTX9999"}, []string{"nodes", "RTX9999", "RTX3090"}},
		{[]string{"--nodes", "2xRTX3090=boss"}, []string{"nodes", "boss", "prefill"}},
		{[]string{"--nodes", "2xRTX3070", "--model", "llama-3.1-70b"}, []string{"nodes", "GB"}},
		{[]string{"--model", "gpt-9"}, []string{"model", "gpt-9", "llama-3.1-8b"}},
		{[]string{"--link", "fast"}, []string{"link", "fast", "2.5gbit"}},
		{[]string{"--policy", "best"}, []string{"policy", "best", "round-robin"}},
		{[]string{"--disagg", "often"}, []string{"disagg", "often", "auto"}},
		{[]string{"--load", "storm"}, []string{"load", "storm", "poisson"}},
		{[]string{"--load", "chat,rate=fast"}, []string{"rate", "fast"}},
		{[]string{"--slo", "soon"}, []string{"slo", "soon", "ttft"}},
		{[]string{"--outages", "9:1s-2s"}, []string{"outage", "9"}},
		{[]string{"--outages", "x"}, []string{"outages", "x", "FROM"}},
		{[]string{"--trace", "/does/not/exist"}, []string{"trace", "/does/not/exist"}},
		{[]string{"--trace", empty}, []string{"empty"}},
		{[]string{"--trace", empty, "--load", "chat"}, []string{"trace, load"}},
		{[]string{"--scenario", empty}, []string{"scenario"}},
		{[]string{"--share", "2"}, []string{"share", "2"}},
		{[]string{"--transfers", "maybe", "--steps", "some"}, []string{"transfers", "steps", "on and off"}},
		{[]string{"extra"}, []string{"extra"}},
	} {
		code, out, errs := run(t, nil, append([]string{"sim"}, c.args...)...)
		if code != 2 || out != "" {
			t.Errorf("%v: status %d, output %q, %s", c.args, code, out, errs)
		}
		for _, word := range c.says {
			if !strings.Contains(errs, word) {
				t.Errorf("%v: %q does not say %q", c.args, errs, word)
			}
		}
	}
}
