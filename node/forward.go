package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/node/api"
	"tandem/node/engine"
	"tandem/xfer"
)

// Limits of messages between nodes, in bytes of JSON.
const (
	callMax   = 32 << 20 // a prompt of a million tokens with its grammar
	answerMax = 1 << 20  // one token with all its alternatives
)

// Services of a node for other nodes.
const (
	serviceGenerate = "generate"
	serviceEmbed    = "embed"
	serviceLoad     = "load"
)

// call asks another node for one choice.
type call struct {
	Model   string         `json:"model"`
	Digest  string         `json:"digest"` // of the model's file
	Request engine.Request `json:"request"`
	// KeepAlive is how long the model stays loaded there; nil: as that node is configured.
	KeepAlive *time.Duration `json:"keep_alive,omitempty"`
}

// answerPart is one message of the node that computes: accepted or refused first, then
// tokens, the first of them with what its prompt cost, and at the end the result; moved
// instead of it says that somebody else has to go on.
type answerPart struct {
	Accepted bool           `json:"accepted,omitempty"`
	Prefill  string         `json:"prefill,omitempty"` // with Accepted: the node that computes most of the prompt, if another one does
	Reason   string         `json:"reason,omitempty"`  // with Accepted: how the prompt's KV comes there, in words
	Refused  *api.Error     `json:"refused,omitempty"`
	Token    *engine.Output `json:"token,omitempty"`
	Result   *engine.Result `json:"result,omitempty"`
	Failed   string         `json:"failed,omitempty"` // with Result: what went wrong
	Moved    string         `json:"moved,omitempty"`
}

// lostError says that the node that computed an answer is gone, or gives it up.
type lostError struct {
	node member.ID
	err  error
}

func (e *lostError) Error() string { return fmt.Sprintf("node %s: %v", e.node.Short(), e.err) }

func (e *lostError) Unwrap() error { return e.err }

// otherNodeMay tells whether a refusal is the node's and not the request's.
func otherNodeMay(err error) bool {
	var lost *lostError
	var known *api.Error
	err = refusal("", err)
	switch {
	case errors.As(err, &lost):
		return true
	case errors.As(err, &known):
		return known.Status >= http.StatusInternalServerError || known.Status == http.StatusTooManyRequests
	}
	return false
}

// submit hands one choice to the chosen node.
func (n *Node) submit(ctx context.Context, place *placement, u *use, r engine.Request) (answer, error) {
	if !place.here {
		first, err := n.submitThere(ctx, place.node, u, r)
		if err != nil {
			return nil, err
		}
		place.told(first.prefill, first.reason)
		return &relay{home: n, use: u, request: r, place: *place, current: first}, nil
	}
	loaded, err := u.engine(ctx)
	if err != nil {
		return nil, err
	}
	return n.submitHere(ctx, u.model, loaded, r, true, func(b *sequenceBlocks) { place.told(b.told()) })
}

// submitHere begins a sequence on an engine of this node. What it lacks of the KV of
// the tokens, other nodes may give, or compute if mayAsk. found is told of that, and
// of what is kept here, if anything may be.
func (n *Node) submitHere(ctx context.Context, m target, loaded *loadedModel, r engine.Request, mayAsk bool, found func(*sequenceBlocks)) (*engine.Sequence, error) {
	if blocks := loaded.open(r.Salt, slices.Concat(r.Tokens, r.Generated), n.goFunc); blocks != nil {
		blocks.way = n.chooseWay(m, r.Label, blocks, mayAsk)
		found(blocks)
		r.Blocks = blocks
	}
	return loaded.engine.Submit(ctx, r)
}

// open looks for the kept blocks of a sequence; nil: none are kept of this model.
func (m *loadedModel) open(tenant string, tokens []engine.Token, spawn func(func())) *sequenceBlocks {
	return m.kept.Load().open(tenant, tokens, spawn)
}

// submitThere hands one choice to another node and waits until it was accepted: for
// as long as that node lives, since it may have to load the model.
func (n *Node) submitThere(ctx context.Context, to member.ID, u *use, r engine.Request) (*remoteAnswer, error) {
	s, err := n.peers.link.OpenBound(ctx, to, serviceGenerate)
	if err != nil {
		return nil, lostOr(ctx, to, err)
	}
	a := &remoteAnswer{peer: to, stream: s, result: engine.Result{PromptTokens: len(r.Tokens)}}
	part, err := a.begin(call{Model: u.model.Name, Digest: u.model.Digest, Request: r, KeepAlive: u.keepAlive})
	switch {
	case err != nil:
		a.Wait()
		return nil, lostOr(ctx, to, err)
	case part.Refused != nil:
		a.Wait()
		return nil, part.Refused
	case part.Moved != "":
		a.Wait()
		return nil, &lostError{to, errors.New(part.Moved)}
	}
	a.prefill, a.reason = part.Prefill, part.Reason
	return a, nil
}

// lostOr is the cause of ctx if that has ended, else the loss of a node.
func lostOr(ctx context.Context, node member.ID, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &lostError{node, err}
}

// remoteAnswer is one choice that another node computes, as long as it does.
type remoteAnswer struct {
	peer            member.ID
	stream          *xfer.Stream
	prefill, reason string // what it said when it accepted
	result          engine.Result
}

// begin sends the call and reads what the node says to it.
func (a *remoteAnswer) begin(c call) (answerPart, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return answerPart{}, err
	}
	if err := xfer.WriteMessage(a.stream, data); err != nil {
		return answerPart{}, err
	}
	return a.read()
}

func (a *remoteAnswer) read() (answerPart, error) {
	data, err := xfer.ReadMessage(a.stream, answerMax)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // an answer ends with its result
		}
		return answerPart{}, err
	}
	var part answerPart
	err = json.Unmarshal(data, &part)
	return part, err
}

// Next returns the next token; io.EOF after the last one; a *lostError if the node
// does not go on.
func (a *remoteAnswer) Next(ctx context.Context) (engine.Output, error) {
	part, err := a.read()
	switch {
	case err != nil:
		return engine.Output{}, lostOr(ctx, a.peer, err)
	case part.Token != nil:
		generated := a.result.Generated + 1
		if part.Result != nil {
			a.result = *part.Result
		}
		a.result.Generated = generated
		return *part.Token, nil
	case part.Moved != "":
		return engine.Output{}, &lostError{a.peer, errors.New(part.Moved)}
	case part.Result == nil:
		return engine.Output{}, &lostError{a.peer, errors.New("it sent a message that means nothing")}
	}
	a.result = *part.Result
	if part.Failed != "" {
		return engine.Output{}, errors.New(part.Failed)
	}
	return engine.Output{}, io.EOF
}

func (a *remoteAnswer) Cancel() { a.stream.Cancel("the request was cancelled") }

// Wait ends the use of the stream. The other node frees everything by itself.
func (a *remoteAnswer) Wait() { a.stream.Close() } // nothing of it is held here then

func (a *remoteAnswer) Result() engine.Result { return a.result }

// Bounds of the search for a node that goes on with an answer.
const (
	moveTime  = 30 * time.Second       // as long as a restarted node takes to come back
	movePause = 250 * time.Millisecond // between two looks at who is there
)

// relay is an answer that another node computes. It remembers the tokens, so that the
// next best node goes on if that one is lost: a draw depends on seed and position
// alone, and the grammar is led to the end of what there is. What comes out is what
// would have come out without the loss.
//
// It is used by one goroutine.
type relay struct {
	home    *Node
	use     *use
	request engine.Request
	place   placement
	current answer
	log     []engine.Token
	before  engine.Result // what the nodes before current have done
	ended   *engine.Result
}

// Next implements answer.
func (r *relay) Next(ctx context.Context) (engine.Output, error) {
	for {
		if r.ended != nil {
			return engine.Output{}, io.EOF
		}
		out, err := r.current.Next(ctx)
		var lost *lostError
		switch {
		case err == nil:
			r.log = append(r.log, out.Token)
			return out, nil
		case !errors.As(err, &lost) || ctx.Err() != nil:
			return out, err
		}
		if err := r.move(ctx, lost); err != nil {
			return engine.Output{}, err
		}
	}
}

// move finds a node that goes on with the answer.
func (r *relay) move(ctx context.Context, lost *lostError) error {
	r.before = r.Result()
	r.current.Wait()
	r.request.Generated = r.log
	if full := r.full(); full {
		r.before.Reason = engine.FinishLength
		r.ended = &r.before
		return nil
	}
	r.home.refusedBy(lost.node, lost)
	give := time.NewTimer(moveTime)
	defer give.Stop()
	refused := []member.ID{lost.node}
	for {
		place, err := r.home.place(r.use, r.request.Salt, slices.Concat(r.request.Tokens, r.log), max(0, r.request.MaxTokens-len(r.log)), refused)
		if err == nil {
			var next answer
			if next, err = r.goOn(ctx, &place); err == nil {
				r.home.events.emit(RequestMoved{ID: r.request.Label, Model: r.use.model.Name, From: r.place.Decode, To: place.Decode, Tokens: len(r.log), Reason: lost.Error()})
				r.place, r.current = place, next
				return nil
			}
			if ctx.Err() != nil || !otherNodeMay(err) {
				return err
			}
			r.home.refusedBy(place.node, err)
			refused = append(refused, place.node)
			continue
		}
		select { // nobody is left: one that was asked may be free again, or back
		case <-time.After(movePause):
			refused = nil
		case <-give.C:
			return fmt.Errorf("%w, and no other node went on within %s: %w", lost, moveTime, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// goOn hands the rest of the answer to a node. The relay stays, whoever it is.
func (r *relay) goOn(ctx context.Context, place *placement) (answer, error) {
	if place.here {
		return r.home.submit(ctx, place, r.use, r.request)
	}
	return r.home.submitThere(ctx, place.node, r.use, r.request)
}

// full tells whether no token may follow: the last one came, but not the result.
func (r *relay) full() bool {
	total := len(r.request.Tokens) + len(r.log)
	return r.request.MaxTokens > 0 && len(r.log) >= r.request.MaxTokens || total >= r.use.reader.context
}

// Cancel implements answer.
func (r *relay) Cancel() { r.current.Cancel() }

// Wait implements answer.
func (r *relay) Wait() { r.current.Wait() }

// Result implements answer: as if one node had done everything.
func (r *relay) Result() engine.Result {
	if r.ended != nil {
		return *r.ended
	}
	now := r.current.Result()
	if r.before.Generated == 0 {
		return now
	}
	sum := r.before
	sum.Reason = now.Reason
	sum.Generated += now.Generated
	sum.Decode += now.Prefill + now.Decode
	return sum
}
