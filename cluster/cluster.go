package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// Auto in Config.Join stands for whoever mDNS finds.
const Auto = "auto"

// Defaults of Config.
const (
	DefaultDeadAfter = 10 * time.Minute
	DefaultPace      = 500 * time.Millisecond
)

// WireVersion is the protocol version between nodes that this program speaks.
const WireVersion = 1

// Config is what a Cluster is made of. Zero fields mean their defaults.
type Config struct {
	// Self is this node. ID, Name and Role must be set; State may be Alive or Draining.
	// A Peer entry that is only ":port" gets the advertised host put before it.
	Self     member.Member
	Identity *identity.Identity
	// Bind is host:port for TCP and UDP. An empty host is every interface, port 0 any
	// free one; an address without a port gets DefaultPort.
	Bind string
	// Advertise is host[:port] that others are told. By default it is where the node is
	// bound, or the address of its best interface.
	Advertise string
	// Join is where others may be: host[:port], or Auto.
	Join []string
	// Announce lets others find this node by mDNS; Auto in Join implies it.
	Announce bool
	// DataDir keeps the file with the addresses of others; "" keeps none.
	DataDir string
	Logger  *slog.Logger // nil: none
	// Changed is called with a member that is new or differs from before, this node
	// included, and once more when it is forgotten: then Member no longer finds it.
	// It is called from one goroutine; quick changes of one member are merged into the
	// last.
	Changed func(member.Member)
	// DeadAfter is when nodes that failed or left are forgotten.
	DeadAfter time.Duration
	// Pace is the interval of probes, with which all others scale. A crash is seen within
	// about seven of them, ten at most.
	Pace time.Duration
	// WireMin and WireMax are the protocol versions that this node can speak.
	WireMin, WireMax uint16
	// ClusterID names what has been agreed upon, or is "" as long as nothing has. Two
	// nodes with unlike ids refuse each other. It must not wait.
	ClusterID func() string

	now      func() time.Time // of the clock that others are told
	network  network
	discover func(ctx context.Context) []string // by mDNS
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Changed == nil {
		c.Changed = func(member.Member) {}
	}
	if c.DeadAfter <= 0 {
		c.DeadAfter = DefaultDeadAfter
	}
	if c.Pace <= 0 {
		c.Pace = DefaultPace
	}
	if c.WireMax == 0 {
		c.WireMin, c.WireMax = WireVersion, WireVersion
	}
	if c.now == nil {
		c.now = time.Now
	}
}

// Cluster is this node's view of the nodes.
type Cluster struct {
	cfg       Config
	log       *slog.Logger
	process   process
	transport *transport
	list      *memberlist.Memberlist
	table     *table
	problems  *problems
	keys      *keyring
	udp       *udpWatch
	memory    *memory
	changes   *changes
	mdns      *announcer // nil: not announced

	targets   []target // of Config.Join, without Auto
	auto      bool
	conflicts chan conflict
	doubts    chan entry    // memberlist has given them up
	joins     chan struct{} // one for each node that is dialled back
	spread    chan struct{} // this node says something new of itself
	wake      chan struct{} // the joiner has a reason to look again
	updating  sync.Mutex    // held by update

	mu      sync.Mutex
	self    member.Member
	leaving bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// startWithin bounds the look-ups of names at the start.
const startWithin = 2 * time.Second

// Start binds the gossip port and begins to look for others. It fails if the node cannot
// be part of any cluster: an address that is none, a port in use, a description that is
// too long. It never fails because of whom it should join.
func Start(cfg Config) (*Cluster, error) {
	cfg.setDefaults()
	c := &Cluster{
		cfg: cfg, log: cfg.Logger, self: cfg.Self,
		problems:  newProblems(cfg.Logger),
		conflicts: make(chan conflict, 8),
		doubts:    make(chan entry, doubtsMax),
		joins:     make(chan struct{}, joinsMax),
		spread:    make(chan struct{}, 1),
		wake:      make(chan struct{}, 1),
		changes:   newChanges(),
	}
	_, _ = rand.Read(c.process[:])
	c.table = newTable(time.Now, c.tableChanged)
	c.udp = newUDPWatch(c)
	if cfg.Self.State != member.Draining {
		c.self.State = member.Alive
	}
	c.self.Since = time.Now()
	if err := c.prepare(); err != nil {
		return nil, err
	}
	if err := c.gossip(); err != nil {
		return nil, err
	}
	c.start()
	return c, nil
}

// prepare checks what was given and binds the sockets; on error nothing is left open.
func (c *Cluster) prepare() error {
	if c.cfg.Identity == nil || c.cfg.Identity.Self() != c.cfg.Self.ID {
		return errors.New("cluster: the identity is not that of this node")
	}
	var err error
	if c.keys, err = newKeyring(c.cfg.Identity); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	for _, j := range c.cfg.Join {
		if j == Auto {
			c.auto = true
			continue
		}
		t, err := parseTarget("address to join", j, DefaultPort)
		if err == nil && (t.Host == "" || t.Port == 0) {
			err = &AddressError{What: "address to join", Text: j, Why: "needs a host and a port other than 0"}
		}
		if err != nil {
			return err
		}
		c.targets = append(c.targets, t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	bind, err := bindAddr(ctx, c.cfg.Bind)
	if err != nil {
		return err
	}
	if c.transport, err = listen(bind, c.cfg.network, c.log); err != nil {
		return err
	}
	if c.transport.known, err = advertised(ctx, c.cfg.Advertise, c.transport.local, c.targets); err == nil {
		c.self.Peer = withHost(c.self.Peer, c.transport.known.Addr())
		_, err = c.meta().encode()
	}
	if err != nil {
		return errors.Join(err, c.transport.Shutdown())
	}
	if c.memory, err = remember(c.cfg.DataDir); err != nil {
		c.log.Warn("cluster: the addresses of other nodes are lost", "error", err)
	}
	return nil
}

// bindAddr reads where to listen. No host means every interface of both families.
func bindAddr(ctx context.Context, text string) (netip.AddrPort, error) {
	t, err := parseTarget("bind address", text, DefaultPort)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if t.Host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), t.Port), nil
	}
	return t.fixed(ctx, "bind address")
}

// withHost puts an address before entries that have only a port.
func withHost(peers []string, host netip.Addr) []string {
	out := slices.Clone(peers)
	for i, p := range out {
		if port, ok := strings.CutPrefix(p, ":"); ok {
			out[i] = net.JoinHostPort(host.String(), port)
		}
	}
	return out
}

// gossip starts memberlist on the transport.
func (c *Cluster) gossip() error {
	pace, d := c.cfg.Pace, delegate{c}
	m := memberlist.DefaultLANConfig()
	m.Name = string(c.cfg.Self.ID)
	m.Transport = c.transport
	m.BindPort = int(c.transport.known.Port()) // for nodes that name none
	m.Keyring = c.keys.ring
	m.Logger = log.New(listLog{c.log, c.problems}, "", 0)
	m.Delegate, m.Events, m.Alive, m.Conflict, m.Ping = d, d, d, d, d
	// A node that does not answer within one probe is suspected, and given up after two
	// more seconds (of the default pace), or four where others cannot confirm.
	m.ProbeInterval, m.ProbeTimeout = pace, pace*4/10 // the rest is for TCP
	m.SuspicionMult, m.SuspicionMaxTimeoutMult, m.AwarenessMaxMultiplier = 4, 2, 3
	m.GossipInterval, m.GossipToTheDeadTime = pace*4/10, min(60*pace, c.cfg.DeadAfter)
	// The whole state is small; exchanged often it reaches nodes whose UDP is blocked.
	m.PushPullInterval = 10 * pace
	m.EnableCompression = false // what little there is costs more to compress than to send
	m.TCPTimeout = max(10*pace, time.Second)
	m.DeadNodeReclaimTime = time.Nanosecond // a node that is dead may come back anywhere, at once
	list, err := memberlist.Create(m)
	if err != nil {
		return errors.Join(fmt.Errorf("cluster: start gossip: %w", err), c.transport.Shutdown())
	}
	c.list = list
	return nil
}

// start runs the goroutines of this package.
func (c *Cluster) start() {
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.transport.start(c.answer, c.answerPacket)
	if c.auto || c.cfg.Announce {
		c.mdns = c.announce()
	}
	c.wg.Go(c.joinLoop)
	c.wg.Go(c.watchLoop)
	c.wg.Go(c.doubtLoop)
	c.wg.Go(c.udp.loop)
	c.wg.Go(c.spreadLoop)
	c.wg.Go(func() { c.changes.run(c.ctx, c.tell) })
	c.changes.add(c.Self())
	c.log.Info("cluster: gossip is up", "bind", c.transport.local.String(), "advertised", c.transport.known.String())
}

// Addr is the gossip address that others are told: what they can give to --join.
func (c *Cluster) Addr() netip.AddrPort { return c.transport.known }

// Self is this node.
func (c *Cluster) Self() member.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.self
	m.Peer = slices.Clone(m.Peer)
	return m
}

// Members is every node that is known, this one included, by name and then id. Nodes
// that failed or left are in it until they are forgotten.
func (c *Cluster) Members() []member.Member {
	out := []member.Member{c.Self()}
	for _, e := range c.table.all() {
		out = append(out, e.m)
	}
	slices.SortFunc(out, byName)
	return out
}

// Member finds a node by its id.
func (c *Cluster) Member(id member.ID) (member.Member, bool) {
	if id == c.cfg.Self.ID {
		return c.Self(), true
	}
	e, ok := c.table.get(id)
	return e.m, ok
}

// GossipAddr is where the gossip of a node is.
func (c *Cluster) GossipAddr(id member.ID) (netip.AddrPort, bool) {
	if id == c.cfg.Self.ID {
		return c.transport.known, true
	}
	e, ok := c.table.get(id)
	return e.gossip, ok
}

// Problems are sentences about what does not work, the longest standing first: who was
// refused and why, whose UDP is blocked, which address does not answer.
func (c *Cluster) Problems() []string { return c.problems.list() }

// Update changes what this node says of itself: name, role, peer addresses, API, and
// State between Alive and Draining. What others cannot be told is refused, and nothing
// changes.
func (c *Cluster) Update(change func(*member.Member)) error {
	c.mu.Lock()
	old := c.self
	next := old
	next.Peer = slices.Clone(old.Peer)
	change(&next)
	next.ID, next.Started, next.Since = old.ID, old.Started, old.Since
	if next.State != member.Draining {
		next.State = member.Alive
	}
	next.Peer = withHost(next.Peer, c.transport.known.Addr())
	if next.State != old.State {
		next.Since = time.Now()
	}
	if _, err := c.metaOf(next, c.leaving).encode(); err != nil {
		c.mu.Unlock()
		return fmt.Errorf("cluster: %w", err)
	}
	c.self = next
	c.mu.Unlock()
	if same(old, next) {
		return nil
	}
	c.changes.add(c.Self())
	poke(c.spread)
	return nil
}

// Remove makes a node that has failed one that left, for this node: nothing waits for it
// or looks for it any more. A new run of it joins as ever. A node that is there cannot
// be removed; one that left already, or that is not known, is as it should be.
func (c *Cluster) Remove(id member.ID) error {
	e, known := c.table.get(id)
	switch {
	case id == c.Self().ID:
		return errors.New("a node cannot remove itself")
	case known && e.present():
		return fmt.Errorf("%s is there; stop it, or drain it, instead", e.m.Name)
	}
	c.table.left(id, e.process)
	return nil
}

// meta is what this node says of itself now.
func (c *Cluster) meta() meta {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metaOf(c.self, c.leaving)
}

func (c *Cluster) metaOf(m member.Member, leaving bool) meta {
	return meta{
		Name: m.Name, Version: m.Version, Role: m.Role, Draining: m.State == member.Draining, Leaving: leaving,
		Peer: m.Peer, API: m.API, Started: m.Started, Process: c.process, Keys: c.keys.ids,
	}
}

// update has gossip carry what this node says of itself, and waits until it begins to.
// memberlist reads its own entry there without a lock: one goroutine at a time.
func (c *Cluster) update(within time.Duration) error {
	c.updating.Lock()
	defer c.updating.Unlock()
	return c.list.UpdateNode(within)
}

// spreadLoop has gossip carry what this node says of itself.
func (c *Cluster) spreadLoop() {
	for {
		select {
		case <-c.spread:
			if err := c.update(2 * c.cfg.Pace); err != nil {
				c.log.Debug("gossip: an update goes out later", "error", err)
			}
		case <-c.ctx.Done():
			return
		}
	}
}

// tableChanged is called for each change of another node, at times under memberlist's
// lock: it only leaves notes for goroutines of this package.
func (c *Cluster) tableChanged(m member.Member) {
	switch e, known := c.table.get(m.ID); {
	case known && e.present():
		c.memory.note(m.ID, m.Name, e.gossip)
	case m.State == member.Left:
		c.memory.left(m.ID)
	}
	c.changes.add(m)
	poke(c.wake)
}

// tell hands on a member as it is now, which may be newer than the change that is told.
func (c *Cluster) tell(m member.Member) {
	if now, known := c.Member(m.ID); known {
		m = now
	}
	c.cfg.Changed(m)
}

// poke leaves a note in a channel of one slot.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
