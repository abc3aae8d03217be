package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// Nodes is the cluster as a page sees it that any node serves: what happens everywhere,
// and the administration of each node. Values are encoded as JSON.
type Nodes interface {
	// Events calls each with what happens on all nodes, and with the state of each node
	// every few seconds, until ctx ends. It begins with what happened lately.
	Events(ctx context.Context, each func(name string, data []byte) error) error
	// At finds a node by its id; "self" is this one. The transport carries requests to its
	// Inner server, with the id as host; nil: it is this node.
	At(node string) (transport http.RoundTripper, id string, err error)
	// Join tells what another machine needs to become a node.
	Join(withSecret bool) any
	// Role lets this node take a role until it is started again; "auto" ends that.
	Role(role string) (any, error)
	// Remove makes a node that has failed one that left.
	Remove(node string) (any, error)
	// Fetch lets this node take over the KV blocks of a prefix that another one holds.
	Fetch(ctx context.Context, from, id string) (any, error)
}

// forwarded are the routes that one node serves for another, below /admin/nodes/: what
// a page needs of each node, and nothing that computes with a tenant's cache.
var forwarded = map[string]string{
	"/admin/status": http.MethodGet, "/admin/kv": http.MethodGet, "/admin/kv/prefixes": http.MethodGet, "/admin/kv/export": http.MethodGet,
	"/v1/models": http.MethodGet, "/api/tags": http.MethodGet, "/api/ps": http.MethodGet,
	"/admin/kv/pin": http.MethodPost, "/admin/kv/unpin": http.MethodPost, "/admin/kv/evict": http.MethodPost, "/admin/kv/verify": http.MethodPost,
	"/admin/kv/fetch": http.MethodPost, "/admin/cluster/drain": http.MethodPost, "/admin/cluster/role": http.MethodPost,
	"/admin/cluster/remove": http.MethodPost, "/admin/cluster/spread": http.MethodPost, "/admin/models/load": http.MethodPost, "/api/pull": http.MethodPost,
	"/api/delete": http.MethodDelete,
}

// Inner is a server for other nodes of the cluster, which have proven who they are: it
// asks for no key, and serves the forwarded routes only.
func (s *Server) Inner() *http.Server {
	server := s.HTTPServer()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tracked := &trackedWriter{ResponseWriter: w}
		defer s.recovered(tracked, r)
		armWrite(w, s.cfg.WriteTimeout)
		s.boundBody(w, r)
		dropInner(r.Header)
		if forwarded[r.URL.Path] != r.Method {
			notFound(tracked, r)
			return
		}
		s.mux.ServeHTTP(tracked, r)
	})
	return server
}

// elsewhere serves /admin/nodes/{node}/...: a route of another node, or of this one.
func (s *Server) elsewhere(w http.ResponseWriter, r *http.Request) {
	route := "/" + r.PathValue("route")
	if forwarded[route] != r.Method {
		notFound(w, r)
		return
	}
	transport, id, err := s.cfg.Nodes.At(r.PathValue("node"))
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	if transport == nil {
		here := r.Clone(r.Context())
		here.URL.Path, here.URL.RawPath = route, ""
		s.mux.ServeHTTP(w, here)
		return
	}
	body, err := s.readBody(w, r)
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	proxy := httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "http", Host: id, Path: route, RawQuery: p.In.URL.RawQuery}
			p.Out.Host = id
			// The key was for this node's door.
			for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "Origin", "Referer"} {
				p.Out.Header.Del(name)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			for name := range resp.Header { // those of this answer are set already
				if w.Header().Get(name) != "" {
					resp.Header.Del(name)
				}
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			s.cfg.Logger.Debug("a request for another node failed", "node", id, "error", err)
			refusalFor(route)(w, Busy(http.StatusServiceUnavailable, 5*time.Second, "node %s does not answer now", clip(id, 8)))
		},
	}
	proxy.ServeHTTP(&armedWriter{w, s.cfg.WriteTimeout}, r)
}

// armedWriter gives each write the write timeout.
type armedWriter struct {
	http.ResponseWriter
	timeout time.Duration
}

func (w *armedWriter) Write(p []byte) (int, error) {
	armWrite(w.ResponseWriter, w.timeout)
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *armedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// clusterEvents serves /admin/cluster/events until the client leaves or the node stops.
func (s *Server) clusterEvents(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	var out *stream
	err := s.cfg.Nodes.Events(ctx, func(name string, data []byte) error {
		if out == nil { // until then it can be refused
			out = newStream(w, "text/event-stream", s.cfg.WriteTimeout, s.cfg.KeepAlive, cancel)
		}
		return out.append(func(b []byte) []byte { return appendEvent(b, name, data) })
	})
	if out == nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	out.close()
}

// clusterJoin serves /admin/cluster/join. The secret of the cluster is told only to those
// who ask for it and have shown a key: without keys, whoever reaches the port could
// otherwise make a node of his own.
func (s *Server) clusterJoin(w http.ResponseWriter, r *http.Request) {
	secret := false
	var fault error
	if r.Method == http.MethodPost {
		o, err := s.adminBody(w, r)
		o.flag("secret", &secret)
		fault = o.end(w, err)
	}
	if fault == nil && secret && s.guard.keyless {
		fault = &Error{Status: http.StatusForbidden, Type: "invalid_request_error", Code: "needs_api_key", Param: "secret",
			Message: "secret: true: this node asks for no API key, so it does not tell the secret of the cluster; start it with --api-key, or read the file that secret_file names on its machine"}
	}
	w.Header().Set("Cache-Control", "no-store")
	s.adminAnswer(w, r, fault, func(context.Context) (any, error) { return s.cfg.Nodes.Join(secret), nil })
}

// clusterRole serves POST /admin/cluster/role {"role": ...}.
func (s *Server) clusterRole(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	var role string
	if !o.text("role", &role, MaxIdentifier) {
		o.bad("role", "is needed: auto, hybrid, prefill or decode")
	}
	s.adminAnswer(w, r, o.end(w, err), func(context.Context) (any, error) { return s.cfg.Nodes.Role(role) })
}

// clusterRemove serves POST /admin/cluster/remove {"node": id}.
func (s *Server) clusterRemove(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	var node string
	if !o.text("node", &node, MaxIdentifier) {
		o.bad("node", "is needed: the id of a node that has failed")
	}
	s.adminAnswer(w, r, o.end(w, err), func(context.Context) (any, error) { return s.cfg.Nodes.Remove(node) })
}

// kvFetch serves POST /admin/kv/fetch {"from": node id, "id": block id}.
func (s *Server) kvFetch(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	var from string
	if !o.text("from", &from, MaxIdentifier) {
		o.bad("from", "is needed: the id of the node that holds the prefix")
	}
	id := o.blockID("id")
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) { return s.cfg.Nodes.Fetch(ctx, from, id) })
}

// loadModel serves POST /admin/models/load {"model": ..., "loaded": true}.
func (s *Server) loadModel(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	model, loaded := o.model("model"), true
	o.flag("loaded", &loaded)
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) {
		load := &Request{Model: model, LoadOnly: true}
		if !loaded {
			load.KeepAlive = new(time.Duration)
		}
		_, err := s.cfg.Generator.Generate(ctx, load, nil)
		return map[string]any{"model": model, "loaded": loaded}, err
	})
}
