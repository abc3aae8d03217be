package sim

import (
	"context"
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

// modelName is that of the one model that all nodes have.
const modelName = "m"

// kind is what an event is.
type kind uint8

const (
	arrives       kind = iota // a request; n is its number
	placesAgain               // ref is a job
	delivers                  // ref is a task, at its node
	asked                     // ref is a transfer, at the node that gives
	stepEnds                  // of node, n is the number of the step
	moved                     // ref is a transfer: a piece of it came
	restored                  // ref is a task: its kept blocks are in the engine
	losesPatience             // ref is a task
	reports                   // node sends its load
	isSeen                    // and everybody has it
	published                 // ref is news
	detects                   // the others see that node is gone
	outageBegins              // n is its place
	outageEnds
	plans
)

// event is something that will happen; of equal times the one that was put in first
// comes first.
type event struct {
	at    time.Duration
	order uint64
	ref   any
	n     int
	epoch int32 // of node: events of an earlier process of it are void
	node  int32
	kind  kind
}

// sim is one run. Everything belongs to the goroutine that runs it.
type sim struct {
	o        Options
	policy   scheduler.Policy
	random   *rand.Rand
	now      time.Duration
	events   []event // a heap of four children
	order    uint64
	nodes    []*node
	entries  []*entry
	known    knowledge
	arrivals []Arrival
	records  []record
	open     int
	check    checker
	result   Result
	unnamed  uint64 // of blocks that a trace does not name
	stopped  bool
	series   series
}

// job is a request on its way.
type job struct {
	number  int
	input   int
	blocks  []uint64
	chain   []block.ID
	left    int // tokens of the answer
	emitted int
	attempt int // counts placements: tasks of earlier ones are void
	entry   int
	retries int
	way     time.Duration // of tokens back to the entry node
	exclude []member.ID
	task    *task
}

// prompt is the tokens to have before the next token can be drawn.
func (j *job) prompt() int { return j.input + j.emitted }

// entry is what a node that takes requests keeps of its own.
type entry struct {
	node    *node
	index   catalog
	ledger  *scheduler.Ledger
	number  uint64
	touched []int // nodes that it gave something to which no report shows yet
	marks   map[int]mark
}

type mark struct {
	kind scheduler.MarkKind
	at   time.Duration
}

// ErrChecks says that a run broke a rule that always holds: a fault of the simulator,
// or of what it runs.
var ErrChecks = errors.New("a check failed")

// Run runs one policy. Errors: faults of the options, ErrChecks, and what ended the
// context.
func Run(ctx context.Context, o Options) (Result, error) {
	s, err := newSim(o)
	if err != nil {
		return Result{}, err
	}
	return s.run(ctx)
}

func newSim(o Options) (*sim, error) {
	o = o.filled()
	if err := o.validate(); err != nil {
		return nil, err
	}
	policy, err := scheduler.PolicyByName(o.Policy)
	if err != nil {
		return nil, err
	}
	s := &sim{o: o, policy: policy, random: rand.New(rand.NewPCG(o.Seed, 1)), arrivals: o.Arrivals, unnamed: 1 << 63}
	if o.Spread {
		s.arrivals = spread(o.Arrivals)
	}
	s.build()
	return s, nil
}

// lookEvery is after how many events a run looks whether it should end.
const lookEvery = 4096

func (s *sim) run(ctx context.Context) (Result, error) {
	for n := 0; s.open > 0 && len(s.events) > 0 && !s.stopped; n++ {
		if n%lookEvery == 0 && ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		e := s.pop()
		s.check.time(s.now, e.at)
		s.now = e.at
		s.do(e)
		s.result.Events++
	}
	if !s.stopped {
		s.check.finish(s.records)
	}
	if len(s.check.faults) > 0 {
		return Result{}, fmt.Errorf("%w: %s", ErrChecks, s.check.text())
	}
	return s.summary(), nil
}

func (s *sim) build() {
	for i := range s.o.Nodes {
		s.nodes = append(s.nodes, newNode(s, i))
	}
	for i := range s.o.Entries {
		// Spread over all nodes, so that prefill nodes take requests, too.
		at := i * len(s.nodes) / s.o.Entries
		s.entries = append(s.entries, &entry{node: s.nodes[at], index: newCatalog(len(s.nodes)), ledger: scheduler.NewLedger(), marks: map[int]mark{}})
	}
	s.known.build(s)
	s.open = len(s.arrivals)
	s.records = make([]record, len(s.arrivals))
	s.check.build(len(s.arrivals))
	s.series.build(s)
	s.push(event{at: s.arrivalAt(0), kind: arrives})
	for i, out := range s.o.Outages {
		s.push(event{at: out.From, kind: outageBegins, n: i})
		s.push(event{at: out.To, kind: outageEnds, n: i})
	}
	if s.o.Planner != nil {
		s.push(event{at: s.o.PlanEvery, kind: plans})
	}
}

func (s *sim) arrivalAt(n int) time.Duration {
	return time.Duration(float64(s.arrivals[n].At) / s.o.Speed)
}

// do is one event. What a frozen node would do happens when it goes on.
func (s *sim) do(e event) {
	switch e.kind {
	case arrives:
		s.arrive(e.n)
	case placesAgain:
		s.place(e.ref.(*job))
	case delivers:
		t := e.ref.(*task)
		if !s.postponed(e, t.node) {
			s.deliver(t)
		}
	case asked:
		x := e.ref.(*transfer)
		if !s.postponed(e, x.from) {
			x.begin()
		}
	case stepEnds:
		n := s.nodes[e.node]
		if n.epoch == e.epoch && n.stepNumber == e.n && !s.postponed(e, n) {
			n.stepEnds()
		}
	case moved:
		x := e.ref.(*transfer)
		if !s.postponed(e, x.from) && !s.postponed(e, x.to) {
			x.moved()
		}
	case restored:
		t := e.ref.(*task)
		if !s.postponed(e, t.node) {
			t.restored()
		}
	case losesPatience:
		t := e.ref.(*task)
		if t.getting && !s.postponed(e, t.node) {
			s.result.Impatient++
			t.wayEnds()
		}
	case reports:
		n := s.nodes[e.node]
		if n.epoch == e.epoch && !s.postponed(e, n) {
			s.known.send(n)
		}
	case isSeen:
		if n := s.nodes[e.node]; n.epoch == e.epoch {
			s.known.seen(n)
		}
	case published:
		e.ref.(*news).apply(s)
	case detects:
		s.detect(s.nodes[e.node], e.epoch)
	case outageBegins:
		s.outageBegins(s.o.Outages[e.n])
	case outageEnds:
		s.outageEnds(s.o.Outages[e.n])
	case plans:
		s.plan()
	}
}

// postponed puts off what a frozen node would do.
func (s *sim) postponed(e event, n *node) bool {
	if n.frozenUntil <= s.now {
		return false
	}
	e.at = n.frozenUntil
	s.push(e)
	return true
}

// arrive takes a request and puts the next one into the queue of events.
func (s *sim) arrive(n int) {
	if n+1 < len(s.arrivals) {
		s.push(event{at: max(s.now, s.arrivalAt(n+1)), kind: arrives, n: n + 1})
	}
	a := &s.arrivals[n]
	j := &job{number: n, input: a.Input, left: max(1, a.Output), blocks: a.Blocks, entry: s.random.IntN(len(s.entries))}
	want := (a.Input + s.o.BlockTokens - 1) / s.o.BlockTokens
	if a.Blocks == nil { // nothing is known of it: it shares nothing
		j.blocks = make([]uint64, want)
		for i := range j.blocks {
			s.unnamed++
			j.blocks[i] = s.unnamed
		}
	}
	j.blocks = j.blocks[:min(len(j.blocks), want)]
	j.chain = ids(j.blocks)
	s.records[n] = record{at: s.now, input: int32(a.Input), output: int32(j.left)}
	s.series.arrived(s.now)
	s.place(j)
	if s.o.plant == timeRunsBack && n == 1 {
		s.push(event{at: s.now - time.Second, kind: published, ref: &news{node: s.nodes[0]}})
	}
	if s.o.plant == losesRequest && n == len(s.arrivals)/2 {
		s.open--
		s.stale(j)
	}
}

// ended is the end of a job.
func (s *sim) ended(j *job, o outcome) {
	r := &s.records[j.number]
	r.outcome = o
	s.check.end(j.number)
	s.open--
	s.stale(j)
}

// stale makes everything void that is still done for a job.
func (s *sim) stale(j *job) {
	j.attempt++
	j.task = nil
}

func nodeID(i int) member.ID { return member.ID(binary.BigEndian.AppendUint32(nil, uint32(i))) }

func placeOf(id member.ID) int { return int(binary.BigEndian.Uint32([]byte(id))) }

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
func (s *sim) clock() time.Time { return clockAt(s.now) }

func clockAt(at time.Duration) time.Time { return time.Unix(0, 0).Add(at) }

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

// less orders events; heapWidth children a place make the heap shallow.
func less(a, b *event) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

const heapWidth = 4

func (s *sim) push(e event) {
	s.order++
	e.order = s.order
	h := append(s.events, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / heapWidth
		if !less(&e, &h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	s.events = h
}

func (s *sim) pop() event {
	h := s.events
	top, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	s.events = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		first := i*heapWidth + 1
		if first >= len(h) {
			break
		}
		best := first
		for c := first + 1; c < min(first+heapWidth, len(h)); c++ {
			if less(&h[c], &h[best]) {
				best = c
			}
		}
		if !less(&h[best], &last) {
			break
		}
		h[i] = h[best]
		i = best
	}
	h[i] = last
	return top
}
