package api

import (
	"context"
	"net/http"
)

// Cluster is what operators can change of a cluster from any of its nodes. Values are
// encoded as JSON. What needs the agreement of the nodes fails at once while there is
// none, with the reason.
type Cluster interface {
	// Drain ends or resumes the giving of new work to this node.
	Drain(ctx context.Context, on bool) (any, error)
	// Recover makes this node a cluster of one, whose agreement the others lost join
	// anew when they come back.
	Recover(ctx context.Context) (any, error)
	// Spread gives a model of this node to all others that serve, and tells how that
	// went on each.
	Spread(ctx context.Context, model string) (any, error)
	// Settings lists what the nodes have agreed on.
	Settings(ctx context.Context) (any, error)
	// Set changes one setting for all nodes.
	Set(ctx context.Context, name, value string) (any, error)
}

// clusterDrain serves POST /admin/cluster/drain {"on": true}.
func (s *Server) clusterDrain(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	on := true
	o.flag("on", &on)
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) { return s.cfg.Cluster.Drain(ctx, on) })
}

// clusterRecover serves POST /admin/cluster/recover.
func (s *Server) clusterRecover(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	s.adminAnswer(w, r, o.end(w, err), s.cfg.Cluster.Recover)
}

// clusterSpread serves POST /admin/cluster/spread {"model": ...}.
func (s *Server) clusterSpread(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	model := o.model("model")
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) { return s.cfg.Cluster.Spread(ctx, model) })
}

// clusterSettings serves GET /admin/cluster/settings.
func (s *Server) clusterSettings(w http.ResponseWriter, r *http.Request) {
	s.adminAnswer(w, r, nil, s.cfg.Cluster.Settings)
}

// clusterSet serves POST /admin/cluster/settings {"name": ..., "value": ...}.
func (s *Server) clusterSet(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	var name, value string
	if !o.text("name", &name, MaxIdentifier) {
		o.bad("name", "is needed")
	}
	if !o.text("value", &value, MaxIdentifier) {
		o.bad("value", "is needed")
	}
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) { return s.cfg.Cluster.Set(ctx, name, value) })
}
