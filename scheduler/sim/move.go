package sim

import (
	"slices"
	"time"

	"tandem/scheduler"
)

// pieceBytes is about how much of a transfer holds a link at a time; others get their
// turn between.
const pieceBytes = 64 << 20

// patience is how much longer than expected a transfer may take, as the node does it.
const (
	patienceTimes   = 2.0
	patienceAtLeast = 2 * time.Second
)

// transfer brings blocks from one node to a task of another one.
//
// Invariant: first <= got <= sent <= ready <= end.
type transfer struct {
	s                       *sim
	from, to                *node
	fromEpoch, toEpoch      int32
	t                       *task
	first, end              int // blocks of the task's chain
	ready, sent, got, piece int
	bps                     float64
	flying                  bool
}

// chooseWay decides how a node gets the KV of a task's prompt, with the real
// scheduler, and begins to get it. False: it computes what it lacks.
func (s *sim) chooseWay(t *task) bool {
	n, o := t.node, &s.o
	if !o.Transfers || len(s.nodes) < 2 || o.OneWay && t.served != nil {
		return false
	}
	fetch := scheduler.Fetch{}
	if choice, ok := s.o.Forced[t.job.number]; ok && t.served == nil && t.job.retries == 0 {
		if fetch, ok = s.forcedFetch(t, choice); !ok {
			return false
		}
	} else {
		own := n.holding(t.blocks)
		if t.prompt-t.tokensOf(own.Run) < scheduler.DefaultTuning().FetchTokens && o.Tuning.FetchTokens == 0 {
			return false // nobody is asked for so little
		}
		e := s.entries[t.job.entry]
		r := scheduler.Request{Model: modelName, Tokens: t.prompt, BlockTokens: o.BlockTokens, BytesPerToken: o.BytesPerToken}
		for _, h := range e.index.match(t.job.chain[:len(t.blocks)], s.clock()) {
			if h.Node != n.id {
				r.Holdings = append(r.Holdings, h)
			}
		}
		r.Holdings = append(r.Holdings, own)
		state := s.known.state(n, nil)
		if t.served != nil { // who computes for another one asks nobody to compute
			state.Disagg = scheduler.DisaggNever
		}
		d, err := scheduler.Source(state, r, n.id)
		s.known.restore()
		if err != nil || len(d.Fetch) == 0 {
			return false
		}
		fetch = d.Fetch[0]
	}
	from := s.nodes[placeOf(fetch.From)]
	x := &transfer{s: s, from: from, to: n, fromEpoch: from.epoch, toEpoch: n.epoch, t: t,
		first: fetch.First, end: min(fetch.First+fetch.Blocks, len(t.blocks)), ready: fetch.First, sent: fetch.First, got: fetch.First,
		bps: min(from.spec.LinkBps, n.spec.LinkBps), piece: max(1, pieceBytes/(o.BlockTokens*o.BytesPerToken))}
	t.transfer = x
	t.planned = t.tokensOf(x.end)
	if fetch.Made {
		s.result.Remote++
		t.source = &task{job: t.job, attempt: t.attempt, node: from, served: t, prompt: t.tokensOf(x.end), blocks: t.blocks[:x.end]}
		s.after(o.RTT/2, event{kind: delivers, ref: t.source})
	} else {
		s.result.Fetched++
		s.after(o.RTT/2, event{kind: asked, ref: x})
	}
	ms := max(fetch.Ms*patienceTimes, float64(patienceAtLeast)/float64(time.Millisecond))
	s.after(milliseconds(ms), event{kind: losesPatience, ref: t})
	return true
}

// forcedFetch is the way that a run is told to take.
func (s *sim) forcedFetch(t *task, c Choice) (scheduler.Fetch, bool) {
	if c.Kind == scheduler.Local || c.From == t.node.at {
		return scheduler.Fetch{}, false
	}
	size := s.o.BlockTokens
	f := scheduler.Fetch{From: nodeID(c.From), First: t.node.holding(t.blocks).Run, Made: c.Kind == scheduler.Remote, Ms: 3_600_000}
	f.Blocks = (t.prompt-1)/size - f.First
	if !f.Made {
		f.Blocks = s.nodes[c.From].holding(t.blocks).Run - f.First
	}
	return f, f.Blocks > 0
}

func (s *sim) after(d time.Duration, e event) {
	e.at = s.now + d
	s.push(e)
}

// void tells whether nobody waits for a transfer any more, or an end of it is gone.
func (x *transfer) void() bool {
	return x.from.epoch != x.fromEpoch || x.to.epoch != x.toEpoch || !x.from.up || !x.to.up || x.t.stale() || !x.t.getting || x.t.transfer != x
}

// begin is at the node that holds what another one wants.
func (x *transfer) begin() {
	if x.void() {
		return
	}
	h := x.from.holding(x.t.blocks)
	x.end = min(x.end, h.Run)
	if x.end <= x.first {
		x.t.wayEnds()
		return
	}
	if h.Run-h.FromDisk < x.end {
		x.bps = min(x.bps, x.from.spec.DiskBps)
	}
	x.ready = x.end
	x.send()
}

// made says that blocks up to a place are computed at the other node.
func (x *transfer) made(blocks int) {
	if x == nil || x.void() {
		return
	}
	x.ready = max(x.ready, min(blocks, x.end))
	x.send()
}

// send puts the next piece on the wire. Both ends' links are busy with it.
func (x *transfer) send() {
	n := min(x.piece, x.ready-x.sent)
	if x.flying || n <= 0 {
		return
	}
	bytes := float64(n*x.s.o.BlockTokens) * float64(x.s.o.BytesPerToken)
	begin := max(x.s.now, x.from.linkOut, x.to.linkIn)
	end := begin + time.Duration(bytes/x.bps*float64(time.Second))
	x.from.linkOut, x.to.linkIn = end, end
	x.flying = true
	x.sent += n
	x.s.result.BytesMoved += bytes
	if x.sent == x.end {
		end += x.s.o.RTT / 2
	}
	x.s.push(event{at: end, kind: moved, ref: x})
}

// moved is when a piece came. The receiver keeps it as it keeps its own.
func (x *transfer) moved() {
	x.flying = false
	if x.void() {
		return
	}
	for ; x.got < x.sent; x.got++ {
		x.to.keep(x.t.blocks[x.got])
	}
	x.to.publish()
	if x.t.got = x.got; x.got == x.end {
		x.t.wayEnds()
		return
	}
	x.send()
}

// wayEnds is when all came, or nothing more will: what lacks is computed here.
func (t *task) wayEnds() {
	n := t.node
	t.getting = false
	t.transfer = nil
	if source := t.source; source != nil {
		t.source = nil
		source.node.drop(source)
		source.node.begin()
	}
	for i, w := range n.waiting {
		if w == t {
			n.waiting = append(n.waiting[:i:i], n.waiting[i+1:]...)
			break
		}
	}
	n.setRemain(t, max(1, t.prompt-t.tokensOf(max(n.holding(t.blocks).Run, t.got))))
	at := len(n.queue) // it waited for its slot meanwhile
	for at > 0 && n.queue[at-1].order > t.order {
		at--
	}
	n.queue = slices.Insert(n.queue, at, t)
	n.begin()
	n.s.known.changed(n)
}
