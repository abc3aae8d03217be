package scheduler

import (
	"cmp"
	"slices"
	"time"

	"tandem/cluster/member"
)

// The cost of answering on node d, in milliseconds:
//
//	queue    until the prompt is begun: the tokens that are computed before, or the
//	         time until a slot is free, whichever is longer; loading the model
//	forward  the way there, if d is not this node
//	fetch    reading kept blocks from memory and disk, or getting them from another
//	         node, which may have to compute them first: see way.go
//	prefill  computing what is left
//	decode   the answer itself, weighed (weigh)
//	harm     what it adds to the answers that run there, weighed
//	copy     see spread
//	role     a share of prefill and decode, if d is planned for prompts of others
//
// A figure that is unknown, or too old, is the median of the other candidates', of
// two the worse; if nobody's is known, one of the defaults below. Restoring counts
// only where it is faster than computing, as the engine does it.
const (
	expectedDefault = 256
	rateDefault     = 500.0 // tokens/s
	paceMsDefault   = 50.0
	slotMsDefault   = 10_000.0
	ramRateDefault  = 4e9 // bytes/s
	diskRateDefault = 0.4e9
	goodputDefault  = 100e6
	rttMsDefault    = 1.0
	// fetchMargin: a fetch must be expected to be that much faster than computing.
	fetchMargin = 0.9
)

// costs is one decision in the making.
type costs struct {
	s       *State
	r       *Request
	nodes   []candidate
	links   links
	held    []int32  // by place in State.Nodes, the place in Request.Holdings and 1
	holders []holder // of some of the prompt, the longest run first

	// sources are the nodes that could compute prompts for others, with what that
	// costs wherever it goes, the cheapest first; only if KV can move.
	sources []source
	ranked  []ranked
	listed  bool // sources and holders are there: only who lacks much asks for them

	median   known
	medianIs bool
	scratch  plans // of the node that is looked at
}

// known are the figures of a node that costs are made of, all of them known.
type known struct {
	running, queued, waiting float64
	rate, slotMs, ram, disk  float64 // slotMs 0: not known, see costs.slotMs
	rttMs                    float64
	decode                   []Pace
	guessed                  bool
}

func newCosts(s *State, r *Request, nodes []candidate) *costs {
	c := &costs{s: s, r: r, nodes: nodes, held: make([]int32, len(s.Nodes))}
	places := newPlaces(s.Nodes)
	for i := range r.Holdings {
		if at, ok := places.of(r.Holdings[i].Node); ok {
			c.held[at] = int32(i + 1)
		}
	}
	c.links = newLinks(s, places)
	return c
}

// places finds nodes of a State by id.
type places struct {
	nodes []Node
	byID  map[member.ID]int // nil: they are in order
}

func newPlaces(nodes []Node) places {
	p := places{nodes: nodes}
	if !slices.IsSortedFunc(nodes, func(a, b Node) int { return compareIDs(a.ID, b.ID) }) {
		p.byID = make(map[member.ID]int, len(nodes))
		for i := range nodes {
			p.byID[nodes[i].ID] = i
		}
	}
	return p
}

func (p places) of(id member.ID) (int, bool) {
	if p.byID != nil {
		at, ok := p.byID[id]
		return at, ok
	}
	return slices.BinarySearchFunc(p.nodes, id, func(n Node, id member.ID) int { return compareIDs(n.ID, id) })
}

// holding is what the node at a place holds of the prompt.
func (c *costs) holding(place int) *Holding {
	if i := c.held[place]; i > 0 {
		return &c.r.Holdings[i-1]
	}
	return &noHolding
}

var noHolding Holding

// all gives the scores of all candidates.
func (c *costs) all() []Score {
	scores := make([]Score, len(c.nodes))
	for i := range c.nodes {
		scores[i] = c.score(c.nodes[i])
		scores[i].plans = nil // it is the next one's
	}
	c.spread(scores)
	return scores
}

// score is the cost of one node.
func (c *costs) score(n candidate) Score {
	k := c.known(n)
	s := Score{Node: n.node.ID, Guessed: k.guessed}
	c.restore(&s, n, &k, c.holding(n.place))
	s.PrefillMs = n.model.prefillMs(k.rate, s.Cached, c.r.Tokens)
	harm := c.chooseWay(&s, n, &k)
	s.QueueMs = c.queueMs(n.model, &k)
	if n.node.ID != c.s.Entry {
		s.ForwardMs = k.rttMs
	}
	c.decode(&s, n.model, &k)
	s.HarmMs += harm
	s.firstMs = s.QueueMs + s.ForwardMs + s.FetchMs + s.PrefillMs
	if n.node.Role == member.Prefill {
		s.RoleMs = c.s.Tuning.RoleShare * (s.PrefillMs + s.DecodeMs)
	}
	s.Cost = s.firstMs + s.DecodeMs + s.HarmMs + s.RoleMs
	return s
}

// restore counts what the node itself holds.
func (c *costs) restore(s *Score, n candidate, k *known, h *Holding) {
	resident := c.r.chainTokens(h.Resident + h.Predicted)
	s.predicted = c.r.chainTokens(h.Predicted)
	s.Cached = resident
	for _, tier := range []struct {
		blocks int
		rate   float64
		counts *int
	}{{h.FromRAM, k.ram, &s.fromRAM}, {h.FromDisk, k.disk, &s.fromDisk}} {
		tokens := min(tier.blocks*c.r.BlockTokens, c.r.Tokens-1-s.Cached)
		ms := float64(tokens*c.r.BytesPerToken) / tier.rate * 1000
		if tokens > 0 && ms < n.model.prefillMs(k.rate, s.Cached, s.Cached+tokens) {
			s.Cached += tokens
			s.FetchMs += ms
			*tier.counts = tokens
		}
	}
}

// queueMs is the time until the prompt is begun.
func (c *costs) queueMs(m *Model, k *known) float64 {
	// What waits is taken for one long prompt: long ones are what makes a queue.
	ms := m.prefillMs(k.rate, 0, int(k.waiting)+m.SentTokens)
	busy := k.running + k.queued + float64(m.Sent)
	if slots := float64(max(m.Slots, 1)); busy >= slots {
		ms = max(ms, (busy-slots+1)*c.slotMs(k)/slots)
	}
	return ms + max(0, m.LoadMs)
}

// decode counts the answer, and what it and its prompt do to those that run there.
func (c *costs) decode(s *Score, m *Model, k *known) {
	others := min(k.running+float64(m.Sent), float64(max(m.Slots, 1)-1))
	after := paceAt(k.decode, others+1)
	s.DecodeMs = float64(c.r.Expected) * c.weigh(after)
	if others <= 0 {
		return
	}
	before := paceAt(k.decode, others)
	// Running answers have half of theirs to go, on average.
	s.HarmMs = others*float64(c.r.Expected)/2*(c.weigh(after)-c.weigh(before)) + c.harm(others, s.PrefillMs)
}

// weigh turns a time between tokens into what it counts: little while it is as
// wanted.
func (c *costs) weigh(ms float64) float64 {
	t := &c.s.Tuning
	return t.DecodeWeight*min(ms, t.ITLMs) + max(0, ms-t.ITLMs)
}

// spread lets beginnings that many requests share get copies even if nobody waits: a
// node that lacks such a beginning is not charged for computing it when it was used
// often for each node that holds it. A conversation is never such a beginning, as
// its turns end at different blocks.
func (c *costs) spread(scores []Score) {
	t := &c.s.Tuning
	var hot Holding
	for _, h := range c.r.Holdings {
		if h.Uses >= t.CopyUses && h.Run > hot.Run {
			hot = h
		}
	}
	if hot.Run == 0 {
		return
	}
	copies := 0
	for i := range scores {
		if c.holding(c.nodes[i].place).Run >= hot.Run {
			copies++
		}
	}
	if hot.Uses < t.CopyUses*float64(max(copies, 1)) {
		return
	}
	end := c.r.chainTokens(hot.Run)
	for i := range scores {
		s := &scores[i]
		if c.holding(c.nodes[i].place).Run >= hot.Run || s.Cached >= end {
			continue
		}
		k := c.known(c.nodes[i])
		if ms := c.nodes[i].model.prefillMs(k.rate, s.Cached, end); ms <= t.CopyMsMax {
			s.CopyMs = -ms
			s.Cost -= ms
		}
	}
}

// prefillMs is the time to compute tokens from one place to another.
func (m *Model) prefillMs(rate float64, from, to int) float64 {
	n := float64(max(0, to-from))
	ms := n / rate * 1000
	if m.PrefillContext > 0 {
		ms *= 1 + float64(from+to)/2/m.PrefillContext
	}
	return ms
}

// paceAt is the time between tokens with some streams, between and beyond what was
// measured on a line.
func paceAt(points []Pace, streams float64) float64 {
	if len(points) == 1 {
		return points[0].Ms
	}
	i := 1
	for i < len(points)-1 && float64(points[i].Streams) < streams {
		i++
	}
	a, b := points[i-1], points[i]
	slope := (b.Ms - a.Ms) / float64(max(1, b.Streams-a.Streams))
	return max(a.Ms+(streams-float64(a.Streams))*slope, min(a.Ms, b.Ms)/2)
}

// known fills in what is not.
func (c *costs) known(n candidate) known {
	t, m := &c.s.Tuning, n.model
	k := known{running: float64(m.Running), queued: float64(m.Queued), waiting: float64(m.Waiting), decode: m.Decode}
	if m.LoadAge > t.LoadStale {
		middle := c.middle()
		k.running, k.queued, k.waiting, k.guessed = middle.running, middle.queued, middle.waiting, true
	}
	if k.rate = m.PrefillRate.Value; !m.PrefillRate.fresh(t.RateStale) {
		k.rate, k.guessed = c.middle().rate, true
	}
	if m.SlotMs.fresh(t.RateStale) {
		k.slotMs = m.SlotMs.Value
	}
	if k.ram = m.RAMRate.Value; !m.RAMRate.fresh(t.RateStale) {
		k.ram = c.middle().ram
	}
	if k.disk = m.DiskRate.Value; !m.DiskRate.fresh(t.RateStale) {
		k.disk = c.middle().disk
	}
	if n.node.ID != c.s.Entry {
		k.rttMs = c.links.fromEntry(n.place)
	}
	if len(k.decode) == 0 || m.DecodeAge > t.RateStale {
		k.decode, k.guessed = c.middle().decode, true
	}
	return k
}

func (f Figure) fresh(stale time.Duration) bool { return f.Value > 0 && f.Age <= stale }

// slotMs is asked for only where all slots are taken.
func (c *costs) slotMs(k *known) float64 {
	if k.slotMs > 0 {
		return k.slotMs
	}
	return c.middle().slotMs
}

// middle gives the medians, which few decisions need.
func (c *costs) middle() *known {
	if !c.medianIs {
		c.median, c.medianIs = c.medians(), true
	}
	return &c.median
}

// medians are the figures for those of which none is known.
func (c *costs) medians() known {
	t := &c.s.Tuning
	n := len(c.nodes)
	room := make([]float64, 7*n)
	list := func(i int) []float64 { return room[i*n : i*n : (i+1)*n] }
	running, queued, waiting, rate, slot, ram, disk := list(0), list(1), list(2), list(3), list(4), list(5), list(6)
	curves := make([][]Pace, 0, n)
	rates := func(list *[]float64, f Figure) {
		if f.fresh(t.RateStale) {
			*list = append(*list, f.Value)
		}
	}
	for _, n := range c.nodes {
		m := n.model
		if m.LoadAge <= t.LoadStale {
			running = append(running, float64(m.Running))
			queued = append(queued, float64(m.Queued))
			waiting = append(waiting, float64(m.Waiting))
		}
		rates(&rate, m.PrefillRate)
		rates(&slot, m.SlotMs)
		rates(&ram, m.RAMRate)
		rates(&disk, m.DiskRate)
		if len(m.Decode) > 0 && m.DecodeAge <= t.RateStale {
			curves = append(curves, m.Decode)
		}
	}
	k := known{
		running: middle(running, 0, false), queued: middle(queued, 0, false), waiting: middle(waiting, 0, false),
		rate: middle(rate, rateDefault, true), slotMs: middle(slot, slotMsDefault, false),
		ram: middle(ram, ramRateDefault, true), disk: middle(disk, diskRateDefault, true),
		decode: []Pace{{1, paceMsDefault}},
	}
	if len(curves) > 0 {
		slices.SortFunc(curves, func(a, b []Pace) int { return cmp.Compare(paceAt(a, 1), paceAt(b, 1)) })
		k.decode = curves[len(curves)/2]
	}
	return k
}

// middle is the median, of two the worse: the lower one of rates, the higher one of
// times.
func middle(list []float64, otherwise float64, lower bool) float64 {
	if len(list) == 0 {
		return otherwise
	}
	slices.Sort(list)
	if lower {
		return list[(len(list)-1)/2]
	}
	return list[len(list)/2]
}

func (s *State) node(id member.ID) *Node {
	for i := range s.Nodes {
		if s.Nodes[i].ID == id {
			return &s.Nodes[i]
		}
	}
	return nil
}
