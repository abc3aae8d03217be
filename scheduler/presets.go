package scheduler

import (
	"fmt"
	"strings"

	"tandem/cluster/member"
)

// dynamo's defaults: what a block counts that is in the engine, in memory, on disk.
const (
	dynamoHostCredit = 0.75
	dynamoDiskCredit = 0.25
)

// PolicyNames are the policies, the default first.
func PolicyNames() []string {
	return []string{"cost", "dynamo", "round-robin", "random", "least-loaded"}
}

// PolicyByName finds a policy.
func PolicyByName(name string) (Policy, error) {
	switch name {
	case "cost":
		return Place, nil
	case "dynamo":
		return placeDynamo, nil
	case "round-robin":
		return placeRoundRobin, nil
	case "random":
		return placeRandom, nil
	case "least-loaded":
		return placeLeastLoaded, nil
	}
	return nil, fmt.Errorf("placement policy %.64q: allowed are %s", name, strings.Join(PolicyNames(), ", "))
}

// placeDynamo is NVIDIA Dynamo's formula with its defaults, in blocks: prompt tokens
// that wait there and those of this request, less a credit for what is held by tier,
// plus blocks in use with this request; the lowest wins, and ties are drawn.
func placeDynamo(s State, r Request) (Decision, error) {
	block := float64(max(1, r.BlockTokens))
	return byScore("dynamo", s, r, func(n candidate, h *Holding) float64 {
		prefill := float64(n.model.Waiting+n.model.SentTokens+r.Tokens) / block
		credit := float64(h.Resident+h.Predicted) + dynamoHostCredit*float64(h.FromRAM) + dynamoDiskCredit*float64(h.FromDisk)
		return max(0, prefill-credit) + float64(n.model.Active+r.Tokens)/block
	}, "lowest count of blocks")
}

func placeLeastLoaded(s State, r Request) (Decision, error) {
	return byScore("least-loaded", s, r, func(n candidate, _ *Holding) float64 {
		return float64(n.model.Running + n.model.Queued + n.model.Sent)
	}, "fewest requests")
}

func placeRandom(s State, r Request) (Decision, error) {
	return byScore("random", s, r, func(candidate, *Holding) float64 { return 0 }, "drawn")
}

func placeRoundRobin(s State, r Request) (Decision, error) {
	f, err := candidates(&s, &r)
	if err != nil {
		return Decision{}, err
	}
	at := int(r.Number % uint64(len(f.nodes)))
	return finish("round-robin", s, r, f, r.heldBy(f.nodes), make([]Score, len(f.nodes)), at, "in turn"), nil
}

// byScore takes the lowest score and draws among equals.
func byScore(policy string, s State, r Request, score func(candidate, *Holding) float64, why string) (Decision, error) {
	f, err := candidates(&s, &r)
	if err != nil {
		return Decision{}, err
	}
	scores, held := make([]Score, len(f.nodes)), r.heldBy(f.nodes)
	best := 0
	for i, n := range f.nodes {
		scores[i].Cost = score(n, held[i])
		if c, low := scores[i].Cost, scores[best].Cost; c < low ||
			c == low && draw(r.Seed, n.node.ID) < draw(r.Seed, f.nodes[best].node.ID) {
			best = i
		}
	}
	return finish(policy, s, r, f, held, scores, best, why), nil
}

// heldBy is what each of some nodes holds of the prompt.
func (r *Request) heldBy(nodes []candidate) []*Holding {
	at := make(map[member.ID]*Holding, len(r.Holdings))
	for i := range r.Holdings {
		at[r.Holdings[i].Node] = &r.Holdings[i]
	}
	out := make([]*Holding, len(nodes))
	for i, n := range nodes {
		if out[i] = at[n.node.ID]; out[i] == nil {
			out[i] = &noHolding
		}
	}
	return out
}

func finish(policy string, s State, r Request, f field, held []*Holding, scores []Score, chosen int, why string) Decision {
	for i, n := range f.nodes {
		scores[i].Node, scores[i].Cached = n.node.ID, r.chainTokens(held[i].Run)
	}
	c := &scores[chosen]
	return Decision{
		Node: c.Node, Source: c.Node, Policy: policy, Cached: c.Cached, Compute: r.Tokens - c.Cached,
		Reason: fmt.Sprintf("%s: %s, of %d that can answer (policy %s)", s.name(c.Node), why, len(f.nodes), policy),
		Scores: merge(scores, f.refused),
	}
}
