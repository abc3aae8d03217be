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

// TestSmallCache runs more than fits: sequences wait or start again, but none
// fails and none says anything else than alone.
func TestSmallCache(t *testing.T) {
	preempted := 0
	tests := []struct {
		name         string
		context      int
		cells        int
		prompts      []int
		maxTokens    int
		mustPreempt  bool
		outputBuffer int
	}{
		{"four that do not fit together", 500, 500, []int{300, 300, 300, 300, 2}, 16, false, 0},
		{"growing together", 1000, 1000, []int{100, 100, 100, 100}, 800, true, 0},
		{"one fills the cache", 100, 100, []int{99, 99, 3}, 0, false, 0},
		{"long answers, small prompts", 256, 300, []int{1, 1, 1, 1}, 0, true, 0},
		{"readers one after another", 256, 260, []int{1, 1, 1, 1}, 0, true, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := enginetest.Options{Context: tt.context, Cells: tt.cells, Batch: 64}
			preempted = 0
			hooks := engine.Hooks{Preempted: func(string, int) { preempted++ }}
			e, _ := start(t, o, engine.Config{Parallel: 4, OutputBuffer: tt.outputBuffer, Hooks: hooks})
			var all []*engine.Sequence
			var requests []engine.Request
			for i, n := range tt.prompts {
				r := engine.Request{Tokens: words(t, fmt.Sprint(i)+prompt(n))[:n], MaxTokens: tt.maxTokens, Salt: fmt.Sprint(i)}
				requests = append(requests, r)
				all = append(all, submit(t, e, r))
			}
			for i, s := range all {
				if text, want := read(t, s), alone(t, o, requests[i]); text != want {
					t.Errorf("request %d: got %q, alone %q", i, text, want)
				}
			}
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if (preempted > 0) != tt.mustPreempt {
				t.Errorf("%d preempted, want some: %v", preempted, tt.mustPreempt)
			}
		})
	}
}

// TestPreemptedWhilePaused reads a stalled sequence only after it has lost its
// slot: it must not come back as one that still waits for its reader.
func TestPreemptedWhilePaused(t *testing.T) {
	o := enginetest.Options{Context: 200, Cells: 200}
	var preempted []string
	e, _ := stepped(t, o, engine.Config{Parallel: 2, OutputBuffer: 1000, Hooks: engine.Hooks{Preempted: func(l string, _ int) { preempted = append(preempted, l) }}})
	first := submit(t, e, engine.Request{Label: "first", Tokens: words(t, "a")})
	engine.LimitOutput(e, 20)
	r := engine.Request{Label: "second", Tokens: words(t, prompt(30)), MaxTokens: 40}
	second := submit(t, e, r)
	for len(preempted) == 0 {
		turns(t, e, 1)
	}
	if preempted[0] != "second" || second.Result().Generated != 20 {
		t.Fatalf("%v preempted after %d tokens of the second", preempted, second.Result().Generated)
	}
	text := ""
	for range 20 {
		text += string(next(t, second).Piece)
	}
	turns(t, e, -1)
	read(t, first)
	if second.Result().Generated == 20 {
		t.Fatal("it does not go on")
	}
	for range 20 {
		turns(t, e, -1)
		text += string(next(t, second).Piece)
	}
	if want := alone(t, o, r); text != want {
		t.Errorf("got %q, alone %q", text, want)
	}
}

// TestNoRoomFromBackend has the backend refuse batches that should fit.
func TestNoRoomFromBackend(t *testing.T) {
	tests := []struct {
		name   string
		refuse func(n int, b *engine.Batch) error
		reason engine.FinishReason
	}{
		{"once", func(n int, b *engine.Batch) error { return noRoomIf(n == 3) }, engine.FinishLength},
		{"every second time", func(n int, b *engine.Batch) error { return noRoomIf(n%2 == 0 && b.Len() > 1) }, engine.FinishLength},
		{"large batches", func(n int, b *engine.Batch) error { return noRoomIf(b.Len() > 3) }, engine.FinishLength},
		{"several sequences", func(n int, b *engine.Batch) error { return noRoomIf(b.Seq[0] != b.Seq[b.Len()-1]) }, engine.FinishLength},
		{"always", func(n int, b *engine.Batch) error { return engine.ErrNoRoom }, engine.FinishFailed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := enginetest.Options{FailDecode: tt.refuse}
			e, _ := start(t, o, engine.Config{Parallel: 3})
			var all []*engine.Sequence
			var requests []engine.Request
			for _, text := range []string{"one two three", "four", "five six"} {
				r := engine.Request{Tokens: words(t, text), MaxTokens: 20}
				requests = append(requests, r)
				all = append(all, submit(t, e, r))
			}
			for i, s := range all {
				text, err := readAll(t, s)
				if r := s.Result(); r.Reason != tt.reason || (tt.reason == engine.FinishFailed) != errors.Is(err, engine.ErrNoRoom) {
					t.Errorf("request %d: %v, %+v", i, err, r)
				}
				if want := alone(t, o, requests[i]); tt.reason == engine.FinishLength && text != want {
					t.Errorf("request %d: got %q, alone %q", i, text, want)
				}
			}
		})
	}
}

func noRoomIf(refuse bool) error {
	if refuse {
		return engine.ErrNoRoom
	}
	return nil
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

// TestSqueeze: after a refusal steps become smaller, and then larger again.
func TestSqueeze(t *testing.T) {
	var sizes []int
	refuse := func(n int, b *engine.Batch) error {
		sizes = append(sizes, b.Len())
		return noRoomIf(n <= 2)
	}
	e, _ := stepped(t, enginetest.Options{Batch: 64, FailDecode: refuse}, engine.Config{Parallel: 1, Now: frozen})
	submit(t, e, engine.Request{Tokens: words(t, prompt(200)), MaxTokens: 1})
	turns(t, e, -1)
	if want := []int{64, 32, 16, 32, 64, 64, 24}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("steps of %v tokens, want %v", sizes, want)
	}
}

// TestCrowdedEnds: who was preempted because the backend had no room comes back
// when one of the others has ended, beside those that still run.
func TestCrowdedEnds(t *testing.T) {
	e, _ := stepped(t, enginetest.Options{FailDecode: func(n int, _ *engine.Batch) error { return noRoomIf(n == 5) }}, engine.Config{Parallel: 3})
	short := submit(t, e, engine.Request{Tokens: words(t, "a"), MaxTokens: 20})
	long := submit(t, e, engine.Request{Tokens: words(t, "b"), MaxTokens: 200})
	third := submit(t, e, engine.Request{Tokens: words(t, "c"), MaxTokens: 20})
	turns(t, e, 6)
	if third.Position() != 1 {
		t.Fatalf("the youngest is at position %d, want it preempted", third.Position())
	}
	for short.Result().Reason == "" {
		turns(t, e, 1)
	}
	turns(t, e, 2)
	if third.Position() != 0 || long.Result().Reason != "" {
		t.Errorf("position %d, the other one %+v", third.Position(), long.Result())
	}
}

// TestCancelMeetsPreemption cancels a sequence in the step that preempts it.
func TestCancelMeetsPreemption(t *testing.T) {
	var young *engine.Sequence
	refuse := func(n int, _ *engine.Batch) error {
		if n == 5 {
			young.Cancel()
		}
		return noRoomIf(n == 5)
	}
	e, _ := stepped(t, enginetest.Options{FailDecode: refuse}, engine.Config{Parallel: 2})
	old := submit(t, e, engine.Request{Tokens: words(t, "a"), MaxTokens: 20})
	young = submit(t, e, engine.Request{Tokens: words(t, "b"), MaxTokens: 20})
	turns(t, e, -1)
	if text := read(t, old); len(text) != 20 {
		t.Errorf("the other one ended with %q", text)
	}
	if r := young.Result(); r.Reason != engine.FinishCancelled || r.Generated != 4 {
		t.Errorf("got %+v", r)
	}
}

// TestLoneSequenceWithoutRoom refuses single tokens of a sequence that is alone:
// once, it goes on; again, it ends with what it has.
func TestLoneSequenceWithoutRoom(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse    func(n int) bool
		generated int
	}{
		"once":     {func(n int) bool { return n == 5 }, 20},
		"and ever": {func(n int) bool { return n >= 5 }, 4},
	} {
		t.Run(name, func(t *testing.T) {
			o := enginetest.Options{FailDecode: func(n int, _ *engine.Batch) error { return noRoomIf(tt.refuse(n)) }}
			e, _ := stepped(t, o, engine.Config{Parallel: 2})
			r := engine.Request{Tokens: words(t, "a"), MaxTokens: 20}
			s := submit(t, e, r)
			turns(t, e, -1)
			if text, want := read(t, s), alone(t, o, r)[:tt.generated]; text != want || s.Result().Reason != engine.FinishLength {
				t.Errorf("got %q, %+v, want %q", text, s.Result(), want)
			}
		})
	}
}
