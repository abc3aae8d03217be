package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/scheduler"
)

const (
	benchNodes  = 32
	benchBlocks = 1_000_000
)

// large makes an index of a million blocks in conversations of up to 256 blocks, each
// on one to three of 32 nodes, stored block by block as they are computed.
func large(tb testing.TB) (*scheduler.Index, [][]block.ID) {
	tb.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	x := scheduler.NewIndex(scheduler.Limits{Blocks: 2 * benchBlocks})
	var feeds []*scheduler.Feed
	for i := range benchNodes {
		feeds = append(feeds, scheduler.NewFeed(uint64(i+1)))
	}
	shared := chainOf(nil, 0, 20)
	var chains [][]block.ID
	type part struct {
		node int
		ids  []block.ID
	}
	var parts []part
	for n := uint64(1); len(parts)*16 < benchBlocks*3/2; n++ {
		chain := chainOf(shared, n, 1+random.IntN(236))
		chains = append(chains, chain)
		for range 1 + random.IntN(3) {
			node := random.IntN(benchNodes)
			for at := 0; at < len(chain); at += 16 {
				parts = append(parts, part{node, chain[at:min(at+16, len(chain))]})
			}
		}
	}
	for x.Stats().Blocks < benchBlocks { // and some more of the same
		n := uint64(len(chains) + 1)
		chains = append(chains, chainOf(shared, n, 200))
		parts = append(parts, part{random.IntN(benchNodes), chains[len(chains)-1]})
		if len(parts) > 1000 {
			for _, p := range parts {
				for _, e := range feeds[p.node].Events(scheduler.Stored, scheduler.RAM, p.ids) {
					if err := x.Apply(nodeID(p.node), e); err != nil {
						tb.Fatal(err)
					}
				}
			}
			parts = parts[:0]
		}
	}
	return x, chains
}

// loaded is a state with 32 nodes that are all different.
func loaded() scheduler.State {
	random := rand.New(rand.NewPCG(3, 4))
	s := scheduler.State{Entry: nodeID(0)}
	for i := range benchNodes {
		rate := 1000 + random.Float64()*8000
		s.Nodes = append(s.Nodes, scheduler.Node{
			ID: nodeID(i), Name: fmt.Sprintf("box-%d", i), State: member.Alive, Role: member.Hybrid,
			Models: []scheduler.Model{{
				Name: "m", Ready: true, Context: 1 << 20, Slots: 8, QueueMax: 64, Running: random.IntN(8), Waiting: random.IntN(5000),
				PrefillRate: scheduler.Figure{Value: rate}, PrefillContext: 60_000,
				Decode: []scheduler.Pace{{Streams: 1, Ms: 10}, {Streams: 2, Ms: 11}, {Streams: 4, Ms: 13}, {Streams: 8, Ms: 18}},
				SlotMs: scheduler.Figure{Value: 5000}, RAMRate: scheduler.Figure{Value: 5e9}, DiskRate: scheduler.Figure{Value: 1e9},
			}},
		})
		s.Links = append(s.Links, scheduler.Link{A: nodeID(0), B: nodeID(i), Goodput: scheduler.Figure{Value: 1e8}, RTTMs: scheduler.Figure{Value: 0.5}})
	}
	return s
}

// BenchmarkDecision is Match and Place, with 32 nodes and a million blocks, for
// prompts of 21 to 256 blocks of 64 tokens, and 300 predictions alive.
func BenchmarkDecision(b *testing.B) {
	for _, transfers := range []bool{false, true} {
		b.Run(fmt.Sprintf("transfers=%v", transfers), func(b *testing.B) {
			x, chains := large(b)
			s := loaded()
			s.Transfers = transfers
			random := rand.New(rand.NewPCG(5, 6))
			now := start
			for range 300 {
				x.Predict(nodeID(random.IntN(benchNodes)), chains[random.IntN(len(chains))], now.Add(time.Hour))
			}
			runtime.GC()
			var took []time.Duration
			b.ReportAllocs()
			for b.Loop() {
				chain := chains[random.IntN(len(chains))]
				began := time.Now()
				r := scheduler.Request{Model: "m", Tokens: len(chain)*64 + 10, BlockTokens: 64, BytesPerToken: 23040,
					Holdings: x.Match(chain, now), Seed: random.Uint64()}
				if _, err := scheduler.Place(s, r); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
			b.ReportMetric(float64(took[len(took)*999/1000])/1e3, "p99.9-µs")
		})
	}
}

// BenchmarkApply is events of 16 ids, stored and removed, on an index of a million
// blocks.
func BenchmarkApply(b *testing.B) {
	x, _ := large(b)
	feed := scheduler.NewFeed(99)
	const lag = 1000
	n := uint64(0)
	for b.Loop() {
		n++
		for _, e := range feed.Events(scheduler.Stored, scheduler.RAM, chainOf(nil, 1_000_000+n, 16)) {
			if err := x.Apply(nodeID(40), e); err != nil {
				b.Fatal(err)
			}
		}
		if n > lag {
			for _, e := range feed.Events(scheduler.Removed, scheduler.RAM, chainOf(nil, 1_000_000+n-lag, 16)) {
				if err := x.Apply(nodeID(40), e); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(32*b.N)/b.Elapsed().Seconds(), "ids/s")
}

// BenchmarkMemory tells what a block costs, and how long forgetting a node takes.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		x, chains := large(b)
		blocks := x.Stats().Blocks
		keep := len(chains)
		chains = nil
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(blocks), "B/block")
		b.ReportMetric(float64(keep), "chains")
		began := time.Now()
		x.Forget(nodeID(1))
		b.ReportMetric(float64(time.Since(began))/1e3, "forget-µs")
		runtime.KeepAlive(x)
		_ = chains
	}
}
