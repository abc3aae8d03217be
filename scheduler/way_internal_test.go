package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tandem/cluster/member"
)

// fastest are the shortest times of the ways by which other nodes help, found by
// looking at all of them.
func (c *costs) fastest(s *Score, n candidate, k *known) (fetched, remote float64) {
	size := float64(c.r.BlockTokens * c.r.BytesPerToken)
	end := (c.r.Tokens - 1) / c.r.BlockTokens
	first, tokens := s.Cached/c.r.BlockTokens, end*c.r.BlockTokens
	for i := range c.s.Nodes {
		from := &c.s.Nodes[i]
		if i == n.place {
			continue
		}
		h := c.holding(i)
		held := c.r.chainTokens(h.Run - h.Predicted)
		if held-s.Cached >= c.s.Tuning.FetchTokens && (from.State == member.Alive || from.State == member.Draining) && from.left() == 0 {
			ms := s.FetchMs + c.moveMs(n, i, h.Run-h.Predicted-first, k) + n.model.prefillMs(k.rate, held, c.r.Tokens)
			if fetched == 0 || ms < fetched {
				fetched = ms
			}
		}
	}
	if tokens-s.Cached < c.s.Tuning.FetchTokens || c.byCost() && !n.model.PrefillRate.fresh(c.s.Tuning.RateStale) {
		return fetched, 0
	}
	for i := range c.sources {
		src := &c.sources[i]
		if src.place == n.place {
			continue
		}
		goodput, rtt := c.links.between(n.place, src.place)
		bytes := size * float64(end-first)
		ms := s.FetchMs + src.queueMs + src.restoreMs + rtt + max(src.computeMs, bytes/goodput*1000) + size/goodput*1000 + bytes/k.ram*1000
		ms += n.model.prefillMs(k.rate, tokens, c.r.Tokens)
		if remote == 0 || ms < remote {
			remote = ms
		}
	}
	return fetched, remote
}

// The ways that are found by looking at few nodes are those that are found by looking
// at all.
func TestFewNodesAreLookedAt(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	ways := map[WayKind]int{}
	for range 3000 {
		s, r := randomState(random, 1+random.IntN(150))
		s.Tuning = s.Tuning.filled()
		f, err := candidates(&s, &r)
		if err != nil {
			continue
		}
		c := newCosts(&s, &r, f.nodes)
		for _, n := range f.nodes {
			score := c.score(n)
			list := score.plans.list[:score.plans.n]
			k := c.known(n)
			own := Score{Node: n.node.ID}
			c.restore(&own, n, &k, c.holding(n.place))
			fetched, remote := 0.0, 0.0
			if s.Transfers {
				c.list()
				fetched, remote = c.fastest(&own, n, &k)
			}
			for _, p := range list {
				ways[p.Kind]++
				switch {
				case p.Kind == Fetched && p.Ms == fetched:
					fetched = 0
				case p.Kind == Remote && p.Ms == remote:
					remote = 0
				case p.Kind != Local:
					t.Fatalf("%s in %v ms; looking at all: fetched %v, remote %v", p.Kind, p.Ms, fetched, remote)
				}
			}
			if fetched != 0 || remote != 0 {
				t.Fatalf("not found: fetched %v, remote %v; found %+v", fetched, remote, list)
			}
		}
	}
	if ways[Fetched] < 1000 || ways[Remote] < 1000 {
		t.Errorf("%v: the test shows little", ways)
	}
}

// randomState is nodes of which some figures are not known, and a request.
func randomState(random *rand.Rand, n int) (State, Request) {
	id := func(i int) member.ID { return member.ID(fmt.Sprintf("%04d", i)) }
	s := State{Entry: id(random.IntN(n)), Transfers: random.IntN(5) > 0, Disagg: []Disagg{"", DisaggAuto, DisaggAlways, DisaggNever, DisaggDynamo}[random.IntN(5)]}
	r := Request{Model: "m", Tokens: 1 + random.IntN(20_000), BlockTokens: 64, BytesPerToken: 1 + random.IntN(200_000), Seed: random.Uint64(), Expected: 256}
	some := func(v float64) Figure {
		return Figure{Value: v * random.Float64() * float64(min(1, random.IntN(4))), Age: time.Duration(random.IntN(3)*random.IntN(90_000)) * time.Second}
	}
	for _, i := range random.Perm(n) {
		m := Model{Name: "m", Ready: random.IntN(20) > 0, Slots: 1 + random.IntN(8), QueueMax: random.IntN(3) * 5, Running: random.IntN(8), Queued: random.IntN(4),
			Waiting: random.IntN(30_000) * random.IntN(2), LoadAge: time.Duration(random.IntN(6)*random.IntN(2)) * time.Second,
			PrefillRate: some(10_000), PrefillContext: float64(random.IntN(2) * 30_000), SlotMs: some(9000), RAMRate: some(9e9), DiskRate: some(2e9)}
		if random.IntN(4) > 0 {
			m.Decode = []Pace{{Streams: 1, Ms: 5 + random.Float64()*20}, {Streams: 8, Ms: 30 + random.Float64()*50}}
		}
		s.Nodes = append(s.Nodes, Node{ID: id(i), State: []member.State{member.Alive, member.Alive, member.Alive, member.Draining, member.Failed}[random.IntN(5)],
			Role: []member.Role{member.Hybrid, member.Hybrid, member.Prefill, member.Decode}[random.IntN(4)], Models: []Model{m}})
	}
	for range random.IntN(2 * n) {
		s.Links = append(s.Links, Link{A: id(random.IntN(n)), B: id(random.IntN(n)), Goodput: some(3e9), RTTMs: some(2)})
	}
	for i := range n {
		run := random.IntN(r.Tokens/64 + 1)
		if run == 0 || random.IntN(3) > 0 {
			continue
		}
		resident := random.IntN(run + 1)
		ram := random.IntN(run - resident + 1)
		r.Holdings = append(r.Holdings, Holding{Node: id(i), Run: run, Resident: resident, FromRAM: ram, FromDisk: run - resident - ram, Uses: float64(random.IntN(40))})
	}
	return s, r
}
