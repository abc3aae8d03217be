package api

import (
	"context"
	"net/http"
	"time"
)

// Outcome says how a request ended.
type Outcome string

// The outcomes. Every request has exactly one, so they add up to the requests.
const (
	OutcomeStop      Outcome = "stop"
	OutcomeLength    Outcome = "length"
	OutcomeToolCalls Outcome = "tool_calls"
	OutcomeCancelled Outcome = "cancelled" // the client left, or stopped reading
	OutcomeError     Outcome = "error"     // the node failed
	OutcomeRejected  Outcome = "rejected"  // refused: the request's fault, or the node is full
)

// RequestRecord is what there is to know of one generation or embedding request
// after its end.
type RequestRecord struct {
	ID       string
	Endpoint string // closed set: chat, completions, messages, responses, embeddings, ollama_chat, ollama_generate, ollama_embed
	Model    string // canonical name; "" if the request was refused before the model was known
	Tenant   string
	Outcome  Outcome
	Status   int // of the HTTP answer
	Stream   bool

	PromptTokens     int
	CachedTokens     int
	CompletionTokens int

	TTFT      time.Duration // from the request's arrival to its first output; 0: there was none
	Intervals Intervals     // between outputs of one choice
	Total     time.Duration

	// Load, Queue, Prefill and Decode are parts of Total, see Result.
	Load, Queue, Prefill, Decode time.Duration
}

// Intervals is a histogram of the times between the outputs of each choice. An
// output is one call of the sink, usually one token.
type Intervals struct {
	Count [len(intervalBounds) + 1]uint32 // per bucket, not cumulative; the last has no bound
	Sum   time.Duration
	Max   time.Duration
}

// IntervalBounds are the upper bounds of the buckets of Intervals.
func IntervalBounds() []time.Duration { return intervalBounds[:] }

var intervalBounds = [...]time.Duration{
	500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
}

func (h *Intervals) add(d time.Duration) {
	i := 0
	for i < len(intervalBounds) && d > intervalBounds[i] {
		i++
	}
	h.Count[i]++
	h.Sum += d
	h.Max = max(h.Max, d)
}

// Total is how many intervals there were.
func (h *Intervals) Total() int {
	n := 0
	for _, c := range h.Count {
		n += int(c)
	}
	return n
}

// meter measures one request as its output passes. It belongs to the goroutine
// that calls the sink.
type meter struct {
	now       func() time.Time
	start     time.Time
	first     time.Time
	last      []time.Time // by choice
	intervals Intervals
	reasons   map[string]bool
}

func newMeter(now func() time.Time) *meter {
	return &meter{now: now, start: now(), reasons: map[string]bool{}}
}

// output notes that a choice has put something out.
func (m *meter) output(choice int) {
	now := m.now()
	if m.first.IsZero() {
		m.first = now
	}
	for len(m.last) <= choice {
		m.last = append(m.last, time.Time{})
	}
	if last := m.last[choice]; !last.IsZero() {
		m.intervals.add(now.Sub(last))
	}
	m.last[choice] = now
}

func (m *meter) finish(f Finish) { m.reasons[f.Reason] = true }

// record completes r with what was measured.
func (m *meter) record(r *RequestRecord) {
	r.Total = m.now().Sub(m.start)
	r.Intervals = m.intervals
	if !m.first.IsZero() {
		r.TTFT = m.first.Sub(m.start)
	}
}

// outcome is how a request ended: with several choices, the reason that says most.
func (m *meter) outcome(ctx context.Context, accepted bool, err error) Outcome {
	if err != nil {
		return failedOutcome(ctx, accepted, err)
	}
	for _, o := range []Outcome{OutcomeToolCalls, OutcomeLength} {
		if m.reasons[string(o)] {
			return o
		}
	}
	return OutcomeStop
}

func failedOutcome(ctx context.Context, accepted bool, err error) Outcome {
	e, cause := asError(err), context.Cause(ctx)
	switch {
	case e.Status == statusClientGone, cause != nil && asError(cause).Status == statusClientGone:
		return OutcomeCancelled
	case !accepted && (e.Status < 500 || e.Status == http.StatusServiceUnavailable):
		return OutcomeRejected
	}
	return OutcomeError
}
