package node

import (
	"sync"
	"time"

	"tandem/node/api"
)

// Bounds of what is remembered of requests.
const (
	timelinesKept = api.MaxRecentRequests
	// timelinesOpen is how many requests that have not ended here are remembered; more
	// run only on behalf of other nodes, whose ends are not told.
	timelinesOpen = 1024
	// movesKept is how many transfers and moves of one request are remembered.
	movesKept = 16
)

// RequestTimeline is one request after its end: how long each part took, which way
// its KV came, and why.
type RequestTimeline struct {
	Seq      uint64    `json:"seq"` // rises by one with each request that ended on this node
	ID       string    `json:"id"`
	Endpoint string    `json:"endpoint"`
	Model    string    `json:"model"`
	Outcome  string    `json:"outcome"`
	Status   int       `json:"status"`
	Began    time.Time `json:"began"`

	Node    string `json:"node,omitempty"`    // that answered; "": it was refused
	Prefill string `json:"prefill,omitempty"` // the node that computed most of the prompt, or "local"
	Reason  string `json:"reason,omitempty"`  // why there

	PromptTokens     int `json:"prompt_tokens"`
	CachedTokens     int `json:"cached_tokens"`
	CompletionTokens int `json:"completion_tokens"`

	Seconds     float64 `json:"seconds"`
	TTFTSeconds float64 `json:"ttft_seconds"`
	// Parts of Seconds, as the node that answered measured them.
	LoadSeconds    float64 `json:"load_seconds"`
	QueueSeconds   float64 `json:"queue_seconds"` // with the blocks that came meanwhile
	PrefillSeconds float64 `json:"prefill_seconds"`
	DecodeSeconds  float64 `json:"decode_seconds"`

	Ways    []KVWay        `json:"ways,omitempty"`    // how the KV could have come; the first was taken
	Fetches []KVFetch      `json:"fetches,omitempty"` // transfers of KV to this node
	Moves   []RequestMoved `json:"moves,omitempty"`   // to other nodes, after the loss of one
}

// KVFetch is one transfer of KV blocks, and when it ended.
type KVFetch struct {
	Ended time.Time `json:"ended"`
	KVMoved
}

// timelines puts requests together from the events of this node. What a node does on
// behalf of another one is in the timeline there, but for transfers of KV.
type timelines struct {
	now   func() time.Time
	ended func(*RequestTimeline) // called without the lock; nil: nobody wants to know
	moved func(KVFetch)          // called without the lock; nil: nobody wants to know

	mu struct {
		sync.Mutex
		open  map[string]*RequestTimeline
		order []string // keys of open, oldest first, with some that have ended
		seq   uint64
		past  []*RequestTimeline // a ring; the request with number seq is at seq % timelinesKept
	}
}

func newTimelines(now func() time.Time) *timelines {
	t := &timelines{now: now}
	t.mu.open = map[string]*RequestTimeline{}
	t.mu.past = make([]*RequestTimeline, timelinesKept)
	return t
}

// listen is a listener of events.
func (t *timelines) listen(e event) {
	switch e := e.(type) {
	case RequestPlaced:
		t.note(e.ID, func(r *RequestTimeline) { r.Node, r.Prefill, r.Reason = e.Decode, e.Prefill, e.Reason })
	case KVWayChosen:
		t.note(e.ID, func(r *RequestTimeline) { r.Ways = e.Ways })
	case RequestMoved:
		t.note(e.ID, func(r *RequestTimeline) {
			if r.Node = e.To; len(r.Moves) < movesKept {
				r.Moves = append(r.Moves, e)
			}
		})
	case KVMoved:
		f := KVFetch{Ended: t.now(), KVMoved: e}
		t.note(e.ID, func(r *RequestTimeline) {
			if len(r.Fetches) < movesKept {
				r.Fetches = append(r.Fetches, f)
			}
		})
		if t.moved != nil {
			t.moved(f)
		}
	case RequestFinished:
		t.finish(e)
	}
}

// note changes the timeline of a request that runs.
func (t *timelines) note(id string, change func(*RequestTimeline)) {
	if id == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.mu.open[id]
	if r == nil {
		r = &RequestTimeline{ID: id}
		t.mu.open[id] = r
		t.mu.order = append(t.mu.order, id)
		t.forgetLocked()
	}
	change(r)
}

// forgetLocked drops the oldest of too many, and names of those that have ended.
func (t *timelines) forgetLocked() {
	for len(t.mu.open) > timelinesOpen || len(t.mu.order) > 2*timelinesOpen {
		delete(t.mu.open, t.mu.order[0])
		t.mu.order = t.mu.order[1:]
	}
}

func (t *timelines) finish(e RequestFinished) {
	t.mu.Lock()
	r := t.mu.open[e.ID]
	if r == nil {
		r = &RequestTimeline{ID: e.ID}
	}
	delete(t.mu.open, e.ID)
	t.mu.seq++
	r.Seq, r.Endpoint, r.Model, r.Outcome, r.Status = t.mu.seq, e.Endpoint, e.Model, e.Outcome, e.Status
	r.Began = t.now().Add(-seconds(e.Seconds))
	r.PromptTokens, r.CachedTokens, r.CompletionTokens = e.PromptTokens, e.CachedTokens, e.CompletionTokens
	r.Seconds, r.TTFTSeconds = e.Seconds, e.TTFT
	r.LoadSeconds, r.QueueSeconds, r.PrefillSeconds, r.DecodeSeconds = e.Load, e.Queue, e.Prefill, e.Decode
	t.mu.past[r.Seq%timelinesKept] = r
	t.mu.Unlock()
	if t.ended != nil {
		t.ended(r)
	}
}

// recent lists at most limit requests with numbers above after, the oldest first. Of
// more than that the newest are given. A timeline that has ended is not changed.
func (t *timelines) recent(after uint64, limit int) RecentRequests {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.mu.seq
	first := max(after, last-min(last, uint64(min(limit, timelinesKept))))
	out := RecentRequests{Last: last, Requests: []*RequestTimeline{}}
	for seq := first + 1; seq <= last; seq++ {
		out.Requests = append(out.Requests, t.mu.past[seq%timelinesKept])
	}
	return out
}

// RecentRequests are requests that ended on a node, the oldest first.
type RecentRequests struct {
	Last     uint64             `json:"last"` // number of the last one; for the next question
	Requests []*RequestTimeline `json:"requests"`
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
