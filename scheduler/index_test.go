package scheduler_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/scheduler"
)

var start = time.Unix(1_000_000, 0)

func nodeID(i int) member.ID { return member.ID(fmt.Sprintf("%032x", i+1)) }

// chainOf makes the ids of n blocks after some others; equal names give equal ids.
func chainOf(before []block.ID, name uint64, n int) []block.ID {
	out := slices.Clone(before)
	for i := range n {
		h := (name<<20 + uint64(i) + 1) * 0x9e3779b97f4a7c15
		h ^= h >> 31
		var id block.ID
		binary.LittleEndian.PutUint64(id[:], h*0xbf58476d1ce4e5b9)
		binary.LittleEndian.PutUint64(id[8:], name<<20+uint64(i)+1)
		out = append(out, id)
	}
	return out
}

// teller numbers events of a node and applies them.
type teller struct {
	t    *testing.T
	x    *scheduler.Index
	node member.ID
	feed *scheduler.Feed
}

func (n teller) say(kind scheduler.Kind, tier scheduler.Tier, ids []block.ID) {
	n.t.Helper()
	for _, e := range n.feed.Events(kind, tier, ids) {
		if err := n.x.Apply(n.node, e); err != nil {
			n.t.Fatalf("Apply(%s, %d): %v", n.node.Short(), e.Seq, err)
		}
	}
}

func tell(t *testing.T, x *scheduler.Index, i int) teller {
	return teller{t, x, nodeID(i), scheduler.NewFeed(uint64(i + 1))}
}

func TestMatchTellsRunsByNodeAndTier(t *testing.T) {
	x := scheduler.NewIndex(scheduler.Limits{})
	chain := chainOf(nil, 1, 10)
	a, b, c := tell(t, x, 0), tell(t, x, 1), tell(t, x, 2)
	a.say(scheduler.Stored, scheduler.Resident, chain[:4])
	a.say(scheduler.Stored, scheduler.RAM, chain[:6])
	a.say(scheduler.Stored, scheduler.Disk, chain[:9])
	b.say(scheduler.Stored, scheduler.Disk, chain[:3])
	b.say(scheduler.Stored, scheduler.RAM, chain[3:5]) // a run over two tiers
	b.say(scheduler.Stored, scheduler.RAM, chain[7:])  // after a hole
	c.say(scheduler.Stored, scheduler.RAM, chain[1:])  // without a beginning
	want := []scheduler.Holding{
		{Node: a.node, Run: 9, Resident: 4, RAM: 6, Disk: 9, FromRAM: 2, FromDisk: 3, Uses: 1},
		{Node: b.node, Run: 5, Disk: 3, FromRAM: 2, FromDisk: 3},
	}
	if got := x.Match(chain, start); !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := x.Match(nil, start); len(got) != 0 {
		t.Errorf("an empty chain: %+v", got)
	}
}

func TestEventsInOrderOnly(t *testing.T) {
	x := scheduler.NewIndex(scheduler.Limits{})
	chain := chainOf(nil, 1, 8)
	event := func(origin, seq uint64, kind scheduler.Kind, ids []block.ID) error {
		return x.Apply(nodeID(0), scheduler.Event{Origin: origin, Seq: seq, Kind: kind, IDs: ids})
	}
	run := func() int {
		if h := x.Match(chain, start); len(h) == 1 {
			return h[0].Run
		}
		return 0
	}
	expect := func(what string, err error, want int) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if got := run(); got != want {
			t.Errorf("%s: a run of %d blocks, want %d", what, got, want)
		}
	}
	gap := func(what string, err error, want, got uint64, blocks int) {
		t.Helper()
		var g *scheduler.GapError
		if !errors.As(err, &g) || g.Want != want || g.Got != got || g.Node != nodeID(0) {
			t.Errorf("%s: %v, want a gap of %d to %d", what, err, want, got)
		}
		if n := run(); n != blocks {
			t.Errorf("%s: a run of %d blocks, want %d", what, n, blocks)
		}
	}
	gap("the middle of an unknown node", event(7, 5, scheduler.Stored, chain), 0, 5, 0)
	expect("the first event", event(7, 1, scheduler.Stored, chain[:4]), 4)
	expect("the same again", event(7, 1, scheduler.Removed, chain), 4)
	expect("the next", event(7, 2, scheduler.Removed, chain[3:]), 3)
	expect("an old one", event(7, 1, scheduler.Stored, chain), 3)
	gap("one is missing", event(7, 4, scheduler.Stored, chain), 3, 4, 3)
	snapshot := scheduler.Snapshot{Origin: 7, Seq: 9, Held: held(chain[:6], scheduler.RAM)}
	expect("a snapshot", x.Replace(nodeID(0), snapshot), 6)
	expect("one that the snapshot has", event(7, 9, scheduler.Cleared, nil), 6)
	expect("the next after it", event(7, 10, scheduler.Stored, chain[6:7]), 7)
	gap("another process", event(8, 3, scheduler.Stored, chain), 0, 3, 7)
	expect("another process from its start", event(8, 1, scheduler.Stored, chain[:1]), 1)
	expect("a late word of the one before", event(7, 11, scheduler.Stored, chain), 1)
	expect("and of its start", event(7, 1, scheduler.Stored, chain), 1)
	expect("cleared", event(8, 2, scheduler.Cleared, nil), 0)
	expect("and filled", event(8, 3, scheduler.Stored, chain), 8)
	x.Forget(nodeID(0))
	expect("forgotten", nil, 0)
}

func held(ids []block.ID, tier scheduler.Tier) (out []scheduler.Held) {
	for _, id := range ids {
		out = append(out, scheduler.Held{ID: id, Tiers: scheduler.TiersOf(tier)})
	}
	return out
}

func TestPredictionsEnd(t *testing.T) {
	x := scheduler.NewIndex(scheduler.Limits{})
	chain := chainOf(nil, 1, 8)
	other := chainOf(chain[:5], 2, 8)
	a, b := tell(t, x, 0), tell(t, x, 1)
	a.say(scheduler.Stored, scheduler.RAM, chain[:2])
	b.say(scheduler.Stored, scheduler.RAM, chain[:1])
	x.Predict(a.node, chain, start.Add(2*time.Second))
	x.Predict(nodeID(9), chain[:3], start.Add(3*time.Second)) // no word of it yet
	look := func(chain []block.ID, at time.Duration) string {
		out := ""
		for _, h := range x.Match(chain, start.Add(at)) {
			out += fmt.Sprintf("%s:%d-%d ", h.Node[30:], h.Run, h.Predicted)
		}
		return out
	}
	for _, tt := range []struct {
		what  string
		chain []block.ID
		at    time.Duration
		want  string
	}{
		{"the same prompt", chain, time.Second, "01:8-6 02:1-0 0a:3-3 "},
		{"a prompt that parts from it", other, time.Second, "01:5-3 02:1-0 0a:3-3 "},
		{"after its end", chain, 2 * time.Second, "01:2-0 02:1-0 0a:3-3 "},
		{"after the end of both", chain, 3 * time.Second, "01:2-0 02:1-0 "},
	} {
		if got := look(tt.chain, tt.at); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.what, got, tt.want)
		}
	}
	for what, end := range map[string]func(n teller){
		"forgotten": func(n teller) { x.Forget(n.node) },
		"restarted": func(n teller) { n.again().say(scheduler.Stored, scheduler.RAM, chain[:1]) },
		"cleared":   func(n teller) { n.say(scheduler.Cleared, 0, nil) },
	} {
		x.Forget(a.node)
		n := tell(t, x, 0)
		n.say(scheduler.Stored, scheduler.RAM, chain[:1])
		x.Predict(a.node, chain, start.Add(time.Hour))
		end(n)
		if h := x.Match(chain, start); slices.ContainsFunc(h, func(h scheduler.Holding) bool { return h.Node == a.node && h.Predicted > 0 }) {
			t.Errorf("%s: %+v", what, h)
		}
	}
}

// again is the same node in another process.
func (n teller) again() teller {
	n.feed = scheduler.NewFeed(n.feed.Origin() + 1000)
	return n
}

func TestPredictionsAreBounded(t *testing.T) {
	x := scheduler.NewIndex(scheduler.Limits{})
	for i := range 10_000 {
		x.Predict(nodeID(i%3), chainOf(nil, uint64(i), 2), start.Add(time.Hour))
	}
	if n := x.Stats().Predictions; n > 1024 {
		t.Errorf("%d predictions", n)
	}
	if h := x.Match(chainOf(nil, 9_999, 2), start); len(h) != 1 || h[0].Run != 2 {
		t.Errorf("the last one: %+v", h)
	}
}

// model is the index as one would write it without caring for time or space.
type model map[member.ID]map[block.ID]scheduler.Tiers

func (m model) match(chain []block.ID) (out []scheduler.Holding) {
	for node, blocks := range m {
		h := scheduler.Holding{Node: node}
		resident, ram, disk := true, true, true
		for _, id := range chain {
			tiers := blocks[id]
			if tiers == 0 {
				break
			}
			h.Run++
			if resident = resident && tiers.Has(scheduler.Resident); resident {
				h.Resident++
			} else if tiers.Has(scheduler.RAM) {
				h.FromRAM++
			} else {
				h.FromDisk++
			}
			if ram = ram && tiers.Has(scheduler.RAM); ram {
				h.RAM++
			}
			if disk = disk && tiers.Has(scheduler.Disk); disk {
				h.Disk++
			}
		}
		if h.Run > 0 {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b scheduler.Holding) int {
		if a.Node < b.Node {
			return -1
		}
		return 1
	})
	return out
}

func TestIndexAgainstModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	x := scheduler.NewIndex(scheduler.Limits{})
	m := model{}
	feeds := map[member.ID]*scheduler.Feed{}
	var chains [][]block.ID
	for i := range 40 {
		var before []block.ID
		if i > 0 && random.IntN(3) > 0 {
			parent := chains[random.IntN(i)]
			before = parent[:random.IntN(len(parent)+1)]
		}
		chains = append(chains, chainOf(before, uint64(i), 1+random.IntN(30)))
	}
	origin := uint64(0)
	tiers := []scheduler.Tier{scheduler.Resident, scheduler.RAM, scheduler.Disk}
	for range 20_000 {
		node := nodeID(random.IntN(NodesInModel))
		if feeds[node] == nil {
			origin++
			feeds[node], m[node] = scheduler.NewFeed(origin), map[block.ID]scheduler.Tiers{}
		}
		chain := chains[random.IntN(len(chains))]
		from := random.IntN(len(chain))
		if random.IntN(2) == 0 {
			from = 0
		}
		ids, tier := chain[from:from+random.IntN(len(chain)-from+1)], tiers[random.IntN(3)]
		kind := scheduler.Stored
		switch n := random.IntN(1000); {
		case n < 400:
			kind = scheduler.Removed
		case n < 404:
			kind = scheduler.Cleared
		case n < 410:
			x.Forget(node)
			delete(m, node)
			delete(feeds, node)
			continue
		case n < 414: // a snapshot of just what is there
			s := scheduler.Snapshot{Origin: feeds[node].Origin(), Seq: feeds[node].Seq()}
			for id, tiers := range m[node] {
				s.Held = append(s.Held, scheduler.Held{ID: id, Tiers: tiers})
			}
			if err := x.Replace(node, s); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, e := range feeds[node].Events(kind, tier, ids) {
			if err := x.Apply(node, e); err != nil {
				t.Fatal(err)
			}
		}
		m.change(node, kind, tier, ids)
		if random.IntN(8) == 0 {
			chain := chains[random.IntN(len(chains))]
			got, want := x.Match(chain, start), m.match(chain)
			for i := range got {
				got[i].Uses = 0
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: got\n%+v\nwant\n%+v", seed, got, want)
			}
			if n := x.NodeBlocks(node); n != len(m[node]) {
				t.Fatalf("seed %d: node holds %d blocks, want %d", seed, n, len(m[node]))
			}
		}
	}
	for node := range m {
		x.Forget(node)
	}
	for range 100 { // time to sweep
		x.Match(nil, start)
	}
	if n := x.Stats().Blocks; n != 0 {
		t.Errorf("%d blocks are left of no node", n)
	}
}

// NodesInModel is more than half of what fits, so that forgotten nodes must be swept
// out for others.
const NodesInModel = scheduler.NodesMax - 4

func (m model) change(node member.ID, kind scheduler.Kind, tier scheduler.Tier, ids []block.ID) {
	if kind == scheduler.Cleared {
		m[node] = map[block.ID]scheduler.Tiers{}
		return
	}
	for _, id := range ids {
		if kind == scheduler.Stored {
			m[node][id] |= scheduler.TiersOf(tier)
		} else if m[node][id] &^= scheduler.TiersOf(tier); m[node][id] == 0 {
			delete(m[node], id)
		}
	}
}

func TestTooManyNodes(t *testing.T) {
	x := scheduler.NewIndex(scheduler.Limits{})
	chain := chainOf(nil, 1, 3)
	for i := range scheduler.NodesMax {
		tell(t, x, i).say(scheduler.Stored, scheduler.RAM, chain)
	}
	one := scheduler.Event{Origin: 1, Seq: 1, Kind: scheduler.Stored, IDs: chain}
	var full *scheduler.NodesError
	if err := x.Apply(nodeID(1000), one); !errors.As(err, &full) || full.Node != nodeID(1000) {
		t.Errorf("got %v, want a *NodesError", err)
	}
	if n := len(x.Match(chain, start)); n != scheduler.NodesMax {
		t.Errorf("%d nodes hold the chain, want all %d", n, scheduler.NodesMax)
	}
	x.Forget(nodeID(0))
	if err := x.Apply(nodeID(1000), one); err != nil {
		t.Errorf("after one left: %v", err)
	}
}

func TestIndexIsBounded(t *testing.T) {
	const most, mostOfOne = 1000, 600
	x := scheduler.NewIndex(scheduler.Limits{Blocks: most, NodeBlocks: mostOfOne})
	hot := chainOf(nil, 0, 50)
	a, b := tell(t, x, 0), tell(t, x, 1)
	a.say(scheduler.Stored, scheduler.RAM, hot)
	for i := range uint64(200) {
		x.Match(hot, start)
		a.say(scheduler.Stored, scheduler.RAM, chainOf(nil, 10+i, 30))
		b.say(scheduler.Stored, scheduler.RAM, chainOf(nil, 1000+i, 30))
		s := x.Stats()
		if s.Blocks > most || x.NodeBlocks(a.node) > mostOfOne || x.NodeBlocks(b.node) > mostOfOne {
			t.Fatalf("%+v; nodes hold %d and %d blocks", s, x.NodeBlocks(a.node), x.NodeBlocks(b.node))
		}
	}
	if x.Stats().Dropped == 0 {
		t.Error("nothing was dropped")
	}
	h := x.Match(hot, start)
	if len(h) != 1 || h[0].Run != len(hot) {
		t.Errorf("a chain in constant use: %+v", h)
	}
	if h := x.Match(chainOf(nil, 10, 30), start); len(h) != 0 && h[0].Run == 30 {
		t.Error("the oldest chain is still whole, though there is no room")
	}
}
