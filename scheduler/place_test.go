package scheduler_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/scheduler"
)

// cluster is equal nodes with an index each entry shares; requests take their time.
type cluster struct {
	t       *testing.T
	index   *scheduler.Index
	ledger  *scheduler.Ledger
	nodes   []teller
	given   []int
	now     time.Time
	request uint64
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t, index: scheduler.NewIndex(scheduler.Limits{}), ledger: scheduler.NewLedger(), given: make([]int, n), now: start}
	for i := range n {
		c.nodes = append(c.nodes, tell(t, c.index, i))
	}
	return c
}

// place gives a request to a node, which stores its chain at once if done, or keeps it
// running otherwise.
func (c *cluster) place(entry int, chain []block.ID, tail int, done bool) int {
	c.t.Helper()
	s := scheduler.State{Entry: nodeID(entry)}
	for i := range c.nodes {
		sent, tokens := c.ledger.Sent(nodeID(i))
		s.Nodes = append(s.Nodes, scheduler.Node{ID: nodeID(i), State: member.Alive, Models: []scheduler.Model{{
			Name: "m", Ready: true, Slots: 8, Sent: sent, SentTokens: tokens,
			PrefillRate: scheduler.Figure{Value: 5000}, Decode: []scheduler.Pace{{Streams: 1, Ms: 10}, {Streams: 8, Ms: 20}},
			SlotMs: scheduler.Figure{Value: 1000},
		}}})
	}
	c.request++
	d, err := scheduler.Place(s, scheduler.Request{Model: "m", Tokens: len(chain)*64 + tail, BlockTokens: 64, BytesPerToken: 1000,
		Expected: 32, Holdings: c.index.Match(chain, c.now), Number: c.request, Seed: c.request})
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range c.nodes {
		if nodeID(i) != d.Node {
			continue
		}
		c.given[i]++
		if done {
			c.nodes[i].say(scheduler.Stored, scheduler.Resident, chain)
		} else {
			c.ledger.Gave(d.Node, d.Compute, c.now)
			c.index.Predict(d.Node, chain, c.now.Add(3*time.Second))
		}
		return i
	}
	c.t.Fatalf("no node %s", d.Node)
	return -1
}

func (c *cluster) idle() {
	c.now = c.now.Add(2 * time.Second)
	for i := range c.nodes {
		c.ledger.Reported(nodeID(i), c.now)
	}
}

func (c *cluster) shares() (largest, smallest float64) {
	all := 0
	smallest = 1
	for _, n := range c.given {
		all += n
	}
	for _, n := range c.given {
		largest, smallest = max(largest, float64(n)/float64(all)), min(smallest, float64(n)/float64(all))
	}
	return largest, smallest
}

// Case rou-01: all share a system prompt of 20 blocks that one node has.
func TestSharedBeginning(t *testing.T) {
	shared := chainOf(nil, 1, 20)
	warm := func(t *testing.T) *cluster {
		c := newCluster(t, 3)
		c.nodes[0].say(scheduler.Stored, scheduler.Resident, shared)
		return c
	}
	t.Run("in bursts no node gets more than twice its share", func(t *testing.T) {
		c := warm(t)
		for range 10 {
			for i := range 24 {
				c.place(i%3, shared, 30, false)
			}
			c.idle()
		}
		if largest, smallest := c.shares(); largest > 0.67 || smallest < 0.1 {
			t.Errorf("shares %v", c.given)
		}
	})
	t.Run("paced, the others get a copy", func(t *testing.T) {
		c := warm(t)
		for i := range 120 {
			c.place(i%3, shared, 30, true)
			c.idle()
		}
		if largest, smallest := c.shares(); largest > 0.9 || smallest < 0.05 {
			t.Errorf("shares %v", c.given)
		}
	})
	t.Run("the warm one is preferred when all are idle", func(t *testing.T) {
		c := warm(t)
		for i := range 5 {
			if node := c.place(i%3, shared, 30, true); node != 0 {
				t.Errorf("request %d went to node %d", i, node)
			}
			c.idle()
		}
	})
	t.Run("a conversation stays where it is", func(t *testing.T) {
		c := newCluster(t, 3)
		var chain []block.ID
		moved := 0
		last := -1
		for turn := range 40 {
			chain = chainOf(chain, uint64(100+turn), 3)
			node := c.place(turn%3, chain, 5, true)
			if last >= 0 && node != last {
				moved++
			}
			last = node
			c.idle()
		}
		if moved > 0 {
			t.Errorf("it moved %d times in 40 turns", moved)
		}
	})
}

// Whatever is known, a decision is sound: the node may be chosen, the numbers add up,
// nothing is changed that was given, and equal input gives equal output.
func TestDecisionsAreSound(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	chosen := 0
	for range 5000 {
		s, r := anyState(random), anyRequest(random)
		before := fmt.Sprintf("%+v %+v", s, r)
		for _, name := range scheduler.PolicyNames() {
			policy, err := scheduler.PolicyByName(name)
			if err != nil {
				t.Fatal(err)
			}
			d, err := policy(s, r)
			again, errAgain := policy(s, r)
			if !reflect.DeepEqual(d, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
				t.Fatalf("seed %d, %s: two answers:\n%+v %v\n%+v %v", seed, name, d, err, again, errAgain)
			}
			if err != nil {
				continue
			}
			chosen++
			if fault := unsound(s, r, d); fault != "" {
				t.Fatalf("seed %d, %s: %s\n%+v\n%+v\n%+v", seed, name, fault, d, s, r)
			}
		}
		if after := fmt.Sprintf("%+v %+v", s, r); after != before {
			t.Fatalf("seed %d: what was given was changed", seed)
		}
	}
	if chosen < 1000 {
		t.Errorf("only %d decisions", chosen)
	}
}

func unsound(s scheduler.State, r scheduler.Request, d scheduler.Decision) string {
	var node *scheduler.Node
	for i := range s.Nodes {
		if s.Nodes[i].ID == d.Node {
			node = &s.Nodes[i]
		}
	}
	switch {
	case node == nil:
		return "an unknown node"
	case node.State != member.Alive || !node.Models[0].Ready || node.Models[0].Name != r.Model:
		return "a node that cannot answer"
	case len(r.Exclude) > 0 && r.Exclude[0] == d.Node:
		return "a node that is excluded"
	case r.Tokens >= node.Models[0].Context:
		return "a prompt that does not fit"
	case d.Cached < 0 || d.Compute < 1 || d.Cached+d.Compute != r.Tokens:
		return "cached and computed tokens do not add up"
	case d.Reason == "" || d.EstimateMs < 0 || math.IsNaN(d.EstimateMs) || math.IsInf(d.EstimateMs, 0):
		return "no reason, or no estimate"
	case len(d.Fetch) > 0 && !s.Transfers:
		return "a transfer that cannot be made"
	}
	for i, c := range d.Scores {
		sum := c.QueueMs + c.ForwardMs + c.FetchMs + c.PrefillMs + c.DecodeMs + c.HarmMs + c.CopyMs + c.RoleMs
		if c.Why == "" && d.Policy == "cost" && math.Abs(sum-c.Cost) > 1e-6*max(1, math.Abs(sum)) {
			return fmt.Sprintf("the parts of %s are %g together, not %g", c.Node, sum, c.Cost)
		}
		if i > 0 && d.Scores[i-1].Node >= c.Node {
			return "scores are not in order"
		}
		if c.Node == d.Node && c.Why != "" {
			return "the chosen node was no candidate"
		}
	}
	return ""
}

func anyState(random *rand.Rand) scheduler.State {
	figure := func(scale float64) scheduler.Figure {
		return scheduler.Figure{Value: float64(random.IntN(4)) * scale, Age: time.Duration(random.IntN(30)) * time.Hour}
	}
	s := scheduler.State{Entry: nodeID(0), Transfers: random.IntN(2) == 0}
	states := []member.State{member.Alive, member.Alive, member.Alive, member.Draining, member.Failed, member.Left}
	for i := range 1 + random.IntN(6) {
		m := scheduler.Model{
			Name: "m", Ready: random.IntN(5) > 0, Context: 1 + random.IntN(20_000), Slots: random.IntN(5), QueueMax: random.IntN(5),
			Running: random.IntN(5), Queued: random.IntN(5), Waiting: random.IntN(5000), LoadAge: time.Duration(random.IntN(8)) * time.Second,
			Sent: random.IntN(3), SentTokens: random.IntN(3000), PrefillRate: figure(1000), PrefillContext: float64(random.IntN(3) * 10_000),
			SlotMs: figure(1000), RAMRate: figure(1e9), DiskRate: figure(1e8),
		}
		for streams := range random.IntN(4) {
			m.Decode = append(m.Decode, scheduler.Pace{Streams: 1 + streams, Ms: float64(1 + random.IntN(50))})
		}
		s.Nodes = append(s.Nodes, scheduler.Node{
			ID: nodeID(i), State: states[random.IntN(len(states))], Role: []member.Role{member.Hybrid, member.Prefill}[random.IntN(2)],
			Models:  []scheduler.Model{m},
			Mark:    scheduler.Mark{Kind: scheduler.MarkKind(random.IntN(4)), Age: time.Duration(random.IntN(9)) * time.Second, Term: 5 * time.Second},
			GoodAge: time.Duration(random.IntN(9)) * time.Second,
		})
		s.Links = append(s.Links, scheduler.Link{A: nodeID(0), B: nodeID(i), Goodput: figure(1e8), RTTMs: figure(1)})
	}
	return s
}

func anyRequest(random *rand.Rand) scheduler.Request {
	r := scheduler.Request{Model: "m", Tokens: 1 + random.IntN(10_000), BlockTokens: 64, BytesPerToken: 1 + random.IntN(200_000),
		Number: random.Uint64(), Seed: random.Uint64()}
	for i := range random.IntN(7) {
		h := scheduler.Holding{Node: nodeID(i), Resident: random.IntN(50), FromRAM: random.IntN(50), FromDisk: random.IntN(50),
			Predicted: random.IntN(10), Uses: float64(random.IntN(60))}
		h.Run = h.Resident + h.FromRAM + h.FromDisk + h.Predicted
		if h.Run > 0 {
			r.Holdings = append(r.Holdings, h)
		}
	}
	if random.IntN(3) == 0 {
		r.Exclude = []member.ID{nodeID(random.IntN(6))}
	}
	return r
}

// The seed draws evenly.
func TestDrawsAreEven(t *testing.T) {
	counts := map[member.ID]int{}
	s := scheduler.State{Entry: "elsewhere"}
	const nodes, draws = 5, 5000
	for i := range nodes {
		s.Nodes = append(s.Nodes, scheduler.Node{ID: nodeID(i), State: member.Alive, Models: []scheduler.Model{{Name: "m", Ready: true}}})
	}
	for _, name := range []string{"cost", "random", "least-loaded", "dynamo"} {
		policy, _ := scheduler.PolicyByName(name)
		clear(counts)
		for seed := range uint64(draws) {
			d, err := policy(s, scheduler.Request{Model: "m", Tokens: 10, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			counts[d.Node]++
		}
		for i := range nodes {
			if n := counts[nodeID(i)]; n < draws/nodes*8/10 || n > draws/nodes*12/10 {
				t.Errorf("%s: node %d was drawn %d times of %d", name, i, n, draws)
			}
		}
	}
}

func TestLedger(t *testing.T) {
	l := scheduler.NewLedger()
	expect := func(what string, requests, tokens int) {
		t.Helper()
		if r, n := l.Sent(nodeID(0)); r != requests || n != tokens {
			t.Errorf("%s: %d requests, %d tokens; want %d, %d", what, r, n, requests, tokens)
		}
	}
	l.Gave(nodeID(0), 100, start)
	l.Gave(nodeID(0), 50, start.Add(time.Second))
	l.Gave(nodeID(1), 7, start)
	expect("two", 2, 150)
	l.Reported(nodeID(0), start)
	expect("a report of before", 2, 150)
	l.Reported(nodeID(0), start.Add(time.Millisecond))
	expect("a report that has the first", 1, 50)
	l.Forget(nodeID(0))
	expect("forgotten", 0, 0)
	for range 10_000 {
		l.Gave(nodeID(0), 1, start)
	}
	if r, _ := l.Sent(nodeID(0)); r > 1024 {
		t.Errorf("%d requests are remembered", r)
	}
}
