package node

import (
	"context"

	"tandem/node/engine/llama"
)

// BareWork is what Bare measures: Sequences prompts of Prompt tokens, and
// Generate greedy tokens for each.
type BareWork struct{ Prompt, Generate, Sequences int }

// BareResult is in tokens per second over all sequences.
type BareResult struct {
	Prefill, Decode float64
	Threads         int
}

// Bare measures the engine without the node: one loop in C over the same model
// with the same threads, batch sizes and cache. It is the yardstick for what
// everything above the engine costs.
func Bare(ctx context.Context, c Config, model string, w BareWork) (BareResult, error) {
	path, err := ModelPath(c, model)
	if err != nil {
		return BareResult{}, err
	}
	o := c.backendOptions(path)
	r, err := llama.Bare(ctx, o, llama.BareWork{Prompt: w.Prompt, Generate: w.Generate, Sequences: w.Sequences})
	threads := o.Threads
	if threads == 0 {
		threads = llama.DefaultThreads()
	}
	return BareResult{Prefill: r.Prefill, Decode: r.Decode, Threads: threads}, err
}
