package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// A backend that goes on by itself gives what one gives that is asked for every step,
// and a request that comes meanwhile begins soon.
func TestAhead(t *testing.T) {
	o := enginetest.Options{EndOdds: 300}
	e, b := startAhead(t, o, engine.Config{Parallel: 4})
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			r := engine.Request{Tokens: words(t, strings.Repeat(fmt.Sprint("prompt ", i), 1+i)), MaxTokens: 200}
			if got, _ := ask(t, e, r); got != alone(t, o, r) {
				t.Errorf("request %d: %q, want %q", i, got, alone(t, o, r))
			}
		})
	}
	all.Wait()
	if b.Runs() == 0 || b.Runs() > b.Steps()/3 {
		t.Errorf("%d steps in %d runs", b.Steps(), b.Runs())
	}
}

// A cancel is seen after the step that runs, and no token is lost before it.
func TestAheadIsCancelled(t *testing.T) {
	e, b := startAhead(t, enginetest.Options{}, engine.Config{})
	r := engine.Request{Tokens: words(t, "go on"), MaxTokens: 3000}
	s := submit(t, e, r)
	var text strings.Builder
	for range 100 {
		out, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text.Write(out.Piece)
	}
	s.Cancel()
	before := b.Steps()
	s.Wait()
	if after := b.Steps(); after > before+2 {
		t.Errorf("%d steps were made after the cancel", after-before)
	}
	if want := alone(t, enginetest.Options{}, r); !strings.HasPrefix(want, text.String()) {
		t.Errorf("%q is no beginning of %q", text.String(), want)
	}
}

// What fails in the middle is computed once more, by itself.
func TestAheadFails(t *testing.T) {
	o := enginetest.Options{FailDecode: func(n int, _ *engine.Batch) error {
		return map[bool]error{true: context.DeadlineExceeded}[n == 20]
	}}
	e, _ := startAhead(t, o, engine.Config{})
	r := engine.Request{Tokens: words(t, "go on"), MaxTokens: 60}
	if got, result := ask(t, e, r); got != alone(t, o, r) || result.Generated != 60 {
		t.Errorf("%d tokens, %q", result.Generated, got)
	}
}
