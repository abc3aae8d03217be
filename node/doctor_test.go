package node_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/cluster/identity"
	"tandem/cluster/member"
	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/nodetest"
	"tandem/xfer"
)

const (
	theSecret   = "the secret of the tests"
	otherSecret = "not the secret of the tests"
	// examinedWithin is what a doctor may take where nobody answers.
	examinedWithin = 12 * time.Second
)

// report is the checks of one examination.
type report []node.Check

// examine makes an examination and bounds it.
func examine(t *testing.T, e node.Examination) report {
	t.Helper()
	var r report
	e.Each = func(c node.Check) { r = append(r, c) }
	begin := time.Now()
	if err := node.Examine(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > examinedWithin {
		t.Errorf("it took %v", took)
	}
	for _, c := range r {
		if c.Found == "" || strings.Contains(c.Found+c.Remedy, "%!") {
			t.Errorf("check without words: %+v", c)
		}
	}
	return r
}

// expect finds a check and compares its state and words.
func (r report) expect(t *testing.T, name, state string, words ...string) {
	t.Helper()
	for _, c := range r {
		if c.Name != name {
			continue
		}
		if c.State != state {
			t.Errorf("%s is %s; want %s", name, c.State, state)
		}
		for _, w := range words {
			if !strings.Contains(c.Found+"; "+c.Remedy, w) {
				t.Errorf("%s: %q (%q) does not say %q", name, c.Found, c.Remedy, w)
			}
		}
		return
	}
	t.Errorf("no check %s in %+v", name, r)
}

// wrong counts what is wrong.
func (r report) wrong() (names []string) {
	for _, c := range r {
		if c.State == node.CheckWrong {
			names = append(names, c.Name)
		}
	}
	return names
}

// pair runs two nodes. Only another node tells where the link of one is.
func pair(t *testing.T) (a, b *nodetest.Node) {
	t.Helper()
	nodes := nodetest.StartCluster(t, 2, enginetest.Options{}, nil)
	return nodes[0], nodes[1]
}

// settings are those of a, with the ports that it got.
func settings(t *testing.T, a, b *nodetest.Node, secret string) node.Config {
	t.Helper()
	c := nodetest.Config(t, t.TempDir())
	c.DataDir, c.Secret = filepath.Join(a.Dir, "data"), secret
	c.Listen, c.Gossip, c.Peer = a.Addr(), a.GossipAddr(), linkAddr(t, a, b)
	return c
}

// linkAddr is the address of the link of a node, as another one knows it.
func linkAddr(t *testing.T, of, as *nodetest.Node) string {
	t.Helper()
	for _, m := range status(as).Cluster.Members {
		if m.ID == of.ID() {
			return m.Addr
		}
	}
	t.Fatal("the node is not known")
	return ""
}

func status(n *nodetest.Node) *node.Status {
	s := n.Status(context.Background()).(node.Status)
	return &s
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// The way between two nodes is examined while both run: all is well, nothing of their
// own link is disturbed, and the doctor is forgotten.
func TestDoctorOfAHealthyWay(t *testing.T) {
	a, b := pair(t)
	r := examine(t, node.Examination{Config: settings(t, a, b, theSecret), Running: status(a), Peer: b.GossipAddr()})
	for _, c := range r {
		if c.State != node.CheckOK && c.Name != "UDP buffers" && c.Name != "link rate" && c.Name != "round trip" { // what the machine gives
			t.Errorf("%+v", c)
		}
	}
	r.expect(t, "hello", node.CheckOK, "n2", "same secret")
	r.expect(t, "UDP to gossip", node.CheckOK)
	r.expect(t, "packet size", node.CheckOK, "1452")
	r.expect(t, "peer link", node.CheckOK, "QUIC")
	r.expect(t, "clock", node.CheckOK)
	r.expect(t, "cluster", node.CheckOK, "the same one", "n1, n2")
	if names := r.wrong(); len(names) > 0 {
		t.Errorf("wrong: %v", names)
	}
	b.Until("the doctor is forgotten, the other node is not", func(s node.Status) bool {
		return len(s.Cluster.Links) == 1 && s.Cluster.Links[0].ID == a.ID() && s.Cluster.Links[0].Transport == "quic"
	})
	if p := status(b).Cluster.Problems; len(p) > 0 {
		t.Errorf("problems: %q", p)
	}
}

func TestDoctorNamesAnotherSecret(t *testing.T) {
	a, b := pair(t)
	c := settings(t, a, b, otherSecret)
	r := examine(t, node.Examination{Config: c, Peer: b.GossipAddr(), PeerPort: portOf(t, linkAddr(t, b, a))})
	r.expect(t, "hello", node.CheckWrong, "another cluster secret", "start this node with the secret")
	r.expect(t, "TCP to gossip", node.CheckOK)
	r.expect(t, "UDP to peer link", node.CheckOK)
	if names := r.wrong(); len(names) != 1 {
		t.Errorf("wrong: %v", names)
	}
}

func TestDoctorWithoutASecretSaysWhereItIs(t *testing.T) {
	a, b := pair(t)
	c := settings(t, a, b, "")
	c.DataDir = filepath.Join(t.TempDir(), "nothing")
	r := examine(t, node.Examination{Config: c, Peer: b.GossipAddr(), PeerPort: portOf(t, linkAddr(t, b, a))})
	r.expect(t, "secret", node.CheckWrong, "--secret-file", "the file secret of a member's data folder")
	r.expect(t, "TCP to gossip", node.CheckOK)
}

// freePort is one where nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestDoctorFindsNobody(t *testing.T) {
	c := nodetest.Config(t, t.TempDir())
	c.Secret = theSecret
	r := examine(t, node.Examination{Config: c, Peer: freePort(t), PeerPort: portOf(t, freePort(t))})
	r.expect(t, "TCP to gossip", node.CheckWrong, "nothing listens", "start the node there")
	r.expect(t, "TCP to peer link", node.CheckWrong, "nothing listens", "--peer")
	r.expect(t, "UDP to peer link", node.CheckWarning, "let UDP port")
}

func TestDoctorOfANameThatIsUnknown(t *testing.T) {
	c := nodetest.Config(t, t.TempDir())
	c.Secret = theSecret
	r := examine(t, node.Examination{Config: c, Peer: "no-such-box.invalid"})
	r.expect(t, "name", node.CheckWrong, "no-such-box.invalid", "give its address")
	if names := r.wrong(); len(names) != 1 {
		t.Errorf("wrong: %v", names)
	}
}

// A program that accepts connections and says nothing costs no more than the bound.
func TestDoctorOfAPeerThatIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the kernel accepts, nobody reads
	c := nodetest.Config(t, t.TempDir())
	c.Secret = theSecret
	r := examine(t, node.Examination{Config: c, Peer: l.Addr().String(), PeerPort: portOf(t, l.Addr().String())})
	r.expect(t, "TCP to gossip", node.CheckOK)
	r.expect(t, "hello", node.CheckWrong, "not answer", "gossip port")
}

// A forwarder of TCP stands for a firewall that drops UDP.
func TestDoctorWhereUDPIsBlocked(t *testing.T) {
	a, b := pair(t)
	gossip, link := forwardTCP(t, a.GossipAddr()), forwardTCP(t, linkAddr(t, a, b))
	c := settings(t, a, b, theSecret)
	c.DataDir = t.TempDir()
	r := examine(t, node.Examination{Config: c, Peer: gossip, PeerPort: portOf(t, link)})
	r.expect(t, "hello", node.CheckOK, "n1")
	r.expect(t, "UDP to gossip", node.CheckWarning, "let UDP port")
	r.expect(t, "UDP to peer link", node.CheckWarning, "nothing listens on the port for UDP", "let UDP port")
	r.expect(t, "peer link", node.CheckWarning, "TLS over TCP")
	r.expect(t, "cluster", node.CheckOK)
	if names := r.wrong(); len(names) > 0 {
		t.Errorf("wrong: %v in %+v", names, r)
	}
}

// forwardTCP passes connections on until the test ends.
func forwardTCP(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
				all.Go(func() { io.Copy(out, in); out.Close() })
				io.Copy(in, out)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); all.Wait() })
	return l.Addr().String()
}

func TestDoctorOfARunningNode(t *testing.T) {
	a, b := pair(t)
	c := settings(t, a, b, theSecret)
	a.Until("the nodes have a link", func(s node.Status) bool { return len(s.Cluster.Links) == 1 && s.Cluster.Links[0].Transport == "quic" })
	r := examine(t, node.Examination{Config: c, Running: status(a)})
	r.expect(t, "node", node.CheckOK, "n1", "ready")
	r.expect(t, "data folder", node.CheckOK, "the node that runs has it")
	for _, flag := range []string{"--listen", "--gossip", "--peer"} {
		r.expect(t, "port of "+flag, node.CheckOK, "held by the node that runs")
	}
	r.expect(t, "memory", node.CheckOK, nodetest.Model)
	r.expect(t, "agreement", node.CheckOK, "2 nodes vote")
	r.expect(t, "node n2", node.CheckOK, "QUIC")
	if names := r.wrong(); len(names) > 0 {
		t.Errorf("wrong: %v", names)
	}
	a.Until("the doctor is forgotten", func(s node.Status) bool { return len(s.Cluster.Links) == 1 })

	c.Secret = otherSecret
	r = examine(t, node.Examination{Config: c, Running: status(a)})
	r.expect(t, "port of --peer", node.CheckOK, "held by the node that runs")
	if names := r.wrong(); len(names) > 0 {
		t.Errorf("wrong: %v", names)
	}
	if !slices.ContainsFunc(r, func(c node.Check) bool { return c.Name == "secret" && c.State == node.CheckWarning }) {
		t.Errorf("nothing says that the node has another secret: %+v", r)
	}
	c.Secret, c.DataDir = "", t.TempDir()
	r = examine(t, node.Examination{Config: c, Running: status(a)})
	r.expect(t, "secret", node.CheckWarning, "--secret")
	r.expect(t, "port of --peer", node.CheckOK, "held by the node that runs")
	r.expect(t, "data folder", node.CheckWarning, "another folder")
}

func TestDoctorBeforeAStart(t *testing.T) {
	c := nodetest.Config(t, t.TempDir())
	r := examine(t, node.Examination{Config: c})
	r.expect(t, "node", node.CheckOK, "none runs")
	r.expect(t, "data folder", node.CheckOK, "is made at the start")
	r.expect(t, "secret", node.CheckOK, "the first start makes one")
	r.expect(t, "port of --gossip", node.CheckOK, "any free one")
	r.expect(t, "advertised address", node.CheckWarning, "127.0.0.1", "--advertise")
	r.expect(t, "default model", node.CheckOK, nodetest.Model, "valid")
	r.expect(t, "memory", node.CheckOK)
	if names := r.wrong(); len(names) > 0 {
		t.Errorf("wrong: %v", names)
	}
	if _, err := os.Stat(c.DataDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the examination has made the data folder: %v", err)
	}
}

// proof is an identity as the link wants it.
type proof struct{ *identity.Identity }

func (proof) PeerID(s tls.ConnectionState) (member.ID, error) { return identity.PeerID(s) }

// What is asked of the service and not known is refused with what is.
func TestDoctorServiceRefusesWhatItDoesNotKnow(t *testing.T) {
	n, other := pair(t)
	self := member.ID(strings.Repeat("ab", 16))
	who, err := identity.New(theSecret, self)
	if err != nil {
		t.Fatal(err)
	}
	link, err := xfer.Listen(xfer.Config{Self: self, Identity: proof{who}, Listen: "127.0.0.1:0", Cluster: who.ClusterKeyID(), Program: "test",
		Address: func(member.ID) []string { return []string{linkAddr(t, n, other)} }})
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close(context.Background())
	for _, ask := range []string{"dance", "", strings.Repeat("a", 33)} {
		ctx, cancel := context.WithTimeout(t.Context(), nodetest.Patience)
		s, err := link.OpenBound(ctx, member.ID(n.ID()), "doctor")
		if err == nil {
			err = xfer.WriteMessage(s, []byte(ask))
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = xfer.ReadMessage(s, 100)
		if _, ok := errors.AsType[*xfer.RemoteError](err); !ok {
			t.Errorf("%q: %v", ask, err)
		}
		s.Close()
		cancel()
	}
}
