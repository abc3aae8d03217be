package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	"tandem/cluster/member"
)

func advertising(a string) options { return func(c *Config) { c.Advertise = a } }

// closedPort is an address of this machine where nothing listens.
func closedPort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Both sides are told, each in one sentence that names the other, the cause and what to
// do.
func TestRefusalsAreToldOnBothSides(t *testing.T) {
	clusterID := func(id string) options { return func(c *Config) { c.ClusterID = func() string { return id } } }
	wire := func(low, high uint16) options { return func(c *Config) { c.WireMin, c.WireMax = low, high } }
	closed := closedPort(t, "127.0.0.2")
	for _, tt := range []struct {
		name        string
		first       []options
		second      []options
		here, there []string // what the first and the second say
	}{
		{
			"another secret", nil, []options{withSecret(secretB)},
			[]string{"refused n2", "127.0.0.2:", "another cluster secret", "start it with the secret of this cluster"},
			[]string{"n1", "refused this node", "another cluster secret", "start this node with the secret of that cluster"},
		}, {
			"another protocol", []options{wire(1, 2)}, []options{wire(3, 4)},
			[]string{"refused n2", "versions 3 to 4, this node 1 to 2", "update the older one"},
			[]string{"n1", "refused this node", "versions 1 to 2, this node 3 to 4", "update the older one"},
		}, {
			"another cluster", []options{clusterID("aaaa")}, []options{clusterID("bbbb")},
			[]string{"refused n2", "another cluster with the same secret (bbbb, here aaaa)", "delete the folder raft"},
			[]string{"n1", "refused this node", "another cluster with the same secret (aaaa, here bbbb)", "delete the folder raft"},
		}, {
			"an advertised address where nothing listens", nil, []options{advertising(closed)},
			[]string{"refused n2", closed, "connection refused", "--advertise"},
			[]string{"n1", "refused this node", closed, "connection refused", "--advertise"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n1 := run(t, 1, tt.first...)
			n2 := run(t, 2, append(tt.second, joining(n1))...)
			t.Log("here:  ", n1.says(tt.here...))
			t.Log("there: ", n2.says(tt.there...))
			if n1.alive() != 1 || n2.alive() != 1 {
				t.Errorf("n1 sees %d, n2 %d", n1.alive(), n2.alive())
			}
			// It is tried again, and told once a minute.
			until(t, "it is tried again", func() bool { return len(n2.Problems()) > 0 })
			if n := n1.log.count("refused n2"); n != 1 {
				t.Errorf("n1 logged it %d times", n)
			}
		})
	}
}

func TestVersionsThatOverlapWork(t *testing.T) {
	wire := func(low, high uint16) options { return func(c *Config) { c.WireMin, c.WireMax = low, high } }
	n1 := run(t, 1, wire(1, 2))
	n2 := run(t, 2, wire(2, 3), joining(n1))
	all(t, 2, n1, n2)
}

// An advertised address may answer and be somebody else's, as localhost is everywhere.
func TestAdvertisedAddressThatLeadsElsewhere(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1), advertising(n1.Addr().String()))
	n1.says("refused n2", "n1 (01010101, at "+n1.Addr().String()+") answers there")
	n2.says("refused this node", "answers there", "--advertise")
}

// The first node of a cluster learns that nobody can use its address from the first that
// wants to join.
func TestTheFirstNodeLearnsThatItsAddressIsWrong(t *testing.T) {
	closed := closedPort(t, "127.0.0.1")
	n1 := run(t, 1, advertising(closed))
	n2 := run(t, 2, func(c *Config) { c.Join = []string{n1.transport.local.String()} })
	t.Log(n2.says("n1", "advertises an address that cannot be used from here, "+closed, "--advertise"))
	t.Log(n1.says("n2", "cannot use the address that this node advertises, "+closed, "--advertise"))
}

// Two processes with one id: the one that was first stays, and both are told, whichever
// node the second comes to.
func TestTwoProcessesWithOneID(t *testing.T) {
	sameID := func(c *Config) {
		c.Self.ID = testID(2)
		withSecret(secretA)(c)
	}
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	all(t, 2, n1, n2)
	for name, via := range map[string]*node{"at another node": n1, "at the first of the two": n2} {
		t.Run(name, func(t *testing.T) {
			twin := run(t, 7, sameID, joining(via))
			t.Log("twin:  ", twin.says("refused this node", "its id 02020202 is in use by n2", "delete the file node-id"))
			if via == n1 {
				t.Log("middle:", n1.says("refused n7", "node id is in use by n2"))
				t.Log("first: ", n2.says("another process with this node's id wants to join from "+twin.Addr().String(), "delete the file node-id"))
			} else {
				t.Log("first: ", n2.says("refused n7", "node id is in use by n2", "delete the file node-id"))
			}
			if at, _ := n1.GossipAddr(testID(2)); at != n2.Addr() || n1.alive() != 2 {
				t.Errorf("n1 sees n2 at %s, %d alive", at, n1.alive())
			}
		})
	}
	if states := n1.told(testID(2)); len(states) != 1 {
		t.Errorf("n1 was told %v of n2", states)
	}
}

// Clocks that differ are told and change nothing.
func TestClockThatIsOff(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1), func(c *Config) { c.now = func() time.Time { return time.Now().Add(-20 * time.Minute) } })
	all(t, 2, n1, n2)
	t.Log(n1.says("clock of n2", "20m0s behind", "NTP"))
	t.Log(n2.says("clock of n1", "20m0s ahead of", "NTP"))
}

// The secret is changed on each node in turn; nobody is lost at any time.
func TestRotationLosesNobody(t *testing.T) {
	old, both, fresh := withSecret(secretA), withSecret(secretB, secretA), withSecret(secretB)
	nodes := []*node{nil, run(t, 1, old)}
	nodes = append(nodes, run(t, 2, old, joining(nodes[1])))
	nodes = append(nodes, run(t, 3, old, joining(nodes[1])))
	all(t, 3, nodes[1:]...)
	for step, secret := range []options{both, fresh} {
		for i := 1; i <= 3; i++ {
			other := nodes[i%3+1]
			at := nodes[i].Addr().String()
			nodes[i].leave()
			nodes[i] = run(t, i, secret, bound(at), joining(other))
			all(t, 3, nodes[1:]...)
			if step == 0 && i < 3 {
				if k := nodes[i].keys.using(); k != other.keys.ids[len(other.keys.ids)-1] {
					t.Errorf("n%d speaks with %s while others know only the old secret", i, k)
				}
			}
		}
		until(t, "all speak with the new secret", func() bool {
			for _, n := range nodes[1:] {
				if n.keys.using() != nodes[1].keys.ids[0] {
					return false
				}
			}
			return true
		})
	}
	if step := run(t, 4, old, joining(nodes[1])); !strings.Contains(step.says("another cluster secret"), "n1") {
		t.Error("the old secret still opens the door")
	}
}

// Who has only the new secret comes too early while some have only the old one.
func TestRotationThatIsNotDone(t *testing.T) {
	n1 := run(t, 1, withSecret(secretA))
	n2 := run(t, 2, withSecret(secretB, secretA), joining(n1))
	all(t, 2, n1, n2)
	n3 := run(t, 3, withSecret(secretB), joining(n2))
	t.Log(n2.says("refused n3", "still speaks with a secret that it does not have"))
	t.Log(n3.says("n2", "refused this node", "still speaks with a secret"))
	if n2.alive() != 2 {
		t.Errorf("n2 sees %v", n2.Members())
	}
}

// A member that comes back with another secret: the others go on sending to it and it
// cannot read that.
func TestPacketsOfAnotherSecret(t *testing.T) {
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1))
	all(t, 2, n1, n2)
	at := n2.Addr().String()
	n2.kill()
	n2 = run(t, 2, bound(at), withSecret(secretB))
	t.Log(n2.says("gossip packets from "+n1.Addr().String(), "another cluster secret"))
	if n := n2.log.count("gossip packets from"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
}

// stranger is something else that listens, and greets everybody.
func stranger(t *testing.T, greeting string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprint(conn, greeting)
			_ = conn.(*net.TCPConn).CloseWrite()
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// What is no tandem node is told apart from one that refuses, and what comes in and is
// no gossip does no harm.
func TestStrangers(t *testing.T) {
	at := stranger(t, "SSH-2.0-OpenSSH_9.2\r\n")
	n1 := run(t, 1)
	n2 := run(t, 2, joining(n1), func(c *Config) { c.Join = append(c.Join, at, "no-such-name.invalid") })
	t.Log(n2.says("waiting to join "+at, "not the gossip port of a node"))
	t.Log(n2.says("waiting to join no-such-name.invalid:9495", "no-such-name.invalid"))
	for _, hostile := range []string{"GET / HTTP/1.0\r\n\r\n", "\x06", helloMagic, helloMagic + "\x01\xff\xff", "\x0a\xff\xff\xff\xff", ""} {
		conn, err := net.Dial("tcp", n1.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprint(conn, hostile)
		_ = conn.(*net.TCPConn).CloseWrite()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 1024)
		for err == nil { // the node ends the stream
			_, err = conn.Read(buf)
		}
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("%q: the stream stays open", hostile)
		}
		_ = conn.Close()
	}
	until(t, "no stream is kept", func() bool { return len(n1.transport.slots) == 0 })
	all(t, 2, n1, n2)
}

// The same list of addresses is given to all nodes: each is in its own.
func TestJoiningItselfIsNoFault(t *testing.T) {
	first := closedPort(t, "127.0.0.1")
	list := func(c *Config) { c.Join = []string{first} }
	n1 := run(t, 1, bound(first), list)
	n2 := run(t, 2, list)
	all(t, 2, n1, n2)
	until(t, "n1 has tried", func() bool { return len(n1.Problems()) == 0 })
}

func TestStartRefusesWhatCannotWork(t *testing.T) {
	taken := run(t, 1)
	for name, tt := range map[string]struct {
		change options
		says   string
	}{
		"port in use":       {bound(taken.Addr().String()), "address already in use"},
		"bind zone":         {bound("[fe80::1%lo]:0"), "zone"},
		"bind brackets":     {bound("[[::1]]:0"), "double brackets"},
		"advertise nothing": {advertising("0.0.0.0"), "others need one"},
		"advertise name":    {advertising("no-such-name.invalid"), "no-such-name.invalid"},
		"join port 0":       {func(c *Config) { c.Join = []string{"127.0.0.1:0"} }, "other than 0"},
		"join nonsense":     {func(c *Config) { c.Join = []string{"a b"} }, "not host:port"},
		"no role":           {func(c *Config) { c.Self.Role = "" }, "role"},
		"long name":         {func(c *Config) { c.Self.Name = strings.Repeat("n", nameMax+1) }, "name"},
		"other identity":    {func(c *Config) { c.Self.ID = testID(9) }, "identity"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Start(testConfig(2, tt.change))
			if err == nil {
				t.Error(c.Close())
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %q", err, tt.says)
			}
		})
	}
}

func TestIPv6InEverySpelling(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	} else {
		_ = l.Close()
	}
	for i, bind := range []string{"[::1]:0", "[0:0:0:0:0:0:0:1]:0"} {
		n1 := run(t, 1, bound(bind))
		port := n1.Addr().Port()
		for j, join := range []string{n1.Addr().String(), fmt.Sprintf("[0:0::1]:%d", port), fmt.Sprintf("[::1%%lo]:%d", port)} {
			n2 := run(t, 10*i+j+2, bound("[::1]:0"), func(c *Config) { c.Join = []string{join} })
			all(t, j+2, n1, n2)
			if m, _ := n1.Member(n2.Self().ID); m.Peer[0] != "[::1]:9496" {
				t.Errorf("the peer address is %q", m.Peer[0])
			}
		}
	}
	// A name may have addresses of both families; the one that works is found.
	named := run(t, 30, bound("127.0.0.1:0"))
	all(t, 2, named, run(t, 31, bound("127.0.0.1:0"), func(c *Config) { c.Join = []string{fmt.Sprintf("localhost:%d", named.Addr().Port())} }))
	// Bound to everything, reached by either family.
	n1 := run(t, 40, bound(":0"), advertising("::1"))
	n2 := run(t, 41, bound("[::1]:0"), joining(n1))
	n3 := run(t, 42, bound(":0"), advertising("127.0.0.1"), func(c *Config) { c.Join = []string{fmt.Sprintf("[::ffff:127.0.0.1]:%d", n1.Addr().Port())} })
	all(t, 3, n1, n2, n3)
}

// Names can be many; the list and the log stay short.
func TestProblemsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		p := newProblems(slog.New(slog.NewTextHandler(&l, nil)))
		p.keep("kept", "kept")
		for i := range 10 * problemsMax {
			time.Sleep(time.Millisecond)
			p.keep("kept", "kept")
			p.set(fmt.Sprint(i), fmt.Sprint("sentence ", i))
		}
		if n := len(p.list()); n != problemsMax {
			t.Errorf("%d sentences", n)
		}
		if n := l.count("kept"); n != 1 {
			t.Errorf("the same sentence was logged %d times within a second", n)
		}
		time.Sleep(problemShown + time.Second)
		if got := p.list(); len(got) != 1 || got[0] != "kept" {
			t.Errorf("after a while: %q", got)
		}
		p.keep("kept", "kept")
		if n := l.count("kept"); n != 2 {
			t.Errorf("after minutes it was logged %d times", n)
		}
	})
}

// The table alone, in virtual time: what is told and what is forgotten.
func TestTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		tb := newTable(time.Now, func(m member.Member) { told = append(told, m.Name+" "+string(m.State)) })
		id, run1, run2 := testID(1), process{1}, process{2}
		say := func(p process, leaving, draining bool) {
			tb.seen(id, addrPort("127.0.0.1:1"), meta{Name: "n", Role: member.Hybrid, Process: p, Leaving: leaving, Draining: draining})
		}
		for _, step := range []struct {
			what string
			do   func()
			want string // what is told, "" is nothing
		}{
			{"appears", func() { say(run1, false, false) }, "n alive"},
			{"says the same again", func() { say(run1, false, false) }, ""},
			{"drains", func() { say(run1, false, true) }, "n draining"},
			{"gossip hears of it while it is doubted", func() { e, _ := tb.get(id); say(run1, false, true); tb.gone(e) }, ""},
			{"fails", func() { e, _ := tb.get(id); tb.gone(e) }, "n failed"},
			{"fails again", func() { e, _ := tb.get(id); tb.gone(e) }, ""},
			{"is too young to be forgotten", func() { time.Sleep(time.Minute - 1); tb.forget(time.Minute) }, ""},
			{"is forgotten", func() { time.Sleep(time.Nanosecond); tb.forget(time.Minute) }, "n failed"},
			{"comes back", func() { say(run1, false, false) }, "n alive"},
			{"says goodbye", func() { tb.left(id, run1) }, "n left"},
			{"is given up afterwards", func() { e, _ := tb.get(id); tb.gone(e) }, ""},
			{"old gossip of it arrives", func() { say(run1, false, false) }, ""},
			{"is restarted", func() { say(run2, false, false) }, "n alive"},
			{"its earlier run's goodbye arrives late", func() { tb.left(id, run1) }, ""},
			{"leaves by gossip", func() { say(run2, true, false) }, "n left"},
			{"a stranger fails", func() { tb.gone(entry{m: member.Member{ID: testID(2)}}) }, ""},
		} {
			told = nil
			step.do()
			if got := strings.Join(told, ", "); got != step.want {
				t.Errorf("%s: told %q, want %q", step.what, got, step.want)
			}
		}
		for i := range 2 * membersMax {
			tb.seen(member.ID(fmt.Sprintf("%032x", i)), addrPort("127.0.0.1:1"), meta{})
		}
		if n := len(tb.all()); n != membersMax {
			t.Errorf("%d entries", n)
		}
	})
}

func TestRetriesBackOff(t *testing.T) {
	now := time.Unix(0, 0)
	for _, random := range []float64{0, 0.5, 0.999} {
		a := &attempt{}
		var waits []time.Duration
		for range 30 {
			a.failed(now, time.Second, 30*time.Second, func() float64 { return random })
			waits = append(waits, a.next.Sub(now))
		}
		if waits[0] < 800*time.Millisecond || waits[0] > 1200*time.Millisecond || waits[29] < 24*time.Second || waits[29] > 36*time.Second {
			t.Errorf("random %v: %v", random, waits)
		}
		for i := 1; i < len(waits); i++ {
			if waits[i] < waits[i-1] {
				t.Errorf("random %v: wait %d is shorter than the one before: %v", random, i, waits)
			}
		}
	}
}

// Two clusters that were apart have a node id in common: the two that have it are told.
func TestClustersWithACommonIDMeet(t *testing.T) {
	sameID := func(c *Config) {
		c.Self.ID = testID(2)
		withSecret(secretA)(c)
	}
	first := closedPort(t, "127.0.0.1")
	n3 := run(t, 3, func(c *Config) { c.Join = []string{first} })
	twin := run(t, 7, sameID, joining(n3))
	all(t, 2, n3, twin)
	n1 := run(t, 1, bound(first))
	n2 := run(t, 2, joining(n1))
	until(t, "the clusters meet", func() bool { return n1.state(testID(3)) == member.Alive && n3.state(testID(1)) == member.Alive })
	t.Log(n2.says("node id", "delete the file node-id"))
	t.Log(twin.says("node id", "delete the file node-id"))
}

func TestProbe(t *testing.T) {
	var c cuts
	n1 := run(t, 1, c.of(1), func(c *Config) { c.ClusterID = func() string { return "abc" } })
	ask := func(opts ...options) (Found, error) {
		return Probe(t.Context(), testConfig(2, opts...), n1.Addr().String())
	}
	f, err := ask()
	if err != nil || f.UDP != nil || f.Refusal != "" || f.ID != testID(1) || f.Name != "n1" || f.Cluster != "abc" || f.Gossip != n1.Addr() || f.ClockAhead.Abs() > time.Minute {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err = ask(withSecret(secretB)); err != nil || !strings.Contains(f.Refusal, "another cluster secret") {
		t.Errorf("another secret: %+v, %v", f, err)
	}
	c.set(func(network string, _, _ netip.Addr) bool { return network == "udp" })
	if f, err = ask(); err != nil || f.UDP == nil || !strings.Contains(f.UDP.Error(), "no answer over UDP on port") {
		t.Errorf("UDP is cut: %+v, %v", f, err)
	}
	n1.kill()
	if _, err = ask(); err == nil || err.Error() != "connection refused" {
		t.Errorf("nobody is there: %v", err)
	}
}

// A node that is bound to one family says so when it is to join the other.
func TestTheOtherFamily(t *testing.T) {
	n1 := run(t, 1, func(c *Config) { c.Join = []string{"[::1]:9"} })
	t.Log(n1.says("waiting to join [::1]:9", "no IPv6 address can be reached"))
}
