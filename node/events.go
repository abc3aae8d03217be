package node

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"tandem/kvstore"
	"tandem/node/api"
)

// An event is something that happened on this node, typed: the log, the metrics
// and /admin/events all listen to the same ones, so they cannot disagree.
type event interface {
	kind() string // name in the log and on /admin/events; a closed set
	level() slog.Level
}

type (
	// ModelLoading comes before a model file is opened.
	ModelLoading struct {
		Model       string `json:"model"`
		MemoryBytes int64  `json:"memory_bytes"`
	}
	// ModelLoaded comes when a model can answer.
	ModelLoaded struct {
		Model   string  `json:"model"`
		Seconds float64 `json:"seconds"`
		Device  string  `json:"device"`
		Context int     `json:"context"`
		Slots   int     `json:"slots"`
	}
	// ModelUnloaded comes after a model's memory was freed.
	ModelUnloaded struct {
		Model  string `json:"model"`
		Reason string `json:"reason"`
	}
	// ModelFailed comes when a model could not be loaded.
	ModelFailed struct {
		Model string `json:"model"`
		Error string `json:"error"`
	}
	// RequestPlaced comes when a request was admitted and cannot be refused any
	// more.
	RequestPlaced struct {
		ID           string `json:"id"`
		Model        string `json:"model"`
		PromptTokens int    `json:"prompt_tokens"`
		Choices      int    `json:"choices"`
		Decode       string `json:"decode"`
		Forwarded    bool   `json:"forwarded,omitempty"` // to another node
		Prefill      string `json:"prefill"`
		Reason       string `json:"reason"`
		// Scores are of all nodes that could have answered, this one included.
		Scores []PlaceScore `json:"scores,omitempty"`
	}
	// RequestMoved comes when the node that computed a request was lost, or gave it up,
	// and another one goes on with it.
	RequestMoved struct {
		ID     string `json:"id"`
		Model  string `json:"model"`
		From   string `json:"from"`
		To     string `json:"to"`
		Tokens int    `json:"tokens"` // that had been generated
		Reason string `json:"reason"`
	}
	// KVWayChosen comes when a node that answers had a choice of how to get the KV of a
	// prompt; the way that was chosen is the first.
	KVWayChosen struct {
		ID           string  `json:"id"`
		Model        string  `json:"model"`
		PromptTokens int     `json:"prompt_tokens"`
		Ways         []KVWay `json:"ways"`
		Reason       string  `json:"reason"`
	}
	// KVMoved comes when blocks were got from another node, or should have been.
	KVMoved struct {
		ID        string  `json:"id"`
		Model     string  `json:"model"`
		From      string  `json:"from"`
		Made      bool    `json:"made,omitempty"` // computed for this request
		Transport string  `json:"transport,omitempty"`
		Wanted    int     `json:"wanted"` // blocks
		Blocks    int     `json:"blocks"` // that came and can be used
		Bytes     int64   `json:"bytes"`
		First     float64 `json:"first_seconds"` // until the first block was there
		Seconds   float64 `json:"seconds"`
		Estimate  float64 `json:"estimate_seconds"`
		Outcome   string  `json:"outcome"` // complete, missing, busy, no_room, damaged, unknown_shape, lost, cancelled
		Error     string  `json:"error,omitempty"`
	}
	// RequestRefused comes when a node did not take a request, which others are asked
	// to take then.
	RequestRefused struct {
		Node   string `json:"node"`
		Reason string `json:"reason"`
	}
	// MemberChanged comes when a node joins, changes its role or state, or goes.
	MemberChanged struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		State string `json:"state"`
		Role  string `json:"role"`
	}
	// LeaderChanged comes when another node leads, or none does.
	LeaderChanged struct {
		Leader string `json:"leader"` // id; "" is none
		Quorum bool   `json:"quorum"`
		Reason string `json:"reason,omitempty"`
	}
	// RequestFinished comes once for every request that was decoded, also for
	// those that were refused.
	RequestFinished struct {
		ID               string  `json:"id"`
		Endpoint         string  `json:"endpoint"`
		Model            string  `json:"model"`
		Outcome          string  `json:"outcome"`
		Status           int     `json:"status"`
		PromptTokens     int     `json:"prompt_tokens"`
		CachedTokens     int     `json:"cached_tokens"`
		CompletionTokens int     `json:"completion_tokens"`
		TTFT             float64 `json:"ttft_seconds"`
		Seconds          float64 `json:"seconds"`
		// Load, Queue, Prefill and Decode are parts of Seconds, as the node that answered
		// measured them; 0: it did not come to that.
		Load    float64 `json:"load_seconds"`
		Queue   float64 `json:"queue_seconds"` // until the first step; blocks that are fetched come in it
		Prefill float64 `json:"prefill_seconds"`
		Decode  float64 `json:"decode_seconds"`

		intervals api.Intervals // between its tokens; for the metrics only
	}
	// RequestParked comes when a request lost its slot to one that waits because its
	// client does not read; it goes on when it is read.
	RequestParked struct {
		ID     string `json:"id"`
		Model  string `json:"model"`
		Tokens int    `json:"tokens"`
	}
	// EngineRetried comes when an engine error hit a request, which is computed once
	// more.
	EngineRetried struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Error string `json:"error"`
	}
	// KVReady comes after a model was loaded and says how its KV is kept, or why it
	// is not.
	KVReady struct {
		Model       string `json:"model"`
		BlockTokens int    `json:"block_tokens"`
		BlockBytes  int    `json:"block_bytes"`
		Reason      string `json:"reason,omitempty"` // why nothing is kept
	}
	// KVFailed comes when an engine could not copy, export or import rows of a
	// request; they are computed instead.
	KVFailed struct {
		ID    string `json:"id"`
		Model string `json:"model"`
		Error string `json:"error"`
	}
	// KVChecked comes when a restored prompt was computed once more, see --kv-check.
	KVChecked struct {
		Model             string  `json:"model"`
		PromptTokens      int     `json:"prompt_tokens"`
		RestoredTokens    int     `json:"restored_tokens"`
		LargestDifference float64 `json:"largest_difference"` // of a log-probability
		Equal             bool    `json:"equal"`              // the greedy texts
	}
	// KVTier comes when something happens to the tiers of kept blocks.
	KVTier struct {
		What   string        `json:"what"` // damaged, lost, disk_failed, disk_resumed, closed
		Detail kvstore.Event `json:"detail"`
	}
	// PlanMade comes on the leader when the nodes have agreed on roles, or when its planner
	// only advises them.
	PlanMade struct {
		Epoch    uint64            `json:"epoch,omitempty"`
		Advice   bool              `json:"advice,omitempty"` // it was not proposed
		Roles    map[string]string `json:"roles"`            // by name of the node; others are hybrid
		Rollback bool              `json:"rollback,omitempty"`
		Reason   string            `json:"reason"`
		TTFTMs   float64           `json:"ttft_ms"` // forecast
		ITLMs    float64           `json:"itl_ms"`  // forecast
	}
	// RoleDraining comes when a node begins to finish what it has before it takes a role;
	// Left counts that.
	RoleDraining struct {
		From   string `json:"from"`
		To     string `json:"to"`
		Left   int    `json:"left"`
		Reason string `json:"reason"`
	}
	// RoleTaken comes when it has taken it; Left counts requests of its old part that go
	// on beside it because they took too long.
	RoleTaken struct {
		From    string  `json:"from"`
		To      string  `json:"to"`
		Seconds float64 `json:"seconds"`
		Left    int     `json:"left"`
		Reason  string  `json:"reason"`
	}
	// SelfMeasured comes when the self-benchmark of a model has ended. Rates are in
	// tokens and bytes per second; 0 is unknown.
	SelfMeasured struct {
		Model          string  `json:"model"`
		Seconds        float64 `json:"seconds"`
		PrefillRate    float64 `json:"prefill_tokens_per_second"`
		PrefillDoubles float64 `json:"prefill_doubles,omitempty"` // position at which a token takes twice as long
		DecodeRate     float64 `json:"decode_tokens_per_second"`  // of one stream
		ImportRate     float64 `json:"import_bytes_per_second,omitempty"`
		ExportRate     float64 `json:"export_bytes_per_second,omitempty"`
	}
	// PullFinished comes when a download ended; Error is "" if it is complete.
	PullFinished struct {
		Ref   string `json:"ref"`
		Bytes int64  `json:"bytes"`
		Error string `json:"error,omitempty"`
	}
	// Ready comes when the node begins or ceases to be able to answer.
	Ready struct {
		Ready  bool   `json:"ready"`
		Reason string `json:"reason,omitempty"`
	}
)

// PlaceScore is what a request would have cost on one node, as expected when it was
// placed.
type PlaceScore struct {
	Node    string  `json:"node"`    // its name
	Seconds float64 `json:"seconds"` // until the first token; 0: the policy does not look at time
	// Queue, Fetch and Prefill are parts of it.
	Queue   float64 `json:"queue_seconds"`
	Fetch   float64 `json:"fetch_seconds"`
	Prefill float64 `json:"prefill_seconds"`
	Cached  int     `json:"cached_tokens"`
	Why     string  `json:"why,omitempty"` // it was no candidate
}

// KVWay is how a node could get the KV of a prompt: "local", "fetched" from a node that
// has it, "remote" from one that computes it; and in how long, as expected.
type KVWay struct {
	Kind    string  `json:"kind"`
	From    string  `json:"from,omitempty"`
	Seconds float64 `json:"seconds"`
}

func (ModelLoading) kind() string    { return "model_loading" }
func (ModelLoaded) kind() string     { return "model_loaded" }
func (ModelUnloaded) kind() string   { return "model_unloaded" }
func (ModelFailed) kind() string     { return "model_failed" }
func (RequestPlaced) kind() string   { return "request_placed" }
func (RequestMoved) kind() string    { return "request_moved" }
func (KVWayChosen) kind() string     { return "kv_way_chosen" }
func (KVMoved) kind() string         { return "kv_moved" }
func (RequestRefused) kind() string  { return "request_refused" }
func (MemberChanged) kind() string   { return "member_changed" }
func (LeaderChanged) kind() string   { return "leader_changed" }
func (RequestFinished) kind() string { return "request_finished" }
func (RequestParked) kind() string   { return "request_parked" }
func (EngineRetried) kind() string   { return "engine_retried" }
func (KVReady) kind() string         { return "kv_ready" }
func (KVFailed) kind() string        { return "kv_failed" }
func (KVChecked) kind() string       { return "kv_checked" }
func (KVTier) kind() string          { return "kv_tier" }
func (PlanMade) kind() string        { return "plan_made" }
func (RoleDraining) kind() string    { return "role_draining" }
func (RoleTaken) kind() string       { return "role_taken" }
func (SelfMeasured) kind() string    { return "self_measured" }
func (PullFinished) kind() string    { return "pull_finished" }
func (Ready) kind() string           { return "ready" }

func (ModelLoading) level() slog.Level    { return slog.LevelInfo }
func (ModelLoaded) level() slog.Level     { return slog.LevelInfo }
func (ModelUnloaded) level() slog.Level   { return slog.LevelInfo }
func (ModelFailed) level() slog.Level     { return slog.LevelError }
func (RequestPlaced) level() slog.Level   { return slog.LevelDebug }
func (RequestMoved) level() slog.Level    { return slog.LevelWarn }
func (KVWayChosen) level() slog.Level     { return slog.LevelDebug }
func (KVMoved) level() slog.Level         { return slog.LevelInfo }
func (RequestRefused) level() slog.Level  { return slog.LevelWarn }
func (MemberChanged) level() slog.Level   { return slog.LevelInfo }
func (LeaderChanged) level() slog.Level   { return slog.LevelInfo }
func (RequestFinished) level() slog.Level { return slog.LevelInfo }
func (RequestParked) level() slog.Level   { return slog.LevelWarn }
func (EngineRetried) level() slog.Level   { return slog.LevelError }
func (KVReady) level() slog.Level         { return slog.LevelInfo }
func (KVFailed) level() slog.Level        { return slog.LevelWarn }
func (e KVChecked) level() slog.Level {
	if !e.Equal {
		return slog.LevelError
	}
	return slog.LevelInfo
}
func (KVTier) level() slog.Level       { return slog.LevelInfo }
func (PlanMade) level() slog.Level     { return slog.LevelInfo }
func (RoleDraining) level() slog.Level { return slog.LevelInfo }
func (RoleTaken) level() slog.Level    { return slog.LevelInfo }
func (SelfMeasured) level() slog.Level { return slog.LevelInfo }
func (PullFinished) level() slog.Level { return slog.LevelInfo }
func (Ready) level() slog.Level        { return slog.LevelInfo }

// subscriberBuffer is how many events a slow listener of /admin/events may lag
// behind before it loses some. A page that shows the last minute needs far less.
const subscriberBuffer = 256

// recentEvents is how many events a node remembers for pages that are opened later: a
// hundred requests or more, some hundred bytes each.
const recentEvents = 512

// eventHub hands events to listeners. Listeners run on the goroutine that emits
// and must not block; subscribers get copies through bounded channels.
type eventHub struct {
	node      string        // id of the node, in every event that goes out
	listeners []func(event) // fixed after New

	mu struct {
		sync.Mutex
		subscribers map[chan streamEvent]struct{}
		recent      []datedEvent // a ring of at most recentEvents
		next        int          // place in the ring of the next one, once it is full
	}
}

// datedEvent is an event and when it was emitted.
type datedEvent struct {
	time time.Time
	event
}

// streamEvent is an event as it goes to /admin/events.
type streamEvent struct {
	kind string
	data []byte
}

func newEventHub(node string, listeners ...func(event)) *eventHub {
	h := &eventHub{node: node, listeners: listeners}
	h.mu.subscribers = map[chan streamEvent]struct{}{}
	return h
}

func (h *eventHub) emit(e event) {
	for _, listen := range h.listeners {
		listen(e)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	dated := datedEvent{time.Now(), e}
	h.rememberLocked(dated)
	if len(h.mu.subscribers) == 0 {
		return
	}
	out, err := h.encode(dated)
	if err != nil {
		return
	}
	for ch := range h.mu.subscribers {
		select {
		case ch <- out:
		default: // the subscriber lags: it loses this one and sees a gap in time
		}
	}
}

func (h *eventHub) rememberLocked(e datedEvent) {
	if len(h.mu.recent) < recentEvents {
		h.mu.recent = append(h.mu.recent, e)
		return
	}
	h.mu.recent[h.mu.next] = e
	h.mu.next = (h.mu.next + 1) % recentEvents
}

// encode makes JSON of an event.
func (h *eventHub) encode(e datedEvent) (streamEvent, error) {
	data, err := json.Marshal(struct {
		Time time.Time `json:"time"`
		Node string    `json:"node"`
		Kind string    `json:"kind"`
		Data event     `json:"data"`
	}{e.time, h.node, e.kind(), e.event})
	return streamEvent{e.kind(), data}, err
}

// open begins a subscription: what is remembered, oldest first, and what comes from
// then on, with nothing missing or twice in between. end ends it.
func (h *eventHub) open() (recent []datedEvent, ch <-chan streamEvent, end func()) {
	c := make(chan streamEvent, subscriberBuffer)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.subscribers[c] = struct{}{}
	recent = append(append(recent, h.mu.recent[h.mu.next:]...), h.mu.recent[:h.mu.next]...)
	return recent, c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.mu.subscribers, c)
	}
}

// subscribe calls opened, and each for every event since, until ctx ends or each fails.
func (h *eventHub) subscribe(ctx context.Context, opened func(), each func(name string, data []byte) error) error {
	_, ch, end := h.open()
	defer end()
	opened()
	for {
		select {
		case e := <-ch:
			if err := each(e.kind, e.data); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// logEvents is the listener that writes the log.
func logEvents(log *slog.Logger) func(event) {
	return func(e event) {
		if !log.Enabled(context.Background(), e.level()) {
			return
		}
		log.LogAttrs(context.Background(), e.level(), e.kind(), attributes(e)...)
	}
}

// attributes are the fields of an event by their JSON names, in order.
func attributes(e event) []slog.Attr {
	data, err := json.Marshal(e)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var out []slog.Attr
	if _, err := dec.Token(); err != nil {
		return nil
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return out
		}
		var value any
		if dec.Decode(&value) != nil {
			return out
		}
		out = append(out, slog.Any(key.(string), value))
	}
	return out
}
