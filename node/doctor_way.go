package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tandem/cluster"
	"tandem/cluster/member"
	"tandem/xfer"
)

// How long the parts of an examination may take.
const (
	resolveWithin = 2 * time.Second
	connectWithin = 2 * time.Second
	pings         = 5
)

// From where on what was measured is worth a word.
const (
	slowRTT     = 20 * time.Millisecond // nodes of a home are within 1 ms, on Wi-Fi within 10
	slowBits    = 200e6                 // bits a second; the slowest cable that is meant has 1e9
	clockOff    = time.Minute
	clockFatal  = 48 * time.Hour // certificates bear no more
	peerPortGap = 1              // of the standard ports: the link's is the one after gossip's
)

// way examines the way to another node, from the name to the rate of the link.
func (d *doctor) way(ctx context.Context, host string, gossipPort int) {
	d.readSecret()
	if err := d.open(); err != nil {
		d.wrong("peer link", "", "%v", err)
		return
	}
	d.buffers()
	addrs := d.resolve(ctx, host)
	if len(addrs) == 0 {
		return
	}
	peerPort := d.PeerPort
	if peerPort == 0 {
		peerPort = gossipPort + peerPortGap
	}
	gossip := d.connect(ctx, addrs, gossipPort)
	d.said("TCP to gossip", "--gossip", gossip, false)
	var found cluster.Found
	if gossip.err == nil && d.secret != "" {
		found, peerPort = d.hello(ctx, gossip.addr, peerPort)
	}
	if gossip.err == nil {
		addrs = []string{gossip.host}
	}
	d.toPeerPort(ctx, addrs, peerPort, found)
}

// resolve finds the addresses of a name.
func (d *doctor) resolve(ctx context.Context, host string) []string {
	const name = "name"
	if net.ParseIP(host) != nil {
		d.ok(name, "%s is an address, no name to look up", host)
		return []string{host}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		var dns *net.DNSError
		found := fmt.Sprintf("the name %q could not be looked up: %v", host, err)
		if errors.As(err, &dns) && dns.IsNotFound {
			found = fmt.Sprintf("the name %q is unknown", host)
		}
		d.wrong(name, "give its address instead, or put the name into DNS or /etc/hosts", "%s", found)
		return nil
	}
	const addressesMax = 8
	var addrs []string
	for _, ip := range ips[:min(len(ips), addressesMax)] {
		addrs = append(addrs, ip.Unmap().String())
	}
	d.ok(name, "%s is %s", host, strings.Join(addrs, ", "))
	return addrs
}

// connection is what came of an attempt to connect by TCP.
type connection struct {
	host, addr string // that answered, or the first that was tried
	took       time.Duration
	err        error
}

// connect tries all addresses at once and prefers the first.
func (d *doctor) connect(ctx context.Context, hosts []string, port int) connection {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	tries := make([]connection, len(hosts))
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() {
			addr := net.JoinHostPort(host, strconv.Itoa(port))
			begin := time.Now()
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			tries[i] = connection{host: host, addr: addr, took: time.Since(begin), err: err}
			if err == nil {
				conn.Close()
			}
		})
	}
	all.Wait()
	for _, c := range tries {
		if c.err == nil {
			return c
		}
	}
	return tries[0]
}

// said tells what came of connecting to a port that a setting of the other node names.
// Where the way works nevertheless, by UDP, it is only a warning.
func (d *doctor) said(name, setting string, c connection, works bool) {
	state := CheckWrong
	if works {
		state = CheckWarning
	}
	found, remedy := c.fault(setting)
	if c.err == nil {
		state = CheckOK
	} else if setting == "--peer" && d.PeerPort == 0 {
		remedy += "; if its --peer has another port, name that here with --peer-port"
	}
	d.Each(Check{Name: name, State: state, Found: found, Remedy: remedy})
}

// fault says why a connection did not come about, and what to do.
func (c connection) fault(setting string) (found, remedy string) {
	var timeout net.Error
	switch {
	case c.err == nil:
		return c.addr + " answers", ""
	case errors.Is(c.err, syscall.ECONNREFUSED):
		return fmt.Sprintf("the machine at %s is there, and nothing listens on the port", c.addr),
			fmt.Sprintf("start the node there, and see that its %s has this port and an address that others reach (127.0.0.1 hears only itself)", setting)
	case errors.As(c.err, &timeout) && timeout.Timeout(), errors.Is(c.err, context.DeadlineExceeded), errors.Is(c.err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("%s does not answer within %v", c.addr, connectWithin),
			fmt.Sprintf("see that the machine is on and the address is its own, and open port %s for TCP and UDP in its firewall", portOf(c.addr))
	}
	return fmt.Sprintf("%s cannot be reached: %v", c.addr, systemCause(c.err)), "see that both machines are in a network that joins them"
}

// systemCause is what the system said, without the addresses around it.
func systemCause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// hello asks the node who it is. It returns the port of its link, too, if a node that
// runs here knows that.
func (d *doctor) hello(ctx context.Context, addr string, peerPort int) (cluster.Found, int) {
	found, err := d.ask(ctx, addr)
	if err != nil {
		d.wrong("hello", "see that this is the gossip port of a node, and that the node there does not hang", "%s: %v", addr, err)
		return found, peerPort
	}
	if d.PeerPort == 0 {
		peerPort = d.linkPort(found.ID, peerPort)
	}
	if found.Refusal != "" {
		d.wrong("hello", "", "%s", found.Refusal)
		return cluster.Found{}, peerPort
	}
	d.ok("hello", "%s (%s) has the same secret and speaks gossip version %d to %d, this program %d", nameOf(found), found.ID.Short(), found.WireMin, found.WireMax, cluster.WireVersion)
	d.sameNode(found)
	d.versions(found.Version)
	if found.UDP != nil {
		d.warn("UDP to gossip", fmt.Sprintf("let UDP port %s pass in both directions", portOf(addr)), "%v; nodes work without, by TCP, and notice later who is gone", found.UDP)
	} else {
		d.ok("UDP to gossip", "%s answers", addr)
	}
	return found, peerPort
}

func nameOf(f cluster.Found) string {
	if f.Name == "" {
		return "the node"
	}
	return f.Name
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// linkPort is the port of a node's link as the node that runs here knows it.
func (d *doctor) linkPort(id member.ID, guess int) int {
	if d.Running == nil {
		return guess
	}
	for _, l := range d.Running.Cluster.Links {
		if l.ID == string(id) && l.Transport == string(xfer.QUIC) { // both ends use their own port
			if port, err := strconv.Atoi(portOf(l.Addr)); err == nil {
				return port
			}
		}
	}
	for _, m := range d.Running.Cluster.Members {
		if m.ID == string(id) && m.ID != d.Running.Node.ID && !strings.Contains(m.Addr, "://") {
			if port, err := strconv.Atoi(portOf(m.Addr)); err == nil {
				return port
			}
		}
	}
	return guess
}

// sameNode tells if the other node has the id of this one.
func (d *doctor) sameNode(f cluster.Found) {
	switch id, err := knownID(d.Config.DataDir); {
	case d.Running != nil && string(f.ID) == d.Running.Node.ID:
		d.ok("node", "that is the node that runs here itself")
	case err == nil && d.Running == nil && string(f.ID) == id:
		d.wrong("node", "if it is another machine, delete the file node-id in one of the two", "it has the id of the data folder %s: a folder was copied, or it runs here with another --listen", d.Config.DataDir)
	}
}

func (d *doctor) versions(theirs string) {
	if theirs == Version {
		d.ok("version", "%s on both", Version)
		return
	}
	d.warn("version", "run the same version on all nodes", "%s there, %s here: nodes of one release line work together", orUnknown(theirs), orUnknown(Version))
}

func orUnknown(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

// toPeerPort examines the way of the peer link.
func (d *doctor) toPeerPort(ctx context.Context, hosts []string, port int, found cluster.Found) {
	c := d.connect(ctx, hosts, port)
	size, sizeErr := packetSize(ctx, c.addr)
	if found.ID == "" {
		d.said("TCP to peer link", "--peer", c, false)
		d.udp(c.addr, size, sizeErr, false)
		return
	}
	d.peer = []string{c.addr}
	rtt, err := d.ping(ctx, found.ID)
	status := d.linkTo(found.ID)
	quic := err == nil && status.Transport == xfer.QUIC
	d.said("TCP to peer link", "--peer", c, quic)
	d.udp(c.addr, size, sizeErr, quic)
	switch {
	case err != nil:
		d.wrong("peer link", "", "%v", err)
		return
	case quic:
		d.ok("peer link", "QUIC connects, wire version %d", status.Version)
	default:
		d.warn("peer link", "", "%s", status.Fallback)
	}
	if rtt > slowRTT {
		d.warn("round trip", "use a cable, turn Wi-Fi power saving off, or see that a VPN does not go by a far relay", "%.1f ms: every answer from there starts later by it", milliseconds(rtt))
	} else {
		d.ok("round trip", "%.1f ms", milliseconds(rtt))
	}
	d.service(ctx, found, rtt)
}

// udp tells whether UDP passes to the port of the link, and how large its packets may
// be.
func (d *doctor) udp(addr string, size int, err error, quic bool) {
	remedy := fmt.Sprintf("let UDP port %s pass in both directions, also in the firewall of the machine itself", portOf(addr))
	switch {
	case size >= packetSizes[len(packetSizes)-1]:
		d.ok("UDP to peer link", "%s answers", addr)
		d.ok("packet size", "packets of %d bytes pass whole, the largest that QUIC uses", size)
	case size > 0:
		d.ok("UDP to peer link", "%s answers", addr)
		d.warn("packet size", "if both machines are in one network, give all its interfaces the same MTU, 1500 or more", "packets of %d bytes pass whole, of %d do not: a tunnel or VPN is on the way; QUIC works, somewhat slower", size, nextSize(size))
	case quic:
		d.ok("UDP to peer link", "%s answers", addr)
	case err != nil:
		d.warn("UDP to peer link", remedy, "%s: %v; where TCP connects, that carries the link, slower on bad ways", addr, err)
	}
}

func nextSize(size int) int {
	for _, s := range packetSizes {
		if s > size {
			return s
		}
	}
	return size
}

// ping is the shortest of some round trips.
func (d *doctor) ping(ctx context.Context, id member.ID) (time.Duration, error) {
	best, err := d.link.Probe(ctx, id)
	for range pings - 1 {
		if err != nil {
			return 0, err
		}
		var rtt time.Duration
		if rtt, err = d.link.Probe(ctx, id); err == nil {
			best = min(best, rtt)
		}
	}
	return best, err
}

func (d *doctor) linkTo(id member.ID) xfer.PeerStatus {
	for _, p := range d.link.Peers() {
		if p.ID == id {
			return p
		}
	}
	return xfer.PeerStatus{}
}

// service asks the other node for what it knows, and measures the link.
func (d *doctor) service(ctx context.Context, found cluster.Found, rtt time.Duration) {
	stream, t, ahead, err := d.tell(ctx, found.ID)
	var remote *xfer.RemoteError
	switch {
	case errors.As(err, &remote) && remote.Code == xfer.CodeNoService:
		d.clock(found.ClockAhead)
		d.warn("link rate", "update the program there", "the node there cannot measure: %v", err)
		return
	case err != nil:
		d.clock(found.ClockAhead)
		d.wrong("link rate", "", "%v", err)
		return
	}
	defer stream.Close()
	d.clock(ahead)
	d.otherCluster(t)
	to, err := d.rateTo(ctx, found.ID, rtt)
	from, err2 := d.rateFrom(ctx, found.ID)
	if err = errors.Join(err, err2); err != nil {
		d.wrong("link rate", "", "%v", err)
		return
	}
	if min(to, from) < slowBits {
		d.warn("link rate", "look for Wi-Fi, a port at 100 Mbit/s, a bad cable, or a VPN by a far relay", "%s to it, %s from it: KV and models take long", bits(to), bits(from))
		return
	}
	d.ok("link rate", "%s to it, %s from it, on one stream", bits(to), bits(from))
}

// otherCluster tells if the nodes have agreed on things apart from each other.
func (d *doctor) otherCluster(t tell) {
	const name = "cluster"
	switch {
	case d.Running == nil || d.Running.Cluster.ID == "" || t.Cluster == "":
		d.ok(name, "it sees %s", strings.Join(t.Members, ", "))
	case d.Running.Cluster.ID != t.Cluster:
		d.wrong(name, "to move one of them, stop it, delete the folder raft in its data folder and start it with --join", "it belongs to another cluster with the same secret (%.16s, here %.16s)", t.Cluster, d.Running.Cluster.ID)
	default:
		d.ok(name, "the same one; it sees %s", strings.Join(t.Members, ", "))
	}
}

func (d *doctor) clock(ahead time.Duration) {
	const remedy = "set the clocks, best with NTP"
	side := "ahead"
	if ahead < 0 {
		side = "behind"
	}
	switch {
	case ahead.Abs() >= clockFatal:
		d.wrong("clock", remedy, "it is %v %s: certificates bear no more, connections fail", ahead.Abs().Round(time.Hour), side)
	case ahead.Abs() >= clockOff:
		d.warn("clock", remedy, "it is %v %s: that works, but times in logs do not fit", ahead.Abs().Round(time.Second), side)
	default:
		d.ok("clock", "%.0f ms %s", milliseconds(ahead.Abs()), side)
	}
}
