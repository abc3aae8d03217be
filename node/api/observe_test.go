package api

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

// TestOutcomesAddUp: whatever happens to a request, it is recorded once.
func TestOutcomesAddUp(t *testing.T) {
	finish := func(reasons ...string) func(context.Context, *Request, Sink) (Result, error) {
		return func(_ context.Context, _ *Request, out Sink) (Result, error) {
			out.Accepted(accepted())
			for i, reason := range reasons {
				_ = out.Delta(i, Delta{Content: "x"})
				_ = out.Finish(i, Finish{Reason: reason})
			}
			return Result{Usage: Usage{PromptTokens: 5, CachedTokens: 1, CompletionTokens: len(reasons)}}, nil
		}
	}
	refuse := func(err error) func(context.Context, *Request, Sink) (Result, error) {
		return func(context.Context, *Request, Sink) (Result, error) { return Result{}, err }
	}
	fail := func(err error) func(context.Context, *Request, Sink) (Result, error) {
		return func(_ context.Context, _ *Request, out Sink) (Result, error) {
			out.Accepted(accepted())
			return Result{Usage: Usage{PromptTokens: 5}}, err
		}
	}
	for name, tc := range map[string]struct {
		path, body string
		generate   func(context.Context, *Request, Sink) (Result, error)
		outcome    Outcome
		status     int
		model      string
	}{
		"stop":              {"/v1/chat/completions", chatBody(""), finish("stop"), OutcomeStop, 200, "m:latest"},
		"length":            {"/v1/chat/completions", chatBody(`"stream":true`), finish("length"), OutcomeLength, 200, "m:latest"},
		"tool calls":        {"/v1/chat/completions", chatBody(""), finish("tool_calls"), OutcomeToolCalls, 200, "m:latest"},
		"two choices":       {"/v1/chat/completions", chatBody(`"n":2`), finish("stop", "length"), OutcomeLength, 200, "m:latest"},
		"refused at decode": {"/v1/chat/completions", `{"model":"m","messages":[]}`, nil, OutcomeRejected, 400, ""},
		"no JSON":           {"/v1/completions", `{`, nil, OutcomeRejected, 400, ""},
		"no such model":     {"/v1/chat/completions", chatBody(""), refuse(NotFound("m")), OutcomeRejected, 404, ""},
		"queue full":        {"/api/chat", chatBody(""), refuse(Busy(429, time.Second, "full")), OutcomeRejected, 429, ""},
		"busy":              {"/v1/chat/completions", chatBody(`"stream":true`), refuse(Busy(503, time.Second, "loading")), OutcomeRejected, 503, ""},
		"failed early":      {"/v1/chat/completions", chatBody(""), refuse(errors.New("x")), OutcomeError, 500, ""},
		"failed late":       {"/v1/chat/completions", chatBody(""), fail(errors.New("x")), OutcomeError, 500, "m:latest"},
		"failed in stream":  {"/v1/chat/completions", chatBody(`"stream":true`), fail(errors.New("x")), OutcomeError, 200, "m:latest"},
		"stopping":          {"/v1/chat/completions", chatBody(`"stream":true`), fail(Busy(503, time.Second, "stopping")), OutcomeError, 200, "m:latest"},
		"load":              {"/api/generate", `{"model":"m"}`, nil, OutcomeStop, 200, ""},
		"embeddings":        {"/v1/embeddings", `{"model":"m","input":"x"}`, nil, OutcomeStop, 200, "m"},
		"bad embeddings":    {"/api/embed", `{"model":"m"}`, nil, OutcomeRejected, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, Config{})
			n.generator.generate = tc.generate
			if r := n.post(tc.path, tc.body); r.status != tc.status {
				t.Errorf("status %d, want %d: %s", r.status, tc.status, r.body)
			}
			rec := n.records.next(t)
			if rec.Outcome != tc.outcome || rec.Status != tc.status || rec.Model != tc.model || rec.Endpoint == "" || rec.ID == "" {
				t.Errorf("recorded as %+v", rec)
			}
			n.do(http.MethodGet, "/v1/models", "") // no generation request: no record
			if len(n.records) != 0 {
				t.Errorf("recorded again: %+v", <-n.records)
			}
		})
	}
}

// clock is a time that moves by hand.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func TestTimesOfARequest(t *testing.T) {
	c := &clock{time.Unix(1, 0)}
	n := start(t, Config{Now: c.now})
	n.generator.generate = func(_ context.Context, _ *Request, out Sink) (Result, error) {
		c.advance(100 * time.Millisecond)
		out.Accepted(accepted())
		c.advance(200 * time.Millisecond)
		_ = out.Delta(0, Delta{Content: "a"}) // first at 300
		c.advance(5 * time.Millisecond)
		_ = out.Delta(1, Delta{Content: "a"}) // another choice: no interval
		c.advance(5 * time.Millisecond)
		_ = out.Delta(0, Delta{Content: "b"}) // 10 after its last
		c.advance(20 * time.Second)
		_ = out.Delta(1, Delta{Content: "b"}) // 20.005 s after its last
		_ = out.Finish(0, Finish{Reason: "stop"})
		_ = out.Finish(1, Finish{Reason: "stop"})
		return Result{}, nil
	}
	n.post("/v1/chat/completions", chatBody(`"n":2`))
	rec := n.records.next(t)
	if rec.TTFT != 300*time.Millisecond || rec.Total != 20310*time.Millisecond {
		t.Errorf("TTFT %v, total %v", rec.TTFT, rec.Total)
	}
	in := rec.Intervals
	if in.Total() != 2 || in.Sum != 20015*time.Millisecond || in.Max != 20005*time.Millisecond {
		t.Errorf("intervals %+v", in)
	}
	for i, bound := range IntervalBounds() {
		if want := uint32(0); bound == 10*time.Millisecond && in.Count[i] != 1 || bound != 10*time.Millisecond && in.Count[i] != want {
			t.Errorf("%d intervals in the bucket up to %v", in.Count[i], bound)
		}
	}
	if in.Count[len(IntervalBounds())] != 1 {
		t.Errorf("%d intervals above all bounds", in.Count[len(IntervalBounds())])
	}
}

func TestIDsAreUnique(t *testing.T) {
	n := start(t, Config{})
	seen := map[any]bool{}
	for range 100 {
		r := n.post("/v1/chat/completions", chatBody(""))
		id := r.json(t)["id"]
		if seen[id] || r.header.Get("X-Tandem-Request-Id") != id || n.records.next(t).ID != id {
			t.Fatalf("id %v", id)
		}
		seen[id] = true
	}
}

func TestBestOf(t *testing.T) {
	n := start(t, Config{})
	n.generator.generate = func(_ context.Context, r *Request, out Sink) (Result, error) {
		if r.Sampling.TopLogprobs != 0 || r.N != 3 {
			t.Errorf("asked for %d choices with top_logprobs %d", r.N, r.Sampling.TopLogprobs)
		}
		out.Accepted(accepted())
		for i, lp := range []float64{-3, -1, -2, -1, -5, -4} { // two prompts
			_ = out.Delta(i, Delta{Content: string(rune('a' + i)), Logprobs: []TokenLogprob{{Bytes: []byte("x"), Logprob: lp}}})
			_ = out.Finish(i, Finish{Reason: "stop"})
		}
		return Result{}, nil
	}
	r := n.post("/v1/completions", `{"model":"m","prompt":["p","q"],"n":2,"best_of":3,"echo":true}`)
	var texts string
	for i, c := range r.json(t)["choices"].([]any) {
		choice := c.(map[string]any)
		texts += choice["text"].(string) + " "
		if choice["index"] != float64(i) || choice["logprobs"] != nil {
			t.Errorf("choice %v", choice)
		}
	}
	if texts != "pb pc qd qf " {
		t.Errorf("picked %q", texts)
	}
}
