package calc

import (
	"fmt"
	"math"
	"sort"
)

// Link is a wire between two boxes.
type Link struct {
	Name    string  // "" or what it is between
	Gbit    float64 // its rate; 0: not known
	Goodput float64 // bytes/s of KV; 0: Gbit times the efficiency below
	RTTMs   float64 // 0: that of the table below
	Basis   string  // where Goodput is from, if given
}

// StandardGbit are the rates that are shown if nobody asks for others.
var StandardGbit = []float64{1, 2.5, 10, 25, 100, 400}

// efficiencies tell how much of a link's rate carries KV, for links up to Gbit. The
// first three were measured, between two network namespaces whose pair of interfaces was
// shaped to that rate, on two cores that ran both ends; the last is a figure of others.
// Round trips are assumed: 0.2 ms is what links were emulated with, 0.02 ms the order of
// a switched network with RDMA. `tandem doctor PEER` measures both.
var efficiencies = []struct {
	gbit, efficiency, rttMs float64
	basis                   string
}{
	{1, 119.6e6 / 125e6, 0.2, "measured: TLS over TCP, 119.6 MB/s"},
	{2.5, 298e6 / 312.5e6, 0.2, "measured: TLS over TCP, 298 MB/s"},
	{10, 811e6 / 1250e6, 0.2, "measured: TLS over TCP, 811 MB/s, limited by two cores that ran both ends"},
	{math.Inf(1), 0.87, 0.02, "published: RDMA, 87 % of 4 x 200 Gbit/s with operations of 1 MiB and more (Mooncake); not measured here"},
}

// resolve fills in what a link does not say.
func (l Link) resolve() Link {
	for _, e := range efficiencies {
		if l.Gbit > e.gbit && l.Gbit > 0 {
			continue
		}
		if l.Goodput == 0 {
			l.Goodput, l.Basis = l.Gbit*1e9/8*e.efficiency, e.basis
		}
		if l.RTTMs == 0 {
			l.RTTMs = e.rttMs
		}
		break
	}
	return l
}

// startMs is what a transfer takes beside its bytes: a round trip and what both ends do
// before the first byte, which is at most that for a connection that stands.
const startMs = 2

// LinkReport is what KV takes over one link. Times are of the whole prompt.
type LinkReport struct {
	Name       string  `json:"name,omitempty"`
	Gbit       float64 `json:"gbit,omitempty"`
	Goodput    float64 `json:"goodput"`              // bytes/s
	Efficiency float64 `json:"efficiency,omitempty"` // goodput by rate
	Basis      string  `json:"basis"`
	RTTMs      float64 `json:"rtt_ms"`

	Seconds       float64 `json:"seconds"`        // by the formula
	EngineSeconds float64 `json:"engine_seconds"` // what this program moves

	// PrefillRateMax is the rate in tokens/s up to which the link keeps up with a box
	// that computes: below it, fetching is faster than computing.
	PrefillRateMax float64 `json:"prefill_rate_max"`
	// BreakEvenTokens is the shortest prompt that is fetched faster than it is computed,
	// by the bytes that this program moves; nil: none up to the context, or no rate is
	// known.
	BreakEvenTokens *int   `json:"break_even_tokens"`
	Verdict         string `json:"verdict,omitempty"`
}

// transfer is the time of some bytes in seconds.
func (l Link) transfer(bytes float64) float64 {
	return (l.RTTMs+startMs)/1000 + bytes/l.Goodput
}

// report works out one link.
func (l Link) report(q *Question, s kvSize) LinkReport {
	l = l.resolve()
	r := LinkReport{Name: l.Name, Gbit: l.Gbit, Goodput: l.Goodput, Basis: l.Basis, RTTMs: l.RTTMs,
		Seconds: l.transfer(s.at(q.Tokens)), EngineSeconds: l.transfer(s.engineAt(q.Tokens))}
	if l.Gbit > 0 {
		r.Efficiency = l.Goodput / (l.Gbit * 1e9 / 8)
	}
	if _, _, each := s.perToken(); each > 0 {
		r.PrefillRateMax = l.Goodput / each
	}
	if q.PrefillRate == 0 {
		return r
	}
	most := max(q.Context, q.Tokens)
	// Computing grows with the tokens and fetching begins with a fixed part, so that once
	// fetching is faster it stays so.
	n := 1 + sort.Search(most, func(i int) bool { return l.transfer(s.engineAt(i+1)) < float64(i+1)/q.PrefillRate })
	compute := float64(q.Tokens) / q.PrefillRate
	switch {
	case n == 1:
		r.BreakEvenTokens = &n
		r.Verdict = "fetch: it is faster at any length"
	case n <= most:
		r.BreakEvenTokens = &n
		r.Verdict = fmt.Sprintf("fetch prompts of %d tokens and more", n)
	default:
		r.Verdict = "compute: the link is slower than this box"
	}
	if n > q.Tokens && n <= most {
		r.Verdict += fmt.Sprintf("; %d tokens are computed in %s", q.Tokens, seconds(compute))
	}
	return r
}

// seconds writes a time for people.
func seconds(s float64) string {
	switch {
	case s < 0.001:
		return fmt.Sprintf("%.0f us", s*1e6)
	case s < 1:
		return fmt.Sprintf("%.3g ms", s*1000)
	case s < 100:
		return fmt.Sprintf("%.3g s", s)
	}
	return fmt.Sprintf("%.0f s", s)
}

// Links are links of some rates; of none, those of StandardGbit.
func Links(gbit []float64) []Link {
	if len(gbit) == 0 {
		gbit = StandardGbit
	}
	out := make([]Link, len(gbit))
	for i, g := range gbit {
		out[i].Gbit = g
	}
	return out
}
