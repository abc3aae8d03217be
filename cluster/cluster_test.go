package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

const (
	secretA = "correct horse battery staple"
	secretB = "another secret of that length"

	// testPace makes everything more than three times faster than the default.
	testPace = 150 * time.Millisecond
	// patience bounds every wait of a test. It is never waited for in full when the
	// code is right.
	patience = 60 * time.Second
)

func testID(n int) member.ID { return member.ID(strings.Repeat(fmt.Sprintf("%02x", n), 16)) }

// node is a Cluster under test with all that it told.
type node struct {
	*Cluster
	t   *testing.T
	log *lines

	mu     sync.Mutex
	events []member.Member
}

func (n *node) changed(m member.Member) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, m)
}

// told is every state of a member that was reported, in order.
func (n *node) told(id member.ID) []member.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []member.State
	for _, m := range n.events {
		if m.ID == id {
			out = append(out, m.State)
		}
	}
	return out
}

// lines is a log that tests read.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(p))
	return len(p), nil
}

func (l *lines) count(parts ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.text {
		if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
			n++
		}
	}
	return n
}

// options changes the Config of a test node.
type options func(*Config)

func withSecret(secret string, more ...string) options {
	return func(c *Config) {
		id, err := identity.New(secret, c.Self.ID, more...)
		if err != nil {
			panic(err)
		}
		c.Identity = id
	}
}

func joining(to ...*node) options {
	return func(c *Config) {
		for _, n := range to {
			c.Join = append(c.Join, n.Addr().String())
		}
	}
}

func bound(to string) options { return func(c *Config) { c.Bind = to } }

func testConfig(n int, opts ...options) Config {
	cfg := Config{
		Self: member.Member{ID: testID(n), Name: fmt.Sprintf("n%d", n), Version: "test", Role: member.Hybrid, Peer: []string{":9496"}, Started: time.Now()},
		Bind: fmt.Sprintf("127.0.0.%d:0", n), Pace: testPace,
	}
	withSecret(secretA)(&cfg)
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}

// run starts a node and closes it when the test ends.
func run(t *testing.T, n int, opts ...options) *node {
	t.Helper()
	cfg := testConfig(n, opts...)
	nd := &node{t: t, log: &lines{}}
	cfg.Changed = nd.changed
	cfg.Logger = slog.New(slog.NewTextHandler(nd.log, nil))
	c, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	nd.Cluster = c
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close n%d: %v", n, err)
		}
		if t.Failed() {
			nd.log.mu.Lock()
			t.Logf("log of n%d:\n%s", n, strings.Join(nd.log.text, ""))
			nd.log.mu.Unlock()
		}
	})
	return nd
}

// until polls a condition.
func until(t *testing.T, what string, ok func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Since(begin) > patience {
			t.Fatalf("%s: not within %v", what, patience)
		}
		<-tick.C
	}
	return time.Since(begin)
}

func (n *node) state(id member.ID) member.State {
	m, ok := n.Member(id)
	if !ok {
		return ""
	}
	return m.State
}

func (n *node) alive() int {
	count := 0
	for _, m := range n.Members() {
		if m.Serves() {
			count++
		}
	}
	return count
}

// all waits until every node sees so many alive.
func all(t *testing.T, want int, nodes ...*node) time.Duration {
	t.Helper()
	return until(t, fmt.Sprintf("%d alive everywhere", want), func() bool {
		for _, n := range nodes {
			if n.alive() != want {
				return false
			}
		}
		return true
	})
}

// says waits for a problem with all of the parts.
func (n *node) says(parts ...string) string {
	n.t.Helper()
	found := ""
	until(n.t, fmt.Sprintf("%s says %q", n.Self().Name, parts), func() bool {
		for _, p := range n.Problems() {
			if !slices.ContainsFunc(parts, func(s string) bool { return !strings.Contains(p, s) }) {
				found = p
				return true
			}
		}
		return false
	})
	return found
}

func (n *node) leave() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := n.Leave(ctx); err != nil {
		n.t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// kill closes without a word, as a crash does.
func (n *node) kill() {
	n.t.Helper()
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
}

func TestThreeNodesFindEachOther(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	n3 := run(t, 3, joining(n1))
	t.Logf("three see three after %v", all(t, 3, n1, n2, n3))

	names := []string{}
	for _, m := range n2.Members() {
		names = append(names, m.Name)
	}
	if !slices.Equal(names, []string{"n1", "n2", "n3"}) {
		t.Errorf("members are %v", names)
	}
	m, _ := n1.Member(testID(3))
	if m.Version != "test" || m.Role != member.Hybrid || !slices.Equal(m.Peer, []string{"127.0.0.3:9496"}) {
		t.Errorf("n1 sees n3 as %+v", m)
	}
	until(t, "nothing is wrong", func() bool { return len(n1.Problems())+len(n2.Problems())+len(n3.Problems()) == 0 })
}

func TestSeveralNodesOnOneAddress(t *testing.T) {
	n1 := run(t, 1, bound("127.0.0.1:0"))
	nodes := []*node{n1}
	for i := 2; i <= 7; i++ {
		nodes = append(nodes, run(t, i, bound("127.0.0.1:0"), joining(nodes[i-2])))
	}
	t.Logf("seven see seven after %v", all(t, 7, nodes...))
}

func TestUpdatesReachOthers(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	all(t, 2, n1, n2)
	if err := n2.Update(func(m *member.Member) {
		m.Role, m.State, m.API, m.Peer = member.Decode, member.Draining, "http://n2:9494", []string{":7", "10.1.2.3:8"}
	}); err != nil {
		t.Fatal(err)
	}
	took := until(t, "n1 sees the update", func() bool {
		m, _ := n1.Member(testID(2))
		return m.State == member.Draining && m.Role == member.Decode && m.API == "http://n2:9494" && slices.Equal(m.Peer, []string{"127.0.0.2:7", "10.1.2.3:8"})
	})
	t.Logf("seen after %v", took)
	until(t, "both are told", func() bool {
		return slices.Contains(n1.told(testID(2)), member.Draining) && slices.Contains(n2.told(testID(2)), member.Draining)
	})
	if err := n2.Update(func(m *member.Member) { m.API = strings.Repeat("x", apiMax+1) }); err == nil || !strings.Contains(err.Error(), "API address") {
		t.Errorf("too long an API address: %v", err)
	}
	if m := n2.Self(); m.API != "http://n2:9494" {
		t.Errorf("a refused update left %+v", m)
	}
}

func TestLeavingIsSeenAtOnceAndNotAsFailure(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	n3 := run(t, 3, joining(n1))
	all(t, 3, n1, n2, n3)
	n3.leave()
	if s1, s2 := n1.state(testID(3)), n2.state(testID(3)); s1 != member.Left || s2 != member.Left {
		t.Errorf("after Leave n1 sees %q, n2 %q", s1, s2)
	}
	// It may come back at once, as the same node.
	n3 = run(t, 3, joining(n1))
	all(t, 3, n1, n2, n3)
	if states := n1.told(testID(3)); slices.Contains(states, member.Failed) {
		t.Errorf("n1 was told %v", states)
	}
}

// A crash is seen within ten paces: five seconds of the default.
func TestCrashIsSeen(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	n3 := run(t, 3, joining(n1))
	all(t, 3, n1, n2, n3)
	n3.kill()
	took := until(t, "both see the failure", func() bool {
		return n1.state(testID(3)) == member.Failed && n2.state(testID(3)) == member.Failed
	})
	t.Logf("seen after %v, %.1f paces", took, float64(took)/float64(testPace))
}

func TestDeadNodesAreForgotten(t *testing.T) {
	n1 := run(t, 1, func(c *Config) { c.DeadAfter = 2 * time.Second })
	n2 := run(t, 2, joining(n1))
	all(t, 2, n1, n2)
	n2.kill()
	until(t, "n1 forgets n2 and tells that", func() bool {
		states := n1.told(testID(2))
		n := len(states)
		return n1.state(testID(2)) == "" && n >= 3 && states[n-2] == member.Failed && states[n-1] == member.Failed
	})
	if n := len(n1.Members()); n != 1 {
		t.Errorf("n1 knows %v", n1.Members())
	}
}

func TestRestartsKeepTheIdentity(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	all(t, 2, n1, n2)
	for _, address := range []string{"127.0.0.2:0", "127.0.0.12:0", "127.0.0.22:0"} {
		n2.kill()
		n2 = run(t, 2, joining(n1), bound(address))
		took := until(t, "n1 sees n2 there", func() bool {
			at, _ := n1.GossipAddr(testID(2))
			return at == n2.Addr() && n1.state(testID(2)) == member.Alive
		})
		all(t, 2, n1, n2)
		t.Logf("back at %s after %v", n2.Addr(), took)
	}
	// On the same port: gossip may not even notice that it was gone.
	at := n2.Addr()
	for range 5 {
		n2.kill()
		n2 = run(t, 2, joining(n1), bound(at.String()))
	}
	until(t, "n1 sees the last run", func() bool {
		m, _ := n1.Member(testID(2))
		return m.State == member.Alive && m.Started.Equal(n2.Self().Started)
	})
	if n := len(n1.Members()); n != 2 {
		t.Errorf("n1 knows %v", n1.Members())
	}
}

// All nodes move, and only one of the new addresses is given to the others.
func TestAllNodesMove(t *testing.T) {
	var dirs []string
	for range 3 {
		dirs = append(dirs, t.TempDir())
	}
	kept := func(i int) options { return func(c *Config) { c.DataDir = dirs[i-1] } }
	n1 := run(t, 1, kept(1))
	n2 := run(t, 2, kept(2), joining(n1))
	n3 := run(t, 3, kept(3), joining(n1))
	all(t, 3, n1, n2, n3)
	n1.kill()
	n2.kill()
	n3.kill()
	n1 = run(t, 1, kept(1), bound("127.0.0.31:0"))
	n2 = run(t, 2, kept(2), bound("127.0.0.32:0"), joining(n1))
	n3 = run(t, 3, kept(3), bound("127.0.0.33:0"), joining(n1))
	t.Logf("together again after %v", all(t, 3, n1, n2, n3))
}

// Nodes find back by what they remember, without an address to join.
func TestNodesFindBackByWhatTheyRemember(t *testing.T) {
	dir := t.TempDir()
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1), func(c *Config) { c.DataDir = dir })
	all(t, 2, n1, n2)
	n2.kill()
	data, err := os.ReadFile(filepath.Join(dir, memoryFile))
	if err != nil || !strings.Contains(string(data), n1.Addr().String()) {
		t.Fatalf("n2 remembers %q, %v", data, err)
	}
	n2 = run(t, 2, func(c *Config) { c.DataDir = dir })
	all(t, 2, n1, n2)
}

func TestNobodyToJoinYet(t *testing.T) {
	free := run(t, 9, bound("127.0.0.1:0"))
	at := free.Addr().String()
	free.kill()
	n2 := run(t, 2, func(c *Config) { c.Join = []string{at} })
	t.Log(n2.says("waiting to join "+at, "connection refused"))
	n1 := run(t, 1, bound(at))
	all(t, 2, n1, n2)
	if p := n2.Problems(); len(p) > 0 {
		t.Errorf("n2 still says %q", p)
	}
}

// cuts is a network that tests take apart.
type cuts struct {
	mu  sync.Mutex
	cut func(network string, from, to netip.Addr) bool
}

func (c *cuts) set(cut func(network string, from, to netip.Addr) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
}

func (c *cuts) isCut(network string, from, to netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut != nil && c.cut(network, from, to)
}

// of is the network as one node sees it.
func (c *cuts) of(n int) options {
	from := netip.AddrFrom4([4]byte{127, 0, 0, byte(n)})
	return func(cfg *Config) {
		cfg.network = network{
			packets: func(p net.PacketConn) net.PacketConn { return cutPackets{p, c, from} },
			dial: func(ctx context.Context, d *net.Dialer, to string) (net.Conn, error) {
				if c.isCut("tcp", from, netip.MustParseAddrPort(to).Addr()) {
					<-ctx.Done() // as a firewall that drops
					return nil, ctx.Err()
				}
				return d.DialContext(ctx, "tcp", to)
			},
		}
	}
}

type cutPackets struct {
	net.PacketConn
	c    *cuts
	from netip.Addr
}

func (p cutPackets) WriteTo(b []byte, to net.Addr) (int, error) {
	if p.c.isCut("udp", p.from, to.(*net.UDPAddr).AddrPort().Addr().Unmap()) {
		return len(b), nil
	}
	return p.PacketConn.WriteTo(b, to)
}

func TestBlockedUDPIsToldAndBorne(t *testing.T) {
	var c cuts
	n1 := run(t, 1, c.of(1))
	n2 := run(t, 2, c.of(2), joining(n1))
	n3 := run(t, 3, c.of(3), joining(n1))
	all(t, 3, n1, n2, n3)
	third := netip.MustParseAddr("127.0.0.3")
	c.set(func(network string, from, to netip.Addr) bool {
		return network == "udp" && (from == third) != (to == third)
	})
	port := fmt.Sprint(n3.Addr().Port())
	t.Log(n1.says("n3", "UDP", "port "+port))
	n2.says("n3", "UDP")
	n3.says("n1", "UDP")
	if states := n1.told(testID(3)); slices.Contains(states, member.Failed) {
		t.Errorf("n3 flapped: %v", states)
	}
	// What a node says of itself, and that it leaves, gets through over TCP.
	if err := n3.Update(func(m *member.Member) { m.Role = member.Prefill }); err != nil {
		t.Fatal(err)
	}
	took := until(t, "n1 sees the role", func() bool { m, _ := n1.Member(testID(3)); return m.Role == member.Prefill })
	t.Logf("an update takes %v", took)
	c.set(nil)
	until(t, "nothing is wrong any more", func() bool { return len(n1.Problems())+len(n2.Problems())+len(n3.Problems()) == 0 })
	c.set(func(network string, _, _ netip.Addr) bool { return network == "udp" })
	n3.leave()
	if s := n1.state(testID(3)); s != member.Left {
		t.Errorf("n3 left, n1 sees %q", s)
	}
}

// Both halves have forgotten each other, and find together again when the cut is healed.
func TestPartitionHeals(t *testing.T) {
	var c cuts
	short := func(cfg *Config) { cfg.DeadAfter = time.Second }
	n1 := run(t, 1, c.of(1), short)
	n2 := run(t, 2, c.of(2), short, joining(n1))
	n3 := run(t, 3, c.of(3), short, joining(n1))
	n4 := run(t, 4, c.of(4), short, joining(n2))
	all(t, 4, n1, n2, n3, n4)
	low := func(a netip.Addr) bool { return a.As4()[3] <= 2 }
	c.set(func(_ string, from, to netip.Addr) bool { return low(from) != low(to) })
	until(t, "both halves have forgotten the other", func() bool {
		return len(n1.Members()) == 2 && len(n2.Members()) == 2 && len(n3.Members()) == 2 && len(n4.Members()) == 2
	})
	c.set(nil)
	t.Logf("together again after %v", all(t, 4, n1, n2, n3, n4))
}

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// Discovery gives addresses; what it finds may be this node, strangers, and others.
func TestAutoJoinsWhatIsFound(t *testing.T) {
	n1 := run(t, 1)
	other := run(t, 5, withSecret(secretB))
	var self string
	var mu sync.Mutex
	n2 := run(t, 2, func(c *Config) {
		c.Join = []string{Auto}
		c.discover = func(context.Context) []string {
			mu.Lock()
			defer mu.Unlock()
			return []string{self, "nonsense", other.Addr().String(), n1.Addr().String()}
		}
	})
	mu.Lock()
	self = n2.Addr().String()
	mu.Unlock()
	all(t, 2, n1, n2)
	n2.says("n5", "another cluster secret")
}

// Close ends every goroutine; memberlist's own end soon after.
func TestCloseEndsEverything(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1), func(c *Config) { c.Join = append(c.Join, "no-such-name.invalid", "127.0.0.1:1") })
	all(t, 2, n1, n2)
	n2.leave()
	n1.kill()
	until(t, "no goroutine is left", func() bool {
		buf := make([]byte, 1<<20)
		for _, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if (strings.Contains(g, "tandem/cluster.") || strings.Contains(g, "hashicorp/memberlist.")) && !strings.Contains(g, "testing.tRunner") {
				return false
			}
		}
		return true
	})
	for range 2 { // and again does no harm
		n1.kill()
	}
}
