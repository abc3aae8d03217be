package node

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tandem/cluster/member"
	"tandem/cluster/quorum"
	"tandem/node/api"
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
