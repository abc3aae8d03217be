package cluster

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"tandem/cluster/member"
)

// delegate is what memberlist calls. Most calls come under memberlist's own lock: they
// must not wait, nor call memberlist.
type delegate struct{ c *Cluster }

var (
	_ memberlist.Delegate         = delegate{}
	_ memberlist.EventDelegate    = delegate{}
	_ memberlist.AliveDelegate    = delegate{}
	_ memberlist.ConflictDelegate = delegate{}
	_ memberlist.PingDelegate     = delegate{}
)

// NodeMeta is what this node says of itself. That it fits is checked where it changes.
func (d delegate) NodeMeta(int) []byte {
	b, err := d.c.meta().encode()
	if err != nil {
		d.c.log.Error("gossip: this node cannot be described", "error", err)
	}
	return b
}

// NotifyAlive refuses nodes that describe themselves in a way that nobody understands.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if _, err := member.ParseID(n.Name); err != nil {
		return err
	}
	_, err := decodeMeta(n.Meta)
	return err
}

// NotifyJoin tells of a node that is there now.
func (d delegate) NotifyJoin(n *memberlist.Node) { d.NotifyUpdate(n) }

// NotifyUpdate tells of a node that says something new of itself.
func (d delegate) NotifyUpdate(n *memberlist.Node) {
	if m, err := decodeMeta(n.Meta); err == nil && member.ID(n.Name) != d.c.cfg.Self.ID {
		d.c.table.seen(member.ID(n.Name), addrOf(n), m)
	}
}

// NotifyLeave tells of a node that has failed or left.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	id := member.ID(n.Name)
	e, known := d.c.table.get(id)
	if m, err := decodeMeta(n.Meta); err == nil && m.Leaving {
		d.c.table.left(id, m.Process)
	}
	if !known {
		return
	}
	select {
	case d.c.doubts <- e:
	default: // a whole cluster is lost at once
		d.c.table.gone(e)
	}
}

// NotifyConflict tells of an id at two addresses: most often a restart elsewhere.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	select {
	case d.c.conflicts <- conflict{id: member.ID(existing.Name), known: addrOf(existing), other: addrOf(other)}:
	default: // it comes up again
	}
}

// NotifyPingComplete tells that UDP works to a node and back.
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.c.udp.heard(member.ID(n.Name))
}

// NotifyMsg takes a goodbye.
func (d delegate) NotifyMsg(b []byte) {
	if id, p, err := decodeGoodbye(b); err == nil && id != d.c.cfg.Self.ID {
		d.c.table.left(id, p)
	}
}

// AckPayload adds nothing to answers to pings.
func (delegate) AckPayload() []byte { return nil }

// GetBroadcasts: nothing else is gossiped.
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState: nothing else is exchanged.
func (delegate) LocalState(bool) []byte { return nil }

// MergeRemoteState: nothing else is exchanged.
func (delegate) MergeRemoteState([]byte, bool) {}

func addrOf(n *memberlist.Node) netip.AddrPort {
	a, _ := netip.AddrFromSlice(n.Addr)
	return netip.AddrPortFrom(a.Unmap(), n.Port)
}

// goodbyeVersion begins a message by which a node says that it leaves. It goes over TCP
// to everybody, because memberlist says it over UDP only.
const goodbyeVersion = 1

func encodeGoodbye(id member.ID, p process) []byte {
	raw, _ := hex.DecodeString(string(id))
	return append(append([]byte{goodbyeVersion}, raw...), p[:]...)
}

func decodeGoodbye(b []byte) (member.ID, process, error) {
	r := &reader{rest: b}
	if v := r.u8(); r.err == nil && v != goodbyeVersion {
		return "", process{}, fmt.Errorf("message %d is unknown", v)
	}
	id := member.ID(hex.EncodeToString(r.take(16)))
	var p process
	copy(p[:], r.take(len(p)))
	return id, p, r.err
}

// listLog takes memberlist's log lines. What matters in them is known by other means
// and told in sentences, so they are for those who look for faults in gossip itself;
// all but one: packets that cannot be decrypted are seen nowhere else.
type listLog struct {
	log      *slog.Logger
	problems *problems
}

const undecipherable = "Decrypt packet failed"

var _ io.Writer = listLog{}

func (l listLog) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	l.log.Debug(text)
	if strings.Contains(text, undecipherable) {
		if _, from, ok := strings.Cut(text, "from="); ok {
			host, err := netip.ParseAddrPort(from)
			if err == nil {
				l.problems.set("packets/"+host.Addr().Unmap().String(), fmt.Sprintf("gossip packets from %s are encrypted with another cluster secret and are not read; start the node there with the secret of this cluster", host))
			}
		}
	}
	return len(line), nil
}
