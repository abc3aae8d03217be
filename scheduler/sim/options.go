package sim

import (
	"errors"
	"fmt"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// Limits of a run: what is larger does not fit an ordinary machine's memory.
const (
	NodesMax    = 10_000
	entriesMax  = 64
	slotsMax    = 4096
	blockTokMax = 1 << 16
)

// NodeSpec is a node as it is modelled.
type NodeSpec struct {
	Name       string
	Engine     Engine
	Role       member.Role // "": hybrid
	Slots      int         // requests at once
	Queue      int         // requests that may wait; 0: without limit
	KVTokens   int         // that the engine has room for
	RAMTokens  int         // of kept blocks in memory; 0: no such tier
	DiskTokens int         // and on disk
	HostBps    float64     // bytes/s between memory and the engine
	DiskBps    float64     // bytes/s from disk
	LinkBps    float64     // goodput of its link, each way, bytes/s
}

// Outage is a time in which a node is dead, or (Frozen) does nothing but loses nothing
// either. A dead one comes back with what it kept on disk.
type Outage struct {
	Node     int
	From, To time.Duration
	Frozen   bool
}

// Observed is what a planner sees of a node.
type Observed struct {
	Name            string
	Role            member.Role
	Up              bool
	Running, Queued int
	Waiting         int // prompt tokens that are not computed yet
	KVUsed, KVRoom  int // blocks
	PrefillRate     float64
	BusyShare       float64 // of the time since the last look
}

// Planner says which role each node has from now on. It is asked every
// Options.PlanEvery with what is observed; nil keeps all roles. Nodes finish what they
// have.
type Planner func(now time.Duration, nodes []Observed) []member.Role

// SLO are times that a request should meet: until its first token, and on average
// between those after it. 0: none.
type SLO struct{ TTFT, ITL time.Duration }

// Options are everything that a run depends on.
type Options struct {
	Policy        string
	Disagg        scheduler.Disagg
	Transfers     bool // nodes move KV between each other
	Nodes         []NodeSpec
	Arrivals      []Arrival
	BlockTokens   int     // of a block of the trace; 0: 512
	BytesPerToken int     // of KV; 0: 131,072
	Speed         float64 // arrivals come so much faster; 0: 1
	Seed          uint64
	// Entries is how many nodes take requests from clients; 0: up to 4. Which one a
	// request comes to is drawn.
	Entries int
	// Spread puts arrivals of equal times evenly between that time and the next: for
	// traces whose clock is coarse.
	Spread      bool
	ChunkAlone  int // prompt tokens of a step if nobody decodes; 0: 512
	ChunkBeside int // and if somebody does; 0: 512
	// Apart lets no step compute prompts and answers: prompts go first, as engines did it
	// that could not mix them.
	Apart bool
	// OneWay lets nodes that compute prompts for others pull nothing for that.
	OneWay      bool
	Each        bool          // Result.Each is wanted
	ReportEvery time.Duration // the least time between two reports of a node's load; 0: 200 ms
	RTT         time.Duration // between nodes; 0: 0.5 ms
	EventDelay  time.Duration // until an index event is known elsewhere; 0: 50 ms
	PredictFor  time.Duration // 0: 4 s; less: predict nothing
	DetectAfter time.Duration // until a failed node is seen as failed; 0: 3.5 s
	Outages     []Outage
	Tuning      scheduler.Tuning
	SLO         SLO
	Planner     Planner
	PlanEvery   time.Duration // 0: 5 s
	// Stop ends the run when the request of this number, counted from 1, has its first
	// token; 0: when all are answered.
	Stop int
	// Forced are placements that no policy makes, by number of the request from 0.
	Forced map[int]Choice
	plant  fault // tests only
}

// Choice is a node and a way, as places in Options.Nodes.
type Choice struct {
	Node int
	Kind scheduler.WayKind
	From int
}

func (o Options) filled() Options {
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	number := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Policy == "" {
		o.Policy = "cost"
	}
	number(&o.BlockTokens, 512)
	number(&o.BytesPerToken, 131_072)
	number(&o.Entries, min(len(o.Nodes), 4))
	number(&o.ChunkAlone, 512)
	number(&o.ChunkBeside, 512)
	set(&o.ReportEvery, 200*time.Millisecond)
	set(&o.RTT, 500*time.Microsecond)
	set(&o.EventDelay, 50*time.Millisecond)
	set(&o.PredictFor, 4*time.Second)
	set(&o.DetectAfter, 3500*time.Millisecond)
	set(&o.PlanEvery, 5*time.Second)
	return o
}

// validate lists all faults.
func (o Options) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Nodes) == 0 || len(o.Nodes) > NodesMax {
		fault("nodes: %d; allowed are 1 to %d", len(o.Nodes), NodesMax)
	}
	if len(o.Arrivals) == 0 || len(o.Arrivals) > requestsMax {
		fault("requests: %d; allowed are 1 to %d", len(o.Arrivals), requestsMax)
	}
	decodes := false
	for i, n := range o.Nodes {
		switch n.Role {
		case "", member.Hybrid, member.Decode:
			decodes = true
		case member.Prefill:
		default:
			fault("node %d (%s): role %.16q; allowed are hybrid, prefill and decode", i, n.Name, n.Role)
		}
		if n.Engine.ComputeRate <= 0 || n.Engine.WeightsMs < 0 || n.Slots < 1 || n.Slots > slotsMax || n.LinkBps <= 0 || n.HostBps <= 0 {
			fault("node %d (%s): rates must be more than 0 and slots 1 to %d", i, n.Name, slotsMax)
		}
		if n.KVTokens < o.BlockTokens || n.RAMTokens < 0 || n.DiskTokens < 0 || n.DiskTokens > 0 && n.DiskBps <= 0 {
			fault("node %d (%s): room for %d tokens of KV is less than one block of %d, or a tier is negative", i, n.Name, n.KVTokens, o.BlockTokens)
		}
	}
	if !decodes && len(o.Nodes) > 0 {
		fault("nodes: all compute prompts only; one must be hybrid or decode")
	}
	if o.Entries < 1 || o.Entries > min(len(o.Nodes), entriesMax) {
		fault("entries: %d; allowed are 1 to %d", o.Entries, min(len(o.Nodes), entriesMax))
	}
	if o.Speed < 0 || o.BlockTokens < 1 || o.BlockTokens > blockTokMax || o.BytesPerToken < 1 || o.ChunkAlone < 1 || o.ChunkBeside < 1 {
		fault("speed %g, block of %d tokens, %d bytes a token, chunks of %d and %d: they must be more than 0, blocks at most %d", o.Speed, o.BlockTokens, o.BytesPerToken, o.ChunkAlone, o.ChunkBeside, blockTokMax)
	}
	switch o.Disagg {
	case "", scheduler.DisaggAuto, scheduler.DisaggAlways, scheduler.DisaggNever, scheduler.DisaggDynamo:
	default:
		fault("disagg %.16q; allowed are auto, always, never and dynamo", o.Disagg)
	}
	for _, out := range o.Outages {
		if out.Node < 0 || out.Node >= len(o.Nodes) || out.From < 0 || out.To <= out.From {
			fault("outage of node %d from %v to %v: there are %d nodes, and it must end after it begins", out.Node, out.From, out.To, len(o.Nodes))
		}
	}
	return errors.Join(errs...)
}
