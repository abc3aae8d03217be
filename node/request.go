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

	"golang.org/x/sync/errgroup"

	"tandem/cluster/member"
	"tandem/node/api"
	"tandem/node/chat"
	"tandem/node/engine"
)

// Generate runs one request, top to bottom:
//
//	find the model → render and tokenise → constrain → place → hand over, to this
//	node's engine or another's → (find kept blocks, fetch and restore, prefill, keep
//	blocks, decode, all in the engine) → assemble text → split reasoning and tool
//	calls → emit
//
// Until out.Accepted is called an error refuses the request; it is turned into an
// HTTP status by refusal. Afterwards it ends the stream. Whatever happens, when
// Generate returns no slot, KV or lease of the request is held here any more, and a
// node that computed for it has been told to free its own.
func (n *Node) Generate(ctx context.Context, r *api.Request, out api.Sink) (api.Result, error) {
	n.running.Add(1)
	defer n.running.Add(-1)
	start := time.Now()
	model, err := n.find(r.Model)
	if err != nil {
		return api.Result{}, refusal(r.Model, err)
	}
	if r.LoadOnly {
		err := n.loadOnly(ctx, model, r.KeepAlive)
		return api.Result{Total: time.Since(start)}, refusal(r.Model, err)
	}
	use, err := n.use(ctx, model)
	if err != nil {
		return api.Result{}, refusal(r.Model, err)
	}
	use.keepAlive = r.KeepAlive
	defer func() { use.release(r.KeepAlive) }()
	plan, err := prepare(ctx, use.reader, r)
	if err != nil {
		return api.Result{Load: use.loadTime()}, refusal(r.Model, err)
	}
	place, choices, err := n.seat(ctx, use, r, plan)
	result := api.Result{Load: use.loadTime()}
	if err != nil {
		return result, refusal(r.Model, err)
	}
	n.events.emit(RequestPlaced{ID: r.ID, Model: model.Name, PromptTokens: plan.tokens(), Choices: len(choices),
		Decode: place.Decode, Forwarded: !place.here, Prefill: place.Prefill, Reason: place.Reason, Scores: n.peers.scored(place.scores)})
	out.Accepted(api.Accepted{Model: model.Name, Node: place.Decode, Prefill: place.Prefill, Reason: place.Reason,
		PromptTokens: plan.tokens(), Created: start, Warnings: plan.warnings})
	err = runChoices(ctx, choices, out)
	n.estimated(place, choices[0].answer.Result())
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
func prepare(ctx context.Context, model *reader, r *api.Request) (*plan, error) {
	if err := checkModel(model, r); err != nil {
		return nil, err
	}
	if r.Context > model.context {
		return nil, api.BadRequest("num_ctx", "num_ctx: %d is more than this node's context of %d tokens; start it with --ctx %d to allow that", r.Context, model.context, r.Context)
	}
	p := &plan{}
	var err error
	if r.Messages != nil {
		err = renderChat(ctx, model.vocab, model.template(r), r, p)
	} else {
		err = tokenizePrompts(model.vocab, r.Prompts, p)
	}
	if err != nil {
		return nil, err
	}
	limit := model.context
	if r.Context > 0 {
		limit = min(limit, r.Context)
	}
	for _, prompt := range p.prompts {
		if len(prompt)+1 > limit {
			return nil, api.ContextExceeded(len(prompt), limit)
		}
	}
	p.sampling = sampling(r.Sampling)
	return p, constrain(model.template(r), r, p)
}

// seat chooses a node and hands the request over. A node that is too busy, or gone,
// is left out of the next attempt; what is wrong with the request itself is wrong
// everywhere.
func (n *Node) seat(ctx context.Context, u *use, r *api.Request, p *plan) (placement, []*choiceRun, error) {
	var refused []member.ID
	var last error
	for {
		place, err := n.place(u, r.Tenant, p.prompts[0], r.MaxTokens, refused)
		if err != nil {
			if last != nil {
				err = last
			}
			return placement{}, nil, err
		}
		choices, err := n.admit(ctx, &place, u, r, p)
		if err == nil || ctx.Err() != nil || !otherNodeMay(err) {
			return place, choices, err
		}
		n.refusedBy(place.node, err)
		refused, last = append(refused, place.node), err
	}
}

// admit hands every choice to the chosen node. When it fails, nothing stays behind.
func (n *Node) admit(ctx context.Context, place *placement, u *use, r *api.Request, p *plan) ([]*choiceRun, error) {
	choices := make([]*choiceRun, 0, len(p.prompts)*r.N)
	var stops []string
	if r.Messages != nil {
		stops = u.reader.template(r).Capabilities().StopTexts
	}
	for i, prompt := range p.prompts {
		limit := r.MaxTokens
		if r.Context > 0 {
			limit = smallest(limit, r.Context-len(prompt))
		}
		for k := range r.N {
			s := p.sampling
			s.Seed += uint64(k) * seedStride
			answer, err := n.submit(ctx, place, u, engine.Request{Label: r.ID, Tokens: prompt, MaxTokens: limit, Sampling: s, Salt: r.Tenant})
			if err != nil {
				stop(choices)
				return nil, err
			}
			c := &choiceRun{index: i*r.N + k, first: k == 0, answer: answer, stops: r.Stop, text: newTextAssembler(append(slices.Clone(r.Stop), stops...)), logprobs: s.TopLogprobs >= 0}
			if r.Messages != nil {
				c.markers = u.reader.format.markers
				c.parser = u.reader.template(r).NewParser(parserOptions(r, p))
			}
			choices = append(choices, c)
		}
	}
	return choices, nil
}

// seedStride keeps the draws of the choices of one request apart.
const seedStride = 0x9e3779b97f4a7c15

// answer is the tokens of one choice, as they are computed: by an engine of this
// node, or by another node. Its methods are those of engine.Sequence; Wait waits for
// what is held here.
type answer interface {
	Next(ctx context.Context) (engine.Output, error)
	Cancel()
	Wait()
	Result() engine.Result
}

// choiceRun is one answer in the making.
type choiceRun struct {
	index    int
	first    bool // of its prompt: the one whose prompt tokens are counted
	answer   answer
	text     *textAssembler
	parser   *chat.Parser            // nil for raw prompts
	markers  map[engine.Token][]byte // control tokens that the parser must see as text
	logprobs bool
	stops    []string // the client's, of those that text looks for

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
		if ctx.Err() != nil { // another choice has failed
			return context.Cause(ctx)
		}
		token, err := c.answer.Next(ctx)
		if errors.Is(err, io.EOF) {
			return c.finish(out, string(c.answer.Result().Reason), c.text.flush())
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
			c.answer.Cancel()
			c.answer.Wait()
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
	return out.Finish(c.index, api.Finish{Reason: c.reason, Stop: c.stoppedAt(), Usage: c.usage()})
}

// stoppedAt is the client's stop string at which the text ended; "": at none.
func (c *choiceRun) stoppedAt() string {
	if slices.Contains(c.stops, c.text.stopped) {
		return c.text.stopped
	}
	return ""
}

func (c *choiceRun) usage() api.Usage {
	r := c.answer.Result()
	u := api.Usage{CompletionTokens: c.generated}
	if c.first {
		u.PromptTokens, u.CachedTokens = r.PromptTokens, r.CachedTokens
	}
	return u
}

// addTo adds the cost of the choice. Times of choices that ran side by side are
// not summed: the longest counts.
func (c *choiceRun) addTo(total *api.Result) {
	u, r := c.usage(), c.answer.Result()
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
		c.answer.Cancel()
	}
	for _, c := range choices {
		c.answer.Wait()
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

// errLost ends an answer whose node is gone; addresses and causes are in the log.
var errLost = errors.New("the node that computed this answer is gone, and no other one could go on with it")

// failure is the error of a request that had begun. The end of the caller's
// context is told as its cause, everything else as an error of the engine.
func failure(ctx context.Context, err error) error {
	var lost *lostError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &lost):
		return errLost
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
