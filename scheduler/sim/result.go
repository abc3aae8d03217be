package sim

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// outcome is how a request ended.
type outcome uint8

const (
	open outcome = iota
	answered
	tooLong
	gaveUp
)

// record is what is kept of a request.
type record struct {
	at, first, done time.Duration
	gap             time.Duration // the longest step while it wrote
	input, output   int32
	computed        int32 // prompt tokens, on all nodes together
	node            int32
	outcome         outcome
}

// itl is the mean time between tokens after the first.
func (r *record) itl() time.Duration {
	return (r.done - r.first) / time.Duration(max(1, r.output-1))
}

// meets tells whether a request was as wanted.
func (r *record) meets(slo SLO) bool {
	return r.outcome == answered && (slo.TTFT == 0 || r.first-r.at <= slo.TTFT) && (slo.ITL == 0 || r.output < 2 || r.itl() <= slo.ITL)
}

// Spread are quantiles and the mean of some times.
type Spread struct{ P50, P90, P99, Mean time.Duration }

// Request is how one request fared. Times are 0 if it was not answered.
type Request struct {
	At            float64 // s
	TTFTMs, ITLMs float64
	Input, Output int
	Computed      int // prompt tokens, on all nodes together
	Node          int // its place
}

// NodeResult is what one node did.
type NodeResult struct {
	Name      string
	Role      string
	Requests  int   // that it answered, or began to
	ForOthers int   // prompts
	Computed  int64 // prompt tokens
	Written   int64 // tokens of answers
	Busy      float64
}

// Result is what came of a run. Shares are of 1.
type Result struct {
	Policy    string
	Disagg    string
	Requests  int
	Answered  int
	TooLong   int // prompts that fit no node
	Cut       int // answers that ended where a node's context does
	GaveUp    int
	Hit       float64 // prompt tokens that were not computed anywhere
	TTFT      Spread
	ITL       Spread // of requests: the mean time between tokens after the first
	Gap       Spread // of requests: the longest step while they wrote
	E2E       Spread
	Seconds   float64 // from the first arrival until the last answer
	Rate      float64 // answers/s
	TokenRate float64 // tokens of answers/s
	Met       float64 // requests that met the SLO; 1 without one
	Goodput   float64 // of these, per second of arrivals

	Largest     float64 // share of requests of a node over the fair one, of nodes that answer
	Smallest    float64
	Decisions   int
	Retries     int     // placements that found no node at the time
	Refused     int     // tasks that a node did not take; placed again
	ToFailed    int     // requests that were placed on a node that was seen as failed: none, or the policy is wrong
	Lost        int     // requests that a node died with; placed again
	Fetched     int     // prompts of which blocks were pulled from another node
	Remote      int     // prompts that another node computed
	Impatient   int     // transfers that were not waited for any longer
	BytesMoved  float64 // between nodes
	Restored    int64   // tokens from memory, disk or other nodes
	RoleChanges int
	Events      int64
	Nodes       []NodeResult
	Series      []Sample  `json:",omitempty"`
	TTFTs       []float64 `json:",omitempty"` // 101 quantiles, ms
	ITLs        []float64 `json:",omitempty"`
	Each        []Request `json:",omitempty"` // with Options.Each, in the order of arrivals
}

func (s *sim) summary() Result {
	r := s.result
	r.Policy, r.Disagg, r.Requests = s.o.Policy, string(s.o.Disagg), len(s.records)
	var ttft, itl, e2e, gap []time.Duration
	tokens, computed, written, met := int64(0), int64(0), int64(0), 0
	last, lastArrival := time.Duration(0), time.Duration(0)
	for i := range s.records {
		j := &s.records[i]
		lastArrival = max(lastArrival, j.at)
		switch j.outcome {
		case tooLong:
			r.TooLong++
		case gaveUp:
			r.GaveUp++
		}
		if s.o.Each {
			each := Request{At: j.at.Seconds(), Input: int(j.input), Output: int(j.output), Computed: int(j.computed), Node: int(j.node)}
			if j.outcome == answered {
				each.TTFTMs, each.ITLMs = inMs(j.first-j.at), inMs(j.itl())
			}
			r.Each = append(r.Each, each)
		}
		if j.outcome != answered {
			continue
		}
		r.Answered++
		tokens, computed, written = tokens+int64(j.input), computed+int64(j.computed), written+int64(j.output)
		ttft, e2e = append(ttft, j.first-j.at), append(e2e, j.done-j.at)
		if j.output > 1 {
			itl, gap = append(itl, j.itl()), append(gap, j.gap)
		}
		if j.meets(s.o.SLO) {
			met++
		}
		last = max(last, j.done)
	}
	r.Hit = max(0, 1-float64(computed)/float64(max(1, tokens)))
	r.TTFTs, r.ITLs = quantiles(ttft), quantiles(itl)
	r.TTFT, r.ITL, r.E2E, r.Gap = spreadOf(ttft), spreadOf(itl), spreadOf(e2e), spreadOf(gap)
	begin := s.records[0].at
	r.Seconds = (last - begin).Seconds()
	r.Rate, r.TokenRate = float64(r.Answered)/max(r.Seconds, 1e-9), float64(written)/max(r.Seconds, 1e-9)
	r.Met = float64(met) / float64(len(s.records))
	r.Goodput = float64(met) / max((lastArrival-begin).Seconds(), 1e-9)
	s.nodeResults(&r)
	r.Series = s.series.samples(s)
	return r
}

func (s *sim) nodeResults(r *Result) {
	all, answering := 0, 0
	for _, n := range s.nodes {
		r.Nodes = append(r.Nodes, NodeResult{Name: n.spec.Name, Role: string(n.role), Requests: n.given, ForOthers: n.served, Computed: n.computed,
			Written: n.written, Busy: n.busyTime.Seconds() / max(r.Seconds, 1e-9)})
		if n.given > 0 || n.role != "prefill" {
			answering++
		}
		all += n.given
	}
	fair := float64(max(1, all)) / float64(max(1, answering))
	r.Smallest = float64(all)
	for _, n := range s.nodes {
		if n.given > 0 || n.role != "prefill" {
			r.Largest, r.Smallest = max(r.Largest, float64(n.given)/fair), min(r.Smallest, float64(n.given)/fair)
		}
	}
}

func spreadOf(list []time.Duration) Spread {
	slices.Sort(list)
	return Spread{quantile(list, 0.5), quantile(list, 0.9), quantile(list, 0.99), mean(list)}
}

// quantile is of a sorted list.
func quantile(list []time.Duration, q float64) time.Duration {
	if len(list) == 0 {
		return 0
	}
	return list[min(len(list)-1, int(q*float64(len(list))))]
}

func mean(list []time.Duration) time.Duration {
	sum := 0.0
	for _, d := range list {
		sum += float64(d)
	}
	return time.Duration(sum / float64(max(1, len(list))))
}

// quantiles are 0, 1, ... 100 %, in ms.
func quantiles(list []time.Duration) []float64 {
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	out := make([]float64, 101)
	for i := range out {
		out[i] = inMs(quantile(list, float64(i)/100))
	}
	return out
}

func inMs(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// seriesParts is how many parts of equal length the time until the last arrival has.
const seriesParts = 120

// Sample is a part of a run's time.
type Sample struct {
	At       float64 // s, its beginning
	Arrivals int
	Tokens   int     // written
	TTFTMs   float64 // mean of those that began to be answered
	Busy     float64 // share of the nodes' time
	KV       float64 // share of their room that running requests use, as last seen
}

type series struct {
	part    time.Duration
	list    []Sample
	sumTTFT []float64
	firsts  []int
	busy    []time.Duration
	kv      []float64
	kvSeen  []int
}

func (s *series) build(run *sim) {
	last := run.arrivalAt(len(run.arrivals) - 1)
	s.part = max(last/seriesParts, time.Millisecond)
	s.list = make([]Sample, seriesParts+1)
	s.sumTTFT, s.firsts, s.busy = make([]float64, seriesParts+1), make([]int, seriesParts+1), make([]time.Duration, seriesParts+1)
	s.kv, s.kvSeen = make([]float64, seriesParts+1), make([]int, seriesParts+1)
}

// at is the part that a time is in; what is later than all counts for the last.
func (s *series) at(t time.Duration) int { return min(int(t/s.part), seriesParts) }

func (s *series) arrived(at time.Duration) { s.list[s.at(at)].Arrivals++ }

func (s *series) wrote(at time.Duration, tokens int) { s.list[s.at(at)].Tokens += tokens }

func (s *series) firstToken(at, took time.Duration) {
	s.sumTTFT[s.at(at)] += inMs(took)
	s.firsts[s.at(at)]++
}

func (s *series) stepped(n *node) {
	i := s.at(n.s.now)
	s.busy[i] += n.s.now - n.stepBegan
	s.kv[i] += float64(n.resident.pinned+n.private) / float64(max(1, n.room))
	s.kvSeen[i]++
}

func (s *series) samples(run *sim) []Sample {
	out := s.list[:seriesParts] // the last one is of no fixed length
	for i := range out {
		out[i].At = (s.part * time.Duration(i)).Seconds()
		out[i].TTFTMs = s.sumTTFT[i] / float64(max(1, s.firsts[i]))
		out[i].Busy = min(1, float64(s.busy[i])/float64(s.part)/float64(len(run.nodes)))
		out[i].KV = s.kv[i] / float64(max(1, s.kvSeen[i]))
	}
	return out
}

// Table writes results, a line each.
func Table(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "policy\tdisagg\thit %\tTTFT p50\tp90\tp99\tmean\tITL p50\tp99\tE2E mean\tanswers/s\ttokens/s\tSLO met %\tlargest\tsmallest\tfetched\tremote\tanswered\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%.1f\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.0f\t%.1f\t%.2f\t%.2f\t%d\t%d\t%d/%d\t\n", r.Policy, r.Disagg, 100*r.Hit,
			ms(r.TTFT.P50), ms(r.TTFT.P90), ms(r.TTFT.P99), ms(r.TTFT.Mean), ms(r.ITL.P50), ms(r.ITL.P99), ms(r.E2E.Mean),
			r.Rate, r.TokenRate, 100*r.Met, r.Largest, r.Smallest, r.Fetched, r.Remote, r.Answered, r.Requests)
	}
	return t.Flush()
}

func ms(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", inMs(d))
	}
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}

// Policies runs every policy on the same options.
func Policies(ctx context.Context, o Options, names []string) ([]Result, error) {
	var out []Result
	for _, name := range names {
		o.Policy = name
		r, err := Run(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// WriteEach writes Result.Each as CSV.
func (r Result) WriteEach(w io.Writer) error {
	if _, err := fmt.Fprintln(w, "at_s,ttft_ms,itl_ms,input_tokens,output_tokens,computed_tokens,node"); err != nil {
		return err
	}
	for _, e := range r.Each {
		if _, err := fmt.Fprintf(w, "%.3f,%.3f,%.3f,%d,%d,%d,%d\n", e.At, e.TTFTMs, e.ITLMs, e.Input, e.Output, e.Computed, e.Node); err != nil {
			return err
		}
	}
	return nil
}
