package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// words tokenises text with control tokens.
func words(t testing.TB, text string) []engine.Token {
	t.Helper()
	tokens, err := enginetest.Vocab{}.Tokenize(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// start runs an engine on a fake, checks the invariants after every turn and, at
// the end of the test, that nothing is left behind.
func start(t testing.TB, o enginetest.Options, cfg engine.Config) (*engine.Engine, *enginetest.Backend) {
	t.Helper()
	b := enginetest.New(o)
	e := engine.NewChecked(b, cfg, func(err error) { t.Errorf("invariant: %v", err) })
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
		checkClean(t, b)
	})
	return e, b
}

// checkClean tests that a closed fake was used well and left clean.
func checkClean(t testing.TB, b *enginetest.Backend) {
	t.Helper()
	if err := b.Faults(); err != nil {
		t.Errorf("faults: %v", err)
	}
	if !b.Closed() || b.Samplers() != 0 {
		t.Errorf("closed: %v, %d samplers open", b.Closed(), b.Samplers())
	}
}

// submit queues a request that must be accepted.
func submit(t testing.TB, e *engine.Engine, r engine.Request) *engine.Sequence {
	t.Helper()
	if r.Sampling.TopLogprobs == 0 {
		r.Sampling.TopLogprobs = -1
	}
	s, err := e.Submit(t.Context(), r)
	if err != nil {
		t.Fatalf("Submit: %v", err)
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
			t.Fatalf("Next: %v", err)
		}
		b.Write(out.Piece)
	}
}

// ask runs one request.
func ask(t testing.TB, e *engine.Engine, r engine.Request) (string, engine.Result) {
	t.Helper()
	s := submit(t, e, r)
	text := read(t, s)
	return text, s.Result()
}

// alone is the text that a fresh engine gives: what every other way to compute the
// same request must give, too.
func alone(t testing.TB, o enginetest.Options, r engine.Request) string {
	t.Helper()
	o.FailDecode, o.FailSample, o.StepTime, o.TokenTime, o.Recurrent = nil, nil, 0, 0, false
	b := enginetest.New(o)
	e := engine.New(b, engine.Config{Parallel: 1})
	text, _ := ask(t, e, r)
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkClean(t, b)
	return text
}

func TestGenerate(t *testing.T) {
	script := func(string) (string, bool) { return "Hello, wörld!", true }
	tests := []struct {
		name      string
		options   enginetest.Options
		request   engine.Request
		text      string
		reason    engine.FinishReason
		generated int
	}{
		{"to the end", enginetest.Options{Script: script}, engine.Request{Tokens: words(t, "hi")}, "Hello, wörld!", engine.FinishStop, 14},
		{"MaxTokens", enginetest.Options{Script: script}, engine.Request{Tokens: words(t, "hi"), MaxTokens: 5}, "Hello", engine.FinishLength, 5},
		{"MaxTokens with the last token", enginetest.Options{Script: script}, engine.Request{Tokens: words(t, "hi"), MaxTokens: 14}, "Hello, wörld!", engine.FinishLength, 14},
		{"one token", enginetest.Options{Script: script}, engine.Request{Tokens: words(t, "h"), MaxTokens: 1}, "H", engine.FinishLength, 1},
		{"end of the context", enginetest.Options{Script: script, Context: 8}, engine.Request{Tokens: words(t, "hi")}, "Hello,", engine.FinishLength, 6},
		{"room for one token", enginetest.Options{Script: script, Context: 8}, engine.Request{Tokens: words(t, "hi there"[:7]), MaxTokens: 100}, "H", engine.FinishLength, 1},
		{"empty answer", enginetest.Options{Script: func(string) (string, bool) { return "", true }}, engine.Request{Tokens: words(t, "hi")}, "", engine.FinishStop, 0},
		{"prompt of several steps", enginetest.Options{Script: script, Batch: 4}, engine.Request{Tokens: words(t, "a longer prompt")}, "Hello, wörld!", engine.FinishStop, 14},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, b := start(t, tt.options, engine.Config{})
			text, r := ask(t, e, tt.request)
			if text != tt.text || r.Reason != tt.reason || r.Generated != tt.generated || r.PromptTokens != len(tt.request.Tokens) {
				t.Errorf("got %q, %+v; want %q, %s after %d tokens", text, r, tt.text, tt.reason, tt.generated)
			}
			if b.Samplers() != 0 {
				t.Errorf("%d samplers open after the end", b.Samplers())
			}
			if s := e.Stats(); s.Running != 0 || s.Queued != 0 || s.Generated != int64(tt.generated) || s.KVTokens != 0 {
				t.Errorf("stats after the end: %+v", s)
			}
		})
	}
}

func TestSubmitRefuses(t *testing.T) {
	grammar := func(g string) error {
		if g == "bad" {
			return errors.New("no root")
		}
		return nil
	}
	e, b := start(t, enginetest.Options{Context: 8, Grammar: grammar}, engine.Config{Parallel: 1, QueueLimit: -1})
	cancelled, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	cancel(gone)
	tests := []struct {
		name    string
		ctx     context.Context
		request engine.Request
		check   func(error) bool
	}{
		{"no tokens", t.Context(), engine.Request{}, is[*engine.InvalidTokenError]},
		{"unknown token", t.Context(), engine.Request{Tokens: []engine.Token{1, 9999}}, is[*engine.InvalidTokenError]},
		{"negative token", t.Context(), engine.Request{Tokens: []engine.Token{-1}}, is[*engine.InvalidTokenError]},
		{"no room for one token", t.Context(), engine.Request{Tokens: words(t, "eight ch")}, is[*engine.PromptTooLongError]},
		{"grammar", t.Context(), engine.Request{Tokens: words(t, "x"), Sampling: engine.Sampling{Grammar: "bad"}}, is[*engine.GrammarError]},
		{"context ended", cancelled, engine.Request{Tokens: words(t, "x")}, func(err error) bool { return errors.Is(err, gone) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := e.Submit(tt.ctx, tt.request); !tt.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	if b.Steps() != 0 || b.Samplers() != 0 {
		t.Errorf("%d steps, %d samplers after refusals only", b.Steps(), b.Samplers())
	}
	if _, err := e.Embed(t.Context(), [][]engine.Token{{1}}); !errors.Is(err, engine.ErrNoEmbeddings) {
		t.Errorf("Embed: %v", err)
	}
}

// is tells whether an error has the type E.
func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func TestClosedEngineRefuses(t *testing.T) {
	b := enginetest.New(enginetest.Options{})
	e := engine.New(b, engine.Config{Parallel: 1})
	running := submit(t, e, engine.Request{Tokens: words(t, "a")})
	if _, err := running.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	queued := submit(t, e, engine.Request{Tokens: words(t, "b")})
	e.Stop()
	for name, s := range map[string]*engine.Sequence{"running": running, "queued": queued} {
		s.Wait()
		if _, err := s.Next(t.Context()); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
		if r := s.Result(); r.Reason != engine.FinishCancelled {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if b.Closed() {
		t.Error("Stop closed the model")
	}
	if _, err := e.Submit(t.Context(), engine.Request{Tokens: words(t, "c")}); !errors.Is(err, engine.ErrClosed) {
		t.Errorf("Submit: %v", err)
	}
	for range 2 {
		if err := e.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	checkClean(t, b)
}

// TestCloseRaces closes engines while others submit, cancel and read.
func TestCloseRaces(t *testing.T) {
	for range 20 {
		b := enginetest.New(enginetest.Options{})
		e := engine.New(b, engine.Config{Parallel: 2, QueueLimit: 1000})
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				for {
					s, err := e.Submit(context.Background(), engine.Request{Tokens: []engine.Token{'x'}, MaxTokens: 3})
					if errors.Is(err, engine.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					s.Cancel()
					if _, err := s.Next(context.Background()); err == nil {
						continue
					}
					s.Wait()
				}
			})
		}
		for b.Steps() < 5 {
			e.Stats()
		}
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		checkClean(t, b)
		callers.Wait()
	}
}
