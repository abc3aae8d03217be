package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"tandem/node/api"
	"tandem/node/engine"
	"tandem/node/models"
)

// Embed computes one vector of unit length per input, on this node if it has the
// model, else on one that has it.
func (n *Node) Embed(ctx context.Context, r *api.EmbedRequest) (api.EmbedResult, error) {
	n.running.Add(1)
	defer n.running.Add(-1)
	m, err := n.find(r.Model)
	if err != nil {
		return api.EmbedResult{}, refusal(r.Model, err)
	}
	if m.here {
		return n.embedHere(ctx, m.Model, r)
	}
	var a embedAnswer
	if err := n.ask(ctx, m, serviceEmbed, embedCall{Digest: m.Digest, Request: *r}, &a, embedMax); err != nil {
		return api.EmbedResult{}, refusal(r.Model, err)
	}
	if a.Refused != nil {
		return api.EmbedResult{}, a.Refused
	}
	if a.Result == nil {
		return api.EmbedResult{}, refusal(r.Model, errors.New("the other node sent no result"))
	}
	return *a.Result, nil
}

// embedMax bounds the vectors that another node may send, in bytes of JSON.
const embedMax = 64 << 20

// embedHere computes vectors with this node's engine.
func (n *Node) embedHere(ctx context.Context, m models.Model, r *api.EmbedRequest) (api.EmbedResult, error) {
	start := time.Now()
	lease, err := n.pool.Acquire(ctx, embedding(m))
	if err != nil {
		return api.EmbedResult{}, refusal(r.Model, err)
	}
	defer func() { lease.Release(r.KeepAlive) }()
	eng, p := lease.Engine(), &plan{}
	if err := tokenizePrompts(eng.Vocab(), r.Inputs, p); err != nil {
		return api.EmbedResult{}, refusal(r.Model, err)
	}
	if err := fitInputs(eng, p, r.Truncate); err != nil {
		return api.EmbedResult{}, err
	}
	vectors, err := eng.Embed(ctx, p.prompts)
	if err != nil {
		return api.EmbedResult{}, refusal(r.Model, err)
	}
	if r.Dimensions > 0 {
		if vectors, err = shorten(vectors, r.Dimensions); err != nil {
			return api.EmbedResult{}, err
		}
	}
	return api.EmbedResult{Model: m.Name, Vectors: vectors, PromptTokens: p.tokens(), Load: lease.LoadTime(), Total: time.Since(start)}, nil
}

// fitInputs ends each input as the model expects. It refuses those that are too
// long, or cuts them if the client asked for that.
func fitInputs(eng *engine.Engine, p *plan, truncate bool) error {
	limit := min(eng.Info().Context, eng.Info().MicroBatch)
	end, hasEnd := eng.Vocab().TextEnd()
	if hasEnd {
		limit--
	}
	for i, tokens := range p.prompts {
		switch {
		case len(tokens) <= limit:
		case truncate:
			p.prompts[i] = tokens[:limit]
		default:
			e := api.ContextExceeded(len(tokens), limit)
			e.Param, e.Message = "input", fmt.Sprintf("input %d has %d tokens, but the model takes %d", i, len(tokens), limit)
			return e
		}
		if hasEnd && !slices.Contains(p.prompts[i], end) {
			p.prompts[i] = append(slices.Clip(p.prompts[i]), end)
		}
	}
	return nil
}

// shorten keeps the first values of vectors and restores their unit length, as
// models trained for several lengths expect.
func shorten(vectors [][]float32, dimensions int) ([][]float32, error) {
	for i, v := range vectors {
		if dimensions > len(v) {
			return nil, api.BadRequest("dimensions", "dimensions: %d is more than the %d of this model; allowed: 1 to %d", dimensions, len(v), len(v))
		}
		var sum float64
		for _, x := range v[:dimensions] {
			sum += float64(x) * float64(x)
		}
		out := make([]float32, dimensions)
		for k, x := range v[:dimensions] {
			out[k] = float32(float64(x) / math.Sqrt(max(sum, math.SmallestNonzeroFloat64)))
		}
		vectors[i] = out
	}
	return vectors, nil
}

// Tokenize implements api.Generator.
func (n *Node) Tokenize(ctx context.Context, model, text string, o api.TokenizeOptions) ([]api.TextToken, error) {
	var out []api.TextToken
	err := n.withVocab(ctx, model, func(v engine.Vocab) error {
		tokens, err := v.Tokenize(text, o.ParseSpecial)
		if o.AddSpecial && v.AddBOS() {
			tokens = append([]engine.Token{v.BOS()}, tokens...)
		}
		for _, t := range tokens {
			out = append(out, api.TextToken{ID: t, Piece: v.Piece(t, true)})
		}
		return err
	})
	return out, err
}

// Count implements api.Generator.
func (n *Node) Count(ctx context.Context, r *api.Request) (int, error) {
	model, err := n.find(r.Model)
	if err != nil {
		return 0, refusal(r.Model, err)
	}
	u, err := n.use(ctx, model)
	if err != nil {
		return 0, refusal(r.Model, err)
	}
	defer u.release(nil)
	p := &plan{}
	if err := checkModel(u.reader, r); err != nil {
		return 0, err
	}
	err = renderChat(ctx, u.reader.vocab, u.reader.template(r), r, p)
	return p.tokens(), refusal(r.Model, err)
}

// Detokenize implements api.Generator.
func (n *Node) Detokenize(ctx context.Context, model string, tokens []int32) (string, error) {
	var text []byte
	err := n.withVocab(ctx, model, func(v engine.Vocab) error {
		for i, t := range tokens {
			if t < 0 || int(t) >= v.Size() {
				return api.BadRequest("tokens", "tokens[%d]: %d is not in the vocabulary; allowed: 0 to %d", i, t, v.Size()-1)
			}
			text = append(text, v.Piece(t, true)...)
		}
		return nil
	})
	return validText(text), err
}

// withVocab uses the vocabulary of a model, loading it if need be.
func (n *Node) withVocab(ctx context.Context, model string, with func(engine.Vocab) error) error {
	m, err := n.find(model)
	if err != nil {
		return refusal(model, err)
	}
	u, err := n.use(ctx, m)
	if err != nil {
		return refusal(model, err)
	}
	defer u.release(nil)
	return refusal(model, with(u.reader.vocab))
}
