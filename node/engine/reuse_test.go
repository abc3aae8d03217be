package engine_test

import (
	"context"
	"strings"
	"testing"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// stepped makes an engine that moves only in turn, with the same checks as start.
func stepped(t testing.TB, o enginetest.Options, cfg engine.Config) (*engine.Engine, *enginetest.Backend) {
	t.Helper()
	b := enginetest.New(o)
	e := engine.NewStepped(b, cfg)
	t.Cleanup(func() {
		e.CloseStepped()
		checkClean(t, b)
	})
	return e, b
}

// turns takes n turns, or with n < 0 all that there are, and checks the invariants
// after each.
func turns(t testing.TB, e *engine.Engine, n int) {
	t.Helper()
	for more := true; more && n != 0; n-- {
		more = e.Turn()
		if err := e.Check(); err != nil {
			t.Fatalf("invariant: %v", err)
		}
	}
}

// prompt is a text of n bytes that is unlike other texts in no prefix of it.
func prompt(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString("tandem rides on. "[i%17:])
	}
	return b.String()[:n]
}

func TestReuse(t *testing.T) {
	long := prompt(300)
	type turn struct {
		text    string
		salt    string
		noReuse bool
		cached  int
	}
	tests := []struct {
		name    string
		options enginetest.Options
		turns   []turn
	}{
		{"the same again", enginetest.Options{}, []turn{{text: long}, {text: long, cached: 299}, {text: long, cached: 299}}},
		{"one token", enginetest.Options{}, []turn{{text: "x"}, {text: "x"}}},
		{"longer", enginetest.Options{}, []turn{{text: long}, {text: long + "?!", cached: 300}}},
		{"shorter", enginetest.Options{}, []turn{{text: long}, {text: long[:120], cached: 119}}},
		{"cut and other text", enginetest.Options{}, []turn{{text: long}, {text: long[:9] + "#" + long, cached: 9}, {text: long, cached: 299}}},
		{"nothing in common", enginetest.Options{}, []turn{{text: long}, {text: "#" + long}, {text: long, cached: 299}}},
		{"other salt", enginetest.Options{}, []turn{{text: long, salt: "a"}, {text: long, salt: "b"}, {text: long}, {text: long, salt: "a", cached: 299}}},
		{"not wanted", enginetest.Options{}, []turn{{text: long}, {text: long, noReuse: true}, {text: long, cached: 299}}},
		{"one id", enginetest.Options{Sequences: 1}, []turn{{text: long}, {text: long[:100] + "#", cached: 100}, {text: long, cached: 100}}},
		{"two ids, least recently used goes", enginetest.Options{Sequences: 2},
			[]turn{{text: "a" + long}, {text: "b" + long}, {text: "a" + long, cached: 300}, {text: "c" + long}, {text: "b" + long}, {text: "a" + long}}},
		{"recurrent, the same again", enginetest.Options{Recurrent: true}, []turn{{text: long}, {text: long}}},
		{"recurrent, another salt", enginetest.Options{Recurrent: true}, []turn{{text: "x"}, {text: "x" + long, salt: "b"}}},
		{"recurrent, cut", enginetest.Options{Recurrent: true, Sequences: 1}, []turn{{text: long}, {text: long[:100] + "#"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, _ := start(t, tt.options, engine.Config{Parallel: 1})
			for i, turn := range tt.turns {
				r := engine.Request{Tokens: words(t, turn.text), Salt: turn.salt, NoReuse: turn.noReuse, MaxTokens: 16}
				text, result := ask(t, e, r)
				if want := alone(t, tt.options, r); text != want {
					t.Errorf("turn %d: got %q, alone %q", i, text, want)
				}
				if result.CachedTokens != turn.cached {
					t.Errorf("turn %d: %d tokens cached, want %d", i, result.CachedTokens, turn.cached)
				}
			}
		})
	}
}

// TestReuseOfAnswers goes on a conversation: prompt and answer of the turns before
// are resident, also where the cache cannot be cut.
func TestReuseOfAnswers(t *testing.T) {
	for name, o := range map[string]enginetest.Options{"attention": {}, "recurrent": {Recurrent: true}} {
		t.Run(name, func(t *testing.T) {
			e, _ := start(t, o, engine.Config{Parallel: 2})
			talk := prompt(50)
			for i := range 4 {
				r := engine.Request{Tokens: words(t, talk), MaxTokens: 20}
				text, result := ask(t, e, r)
				if want := alone(t, o, r); text != want {
					t.Errorf("turn %d: got %q, alone %q", i, text, want)
				}
				// The last token of the answer was drawn, but never computed.
				if want := max(len(talk)-7, 0); i > 0 && result.CachedTokens != want {
					t.Errorf("turn %d: %d of %d tokens cached, want %d", i, result.CachedTokens, len(talk), want)
				}
				talk += text + " And?!"
			}
		})
	}
}

// TestEqualPrefixesAreComputedOnce submits requests that share most of their
// prompt at the same moment.
func TestEqualPrefixesAreComputedOnce(t *testing.T) {
	system := prompt(200)
	e, _ := stepped(t, enginetest.Options{Batch: 64}, engine.Config{Parallel: 4})
	var all []*engine.Sequence
	var requests []engine.Request
	for _, user := range []string{"one", "two", "three", "one"} {
		r := engine.Request{Tokens: words(t, system+user), MaxTokens: 10}
		requests = append(requests, r)
		all = append(all, submit(t, e, r))
	}
	turns(t, e, -1)
	for i, s := range all {
		if text, want := read(t, s), alone(t, enginetest.Options{}, requests[i]); text != want {
			t.Errorf("request %d: got %q, alone %q", i, text, want)
		}
	}
	// The second and third share the system text and a letter at most, the last one
	// all but its last token.
	if got, most := e.Stats().Computed, int64(203+3+5+1); got > most {
		t.Errorf("%d tokens computed, want at most %d", got, most)
	}
}

// TestLeaderEnds cancels the sequence that computes a prefix for others in every
// step of its prompt: the next one goes on where it stopped.
func TestLeaderEnds(t *testing.T) {
	system := prompt(200)
	for steps := range 8 {
		e, _ := stepped(t, enginetest.Options{Batch: 32}, engine.Config{Parallel: 3})
		var all []*engine.Sequence
		var requests []engine.Request
		for _, user := range []string{"one", "two", "three"} {
			r := engine.Request{Tokens: words(t, system+user), MaxTokens: 10}
			requests = append(requests, r)
			all = append(all, submit(t, e, r))
		}
		turns(t, e, steps)
		all[0].Cancel()
		turns(t, e, -1)
		for i := range all[1:] {
			if text, want := read(t, all[i+1]), alone(t, enginetest.Options{}, requests[i+1]); text != want {
				t.Errorf("leader gone after %d steps: got %q, alone %q", steps, text, want)
			}
		}
		if got, most := e.Stats().Computed, int64(203+3+5); got > most {
			t.Errorf("leader gone after %d steps: %d tokens computed, want at most %d", steps, got, most)
		}
	}
}

// TestRunningPrefixIsShared starts a request while another one decodes from the
// same prompt.
func TestRunningPrefixIsShared(t *testing.T) {
	e, _ := stepped(t, enginetest.Options{}, engine.Config{Parallel: 2})
	r := engine.Request{Tokens: words(t, prompt(100)), MaxTokens: 50}
	first := submit(t, e, r)
	turns(t, e, 10)
	second := submit(t, e, r)
	turns(t, e, -1)
	want := alone(t, enginetest.Options{}, r)
	for _, s := range []*engine.Sequence{first, second} {
		if text := read(t, s); text != want {
			t.Errorf("got %q, alone %q", text, want)
		}
	}
	if got := second.Result().CachedTokens; got != 99 {
		t.Errorf("%d tokens cached, want 99", got)
	}
}

// TestEvictedHook takes the only id for another prompt.
func TestEvictedHook(t *testing.T) {
	var evicted []int
	e, _ := stepped(t, enginetest.Options{Sequences: 1}, engine.Config{Parallel: 1, Hooks: engine.Hooks{Evicted: func(n int) { evicted = append(evicted, n) }}})
	for _, text := range []string{"abc", "xyz"} {
		s, err := e.Submit(context.Background(), engine.Request{Tokens: words(t, text), MaxTokens: 3})
		if err != nil {
			t.Fatal(err)
		}
		turns(t, e, -1)
		s.Wait()
	}
	if len(evicted) != 1 || evicted[0] != 5 {
		t.Errorf("evicted %v, want the 5 tokens of the first", evicted)
	}
}

// TestRecurrentStateIsNotShared asks for what a running sequence has just computed.
func TestRecurrentStateIsNotShared(t *testing.T) {
	e, _ := stepped(t, enginetest.Options{Recurrent: true}, engine.Config{Parallel: 2})
	r := engine.Request{Tokens: words(t, prompt(100)), MaxTokens: 50}
	first := submit(t, e, r)
	turns(t, e, 10)
	r.Tokens = append(r.Tokens, words(t, alone(t, enginetest.Options{}, r)[:20])...)
	second := submit(t, e, r)
	turns(t, e, -1)
	read(t, first)
	if text, want := read(t, second), alone(t, enginetest.Options{}, r); text != want {
		t.Errorf("got %q, alone %q", text, want)
	}
	if got := second.Result().CachedTokens; got != 0 {
		t.Errorf("%d tokens cached of a state in use", got)
	}
}
