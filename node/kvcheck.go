package node

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"tandem/node/engine"
)

// kvChecker takes samples of the requests whose prompts were restored: every nth one
// is computed once more, cold, when its model is idle. It is the answer to "would we
// notice?" on a real machine with real prompts.
type kvChecker struct {
	every    int64 // n; 0: no samples are taken
	restored atomic.Int64
	next     chan kvSample // one slot: what comes while it is taken is not checked

	done, different atomic.Int64
	largest         atomic.Uint64 // bits of the largest difference
}

// kvSample is a prompt to compute once more.
type kvSample struct {
	model  string
	tenant string
	prompt []engine.Token // not to be changed
}

// KVChecks is what the samples showed since the start.
type KVChecks struct {
	Every             int     `json:"every"` // --kv-check
	Done              int64   `json:"done"`
	Different         int64   `json:"different"` // whose greedy texts were not equal
	LargestDifference float64 `json:"largest_difference"`
}

const (
	checkGenerate = 16 // tokens that are compared
	// idlePoll is how often a model is asked whether it is idle, and idleTime how long
	// a sample waits for that.
	idlePoll = 100 * time.Millisecond
	idleTime = time.Minute
)

func newKVChecker(every int) *kvChecker {
	return &kvChecker{every: int64(every), next: make(chan kvSample, 1)}
}

// offer is called for each restored prompt, by engines: it must not wait.
func (c *kvChecker) offer(s kvSample) {
	if c.every == 0 || c.restored.Add(1)%c.every != 0 {
		return
	}
	select {
	case c.next <- s:
	default:
	}
}

// note counts a comparison.
func (c *kvChecker) note(out KVComparison) {
	c.done.Add(1)
	if !out.EqualText {
		c.different.Add(1)
	}
	// Only the goroutine of check writes.
	if out.LargestDifference > math.Float64frombits(c.largest.Load()) {
		c.largest.Store(math.Float64bits(out.LargestDifference))
	}
}

func (c *kvChecker) state() KVChecks {
	return KVChecks{Every: int(c.every), Done: c.done.Load(), Different: c.different.Load(), LargestDifference: math.Float64frombits(c.largest.Load())}
}

// checkKV checks samples until the node stops.
func (a *kvAdmin) checkKV() {
	k, ctx := a.node.keeper, a.node.stopping
	if k == nil || k.check.every == 0 {
		return
	}
	for {
		select {
		case s := <-k.check.next:
			a.checkOne(ctx, s)
		case <-ctx.Done():
			return
		}
	}
}

// checkOne compares one sample. A sample that finds no idle moment, or whose blocks
// are gone by then, is no fault: there will be others.
func (a *kvAdmin) checkOne(ctx context.Context, s kvSample) {
	if !a.waitIdle(ctx, s.model) || a.begin() != nil {
		return
	}
	defer a.end()
	model, err := a.node.store.Resolve(s.model)
	if err != nil {
		return
	}
	lease, err := a.node.pool.Acquire(ctx, generating(model))
	if err != nil {
		return
	}
	defer lease.Release(nil)
	c := comparison{node: a.node, engine: lease.Engine(), kept: a.node.loaded(lease.Engine()).kept.Load(), prompt: s.prompt, generate: checkGenerate}
	if c.kept == nil || c.kept.reason != "" {
		return
	}
	ctx, giveWay := c.whileNobodyWaits(ctx)
	defer giveWay()
	out, err := c.compare(ctx, s.tenant, false)
	if err != nil {
		return
	}
	a.node.keeper.check.note(out)
	a.node.events.emit(KVChecked{Model: model.Name, PromptTokens: out.PromptTokens, RestoredTokens: out.RestoredTokens,
		LargestDifference: out.LargestDifference, Equal: out.EqualText})
}

// waitIdle waits until a model has nothing to do; false: it is not loaded any more,
// or has had no rest.
func (a *kvAdmin) waitIdle(ctx context.Context, model string) bool {
	tick := time.NewTicker(idlePoll)
	defer tick.Stop()
	end := time.NewTimer(idleTime)
	defer end.Stop()
	for {
		loaded := false
		for _, m := range a.node.pool.Loaded() {
			if m.Spec.Name != model {
				continue
			}
			if loaded = true; m.Running+m.Queued == 0 {
				return true
			}
		}
		if !loaded {
			return false
		}
		select {
		case <-tick.C:
		case <-end.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// whileNobodyWaits is a context that ends when a request waits for a slot of the
// model, which goes first. The function ends it, too, and waits for its goroutine.
func (c *comparison) whileNobodyWaits(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(idlePoll)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if c.engine.Stats().Queued > 0 {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
