package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

func TestCancelRunning(t *testing.T) {
	reason := errors.New("the client is gone")
	tests := []struct {
		name   string
		cancel func(s *engine.Sequence, end context.CancelCauseFunc)
		want   error
	}{
		{"Cancel", func(s *engine.Sequence, _ context.CancelCauseFunc) { s.Cancel() }, context.Canceled},
		{"context of Submit", func(_ *engine.Sequence, end context.CancelCauseFunc) { end(reason) }, reason},
		{"twice", func(s *engine.Sequence, end context.CancelCauseFunc) { s.Cancel(); s.Cancel() }, context.Canceled},
		{"context of Next", func(s *engine.Sequence, end context.CancelCauseFunc) {
			ctx, cancel := context.WithCancelCause(context.Background())
			cancel(reason)
			for {
				if _, err := s.Next(ctx); err != nil {
					return
				}
			}
		}, reason},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e, b := start(t, enginetest.Options{Context: 1 << 20}, engine.Config{Parallel: 2})
			otherRequest := engine.Request{Tokens: words(t, "other"), MaxTokens: 500}
			other := submit(t, e, otherRequest)
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			s, err := e.Submit(ctx, engine.Request{Tokens: words(t, "endless")})
			if err != nil {
				t.Fatal(err)
			}
			next(t, s)
			tt.cancel(s, end)
			s.Wait()
			if _, err := s.Next(t.Context()); !errors.Is(err, tt.want) {
				t.Errorf("Next after the end: %v, want %v", err, tt.want)
			}
			if r := s.Result(); r.Reason != engine.FinishCancelled || r.Generated == 0 {
				t.Errorf("result %+v", r)
			}
			if text, want := read(t, other), alone(t, enginetest.Options{}, otherRequest); text != want {
				t.Errorf("the other sequence says %q, alone %q", text, want)
			}
			if st := e.Stats(); st.Running != 0 || b.Samplers() != 0 {
				t.Errorf("%+v, %d samplers", st, b.Samplers())
			}
		})
	}
}

// TestCancelQueued cancels requests that wait while another one runs: they leave
// at once, are never computed, and the running one goes on.
func TestCancelQueued(t *testing.T) {
	var computed []engine.Token
	record := func(_ int, b *engine.Batch) error {
		computed = append(computed, b.Tokens...)
		return nil
	}
	e, b := stepped(t, enginetest.Options{FailDecode: record}, engine.Config{Parallel: 1})
	running := submit(t, e, engine.Request{Tokens: words(t, "a"), MaxTokens: 50})
	turns(t, e, 3)
	ctx, end := context.WithCancel(t.Context())
	var queued []*engine.Sequence
	for range 10 {
		s, err := e.Submit(ctx, engine.Request{Tokens: words(t, "Z")})
		if err != nil {
			t.Fatal(err)
		}
		queued = append(queued, s)
	}
	queued[3].Cancel()
	if _, err := queued[3].Next(t.Context()); !errors.Is(err, context.Canceled) || queued[3].Position() != 0 {
		t.Errorf("a cancelled request is at position %d, Next says %v", queued[3].Position(), err)
	}
	if p := queued[4].Position(); p != 4 {
		t.Errorf("the one behind it is at position %d, want 4", p)
	}
	end()
	for _, s := range queued {
		s.Wait()
	}
	if st := e.Stats(); st.Queued != 0 || b.Samplers() != 1 {
		t.Errorf("%d queued, %d samplers", st.Queued, b.Samplers())
	}
	turns(t, e, -1)
	if text := read(t, running); len(text) != 50 {
		t.Errorf("the running sequence ended with %q", text)
	}
	if strings.Contains(enginetest.Vocab{}.Text(computed), "Z") {
		t.Error("a cancelled request was computed")
	}
}

// TestCancelInPrompt cancels a prompt half-way: what was computed is found by the
// next request.
func TestCancelInPrompt(t *testing.T) {
	e, _ := stepped(t, enginetest.Options{Batch: 32}, engine.Config{Parallel: 1})
	r := engine.Request{Tokens: words(t, prompt(100)), MaxTokens: 10}
	s := submit(t, e, r)
	turns(t, e, 2)
	s.Cancel()
	turns(t, e, -1)
	again := submit(t, e, r)
	turns(t, e, -1)
	if text, want := read(t, again), alone(t, enginetest.Options{}, r); text != want {
		t.Errorf("got %q, alone %q", text, want)
	}
	if got := again.Result().CachedTokens; got != 64 {
		t.Errorf("%d tokens cached, want the 64 of two steps", got)
	}
}

// TestStalledReader stops reading: the sequence pauses, others go on, and it goes
// on when it is read again.
func TestStalledReader(t *testing.T) {
	e, _ := stepped(t, enginetest.Options{}, engine.Config{Parallel: 2, OutputBuffer: 8})
	slow := engine.Request{Tokens: words(t, "slow"), MaxTokens: 30}
	stalled := submit(t, e, slow)
	turns(t, e, -1)
	if r := stalled.Result(); r.Generated != 8 {
		t.Errorf("%d tokens wait for a reader, want 8", r.Generated)
	}
	other := submit(t, e, engine.Request{Tokens: words(t, "other"), MaxTokens: 8})
	turns(t, e, -1)
	if text := read(t, other); len(text) != 8 {
		t.Errorf("beside a stalled reader: %q", text)
	}
	text := ""
	for i := range 4 {
		if e.Turn() {
			t.Errorf("it goes on after %d tokens were read", i)
		}
		text += string(next(t, stalled).Piece)
	}
	if !e.Turn() {
		t.Error("half of the buffer was read, but the sequence does not go on")
	}
	for {
		turns(t, e, -1)
		out, err := stalled.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text += string(out.Piece)
	}
	if want := alone(t, enginetest.Options{}, slow); text != want {
		t.Errorf("got %q, alone %q", text, want)
	}
}

// TestStalledReaderIsCancelled cancels a sequence that is paused.
func TestStalledReaderIsCancelled(t *testing.T) {
	e, _ := start(t, enginetest.Options{}, engine.Config{Parallel: 1, OutputBuffer: 1})
	stalled := submit(t, e, engine.Request{Tokens: words(t, "slow")})
	other := submit(t, e, engine.Request{Tokens: words(t, "other"), MaxTokens: 8})
	stalled.Cancel()
	if text := read(t, other); len(text) != 8 {
		t.Errorf("got %q", text)
	}
	if _, err := stalled.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("Next: %v", err)
	}
}

func TestEngineErrors(t *testing.T) {
	broken := errors.New("broken")
	fail := func(steps ...int) func(int, *engine.Batch) error {
		return func(n int, _ *engine.Batch) error {
			for _, s := range steps {
				if n == s {
					return broken
				}
			}
			return nil
		}
	}
	poison := func(_ int, b *engine.Batch) error {
		for _, t := range b.Tokens {
			if t == '!' {
				return broken
			}
		}
		return nil
	}
	tests := []struct {
		name    string
		options enginetest.Options
		fails   string // labels of the sequences that fail
	}{
		{"first step", enginetest.Options{FailDecode: fail(1)}, ""},
		{"while decoding", enginetest.Options{FailDecode: fail(8)}, ""},
		{"twice", enginetest.Options{FailDecode: fail(8, 9)}, "a"},
		{"again later", enginetest.Options{FailDecode: fail(3, 30)}, "abc"},
		{"one poisons its batches", enginetest.Options{FailDecode: poison}, "c"},
		{"one draw", enginetest.Options{FailSample: failOnce(broken, 't', 40)}, ""},
		{"a draw, every time", enginetest.Options{FailSample: func(p []engine.Token, pos int) error {
			if p[0] == 't' && pos == 40 {
				return broken
			}
			return nil
		}}, "bc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			retried := map[string]bool{}
			tt.options.Batch = 16
			e, _ := stepped(t, tt.options, engine.Config{Parallel: 3, Now: frozen, Hooks: engine.Hooks{Retried: func(l string, err error) {
				if retried[l] || !errors.Is(err, broken) {
					t.Errorf("%s is retried again, because of %v", l, err)
				}
				retried[l] = true
			}}})
			all := map[string]*engine.Sequence{}
			requests := map[string]engine.Request{}
			for label, text := range map[string]string{"a": "one", "b": "two", "c": "three!"} {
				requests[label] = engine.Request{Label: label, Tokens: words(t, text), MaxTokens: 40}
			}
			for _, label := range []string{"a", "b", "c"} {
				all[label] = submit(t, e, requests[label])
			}
			turns(t, e, -1)
			for label, s := range all {
				if strings.Contains(tt.fails, label) {
					_, err := readAll(t, s)
					if r := s.Result(); !errors.Is(err, broken) || r.Reason != engine.FinishFailed {
						t.Errorf("%s: %v, %+v; want it to fail", label, err, r)
					}
					continue
				}
				if text, want := read(t, s), alone(t, tt.options, requests[label]); text != want {
					t.Errorf("%s: got %q, alone %q", label, text, want)
				}
			}
			if st := e.Stats(); st.Running != 0 || len(retried) == 0 {
				t.Errorf("%d still run, retried %v", st.Running, retried)
			}
		})
	}
}

// failOnce fails one draw, at position pos of the sequence whose prompt begins so.
func failOnce(err error, begins engine.Token, pos int) func([]engine.Token, int) error {
	done := false
	return func(p []engine.Token, at int) error {
		if done || p[0] != begins || at != pos {
			return nil
		}
		done = true
		return err
	}
}

// readAll collects the text of a sequence and the error that ended it.
func readAll(t testing.TB, s *engine.Sequence) (string, error) {
	t.Helper()
	text := ""
	for {
		out, err := s.Next(t.Context())
		if err != nil {
			return text, err
		}
		text += string(out.Piece)
	}
}

func TestHooksAndDurations(t *testing.T) {
	now := time.Unix(0, 0)
	var log []string
	note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	hooks := engine.Hooks{
		Admitted:   func(l string, d time.Duration) { note("%s admitted after %v", l, d) },
		FirstToken: func(l string, r engine.Result) { note("%s first after %v+%v", l, r.Queue, r.Prefill) },
		Finished: func(l string, r engine.Result, err error) {
			note("%s %s: %d of %d in %v+%v+%v, %v", l, r.Reason, r.Generated, r.PromptTokens, r.Queue, r.Prefill, r.Decode, err)
		},
	}
	tick := func(int, *engine.Batch) error { now = now.Add(time.Second); return nil }
	e, _ := stepped(t, enginetest.Options{Batch: 4, FailDecode: tick}, engine.Config{Parallel: 1, Hooks: hooks, Now: func() time.Time { return now }})
	submit(t, e, engine.Request{Label: "a", Tokens: words(t, "eight ch"), MaxTokens: 3})
	b := submit(t, e, engine.Request{Label: "b", Tokens: words(t, "b"), MaxTokens: 3})
	turns(t, e, 5)
	b.Cancel()
	turns(t, e, -1)
	want := []string{
		"a admitted after 0s",
		"a first after 0s+2s",
		"a length: 3 of 8 in 0s+2s+2s, <nil>",
		"b admitted after 4s",
		"b first after 4s+1s",
		"b cancelled: 1 of 1 in 4s+1s+0s, context canceled",
	}
	if !reflect.DeepEqual(log, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
}

// TestContinued: an answer that was begun elsewhere goes on as if it had not been
// interrupted, wherever that was.
func TestContinued(t *testing.T) {
	r := engine.Request{Label: "r", Tokens: words(t, prompt(50)), MaxTokens: 12, Sampling: engine.Sampling{Temperature: 1, Seed: 7}}
	whole := alone(t, enginetest.Options{}, r)
	for n := range len(whole) {
		e, _ := start(t, enginetest.Options{}, engine.Config{})
		part := r
		part.Generated = words(t, whole[:n])[len(words(t, "")):]
		rest, result := ask(t, e, part)
		if whole[:n]+rest != whole || result.PromptTokens != len(r.Tokens) || result.Generated != len(whole)-n || result.Reason != engine.FinishLength {
			t.Errorf("after %d tokens: %q, want %q; %+v", n, rest, whole[n:], result)
		}
	}
	e, _ := start(t, enginetest.Options{}, engine.Config{})
	r.Generated = words(t, whole)
	if _, err := e.Submit(t.Context(), r); err == nil {
		t.Error("an answer that is complete goes on")
	}
}
