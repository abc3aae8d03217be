package engine_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// frozen is a clock that stands still: measured times do not change the plan.
func frozen() time.Time { return time.Unix(1000, 0) }

// TestPlan looks at how many tokens of each sequence the steps compute.
func TestPlan(t *testing.T) {
	type step map[string]int
	tests := []struct {
		name    string
		options enginetest.Options
		config  engine.Config
		prompts []string // submitted before the first step, labels a, b, ...
		steps   []step
	}{
		{"alone, whole batches", enginetest.Options{Batch: 64}, engine.Config{}, []string{prompt(150)},
			[]step{{"a": 64}, {"a": 64}, {"a": 22}, {"a": 1}}},
		{"short beside long", enginetest.Options{Batch: 64}, engine.Config{}, []string{"a" + prompt(150), "b" + prompt(9)},
			[]step{{"a": 54, "b": 10}, {"a": 63, "b": 1}, {"a": 34, "b": 1}, {"a": 1, "b": 1}}},
		{"long beside streams", enginetest.Options{Batch: 64}, engine.Config{StepBudget: 32}, []string{"a", "b" + prompt(79)},
			[]step{{"a": 1, "b": 32}, {"a": 1, "b": 32}, {"a": 1, "b": 16}, {"a": 1, "b": 1}}},
		{"equal parts", enginetest.Options{Batch: 60}, engine.Config{}, []string{"a" + prompt(40), "b" + prompt(40), "c" + prompt(40)},
			[]step{{"a": 20, "b": 20, "c": 20}, {"a": 20, "b": 20, "c": 20}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}}},
		{"more prompts than tokens", enginetest.Options{Batch: 8}, engine.Config{StepBudget: 2, Parallel: 5}, []string{"a", "b" + prompt(4), "c" + prompt(4), "d" + prompt(4), "e" + prompt(4)},
			[]step{{"a": 1, "b": 1, "c": 1}, {"a": 1, "d": 1, "e": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 1, "d": 1, "e": 1}}},
		{"a full batch of streams", enginetest.Options{Batch: 3}, engine.Config{Parallel: 8}, []string{"a", "b", "c", "d"},
			[]step{{"a": 1, "b": 1, "c": 1}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.config.Now = frozen
			e, _ := stepped(t, tt.options, tt.config)
			for i, p := range tt.prompts {
				submit(t, e, engine.Request{Label: string(rune('a' + i)), Tokens: words(t, p)})
			}
			for i, want := range tt.steps {
				turns(t, e, 1)
				if got := e.BatchSizes(); !maps.Equal(got, want) {
					t.Errorf("step %d: %v, want %v", i, got, want)
				}
			}
		})
	}
}

// TestGapBesideLongPrompt measures, in virtual time, how long a running stream
// waits for its next token while a prompt of 4,000 tokens comes in.
func TestGapBesideLongPrompt(t *testing.T) {
	for _, budget := range []int{16, 64, 256} {
		t.Run(fmt.Sprintf("budget %d", budget), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const stepTime, tokenTime = 10 * time.Millisecond, time.Millisecond
				chunkTime := stepTime + time.Duration(budget)*tokenTime
				e, _ := start(t, enginetest.Options{Context: 5000, StepTime: stepTime, TokenTime: tokenTime},
					engine.Config{StepBudget: budget, StepTime: time.Hour})
				stream := submit(t, e, engine.Request{Tokens: words(t, "x"), MaxTokens: 400})
				next(t, stream)
				long := submit(t, e, engine.Request{Tokens: words(t, prompt(4000)), MaxTokens: 1})
				last, worst := time.Now(), time.Duration(0)
				for range 399 {
					next(t, stream)
					worst = max(worst, time.Since(last))
					last = time.Now()
				}
				read(t, long)
				if worst >= 2*chunkTime {
					t.Errorf("a gap of %v, a chunk takes %v", worst, chunkTime)
				}
			})
		})
	}
}

// TestStepTime lets the engine find the chunk that keeps its aim.
func TestStepTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, b := start(t, enginetest.Options{Context: 5000, TokenTime: time.Millisecond}, engine.Config{StepTime: 40 * time.Millisecond})
		stream := submit(t, e, engine.Request{Tokens: words(t, "x")})
		next(t, stream)
		long := submit(t, e, engine.Request{Tokens: words(t, prompt(4000)), MaxTokens: 1})
		before := b.Steps()
		read(t, long)
		// 32 is the largest half of a half ... of 512 that takes less than 40 ms.
		if steps := b.Steps() - before; steps < 4000/33 || steps > 4000/32+4 {
			t.Errorf("4,000 tokens took %d steps, want about 125", steps)
		}
		stream.Cancel()
		stream.Wait()
	})
}

// TestShortPromptBesideLong: a short request must not wait for a long one to be
// computed.
func TestShortPromptBesideLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := start(t, enginetest.Options{Context: 8000, TokenTime: time.Millisecond}, engine.Config{})
		long := submit(t, e, engine.Request{Tokens: words(t, prompt(6000)), MaxTokens: 1})
		time.Sleep(time.Millisecond)
		begin := time.Now()
		short := submit(t, e, engine.Request{Tokens: words(t, "short"), MaxTokens: 1})
		read(t, short)
		if took := time.Since(begin); took > 1200*time.Millisecond {
			t.Errorf("a prompt of 5 tokens took %v", took)
		}
		select {
		case <-long.Done():
			t.Error("the long prompt came first")
		default:
		}
		read(t, long)
	})
}

// next reads one token.
func next(t testing.TB, s *engine.Sequence) engine.Output {
	t.Helper()
	out, err := s.Next(t.Context())
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return out
}

func TestQueue(t *testing.T) {
	e, b := stepped(t, enginetest.Options{}, engine.Config{Parallel: 1, QueueLimit: 2})
	var all []*engine.Sequence
	for _, text := range []string{"a", "b", "c"} {
		all = append(all, submit(t, e, engine.Request{Label: text, Tokens: words(t, text), MaxTokens: 2}))
	}
	_, err := e.Submit(t.Context(), engine.Request{Tokens: words(t, "d")})
	if full, ok := err.(*engine.QueueFullError); !ok || full.Limit != 2 || full.RetryAfter < time.Second {
		t.Errorf("a fourth request for 1 slot and 2 places: %#v", err)
	}
	if b.Samplers() != 3 {
		t.Errorf("%d samplers for 3 requests", b.Samplers())
	}
	positions := func() (p [3]int) {
		for i, s := range all {
			p[i] = s.Position()
		}
		return p
	}
	for i, want := range [][3]int{{1, 2, 3}, {0, 1, 2}, {0, 1, 2}, {0, 0, 1}, {0, 0, 1}, {0, 0, 0}} {
		if got := positions(); got != want {
			t.Errorf("after %d turns: positions %v, want %v", i, got, want)
		}
		turns(t, e, 1)
	}
}

func TestStatsTellOfStalls(t *testing.T) {
	now := frozen()
	e, _ := stepped(t, enginetest.Options{}, engine.Config{Parallel: 1, OutputBuffer: 2, Now: func() time.Time { return now }})
	expect := func(when string, stalled time.Duration) {
		t.Helper()
		if got := e.Stats().Stalled; got != stalled {
			t.Errorf("%s: stalled for %v, want %v", when, got, stalled)
		}
	}
	now = now.Add(time.Minute)
	expect("idle", 0)
	s := submit(t, e, engine.Request{Tokens: words(t, "x")})
	expect("submitted", 0)
	now = now.Add(time.Second)
	expect("not yet seen", time.Second)
	turns(t, e, 1)
	expect("after a step", 0)
	now = now.Add(time.Second)
	expect("in the next step", time.Second)
	turns(t, e, -1)
	now = now.Add(time.Second)
	expect("the reader does not read", 0)
	next(t, s)
	turns(t, e, 1)
	if got := e.Stats(); got.KVTokens != 3 || got.Running != 1 || !got.LastStep.Equal(now) {
		t.Errorf("stats: %+v", got)
	}
}

// TestNeighbours: the ids of running sequences stay together, whoever ends and
// whatever is resident, and nobody's text changes.
func TestNeighbours(t *testing.T) {
	e, _ := stepped(t, enginetest.Options{Sequences: 8}, engine.Config{Parallel: 8})
	for i := range 8 { // all ids hold something afterwards
		submit(t, e, engine.Request{Tokens: words(t, fmt.Sprint(i, "old")), MaxTokens: 3})
	}
	turns(t, e, -1)
	requests, all := map[string]engine.Request{}, map[string]*engine.Sequence{}
	for i := range 6 {
		label := fmt.Sprint(i)
		requests[label] = engine.Request{Label: label, Tokens: words(t, label+prompt(10*i)), MaxTokens: 60}
		all[label] = submit(t, e, requests[label])
	}
	// One goes on with what lies far from the others.
	requests["far"] = engine.Request{Label: "far", Tokens: words(t, "7old"), MaxTokens: 60}
	all["far"] = submit(t, e, requests["far"])
	for _, gone := range []string{"", "1", "4", "0"} {
		if gone != "" {
			all[gone].Cancel()
			delete(all, gone)
		}
		turns(t, e, 8)
		ids := e.UsedIDs()
		if len(ids) != len(all) || int(ids[len(ids)-1]-ids[0]) != len(ids)-1 {
			t.Errorf("without %q the %d running ones have the ids %v", gone, len(all), ids)
		}
	}
	turns(t, e, -1)
	for label, s := range all {
		if text, want := read(t, s), alone(t, enginetest.Options{}, requests[label]); text != want {
			t.Errorf("%s: got %q, alone %q", label, text, want)
		}
	}
}
