package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tandem/cluster/member"
)

// Policy decides where a request goes. Errors: *Busy, *NotReadyError,
// *UnknownModelError, *TooLongError.
type Policy func(State, Request) (Decision, error)

// Bounds of Retry-After.
const (
	retryMin     = time.Second
	retryMax     = time.Minute
	retryDefault = 5 * time.Second
)

// Place decides by cost; see cost.go. Another node than this one is chosen only if it
// is better by Tuning.Hysteresis and beyond noise; of equals, the seed decides, but a
// node of which a figure is unknown stands back.
func Place(s State, r Request) (Decision, error) {
	s.Tuning = s.Tuning.filled()
	if r.Expected <= 0 {
		r.Expected = expectedDefault
	}
	f, err := candidates(&s, &r)
	if err != nil {
		return Decision{}, err
	}
	c := newCosts(&s, &r, f.nodes)
	scores := c.all()
	chosen := s.choose(scores, r.Seed)
	again := c.score(f.nodes[chosen])
	scores[chosen].plans = again.plans
	d := Decision{
		Node: scores[chosen].Node, Source: scores[chosen].source, Policy: "cost",
		Fetch: scores[chosen].plans.list[0].fetches(), Ways: scores[chosen].plans.ways(), EstimateMs: scores[chosen].firstMs,
		Cached: scores[chosen].Cached, Compute: r.Tokens - scores[chosen].Cached,
	}
	d.Reason = s.explain(&r, f, scores, chosen)
	d.Scores = merge(scores, f.refused)
	return d, nil
}

// candidate is a node that could answer, with what it has of the model.
type candidate struct {
	node  *Node
	model *Model
	place int // in State.Nodes
}

// field is what candidates found.
type field struct {
	nodes   []candidate // by id
	refused []Score     // the others that have the model, by id
	marked  bool        // nodes are marked, for want of others
}

// candidates sorts nodes into those that could answer and those that cannot.
func candidates(s *State, r *Request) (field, error) {
	f := field{nodes: make([]candidate, 0, len(s.Nodes))}
	var marked, prefill []candidate
	known, longest, full := false, 0, time.Duration(0)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m := n.model(r.Model)
		if m == nil {
			continue
		}
		known = true
		why := refusal(n, m, r)
		c := candidate{n, m, i}
		switch {
		case why != "":
		case m.Context > 0 && r.Tokens >= m.Context:
			longest = max(longest, m.Context)
			why = fmt.Sprintf("the prompt does not fit its context of %s tokens", number(m.Context))
		case m.full(&s.Tuning):
			why = fmt.Sprintf("its queue is full (%d wait)", m.Queued+m.Sent)
			full = soonest(full, m.frees())
		case n.left() > 0 && n.Mark.Kind == Full:
			why = "it " + n.Mark.Kind.String()
			full = soonest(full, n.left())
		case n.left() > 0:
			why = fmt.Sprintf("it %v %s ago", n.Mark.Kind, duration(n.Mark.Age))
			marked = append(marked, c)
		case n.Role == member.Prefill && n.Fixed:
			why = "it computes prompts for others"
			prefill = append(prefill, c)
		default:
			f.nodes = append(f.nodes, c)
			continue
		}
		f.refused = append(f.refused, Score{Node: n.ID, Why: why})
	}
	slices.SortFunc(f.refused, func(a, b Score) int { return compareIDs(a.Node, b.Node) })
	if len(f.nodes) == 0 {
		if f.nodes = prefill; len(f.nodes) == 0 && full == 0 {
			f.nodes, f.marked = marked, true
		}
		f.refused = slices.DeleteFunc(f.refused, func(refused Score) bool {
			return slices.ContainsFunc(f.nodes, func(c candidate) bool { return c.node.ID == refused.Node })
		})
	}
	slices.SortFunc(f.nodes, func(a, b candidate) int { return compareIDs(a.node.ID, b.node.ID) })
	switch {
	case len(f.nodes) > 0:
		return f, nil
	case full > 0:
		return f, &Busy{RetryAfter: min(max(full, retryMin), retryMax)}
	case longest > 0:
		return f, &TooLongError{Tokens: r.Tokens, Max: longest}
	case known:
		return f, &NotReadyError{Model: r.Model, Why: s.whyNot(f.refused), RetryAfter: retryDefault}
	}
	return f, &UnknownModelError{Model: r.Model}
}

// refusal says why a node cannot answer at all; "": it can.
func refusal(n *Node, m *Model, r *Request) string {
	switch {
	case n.State == member.Draining:
		return "it takes no new requests"
	case n.State == member.Left:
		return "it has left"
	case n.State != member.Alive:
		return "it does not answer"
	case slices.Contains(r.Exclude, n.ID):
		return "it failed this request already"
	case !m.Ready:
		return "the model is not ready there yet"
	}
	return ""
}

// whyNot joins reasons for a message.
func (s *State) whyNot(refused []Score) string {
	const most = 4
	var parts []string
	for _, score := range refused[:min(most, len(refused))] {
		parts = append(parts, s.name(score.Node)+": "+score.Why)
	}
	if len(refused) > most {
		parts = append(parts, fmt.Sprintf("and %d more", len(refused)-most))
	}
	return strings.Join(parts, "; ")
}

func (n *Node) model(name string) *Model {
	for i := range n.Models {
		if n.Models[i].Name == name {
			return &n.Models[i]
		}
	}
	return nil
}

// full tells whether one more request would be refused, as far as is known.
func (m *Model) full(t *Tuning) bool {
	if m.QueueMax <= 0 || m.LoadAge > t.filled().LoadStale {
		return false
	}
	return m.Running+m.Queued+m.Sent >= max(m.Slots, 1)+m.QueueMax
}

// frees is about when a full node takes one more.
func (m *Model) frees() time.Duration {
	ms := m.SlotMs.Value
	if ms <= 0 {
		ms = slotMsDefault
	}
	return time.Duration(ms / float64(max(m.Slots, 1)) * float64(time.Millisecond))
}

// soonest is the shorter of two times, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 {
		return max(b, 1)
	}
	return min(a, max(b, 1))
}

// choose gives the place of the best score. What an answer costs on the node that
// writes it fastest is the same wherever it goes, so shares are of what exceeds it.
func (s *State) choose(scores []Score, seed uint64) int {
	t, floor := &s.Tuning, decodeFloor(scores)
	best := 0
	for i := range scores {
		if s.handicapped(&scores[i], floor) < s.handicapped(&scores[best], floor) {
			best = i
		}
	}
	low := s.handicapped(&scores[best], floor)
	rank := uint64(math.MaxUint64)
	for i := range scores {
		c := s.handicapped(&scores[i], floor)
		if scores[i].Node == s.Entry && c <= low*(1+t.Hysteresis)+t.NoiseMs {
			return i
		}
		if c <= low*1.01+t.NoiseMs/2 && draw(seed, scores[i].Node) <= rank {
			best, rank = i, draw(seed, scores[i].Node)
		}
	}
	return best
}

// decodeFloor is what the answer costs wherever it goes.
func decodeFloor(scores []Score) float64 {
	floor := scores[0].DecodeMs
	for i := range scores {
		floor = min(floor, scores[i].DecodeMs)
	}
	return floor
}

// handicapped is the cost that is compared, less what is the same for all: what was
// guessed must be better by the hysteresis.
func (s *State) handicapped(score *Score, floor float64) float64 {
	cost := max(0, score.Cost-floor)
	if score.Guessed {
		return cost*(1+s.Tuning.Hysteresis) + s.Tuning.NoiseMs
	}
	return cost
}

// draw is a number that a seed gives a node; all bits are mixed.
func draw(seed uint64, id member.ID) uint64 {
	h := seed + 0x9e3779b97f4a7c15
	for _, c := range []byte(id) {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// merge joins two lists that are in order.
func merge(a, b []Score) []Score {
	if len(b) == 0 {
		return a
	}
	all := append(a[:len(a):len(a)], b...)
	slices.SortFunc(all, func(a, b Score) int { return compareIDs(a.Node, b.Node) })
	return all
}

// name is what people call a node.
func (s *State) name(id member.ID) string {
	for i := range s.Nodes {
		if s.Nodes[i].ID == id && s.Nodes[i].Name != "" {
			return s.Nodes[i].Name
		}
	}
	return id.Short()
}
