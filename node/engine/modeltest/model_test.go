package modeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"

	"tandem/node/engine"
	"tandem/node/engine/llama"
)

// builtIn is the model in the repository.
const builtIn = "../../models/builtin/tandem-tiny.gguf"

// open starts an engine on the test model. One thread: on a busy machine compute
// threads that wait for each other take many times longer.
func open(t testing.TB, o llama.Options, cfg engine.Config) *engine.Engine {
	t.Helper()
	o.Path = os.Getenv("TANDEM_TEST_MODEL")
	if o.Path == "" {
		o.Path = builtIn
	}
	if o.Context == 0 {
		o.Context = 512
	}
	o.Threads = 1
	b, err := llama.Load(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = max(o.Sequences, 1)
	}
	e := engine.New(b, cfg)
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// request is a greedy request for n tokens after a text.
func request(t testing.TB, e *engine.Engine, text string, n int) engine.Request {
	t.Helper()
	tokens, err := e.Vocab().Tokenize(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return engine.Request{Tokens: tokens, MaxTokens: n,
		Sampling: engine.Sampling{TopP: 1, TypicalP: 1, RepeatPenalty: 1, TopLogprobs: -1, IgnoreEOS: true}}
}

func submit(t testing.TB, e *engine.Engine, r engine.Request) *engine.Sequence {
	t.Helper()
	s, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// read collects the text of a sequence to its end.
func read(t testing.TB, s *engine.Sequence) string {
	t.Helper()
	var b strings.Builder
	for {
		out, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return b.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		b.Write(out.Piece)
	}
}

// story is a prompt of n sentences, each unlike the others.
func story(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "In year %d the rider met %d friends. ", 100+i*7, i*i%31)
	}
	return b.String()
}

// answers says what a cold engine answers, without any reuse.
type answers struct {
	e    *engine.Engine
	seen map[string]string
}

func newAnswers(t *testing.T, o llama.Options) *answers {
	o.Sequences = 1
	return &answers{open(t, o, engine.Config{}), map[string]string{}}
}

func (a *answers) to(t *testing.T, text string, n int) string {
	t.Helper()
	if _, ok := a.seen[text]; !ok {
		r := request(t, a.e, text, n)
		r.NoReuse = true
		a.seen[text] = read(t, submit(t, a.e, r))
	}
	return a.seen[text]
}

// TestReuse repeats, extends and cuts prompts, with every KV type.
func TestReuse(t *testing.T) {
	for _, kv := range []string{"f16", "q8_0", "q4_0"} {
		t.Run(kv, func(t *testing.T) {
			o := llama.Options{KVType: kv, Sequences: 4}
			cold, e := newAnswers(t, o), open(t, o, engine.Config{})
			a := story(10)
			for i, turn := range []struct {
				text   string
				cached bool
			}{
				{a, false}, {a, true}, {a + "Then", true}, {a[:len(a)/2] + "But no!", true}, {a, true}, {a[:len(a)/3], true}, {"!" + a, false}, {a, true},
			} {
				s := submit(t, e, request(t, e, turn.text, 16))
				if text, want := read(t, s), cold.to(t, turn.text, 16); text != want {
					t.Errorf("turn %d: got %q, cold %q", i, text, want)
				}
				r := s.Result()
				if (r.CachedTokens > 20) != turn.cached || r.CachedTokens >= r.PromptTokens {
					t.Errorf("turn %d: %d of %d tokens cached", i, r.CachedTokens, r.PromptTokens)
				}
			}
		})
	}
}

// TestChoices asks the same several times at once.
func TestChoices(t *testing.T) {
	o := llama.Options{Sequences: 8}
	cold, e := newAnswers(t, o), open(t, o, engine.Config{})
	text := story(10)
	var all []*engine.Sequence
	for range 4 {
		all = append(all, submit(t, e, request(t, e, text, 16)))
	}
	for i, s := range all {
		if got, want := read(t, s), cold.to(t, text, 16); got != want {
			t.Errorf("choice %d: got %q, cold %q", i, got, want)
		}
	}
	if st, n := e.Stats(), all[0].Result().PromptTokens; st.Computed > int64(n+3) {
		t.Errorf("%d tokens computed for 4 choices of a prompt of %d", st.Computed, n)
	}
}

// TestCancel cancels at many moments and looks that nothing stays behind.
func TestCancel(t *testing.T) {
	o := llama.Options{Sequences: 4, Batch: 32}
	cold, e := newAnswers(t, o), open(t, o, engine.Config{})
	text := story(8)
	for i := range 12 {
		s := submit(t, e, request(t, e, text[i:], 400))
		for range i % 5 {
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		s.Cancel()
		s.Wait()
	}
	if st := e.Stats(); st.Running != 0 || st.Queued != 0 || st.KVTokens != 0 {
		t.Errorf("%+v", st)
	}
	if got, want := read(t, submit(t, e, request(t, e, text, 16))), cold.to(t, text, 16); got != want {
		t.Errorf("afterwards: got %q, cold %q", got, want)
	}
}

// TestContextEnd fills the context to the last token.
func TestContextEnd(t *testing.T) {
	e := open(t, llama.Options{Context: 128, Sequences: 2}, engine.Config{})
	r := request(t, e, story(10), 0)
	r.Tokens = r.Tokens[:e.Info().Context-20]
	s := submit(t, e, r)
	read(t, s)
	if got := s.Result(); got.Reason != engine.FinishLength || got.Generated != 20 {
		t.Errorf("%+v", got)
	}
	r.Tokens = append(r.Tokens, r.Tokens[:20]...)
	var long *engine.PromptTooLongError
	if _, err := e.Submit(t.Context(), r); !errors.As(err, &long) || long.Context != e.Info().Context || long.Tokens != len(r.Tokens) {
		t.Errorf("a prompt of the whole context: %v", err)
	}
}

func TestGrammar(t *testing.T) {
	e := open(t, llama.Options{Sequences: 2}, engine.Config{})
	r := request(t, e, "Yes or no?", 20)
	r.Sampling.IgnoreEOS = false
	r.Sampling.Grammar = `root ::= "yes" | "no"`
	if text := read(t, submit(t, e, r)); text != "yes" && text != "no" {
		t.Errorf("got %q", text)
	}
	r.Sampling.Grammar = `root ::= (`
	var bad *engine.GrammarError
	if _, err := e.Submit(t.Context(), r); !errors.As(err, &bad) {
		t.Errorf("a broken grammar: %v", err)
	}
}

func TestEmbed(t *testing.T) {
	e := open(t, llama.Options{Embeddings: true, Sequences: 4}, engine.Config{})
	var inputs [][]engine.Token
	for _, text := range []string{"a cat", "a dog", story(3), "a cat"} {
		inputs = append(inputs, request(t, e, text, 0).Tokens)
	}
	vectors, err := e.Embed(t.Context(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	if d := dot(vectors[0], vectors[3]); math.Abs(d-1) > 1e-3 {
		t.Errorf("equal texts have the similarity %v", d)
	}
	if d := dot(vectors[0], vectors[2]); d > 0.9999 {
		t.Errorf("unlike texts have the similarity %v", d)
	}
	for i, input := range inputs {
		one, err := e.Embed(t.Context(), [][]engine.Token{input})
		if err != nil {
			t.Fatal(err)
		}
		if d := dot(one[0], vectors[i]); math.Abs(d-1) > 1e-3 {
			t.Errorf("input %d alone and among others: similarity %v", i, d)
		}
	}
}

func dot(a, b []float32) float64 {
	sum := 0.0
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}
