package llama

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestTrigger compares with the standard library, which needs the whole text at
// once.
func TestTrigger(t *testing.T) {
	patterns := []string{
		`^[\s\S]*?(<a>[ \n]?(?:\{"?)?)$`, `(<a>)`, `.*<a>`, `(?s).*?(<a>.*)`, `x*(<|a)b*`, `^\s*(?:<a>[\s\S]*?>)?\s*(\{"?)$`,
		`(?i)(?:A|(<b>))+`, `\b(a)\b.*`, `(?m)(?:^a$\n?)*`, `é?(€|😀)+`, `()`, `[^a]*`, `(a|ab)(c|bcd)(d*)`, `(?s)(?:.*?(a))?.*?(b)$`,
	}
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "<a>", "<", ">", "{", `"`, " ", "\n", "x", "é", "€", "😀", "\xff", "A", "c", "d"}
	matched := 0
	for _, pattern := range patterns {
		re := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		for range 3000 {
			tr, err := newTrigger(pattern)
			if err != nil {
				t.Fatal(err)
			}
			var text []byte
			for range rng.IntN(6) {
				text = append(text, alphabet[rng.IntN(len(alphabet))]...)
			}
			for rest := text; len(rest) > 0; {
				n := 1 + rng.IntN(len(rest))
				tr.push(rest[:n])
				rest = rest[n:]
			}
			at, ok := tr.match()
			m := re.FindSubmatchIndex(text)
			if ok != (m != nil) {
				t.Fatalf("%s on %q: %v", pattern, text, ok)
			}
			if !ok {
				continue
			}
			matched++
			want := -1
			for g := 2; g < len(m); g += 2 {
				if m[g] >= 0 && (want < 0 || m[g] < want) {
					want = m[g]
				}
			}
			if strings.Count(pattern, "(") > 0 && at != max(0, want) && !strings.Contains(pattern, ")+") {
				t.Fatalf("%s on %q: the group begins at %d, want %d", pattern, text, at, want)
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d texts matched", matched)
	}
}

func TestTriggerForgets(t *testing.T) {
	tr, err := newTrigger(`(?s).*?(<a>).*`)
	if err != nil {
		t.Fatal(err)
	}
	tr.push([]byte("x<a>y<a>z"))
	at, ok := tr.match()
	if !ok || at != 1 || !tr.forget(at) {
		t.Fatalf("match at %d, %v", at, ok)
	}
	if at, ok = tr.match(); ok {
		t.Errorf("match at %d, which was hidden by the first one", at)
	}
	tr.push([]byte("<a>"))
	if at, ok = tr.match(); !ok || at != 9 {
		t.Errorf("match at %d, %v, want 9", at, ok)
	}
}

func TestTriggerErrors(t *testing.T) {
	for name, pattern := range map[string]string{
		"syntax": "(", "long": strings.Repeat("a", triggerBytesMax+1), "large": "(?:abcdefghij){900}",
	} {
		if _, err := newTrigger(pattern); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestTriggerCost: the end of a long text costs what its start costs.
func TestTriggerCost(t *testing.T) {
	tr, err := newTrigger(`^(?:\s*<think>[\s\S]*?</think>[\s\S]*?|\s*(?:[^<\s][\s\S]*?)?)(<tool_call>[ \n]?(?:\{"?)?)$`)
	if err != nil {
		t.Fatal(err)
	}
	chunk := []byte(strings.Repeat("some words ", 100))
	run := func() time.Duration {
		start := time.Now()
		for range 20 {
			tr.push(chunk)
			if _, ok := tr.match(); ok {
				t.Fatal("match")
			}
		}
		return time.Since(start)
	}
	run()
	first := run()
	for range 200 {
		tr.push(chunk)
	}
	if last := run(); last > 20*first+time.Second {
		t.Errorf("first %v, last %v", first, last)
	}
}
