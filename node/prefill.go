package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"tandem/kvstore/block"
	"tandem/node/engine"
	"tandem/xfer"
)

// servicePrefill computes a prompt for another node, which pulls its blocks meanwhile.
const servicePrefill = "kv/prefill"

// prefillCall asks for the KV of the first tokens of a prompt.
type prefillCall struct {
	Model       string            `json:"model"`
	Digest      string            `json:"digest"` // of the model's file
	Fingerprint block.Fingerprint `json:"fingerprint"`
	Label       string            `json:"label"`
	Salt        string            `json:"salt,omitempty"`
	Tokens      []engine.Token    `json:"tokens"`
}

// prefillPart is one message of the node that computes: accepted or refused, and at
// the end done.
type prefillPart struct {
	Accepted bool   `json:"accepted,omitempty"`
	Refused  string `json:"refused,omitempty"`
	Done     bool   `json:"done,omitempty"`
}

// servePrefill computes a prompt. It ends with the stream.
func (n *Node) servePrefill(ctx context.Context, s *xfer.Stream) error {
	data, err := xfer.ReadMessage(s, callMax)
	if err != nil {
		return err
	}
	c, err := decodePrefill(data)
	if err != nil {
		return err
	}
	if n.stopping.Err() != nil {
		return writeJSON(s, prefillPart{Refused: movedStopping})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.requests, func() { cancel(errMoved) })()
	n.prefills.Add(1)
	defer n.prefills.Add(-1)
	u := &use{node: n}
	defer u.release(nil)
	seq, err := n.beginPrefill(ctx, u, c)
	if err != nil {
		return writeJSON(s, prefillPart{Refused: err.Error()})
	}
	defer func() {
		seq.Cancel()
		seq.Wait()
	}()
	if err := writeJSON(s, prefillPart{Accepted: true}); err != nil {
		return err
	}
	for err == nil {
		_, err = seq.Next(ctx)
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return writeJSON(s, prefillPart{Done: true})
}

// beginPrefill hands the prompt to the engine. What this node lacks it may fetch, but
// not have computed by a third.
func (n *Node) beginPrefill(ctx context.Context, u *use, c prefillCall) (*engine.Sequence, error) {
	loaded, err := n.engineFor(ctx, u, call{Model: c.Model, Digest: c.Digest})
	if err != nil {
		return nil, err
	}
	switch kept := loaded.kept.Load(); {
	case kept == nil || kept.reason != "":
		return nil, errors.New("blocks of this model are not kept here")
	case kept.fingerprint != c.Fingerprint:
		return nil, errors.New("the KV of this model is different here: compare --kv-type, --block, --ctx of long-context models, and versions")
	}
	greedy := engine.Sampling{TopLogprobs: -1, IgnoreEOS: true}
	return n.submitHere(ctx, u.model, loaded, engine.Request{Label: c.Label, Tokens: c.Tokens, MaxTokens: 1, Sampling: greedy, Salt: c.Salt}, false, func(*sequenceBlocks) {})
}

func decodePrefill(data []byte) (prefillCall, error) {
	var c prefillCall
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("a call for a prefill that is no JSON: %w", err)
	}
	if len(c.Tokens) < 1 {
		return c, errors.New("a call for a prefill without tokens")
	}
	return c, checkNames(c.Model, c.Digest, c.Label, c.Salt)
}

// computeThere has the prompt of a way computed by its source until ctx ends.
// accepted is called when that has begun; an error before means that it will not.
func (n *Node) computeThere(ctx context.Context, w *kvWay, accepted func()) error {
	s, err := n.peers.link.OpenBound(ctx, w.fetch.From, servicePrefill)
	if err != nil {
		return err
	}
	defer s.Close()
	tokens := w.tokens[:min(len(w.tokens), w.tokensThen()+1)] // its last token is computed for the logits
	if err := writeJSON(s, prefillCall{Model: w.model.Name, Digest: w.model.Digest, Fingerprint: w.kept.fingerprint, Label: w.label, Salt: w.tenant, Tokens: tokens}); err != nil {
		return err
	}
	for {
		var part prefillPart
		err := readJSON(s, answerMax, &part)
		switch {
		case err != nil:
			return err
		case part.Refused != "":
			return fmt.Errorf("it refused: %s", part.Refused)
		case part.Accepted:
			accepted()
		case part.Done:
			return nil
		default:
			return errors.New("it sent a message that means nothing")
		}
	}
}
