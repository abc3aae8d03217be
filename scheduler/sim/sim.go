package sim

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/scheduler"
)

// Options are everything that a run depends on.
type Options struct {
	Policy      string
	Nodes       []NodeSpec
	Arrivals    []Arrival
	BlockTokens int     // of a block of the trace; 0: 512
	Speed       float64 // arrivals come so much faster; 0: 1
	Seed        uint64
	// Entries is how many nodes take requests from clients; 0: all. Which one a
	// request comes to is drawn.
	Entries int
	// Spread puts arrivals of equal times evenly between that time and the next: for
	// traces whose clock is coarse.
	Spread      bool
	ReportEvery time.Duration // and with each request that a node takes or ends; 0: 250 ms
	RTT         time.Duration // between nodes; 0: 1 ms
	EventDelay  time.Duration // until an index event is known elsewhere; 0: 50 ms
	PredictFor  time.Duration // 0: 3 s; less: predict nothing
	DetectAfter time.Duration // until a failed node is seen as failed; 0: 3 s
	Outages     []Outage
	Tuning      scheduler.Tuning
}

// Outage is a time in which a node is dead. It comes back with an empty cache.
type Outage struct {
	Node     int
	From, To time.Duration
}

func (o Options) filled() Options {
	set := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	if o.BlockTokens == 0 {
		o.BlockTokens = 512
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if o.Entries == 0 {
		o.Entries = len(o.Nodes)
	}
	set(&o.ReportEvery, 250*time.Millisecond)
	set(&o.RTT, time.Millisecond)
	set(&o.EventDelay, 50*time.Millisecond)
	set(&o.PredictFor, 3*time.Second)
	set(&o.DetectAfter, 3*time.Second)
	return o
}

func (o Options) validate() error {
	var errs []error
	if len(o.Nodes) == 0 || len(o.Nodes) > scheduler.NodesMax {
		errs = append(errs, fmt.Errorf("%d nodes; allowed are 1 to %d", len(o.Nodes), scheduler.NodesMax))
	}
	for _, n := range o.Nodes {
		if n.PrefillRate <= 0 || n.DecodeMs <= 0 || n.Slots < 1 || n.Blocks < 1 {
			errs = append(errs, fmt.Errorf("node %q: rate, decode time, slots and blocks must be more than 0", n.Name))
		}
	}
	if o.Entries < 0 || o.Entries > len(o.Nodes) || o.Speed < 0 || o.BlockTokens < 0 {
		errs = append(errs, fmt.Errorf("entries %d, speed %g, block tokens %d: they must not be negative, nor more entries than nodes", o.Entries, o.Speed, o.BlockTokens))
	}
	for _, out := range o.Outages {
		if out.Node < 0 || out.Node >= len(o.Nodes) || out.To <= out.From {
			errs = append(errs, fmt.Errorf("outage of node %d from %v to %v: there are %d nodes, and it must end after it begins", out.Node, out.From, out.To, len(o.Nodes)))
		}
	}
	return errors.Join(errs...)
}

// modelName is that of the one model that all nodes have.
const modelName = "m"

// sim is one run.
type sim struct {
	o       Options
	policy  scheduler.Policy
	random  *rand.Rand
	now     time.Duration
	events  events
	order   uint64
	nodes   []*node
	entries []*entry
	jobs    []*job
	open    int
	result  Result
}

// entry is what a node that takes requests knows of the others.
type entry struct {
	node   *node
	index  *scheduler.Index
	ledger *scheduler.Ledger
	seen   []seen
	number uint64
}

// seen is what an entry knows of one node.
type seen struct {
	load   scheduler.Model
	at     time.Duration // when the load was reported
	state  member.State
	mark   scheduler.MarkKind
	markAt time.Duration
}

// Run runs one policy.
func Run(o Options) (Result, error) {
	o = o.filled()
	if err := o.validate(); err != nil {
		return Result{}, err
	}
	policy, err := scheduler.PolicyByName(o.Policy)
	if err != nil {
		return Result{}, err
	}
	s := &sim{o: o, policy: policy, random: rand.New(rand.NewPCG(o.Seed, 1))}
	s.build()
	s.schedule()
	for s.open > 0 && len(s.events) > 0 {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		e.do()
	}
	return s.summary(), nil
}

func (s *sim) build() {
	for i, spec := range s.o.Nodes {
		n := &node{sim: s, spec: spec, id: nodeID(i), cache: newCache(spec.Blocks)}
		n.start(uint64(i)<<32 | 1)
		s.nodes = append(s.nodes, n)
	}
	for i := range s.o.Entries {
		e := &entry{node: s.nodes[i], index: scheduler.NewIndex(scheduler.Limits{}), ledger: scheduler.NewLedger()}
		for range s.nodes {
			e.seen = append(e.seen, seen{state: member.Alive})
		}
		s.entries = append(s.entries, e)
	}
}

// schedule puts in all that is known at the start.
func (s *sim) schedule() {
	s.open = len(s.o.Arrivals)
	if s.o.Spread {
		s.o.Arrivals = spread(s.o.Arrivals)
	}
	for i := range s.o.Arrivals {
		a := &s.o.Arrivals[i]
		j := &job{number: i, arrival: a, at: time.Duration(float64(a.At) / s.o.Speed), left: max(1, a.Output)}
		s.jobs = append(s.jobs, j)
		e := s.entries[s.random.IntN(len(s.entries))]
		s.at(j.at, func() { s.place(e, j) })
	}
	for i, n := range s.nodes {
		offset := s.o.ReportEvery * time.Duration(i) / time.Duration(len(s.nodes))
		s.at(offset, func() { s.reports(n) })
	}
	for _, out := range s.o.Outages {
		n := s.nodes[out.Node]
		s.at(out.From, func() { s.down(n) })
		s.at(out.To, func() { s.restart(n) })
	}
}

// spread is Options.Spread; arrivals must be in order, and those of the last time stay.
func spread(list []Arrival) []Arrival {
	list = slices.Clone(list)
	for from, to := 0, 0; from < len(list); from = to {
		for to = from; to < len(list) && list[to].At == list[from].At; to++ {
		}
		if to == len(list) {
			break
		}
		step := (list[to].At - list[from].At) / time.Duration(to-from)
		for i := from; i < to; i++ {
			list[i].At += step * time.Duration(i-from)
		}
	}
	return list
}

// place asks the policy of an entry, and again if that goes wrong.
func (s *sim) place(e *entry, j *job) {
	if !e.node.up { // the client tries another node
		for range s.entries {
			if e = s.entries[s.random.IntN(len(s.entries))]; e.node.up {
				break
			}
		}
		if !e.node.up {
			s.result.Retries++
			s.after(time.Second, func() { s.place(e, j) })
			return
		}
	}
	e.number++
	chain := ids(j.arrival.Blocks)
	r := scheduler.Request{
		Model: modelName, Tokens: j.arrival.Input, BlockTokens: s.o.BlockTokens, BytesPerToken: 131072,
		Holdings: e.index.Match(chain, s.clock()), Exclude: j.exclude,
		Number: e.number, Seed: s.random.Uint64(),
	}
	d, err := s.policy(s.state(e), r)
	if err != nil {
		s.result.Retries++
		j.exclude = nil
		s.after(time.Second, func() { s.place(e, j) })
		return
	}
	n := s.find(d.Node)
	if e.seen[s.indexOf(n)].state == member.Failed {
		s.result.ToFailed++
	}
	e.ledger.Gave(n.id, d.Compute, s.clock())
	if s.o.PredictFor > 0 {
		e.index.Predict(n.id, chain, s.clock().Add(s.o.PredictFor))
	}
	arrive := func() {
		ok, down := n.give(j)
		if ok {
			return
		}
		s.result.Refused++
		seen := &e.seen[s.indexOf(n)]
		seen.mark, seen.markAt = scheduler.Full, s.now
		if down {
			seen.mark = scheduler.Refused
			s.result.RefusedDown++
		}
		j.exclude = append(j.exclude, n.id)
		s.place(e, j)
	}
	if j.way = 0; n == e.node {
		arrive()
		return
	}
	j.way = s.o.RTT / 2
	s.after(j.way, arrive)
}

// state is what an entry knows now.
func (s *sim) state(e *entry) scheduler.State {
	state := scheduler.State{Entry: e.node.id, Tuning: s.o.Tuning, Nodes: make([]scheduler.Node, len(s.nodes))}
	for i, n := range s.nodes {
		known := &e.seen[i]
		if n == e.node { // a node knows itself
			known.load, known.at = n.report(), s.now
			e.ledger.Reported(n.id, s.clock().Add(1))
		}
		m := known.load
		m.Name, m.Ready = modelName, true
		m.Slots, m.QueueMax, m.LoadAge = n.spec.Slots, n.spec.Queue, s.now-known.at
		m.Sent, m.SentTokens = e.ledger.Sent(n.id)
		m.PrefillRate = scheduler.Figure{Value: n.spec.PrefillRate}
		m.PrefillContext = n.spec.PrefillContext
		m.Decode = []scheduler.Pace{{Streams: 1, Ms: n.spec.DecodeMs}, {Streams: 2, Ms: n.spec.DecodeMs + n.spec.DecodeMsMore}}
		state.Nodes[i] = scheduler.Node{
			ID: n.id, Name: n.spec.Name, State: known.state, Role: member.Hybrid, Models: []scheduler.Model{m},
			Mark:    scheduler.Mark{Kind: known.mark, Age: s.now - known.markAt, Term: 5 * time.Second},
			GoodAge: s.now - known.at,
		}
		if n != e.node {
			state.Links = append(state.Links, scheduler.Link{A: e.node.id, B: n.id,
				RTTMs: scheduler.Figure{Value: float64(s.o.RTT) / float64(time.Millisecond)}})
		}
	}
	return state
}

// reports sends a node's load to all entries, for ever.
func (s *sim) reports(n *node) {
	s.report(n)
	s.after(s.o.ReportEvery, func() { s.reports(n) })
}

// report sends it once.
func (s *sim) report(n *node) {
	if !n.up {
		return
	}
	load, taken, epoch := n.report(), s.now, n.epoch
	s.after(s.o.RTT/2, func() {
		if n.epoch != epoch {
			return
		}
		for _, e := range s.entries {
			known := &e.seen[s.indexOf(n)]
			known.load, known.at, known.state = load, taken, member.Alive
			e.ledger.Reported(n.id, s.clockAt(taken-s.o.RTT/2))
		}
	})
}

// publish sends index events to all entries.
func (s *sim) publish(n *node, list []scheduler.Event) {
	if len(list) == 0 {
		return
	}
	epoch := n.epoch
	s.after(s.o.EventDelay, func() {
		for _, e := range s.entries {
			if n.epoch != epoch {
				return
			}
			for _, event := range list {
				if err := e.index.Apply(n.id, event); err != nil {
					panic(fmt.Sprintf("sim: events of %s arrive in order, yet %v", n.id, err))
				}
			}
		}
	})
}

// down kills a node. Its requests are placed again once that is seen.
func (s *sim) down(n *node) {
	lost := n.fail()
	epoch := n.epoch
	s.after(s.o.DetectAfter, func() {
		for _, e := range s.entries {
			if n.epoch == epoch && !n.up {
				e.seen[s.indexOf(n)].state = member.Failed
				e.index.Forget(n.id)
				e.ledger.Forget(n.id)
			}
		}
		for _, j := range lost {
			s.result.Lost++
			s.place(s.entries[s.random.IntN(len(s.entries))], j)
		}
	})
}

// restart starts a node with nothing in its cache.
func (s *sim) restart(n *node) {
	n.start(uint64(s.indexOf(n))<<32 | uint64(n.epoch) + 1)
	for _, e := range s.entries {
		e.index.Forget(n.id)
	}
}

func (s *sim) ended(j *job) {
	s.open--
	s.report(j.node)
}

func (s *sim) find(id member.ID) *node { return s.nodes[binary.BigEndian.Uint32([]byte(id))] }

func (s *sim) indexOf(n *node) int { return int(binary.BigEndian.Uint32([]byte(n.id))) }

func nodeID(i int) member.ID { return member.ID(binary.BigEndian.AppendUint32(nil, uint32(i))) }

// ids names blocks as the index wants them: the names of a trace are chained, as ids
// are. Bits are mixed, as those of a hash.
func ids(names []uint64) []block.ID {
	out := make([]block.ID, len(names))
	for i, name := range names {
		h := (name + 1) * 0x9e3779b97f4a7c15
		h ^= h >> 29
		binary.LittleEndian.PutUint64(out[i][:], h)
		binary.LittleEndian.PutUint64(out[i][8:], name+1)
	}
	return out
}

// clock is the virtual time as the scheduler wants it.
func (s *sim) clock() time.Time { return s.clockAt(s.now) }

func (s *sim) clockAt(at time.Duration) time.Time { return time.Unix(0, 0).Add(at) }

// event is something that will happen; of equal times the one that was put in first
// comes first.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

func (s *sim) at(at time.Duration, do func()) {
	s.order++
	heap.Push(&s.events, event{at, s.order, do})
}

func (s *sim) after(d time.Duration, do func()) { s.at(s.now+d, do) }
