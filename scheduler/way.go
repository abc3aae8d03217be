package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"tandem/cluster/member"
)

// Disagg says when a prompt may be computed on another node than its answer.
type Disagg string

// The rules. DisaggAuto, also the zero value: when it is faster, by cost. DisaggAlways
// and DisaggNever: for comparison. DisaggDynamo: as NVIDIA Dynamo does it, here iff
// less than 2,048 tokens, and less than 0.7 of the prompt, are not cached.
const (
	DisaggAuto   Disagg = "auto"
	DisaggAlways Disagg = "always"
	DisaggNever  Disagg = "never"
	DisaggDynamo Disagg = "dynamo"
)

// roundingShare is far above what sums differ by that are made in another order.
const roundingShare = 1e-9

const (
	dynamoTokens = 2048
	dynamoShare  = 0.7
)

// remotePays tells, where a rule does not go by cost, whether a prompt is computed
// elsewhere.
func (d Disagg) remotePays(uncached, tokens int) (remote, byCost bool) {
	switch d {
	case DisaggAlways:
		return true, false
	case DisaggNever:
		return false, false
	case DisaggDynamo:
		return uncached >= dynamoTokens || float64(uncached) >= dynamoShare*float64(tokens), false
	}
	return false, true
}

// WayKind is how a node gets the KV of a prompt.
type WayKind string

// The kinds. Local: it restores what it has and computes the rest. Fetched: another
// node has more of it and sends that. Remote: another node computes it and sends it
// meanwhile.
const (
	Local   WayKind = "local"
	Fetched WayKind = "fetched"
	Remote  WayKind = "remote"
)

// Way is one way in which a node could get the KV of a prompt.
type Way struct {
	Kind WayKind   `json:"kind"`
	From member.ID `json:"from,omitempty"`
	Ms   float64   `json:"ms"` // until the prompt is there, as expected, without the queue of the node itself
}

// source is a node that could compute prompts for others.
type source struct {
	candidate
	queueMs, restoreMs, computeMs float64 // computeMs of all that another node can get from it
	streams                       float64 // that run there
}

// holder is a place in State.Nodes, the blocks that are surely held there, and where in
// costs.holders those begin that hold less.
type holder struct{ place, blocks, less int }

// ranked is a place in costs.sources and the time until the prompt is computed there.
type ranked struct {
	ms float64
	at int
}

// plan is one way with all that follows from it.
type plan struct {
	Way
	getMs, leftMs float64 // until it came; to compute what is left
	harm          float64 // weighed, to streams that run where it is computed
	tokens        int     // of the prompt that are there without the node computing them
	fetch         Fetch   // of Fetched and Remote
}

// fetches is the list that a Decision has.
func (p *plan) fetches() []Fetch {
	if p.fetch.Blocks == 0 {
		return nil
	}
	return []Fetch{p.fetch}
}

// plans are the ways of one node, the chosen one first.
type plans struct {
	list [3]plan // one of each kind
	n    int
}

func (p *plans) add(one plan) {
	p.list[p.n] = one
	p.n++
}

func (p *plans) ways() []Way {
	if p.n < 2 {
		return nil // there was no choice
	}
	out := make([]Way, p.n)
	for i := range out {
		out[i] = p.list[i].Way
	}
	return out
}

// byCost tells whether figures decide: guessed ones must not.
func (c *costs) byCost() bool { return c.s.Disagg == "" || c.s.Disagg == DisaggAuto }

// list finds who holds some of the prompt, and who could compute it for others.
func (c *costs) list() {
	if c.listed {
		return
	}
	c.listed = true
	for i := range c.s.Nodes {
		if h := c.holding(i); h.Run > h.Predicted {
			c.holders = append(c.holders, holder{place: i, blocks: h.Run - h.Predicted})
		}
	}
	slices.SortStableFunc(c.holders, func(a, b holder) int { return cmp.Compare(b.blocks, a.blocks) })
	less := len(c.holders)
	for i := len(c.holders) - 1; i >= 0; i-- {
		if i+1 < len(c.holders) && c.holders[i].blocks != c.holders[i+1].blocks {
			less = i + 1
		}
		c.holders[i].less = less
	}
	if c.s.Disagg == DisaggNever {
		return
	}
	tokens := (c.r.Tokens - 1) / c.r.BlockTokens * c.r.BlockTokens
	c.sources, c.ranked = make([]source, 0, len(c.s.Nodes)), make([]ranked, 0, len(c.s.Nodes))
	for i := range c.s.Nodes {
		n := &c.s.Nodes[i]
		m := n.model(c.r.Model)
		if m == nil || refusal(n, m, c.r) != "" || n.Role == member.Decode && n.Fixed || n.left() > 0 || m.full(&c.s.Tuning) || m.Context > 0 && c.r.Tokens >= m.Context {
			continue
		}
		src := source{candidate: candidate{n, m, i}}
		k := c.known(src.candidate)
		if c.byCost() && k.guessed {
			continue // nothing was measured there: it may be any
		}
		var s Score
		c.restore(&s, src.candidate, &k, c.holding(i))
		src.restoreMs, src.computeMs = s.FetchMs, m.prefillMs(k.rate, s.Cached, tokens)
		src.queueMs = c.queueMs(m, &k)
		src.streams = min(k.running+float64(m.Sent), float64(max(m.Slots, 1)))
		c.ranked = append(c.ranked, ranked{src.queueMs + src.restoreMs + src.computeMs, len(c.sources)})
		c.sources = append(c.sources, src)
	}
	slices.SortFunc(c.ranked, func(a, b ranked) int {
		if a.ms != b.ms {
			return cmp.Compare(a.ms, b.ms)
		}
		return a.at - b.at
	})
}

// chooseWay chooses how node n gets the prompt, beginning with what it has itself,
// which s tells. It returns what that does to streams elsewhere, weighed.
func (c *costs) chooseWay(s *Score, n candidate, k *known) (harm float64) {
	local := plan{Way: Way{Kind: Local, Ms: s.FetchMs + s.PrefillMs}, getMs: s.FetchMs, leftMs: s.PrefillMs, tokens: s.Cached}
	s.source = n.node.ID
	s.plans = &c.scratch
	s.plans.n = 0
	s.plans.add(local)
	if !c.s.Transfers || c.r.BlockTokens <= 0 {
		return 0
	}
	streams := min(k.running+float64(n.model.Sent), float64(max(n.model.Slots, 1)-1))
	s.plans.list[0].harm = c.harm(streams, local.leftMs) + c.astray(n.node, local.leftMs)
	if c.r.Tokens-1-s.Cached < c.s.Tuning.FetchTokens {
		return 0 // nobody is asked for so little
	}
	c.list()
	if p, ok := c.fetched(s, n, k); ok {
		s.plans.add(p)
	}
	if p, ok := c.remote(s, n, k); ok {
		s.plans.add(p)
	}
	list := s.plans.list[:s.plans.n]
	best := c.bestOf(list, c.r.Tokens-s.Cached)
	list[0], list[best] = list[best], list[0]
	chosen := &list[0]
	s.FetchMs, s.PrefillMs, s.Cached = chosen.getMs, chosen.leftMs, chosen.tokens
	if chosen.Kind != Remote {
		return 0 // what it does to streams of n itself, decode counts
	}
	s.source = chosen.From
	return chosen.harm
}

// harm is what a prompt that is computed does to streams beside it, weighed: it takes
// half of each step from them.
func (c *costs) harm(streams, ms float64) float64 { return streams * ms / 2 * c.s.Tuning.DecodeWeight }

// astray is what a prompt counts more on a node that is planned for answers.
func (c *costs) astray(n *Node, ms float64) float64 {
	if n.Role != member.Decode {
		return 0
	}
	return c.s.Tuning.RoleShare * ms
}

// bestOf is the place of the plan to follow. Another one than the first, which asks
// nobody, must be faster by a margin.
func (c *costs) bestOf(plans []plan, uncached int) int {
	best := 0
	for i := 1; i < len(plans); i++ {
		p := &plans[i]
		switch p.Kind {
		case Fetched:
			if p.Ms < plans[best].Ms*fetchMargin {
				best = i
			}
		case Remote:
			wanted, byCost := c.s.Disagg.remotePays(uncached, c.r.Tokens)
			t := &c.s.Tuning
			if wanted || byCost && p.Ms+p.harm < (plans[best].Ms+plans[best].harm)*(1-t.Hysteresis)-t.NoiseMs {
				best = i
			}
		}
	}
	return best
}

// fetched plans to get from one other node what this one lacks.
func (c *costs) fetched(s *Score, n candidate, k *known) (best plan, ok bool) {
	for at := 0; at < len(c.holders); {
		h := &c.holders[at]
		from, tokens := &c.s.Nodes[h.place], c.r.chainTokens(h.blocks)
		if tokens-s.Cached < c.s.Tuning.FetchTokens {
			break // all that follow hold less
		}
		first := s.Cached / c.r.BlockTokens
		blocks := h.blocks - first
		left := n.model.prefillMs(k.rate, tokens, c.r.Tokens)
		if ok && s.FetchMs+c.moveMsMin(blocks, k)+left >= best.Ms*(1-roundingShare) {
			at = h.less // nor can any that holds as much be faster
			continue
		}
		at++
		if h.place == n.place || from.State != member.Alive && from.State != member.Draining || from.left() > 0 {
			continue
		}
		ms := s.FetchMs + c.moveMs(n, h.place, blocks, k)
		if ok && ms+left >= best.Ms {
			continue
		}
		best = plan{Way: Way{Kind: Fetched, From: from.ID, Ms: ms + left}, getMs: ms, leftMs: left, tokens: tokens,
			fetch: Fetch{From: from.ID, First: first, Blocks: blocks, Ms: ms, ComputeMs: s.PrefillMs - left}}
		ok = true
	}
	return best, ok
}

// remote plans to have the prompt computed elsewhere and to get it meanwhile:
//
//	queue + what the source restores + RTT + the longer one of computing and moving
//	+ moving the last block + import
func (c *costs) remote(s *Score, n candidate, k *known) (best plan, ok bool) {
	end := (c.r.Tokens - 1) / c.r.BlockTokens // blocks
	first := s.Cached / c.r.BlockTokens
	tokens := end * c.r.BlockTokens
	if tokens-s.Cached < c.s.Tuning.FetchTokens || c.byCost() && !n.model.PrefillRate.fresh(c.s.Tuning.RateStale) {
		return best, false
	}
	left := n.model.prefillMs(k.rate, tokens, c.r.Tokens)
	size := float64(c.r.BlockTokens * c.r.BytesPerToken)
	bytes := size * float64(end-first)
	moveMin := bytes / c.links.goodputMax() * 1000
	fixed := s.FetchMs + c.links.rttMin() + size/c.links.goodputMax()*1000 + bytes/k.ram*1000 + left
	for _, rank := range c.ranked {
		src := &c.sources[rank.at]
		if ok && max(rank.ms, moveMin)+fixed >= best.Ms*(1-roundingShare) {
			break // nor can any that follows be faster
		}
		if src.place == n.place {
			continue
		}
		goodput, rtt := c.links.between(n.place, src.place)
		compute := src.computeMs
		ms := s.FetchMs + src.queueMs + src.restoreMs + rtt + max(compute, bytes/goodput*1000) + size/goodput*1000 + bytes/k.ram*1000
		if ok && ms+left >= best.Ms {
			continue
		}
		best = plan{Way: Way{Kind: Remote, From: src.node.ID, Ms: ms + left}, getMs: ms, leftMs: left, tokens: tokens,
			harm:  c.harm(src.streams, compute) + c.astray(src.node, compute),
			fetch: Fetch{From: src.node.ID, First: first, Blocks: end - first, Ms: ms, ComputeMs: s.PrefillMs - left, Made: true}}
		ok = true
	}
	return best, ok
}

// moveMs is the time to get blocks from the node at a place into the engine of n.
func (c *costs) moveMs(n candidate, from, blocks int, k *known) float64 {
	goodput, rtt := c.links.between(n.place, from)
	bytes := float64(blocks * c.r.BlockTokens * c.r.BytesPerToken)
	return rtt + bytes/goodput*1000 + bytes/k.ram*1000
}

// moveMsMin is that over the best link.
func (c *costs) moveMsMin(blocks int, k *known) float64 {
	bytes := float64(blocks * c.r.BlockTokens * c.r.BytesPerToken)
	return c.links.rttMin() + bytes/c.links.goodputMax()*1000 + bytes/k.ram*1000
}

// Source decides how a node that was chosen gets the KV of a prompt, with the figures
// of this moment. The node counts as able to answer, whatever is known of it.
func Source(s State, r Request, node member.ID) (Decision, error) {
	s.Tuning = s.Tuning.filled()
	f, _ := candidates(&s, &r) // that nobody can take one more does not matter here
	at := slices.IndexFunc(f.nodes, func(c candidate) bool { return c.node.ID == node })
	if at < 0 {
		n := s.node(node)
		var m *Model
		if n != nil {
			m = n.model(r.Model)
		}
		if m == nil {
			return Decision{}, &UnknownModelError{Model: r.Model}
		}
		place := slices.IndexFunc(s.Nodes, func(o Node) bool { return o.ID == node })
		at = len(f.nodes)
		f.nodes = append(f.nodes, candidate{n, m, place})
	}
	c := newCosts(&s, &r, f.nodes)
	score := c.score(f.nodes[at])
	d := Decision{Node: node, Source: score.source, Policy: "source", Fetch: score.plans.list[0].fetches(), Ways: score.plans.ways(), EstimateMs: score.FetchMs + score.PrefillMs,
		Cached: score.Cached, Compute: r.Tokens - score.Cached}
	d.Reason = s.explainWay(&r, &score)
	return d, nil
}

// explainWay says in words how a node gets a prompt, and what the other ways would
// have cost; "" if there was no choice.
func (s *State) explainWay(r *Request, score *Score) string {
	if score.plans.n < 2 {
		return ""
	}
	chosen := &score.plans.list[0]
	var text string
	switch chosen.Kind {
	case Local:
		text = fmt.Sprintf("the prompt is computed here in %s ms", milliseconds(chosen.Ms))
	case Fetched:
		text = fmt.Sprintf("%s tokens come from %s, %s ms with the rest", number(chosen.fetch.Blocks*r.BlockTokens), s.name(chosen.From), milliseconds(chosen.Ms))
	case Remote:
		text = fmt.Sprintf("%s computes %s tokens, %s ms with the rest", s.name(chosen.From), number(chosen.fetch.Blocks*r.BlockTokens), milliseconds(chosen.Ms))
	}
	for _, w := range score.plans.list[1:score.plans.n] {
		switch w.Kind {
		case Local:
			text += fmt.Sprintf(", against %s ms here", milliseconds(w.Ms))
		case Fetched:
			text += fmt.Sprintf(", against %s ms from %s", milliseconds(w.Ms), s.name(w.From))
		case Remote:
			text += fmt.Sprintf(", against %s ms by %s", milliseconds(w.Ms), s.name(w.From))
		}
	}
	if s.Disagg != "" && s.Disagg != DisaggAuto {
		text += fmt.Sprintf(" (--disagg %s)", s.Disagg)
	}
	return text
}
