package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"tandem/node/api"
	"tandem/node/chat"
	"tandem/node/engine"
)

// Generate runs one request, top to bottom:
//
//	find and load the model → render and tokenise → constrain → find kept blocks →
//	place → admit → (fetch and restore, prefill, keep blocks, all in the engine) →
//	decode → assemble text → split reasoning and tool calls → emit
//
// Until out.Accepted is called an error refuses the request; it is turned into an
// HTTP status by refusal. Afterwards it ends the stream. Whatever happens, when
// Generate returns no slot, KV or lease of the request is held any more.
func (n *Node) Generate(ctx context.Context, r *api.Request, out api.Sink) (api.Result, error) {
	n.running.Add(1)
	defer n.running.Add(-1)
	start := time.Now()
	model, err := n.store.Resolve(r.Model)
	if err != nil {
		return api.Result{}, refusal(r.Model, err)
	}
	if r.LoadOnly && r.KeepAlive != nil && *r.KeepAlive == 0 {
		return api.Result{Total: time.Since(start)}, refusal(r.Model, n.unload(ctx, model.Name))
	}
	lease, err := n.pool.Acquire(ctx, generating(model))
	if err != nil {
		return api.Result{}, refusal(r.Model, err)
	}
	defer func() { lease.Release(r.KeepAlive) }()
	result := api.Result{Load: lease.LoadTime()}
	if r.LoadOnly {
		result.Total = time.Since(start)
		return result, nil
	}

	n.store.Used(model.Name)
	loaded := n.loaded(lease.Engine())
	plan, err := prepare(ctx, loaded.engine, loaded.format, r)
	if err != nil {
		return result, refusal(r.Model, err)
	}
	plan.blocks = n.findBlocks(loaded, r, plan.prompts)
	place := n.place(plan)
	choices, err := admit(ctx, loaded.engine, loaded.format, r, plan)
	if err != nil {
		return result, refusal(r.Model, err)
	}
	n.events.emit(RequestPlaced{ID: r.ID, Model: model.Name, PromptTokens: plan.tokens(), Choices: len(choices),
		Decode: place.Decode, Prefill: place.Prefill, Reason: place.Reason})
	out.Accepted(api.Accepted{Model: model.Name, Node: place.Decode, Prefill: place.Prefill, Reason: place.Reason,
		PromptTokens: plan.tokens(), Created: start, Warnings: plan.warnings})
	err = runChoices(ctx, choices, out)
	for _, c := range choices {
		c.addTo(&result)
	}
	result.Total = time.Since(start)
	return result, err
}

// plan is a request in terms of the engine: one token list per prompt, and how
// to choose what follows.
type plan struct {
	prompts   [][]engine.Token
	blocks    []*sequenceBlocks // one per choice, closed by the engine; nil: nothing is kept
	sampling  engine.Sampling
	thinkOpen bool // the prompt ends inside thoughts
	warnings  []string
}

// tokens counts the prompts' tokens, each prompt once.
func (p *plan) tokens() int {
	total := 0
	for _, prompt := range p.prompts {
		total += len(prompt)
	}
	return total
}

// prepare renders and tokenises the prompts and compiles the constraints. All
// that can be refused because of the model is refused here.
func prepare(ctx context.Context, eng *engine.Engine, format *answerFormat, r *api.Request) (*plan, error) {
	if eng.Info().Pooled {
		return nil, api.BadRequest("model", "model %q makes embeddings only; use /v1/embeddings, or another model", r.Model)
	}
	if caps := format.template(r).Capabilities(); r.Messages != nil && r.Think != nil && *r.Think && !caps.Thinking && !caps.Reasoning {
		return nil, api.BadRequest("think", "think: model %q cannot think; allowed: false", r.Model)
	}
	if r.Context > eng.Info().Context {
		return nil, api.BadRequest("num_ctx", "num_ctx: %d is more than this node's context of %d tokens; start it with --ctx %d to allow that", r.Context, eng.Info().Context, r.Context)
	}
	p := &plan{}
	var err error
	if r.Messages != nil {
		err = renderChat(ctx, eng.Vocab(), format.template(r), r, p)
	} else {
		err = tokenizePrompts(eng.Vocab(), r.Prompts, p)
	}
	if err != nil {
		return nil, err
	}
	limit := eng.Info().Context
	if r.Context > 0 {
		limit = min(limit, r.Context)
	}
	for _, prompt := range p.prompts {
		if len(prompt)+1 > limit {
			return nil, api.ContextExceeded(len(prompt), limit)
		}
	}
	p.sampling = sampling(r.Sampling)
	return p, constrain(format.template(r), r, p)
}

// findBlocks looks for the kept blocks of each choice of a request.
func (n *Node) findBlocks(m *loadedModel, r *api.Request, prompts [][]engine.Token) []*sequenceBlocks {
	kept := m.kept.Load()
	if kept == nil || kept.reason != "" {
		return nil
	}
	var blocks []*sequenceBlocks
	for _, prompt := range prompts {
		for range r.N {
			blocks = append(blocks, kept.open(r.Tenant, prompt, n.goFunc))
		}
	}
	return blocks
}

// placement says which node decodes and who computes the prompt.
type placement struct{ Decode, Prefill, Reason string }

// place chooses the node. This node is the only one.
func (n *Node) place(p *plan) placement {
	reason := "this is the only node"
	if len(p.blocks) > 0 {
		if tokens, toLoad := p.blocks[0].found(); tokens > 0 {
			reason += fmt.Sprintf("; of %d prompt tokens the KV of %d is kept", len(p.prompts[0]), tokens)
			if toLoad > 0 {
				reason += fmt.Sprintf(", %s of it on disk", humanize.IBytes(uint64(toLoad)))
			}
		}
	}
	return placement{Decode: n.cfg.Name, Prefill: "local", Reason: reason}
}

// admit hands every choice to the engine. When it fails, nothing stays behind.
func admit(ctx context.Context, eng *engine.Engine, format *answerFormat, r *api.Request, p *plan) ([]*choiceRun, error) {
	choices := make([]*choiceRun, 0, len(p.prompts)*r.N)
	var stops []string
	if r.Messages != nil {
		stops = format.template(r).Capabilities().StopTexts
	}
	for i, prompt := range p.prompts {
		limit := r.MaxTokens
		if r.Context > 0 {
			limit = smallest(limit, r.Context-len(prompt))
		}
		for k := range r.N {
			s := p.sampling
			s.Seed += uint64(k) * seedStride
			index := i*r.N + k
			request := engine.Request{Label: r.ID, Tokens: prompt, MaxTokens: limit, Sampling: s, Salt: r.Tenant}
			if len(p.blocks) > 0 {
				request.Blocks = p.blocks[index]
			}
			seq, err := eng.Submit(ctx, request)
			if err != nil {
				stop(choices)
				for _, b := range p.blocks[min(index+1, len(p.blocks)):] {
					b.Close()
				}
				return nil, err
			}
			c := &choiceRun{index: index, first: k == 0, seq: seq, text: newTextAssembler(append(slices.Clone(r.Stop), stops...)), logprobs: s.TopLogprobs >= 0}
			if r.Messages != nil {
				c.markers = format.markers
				c.parser = format.template(r).NewParser(parserOptions(r, p))
			}
			choices = append(choices, c)
		}
	}
	return choices, nil
}

// seedStride keeps the draws of the choices of one request apart.
const seedStride = 0x9e3779b97f4a7c15

// choiceRun is one answer in the making.
type choiceRun struct {
	index    int
	first    bool // of its prompt: the one whose prompt tokens are counted
	seq      *engine.Sequence
	text     *textAssembler
	parser   *chat.Parser            // nil for raw prompts
	markers  map[engine.Token][]byte // control tokens that the parser must see as text
	logprobs bool

	pending   []api.TokenLogprob // of tokens whose text is still held back
	generated int                // tokens that the client was charged for
	reason    string
}

// runChoices decodes all choices. One runs on the caller's goroutine; several
// run side by side and share the sink. Afterwards the engine holds nothing of any.
func runChoices(ctx context.Context, choices []*choiceRun, out api.Sink) error {
	defer stop(choices)
	if len(choices) == 1 {
		return choices[0].run(ctx, out)
	}
	shared := &sharedSink{Sink: out}
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range choices {
		group.Go(func() error { return c.run(ctx, shared) })
	}
	return group.Wait()
}

// run decodes one choice to its end.
func (c *choiceRun) run(ctx context.Context, out api.Sink) error {
	for {
		token, err := c.seq.Next(ctx)
		if errors.Is(err, io.EOF) {
			return c.finish(out, string(c.seq.Result().Reason), c.text.flush())
		}
		if err != nil {
			return failure(ctx, err)
		}
		c.generated++
		if c.logprobs && token.Logprob != nil {
			c.pending = append(c.pending, logprob(token))
		}
		piece := token.Piece
		if marker, ok := c.markers[token.Token]; ok {
			piece = marker
		}
		text, stopped := c.text.push(piece)
		if stopped {
			c.seq.Cancel()
			c.seq.Wait()
			return c.finish(out, string(engine.FinishStop), text)
		}
		if err := c.emit(out, text); err != nil {
			return err
		}
	}
}

// emit sends text on, split into content, reasoning and tool calls.
func (c *choiceRun) emit(out api.Sink, text string) error {
	if text == "" {
		return nil
	}
	if c.parser == nil {
		return c.send(out, api.Delta{Content: text})
	}
	for _, d := range c.parser.Push(text) {
		if err := c.send(out, delta(d)); err != nil {
			return err
		}
	}
	return nil
}

// send attaches the logprobs of all tokens up to this piece.
func (c *choiceRun) send(out api.Sink, d api.Delta) error {
	d.Logprobs, c.pending = c.pending, nil
	return out.Delta(c.index, d)
}

// finish sends what was held back, the reason and the usage.
func (c *choiceRun) finish(out api.Sink, reason, rest string) error {
	if err := c.emit(out, rest); err != nil {
		return err
	}
	c.reason = reason
	if c.parser != nil {
		for _, d := range c.parser.Close() {
			if err := c.send(out, delta(d)); err != nil {
				return err
			}
		}
		c.reason = c.parser.FinishReason(reason)
	}
	return out.Finish(c.index, api.Finish{Reason: c.reason, Usage: c.usage()})
}

func (c *choiceRun) usage() api.Usage {
	r := c.seq.Result()
	u := api.Usage{CompletionTokens: c.generated}
	if c.first {
		u.PromptTokens, u.CachedTokens = r.PromptTokens, r.CachedTokens
	}
	return u
}

// addTo adds the cost of the choice. Times of choices that ran side by side are
// not summed: the longest counts.
func (c *choiceRun) addTo(total *api.Result) {
	u, r := c.usage(), c.seq.Result()
	total.PromptTokens += u.PromptTokens
	total.CachedTokens += u.CachedTokens
	total.CompletionTokens += u.CompletionTokens
	total.Queue = max(total.Queue, r.Queue)
	total.Prefill = max(total.Prefill, r.Prefill)
	total.Decode = max(total.Decode, r.Decode)
}

// stop cancels what still runs and waits until the engine has freed it.
func stop(choices []*choiceRun) {
	for _, c := range choices {
		c.seq.Cancel()
	}
	for _, c := range choices {
		c.seq.Wait()
	}
}

// sharedSink lets several choices write to one sink in turn.
type sharedSink struct {
	mu sync.Mutex
	api.Sink
}

func (s *sharedSink) Delta(choice int, d api.Delta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Sink.Delta(choice, d)
}

func (s *sharedSink) Finish(choice int, f api.Finish) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Sink.Finish(choice, f)
}

// smallest of two limits of which 0 means none.
func smallest(a, b int) int {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// failure is the error of a request that had begun. The end of the caller's
// context is told as its cause, everything else as an error of the engine.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("the engine failed: %w", err)
}

// sampling translates the API's settings. A seed that the client did not give is
// drawn here, so that the request can be continued elsewhere.
func sampling(s api.Sampling) engine.Sampling {
	out := engine.Sampling{
		Temperature: float32(s.Temperature), TopK: int32(s.TopK), TopP: float32(s.TopP), MinP: float32(s.MinP), TypicalP: float32(s.TypicalP),
		RepeatPenalty: float32(s.RepeatPenalty), RepeatLastN: int32(s.RepeatLastN),
		FrequencyPenalty: float32(s.FrequencyPenalty), PresencePenalty: float32(s.PresencePenalty),
		Mirostat: int32(s.Mirostat), MirostatTau: float32(s.MirostatTau), MirostatEta: float32(s.MirostatEta),
		TopLogprobs: s.TopLogprobs, IgnoreEOS: s.IgnoreEOS, Seed: rand.Uint64(),
	}
	if s.Seed != nil {
		out.Seed = *s.Seed
	}
	if len(s.LogitBias) > 0 {
		out.LogitBias = make(map[engine.Token]float32, len(s.LogitBias))
		for token, bias := range s.LogitBias {
			out.LogitBias[token] = float32(bias)
		}
	}
	return out
}

func logprob(o engine.Output) api.TokenLogprob {
	out := api.TokenLogprob{ID: o.Token, Bytes: o.Piece, Logprob: float64(o.Logprob.Logprob)}
	for _, t := range o.Logprob.Top {
		out.Top = append(out.Top, api.TokenLogprob{ID: t.Token, Bytes: t.Piece, Logprob: float64(t.Logprob)})
	}
	return out
}

func delta(d chat.Delta) api.Delta {
	out := api.Delta{Content: d.Content, Reasoning: d.Reasoning}
	if d.Call != nil {
		out.ToolCalls = []api.ToolCallDelta{{Index: d.Call.Index, ID: d.Call.ID, Name: d.Call.Name, Arguments: d.Call.Arguments}}
	}
	return out
}
