package node

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"tandem/node/api"
	"tandem/node/engine"
	"tandem/scheduler"
)

// work is what requests that came in at a node were like, summed since its process
// began. Planners take differences.
type work struct {
	Digest   string  `json:"digest"` // of the model's file
	Requests float64 `json:"requests"`
	Prompt   float64 `json:"prompt"` // tokens, cached ones included
	Cached   float64 `json:"cached"`
	Answer   float64 `json:"answer"`
	TTFTMs   float64 `json:"ttft_ms"`
	TTFTs    float64 `json:"ttfts"`
	ITLMs    float64 `json:"itl_ms"`
	ITLs     float64 `json:"itls"`
}

// worksMax bounds the models that a node tells of.
const worksMax = 64

// since is what came after before; all of it, if the process began anew meanwhile.
func (w work) since(before work) scheduler.PlanLoad {
	if w.Requests < before.Requests {
		before = work{}
	}
	return scheduler.PlanLoad{Requests: w.Requests - before.Requests, PromptTokens: w.Prompt - before.Prompt, CachedTokens: w.Cached - before.Cached, AnswerTokens: w.Answer - before.Answer,
		TTFTMs: w.TTFTMs - before.TTFTMs, TTFTs: w.TTFTs - before.TTFTs, ITLMs: w.ITLMs - before.ITLMs, ITLs: w.ITLs - before.ITLs}
}

// workload counts requests, and how far estimates were from what came.
type workload struct {
	mu      sync.Mutex
	byModel map[string]*work // by name
	missed  [estimatesKept]float64
	shares  [estimatesKept]float64
	count   int
}

// estimatesKept is over how many requests the quantiles of errors are.
const estimatesKept = 1024

// finished counts a request that was answered.
func (l *workload) finished(r api.RequestRecord) {
	if r.CompletionTokens == 0 || r.PromptTokens == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byModel == nil {
		l.byModel = map[string]*work{}
	}
	w := l.byModel[r.Model]
	if w == nil {
		if len(l.byModel) >= worksMax {
			return
		}
		w = &work{}
		l.byModel[r.Model] = w
	}
	w.Requests++
	w.Prompt += float64(r.PromptTokens)
	w.Cached += float64(r.CachedTokens)
	w.Answer += float64(r.CompletionTokens)
	if r.TTFT > 0 {
		w.TTFTMs += milliseconds(r.TTFT)
		w.TTFTs++
	}
	w.ITLMs += milliseconds(r.Intervals.Sum)
	w.ITLs += float64(r.Intervals.Total())
}

// works are the counters by digest; models whose digest is not known yet come later.
func (n *Node) works() []work {
	l := &n.workload
	l.mu.Lock()
	names := map[string]work{}
	for name, w := range l.byModel {
		names[name] = *w
	}
	l.mu.Unlock()
	var out []work
	for name, w := range names {
		if t, err := n.find(name); err == nil && t.Digest != "" {
			w.Digest = t.Digest
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b work) int { return cmp.Compare(a.Digest, b.Digest) })
	return out
}

// EstimatorError is how far the expected times to the first token were from what came,
// over the last requests that were placed by cost.
type EstimatorError struct {
	Requests int     `json:"requests"`
	P50Ms    float64 `json:"p50_ms"` // of |expected - came|
	P90Ms    float64 `json:"p90_ms"`
	P50Share float64 `json:"p50_share"` // of |expected - came| / came
	P90Share float64 `json:"p90_share"`
}

// estimated compares what was expected of a request with what it took, from when it was
// handed over to its first token.
func (n *Node) estimated(p placement, r engine.Result) {
	came := milliseconds(r.Queue + r.Prefill)
	if p.estimateMs <= 0 || came <= 0 || r.Generated == 0 {
		return
	}
	missed := math.Abs(p.estimateMs - came)
	n.metrics.estimateError.WithLabelValues().Observe(missed / 1000)
	l := &n.workload
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed[l.count%estimatesKept], l.shares[l.count%estimatesKept] = missed, missed/came
	l.count++
}

func (l *workload) estimatorError() EstimatorError {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := min(l.count, estimatesKept)
	missed, shares := slices.Sorted(slices.Values(l.missed[:kept])), slices.Sorted(slices.Values(l.shares[:kept]))
	at := func(list []float64, q float64) float64 {
		if len(list) == 0 {
			return 0
		}
		return list[min(len(list)-1, int(q*float64(len(list))))]
	}
	return EstimatorError{Requests: l.count, P50Ms: at(missed, 0.5), P90Ms: at(missed, 0.9), P50Share: at(shares, 0.5), P90Share: at(shares, 0.9)}
}
