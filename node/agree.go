package node

import (
	"context"
	"net"
	"path/filepath"
	"strings"

	"tandem/cluster/member"
	"tandem/cluster/quorum"
	"tandem/xfer"
)

// Services of the agreement, and the longest message of one.
const (
	serviceRaft    = "raft"
	serviceForward = "agree"
	forwardMax     = 1 << 20
)

// services are what other nodes can ask of this one.
func (p *peers) services() map[string]xfer.Handler {
	n := p.node
	services := map[string]xfer.Handler{
		serviceGenerate: n.serveGenerate, serviceEmbed: n.serveEmbed, serviceLoad: n.serveLoad, serviceModel: n.serveModel, serviceFetch: p.serveFetch,
		serviceKnowledge: n.serveKnowledge, serviceRaft: p.serveRaft, serviceForward: p.serveForward, serviceDoctor: p.serveDoctor,
		servicePrefill: n.servePrefill, serviceProbe: p.serveProbe, serviceEvents: n.pages.serveEvents, serviceAdmin: n.pages.serveAdmin,
	}
	if n.keeper != nil {
		services[xfer.ServicePull] = xfer.ServePull(kvHolder{n.keeper}, p.memory, n.metrics.gaveBlock)
		services[serviceWindow] = p.memory.serveWindow
		services[serviceRegion] = p.memory.serveRegion
	}
	for name, serve := range services {
		services[name] = p.whenReady(serve)
	}
	return services
}

// whenReady serves what others ask for once this node is one of them: the port is open
// before.
func (p *peers) whenReady(serve xfer.Handler) xfer.Handler {
	return func(ctx context.Context, s *xfer.Stream) error {
		select {
		case <-p.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if p.node.peers == nil {
			return errStopping // it could not become one
		}
		return serve(ctx, s)
	}
}

func (p *peers) quorumConfig() quorum.Config {
	return quorum.Config{Self: member.ID(p.node.id), Dir: filepath.Join(p.node.cfg.DataDir, "raft"), Streams: raftStreams{p}, Members: p.cluster.Members,
		Join: len(p.node.cfg.Join) > 0, Logger: p.node.log, Heartbeat: p.node.cfg.Heartbeat}
}

// raftStreams carry the agreement over the peer links: quorum.Streams.
type raftStreams struct{ *peers }

// Close ends Accept.
func (r raftStreams) Close() error {
	r.overOnce.Do(func() { close(r.over) })
	return nil
}

func (r raftStreams) Dial(ctx context.Context, to member.ID) (net.Conn, error) {
	s, err := r.link.Open(ctx, to, serviceRaft)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (r raftStreams) Accept() (net.Conn, error) {
	select {
	case c := <-r.rafts:
		return c, nil
	case <-r.over:
		return nil, net.ErrClosed
	}
}

func (r raftStreams) Forward(ctx context.Context, to member.ID, request []byte) ([]byte, error) {
	s, err := r.link.OpenBound(ctx, to, serviceForward)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := xfer.WriteMessage(s, request); err != nil {
		return nil, err
	}
	return xfer.ReadMessage(s, forwardMax)
}

// serveRaft hands a stream over and keeps it until it ends.
func (p *peers) serveRaft(ctx context.Context, s *xfer.Stream) error {
	select {
	case p.rafts <- s:
		<-s.Done() // ctx may end before all was read
		return nil
	case <-p.over:
		return errStopping
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *peers) serveForward(ctx context.Context, s *xfer.Stream) error {
	request, err := xfer.ReadMessage(s, forwardMax)
	if err != nil {
		return err
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if p.quorum == nil { // it could not be started
		return errStopping
	}
	answer, err := p.quorum.HandleForward(ctx, s.Peer(), request)
	if err != nil {
		return err
	}
	return xfer.WriteMessage(s, answer)
}

// wantedRole is the role that --role asks for; auto begins as hybrid.
func (n *Node) wantedRole() member.Role {
	if role := n.pages.givenRole(); role != "" {
		return member.Role(role)
	}
	if n.cfg.Role == "auto" || n.cfg.Role == "" {
		return member.Hybrid
	}
	return member.Role(n.cfg.Role)
}

// shownURL is where people on other machines find this node's page; "" if they cannot.
func (n *Node) shownURL() string {
	if isLoopback(n.addr) {
		return ""
	}
	return "http://" + strings.NewReplacer("[::]", n.cfg.Name, "0.0.0.0", n.cfg.Name).Replace(n.addr)
}

// GossipAddr is where other nodes join this one, after Listening; "" if they cannot.
func (n *Node) GossipAddr() string {
	if n.peers == nil {
		return ""
	}
	addr, _ := n.peers.cluster.GossipAddr(member.ID(n.id))
	return addr.String()
}

// Holders counts the other nodes that could answer with a model of this machine.
func (n *Node) Holders(name string) int {
	m, err := n.store.Resolve(name)
	if err != nil {
		return 0
	}
	return len(n.peers.holders(target{Model: m, here: true}))
}

// joinLine is what a person pastes on the next machine; "" if no other can join.
func (n *Node) joinLine() string {
	if n.peers == nil || len(n.cfg.Join) > 0 {
		return ""
	}
	gossip := n.GossipAddr()
	if n.cfg.Secret == "" && n.cfg.SecretFile == "" {
		return "NODE_SECRET=" + n.secret + " ./bin/node --join " + gossip
	}
	return "./bin/node --join " + gossip + "  (with the same secret)"
}
