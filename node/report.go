package node

import (
	"cmp"
	"math"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/node/engine"
	"tandem/node/models"
	"tandem/scheduler"
)

// loadReport is what a node tells others of how busy it is, several times a second
// while that changes.
type loadReport struct {
	Ready  bool        `json:"ready"`
	Models []modelLoad `json:"models"`
	// Fixed says that --role decides the role; Taking is the one that the node is about
	// to take.
	Fixed  bool        `json:"fixed,omitempty"`
	Taking member.Role `json:"taking,omitempty"`
	// Work is of the requests that came in here; Planner what the leader's planner says.
	Work    []work       `json:"work,omitempty"`
	Planner *PlannerSays `json:"planner,omitempty"`
	// Links are the ways on which KV comes to this node.
	Links []linkLoad `json:"links,omitempty"`
}

// linkLoad is how fast KV comes from one other node. 0 is unknown.
type linkLoad struct {
	From    member.ID `json:"from"`
	Goodput float64   `json:"goodput,omitempty"` // bytes/s
	RTTMs   float64   `json:"rtt_ms,omitempty"`
}

// modelLoad is one model of a node: how busy it is, and what was measured of it. Times
// are in milliseconds, 0 is unknown.
type modelLoad struct {
	Name   string  `json:"name"`
	Digest string  `json:"digest,omitempty"`
	Ready  bool    `json:"ready"` // it has computed something, or can be loaded
	Loaded bool    `json:"loaded,omitempty"`
	LoadMs float64 `json:"load_ms,omitempty"` // until it is loaded

	Fingerprint block.Fingerprint `json:"fingerprint,omitzero"` // of its KV blocks
	BlockTokens int               `json:"block_tokens,omitempty"`
	KVBytes     int               `json:"kv_bytes,omitempty"` // of one token

	Context  int `json:"context"`
	Slots    int `json:"slots"`
	Running  int `json:"running,omitempty"`
	Queued   int `json:"queued,omitempty"`
	QueueMax int `json:"queue_max,omitempty"`
	Waiting  int `json:"waiting,omitempty"` // prompt tokens to be computed
	Active   int `json:"active,omitempty"`  // tokens in use

	TokenMs float64 `json:"token_ms,omitempty"` // of the first prompt token
	Doubles float64 `json:"doubles,omitempty"`  // position at which a token takes twice as long
	// Decode is the time between tokens by streams; LongDoubles the context at which it
	// is twice that.
	Decode      []DecodePoint `json:"decode,omitempty"`
	LongDoubles float64       `json:"long_doubles,omitempty"`
	SlotMs      float64       `json:"slot_ms,omitempty"`  // that a request keeps its slot
	RAMRate     float64       `json:"ram_rate,omitempty"` // bytes/s from memory into the engine
}

// same tells whether this is the model of a request: the same file. As long as its
// digest is not known, only this node's own report can be about it.
func (l *modelLoad) same(m target, own bool) bool {
	if l.Digest != "" && m.Digest != "" {
		return l.Digest == m.Digest
	}
	return own && l.Name == m.Name
}

// known is the report in terms of the scheduler.
func (l *modelLoad) known(name string, age time.Duration) scheduler.Model {
	m := scheduler.Model{Name: name, Ready: l.Ready, LoadMs: l.LoadMs, Context: l.Context, Slots: l.Slots, Running: l.Running, Queued: l.Queued,
		QueueMax: l.QueueMax, Waiting: l.Waiting, Active: l.Active, LoadAge: age, RAMRate: scheduler.Figure{Value: l.RAMRate, Age: age}}
	m.SlotMs = scheduler.Figure{Value: l.SlotMs, Age: age}
	if l.TokenMs > 0 {
		m.PrefillRate = scheduler.Figure{Value: 1000 / l.TokenMs, Age: age}
		m.PrefillContext = l.Doubles
	}
	for _, p := range l.Decode[:min(len(l.Decode), benchPointsMax)] {
		if p.Streams < 1 || !sane(p.Ms) {
			continue // it comes from another node
		}
		m.Decode, m.DecodeAge = append(m.Decode, scheduler.Pace{Streams: p.Streams, Ms: p.Ms}), age
	}
	m.DecodeContext = l.LongDoubles
	return m
}

// rates are told rounded, so that a report does not change with every step.
func (l *modelLoad) rates(r ModelRates) {
	l.TokenMs, l.Doubles, l.RAMRate = rounded(r.PrefillMs), rounded(r.PrefillDoubles), rounded(r.Import)
	l.LongDoubles = rounded(r.DecodeDoubles)
	for _, p := range r.Decode {
		l.Decode = append(l.Decode, DecodePoint{Streams: p.Streams, Ms: rounded(p.Ms)})
	}
}

// rounded keeps three digits.
func rounded(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-2)
	return math.Round(x/unit) * unit
}

// loadRate is taken for how fast a model is loaded, in bytes per second, where that
// was never measured: a SATA disk.
const loadRate = 400 << 20

// report is the state of this node for others, and for its own placement, with its
// models as they were listed lately.
func (n *Node) report(list []models.Model) loadReport {
	r := loadReport{Ready: n.Ready() == nil, Fixed: n.fixedRole(), Taking: n.roles.taking(), Work: n.works(), Planner: n.planner.said()}
	loaded, stats := map[string]modelLoad{}, map[string]engine.Stats{}
	for _, p := range n.pool.Loaded() {
		st := p.Stats
		l := modelLoad{Ready: st.Stalled < engineStall, Loaded: true, Context: st.Context, Slots: st.Slots, Running: st.Running, Queued: st.Queued + st.Parked,
			QueueMax: n.cfg.Queue, Waiting: st.Waiting, Active: st.KVTokens, SlotMs: milliseconds(st.Hold)}
		if kept := n.keptOf(p.Spec.Name); kept != nil && kept.reason == "" {
			l.Fingerprint, l.BlockTokens, l.KVBytes = kept.fingerprint, kept.size, kept.shape.Bytes()
		}
		loaded[p.Spec.Name], stats[p.Spec.Name] = l, st
	}
	for _, m := range list {
		l, ok := loaded[m.Name]
		if !ok {
			l = modelLoad{Ready: n.fits(m), LoadMs: 500 + float64(m.Size)/loadRate*1000, Context: n.cfg.Context, Slots: n.cfg.Parallel, QueueMax: n.cfg.Queue}
		}
		l.Name, l.Digest = m.Name, m.Digest
		l.rates(n.ratesOf(m, stats[m.Name])) // of one that is not loaded, as measured when it was
		r.Models = append(r.Models, l)
	}
	r.Links = n.peers.links()
	return r
}

// links are the ways to this node that were measured.
func (p *peers) links() []linkLoad {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []linkLoad
	for id, v := range p.mu.views {
		goodput, age := p.bulk.goodput(id)
		if age > 2*probeEvery {
			goodput = 0
		}
		if goodput > 0 || v.rtt > 0 {
			out = append(out, linkLoad{From: id, Goodput: math.Round(goodput/1e5) * 1e5, RTTMs: math.Round(v.rtt.Seconds()*1e5) / 100})
		}
	}
	slices.SortFunc(out, func(a, b linkLoad) int { return cmp.Compare(a.From, b.From) })
	return out
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// keptOf is how the blocks of a loaded model are named; nil: it is not known.
func (n *Node) keptOf(name string) *keptModel {
	n.mu.Lock()
	m := n.mu.loaded[name]
	n.mu.Unlock()
	if m == nil {
		return nil
	}
	return m.kept.Load()
}
