package engine_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// embedAlone is the vector of one input in an engine of its own.
func embedAlone(t *testing.T, input []engine.Token) []float32 {
	t.Helper()
	e, _ := start(t, enginetest.Options{Pooled: true}, engine.Config{})
	v, err := e.Embed(t.Context(), [][]engine.Token{input})
	if err != nil {
		t.Fatal(err)
	}
	return v[0]
}

func TestEmbed(t *testing.T) {
	var inputs [][]engine.Token
	for n := 1; n < 40; n++ {
		inputs = append(inputs, words(t, prompt(n)))
	}
	e, b := start(t, enginetest.Options{Pooled: true, Batch: 64, Sequences: 3}, engine.Config{})
	vectors, err := e.Embed(t.Context(), inputs)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		var sum float64
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		if math.Abs(sum-1) > 1e-5 {
			t.Errorf("input %d: squared length %v", i, sum)
		}
	}
	for _, i := range []int{0, 17, 38} {
		if want := embedAlone(t, inputs[i]); !slices.Equal(vectors[i], want) {
			t.Errorf("input %d: %v, alone %v", i, vectors[i], want)
		}
	}
	if len(b.Held(0)) != 0 || b.Steps() > 25 {
		t.Errorf("%d rows left behind, %d steps for 39 inputs", len(b.Held(0)), b.Steps())
	}
	if v, err := e.Embed(t.Context(), nil); err != nil || len(v) != 0 {
		t.Errorf("no inputs: %v, %v", v, err)
	}
}

func TestEmbedRefuses(t *testing.T) {
	e, b := start(t, enginetest.Options{Pooled: true, Batch: 64, MicroBatch: 16}, engine.Config{Parallel: 1, QueueLimit: -1})
	gone := errors.New("gone")
	ended, end := context.WithCancelCause(t.Context())
	end(gone)
	tests := []struct {
		name  string
		ctx   context.Context
		input []engine.Token
		check func(error) bool
	}{
		{"too long", t.Context(), words(t, prompt(17)), is[*engine.PromptTooLongError]},
		{"empty", t.Context(), nil, is[*engine.InvalidTokenError]},
		{"unknown token", t.Context(), []engine.Token{99999}, is[*engine.InvalidTokenError]},
		{"context ended", ended, words(t, "x"), func(err error) bool { return errors.Is(err, gone) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := e.Embed(tt.ctx, [][]engine.Token{words(t, "good"), tt.input}); !tt.check(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	if b.Steps() != 0 {
		t.Errorf("%d steps after refusals only", b.Steps())
	}
	if _, err := e.Submit(t.Context(), engine.Request{Tokens: words(t, "x")}); !errors.Is(err, engine.ErrNoGeneration) {
		t.Errorf("Submit: %v", err)
	}
}

// TestEmbedErrors poisons one job: the others that were in its batch are computed.
func TestEmbedErrors(t *testing.T) {
	broken := errors.New("broken")
	poison := func(_ int, b *engine.Batch) error {
		if slices.Contains(b.Tokens, '!') {
			return broken
		}
		return nil
	}
	e, _ := stepped(t, enginetest.Options{Pooled: true, FailDecode: poison}, engine.Config{})
	texts := []string{"good", "bad!", "fine"}
	errs := make([]error, len(texts))
	var calls sync.WaitGroup
	for i, text := range texts {
		input := words(t, text)
		calls.Go(func() { _, errs[i] = e.Embed(t.Context(), [][]engine.Token{input, input, input, input}) })
	}
	for e.Stats().Queued < len(texts) {
	}
	turns(t, e, -1)
	calls.Wait()
	if errs[0] != nil || !errors.Is(errs[1], broken) || errs[2] != nil {
		t.Errorf("got %v", errs)
	}
}

// TestEmbedEnds leaves or closes while a job waits.
func TestEmbedEnds(t *testing.T) {
	gone := errors.New("gone")
	tests := []struct {
		name string
		end  func(e *engine.Engine, cancel context.CancelCauseFunc)
		want error
	}{
		{"caller", func(_ *engine.Engine, cancel context.CancelCauseFunc) { cancel(gone) }, gone},
		{"engine", func(e *engine.Engine, _ context.CancelCauseFunc) { e.Stop(); e.Turn() }, engine.ErrClosed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, b := stepped(t, enginetest.Options{Pooled: true}, engine.Config{})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			result := make(chan error)
			input := words(t, "x")
			go func() {
				_, err := e.Embed(ctx, [][]engine.Token{input})
				result <- err
			}()
			for e.Stats().Queued == 0 {
			}
			tt.end(e, cancel)
			if err := <-result; !errors.Is(err, tt.want) {
				t.Errorf("got %v", err)
			}
			turns(t, e, -1)
			if b.Steps() != 0 || e.Stats().Queued != 0 {
				t.Errorf("%d steps for a job that was gone", b.Steps())
			}
		})
	}
}
