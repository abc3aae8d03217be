package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/node/api"
	"tandem/node/engine"
	"tandem/node/models"
	"tandem/xfer"
)

// movedStopping is told to a node whose request this one gives back.
const movedStopping = "the node is stopping"

// serveGenerate computes one choice for another node. It ends with the stream.
func (n *Node) serveGenerate(ctx context.Context, s *xfer.Stream) error {
	data, err := xfer.ReadMessage(s, callMax)
	if err != nil {
		return err
	}
	c, err := decodeCall(data)
	if err != nil {
		return err
	}
	n.running.Add(1)
	defer n.running.Add(-1)
	send := func(p answerPart) error { return writeJSON(s, p) }
	if n.stopping.Err() != nil {
		return send(answerPart{Moved: movedStopping})
	}
	// What this node gives up at its end, the other one takes back.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.requests, func() { cancel(errMoved) })()

	u := &use{node: n}
	defer func() { u.release(c.KeepAlive) }()
	loaded, err := n.engineFor(ctx, u, c)
	if err != nil { // this node's trouble: another one may be able to
		return send(answerPart{Moved: err.Error()})
	}
	part := answerPart{Accepted: true}
	seq, err := n.submitHere(ctx, u.model, loaded, c.Request, true, func(b *sequenceBlocks) { part.Prefill, part.Reason = b.told() })
	if err != nil {
		return send(answerPart{Refused: asAPIError(c.Model, err)})
	}
	defer func() {
		seq.Cancel()
		seq.Wait()
	}()
	if err := send(part); err != nil {
		return err
	}
	for first := true; ; first = false {
		out, err := seq.Next(ctx)
		switch {
		case err == nil:
			part := answerPart{Token: &out}
			if first { // what the prompt cost, in case the end never comes
				so := seq.Result()
				part.Result = &so
			}
			if err := send(part); err != nil {
				return err
			}
		case errors.Is(err, io.EOF):
			result := seq.Result()
			return send(answerPart{Result: &result})
		case errors.Is(err, errMoved), errors.Is(err, engine.ErrClosed):
			return send(answerPart{Moved: movedStopping})
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			result := seq.Result()
			return send(answerPart{Result: &result, Failed: err.Error()})
		}
	}
}

// decodeCall reads a call. Its values are in the ranges that the API allows; tokens,
// grammar and lengths are checked where the model is known.
func decodeCall(data []byte) (call, error) {
	var c call
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("a call that is no JSON: %w", err)
	}
	r, s := &c.Request, &c.Request.Sampling
	if err := checkNames(c.Model, c.Digest, r.Label, r.Salt); err != nil {
		return c, err
	}
	for _, f := range []struct {
		name      string
		value     int
		low, high int
	}{
		{"max_tokens", r.MaxTokens, 0, math.MaxInt32}, {"top_k", int(s.TopK), 0, math.MaxInt32}, {"repeat_last_n", int(s.RepeatLastN), -1, math.MaxInt32},
		{"mirostat", int(s.Mirostat), 0, 2}, {"top_logprobs", s.TopLogprobs, -1, api.MaxTopLogprobs}, {"logit_bias", len(s.LogitBias), 0, api.MaxLogitBias},
		{"triggers", len(s.Triggers), 0, triggersMax},
	} {
		if f.value < f.low || f.value > f.high {
			return c, fmt.Errorf("a call whose %s is %d; allowed are %d to %d", f.name, f.value, f.low, f.high)
		}
	}
	return c, nil
}

// checkNames refuses a call whose names are longer than the API allows.
func checkNames(model, digest, label, salt string) error {
	for _, f := range []struct {
		name, value string
		low, high   int
	}{{"model", model, 1, api.MaxIdentifier}, {"digest", digest, 0, 64}, {"label", label, 0, api.MaxIdentifier}, {"salt", salt, 0, api.MaxIdentifier}} {
		if n := len(f.value); n < f.low || n > f.high {
			return fmt.Errorf("a call whose %s has %d bytes; allowed are %d to %d", f.name, n, f.low, f.high)
		}
	}
	return nil
}

// triggersMax bounds the regular expressions that wake a grammar: templates have some.
const triggersMax = 64

// errMoved ends sequences that other nodes are to go on with.
var errMoved = errors.New(movedStopping)

// engineFor finds the model of a call and loads it if need be.
func (n *Node) engineFor(ctx context.Context, u *use, c call) (*loadedModel, error) {
	var err error
	if u.model, err = n.servedHere(c.Model, c.Digest); err != nil {
		return nil, err
	}
	return u.engine(ctx)
}

// byDigest finds a model of this machine by the digest of its file.
func (n *Node) byDigest(digest string) (models.Model, bool) {
	list, err := n.store.List(n.stopping)
	i := slices.IndexFunc(list, func(m models.Model) bool { return m.Digest == digest })
	if err != nil || digest == "" || i < 0 {
		return models.Model{}, false
	}
	return list[i], true
}

// servedHere finds a model of this machine for another node: by the digest of its
// file, since names are free and tokens of another vocabulary mean nothing.
func (n *Node) servedHere(name, digest string) (target, error) {
	m, err := n.store.Resolve(name)
	if err == nil && digest != "" && m.Digest == digest {
		return target{Model: m, here: true}, nil
	}
	if m, ok := n.byDigest(digest); ok {
		return target{Model: m, here: true}, nil
	}
	if err == nil {
		return target{}, fmt.Errorf("model %s is another file here (digest %.16s, wanted %.16s): %w", name, m.Digest, digest, models.ErrNotFound)
	}
	return target{}, err
}

// serveLoad loads a model for another node, or unloads it.
func (n *Node) serveLoad(ctx context.Context, s *xfer.Stream) error {
	var c loadCall
	if err := readJSON(s, callMax, &c); err != nil {
		return err
	}
	m, err := n.servedHere(c.Model, c.Digest)
	if err == nil {
		err = n.loadOnly(ctx, m, c.KeepAlive)
	}
	return writeJSON(s, answerPart{Accepted: err == nil, Refused: asAPIError(c.Model, err)})
}

// loadCall asks another node to load a model, or with a KeepAlive of 0 to unload it.
type loadCall struct {
	Model     string         `json:"model"`
	Digest    string         `json:"digest,omitempty"`
	KeepAlive *time.Duration `json:"keep_alive,omitempty"`
}

// serveEmbed makes embeddings for another node.
func (n *Node) serveEmbed(ctx context.Context, s *xfer.Stream) error {
	var c embedCall
	if err := readJSON(s, callMax, &c); err != nil {
		return err
	}
	n.running.Add(1)
	defer n.running.Add(-1)
	var a embedAnswer
	var result api.EmbedResult
	m, err := n.servedHere(c.Request.Model, c.Digest)
	if err == nil {
		result, err = n.embedHere(ctx, m.Model, &c.Request)
	}
	if err != nil {
		a.Refused = asAPIError(c.Request.Model, err)
	} else {
		a.Result = &result
	}
	return writeJSON(s, a)
}

// embedCall asks another node for embeddings.
type embedCall struct {
	Digest  string           `json:"digest"` // of the model's file
	Request api.EmbedRequest `json:"request"`
}

// embedAnswer is what came of an embedding on another node.
type embedAnswer struct {
	Refused *api.Error       `json:"refused,omitempty"`
	Result  *api.EmbedResult `json:"result,omitempty"`
}

// asAPIError is what a client would be told of an error; nil for nil.
func asAPIError(model string, err error) *api.Error {
	if err == nil {
		return nil
	}
	var known *api.Error
	if errors.As(refusal(model, err), &known) {
		return known
	}
	return &api.Error{Status: 503, Type: "server_error", Code: "unavailable", Message: err.Error()}
}

// ask sends one message to a node that has a model and reads one; if that node is
// gone, it asks the next.
func (n *Node) ask(ctx context.Context, to target, service string, question, answer any, limit int) error {
	var lost error
	for exclude := []member.ID{member.ID(n.id)}; ; {
		d, err := n.peers.decide(to, "", nil, 0, exclude)
		if err != nil {
			return cmp.Or(lost, err)
		}
		if lost = n.askNode(ctx, d.Node, service, question, answer, limit); lost == nil || ctx.Err() != nil {
			return lost
		}
		n.refusedBy(d.Node, lost)
		exclude = append(exclude, d.Node)
	}
}

func (n *Node) askNode(ctx context.Context, place member.ID, service string, question, answer any, limit int) error {
	s, err := n.peers.link.OpenBound(ctx, place, service)
	if err != nil {
		return lostOr(ctx, place, err)
	}
	defer s.Close()
	if err := writeJSON(s, question); err != nil {
		return lostOr(ctx, place, err)
	}
	if err := readJSON(s, limit, answer); err != nil {
		return lostOr(ctx, place, err)
	}
	return nil
}

// loadThere loads or unloads a model on a node that has it.
func (n *Node) loadThere(ctx context.Context, m target, keepAlive *time.Duration) error {
	var a answerPart
	if err := n.ask(ctx, m, serviceLoad, loadCall{Model: m.Name, Digest: m.Digest, KeepAlive: keepAlive}, &a, answerMax); err != nil {
		return err
	}
	if a.Refused != nil {
		return a.Refused
	}
	return nil
}

func readJSON(s *xfer.Stream, limit int, v any) error {
	data, err := xfer.ReadMessage(s, limit)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func writeJSON(s *xfer.Stream, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return xfer.WriteMessage(s, data)
}
