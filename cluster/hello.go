package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// How long the parts of a hello may take.
const (
	connectWithin = 3 * time.Second
	askWithin     = 8 * time.Second // an answer; the other side may dial back meanwhile
	checkWithin   = 3 * time.Second // a question that is answered at once
)

// joinsMax is how many nodes may be dialled back at a time.
const joinsMax = 16

// greeting is a hello of this node as it is now.
func (c *Cluster) greeting(k kind) hello {
	c.mu.Lock()
	name, version := c.self.Name, c.self.Version
	c.mu.Unlock()
	h := hello{
		Kind: k, WireMin: c.cfg.WireMin, WireMax: c.cfg.WireMax, Keys: c.keys.ids, Using: c.keys.using(),
		ID: c.cfg.Self.ID, Process: c.process, Clock: c.cfg.now().UnixNano(), Gossip: c.transport.known,
		Name: name, Version: version,
	}
	if c.cfg.ClusterID != nil {
		h.Cluster = c.cfg.ClusterID()
	}
	return h
}

// ask says hello to whoever is at an address and returns both sides of it. The answer is
// proven, or it is a refusal for want of a common secret.
func (c *Cluster) ask(ctx context.Context, at netip.AddrPort, k kind, complaint code, detail string) (mine, theirs hello, err error) {
	within := askWithin
	if k == kindCheck {
		within = checkWithin
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	dialCtx, cancelDial := context.WithTimeout(ctx, connectWithin)
	defer cancelDial()
	conn, err := c.transport.dialStream(dialCtx, at.String())
	if err != nil {
		return mine, theirs, inWords(err, "it does not answer")
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	mine = c.greeting(k)
	mine.Code, mine.Detail = complaint, shorten(detail)
	_, _ = rand.Read(mine.Nonce[:])
	request, err := mine.encode(c.cfg.Identity.MAC, nil)
	if err != nil {
		return mine, theirs, err
	}
	if _, err := conn.Write(request); err != nil {
		return mine, theirs, inWords(err, "it accepts connections and does not read")
	}
	f, err := readFrame(conn)
	if err != nil {
		return mine, theirs, inWords(err, "it accepts connections and does not answer; most likely it is not the gossip port of a node")
	}
	signed := request[:len(request)-macBytes*len(mine.Keys)]
	switch f.proven(c.cfg.Identity, signed) {
	case proofForged:
		return mine, theirs, errors.New("its answer does not prove the secret; something between the nodes changes what they send")
	case proofNone:
		f.Code = codeSecret
	case proofGood:
		if f.Kind != kindAnswer || f.Nonce != mine.Nonce {
			return mine, theirs, errors.New("its answer is to another question")
		}
	}
	return mine, f.hello, nil
}

// inWords is an error of the network for people.
func inWords(err error, silent string) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return errors.New(silent)
	}
	return cause(err)
}

// answer serves one hello from outside.
func (c *Cluster) answer(ctx context.Context, conn net.Conn) {
	from := conn.RemoteAddr().String()
	f, err := readFrame(conn)
	if err != nil || f.Kind == kindAnswer {
		c.log.Debug("gossip: a hello was not understood", "from", from, "error", err)
		return
	}
	a := c.greeting(kindAnswer)
	a.Nonce = f.Nonce
	proof := f.proven(c.cfg.Identity, nil)
	a.Code, a.Detail = c.judge(ctx, f.hello, proof, from)
	a.Using = c.keys.using() // judge may have gone over to one that both know
	b, err := a.encode(c.cfg.Identity.MAC, f.raw)
	if err != nil {
		c.log.Error("gossip: a hello could not be answered", "from", from, "error", err)
		return
	}
	if _, err := conn.Write(b); err != nil {
		c.log.Debug("gossip: the answer to a hello was not taken", "from", from, "error", err)
	}
	c.note(f.hello, a, proof, from)
}

// judge decides whether a node may gossip with this one.
func (c *Cluster) judge(ctx context.Context, h hello, p proof, from string) (code, string) {
	switch {
	case p == proofNone:
		return codeSecret, ""
	case p == proofForged:
		return codeForged, ""
	case h.WireMin > c.cfg.WireMax || h.WireMax < c.cfg.WireMin:
		return codeWire, ""
	case h.Kind == kindCheck:
		c.heard(h, from)
		return codeOK, ""
	case h.Cluster != "" && c.clusterID() != "" && h.Cluster != c.clusterID():
		return codeCluster, ""
	case h.ID == c.cfg.Self.ID && h.Process == c.process:
		return codeSelf, ""
	case h.ID == c.cfg.Self.ID:
		return codeDuplicate, shorten(who(c.cfg.Self.Name, c.cfg.Self.ID, c.transport.known.String()))
	}
	select {
	case c.joins <- struct{}{}:
		defer func() { <-c.joins }()
	default:
		return codeBusy, ""
	}
	if code, detail := c.moved(ctx, h); code != codeOK {
		return code, detail
	}
	if fault := c.leadsTo(ctx, h.Gossip, h); fault != "" {
		return codeUnreachable, fault
	}
	if !c.keys.settle(append(keysOf(c.table.present()), h.Keys)) {
		return codeRotating, ""
	}
	return codeOK, ""
}

func (c *Cluster) clusterID() string {
	if c.cfg.ClusterID == nil {
		return ""
	}
	return c.cfg.ClusterID()
}

// moved tells what to do with a node that is known at another address: it may have been
// restarted there, or two processes have the same id. The one that was there first stays
// if it answers, and learns of the other.
func (c *Cluster) moved(ctx context.Context, h hello) (code, string) {
	e, known := c.table.get(h.ID)
	if !known || !e.present() || e.process == h.Process || e.gossip == h.Gossip {
		return codeOK, ""
	}
	_, there, err := c.ask(ctx, e.gossip, kindCheck, codeDuplicate, h.Gossip.String())
	if err == nil && there.ID == h.ID && there.Process != h.Process {
		return codeDuplicate, shorten(who(there.Name, there.ID, e.gossip.String()))
	}
	return codeWait, e.gossip.String()
}

// leadsTo says what is wrong with an address at which a node says it is, or "".
func (c *Cluster) leadsTo(ctx context.Context, at netip.AddrPort, h hello) string {
	if !at.IsValid() || at.Addr().IsUnspecified() || at.Port() == 0 {
		return "it is no address"
	}
	_, there, err := c.ask(ctx, at, kindCheck, codeOK, "")
	switch {
	case err != nil:
		return shorten(err.Error())
	case there.ID != h.ID:
		return shorten(fmt.Sprintf("%s answers there", who(there.Name, there.ID, at.String())))
	case there.Process != h.Process:
		return "another process of the same node answers there"
	}
	return ""
}

// heard shows what another node says of this one.
func (c *Cluster) heard(h hello, from string) {
	if s := complained(h, from, c.transport.known); s != "" {
		c.problems.set(fmt.Sprintf("told/%d/%s", h.Code, h.ID), s)
	}
}

// note shows what came of a hello. What is not proven is told by where it came from, so
// that nobody can fill the list with names.
func (c *Cluster) note(h, mine hello, p proof, from string) {
	host, _, _ := net.SplitHostPort(from)
	key := "in/" + host
	if p == proofGood {
		key = "in/" + string(h.ID)
		c.noteClock(h, from)
	}
	if s := refusedHere(h, mine, from); s != "" {
		c.problems.set(key, s)
	} else if mine.Code == codeOK && h.Kind == kindJoin {
		c.problems.clear(key)
	}
}

func (c *Cluster) noteClock(h hello, at string) {
	key := "clock/" + string(h.ID)
	if h.ID == c.cfg.Self.ID {
		return
	}
	if s := clockWarning(h, at, c.cfg.now()); s != "" {
		c.problems.set(key, s)
		return
	}
	c.problems.clear(key)
}

// joinError is why a node could not be joined.
type joinError struct {
	code code // codeOK: it was not the other side that refused
	text string
}

func (e *joinError) Error() string { return e.text }

// joinAt makes gossip start with the node at an address and returns its id, which is
// this node's own if it is what answers there.
func (c *Cluster) joinAt(ctx context.Context, at netip.AddrPort) (member.ID, error) {
	mine, theirs, err := c.ask(ctx, at, kindJoin, codeOK, "")
	if err != nil {
		return "", err
	}
	if theirs.Code == codeSelf {
		return c.cfg.Self.ID, nil
	}
	if theirs.Code != codeSecret {
		c.noteClock(theirs, at.String())
	}
	if theirs.Code != codeOK {
		return "", &joinError{theirs.Code, refusedThere(mine, theirs, at.String())}
	}
	if theirs.Gossip != at {
		if fault := c.leadsTo(ctx, theirs.Gossip, theirs); fault != "" {
			_, _, _ = c.ask(ctx, at, kindCheck, codeUnreachable, fault)
			return "", &joinError{codeUnreachable, fmt.Sprintf("%s advertises an address that cannot be used from here, %s: %s; start it with --advertise and an address that others reach", who(theirs.Name, theirs.ID, at.String()), theirs.Gossip, fault)}
		}
	}
	// What the others of that cluster can read is not known yet, but all read what is
	// spoken there.
	if !c.keys.settle(append(keysOf(c.table.present()), []identity.KeyID{theirs.Using})) {
		return "", &joinError{codeRotating, refusedThere(mine, hello{Code: codeRotating, Name: theirs.Name, ID: theirs.ID, Using: theirs.Using}, at.String())}
	}
	if _, err := c.list.Join([]string{string(theirs.ID) + "/" + theirs.Gossip.String()}); err != nil {
		return "", fmt.Errorf("%s: gossip did not start: %w", who(theirs.Name, theirs.ID, at.String()), err)
	}
	return theirs.ID, nil
}

// shorten makes a text fit into a hello.
func shorten(s string) string {
	if !printable(s) {
		s = fmt.Sprintf("%q", s)
	}
	if len(s) <= detailMax {
		return s
	}
	cut := detailMax
	for cut > 0 && s[cut]&0xC0 == 0x80 {
		cut--
	}
	return s[:cut]
}
