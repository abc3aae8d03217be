package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
	"tandem/scheduler/sim"
)

// homelab is eight unlike boxes.
const homelab = "2xRTX4090,3xRTX3090,2xRTX3070,1xcpu"

// scenario makes options of words.
func scenario(tb testing.TB, s sim.Scenario) sim.Options {
	tb.Helper()
	s = s.Over(sim.Default())
	load, err := sim.ParseLoad(s.Load)
	if err != nil {
		tb.Fatal(err)
	}
	load.Seed = s.Seed
	o, err := s.Options(load.Make(), load.Block)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// broken is a short run with outages, all tiers and full queues.
func broken(tb testing.TB, policy string, disagg scheduler.Disagg) sim.Options {
	o := scenario(tb, sim.Scenario{Nodes: homelab, Load: "chat,requests=400,rate=4,turns=6,gap=10", Queue: 20, RAM: "500MB", Disk: "2GB", Link: "10gbit",
		Outages: "0:10s-40s,3:20s-21s,6:30s-200s,2:freeze:15s-30s,1:freeze:50s-51s,4:freeze:60s-70s,5:61s-62s"})
	o.Policy, o.Disagg, o.Seed = policy, disagg, 7
	return o
}

func run(tb testing.TB, o sim.Options) sim.Result {
	tb.Helper()
	r, err := sim.Run(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func TestEveryRequestIsAnswered(t *testing.T) {
	for _, policy := range scheduler.PolicyNames() {
		for _, disagg := range []scheduler.Disagg{"auto", "always", "never", "dynamo"} {
			t.Run(policy+"/"+string(disagg), func(t *testing.T) {
				o := broken(t, policy, disagg)
				r := run(t, o)
				if r.Answered != len(o.Arrivals) {
					t.Errorf("%d of %d requests were answered; %d gave up, %d were too long", r.Answered, len(o.Arrivals), r.GaveUp, r.TooLong)
				}
				if r.ToFailed != 0 {
					t.Errorf("%d requests went to nodes that were known to be dead", r.ToFailed)
				}
				if r.Lost == 0 {
					t.Error("no outage hit a request: the test shows nothing")
				}
				if (disagg == "always" || disagg == "dynamo") && r.Remote == 0 || disagg == "never" && r.Remote != 0 {
					t.Errorf("%d prompts were computed elsewhere", r.Remote)
				}
				if r.TTFT.P50 <= 0 || r.TTFT.P50 > r.TTFT.P99 || r.Hit < 0 || r.Hit >= 1 {
					t.Errorf("figures cannot be right: %+v", r.TTFT)
				}
			})
		}
	}
}

// bytesOf is all of a result.
func bytesOf(tb testing.TB, r sim.Result) []byte {
	tb.Helper()
	b, err := json.Marshal(r)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestEqualSeedsGiveEqualBytes(t *testing.T) {
	for _, policy := range scheduler.PolicyNames() {
		for _, disagg := range []scheduler.Disagg{"auto", "always"} {
			o := broken(t, policy, disagg)
			o.Arrivals = o.Arrivals[:150]
			a, b := bytesOf(t, run(t, o)), bytesOf(t, run(t, o))
			if !bytes.Equal(a, b) {
				t.Errorf("%s, %s:\n%s\n%s", policy, disagg, a, b)
			}
			o.Seed++
			if bytes.Equal(a, bytesOf(t, run(t, o))) {
				t.Errorf("%s, %s: another seed gives the same", policy, disagg)
			}
		}
	}
}

// plain is a node whose steps are easy to add up.
func plain(link float64) sim.NodeSpec {
	return sim.NodeSpec{Name: "n", Engine: sim.Engine{ComputeRate: 1000}, Slots: 1, KVTokens: 100_000, RAMTokens: 100_000, HostBps: 1e12, LinkBps: link}
}

// One request alone takes what its parts take.
func TestOneRequestTakesItsTime(t *testing.T) {
	o := sim.Options{Seed: 1, Nodes: []sim.NodeSpec{plain(1e9)},
		Arrivals: []sim.Arrival{{Input: 1024, Output: 11, Blocks: []uint64{1, 2}}, {At: 10 * time.Second, Input: 1100, Output: 11, Blocks: []uint64{1, 2, 3}}}}
	r := run(t, o)
	// 1,024 tokens at 1,000 a second, then 1,100 of which 1,024 are resident; an answer's
	// tokens take 1 ms each.
	if want := 1024 * time.Millisecond; r.TTFT.P99 != want {
		t.Errorf("TTFT %v, want %v", r.TTFT.P99, want)
	}
	if want := (1024 + 76) * time.Millisecond / 2; r.TTFT.Mean != want {
		t.Errorf("mean TTFT %v, want %v", r.TTFT.Mean, want)
	}
	if r.ITL.P50 != time.Millisecond {
		t.Errorf("ITL %v, want 1ms", r.ITL.P50)
	}
	if want := 1024.0 / (1024 + 1100); math.Abs(r.Hit-want) > 1e-12 {
		t.Errorf("hit %v, want %v", r.Hit, want)
	}
}

// A prompt that another node computes is here when the longer one of computing and
// moving is done, and the last block and token are, too.
func TestRemotePrefillOverlaps(t *testing.T) {
	const block, bytes = 64, 1000
	for _, c := range []struct {
		name string
		bps  float64
		want time.Duration
	}{
		// 16 blocks: 1,024 tokens at 1,000/s while they move, in chunks of 512; then the
		// second chunk moves, and one token is computed.
		{"fast", 64e6, 1024*time.Millisecond + 8*time.Millisecond + time.Millisecond},
		// 16 blocks at 0.5 s each are 8 s; the first moves when the first chunk is done.
		{"slow", 128e3, 512*time.Millisecond + 8*time.Second + time.Millisecond},
	} {
		o := sim.Options{Seed: 1, Entries: 2, RTT: time.Nanosecond * 2, Transfers: true, Disagg: scheduler.DisaggAlways, BlockTokens: block, BytesPerToken: bytes, ChunkAlone: 512,
			Nodes:    []sim.NodeSpec{plain(c.bps), plain(c.bps)},
			Arrivals: []sim.Arrival{{Input: 16*block + 1, Output: 2}}}
		r := run(t, o)
		if r.Remote != 1 || r.BytesMoved != 16*block*bytes {
			t.Errorf("%s: %d prompts elsewhere, %g bytes", c.name, r.Remote, r.BytesMoved)
		}
		if d := r.TTFT.P50 - c.want; d < 0 || d > 3*time.Millisecond {
			t.Errorf("%s: TTFT %v, want %v", c.name, r.TTFT.P50, c.want)
		}
	}
}

// What a node holds is pulled if the link is faster than computing, and only then.
func TestFetchPaysOnFastLinksOnly(t *testing.T) {
	for _, c := range []struct {
		bps  float64
		want int
	}{{1e9, 1}, {1e5, 0}} {
		nodes := []sim.NodeSpec{plain(c.bps), plain(c.bps)}
		o := sim.Options{Seed: 1, Transfers: true, Disagg: scheduler.DisaggNever, BytesPerToken: 10_000, Nodes: nodes,
			Forced:   map[int]sim.Choice{0: {Node: 0, Kind: scheduler.Local}},
			Arrivals: []sim.Arrival{{Input: 4096, Output: 3000, Blocks: []uint64{1, 2, 3, 4, 5, 6, 7, 8}}, {At: 6 * time.Second, Input: 4196, Output: 2, Blocks: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}}}}
		if r := run(t, o); r.Fetched != c.want {
			t.Errorf("%g bytes/s: %d fetches, want %d", c.bps, r.Fetched, c.want)
		}
	}
}

// What does not fit a node is cut or refused, and holds up nobody.
func TestLongRequestsEnd(t *testing.T) {
	n := plain(1e9)
	n.KVTokens = 2048
	o := sim.Options{Seed: 1, BytesPerToken: 1000, Nodes: []sim.NodeSpec{n}, Arrivals: []sim.Arrival{{Input: 4000, Output: 5}, {Input: 2000, Output: 500}, {Input: 100, Output: 5}}}
	if r := run(t, o); r.TooLong != 1 || r.Cut != 1 || r.Answered != 2 {
		t.Errorf("%d too long, %d cut, %d answered", r.TooLong, r.Cut, r.Answered)
	}
	o.Nodes = append(o.Nodes, plain(1e9))
	o.Forced = map[int]sim.Choice{0: {Node: 0, Kind: scheduler.Local}}
	if r := run(t, o); r.TooLong != 1 || r.Answered != 2 {
		t.Errorf("forced: %d too long, %d answered", r.TooLong, r.Answered)
	}
}

// What memory had no room for comes from disk, if that is faster than computing.
func TestDiskIsRead(t *testing.T) {
	for _, c := range []struct {
		bps  float64
		want float64 // computed tokens of the last request
	}{{1e9, 1}, {1e4, 1024}} {
		n := plain(1e9)
		n.KVTokens, n.RAMTokens, n.DiskTokens, n.DiskBps = 2100, 1024, 10_000, c.bps
		o := sim.Options{Seed: 1, Each: true, BytesPerToken: 1000, Nodes: []sim.NodeSpec{n}}
		for i := range 5 { // the first blocks come again when two others were between
			b := uint64(i % 4 * 2)
			o.Arrivals = append(o.Arrivals, sim.Arrival{At: time.Duration(i) * 10 * time.Second, Input: 1024, Output: 2, Blocks: []uint64{b, b + 1}})
		}
		r := run(t, o)
		if got := r.Each[4].Computed; float64(got) != c.want {
			t.Errorf("disk of %g bytes/s: %d tokens were computed, want %g", c.bps, got, c.want)
		}
	}
}

// The cost policy is never far behind a policy that knows nothing.
func TestCostIsNotWorseThanTheDumbOnes(t *testing.T) {
	o := scenario(t, sim.Scenario{Nodes: homelab, Load: "chat,requests=1500,rate=5,turns=6,gap=15"})
	results, err := sim.Policies(context.Background(), o, scheduler.PolicyNames())
	if err != nil {
		t.Fatal(err)
	}
	cost := results[0]
	for _, other := range results[1:] {
		if cost.TTFT.P50 > other.TTFT.P50*11/10 || cost.TTFT.P99 > other.TTFT.P99*11/10 {
			t.Errorf("cost: hit %.3f, TTFT %v and %v; %s: %.3f, %v and %v", cost.Hit, cost.TTFT.P50, cost.TTFT.P99, other.Policy, other.Hit, other.TTFT.P50, other.TTFT.P99)
		}
	}
}

// More nodes than one index takes.
func TestManyNodes(t *testing.T) {
	o := scenario(t, sim.Scenario{Nodes: "150xRTX3090", Load: "shared,requests=800,rate=60,groups=50"})
	r := run(t, o)
	if r.Answered != 800 || r.Hit < 0.5 || r.Nodes[149].Requests == 0 {
		t.Errorf("%d answered, hit %.2f, the last node %d", r.Answered, r.Hit, r.Nodes[149].Requests)
	}
}

// A planner's roles are taken.
func TestPlannerIsAsked(t *testing.T) {
	o := scenario(t, sim.Scenario{Nodes: "4xRTX3090", Load: "poisson,requests=300,rate=4", Disagg: []string{"always"}})
	asked := 0
	o.Planner = func(_ time.Duration, nodes []sim.Observed) []member.Role {
		asked++
		roles := []member.Role{"prefill", "decode", "decode", "hybrid"}
		if asked > 3 {
			roles[3] = "decode"
		}
		if len(nodes) != 4 || !nodes[0].Up {
			t.Errorf("it saw %+v", nodes)
		}
		return roles
	}
	r := run(t, o)
	if asked < 5 || r.RoleChanges != 4 || r.Answered != 300 || r.Nodes[0].ForOthers < 100 {
		t.Errorf("asked %d times; %d changes, %d answered, %d prompts by the prefill node", asked, r.RoleChanges, r.Answered, r.Nodes[0].ForOthers)
	}
}

func TestRunsEnd(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fmt.Errorf("enough"))
	if _, err := sim.Run(ctx, broken(t, "cost", "auto")); err == nil || err.Error() != "enough" {
		t.Errorf("%v", err)
	}
}

func TestGoodputIsFound(t *testing.T) {
	o := scenario(t, sim.Scenario{Nodes: "2xRTX3090", Load: "poisson,requests=200,rate=1", SLO: "ttft=1s,itl=50ms"})
	g, err := sim.FindGoodput(context.Background(), o, 0.9)
	if err != nil {
		t.Fatal(err)
	}
	o.Speed = g.Speed * 1.5
	if above := run(t, o); g.At.Met < 0.9 || above.Met >= 0.9 {
		t.Errorf("%.3f meet it at %.2f requests/s, %.3f at half as much again", g.At.Met, g.Rate, above.Met)
	}
}

// An oracle is never worse than the policy, and a policy that knows nothing loses more.
func TestRegret(t *testing.T) {
	o := scenario(t, sim.Scenario{Nodes: "1xRTX4090,2xRTX3090", Load: "chat,requests=60,rate=2"})
	losses := map[string]float64{}
	for _, policy := range []string{"cost", "random"} {
		o.Policy = policy
		r, err := sim.FindRegret(context.Background(), o, 20)
		if err != nil {
			t.Fatal(err)
		}
		if r.Sampled != 20 || r.MeanMs < 0 || r.P99Ms < r.P50Ms || r.WayMeanMs > r.MeanMs+1e-6 || r.Tried != 20*3*5 {
			t.Errorf("%+v", r)
		}
		losses[policy] = r.MeanMs
	}
	if losses["cost"] > losses["random"] {
		t.Errorf("%v", losses)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for what, change := range map[string]func(*sim.Options){
		"no nodes":       func(o *sim.Options) { o.Nodes = nil },
		"no slots":       func(o *sim.Options) { o.Nodes[0].Slots = 0 },
		"no room":        func(o *sim.Options) { o.Nodes[0].KVTokens = 1 },
		"no link":        func(o *sim.Options) { o.Nodes[0].LinkBps = 0 },
		"prefill only":   func(o *sim.Options) { o.Nodes = o.Nodes[:1]; o.Nodes[0].Role, o.Entries = "prefill", 1 },
		"a role":         func(o *sim.Options) { o.Nodes[0].Role = "boss" },
		"a policy":       func(o *sim.Options) { o.Policy = "best" },
		"a rule":         func(o *sim.Options) { o.Disagg = "often" },
		"entries":        func(o *sim.Options) { o.Entries = 9 },
		"an outage":      func(o *sim.Options) { o.Outages = []sim.Outage{{Node: 8, To: 1}} },
		"of no length":   func(o *sim.Options) { o.Outages = []sim.Outage{{From: 1, To: 1}} },
		"speed":          func(o *sim.Options) { o.Speed = -1 },
		"no requests":    func(o *sim.Options) { o.Arrivals = nil },
		"nothing, as is": nil,
	} {
		o := scenario(t, sim.Scenario{Nodes: homelab, Load: "chat,requests=5"})
		if change != nil {
			change(&o)
		}
		if _, err := sim.Run(context.Background(), o); (err == nil) != (change == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestReportNeedsNothingElse(t *testing.T) {
	o := scenario(t, sim.Scenario{Nodes: homelab, Load: "chat,requests=100,rate=4"})
	results, err := sim.Policies(context.Background(), o, []string{"cost", "random"})
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	report := sim.Report{Title: "a <b> & c", Command: "node sim", Facts: [][2]string{{"Nodes", homelab}}, Runs: results}
	if err := report.Write(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, bad := range []string{"http", "<script", "url(", "@import", "NaN", "Inf", "a <b>"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if n := strings.Count(text, "<svg"); n != 7 {
		t.Errorf("%d plots", n)
	}
}

func Example() {
	s := sim.Scenario{Nodes: "4xRTX3090", Load: "chat,requests=300"}.Over(sim.Default())
	load, err := sim.ParseLoad(s.Load)
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := s.Options(load.Make(), load.Block)
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := sim.Policies(context.Background(), o, []string{"cost", "random"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("sooner the first token:", results[0].TTFT.P50 < results[1].TTFT.P50)
	if err := sim.Table(os.Stderr, results); err != nil {
		fmt.Println(err)
	}
	// Output:
	// sooner the first token: true
}

// BenchmarkPolicies runs each policy on made chats.
func BenchmarkPolicies(b *testing.B) {
	for _, policy := range scheduler.PolicyNames() {
		b.Run(policy, func(b *testing.B) {
			o := scenario(b, sim.Scenario{Nodes: homelab, Load: "chat,requests=2000,rate=4"})
			o.Policy = policy
			for b.Loop() {
				run(b, o)
			}
			b.ReportMetric(2000*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
