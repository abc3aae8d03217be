package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/cluster"
	"tandem/cluster/identity"
	"tandem/cluster/member"
	"tandem/cluster/quorum"
	"tandem/node/api"
	"tandem/scheduler"
	"tandem/xfer"
)

// peers is this node's part of the cluster: who the others are, what is known of them,
// and the ways to them. A node whose ports are taken has none and serves alone.
//
// Goroutines: those of the parts, and one for each other node that follows what it
// tells. All end with close.
type peers struct {
	node *Node

	link     *xfer.Link
	cluster  *cluster.Cluster
	quorum   *quorum.Quorum
	rafts    chan net.Conn // streams for raft that others opened
	ready    chan struct{} // closed once the fields above, and Node.peers, are set
	bulk     *bulkWays
	memory   *kvMemory
	over     chan struct{} // closed when no more streams for raft are taken
	overOnce sync.Once

	mu struct {
		sync.Mutex
		policy scheduler.Policy
		index  *scheduler.Index
		ledger *scheduler.Ledger
		placed uint64
		views  map[member.ID]*view
	}
}

// view is what is known of one node. This node has a view of itself.
type view struct {
	member member.Member
	follow context.CancelFunc // ends its follower
	cards  []api.Model
	load   loadReport
	loaded time.Time // when load came
	good   time.Time // its last good sign
	mark   scheduler.Mark
	marked time.Time
	rtt    time.Duration
	probed time.Time
}

// linkIdentity is an identity as the link wants it.
type linkIdentity struct{ *identity.Identity }

func (linkIdentity) PeerID(s tls.ConnectionState) (member.ID, error) { return identity.PeerID(s) }

// portsTaken says that another program has the ports for other nodes, and that nobody
// asked for those.
type portsTaken struct{ err error }

func (e *portsTaken) Error() string {
	return fmt.Sprintf("no other node can join this one: %v; --gossip and --peer choose other ports", e.err)
}

// openPeers opens the ports for other nodes and begins to look for them. A *portsTaken
// leaves the node alone.
//
// n.peers is set before p.ready is closed, and what others ask for waits for that.
func (n *Node) openPeers() error {
	p := &peers{node: n, rafts: make(chan net.Conn), ready: make(chan struct{}), over: make(chan struct{})}
	ready := sync.OnceFunc(func() { close(p.ready) })
	defer ready()
	p.bulk = newBulkWays(func(from member.ID, goodput, best float64) {
		n.log.Warn("KV comes slower than before: check cable, port and switch", "from", p.name(from), "megabytes_per_second", goodput/1e6, "best", best/1e6)
	})
	p.memory = newKVMemory(p)
	p.mu.policy = scheduler.Place
	p.mu.index, p.mu.ledger, p.mu.views = scheduler.NewIndex(scheduler.Limits{}), scheduler.NewLedger(), map[member.ID]*view{}
	self := member.ID(n.id)
	var err error
	reset := n.identity.MAC(0, []byte("tandem reset key 1 "+n.id))
	link := xfer.Config{Self: self, Identity: linkIdentity{n.identity}, Listen: n.cfg.Peer, Address: p.addresses, Logger: n.log, Cluster: n.identity.ClusterKeyID(), Program: Version,
		ResetKey: &reset, Handlers: p.services(), Buffers: p.smallBuffers}
	if p.link, err = xfer.Listen(link); err != nil {
		return n.orPortsTaken("--peer", n.cfg.Peer, defaultPeer, err)
	}
	_, port, _ := net.SplitHostPort(p.link.Addr())
	gossip := cluster.Config{Self: member.Member{ID: self, Name: n.cfg.Name, Version: Version, Role: n.wantedRole(), State: member.Alive, Peer: []string{":" + port}, API: n.shownURL(), Started: n.started},
		Identity: n.identity, Bind: n.cfg.Gossip, Advertise: n.cfg.Advertise, Join: n.cfg.Join, DataDir: n.cfg.DataDir, Logger: n.log, Changed: p.changed, DeadAfter: n.cfg.DeadAfter}
	if p.cluster, err = cluster.Start(gossip); err != nil {
		ready()
		return errors.Join(n.orPortsTaken("--gossip", n.cfg.Gossip, defaultGossip, err), p.close())
	}
	if p.quorum, err = quorum.Start(p.quorumConfig()); err != nil {
		ready() // changed waits for it, and close for changed
		return errors.Join(fmt.Errorf("the cluster's agreement: %w", err), p.close())
	}
	n.peers = p
	p.quorum.Watch(p.agreed) // which asks for names of peers
	return nil
}

// agreed takes over what the nodes have agreed on.
func (p *peers) agreed(s quorum.State) {
	p.node.revoked.agreed(s)
	policy, err := scheduler.PolicyByName(s.Value("preset"))
	if err != nil {
		p.node.log.Warn("the setting preset is not known to this version; it places by cost", "error", err)
		policy = scheduler.Place
	}
	p.mu.Lock()
	p.mu.policy = policy
	p.mu.Unlock()
	p.node.roles.agreed(s)
}

// smallBuffers tells how to give QUIC the buffers that fast networks need.
func (p *peers) smallBuffers(wanted, granted int) {
	p.node.log.Warn("the kernel gives UDP sockets small buffers; above 1 Gbit/s packets may be lost: sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000",
		"wanted", wanted, "granted", granted)
}

// orPortsTaken tells a taken port that nobody asked for from other failures.
func (n *Node) orPortsTaken(flag, addr, standard string, err error) error {
	err = fmt.Errorf("%s: %w", flag, err)
	if addr == standard && len(n.cfg.Join) == 0 && strings.Contains(err.Error(), "address already in use") {
		return &portsTaken{err}
	}
	return err
}

// draining tells the others to give this node nothing new.
func (p *peers) draining() {
	if p == nil {
		return
	}
	if err := p.cluster.Update(func(m *member.Member) { m.State = member.Draining }); err != nil {
		p.node.log.Info("the others could not be told that this node stops", "error", err)
	}
}

// leaveTime bounds the attempt to take this node out of the voters.
const leaveTime = 3 * time.Second

// close leaves the cluster and ends all that was begun.
func (p *peers) close() error {
	if p == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var errs []error
	if p.quorum != nil {
		leave, cancel := context.WithTimeout(ctx, leaveTime)
		if err := p.quorum.Leave(leave); err != nil {
			p.node.log.Info("the others could not be asked to go on without this node's vote", "error", err)
		}
		cancel()
	}
	if p.cluster != nil {
		errs = append(errs, p.cluster.Leave(ctx))
	}
	if p.quorum != nil {
		errs = append(errs, p.quorum.Close(ctx))
	}
	if p.cluster != nil {
		errs = append(errs, p.cluster.Close())
	}
	p.mu.Lock()
	for _, v := range p.mu.views {
		v.follow()
	}
	p.mu.Unlock()
	if p.link != nil {
		errs = append(errs, p.link.Close(ctx))
	}
	errs = append(errs, p.memory.close())
	return errors.Join(errs...)
}

// changed takes note of a node that came, went or told something new of itself.
func (p *peers) changed(m member.Member) {
	<-p.ready
	n, self := p.node, member.ID(p.node.id)
	_, remembered := p.cluster.Member(m.ID)
	p.mu.Lock()
	v, known := p.mu.views[m.ID]
	if !known {
		ctx, cancel := context.WithCancel(n.stopping)
		v = &view{follow: cancel, good: time.Now()}
		p.mu.views[m.ID] = v
		n.goFunc(func() { p.follow(ctx, m.ID) })
		n.goFunc(func() { p.measure(ctx, m.ID) })
	}
	before := v.member
	v.member = m
	if m.State == member.Left || !remembered {
		v.follow()
		delete(p.mu.views, m.ID)
		p.bulk.forget(m.ID)
		p.mu.index.Forget(m.ID)
		p.mu.ledger.Forget(m.ID)
	} else if m.State == member.Failed {
		p.mu.index.Forget(m.ID)
	}
	p.mu.Unlock()
	if m.ID != self && (m.State == member.Failed || m.State == member.Left) {
		p.link.Drop(m.ID)
		p.memory.drop(m.ID)
	}
	if p.quorum != nil {
		p.quorum.MembersChanged()
	}
	n.roles.poke()
	if !known || before.State != m.State || before.Role != m.Role || before.Name != m.Name {
		n.events.emit(MemberChanged{ID: string(m.ID), Name: m.Name, State: string(m.State), Role: string(m.Role)})
	}
}

// addresses are where the link finds a node.
func (p *peers) addresses(id member.ID) []string {
	if p.cluster == nil {
		return nil
	}
	m, _ := p.cluster.Member(id)
	return m.Peer
}

// mark keeps requests from a node for a term.
func (p *peers) mark(id member.ID, m scheduler.Mark) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.mu.views[id]; v != nil {
		v.mark, v.marked = m, time.Now()
	}
}

// name is how people call a node.
func (p *peers) name(id member.ID) string {
	if id == member.ID(p.node.id) {
		return p.node.cfg.Name
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.mu.views[id]; v != nil && v.member.Name != "" {
		return v.member.Name
	}
	return id.Short()
}

// others counts the other nodes that serve.
func (p *peers) others() int { return len(p.serving()) }

// known counts the nodes of which something is known, with this one.
func (p *peers) known() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.views)
}

// serving are the other nodes that serve.
func (p *peers) serving() []member.ID {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []member.ID
	for id, v := range p.mu.views {
		if id != member.ID(p.node.id) && v.member.Serves() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// find finds a model that only other nodes have, by name; rather one whose digest is
// known, so that it can be copied.
func (p *peers) find(name string) (t target, ok bool) {
	if p == nil {
		return target{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.mu.views {
		for _, c := range v.cards {
			if (c.Name == name || c.Name == name+":latest") && (!ok || t.Digest == "") {
				t.Name, t.Digest, t.Size, ok = c.Name, c.Digest, c.Size, true
			}
		}
	}
	return t, ok
}

// holders are the other nodes that serve and have a model.
func (p *peers) holders(m target) []member.ID {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ids []member.ID
	for id, v := range p.mu.views {
		has := slices.ContainsFunc(v.load.Models, func(l modelLoad) bool { return l.same(m, false) })
		if has && id != member.ID(p.node.id) && v.member.Serves() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// cards are the models that only other nodes have, by name.
func (p *peers) cards(have func(name string) bool) []api.Model {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	byName := map[string]api.Model{}
	for id, v := range p.mu.views {
		if id == member.ID(p.node.id) || v.member.State == member.Failed {
			continue
		}
		for _, c := range v.cards {
			if have(c.Name) {
				continue
			}
			c.Default, c.Source = false, "node "+v.member.Name
			if old, ok := byName[c.Name]; !ok || old.Source > c.Source {
				byName[c.Name] = c
			}
		}
	}
	out := make([]api.Model, 0, len(byName))
	for _, c := range byName {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b api.Model) int { return strings.Compare(a.Name, b.Name) })
	return out
}
