package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"tandem/cluster"
	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// lowSpace is how much should be free for a node that only serves.
const lowSpace = 1 << 30

// here examines this machine: what a start needs, or how the node is that runs.
func (d *doctor) here(ctx context.Context) {
	d.running()
	d.dataFolder()
	d.readSecret()
	if err := d.open(); err != nil {
		d.wrong("peer link", "", "%v", err)
	} else {
		d.ports(ctx)
		d.buffers()
		d.advertised()
	}
	d.computing()
	d.models(ctx)
	d.rdma()
	d.cluster()
}

// running tells whether a node runs here, and how it is.
func (d *doctor) running() {
	const name = "node"
	switch {
	case d.Silent != nil:
		d.warn(name, "if a node runs with other settings, give the same ones here (--listen, --api-key, --data-dir)", "something answers at %s and does not tell its state: %v", d.Config.Listen, d.Silent)
	case d.Running == nil:
		d.ok(name, "none runs at %s; these checks are for a start", d.Config.Listen)
	case !d.Running.Node.Ready:
		d.warn(name, "wait if it is loading or pulling; otherwise the sentence says what to do", "%s runs and is not ready: %s", d.Running.Node.Name, d.Running.Node.Reason)
	default:
		up := time.Duration(d.Running.Node.UptimeSeconds * float64(time.Second)).Round(time.Second)
		d.ok(name, "%s (%s) runs and is ready, %s, up %v", d.Running.Node.Name, member.ID(d.Running.Node.ID).Short(), d.Running.Node.Version, up)
	}
}

// dataFolder tells whether the data folder can be used, by whom it is, and how much
// fits into it.
func (d *doctor) dataFolder() {
	const name = "data folder"
	dir := d.Config.DataDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		parent := existing(dir)
		if err := unix.Access(parent, unix.W_OK); err != nil {
			d.wrong(name, "make it writable for this user, or choose another folder with --data-dir", "%s is not there and cannot be made in %s: %v", dir, parent, err)
			return
		}
		d.ok(name, "%s is made at the start", dir)
		d.space(parent)
		return
	case err != nil:
		d.wrong(name, "choose another folder with --data-dir", "%v", err)
		return
	case !info.IsDir():
		d.wrong(name, "choose another folder with --data-dir", "%s is no folder", dir)
		return
	}
	f, err := os.CreateTemp(dir, "doctor-*")
	if err != nil {
		d.wrong(name, "make it writable for this user, or choose another folder with --data-dir", "%s cannot be written to: %v", dir, systemCause(err))
		return
	}
	f.Close()
	os.Remove(f.Name())
	if _, err := knownID(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		d.wrong(name, "", "%v", err)
	}
	d.folderUse(dir)
	d.space(dir)
}

// existing is the nearest folder above that is there.
func existing(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return dir
		}
		dir = up
	}
}

// knownID is the id that a data folder gives to its node, if it has one.
func knownID(dir string) (string, error) {
	file := filepath.Join(dir, "node-id")
	if _, err := os.Stat(file); err != nil {
		return "", err
	}
	return nodeID(file)
}

// folderUse tells which process has the data folder.
func (d *doctor) folderUse(dir string) {
	const name = "data folder"
	pid, held := lockedBy(dir)
	process := "another process"
	if pid > 0 {
		process = fmt.Sprintf("process %d", pid)
	}
	id, _ := knownID(dir)
	switch {
	case held && d.Running != nil && id == d.Running.Node.ID:
		d.ok(name, "%s can be written to; the node that runs has it (%s)", dir, process)
	case held:
		d.wrong(name, "stop that process, or choose another folder with --data-dir; if it is a node with another address, give its --listen here", "%s is in use by %s", dir, process)
	case d.Running != nil:
		d.warn(name, "give its --data-dir here, too", "the node that runs has another folder than %s", dir)
	default:
		d.ok(name, "%s can be written to and nobody uses it", dir)
	}
}

// lockedBy tells whether a process has the lock of a data folder, and which, if the
// system tells that. The lock itself is left alone.
func lockedBy(dir string) (pid int, held bool) {
	f, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		return 0, false
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
		return 0, false
	}
	return lockHolder(f), true
}

// space tells whether what a node keeps fits on the disk.
func (d *doctor) space(dir string) {
	const name = "disk"
	free, known := freeSpace(dir)
	if !known {
		return
	}
	left := max(d.Config.KVDisk-bytesIn(filepath.Join(dir, "kv")), 0)
	size := func(n int64) string { return humanize.IBytes(uint64(n)) }
	switch {
	case free < lowSpace:
		d.warn(name, "make room, or choose another folder with --data-dir", "%s are free in %s: models do not fit", size(free), dir)
	case free < left:
		d.warn(name, "make room, or choose a smaller --kv-disk", "%s are free in %s, and kept KV may take %s more", size(free), dir, size(left))
	default:
		d.ok(name, "%s are free, kept KV may take %s more", size(free), size(left))
	}
}

// bytesIn is the size of the files of a folder.
func bytesIn(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // what is not there counts nothing
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// ports tells whether the addresses of this node are free, or its own already.
func (d *doctor) ports(ctx context.Context) {
	runs := func() bool { return d.Running != nil }
	d.port("--listen", d.Config.Listen, []string{"TCP"}, runs)
	asked := d.secret != "" // without the secret it cannot be told whose a port is
	gossip := d.port("--gossip", d.Config.Gossip, []string{"TCP", "UDP"}, func() bool {
		if !runs() || !asked {
			return runs()
		}
		found, err := d.ask(ctx, local(d.Config.Gossip))
		if err != nil || string(found.ID) != d.Running.Node.ID {
			return false
		}
		if asked = found.Refusal == ""; !asked {
			d.warn("secret", "give its --secret or --secret-file here, too", "the node that runs has another one: %s", found.Refusal)
		}
		return true
	})
	d.port("--peer", d.Config.Peer, []string{"TCP", "UDP"}, func() bool {
		if !gossip || !asked {
			return gossip
		}
		ctx, cancel := context.WithTimeout(ctx, connectWithin)
		defer cancel()
		d.peer = []string{local(d.Config.Peer)}
		s, _, _, err := d.tell(ctx, member.ID(d.Running.Node.ID))
		if err == nil {
			s.Close() // and it forgets who asked
		}
		return err == nil
	})
}

// port tells about one address; own tells whether the node that runs here has it.
func (d *doctor) port(flag, addr string, networks []string, own func() bool) bool {
	name := "port of " + flag
	if portOf(addr) == "0" {
		d.ok(name, "%s: any free one is taken", addr)
		return false
	}
	shown := strings.Join(networks, " and ")
	for _, network := range networks {
		err := tryPort(strings.ToLower(network), addr)
		switch {
		case err == nil:
			continue
		case errors.Is(err, syscall.EADDRINUSE) && own():
			d.ok(name, "%s is held by the node that runs (%s)", addr, shown)
			return true
		case errors.Is(err, syscall.EADDRINUSE) && len(d.Config.Join) == 0 && (addr == defaultGossip || addr == defaultPeer):
			d.warn(name, fmt.Sprintf("stop the program that has it, or choose another port with %s", flag), "another program has %s (%s): the node serves alone and no other can join it", addr, network)
		case errors.Is(err, syscall.EADDRINUSE):
			d.wrong(name, fmt.Sprintf("stop the program that has it, or choose another port with %s", flag), "another program has %s (%s)", addr, network)
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			d.wrong(name, fmt.Sprintf("give an address of this machine to %s, or 0.0.0.0 for all", flag), "%s is no address of this machine", addr)
		case errors.Is(err, syscall.EACCES):
			d.wrong(name, fmt.Sprintf("choose a port of 1024 or more with %s", flag), "%s: this user may not have that port", addr)
		default:
			d.wrong(name, fmt.Sprintf("choose another address with %s", flag), "%s: %v", addr, systemCause(err))
		}
		return false
	}
	if d.Running != nil {
		d.warn(name, fmt.Sprintf("give its %s here, too", flag), "%s is free (%s): the node that runs has another address, or serves alone", addr, shown)
		return false
	}
	d.ok(name, "%s is free (%s)", addr, shown)
	return false
}

// tryPort binds an address for a moment.
func tryPort(network, addr string) error {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// local is where this machine itself reaches an address that it is bound to.
func local(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && ip == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// advertised tells by which address others find this node, as gossip itself chooses
// it: a gossip of one, on a port of its own, that joins nobody.
func (d *doctor) advertised() {
	const name = "advertised address"
	host, _, err := net.SplitHostPort(d.Config.Gossip)
	if err != nil {
		return // settings that are no addresses do not get here
	}
	alone, err := identity.New("a gossip of one that nobody joins", d.self)
	if err != nil {
		d.wrong(name, "", "%v", err)
		return
	}
	c, err := cluster.Start(cluster.Config{Self: member.Member{ID: d.self, Name: d.Config.Name, Role: member.Hybrid, Peer: []string{":" + portOf(d.Config.Peer)}},
		Identity: alone, Bind: net.JoinHostPort(host, "0"), Advertise: withoutPort(d.Config.Advertise)})
	if err != nil {
		d.wrong(name, "give an address that others reach with --advertise", "%v", err)
		return
	}
	addr := c.Addr().Addr().Unmap()
	if err := c.Close(); err != nil {
		d.warn(name, "", "%v", err)
	}
	d.reachable(name, addr, interfaceOf(addr))
}

// withoutPort takes the port off an advertised address.
func withoutPort(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// reachable judges an address that others are told; on is its interface, "" if no
// interface of this machine has it.
func (d *doctor) reachable(name string, addr netip.Addr, on string) {
	switch {
	case addr.IsLoopback():
		d.warn(name, "to let other machines join, give --gossip and --peer 0.0.0.0 with their ports, or choose an address with --advertise", "%s: only nodes on this machine reach it", addr)
	case addr.IsLinkLocalUnicast():
		d.warn(name, "get an address by DHCP or set one, or give one with --advertise", "%s: it was made up for want of another, and lasts for this cable only", addr)
	case on == "":
		d.warn(name, "forward the ports of --gossip and --peer (TCP and UDP) from there to here, or give an address of this machine", "%s is no address of this machine", addr)
	case isLoopback(d.Config.Peer):
		d.warn(name, "give --peer the host 0.0.0.0, too", "%s (%s), but --peer %s hears only this machine", addr, on, d.Config.Peer)
	default:
		d.ok(name, "%s (%s)", addr, on)
	}
}

// interfaceOf is the name of the interface that has an address.
func interfaceOf(addr netip.Addr) string {
	list, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range list {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
				return i.Name
			}
		}
	}
	return ""
}

// cluster tells what the node that runs here knows of the others.
func (d *doctor) cluster() {
	if d.Running == nil || len(d.Running.Cluster.Members) == 0 {
		return
	}
	s := d.Running.Cluster
	if s.Quorum {
		d.ok("agreement", "settings can be changed; %s", votersText(len(s.Voters)))
	} else {
		d.wrong("agreement", "bring back the nodes that are missing, or, if they are lost for good, `tandem cluster recover`", "settings cannot be changed: %s", s.Reason)
	}
	for _, m := range s.Members {
		if m.ID != d.Running.Node.ID {
			d.member(m, s.Links)
		}
	}
	for _, p := range s.Problems {
		d.warn("problem", "", "%s", p)
	}
}

func votersText(n int) string {
	if n == 1 {
		return "this node votes alone"
	}
	return strconv.Itoa(n) + " nodes vote"
}

// member tells how another node is, and the way to it.
func (d *doctor) member(m Member, links []PeerLink) {
	name := "node " + m.Name
	switch member.State(m.State) {
	case member.Left:
		d.ok(name, "it has left")
		return
	case member.Failed:
		d.warn(name, "start it, or see why it cannot be reached: `tandem doctor HOST`", "it does not answer")
		return
	}
	for _, l := range links {
		switch {
		case l.ID != m.ID || l.Transport == "":
		case l.Transport == "quic":
			d.ok(name, "%s, QUIC to %s, %.1f ms", m.State, l.Addr, l.RTTMs)
			return
		default:
			d.warn(name, fmt.Sprintf("let UDP pass between the ports of --peer; `tandem doctor %s` tells more", hostOf(l.Addr)), "%s, TCP to %s, %.1f ms: QUIC does not connect", m.State, l.Addr, l.RTTMs)
			return
		}
	}
	d.warn(name, "see why: `tandem doctor HOST`", "%s, and there is no link to it", m.State)
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
