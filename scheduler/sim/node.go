package sim

import (
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// NodeSpec is a node as it is modelled.
type NodeSpec struct {
	Name           string
	PrefillRate    float64 // prompt tokens/s at short contexts
	PrefillContext float64 // tokens at which one takes twice as long; 0: never
	DecodeMs       float64 // between tokens of one stream
	DecodeMsMore   float64 // for each further one
	Slots          int
	Queue          int // requests that may wait; 0: without limit
	Blocks         int // that its cache holds
}

// chunk sizes of prompts: alone, and beside answers that are written.
const (
	chunkAlone  = 2048
	chunkBeside = 512
)

// job is a request on its way.
type job struct {
	number   int
	arrival  *Arrival
	at       time.Duration // of its arrival
	node     *node
	admitted time.Duration
	computed int // prompt tokens that need no more computing
	cached   int
	begun    bool // its cache hit is counted
	left     int  // tokens of the answer
	first    time.Duration
	done     time.Duration
	way      time.Duration // of tokens back to the entry node
	exclude  []member.ID
}

// node is a model of one.
//
// Invariants: running holds at most Slots jobs; a step is under way while anything
// runs and the node is up.
type node struct {
	sim     *sim
	spec    NodeSpec
	id      member.ID
	up      bool
	epoch   int // of its process; steps and reports of an earlier one are void
	cache   *cache
	feed    *scheduler.Feed
	queue   []*job
	running []*job
	busy    bool
	slotMs  float64
	given   int // requests
}

// give puts a job into the queue. False: the queue is full, or the node is down.
func (n *node) give(j *job) (ok, down bool) {
	if !n.up {
		return false, true
	}
	if n.spec.Queue > 0 && len(n.running) >= n.spec.Slots && len(n.queue) >= n.spec.Queue {
		return false, false
	}
	j.node = n
	n.given++
	n.queue = append(n.queue, j)
	n.step()
	n.sim.report(n)
	return true, false
}

// waiting is the prompt tokens that are not computed yet.
func (n *node) waiting() (tokens int) {
	for _, j := range n.running {
		tokens += j.arrival.Input - j.computed
	}
	for _, j := range n.queue {
		held := n.cache.held(j.arrival.Blocks) * n.sim.o.BlockTokens
		tokens += max(1, j.arrival.Input-held)
	}
	return tokens
}

// active is the tokens whose KV running jobs use.
func (n *node) active() (tokens int) {
	for _, j := range n.running {
		tokens += j.arrival.Input
	}
	return tokens
}

// admit fills slots from the queue.
func (n *node) admit() {
	for len(n.queue) > 0 && len(n.running) < n.spec.Slots {
		j := n.queue[0]
		n.queue = n.queue[1:]
		j.admitted = n.sim.now
		j.computed, j.begun = 0, false
		n.running = append(n.running, j)
	}
}

// step begins the next step, if there is anything to do and none is under way.
func (n *node) step() {
	n.admit()
	if n.busy || len(n.running) == 0 || !n.up {
		return
	}
	decoding := 0
	for _, j := range n.running {
		if j.computed == j.arrival.Input {
			decoding++
		}
	}
	ms := 0.0
	budget := chunkAlone
	if decoding > 0 {
		ms = n.spec.DecodeMs + float64(decoding-1)*n.spec.DecodeMsMore
		budget = chunkBeside
	}
	type piece struct {
		j      *job
		tokens int
	}
	var pieces []piece
	for _, j := range n.running {
		if budget == 0 || j.computed == j.arrival.Input {
			continue
		}
		n.begin(j)
		tokens := min(budget, j.arrival.Input-j.computed)
		budget -= tokens
		pieces = append(pieces, piece{j, tokens})
		ms += n.prefillMs(j.computed, tokens)
	}
	n.busy = true
	epoch := n.epoch
	n.sim.after(milliseconds(ms), func() {
		if n.epoch != epoch {
			return
		}
		n.busy = false
		n.writeTokens()
		for _, p := range pieces {
			n.compute(p.j, p.tokens)
		}
		n.step()
	})
}

// begin looks for a prefix as late as possible: just before the first token is
// computed.
func (n *node) begin(j *job) {
	if j.begun {
		return
	}
	j.begun = true
	j.cached = max(0, min(n.cache.held(j.arrival.Blocks)*n.sim.o.BlockTokens, j.arrival.Input-1))
	j.computed = j.cached
}

func (n *node) prefillMs(from, tokens int) float64 {
	ms := float64(tokens) / n.spec.PrefillRate * 1000
	if n.spec.PrefillContext > 0 {
		ms *= 1 + (float64(from)+float64(tokens)/2)/n.spec.PrefillContext
	}
	return ms
}

// compute is the end of a step for a prompt. The last chunk gives the first token.
func (n *node) compute(j *job, tokens int) {
	j.computed += tokens
	if j.computed < j.arrival.Input {
		return
	}
	n.keep(j)
	if j.first == 0 {
		j.first = n.sim.now + j.way
	}
	if j.left--; j.left <= 0 {
		n.end(j)
	}
}

// writeTokens gives each answer that is written one more token.
func (n *node) writeTokens() {
	for i := 0; i < len(n.running); {
		j := n.running[i]
		if j.computed == j.arrival.Input {
			if j.left--; j.left <= 0 {
				n.end(j)
				continue
			}
		}
		i++
	}
}

// keep puts the blocks of a prompt into the cache and tells the others.
func (n *node) keep(j *job) {
	added, evicted := n.cache.use(j.arrival.Blocks)
	n.sim.publish(n, n.feed.Events(scheduler.Removed, scheduler.Resident, ids(evicted)))
	n.sim.publish(n, n.feed.Events(scheduler.Stored, scheduler.Resident, ids(added)))
}

// end frees the slot of a job that is done.
func (n *node) end(j *job) {
	for i := range n.running {
		if n.running[i] == j {
			n.running = append(n.running[:i:i], n.running[i+1:]...)
			break
		}
	}
	j.done = n.sim.now + j.way
	const share = 0.1 // of a new value
	ms := float64(n.sim.now-j.admitted) / float64(time.Millisecond)
	if n.slotMs == 0 {
		n.slotMs = ms
	}
	n.slotMs += share * (ms - n.slotMs)
	n.sim.ended(j)
}

// fail ends the process; all that it had is lost.
func (n *node) fail() []*job {
	lost := append(n.running, n.queue...)
	n.up, n.busy = false, false
	n.epoch++
	n.running, n.queue = nil, nil
	n.cache = newCache(n.spec.Blocks)
	return lost
}

// start begins a new process.
func (n *node) start(origin uint64) {
	n.up = true
	n.feed = scheduler.NewFeed(origin)
}

// report is what a node tells of its load.
func (n *node) report() scheduler.Model {
	return scheduler.Model{
		Running: len(n.running), Queued: len(n.queue), Waiting: n.waiting(), Active: n.active(),
		SlotMs: scheduler.Figure{Value: n.slotMs},
	}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
