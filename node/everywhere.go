package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tandem/cluster/member"
	"tandem/node/api"
	"tandem/scheduler"
	"tandem/xfer"
)

// Services that show a node on the page of another one: what happens there, and its
// administration over HTTP.
const (
	serviceEvents = "events"
	serviceAdmin  = "admin"
)

// Pace and limits of what pages are told.
const (
	statusEvery = 2 * time.Second
	// eventMax is the longest event of another node, in bytes: the status of one that
	// knows many nodes and models.
	eventMax = 1 << 20
	// watchersMax is how many pages may follow the cluster at one node. Each costs a
	// stream to every other node.
	watchersMax = 16
	rewatchMin  = time.Second // before a lost stream is opened anew; doubles
	rewatchMax  = 10 * time.Second
)

// Kinds of what pages are told beside events.
const (
	kindOfHello  = "hello"  // first: which node tells
	kindOfStatus = "status" // a Status
)

// everywhere is the cluster as a page sees it from one node: api.Nodes.
type everywhere struct {
	node      *Node
	watchers  atomic.Int64
	role      atomic.Pointer[string] // that this node was given; nil: none
	transport *http.Transport
	inner     *http.Server
	streams   chan net.Conn // that others opened to the administration of this node
	over      chan struct{} // closed when no more are taken
	overOnce  sync.Once
}

func newEverywhere(n *Node) *everywhere {
	e := &everywhere{node: n, streams: make(chan net.Conn), over: make(chan struct{})}
	// One stream, one request: streams are cheap, and an idle one would outlive the page.
	e.transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: e.dial}
	return e
}

// serve serves the administration to other nodes until close.
func (e *everywhere) serve() {
	e.inner = e.node.api.Inner()
	e.inner.BaseContext = func(net.Listener) context.Context { return e.node.requests }
	e.node.goFunc(func() { _ = e.inner.Serve(e) }) // it ends with the listener
}

// close ends what others asked of the administration. serve must have been called.
func (e *everywhere) close(ctx context.Context) error {
	err := e.inner.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = e.inner.Close()
	}
	return err
}

// Accept implements net.Listener.
func (e *everywhere) Accept() (net.Conn, error) {
	select {
	case c := <-e.streams:
		return c, nil
	case <-e.over:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (e *everywhere) Close() error {
	e.overOnce.Do(func() { close(e.over) })
	return nil
}

// Addr implements net.Listener.
func (e *everywhere) Addr() net.Addr { return streamsAddr{} }

// streamsAddr is the address of what has none.
type streamsAddr struct{}

func (streamsAddr) Network() string { return "peer" }
func (streamsAddr) String() string  { return serviceAdmin }

// serveAdmin hands a stream to the server and keeps it until it ends.
func (e *everywhere) serveAdmin(ctx context.Context, s *xfer.Stream) error {
	select {
	case e.streams <- s:
		<-s.Done()
		return nil
	case <-e.over:
		return errStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dial opens a stream to the administration of the node whose id is the host.
func (e *everywhere) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	s, err := e.node.peers.link.Open(ctx, member.ID(host), serviceAdmin)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// At implements api.Nodes.
func (e *everywhere) At(node string) (http.RoundTripper, string, error) {
	n := e.node
	if node == "self" || node == n.id {
		return nil, n.id, nil
	}
	id, err := e.known(node)
	if err != nil {
		return nil, "", err
	}
	return e.transport, string(id), nil
}

// known is the id of another node that is given by its id.
func (e *everywhere) known(node string) (member.ID, error) {
	id, err := member.ParseID(node)
	if err == nil && e.node.peers != nil {
		if _, ok := e.node.peers.cluster.Member(id); ok {
			return id, nil
		}
	}
	return "", &api.Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "node_not_found", Param: "node",
		Message: fmt.Sprintf("node: %.64q is not the id of a node of this cluster; allowed: those that /admin/status lists, and self", node)}
}

// Events implements api.Nodes: what happens on all nodes, and every few seconds the
// state of each. The first says which node this is.
func (e *everywhere) Events(ctx context.Context, each func(name string, data []byte) error) error {
	if e.watchers.Add(1) > watchersMax {
		e.watchers.Add(-1)
		return api.Busy(http.StatusTooManyRequests, 10*time.Second, "%d pages follow this cluster here already, as many as a node allows", watchersMax)
	}
	defer e.watchers.Add(-1)
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.node.stopping, func() { cancel(errStopping) })()
	out := make(chan streamEvent)
	take := func(name string, data []byte) error {
		select {
		case out <- streamEvent{name, data}:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	hello, err := json.Marshal(map[string]any{"time": time.Now(), "node": e.node.id, "kind": kindOfHello, "data": map[string]string{"node": e.node.id}})
	if err != nil {
		return err
	}
	if err := each(kindOfHello, hello); err != nil {
		return err
	}
	all.Go(func() { cancel(e.node.watch(ctx, take)) })
	if e.node.peers != nil {
		all.Go(func() { e.watchOthers(ctx, take) })
	}
	for {
		select {
		case event := <-out:
			if err := each(event.kind, event.data); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watch tells what happened here lately, what happens from now on, and the state of
// this node every few seconds, until ctx ends or each fails.
func (n *Node) watch(ctx context.Context, each func(name string, data []byte) error) error {
	recent, ch, end := n.events.open()
	defer end()
	if err := n.tellStatus(each); err != nil {
		return err
	}
	for _, e := range recent {
		if out, err := n.events.encode(e); err == nil {
			if err := each(out.kind, out.data); err != nil {
				return err
			}
		}
	}
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	for {
		var err error
		select {
		case e := <-ch:
			err = each(e.kind, e.data)
		case <-ticker.C:
			err = n.tellStatus(each)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (n *Node) tellStatus(each func(name string, data []byte) error) error {
	data, err := json.Marshal(struct {
		Time time.Time `json:"time"`
		Node string    `json:"node"`
		Kind string    `json:"kind"`
		Data Status    `json:"data"`
	}{time.Now(), n.id, kindOfStatus, n.status()})
	if err != nil {
		return err
	}
	return each(kindOfStatus, data)
}

// serveEvents tells another node what happens here, for the pages that people have
// open there.
func (e *everywhere) serveEvents(ctx context.Context, s *xfer.Stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.node.stopping, func() { cancel(errStopping) })()
	return e.node.watch(ctx, func(_ string, data []byte) error { return xfer.WriteMessage(s, data) })
}

// watchOthers follows the other nodes until ctx ends.
func (e *everywhere) watchOthers(ctx context.Context, take func(string, []byte) error) {
	var all sync.WaitGroup
	defer all.Wait()
	followed := map[member.ID]context.CancelFunc{}
	defer func() {
		for _, end := range followed {
			end()
		}
	}()
	ticker := time.NewTicker(rewatchMin)
	defer ticker.Stop()
	for {
		present := map[member.ID]bool{}
		for _, m := range e.node.peers.cluster.Members() {
			if m.ID == member.ID(e.node.id) || m.State == member.Failed || m.State == member.Left {
				continue
			}
			present[m.ID] = true
			if followed[m.ID] == nil {
				one, end := context.WithCancel(ctx)
				followed[m.ID] = end
				all.Go(func() { e.watchOne(one, m.ID, take) })
			}
		}
		for id, end := range followed {
			if !present[id] {
				end()
				delete(followed, id)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// watchOne follows one node until ctx ends, whenever it can be reached. A node of an
// older version has no such service; it is asked again, for it may be replaced.
func (e *everywhere) watchOne(ctx context.Context, id member.ID, take func(string, []byte) error) {
	pause := rewatchMin
	for {
		begin := time.Now()
		err := e.listen(ctx, id, take)
		if ctx.Err() != nil {
			return
		}
		e.node.log.Debug("following the events of a node ended", "node", e.node.peers.name(id), "error", err)
		if time.Since(begin) > rewatchMax {
			pause = rewatchMin
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, rewatchMax)
		case <-ctx.Done():
			return
		}
	}
}

func (e *everywhere) listen(ctx context.Context, id member.ID, take func(string, []byte) error) error {
	s, err := e.node.peers.link.OpenBound(ctx, id, serviceEvents)
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		data, err := xfer.ReadMessage(s, eventMax)
		if err != nil {
			return err
		}
		kind, err := checkEvent(data, id)
		if err != nil {
			return err
		}
		if err := take(kind, data); err != nil {
			return err
		}
	}
}

// checkEvent reads the kind of an event that came from a node. A node speaks for
// itself only.
func checkEvent(data []byte, from member.ID) (kind string, err error) {
	var e struct {
		Node member.ID       `json:"node"`
		Kind string          `json:"kind"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return "", fmt.Errorf("an event that is no JSON: %w", err)
	}
	switch {
	case e.Node != from:
		return "", fmt.Errorf("an event of node %.40q that came from %s", string(e.Node), from.Short())
	case e.Kind == "" || len(e.Kind) > api.MaxIdentifier:
		return "", fmt.Errorf("an event whose kind has %d bytes; allowed are 1 to %d", len(e.Kind), api.MaxIdentifier)
	case len(e.Data) == 0 || e.Data[0] != '{':
		return "", errors.New("an event without data")
	}
	return e.Kind, nil
}

// Joining is what another machine needs to become a node of the cluster.
type Joining struct {
	Address string `json:"address"` // for --join
	Command string `json:"command"` // what a person pastes there
	// Secret is in Command; without it NODE_SECRET there stands for what SecretFile holds.
	Secret     bool   `json:"secret"`
	SecretFile string `json:"secret_file,omitempty"` // on this machine
	Reason     string `json:"reason,omitempty"`      // why no other node can join
}

// Join implements api.Nodes.
func (e *everywhere) Join(withSecret bool) any {
	n := e.node
	if n.peers == nil {
		return Joining{Reason: "this node is in no cluster: its ports for other nodes are taken; --gossip and --peer choose others"}
	}
	j := Joining{Address: n.GossipAddr(), Secret: withSecret}
	secret := "…"
	if withSecret {
		secret = n.secret
	} else if file := filepath.Join(n.cfg.DataDir, "secret"); n.cfg.SecretFile != "" {
		j.SecretFile = n.cfg.SecretFile
	} else if _, err := os.Stat(file); err == nil {
		j.SecretFile = file
	}
	j.Command = "NODE_SECRET=" + secret + " ./bin/node --join " + j.Address
	return j
}

// Taken is the role that a node takes.
type Taken struct {
	Role string `json:"role"`
}

// Role implements api.Nodes: this node takes a role until it is started again, or until
// it is given "auto": then what it was started with, or the plan, counts again. It takes
// the role when it has finished what it does.
func (e *everywhere) Role(role string) (any, error) {
	roles := []string{"auto", string(member.Hybrid), string(member.Prefill), string(member.Decode)}
	if !slices.Contains(roles, role) {
		return nil, api.BadRequest("role", "role: %.40q; allowed: auto, hybrid, prefill, decode", role)
	}
	if _, err := (clusterAdmin{e.node}).peers(); err != nil {
		return nil, err
	}
	e.role.Store(&role)
	e.node.roles.poke()
	return Taken{role}, nil
}

// givenRole is the role that this node was given since it was started; "" is none.
func (e *everywhere) givenRole() string {
	if role := e.role.Load(); role != nil && *role != "auto" {
		return *role
	}
	return ""
}

// Removed names a node that was removed.
type Removed struct {
	ID   member.ID `json:"id"`
	Name string    `json:"name"`
}

// Remove implements api.Nodes: a node that has failed counts as one that left. It is a
// member again when it is started again.
func (e *everywhere) Remove(node string) (any, error) {
	id, err := e.known(node)
	if err != nil {
		return nil, err
	}
	m, _ := e.node.peers.cluster.Member(id)
	if err := e.node.peers.cluster.Remove(id); err != nil {
		return nil, &api.Error{Status: http.StatusConflict, Type: "invalid_request_error", Code: "node_present", Param: "node", Message: "node: " + err.Error()}
	}
	return Removed{id, m.Name}, nil
}

// Fetch implements api.Nodes: this node takes over a prefix that another one holds,
// what leads to it and what follows.
func (e *everywhere) Fetch(ctx context.Context, from, id string) (any, error) {
	node, err := e.known(from)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(node)+"/admin/kv/export?id="+id, nil)
	if err != nil {
		return nil, err
	}
	resp, err := e.transport.RoundTrip(r)
	if err != nil {
		return nil, api.Busy(http.StatusServiceUnavailable, 5*time.Second, "node %s does not answer: %v", e.node.peers.name(node), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, answerMax))
		var said struct {
			Error api.Error `json:"error"`
		}
		if json.Unmarshal(text, &said) != nil || said.Error.Message == "" {
			said.Error.Message = resp.Status
		}
		return nil, &api.Error{Status: resp.StatusCode, Type: "invalid_request_error", Code: "not_given", Param: "from",
			Message: e.node.peers.name(node) + ": " + said.Error.Message}
	}
	return e.node.kvAdmin.Import(ctx, io.LimitReader(resp.Body, api.MaxKVImport))
}

// scored are scores with the names of nodes.
func (p *peers) scored(scores []scheduler.Score) []PlaceScore {
	if p == nil || len(scores) == 0 {
		return nil
	}
	out := make([]PlaceScore, len(scores))
	for i, s := range scores {
		out[i] = PlaceScore{Node: p.name(s.Node), Seconds: (s.QueueMs + s.ForwardMs + s.FetchMs + s.PrefillMs) / 1000, Queue: s.QueueMs / 1000, Fetch: s.FetchMs / 1000, Prefill: s.PrefillMs / 1000, Cached: s.Cached, Why: s.Why}
	}
	return out
}
