package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tandem/scheduler"
)

// GoodputResult is the highest rate of arrivals at which enough requests meet the SLO.
type GoodputResult struct {
	Speed float64 // of the arrivals
	Rate  float64 // arrivals/s at that speed
	At    Result  // the run at that speed
}

// searchSteps halve the range of a search: the answer is within 1 % of the rate.
const searchSteps = 9

// FindGoodput searches the highest speed at which a share of requests (0.9) meets the
// SLO. That more load is never better is taken for granted.
func FindGoodput(ctx context.Context, o Options, share float64) (GoodputResult, error) {
	if o.SLO == (SLO{}) {
		return GoodputResult{}, fmt.Errorf("goodput needs times that requests should meet: an SLO")
	}
	try := func(speed float64) (Result, bool, error) {
		o.Speed = speed
		r, err := Run(ctx, o)
		return r, r.Met >= share, err
	}
	span := o.Arrivals[len(o.Arrivals)-1].At.Seconds()
	best := GoodputResult{}
	keep := func(speed float64, r Result) {
		best = GoodputResult{Speed: speed, Rate: float64(len(o.Arrivals)) / max(span, 1e-9) * speed, At: r}
	}
	low, high := 0.0, 1.0
	for range 20 {
		r, ok, err := try(high)
		if err != nil {
			return best, err
		}
		if !ok {
			break
		}
		keep(high, r)
		low, high = high, high*2
	}
	for range 20 { // as long as nothing was good enough
		if low > 0 || high < 1e-4 {
			break
		}
		r, ok, err := try(high / 2)
		if err != nil {
			return best, err
		}
		if high /= 2; ok {
			keep(high, r)
			low, high = high, high*2
		}
	}
	for range searchSteps {
		if low == 0 || high/low < 1.01 {
			break
		}
		middle := (low + high) / 2
		r, ok, err := try(middle)
		switch {
		case err != nil:
			return best, err
		case ok:
			keep(middle, r)
			low = middle
		default:
			high = middle
		}
	}
	return best, nil
}

// Regret is what decisions cost against the best ones, in ms of TTFT of the request
// itself.
type Regret struct {
	Policy, Disagg string
	Sampled        int
	Tried          int     // alternatives, all together
	MeanMs         float64 // of chosen - best
	P50Ms          float64
	P99Ms          float64
	Share          float64 // sum of chosen / sum of best, less 1
	Best           int     // decisions that nothing would have beaten by more than 1 ms
	MeanBestMs     float64
	WayMeanMs      float64 // the same, if the node stays and only the way may change
	WayP99Ms       float64
}

// FindRegret repeats a run for sampled requests, once for each node and each way to get
// the prompt there, and compares the time until the first token with that of the
// policy's own choice. All that came before is the same; what comes after runs by the
// policy.
func FindRegret(ctx context.Context, o Options, samples int) (Regret, error) {
	o = o.filled()
	r := Regret{Policy: o.Policy, Disagg: string(o.Disagg)}
	var losses, wayLosses []float64
	sumChosen, sumBest := 0.0, 0.0
	step := max(1, len(o.Arrivals)/samples)
	for number := step / 2; number < len(o.Arrivals) && r.Sampled < samples; number += step {
		chosen, node, err := o.timeOf(ctx, number, nil)
		if err != nil {
			return r, err
		}
		if chosen < 0 {
			continue
		}
		best, bestWay := chosen, chosen
		for _, c := range o.choices() {
			took, _, err := o.timeOf(ctx, number, &c)
			if err != nil {
				return r, err
			}
			r.Tried++
			if took < 0 {
				continue
			}
			best = min(best, took)
			if c.Node == node {
				bestWay = min(bestWay, took)
			}
		}
		r.Sampled++
		sumChosen, sumBest = sumChosen+chosen, sumBest+best
		losses, wayLosses = append(losses, chosen-best), append(wayLosses, chosen-bestWay)
		if chosen-best <= 1 {
			r.Best++
		}
	}
	if r.Sampled == 0 {
		return r, fmt.Errorf("no request of the sample was answered")
	}
	slices.Sort(losses)
	slices.Sort(wayLosses)
	n := float64(r.Sampled)
	at := func(list []float64, q float64) float64 { return list[min(len(list)-1, int(q*float64(len(list))))] }
	r.MeanMs, r.P50Ms, r.P99Ms = (sumChosen-sumBest)/n, at(losses, 0.5), at(losses, 0.99)
	r.MeanBestMs, r.Share = sumBest/n, sumChosen/max(sumBest, 1e-9)-1
	sum := 0.0
	for _, l := range wayLosses {
		sum += l
	}
	r.WayMeanMs, r.WayP99Ms = sum/n, at(wayLosses, 0.99)
	return r, nil
}

// choices are all nodes that may answer, with each way there.
func (o Options) choices() (out []Choice) {
	for i, n := range o.Nodes {
		if n.Role == "prefill" {
			continue
		}
		out = append(out, Choice{Node: i, Kind: scheduler.Local})
		for from := range o.Nodes {
			if from == i || !o.Transfers {
				continue
			}
			out = append(out, Choice{Node: i, Kind: scheduler.Fetched, From: from})
			if o.Nodes[from].Role != "decode" {
				out = append(out, Choice{Node: i, Kind: scheduler.Remote, From: from})
			}
		}
	}
	return out
}

// timeOf is the TTFT of one request, in ms, and the node that gave it; -1 if it was not
// answered.
func (o Options) timeOf(ctx context.Context, number int, c *Choice) (float64, int, error) {
	o.Stop = number + 1
	if c != nil {
		o.Forced = map[int]Choice{number: *c}
	}
	s, err := newSim(o)
	if err != nil {
		return 0, 0, err
	}
	if _, err := s.run(ctx); err != nil {
		return 0, 0, err
	}
	r := &s.records[number]
	if r.first == 0 {
		return -1, 0, nil
	}
	return float64(r.first-r.at) / float64(time.Millisecond), int(r.node), nil
}
