package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"tandem/cluster/member"
)

// Found is what the node at an address says of itself to one that asks.
type Found struct {
	Addr             netip.AddrPort // where it was asked
	ID               member.ID
	Name             string
	Version          string
	WireMin, WireMax uint16
	Cluster          string // its cluster id, "" if it has none
	Gossip           netip.AddrPort
	Took             time.Duration // for connecting and asking, once each
	ClockAhead       time.Duration // of its clock against this one; negative is behind
	Refusal          string        // why it would not gossip with the one who asks, in words
	UDP              error         // why no answer came over UDP, or nil
}

// How UDP is asked: a packet may be lost.
const (
	udpTries  = 3
	udpAnswer = 700 * time.Millisecond
)

// Probe asks the node at an address who it is, over TCP and then UDP, without joining. It
// needs of the Config only Self, Identity, WireMin, WireMax and ClusterID, and no
// Cluster: it is for those who look for faults. A name is resolved to its first address.
func Probe(ctx context.Context, cfg Config, address string) (Found, error) {
	cfg.setDefaults()
	to, err := parseTarget("address", address, DefaultPort)
	if err != nil {
		return Found{}, err
	}
	addrs, err := to.resolve(ctx, net.DefaultResolver)
	if err != nil {
		return Found{}, err
	}
	if len(addrs) == 0 {
		return Found{}, fmt.Errorf("the name %q has no address", to.Host)
	}
	c := &Cluster{cfg: cfg, log: slog.New(slog.DiscardHandler), self: cfg.Self}
	_, _ = rand.Read(c.process[:])
	if c.keys, err = newKeyring(cfg.Identity); err != nil {
		return Found{}, err
	}
	anywhere := netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	c.transport = &transport{local: anywhere, known: anywhere, ctx: ctx}
	return c.probe(ctx, addrs[0])
}

func (c *Cluster) probe(ctx context.Context, at netip.AddrPort) (Found, error) {
	begin := c.cfg.now()
	mine, theirs, err := c.ask(ctx, at, kindCheck, codeOK, "")
	if err != nil {
		return Found{Addr: at}, err
	}
	took := c.cfg.now().Sub(begin)
	f := Found{
		Addr: at, ID: theirs.ID, Name: theirs.Name, Version: theirs.Version, WireMin: theirs.WireMin, WireMax: theirs.WireMax,
		Cluster: theirs.Cluster, Gossip: theirs.Gossip, Took: took, ClockAhead: time.Unix(0, theirs.Clock).Sub(begin.Add(took / 2)),
	}
	if theirs.Code != codeOK {
		f.Refusal = refusedThere(mine, theirs, at.String())
		return f, nil // over UDP it does not answer strangers
	}
	f.UDP = c.askUDP(ctx, at)
	return f, nil
}

// askUDP asks over UDP, from a socket of its own.
func (c *Cluster) askUDP(ctx context.Context, at netip.AddrPort) error {
	// Not connected: a node with several addresses may answer from another one, and the
	// answer proves itself.
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return cause(err)
	}
	defer func() { _ = conn.Close() }()
	mine := c.greeting(kindCheck)
	_, _ = rand.Read(mine.Nonce[:])
	request, err := mine.encode(c.cfg.Identity.MAC, nil)
	if err != nil {
		return err
	}
	signed := request[:len(request)-macBytes*len(mine.Keys)]
	buf := make([]byte, packetBytesMax)
	for range udpTries {
		if _, err = conn.WriteToUDPAddrPort(request, at); err != nil {
			return cause(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(udpAnswer))
		var n int
		if n, _, err = conn.ReadFromUDPAddrPort(buf); err == nil {
			f, frameErr := readFrame(bytes.NewReader(buf[:n]))
			if frameErr == nil && f.Nonce == mine.Nonce && f.proven(c.cfg.Identity, signed) == proofGood {
				return nil
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err == nil {
		return errors.New("what answers over UDP is not the node")
	}
	return inWords(err, fmt.Sprintf("no answer over UDP on port %d within %v", at.Port(), udpTries*udpAnswer))
}

// answerPacket answers a question that came over UDP, if it is proven: the sender of a
// packet may be forged, and strangers get nothing sent anywhere.
func (c *Cluster) answerPacket(packet []byte, from net.Addr) {
	f, err := readFrame(bytes.NewReader(packet))
	if err != nil || f.Kind != kindCheck || f.Code != codeOK || f.proven(c.cfg.Identity, nil) != proofGood {
		return
	}
	a := c.greeting(kindAnswer)
	a.Nonce = f.Nonce
	if b, err := a.encode(c.cfg.Identity.MAC, f.raw); err == nil {
		_, _ = c.transport.udp.WriteTo(b, from)
	}
}
