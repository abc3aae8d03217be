package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"time"

	"tandem/kvstore/block"
	"tandem/node/api"
	"tandem/node/engine"
)

// KVComparison is what came of computing a prompt cold and from kept blocks.
type KVComparison struct {
	Model             string  `json:"model"`
	PromptTokens      int     `json:"prompt_tokens"`
	RestoredTokens    int     `json:"restored_tokens"`
	Positions         int     `json:"positions"`             // whose log-probabilities were compared
	LargestDifference float64 `json:"largest_difference"`    // of a log-probability, natural logarithm
	DifferentAt       int     `json:"different_at"`          // first position with another token; -1: there is none
	EqualText         bool    `json:"equal_text"`            // token for token, greedy
	ColdText          string  `json:"cold_text"`             // that followed the computed prompt
	RestoredText      string  `json:"restored_text"`         // that followed the restored one
	Margin            float64 `json:"margin,omitempty"`      // by which the cold token led where the texts part
	ColdSeconds       float64 `json:"cold_seconds"`          // to the first token
	RestoredSeconds   float64 `json:"restored_seconds"`      // to the first token
	BlockTokens       int     `json:"block_tokens,omitzero"` // of the model's blocks
}

const (
	// compareLabel names the requests of a comparison; they count for no statistics
	// of what blocks spared.
	compareLabel = "verify-kv"

	compareTokens   = 1024 // of the prompt, unless the client says how many
	compareGenerate = 32   // tokens that are compared, likewise
	compareTop      = 20   // alternatives of each

	// digestTime is how long a comparison waits for the digest of a model that was
	// just loaded, and flushTime for blocks to become visible.
	digestTime = 30 * time.Second
	flushTime  = 30 * time.Second
	// differenceMax stands for a difference that is no number.
	differenceMax = 1e9
)

// Compare implements api.KV. The prompt is made up, has a tenant of its own, and its
// blocks are evicted afterwards: no prompt of anybody else is used or shown.
func (a *kvAdmin) Compare(ctx context.Context, r api.CompareKV) (any, error) {
	if _, err := a.store(); err != nil {
		return nil, err
	}
	if err := a.begin(); err != nil {
		return nil, err
	}
	defer a.end()
	out, err := a.compare(ctx, r)
	return out, refusal(r.Model, err)
}

func (a *kvAdmin) compare(ctx context.Context, r api.CompareKV) (KVComparison, error) {
	n := a.node
	model, err := n.store.Resolve(n.orDefault(r.Model))
	if err != nil {
		return KVComparison{}, err
	}
	lease, err := n.pool.Acquire(ctx, generating(model))
	if err != nil {
		return KVComparison{}, err
	}
	defer lease.Release(nil)
	c := comparison{node: n, engine: lease.Engine(), generate: r.Generate}
	if c.generate == 0 {
		c.generate = compareGenerate
	}
	if c.kept, err = waitKept(ctx, model.Name, n.loaded(c.engine)); err != nil {
		return KVComparison{}, err
	}
	if err := c.makePrompt(r.Tokens); err != nil {
		return KVComparison{}, err
	}
	out, err := c.run(ctx)
	out.Model, out.BlockTokens = model.Name, c.kept.size
	return out, err
}

// orDefault is a model's name, or that of the default model.
func (n *Node) orDefault(name string) string {
	if name != "" {
		return name
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.defaultModel
}

// waitKept waits until it is known how the blocks of a model are named.
func waitKept(ctx context.Context, name string, m *loadedModel) (*keptModel, error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(digestTime)
	defer end.Stop()
	for m.kept.Load() == nil {
		select {
		case <-tick.C:
		case <-end.C:
			return nil, api.Busy(http.StatusServiceUnavailable, digestTime, "model %s: %s; try again later", name, noDigestYet)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	kept := m.kept.Load()
	if kept.reason != "" {
		return nil, api.BadRequest("model", "model %s: nothing of it is kept: %s", name, kept.reason)
	}
	return kept, nil
}

// comparison is one comparison under way.
type comparison struct {
	node     *Node
	engine   *engine.Engine
	kept     *keptModel
	prompt   []engine.Token
	generate int
}

// makePrompt makes up a prompt of n tokens; 0: as many as are usual and fit.
func (c *comparison) makePrompt(n int) error {
	most := c.engine.Info().Context - c.generate
	if n == 0 {
		n = min(compareTokens, most)
	}
	if n > most {
		return api.BadRequest("tokens", "tokens: %d and %d that follow do not fit into the context of %d; allowed: up to %d", n, c.generate, c.engine.Info().Context, most)
	}
	if n <= c.kept.size {
		return api.BadRequest("tokens", "tokens: %d is not more than the %d of one block, so nothing would be restored; allowed: %d to %d", n, c.kept.size, c.kept.size+1, most)
	}
	var err error
	c.prompt, err = madeUpTokens(c.engine.Vocab(), n)
	return err
}

// madeUpText is a paragraph that nobody has sent before.
func madeUpText() string {
	people := []string{"the rider", "a sailor", "the baker", "our neighbour", "a teacher", "the engineer"}
	deeds := []string{"counted", "repaired", "carried home", "painted", "sold", "forgot"}
	things := []string{"wheels", "lamps", "letters", "apples", "maps", "bells"}
	var b strings.Builder
	for range 24 {
		fmt.Fprintf(&b, "On day %d %s %s %d %s. ", mathrand.IntN(10_000), people[mathrand.IntN(len(people))], deeds[mathrand.IntN(len(deeds))],
			mathrand.IntN(1000), things[mathrand.IntN(len(things))])
	}
	return b.String()
}

// run compares with blocks that nobody else can find, and evicts them afterwards.
func (c *comparison) run(ctx context.Context) (KVComparison, error) {
	tenant := compareLabel + " " + rand.Text()
	defer c.evict(c.kept.keeper.key.Root(c.kept.fingerprint, tenant))
	return c.compare(ctx, tenant, true)
}

// compare computes the prompt twice; fill says that the first time makes the blocks
// for the second. Salts of their own keep resident rows out of both.
func (c *comparison) compare(ctx context.Context, tenant string, fill bool) (KVComparison, error) {
	request := engine.Request{NoReuse: true, Salt: compareLabel + " " + rand.Text()}
	if fill {
		request.Blocks = c.blocks(tenant)
	}
	cold, first, err := c.outputs(ctx, request)
	if err != nil {
		return KVComparison{}, err
	}
	if fill {
		if err := c.flush(ctx); err != nil {
			return KVComparison{}, err
		}
	}
	blocks := c.blocks(tenant)
	held, _ := blocks.found()
	restored, second, err := c.outputs(ctx, engine.Request{Salt: compareLabel + " " + rand.Text(), Blocks: blocks})
	if err != nil {
		return KVComparison{}, err
	}
	if second.RestoredTokens == 0 {
		return KVComparison{}, notRestored(held, len(c.prompt))
	}
	out := compareOutputs(cold, restored)
	out.PromptTokens, out.RestoredTokens = len(c.prompt), second.RestoredTokens
	out.ColdText, out.RestoredText = outputText(cold), outputText(restored)
	out.ColdSeconds, out.RestoredSeconds = (first.Queue + first.Prefill).Seconds(), (second.Queue + second.Prefill).Seconds()
	return out, nil
}

// notRestored says why there was nothing to compare.
func notRestored(held, tokens int) error {
	why := fmt.Sprintf("the engine expects that computing %d tokens is faster than restoring %d of them; ask for more with tokens", tokens, held)
	if held == 0 {
		why = "its blocks found no room in the tiers, or are gone; give the node more --kv-ram"
	}
	return &api.Error{Status: http.StatusConflict, Type: "invalid_request_error", Code: "not_restored", Param: "tokens",
		Message: "nothing was restored, so there is nothing to compare: " + why}
}

// blocks opens the blocks of the prompt.
func (c *comparison) blocks(tenant string) comparedBlocks {
	return comparedBlocks{c.kept.open(tenant, c.prompt, c.node.goFunc)}
}

// comparedBlocks are blocks of a comparison: they spared nobody anything.
type comparedBlocks struct{ *sequenceBlocks }

// Restored implements engine.Blocks.
func (comparedBlocks) Restored(int) {}

// outputs runs one sequence to its end.
func (c *comparison) outputs(ctx context.Context, r engine.Request) ([]engine.Output, engine.Result, error) {
	r.Label, r.Tokens, r.MaxTokens = compareLabel, c.prompt, c.generate
	r.Sampling = engine.Sampling{TopP: 1, TypicalP: 1, RepeatPenalty: 1, TopLogprobs: compareTop, IgnoreEOS: true}
	seq, err := c.engine.Submit(ctx, r)
	if err != nil {
		return nil, engine.Result{}, err
	}
	var out []engine.Output
	for {
		o, err := seq.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return out, seq.Result(), nil
		case err != nil:
			return nil, engine.Result{}, failure(ctx, err)
		}
		out = append(out, o)
	}
}

// flush waits until the blocks of the first run can be found.
func (c *comparison) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	return c.kept.keeper.store.Flush(ctx)
}

// evict deletes what the comparison left in the tiers, whatever has become of it.
func (c *comparison) evict(root block.ID) {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	if err := c.flush(ctx); err != nil {
		c.node.log.Warn("KV blocks of a comparison may stay", "error", err)
	}
	_, _ = c.kept.keeper.store.Evict(ctx, root) // nothing was kept, or it goes when room is needed
}

// compareOutputs compares what followed, up to the first token that differs: after it
// the two texts go on from different prompts.
func compareOutputs(cold, restored []engine.Output) KVComparison {
	out := KVComparison{DifferentAt: -1, EqualText: len(cold) == len(restored)}
	for i := range min(len(cold), len(restored)) {
		a, b := cold[i], restored[i]
		out.Positions++
		out.LargestDifference = max(out.LargestDifference, difference(a.Logprob, b.Logprob), difference(b.Logprob, a.Logprob))
		if a.Token != b.Token {
			out.EqualText, out.DifferentAt, out.Margin = false, i, margin(a)
			break
		}
	}
	return out
}

// difference is the largest one between the tokens that a lists and what b says of
// them. Of a token that b does not list, b says at most what it says of its last.
func difference(a, b *engine.Logprob) float64 {
	if a == nil || b == nil || len(b.Top) == 0 {
		return differenceMax
	}
	said := map[engine.Token]float64{}
	for _, t := range b.Top {
		said[t.Token] = float64(t.Logprob)
	}
	least := float64(b.Top[len(b.Top)-1].Logprob)
	largest := 0.0
	for _, t := range a.Top {
		value := float64(t.Logprob)
		other, listed := said[t.Token]
		d := math.Abs(value - other)
		if !listed {
			d = max(value-least, 0)
		}
		if value == other && listed {
			d = 0 // also two infinities
		}
		if math.IsNaN(d) || d > differenceMax {
			d = differenceMax
		}
		largest = max(largest, d)
	}
	return largest
}

// margin is by how much the chosen token led over the next.
func margin(o engine.Output) float64 {
	if o.Logprob == nil || len(o.Logprob.Top) < 2 {
		return 0
	}
	d := float64(o.Logprob.Top[0].Logprob - o.Logprob.Top[1].Logprob)
	if math.IsNaN(d) || d > differenceMax {
		return differenceMax
	}
	return d
}

func outputText(outputs []engine.Output) string {
	var text []byte
	for _, o := range outputs {
		text = append(text, o.Piece...)
	}
	return validText(text)
}
