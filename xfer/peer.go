package xfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"tandem/cluster/member"
)

// peer is what the link knows of one other node; guarded by Link.mu.
type peer struct {
	id       member.ID
	conns    []*conn // for control
	dialling *attempt
	changed  chan struct{} // closed and replaced with each new connection for control

	bulk       map[bulkKey]*bulkLane // for data, that this node dials
	bulkIn     []*conn               // for data, that the peer dialled
	bulkFailed map[Transport]bulkFailure

	// quicDown is since when QUIC has failed where TCP did not; zero if it has not.
	quicDown, quicNext time.Time
	quicError          string
	lastError          string
	lastErrorAt        time.Time
}

// attempt is a dial in progress, shared by all who wait for it.
type attempt struct {
	done chan struct{}
	err  error // readable after done
}

// PeerStatus is how the link to one peer is.
type PeerStatus struct {
	ID          member.ID
	Transport   Transport     // of new streams; "" without a connection
	Addr        string        // where the peer is reached now
	RTT         time.Duration // smoothed; 0 until it is known
	Streams     int           // open ones, of both sides and all connections
	Connections int
	Since       time.Time // of the connection
	Version     uint16    // of the wire
	Program     string    // the peer's version of the program
	Fallback    string    // a sentence, if TCP is used because QUIC does not connect
	LastError   string
	LastErrorAt time.Time
	Bulk        []BulkStatus // connections for data
}

// peerLocked finds or makes the entry of a peer.
func (l *Link) peerLocked(id member.ID) *peer {
	p := l.peers[id]
	if p == nil {
		p = &peer{id: id, changed: make(chan struct{}), bulk: map[bulkKey]*bulkLane{}, bulkFailed: map[Transport]bulkFailure{}}
		l.peers[id] = p
	}
	return p
}

// diallingLocked tells whether an attempt is in progress. It puts its connection into
// this entry: in another one it could push out a connection that nobody would close.
func (p *peer) diallingLocked() bool {
	for _, b := range p.bulk {
		if b.dialling != nil {
			return true
		}
	}
	return p.dialling != nil
}

// bestLocked is the connection for new streams: both ends order them in the same
// way, so the others can be retired. Suspects are passed over.
func (p *peer) bestLocked(now time.Time) *conn {
	for _, c := range p.rankedLocked() {
		if c.ctx.Err() == nil && !c.suspect(now) {
			return c
		}
	}
	return nil
}

func (p *peer) rankedLocked() []*conn {
	return slices.SortedFunc(slices.Values(p.conns), func(a, b *conn) int {
		return cmp.Or(cmp.Compare(rank(a.kind), rank(b.kind)), cmp.Compare(b.stamp, a.stamp), cmp.Compare(a.dialler(), b.dialler()))
	})
}

func rank(t Transport) int {
	if t == QUIC {
		return 0
	}
	return 1
}

// dialler is who made the connection.
func (c *conn) dialler() member.ID {
	if c.dialled {
		return c.link.cfg.Self
	}
	return c.peer
}

// connection returns a connection of a peer and makes one if there is none. Many may
// wait for the same attempt, each with its own context.
func (l *Link) connection(ctx context.Context, to member.ID) (*conn, error) {
	if to == l.cfg.Self {
		return l.loop, nil
	}
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, ErrClosed
		}
		p := l.peerLocked(to)
		if c := p.bestLocked(time.Now()); c != nil {
			l.mu.Unlock()
			return c, nil
		}
		if p.dialling == nil {
			p.dialling = &attempt{done: make(chan struct{})}
			l.wg.Go(func() { l.connect(p, p.dialling) })
		}
		dialling, changed := p.dialling, p.changed
		l.mu.Unlock()
		select {
		case <-dialling.done:
			if dialling.err != nil {
				return nil, dialling.err
			}
		case <-changed: // the peer was faster
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to node %s: %w", to.Short(), context.Cause(ctx))
		}
	}
}

// connect is the goroutine of one attempt.
func (l *Link) connect(p *peer, a *attempt) {
	defer close(a.done)
	c, err := l.dial(l.ctx, p)
	if err == nil {
		err = l.adopt(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.dialling = nil
	if err != nil {
		if l.closed {
			err = ErrClosed
		}
		a.err = err
		p.lastError, p.lastErrorAt = err.Error(), time.Now()
	}
}

// adopt puts a connection into the pool and starts it. Those to an earlier life of
// the peer end.
func (l *Link) adopt(c *conn) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		c.fail(ErrClosed, &frame{Type: frameBye, Code: CodeClosing, Text: "the node shuts down"})
		return ErrClosed
	}
	p := l.peerLocked(c.peer)
	var stale []*conn
	for _, old := range p.allLocked() {
		if old.theirs.Instance != c.theirs.Instance {
			stale = append(stale, old)
		}
	}
	place := p.placeLocked
	if c.lane != controlLane {
		place = p.placeBulkLocked
	}
	wasDown := !p.quicDown.IsZero()
	if err := place(c); err != nil {
		l.mu.Unlock()
		c.fail(err, &frame{Type: frameBye, Code: err.Code, Text: err.Text})
		return err
	}
	recovered := wasDown && p.quicDown.IsZero()
	l.mu.Unlock()
	for _, old := range stale {
		old.fail(old.lostBecause("it was started again", nil), nil)
	}
	if recovered {
		l.log.Info("QUIC connects again", "peer", c.peer, "addr", c.sess.remote().String())
	}
	if !c.start() {
		c.fail(ErrClosed, nil)
		return ErrClosed
	}
	l.log.Debug("peer connected", "peer", c.peer, "addr", c.sess.remote().String(), "transport", c.kind, "lane", c.lane, "dialled", c.dialled)
	if c.lane == controlLane {
		l.tell(c.peer)
	}
	return nil
}

// placeLocked puts a connection for control into its place, or refuses it.
func (p *peer) placeLocked(c *conn) *RefusedError {
	same, restarted := 0, false
	for _, old := range p.allLocked() {
		switch {
		case old.theirs.Instance != c.theirs.Instance:
			restarted = true
		case old.lane == controlLane:
			same++
		}
	}
	if same >= connsMax {
		return &RefusedError{Peer: c.peer, Addr: c.sess.remote().String(), Code: CodeBusy,
			Text: fmt.Sprintf("nodes %s and %s have %d connections already: use one of them", c.link.cfg.Self.Short(), c.peer.Short(), connsMax)}
	}
	p.conns = append(p.conns, c)
	close(p.changed)
	p.changed = make(chan struct{})
	if c.kind == QUIC {
		p.quicDown, p.quicNext, p.quicError = time.Time{}, time.Time{}, ""
	}
	p.bulkAgainLocked(c, restarted)
	return nil
}

// forget takes a connection out of the pool.
func (l *Link) forget(c *conn, err error) {
	l.mu.Lock()
	p := l.peers[c.peer]
	known := false
	if p != nil {
		if b := p.bulk[bulkKey{c.kind, c.lane}]; b != nil && b.conn == c {
			b.conn = nil
		}
		p.bulkIn = slices.DeleteFunc(p.bulkIn, func(o *conn) bool { return o == c })
		if i := slices.Index(p.conns, c); i >= 0 {
			known = true
			p.conns = slices.Delete(p.conns, i, i+1)
			p.lastError, p.lastErrorAt = err.Error(), time.Now()
		}
	}
	l.mu.Unlock()
	if known {
		l.log.Debug("peer disconnected", "peer", c.peer, "err", err)
		l.tell(c.peer)
	}
}

func (l *Link) tell(id member.ID) {
	if l.cfg.Changed != nil {
		l.cfg.Changed(id)
	}
}

// Peers says how the link to each peer is, sorted by id: those with a connection, and
// those to which one was tried.
func (l *Link) Peers() []PeerStatus {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []PeerStatus
	for id, p := range l.peers {
		status := PeerStatus{ID: id, LastError: p.lastError, LastErrorAt: p.lastErrorAt, Connections: len(p.conns), Bulk: p.bulkLocked()}
		best := p.bestLocked(now)
		for _, c := range p.rankedLocked() {
			if best == nil {
				best = c
			}
			c.mu.Lock()
			status.Streams += len(c.streams)
			c.mu.Unlock()
		}
		if best != nil {
			best.mu.Lock()
			status.RTT = best.rtt
			best.mu.Unlock()
			status.Transport, status.Addr, status.Since = best.kind, best.sess.remote().String(), best.since
			status.Version, status.Program = best.version, best.theirs.Program
		}
		if !p.quicDown.IsZero() && status.Transport != QUIC {
			status.Fallback = p.quicError
		}
		out = append(out, status)
	}
	slices.SortFunc(out, func(a, b PeerStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// tend retires connections that nobody prefers and tries to get back to QUIC.
func (l *Link) tend() {
	ticker := time.NewTicker(min(l.cfg.Timings.Retire, l.cfg.Timings.Retry) / 8)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		l.tendAt(time.Now())
	}
}

func (l *Link) tendAt(now time.Time) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	var retired []*conn
	for _, p := range l.peers {
		for _, b := range p.bulk {
			if b.conn != nil && b.conn.idleFor(now) >= l.cfg.Timings.RetireBulk {
				retired = append(retired, b.conn)
			}
		}
		best := p.bestLocked(now)
		if best == nil {
			continue
		}
		ours := false
		for _, c := range p.conns {
			ours = ours || c.dialled
			if c != best && c.dialled && c.idleFor(now) >= l.cfg.Timings.Retire && now.Sub(best.since) >= l.cfg.Timings.Retire {
				retired = append(retired, c)
			}
		}
		if best.kind == TCP && ours && !l.cfg.TCPOnly && p.dialling == nil && now.After(p.quicNext) {
			p.quicNext = now.Add(l.cfg.Timings.Retry)
			l.wg.Go(func() { l.upgrade(p) })
		}
	}
	l.mu.Unlock()
	for _, c := range retired {
		why := "another connection is used"
		if c.lane != controlLane {
			why = "it was not used for a while"
		}
		c.fail(c.lostBecause(why, nil), &frame{Type: frameBye, Code: CodeClosing, Text: why})
	}
}

// idleFor is for how long a connection has had no stream.
func (c *conn) idleFor(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) > 0 {
		return 0
	}
	return now.Sub(c.idleSince)
}
