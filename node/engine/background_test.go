package engine_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// A background request ends when another one comes, leaves nothing behind, and shows in
// no statistics.
func TestBackgroundGivesWay(t *testing.T) {
	b := enginetest.New(enginetest.Options{StepTime: time.Millisecond, Sequences: 2})
	e := engine.New(b, engine.Config{Parallel: 2})
	defer e.Close(context.Background())
	greedy := engine.Sampling{TopLogprobs: -1, IgnoreEOS: true}
	prompt := make([]engine.Token, 40)
	for i := range prompt {
		prompt[i] = engine.Token('a' + i%20)
	}
	back := func() (*engine.Sequence, error) {
		return e.Submit(t.Context(), engine.Request{Tokens: prompt, Sampling: greedy, Background: true})
	}
	first, err := back()
	if err != nil {
		t.Fatal(err)
	}
	second, err := back()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := e.Stats(); st.Running != 0 || st.Queued != 0 || st.KVTokens != 0 || st.Generated != 0 || !st.Used.IsZero() {
		t.Errorf("statistics of background requests: %+v", st)
	}
	user, err := e.Submit(t.Context(), engine.Request{Tokens: prompt, MaxTokens: 20, Sampling: greedy})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*engine.Sequence{first, second} {
		var err error
		for err == nil {
			_, err = s.Next(t.Context())
		}
		if !errors.Is(err, engine.ErrGaveWay) {
			t.Errorf("a background request ended with %v", err)
		}
	}
	if _, err := back(); !errors.Is(err, engine.ErrGaveWay) {
		t.Errorf("a background request beside another one: %v", err)
	}
	for err == nil {
		_, err = user.Next(t.Context())
	}
	if !errors.Is(err, io.EOF) || user.Result().Generated != 20 {
		t.Errorf("the request that came: %v, %+v", err, user.Result())
	}
	st := e.Stats()
	if st.Computed != 40 || st.Generated != 20 || st.Used.IsZero() || st.Resident != 59 {
		t.Errorf("statistics: %+v; want 40 prompt tokens, 20 generated, and the rows of one sequence resident", st)
	}
	third, err := back()
	if err != nil {
		t.Fatalf("a background request after the end: %v", err)
	}
	third.Cancel()
	third.Wait()
}

// What requests have told is forgotten when the caller knows better.
func TestForgetRates(t *testing.T) {
	e := engine.New(enginetest.New(enginetest.Options{StepTime: time.Millisecond}), engine.Config{})
	defer e.Close(context.Background())
	run := func() {
		prompt := make([]engine.Token, 64)
		for i := range prompt {
			prompt[i] = 'x'
		}
		s, err := e.Submit(t.Context(), engine.Request{Tokens: prompt, MaxTokens: 20, NoReuse: true, Sampling: engine.Sampling{TopLogprobs: -1, IgnoreEOS: true}})
		for err == nil {
			_, err = s.Next(t.Context())
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	run()
	before := e.Stats()
	if before.TokensKnown != 64 || before.StepsKnown != 19 || before.TokenTime == 0 || before.StepTime == 0 {
		t.Errorf("after one request: %+v", before)
	}
	e.ForgetRates()
	run()
	if after := e.Stats(); after.TokensKnown != before.TokensKnown || after.StepsKnown != before.StepsKnown {
		t.Errorf("after forgetting and one more: %+v", after)
	}
}
