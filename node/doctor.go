package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tandem/cluster"
	"tandem/cluster/identity"
	"tandem/cluster/member"
	"tandem/xfer"
)

// How a check came out.
const (
	CheckOK      = "ok"
	CheckWarning = "warning" // it works, but worse than it could
	CheckWrong   = "wrong"   // it does not work
)

// Check is one line of a doctor's report.
type Check struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Found  string `json:"found"`
	Remedy string `json:"remedy,omitempty"`
}

// Examination is what a doctor is asked to look at: this machine, or the way to
// another node. It changes nothing, on either side.
type Examination struct {
	Config  Config
	Running *Status // what the node that runs here says of itself; nil: none does
	Silent  error   // why Running is nil although something answers at --listen
	// Peer is host[:gossip port] of another node; "" examines this machine.
	Peer string
	// PeerPort is the port of its peer link; 0 is found out, or guessed.
	PeerPort int
	// Each is called with every check as soon as it is made.
	Each func(Check)
}

// peerWithin bounds the examination of the way to a node that does not answer.
const peerWithin = 10 * time.Second

// Examine makes all checks. The error is about a Peer that is no address; what is
// wrong otherwise is told by the checks.
func Examine(ctx context.Context, e Examination) error {
	d := &doctor{Examination: e}
	if e.Peer == "" {
		defer d.close()
		d.here(ctx)
		return nil
	}
	host, port, err := peerAddress(e.Peer)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, peerWithin)
	defer cancel()
	defer d.close()
	d.way(ctx, host, port)
	return nil
}

// doctor makes the checks of one examination, one after the other.
type doctor struct {
	Examination
	secret   string             // "" if there is none that can be used
	self     member.ID          // made for this examination
	identity *identity.Identity // nil until link
	link     *xfer.Link
	peer     []string // where link finds whom it asks for
	small    int      // bytes of UDP buffers that the kernel granted, if that is little
	wanted   int
}

func (d *doctor) ok(name, found string, args ...any) {
	d.Each(Check{Name: name, State: CheckOK, Found: fmt.Sprintf(found, args...)})
}

func (d *doctor) warn(name, remedy, found string, args ...any) {
	d.Each(Check{Name: name, State: CheckWarning, Found: fmt.Sprintf(found, args...), Remedy: remedy})
}

func (d *doctor) wrong(name, remedy, found string, args ...any) {
	d.Each(Check{Name: name, State: CheckWrong, Found: fmt.Sprintf(found, args...), Remedy: remedy})
}

// readSecret finds the cluster's secret without making one, and checks it.
func (d *doctor) readSecret() {
	const name = "secret"
	text, where := d.Config.Secret, "given as a setting"
	if text == "" {
		file, given := d.Config.SecretFile, true
		if file == "" {
			file, given = filepath.Join(d.Config.DataDir, "secret"), false
		}
		data, err := os.ReadFile(file)
		switch {
		case errors.Is(err, os.ErrNotExist) && !given && d.Peer == "" && d.Running != nil:
			d.warn(name, "give its --secret, --secret-file or --data-dir here, too", "that of the node that runs is not in %s", file)
			return
		case errors.Is(err, os.ErrNotExist) && !given && d.Peer == "":
			d.ok(name, "there is none yet: the first start makes one and keeps it in %s; to join other nodes, give their secret with --secret-file or NODE_SECRET", file)
			return
		case errors.Is(err, os.ErrNotExist) && !given:
			d.wrong(name, "give the secret of the other node's cluster with --secret-file or NODE_SECRET; it is in the file secret of a member's data folder", "there is none in %s, so no other node talks with this one", file)
			return
		case err != nil:
			d.wrong(name, "name a file that can be read with --secret-file", "%v", err)
			return
		}
		text, where = strings.TrimSpace(string(data)), "in "+file
		if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o077 != 0 {
			d.warn(name, "chmod 600 "+file, "%s has mode %04o: others on this machine can read it, and who has the secret is a member", file, info.Mode().Perm())
		}
	}
	if err := identity.CheckSecret(text); err != nil {
		d.wrong(name, "give one of 16 characters or more, the same on all nodes", "%s: %v", where, err)
		return
	}
	d.secret = text
	d.ok(name, "%d characters, %s", len(text), where)
}

// open makes a link on a port of its own. It never has the id of this node, which may
// run: to others that would look as if that had been started again, and end its
// streams.
func (d *doctor) open() error {
	if d.link != nil {
		return nil
	}
	var raw [16]byte
	rand.Read(raw[:])
	d.self = member.ID(hex.EncodeToString(raw[:]))
	secret := d.secret
	if secret == "" {
		secret = rand.Text()
	}
	var err error
	if d.identity, err = identity.New(secret, d.self); err != nil {
		return err
	}
	d.link, err = xfer.Listen(xfer.Config{Self: d.self, Identity: linkIdentity{d.identity}, Listen: ":0", Cluster: d.identity.ClusterKeyID(), Program: Version,
		Address: func(member.ID) []string { return d.peer },
		Buffers: func(wanted, granted int) { d.wanted, d.small = wanted, granted }})
	return err
}

func (d *doctor) close() {
	if d.link == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = d.link.Close(ctx)
}

// ask asks the node at a gossip address who it is.
func (d *doctor) ask(ctx context.Context, addr string) (cluster.Found, error) {
	self := member.Member{ID: d.self, Name: d.Config.Name, Version: Version}
	if d.Running != nil {
		self.Name = d.Running.Node.Name
	}
	return cluster.Probe(ctx, cluster.Config{Self: self, Identity: d.identity}, addr)
}

// buffers tells whether QUIC gets the buffers that it wants.
func (d *doctor) buffers() {
	const name = "UDP buffers"
	if d.small == 0 {
		d.ok(name, "the kernel grants what QUIC wants")
		return
	}
	d.warn(name, "sysctl -w net.core.rmem_max=7500000 net.core.wmem_max=7500000, and the same lines in /etc/sysctl.d/tandem.conf for the next start",
		"QUIC wants %d KiB and the kernel grants %d KiB: fast transfers lose packets and slow down", d.wanted>>10, d.small>>10)
}

// peerAddress reads host[:port], with IPv6 addresses in brackets or bare.
func peerAddress(text string) (host string, port int, err error) {
	if ip := net.ParseIP(strings.Trim(text, "[]")); ip != nil {
		return ip.String(), cluster.DefaultPort, nil
	}
	host, number := text, strconv.Itoa(cluster.DefaultPort)
	if strings.Contains(text, ":") {
		if host, number, err = net.SplitHostPort(text); err != nil {
			host = ""
		}
	}
	port, err = strconv.Atoi(number)
	if host == "" || len(host) > 253 || strings.ContainsAny(host, " /\\\"'<>") || err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%.300q is no address of a node; allowed: host, host:port or [IPv6]:port, with the gossip port", text)
	}
	return host, port, nil
}
