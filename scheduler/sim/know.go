package sim

import (
	"fmt"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/scheduler"
)

// catalog is what is where, of more nodes than one Index takes: one for each
// scheduler.NodesMax of them. Uses of shared beginnings are then counted for each of
// these groups on its own.
type catalog []*scheduler.Index

func newCatalog(nodes int) catalog {
	var c catalog
	for at := 0; at < nodes; at += scheduler.NodesMax {
		c = append(c, scheduler.NewIndex(scheduler.Limits{}))
	}
	return c
}

func (c catalog) of(node int) *scheduler.Index { return c[node/scheduler.NodesMax] }

// match gives holdings by node id.
func (c catalog) match(chain []block.ID, now time.Time) []scheduler.Holding {
	out := c[0].Match(chain, now)
	for _, x := range c[1:] {
		out = append(out, x.Match(chain, now)...)
	}
	return out
}

// load is what a node reports.
type load struct {
	running, queued, waiting, active int
	slotMs                           float64
}

// knowledge is what all nodes know of each other. Reports come to all at the same
// time, as links are alike; what a node knows of itself is fresh.
type knowledge struct {
	s       *sim
	shared  scheduler.State
	views   []view
	fresh   int // the node whose own figures are in shared now, or -1
	touched []int
}

// view is what is known of one node.
type view struct {
	load    load
	at      time.Duration // when it was sent
	next    load
	nextAt  time.Duration
	pending bool          // a report will be sent, or is on its way
	sent    time.Duration // the last one
	steady  bool          // nothing has changed since: its heartbeats say the same
	state   member.State
}

func (k *knowledge) build(s *sim) {
	k.s, k.fresh = s, -1
	k.views = make([]view, len(s.nodes))
	models := make([]scheduler.Model, len(s.nodes))
	k.shared = scheduler.State{Transfers: s.o.Transfers, Disagg: s.o.Disagg, Tuning: s.o.Tuning, Nodes: make([]scheduler.Node, len(s.nodes))}
	for i, n := range s.nodes {
		k.views[i] = view{steady: true, state: member.Alive, sent: -s.o.ReportEvery}
		e := &n.spec.Engine
		m := &models[i]
		*m = scheduler.Model{Name: modelName, Ready: true, Slots: n.spec.Slots, QueueMax: n.spec.Queue, Context: n.room * s.o.BlockTokens,
			PrefillRate: scheduler.Figure{Value: e.prefillRate()}, PrefillContext: e.Doubling,
			RAMRate: scheduler.Figure{Value: n.spec.HostBps}, DiskRate: scheduler.Figure{Value: n.spec.DiskBps}}
		const usual = 2000 // tokens of context
		for streams := 1; ; streams *= 2 {
			streams = min(streams, n.spec.Slots)
			m.Decode = append(m.Decode, scheduler.Pace{Streams: streams, Ms: e.paceMs(streams, usual)})
			if streams == n.spec.Slots {
				break
			}
		}
		k.shared.Nodes[i] = scheduler.Node{ID: n.id, Name: n.spec.Name, State: member.Alive, Role: n.role, Fixed: n.fixed, Models: models[i : i+1 : i+1]}
	}
	k.buildLinks()
}

// linksAll is up to how many nodes every pair has a link of its own; beyond, those of
// the entries are told and the others are their median.
const linksAll = 64

func (k *knowledge) buildLinks() {
	nodes := k.s.nodes
	link := func(a, b *node) scheduler.Link {
		return scheduler.Link{A: a.id, B: b.id, Goodput: scheduler.Figure{Value: min(a.spec.LinkBps, b.spec.LinkBps)},
			RTTMs: scheduler.Figure{Value: float64(k.s.o.RTT) / float64(time.Millisecond)}}
	}
	alike := !slices.ContainsFunc(nodes, func(n *node) bool { return n.spec.LinkBps != nodes[0].spec.LinkBps })
	switch {
	case len(nodes) < 2:
	case alike && len(nodes) > linksAll:
		k.shared.Links = []scheduler.Link{link(nodes[0], nodes[1])}
	case len(nodes) > linksAll:
		for _, e := range k.s.entries {
			for _, n := range nodes {
				if n != e.node {
					k.shared.Links = append(k.shared.Links, link(e.node, n))
				}
			}
		}
	default:
		for i, a := range nodes {
			for _, b := range nodes[i+1:] {
				k.shared.Links = append(k.shared.Links, link(a, b))
			}
		}
	}
}

// set puts what is known of a node's load into the shared state.
func (k *knowledge) set(i int, l load) {
	m := &k.shared.Nodes[i].Models[0]
	m.Running, m.Queued, m.Waiting, m.Active, m.SlotMs.Value = l.running, l.queued, l.waiting, l.active, l.slotMs
}

// state is what a node knows now; e is what it keeps as an entry, or nil. It is good
// until restore is called, which must come before the next one.
func (k *knowledge) state(n *node, e *entry) scheduler.State {
	now := k.s.now
	for i := range k.views {
		v, known := &k.views[i], &k.shared.Nodes[i]
		age := time.Duration(0)
		if !v.steady || v.state != member.Alive {
			age = now - v.at
		}
		known.GoodAge = age
		known.Models[0].LoadAge = age
	}
	k.set(n.at, n.load())
	known := &k.shared.Nodes[n.at]
	known.GoodAge, known.Models[0].LoadAge, known.State, known.Role, known.Fixed = 0, 0, member.Alive, n.role, n.fixed
	k.fresh = n.at
	k.shared.Entry = n.id
	if e == nil {
		return k.shared
	}
	e.ledger.Reported(n.id, clockAt(now).Add(1))
	kept := e.touched[:0]
	for _, i := range e.touched {
		m := &k.shared.Nodes[i].Models[0]
		if m.Sent, m.SentTokens = e.ledger.Sent(nodeID(i)); m.Sent > 0 {
			kept = append(kept, i)
			k.touched = append(k.touched, i)
		}
	}
	e.touched = kept
	for i, m := range e.marks {
		k.shared.Nodes[i].Mark = scheduler.Mark{Kind: m.kind, Age: now - m.at, Term: markTerm(m.kind)}
		if k.shared.Nodes[i].Mark.Age > k.shared.Nodes[i].Mark.Term {
			delete(e.marks, i)
		}
		k.touched = append(k.touched, i)
	}
	return k.shared
}

// markTerm is as the node has it.
func markTerm(kind scheduler.MarkKind) time.Duration {
	if kind == scheduler.Full {
		return time.Second
	}
	return 5 * time.Second
}

// restore takes out of the shared state what only one node knows.
func (k *knowledge) restore() {
	if k.fresh >= 0 {
		k.set(k.fresh, k.views[k.fresh].load)
		k.shared.Nodes[k.fresh].State = k.views[k.fresh].state
		k.fresh = -1
	}
	for _, i := range k.touched {
		m := &k.shared.Nodes[i].Models[0]
		m.Sent, m.SentTokens = 0, 0
		k.shared.Nodes[i].Mark = scheduler.Mark{}
	}
	k.touched = k.touched[:0]
}

// changed lets a node report its load, not more often than Options.ReportEvery.
func (k *knowledge) changed(n *node) {
	v := &k.views[n.at]
	if v.pending || !n.up {
		return
	}
	v.pending = true
	k.s.push(event{at: max(k.s.now, v.sent+k.s.o.ReportEvery), kind: reports, node: int32(n.at), epoch: n.epoch})
}

func (k *knowledge) send(n *node) {
	v := &k.views[n.at]
	v.next, v.nextAt, v.sent = n.load(), k.s.now, k.s.now
	k.s.after(k.s.o.RTT/2, event{kind: isSeen, node: int32(n.at), epoch: n.epoch})
}

func (k *knowledge) seen(n *node) {
	v := &k.views[n.at]
	v.load, v.at, v.pending = v.next, v.nextAt, false
	v.steady = v.load == n.load()
	v.state = member.Alive
	k.set(n.at, v.load)
	known := &k.shared.Nodes[n.at]
	known.State, known.Role, known.Fixed = member.Alive, n.role, n.fixed
	for _, e := range k.s.entries {
		e.ledger.Reported(n.id, clockAt(v.at-k.s.o.RTT/2))
		delete(e.marks, n.at)
	}
	if !v.steady {
		k.changed(n)
	}
}

// lost is when others see that a node is gone.
func (k *knowledge) lost(n *node) {
	v := &k.views[n.at]
	v.state, v.pending = member.Failed, false
	k.shared.Nodes[n.at].State = member.Failed
	for _, e := range k.s.entries {
		e.index.of(n.at).Forget(n.id)
		e.ledger.Forget(n.id)
	}
}

// bulletin is blocks that came or went, in one tier.
type bulletin struct {
	kind   scheduler.Kind
	tier   scheduler.Tier
	blocks []uint64
}

// tell notes what the others will be told; what happens in order is told in order.
func (n *node) tell(kind scheduler.Kind, tier scheduler.Tier, b uint64) {
	if last := len(n.news) - 1; last >= 0 && n.news[last].kind == kind && n.news[last].tier == tier {
		n.news[last].blocks = append(n.news[last].blocks, b)
		return
	}
	n.news = append(n.news, bulletin{kind, tier, []uint64{b}})
}

// news is index events on their way.
type news struct {
	node   *node
	epoch  int32
	events []scheduler.Event
}

// publish sends what was told.
func (n *node) publish() {
	if len(n.news) == 0 {
		return
	}
	sent := &news{node: n, epoch: n.epoch}
	for _, b := range n.news {
		sent.events = append(sent.events, n.feed.Events(b.kind, b.tier, ids(b.blocks))...)
	}
	n.news = n.news[:0]
	n.s.after(n.s.o.EventDelay, event{kind: published, ref: sent})
}

func (w *news) apply(s *sim) {
	if w.node.epoch != w.epoch || s.known.views[w.node.at].state == member.Failed {
		return
	}
	for _, e := range s.entries {
		for _, event := range w.events {
			if err := e.index.of(w.node.at).Apply(w.node.id, event); err != nil {
				panic(fmt.Sprintf("sim: events of %s arrive in order, yet %v", w.node.spec.Name, err))
			}
		}
	}
}
