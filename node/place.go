package node

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
	"tandem/node/api"
	"tandem/node/engine"
	"tandem/node/models"
	"tandem/scheduler"
)

// placement says which node decodes and who computes the prompt.
type placement struct {
	node            member.ID
	here            bool
	Decode, Prefill string // names for people; Prefill is "local" where that is Decode
	Reason          string

	estimateMs float64           // until the first token; 0: there was no choice
	scores     []scheduler.Score // of all nodes that were looked at; none where there was no choice

	noted bool // what the node that decodes said was added
}

// told adds what the node that decodes says of the first prompt: who computes it, if
// another node does, and how its KV comes there.
func (p *placement) told(prefill, reason string) {
	if p.noted {
		return
	}
	p.noted = true
	if prefill != "" {
		p.Prefill = prefill
	}
	if reason != "" {
		p.Reason += "; " + reason
	}
}

// find finds a model that a request names: here, or on other nodes.
func (n *Node) find(name string) (target, error) {
	m, err := n.store.Resolve(name)
	if err == nil {
		return target{Model: m, here: true}, nil
	}
	if errors.Is(err, models.ErrNotFound) {
		if t, ok := n.peers.find(name); ok {
			if m, ok := n.byDigest(t.Digest); ok { // under another name
				t = target{Model: m, here: true}
			}
			return t, nil
		}
	}
	return target{}, err
}

// othersServe tells whether other nodes have a model, too, and could take requests.
func (n *Node) othersServe(m target) bool { return len(n.peers.holders(m)) > 0 }

// place chooses the node for a sequence of tokens behind which at most limit are
// generated, 0: until the context is full. Excluded nodes have refused it.
func (n *Node) place(u *use, tenant string, tokens []engine.Token, limit int, exclude []member.ID) (placement, error) {
	self := member.ID(n.id)
	if u.model.here && !n.othersServe(u.model) {
		if slices.Contains(exclude, self) {
			return placement{}, api.Busy(http.StatusServiceUnavailable, time.Second, "model %s cannot answer now; try again", u.model.Name)
		}
		reason := "this is the only node"
		if n.peers.others() > 0 {
			reason = "no other node that answers has this model"
		}
		return placement{node: self, here: true, Decode: n.cfg.Name, Prefill: "local", Reason: reason}, nil
	}
	if !u.model.here { // it may have come meanwhile; this request has only its vocabulary
		exclude = append(slices.Clip(exclude), self)
	}
	d, err := n.peers.decide(u.model, tenant, tokens, limit, exclude)
	if err != nil {
		return placement{}, err
	}
	return placement{node: d.Node, here: d.Node == self, Decode: n.peers.name(d.Node), Prefill: "local", Reason: d.Reason, estimateMs: d.EstimateMs, scores: d.Scores}, nil
}

// Terms of marks: how long a node gets nothing after it refused, unless it gives a
// sign that it is well before.
const (
	fullTerm    = time.Second
	refusedTerm = 5 * time.Second
)

// refusedBy notes that a node did not take a request, or lost it.
func (n *Node) refusedBy(node member.ID, err error) {
	if n.peers == nil {
		return
	}
	mark := scheduler.Mark{Kind: scheduler.Failed, Term: refusedTerm}
	var lost *lostError
	var known *api.Error
	switch {
	case errors.As(err, &lost):
		mark.Kind = scheduler.Refused
	case errors.As(refusal("", err), &known) && known.Status == http.StatusTooManyRequests:
		mark.Kind, mark.Term = scheduler.Full, fullTerm
	}
	n.peers.mark(node, mark)
	n.events.emit(RequestRefused{Node: n.peers.name(node), Reason: err.Error()})
}

// decide asks the scheduler.
func (p *peers) decide(m target, tenant string, tokens []engine.Token, limit int, exclude []member.ID) (scheduler.Decision, error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.placed++
	r := scheduler.Request{Model: m.Name, Tokens: len(tokens), Expected: min(limit, expectedMax), Exclude: exclude, Number: p.mu.placed, Seed: rand.Uint64()}
	chain := p.chainLocked(m, tenant, tokens, &r)
	r.Holdings = p.mu.index.Match(chain, now)
	d, err := p.mu.policy(p.stateLocked(m, now), r)
	if err != nil {
		return d, err
	}
	p.mu.ledger.Gave(d.Node, d.Compute, now)
	p.mu.index.Predict(d.Node, chain, now.Add(predictTime))
	return d, nil
}

// expectedMax is how long an answer is expected to be, unless it may not be so long.
const expectedMax = 256

// predictTime is how long a placement counts as if the node had the blocks already.
const predictTime = 4 * time.Second

// chainLocked names the blocks of a prompt, if some node has told how those of its
// model are named.
func (p *peers) chainLocked(m target, tenant string, tokens []engine.Token, r *scheduler.Request) []block.ID {
	if p.node.keeper == nil {
		return nil
	}
	for id, v := range p.mu.views {
		for i := range v.load.Models {
			l := &v.load.Models[i]
			if l.same(m, id == member.ID(p.node.id)) && l.BlockTokens > 0 && l.Fingerprint != (block.Fingerprint{}) {
				r.BlockTokens, r.BytesPerToken = l.BlockTokens, l.KVBytes
				key := p.node.keeper.key
				return key.Chain(key.Root(l.Fingerprint, tenant), tokens, l.BlockTokens)
			}
		}
	}
	return nil
}

// stateLocked is what is known of all nodes about one model.
func (p *peers) stateLocked(m target, now time.Time) scheduler.State {
	s := scheduler.State{Entry: member.ID(p.node.id), Transfers: p.node.keeper != nil, Disagg: scheduler.Disagg(p.node.cfg.Disagg)}
	for id, v := range p.mu.views {
		node := scheduler.Node{ID: id, Name: v.member.Name, State: v.member.State, Role: v.member.Role, Fixed: v.load.Fixed, GoodAge: now.Sub(v.good)}
		if v.load.Taking != "" { // it finishes what it has of its old part
			node.Role, node.Fixed = v.load.Taking, true
		}
		if v.mark.Kind != scheduler.NoMark {
			node.Mark = v.mark
			node.Mark.Age = now.Sub(v.marked)
		}
		for i := range v.load.Models {
			if l := &v.load.Models[i]; l.same(m, id == s.Entry) {
				known := l.known(m.Name, now.Sub(v.loaded))
				known.Sent, known.SentTokens = p.mu.ledger.Sent(id)
				node.Models = append(node.Models, known)
				break
			}
		}
		s.Nodes = append(s.Nodes, node)
		for _, l := range v.load.Links {
			age := now.Sub(v.loaded)
			s.Links = append(s.Links, scheduler.Link{A: id, B: l.From, Goodput: scheduler.Figure{Value: l.Goodput, Age: age}, RTTMs: scheduler.Figure{Value: l.RTTMs, Age: age}})
		}
	}
	return s
}
