package node

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/cluster/quorum"
	"tandem/node/api"
	"tandem/node/models"
)

// changeTime bounds a change that the nodes must agree on.
const changeTime = 10 * time.Second

// clusterAdmin is what operators can change of the cluster: api.Cluster.
type clusterAdmin struct{ node *Node }

func (a clusterAdmin) peers() (*peers, error) {
	if a.node.peers == nil {
		return nil, api.Busy(http.StatusServiceUnavailable, time.Minute, "this node is in no cluster: its ports for other nodes are taken; --gossip and --peer choose others")
	}
	return a.node.peers, nil
}

// Draining says whether a node gets new work, and how many requests it still has.
type Draining struct {
	Draining bool  `json:"draining"`
	Running  int64 `json:"running"`
}

// Drain implements api.Cluster. What runs goes on to its end; other nodes give this
// one nothing new, and it gives away what comes to it.
func (a clusterAdmin) Drain(_ context.Context, on bool) (any, error) {
	p, err := a.peers()
	if err != nil {
		return nil, err
	}
	if on && p.others() == 0 {
		return nil, api.BadRequest("on", "on: true: there is no other node that could take the requests; allowed: false")
	}
	state := member.Alive
	if on {
		state = member.Draining
	}
	if err := p.cluster.Update(func(m *member.Member) { m.State = state }); err != nil {
		return nil, err
	}
	return Draining{Draining: on, Running: a.node.running.Load()}, nil
}

// Recover implements api.Cluster.
func (a clusterAdmin) Recover(ctx context.Context) (any, error) {
	p, err := a.peers()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	if err := p.quorum.Recover(ctx); err != nil {
		return nil, agreement(err)
	}
	return a.Settings(ctx)
}

// Spread implements api.Cluster. Nodes copy from this one and from each other.
func (a clusterAdmin) Spread(ctx context.Context, model string) (any, error) {
	p, err := a.peers()
	if err != nil {
		return nil, err
	}
	m, err := a.node.store.Resolve(model)
	if err != nil {
		return nil, refusal(model, err)
	}
	if m.Digest == "" {
		return nil, api.Busy(http.StatusServiceUnavailable, digestTime, "model %s: %s; try again later", m.Name, noDigestYet)
	}
	others := p.serving()
	out := make([]SpreadTo, len(others))
	var group sync.WaitGroup
	for i, id := range others {
		group.Go(func() {
			begin := time.Now()
			out[i].Node = p.name(id)
			if err := p.give(ctx, id, m); err != nil {
				out[i].Error = err.Error()
			}
			out[i].Seconds = time.Since(begin).Seconds()
		})
	}
	group.Wait()
	return out, nil
}

// SpreadTo tells how a node got a model.
type SpreadTo struct {
	Node    string  `json:"node"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// give lets another node get a model of this one.
func (p *peers) give(ctx context.Context, to member.ID, m models.Model) error {
	s, err := p.link.OpenBound(ctx, to, serviceFetch)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := writeJSON(s, fetchCall{Name: m.Name, Digest: m.Digest, Size: m.Size}); err != nil {
		return err
	}
	var a answerPart
	if err := readJSON(s, answerMax, &a); err != nil {
		return err
	}
	if a.Refused != nil {
		return a.Refused
	}
	return nil
}

// Agreed is what the nodes have agreed on.
type Agreed struct {
	Cluster  string          `json:"cluster"`
	Leader   member.ID       `json:"leader"`
	Quorum   bool            `json:"quorum"`
	Reason   string          `json:"reason,omitempty"`
	Settings []AgreedSetting `json:"settings"`
}

// AgreedSetting is one value that all nodes share.
type AgreedSetting struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Allowed string `json:"allowed"`
}

// Settings implements api.Cluster.
func (a clusterAdmin) Settings(context.Context) (any, error) {
	p, err := a.peers()
	if err != nil {
		return nil, err
	}
	st, s := p.quorum.Status(), p.quorum.State()
	out := Agreed{Cluster: st.ClusterID, Leader: st.Leader, Quorum: st.HasQuorum, Reason: st.Why}
	for _, known := range quorum.KnownSettings() {
		out.Settings = append(out.Settings, AgreedSetting{known.Name, s.Value(known.Name), known.Default, known.Allowed})
	}
	return out, nil
}

// Set implements api.Cluster.
func (a clusterAdmin) Set(ctx context.Context, name, value string) (any, error) {
	p, err := a.peers()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	if err := p.quorum.Change(ctx, quorum.Change{Set: map[string]string{name: value}}); err != nil {
		return nil, agreement(err)
	}
	return a.Settings(ctx)
}

// agreement is what a client sees of a change that did not come about.
func agreement(err error) error {
	var none *quorum.NoQuorumError
	var invalid *quorum.InvalidError
	switch {
	case errors.As(err, &invalid):
		return api.BadRequest(invalid.Field, "%s", invalid.Error())
	case errors.As(err, &none), errors.Is(err, context.DeadlineExceeded):
		return api.Busy(http.StatusServiceUnavailable, 5*time.Second, "%s", err.Error())
	}
	return err
}
