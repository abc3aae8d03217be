package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/node/engine"
	"tandem/scheduler"
	"tandem/xfer"
)

// kvWay is how one sequence of this node gets the KV of its prompt from another one:
// what that holds, or what it computes for this prompt.
type kvWay struct {
	node   *Node
	model  target
	kept   *keptModel
	label  string
	tenant string
	tokens []engine.Token
	ids    []block.ID // of the chain, all of the prompt
	fetch  scheduler.Fetch
	reason string

	sink kvSink // what came; only read when run has returned
}

// Bounds of a transfer. It ends as well when nothing comes for some seconds.
const (
	wayPatience = 2.0             // times its estimate
	wayAtLeast  = 2 * time.Second // whatever the estimate
)

// chooseWay decides, when a sequence is about to begin here, whether another node
// gives, or computes, what this one lacks. Nil: this node computes it. mayAsk: another
// node may be asked to compute; those that compute for others do not pass that on.
func (n *Node) chooseWay(m target, label string, b *sequenceBlocks, mayAsk bool) *kvWay {
	if n.peers == nil || n.peers.known() < 2 {
		return nil
	}
	d, err := n.peers.source(m, b, mayAsk)
	if err != nil {
		return nil // this node's own figures are not known yet
	}
	if len(d.Ways) > 1 {
		n.events.emit(KVWayChosen{ID: label, Model: m.Name, PromptTokens: len(b.prompt), Ways: n.peers.named(d.Ways), Reason: d.Reason})
	}
	if len(d.Fetch) == 0 {
		return nil
	}
	return &kvWay{node: n, model: m, kept: b.model, label: label, tenant: b.tenant, tokens: b.prompt, ids: slices.Clone(b.ids), fetch: d.Fetch[0], reason: d.Reason,
		sink: kvSink{keeper: n.keeper}}
}

// source asks the scheduler how this node should get a prompt.
func (p *peers) source(m target, b *sequenceBlocks, mayAsk bool) (scheduler.Decision, error) {
	now, self := time.Now(), member.ID(p.node.id)
	onHand, inRAM := b.run.Len(), b.run.InRAM()
	p.mu.Lock()
	defer p.mu.Unlock()
	r := scheduler.Request{Model: m.Name, Tokens: len(b.prompt), BlockTokens: b.model.size, BytesPerToken: b.model.shape.Bytes()}
	for _, h := range p.mu.index.Match(b.ids, now) {
		if h.Node != self { // of itself this node knows better
			r.Holdings = append(r.Holdings, h)
		}
	}
	r.Holdings = append(r.Holdings, scheduler.Holding{Node: self, Run: onHand, FromRAM: inRAM, FromDisk: onHand - inRAM})
	s := p.stateLocked(m, now)
	for i := range s.Nodes {
		if s.Nodes[i].ID == self { // what was sent here since the last report is this request, most likely
			for j := range s.Nodes[i].Models {
				s.Nodes[i].Models[j].Sent, s.Nodes[i].Models[j].SentTokens = 0, 0
			}
		}
	}
	if !mayAsk {
		s.Disagg = scheduler.DisaggNever
	}
	return scheduler.Source(s, r, self)
}

// tokensThen is how many tokens of the prompt will be there when everything came.
func (w *kvWay) tokensThen() int {
	return (w.fetch.First + w.fetch.Blocks) * w.kept.size
}

// run gets the blocks. Whatever goes wrong only means that fewer come: the rest is
// computed here. It returns when nothing of it is held elsewhere on its behalf.
func (w *kvWay) run(ctx context.Context) {
	begin := time.Now()
	patience := max(wayAtLeast, time.Duration(w.fetch.Ms*wayPatience)*time.Millisecond)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it took longer than %s", patience.Round(time.Millisecond)))
	defer cancel()
	ids := w.ids[w.fetch.First:min(w.fetch.First+w.fetch.Blocks, len(w.ids))]
	var err error
	var pulled xfer.Pulled
	var way xfer.Transport
	if w.fetch.Made {
		var made sync.WaitGroup
		defer made.Wait()
		pullCtx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		accepted := make(chan error, 1)
		made.Go(func() {
			if err := w.node.computeThere(pullCtx, w, func() { accepted <- nil }); err != nil {
				stop(err)
				select {
				case accepted <- err:
				default:
				}
			}
		})
		if err = <-accepted; err == nil {
			pulled, way, err = w.node.peers.pull(pullCtx, w.fetch.From, ids, patience, &w.sink)
		}
	} else {
		pulled, way, err = w.node.peers.pull(ctx, w.fetch.From, ids, 0, &w.sink)
	}
	e := KVMoved{ID: w.label, Model: w.model.Name, From: w.node.peers.name(w.fetch.From), Made: w.fetch.Made, Transport: string(way), Blocks: pulled.Blocks, Wanted: len(ids), Bytes: pulled.Bytes,
		Seconds: time.Since(begin).Seconds(), First: pulled.First.Seconds(), Estimate: w.fetch.Ms / 1000, Outcome: outcomeOf(err)}
	if err != nil {
		e.Error = err.Error()
	}
	w.node.events.emit(e)
}

// named are ways with the names of nodes.
func (p *peers) named(ways []scheduler.Way) []KVWay {
	out := make([]KVWay, len(ways))
	for i, w := range ways {
		out[i] = KVWay{Kind: string(w.Kind), Seconds: w.Ms / 1000}
		if w.From != "" {
			out[i].From = p.name(w.From)
		}
	}
	return out
}
