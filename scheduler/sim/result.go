package sim

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// Result is what came of a run.
type Result struct {
	Policy    string
	Completed int
	Hit       float64 // share of prompt tokens that were not computed
	TTFT50    time.Duration
	TTFT90    time.Duration
	TTFT99    time.Duration
	TTFTMean  time.Duration
	ITL50     time.Duration // of requests: mean time between tokens after the first
	ITL99     time.Duration
	E2EMean   time.Duration
	Given     []int // requests per node
	// Spread is the largest share of requests over the fair one, with equal nodes 1.
	Spread      float64
	Smallest    float64 // share over the fair one
	Retries     int     // placements that found no node at the time
	Refused     int     // requests that a node did not take; placed again
	RefusedDown int     // of these, the node was dead
	ToFailed    int     // requests that were placed on a node that was seen as failed: none, or the policy is wrong
	Lost        int     // requests that a node died with; placed again
	Last        time.Duration
}

func (s *sim) summary() Result {
	r := s.result
	r.Policy = s.o.Policy
	var ttft, itl, e2e []time.Duration
	tokens, cached := 0, 0
	for _, j := range s.jobs {
		if j.done == 0 {
			continue
		}
		r.Completed++
		tokens += j.arrival.Input
		cached += j.cached
		ttft = append(ttft, j.first-j.at)
		e2e = append(e2e, j.done-j.at)
		if j.arrival.Output > 1 {
			itl = append(itl, (j.done-j.first)/time.Duration(j.arrival.Output-1))
		}
		r.Last = max(r.Last, j.done)
	}
	r.Hit = float64(cached) / float64(max(1, tokens))
	r.TTFT50, r.TTFT90, r.TTFT99, r.TTFTMean = quantile(ttft, 0.5), quantile(ttft, 0.9), quantile(ttft, 0.99), mean(ttft)
	r.ITL50, r.ITL99, r.E2EMean = quantile(itl, 0.5), quantile(itl, 0.99), mean(e2e)
	all := 0
	for _, n := range s.nodes {
		r.Given = append(r.Given, n.given)
		all += n.given
	}
	fair := float64(max(1, all)) / float64(len(s.nodes))
	r.Spread, r.Smallest = float64(slices.Max(r.Given))/fair, float64(slices.Min(r.Given))/fair
	return r
}

func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(len(list)-1, int(q*float64(len(list))))]
}

func mean(list []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range list {
		sum += d
	}
	return sum / time.Duration(max(1, len(list)))
}

// Table writes results, a line each.
func Table(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\thit %\tTTFT p50\tp90\tp99\tmean\tITL p50\tp99\tE2E mean\tlargest share\tsmallest\tcompleted\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%d\t\n", r.Policy, 100*r.Hit,
			ms(r.TTFT50), ms(r.TTFT90), ms(r.TTFT99), ms(r.TTFTMean), ms(r.ITL50), ms(r.ITL99), ms(r.E2EMean),
			r.Spread, r.Smallest, r.Completed)
	}
	return t.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

// Policies runs every policy on the same options.
func Policies(o Options, names []string) ([]Result, error) {
	var out []Result
	for _, name := range names {
		o.Policy = name
		r, err := Run(o)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// Homelab is a cluster of eight unlike boxes with a model of 8 billion parameters:
// two with fast GPUs, three with middling, two with old ones and one with a small
// one. With memory for blocks of 512 tokens at 64 MiB each.
func Homelab() []NodeSpec {
	box := func(name string, rate, decodeMs float64, slots, blocks int) NodeSpec {
		return NodeSpec{Name: name, PrefillRate: rate, PrefillContext: 60_000, DecodeMs: decodeMs, DecodeMsMore: decodeMs / 20,
			Slots: slots, Blocks: blocks}
	}
	return []NodeSpec{
		box("fast-1", 8000, 10, 16, 2000), box("fast-2", 8000, 10, 16, 2000),
		box("mid-1", 4000, 14, 12, 1000), box("mid-2", 4000, 14, 12, 1000), box("mid-3", 4000, 14, 12, 1000),
		box("old-1", 2000, 25, 8, 1000), box("old-2", 2000, 25, 8, 1000),
		box("small", 1000, 40, 4, 500),
	}
}

// Equal is a cluster of like boxes.
func Equal(n int) []NodeSpec {
	var out []NodeSpec
	for i := range n {
		out = append(out, NodeSpec{Name: fmt.Sprintf("n%d", i+1), PrefillRate: 4000, PrefillContext: 60_000, DecodeMs: 14,
			DecodeMsMore: 0.7, Slots: 12, Blocks: 1500})
	}
	return out
}
