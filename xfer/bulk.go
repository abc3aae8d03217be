package xfer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"tandem/cluster/member"
)

// lane is what a connection is for. Tokens, pings and questions go over those of lane
// 0; each of the others carries much data, and has a connection of its own: nothing
// that it sends waits in one queue with a token.
type lane uint8

const (
	controlLane lane = 0
	// lanesMax is the highest lane.
	lanesMax = 8
	// bulkVersion is the first version of the wire that has lanes.
	bulkVersion = 2

	// Windows of bulk streams: a stream is filled at 10 Gbit/s and 6 ms.
	bulkStreamWindow    = 8 << 20
	bulkStreamWindowMax = 32 << 20
	bulkConnWindow      = 16 << 20
	bulkConnWindowMax   = 64 << 20
	// bulkTCPWindow is fixed, as yamux has it; one stream fills 10 Gbit/s at 3 ms.
	bulkTCPWindow = 4 << 20

	// bulkPatience is how much longer than for tokens a silent connection is waited
	// for: its pings stand in the queue behind data.
	bulkPatience = 3
	// bulkFailedFor is how long a failed attempt answers for the next ones.
	bulkFailedFor = 3 * time.Second
)

// BulkLanes is over how many connections data is spread. One QUIC connection uses
// no more than one core, and one queue of its socket; TLS over TCP fills what there is
// with two.
func BulkLanes(way Transport) int {
	switch way {
	case QUIC:
		return 4
	case TCP:
		return 2
	}
	return 1
}

// bulkKey is one connection of a peer for data.
type bulkKey struct {
	way  Transport
	lane lane
}

// bulkWay is such a connection that this node dials.
type bulkWay struct {
	conn     *conn    // nil: there is none
	dialling *attempt // nil: nobody tries
	failed   error    // of the last attempt
	failedAt time.Time
}

// OpenBulk opens a stream that lives no longer than ctx, as OpenBound does, for much
// data: over a connection of that transport (QUIC or TCP) which carries no tokens.
// lane is 0 to BulkLanes(way)-1; each is a connection of its own, which is made when it
// is first needed and kept for a while. Another transport is never taken instead.
func (l *Link) OpenBulk(ctx context.Context, to member.ID, service string, way Transport, number int) (*Stream, error) {
	if to == l.cfg.Self {
		return l.OpenBound(ctx, to, service)
	}
	if way != QUIC && way != TCP || number < 0 || number >= BulkLanes(way) {
		return nil, fmt.Errorf("open %s: lane %d of transport %q; allowed: 0 to %d of quic or tcp", service, number, way, BulkLanes(way)-1)
	}
	key := bulkKey{way, lane(number) + 1}
	return l.openBound(ctx, service, func(ctx context.Context) (*conn, error) { return l.bulkConnection(ctx, to, key) })
}

// bulkConnection returns the connection of a lane, and makes it if there is none. Many
// may wait for the same attempt, each with its own context.
func (l *Link) bulkConnection(ctx context.Context, to member.ID, key bulkKey) (*conn, error) {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, ErrClosed
		}
		p := l.peerLocked(to)
		w := p.bulk[key]
		if w == nil {
			w = &bulkWay{}
			p.bulk[key] = w
		}
		switch {
		case w.conn != nil && w.conn.ctx.Err() == nil:
			c := w.conn // forget may clear it from now on
			l.mu.Unlock()
			return c, nil
		case w.dialling == nil && w.failed != nil && time.Since(w.failedAt) < bulkFailedFor:
			err := w.failed
			l.mu.Unlock()
			return nil, err
		case w.dialling == nil:
			w.dialling = &attempt{done: make(chan struct{})}
			l.wg.Go(func() { l.connectBulk(p, w, key, w.dialling) })
		}
		dialling := w.dialling
		l.mu.Unlock()
		select {
		case <-dialling.done:
			if dialling.err != nil {
				return nil, dialling.err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to node %s for data: %w", to.Short(), context.Cause(ctx))
		}
	}
}

// connectBulk is the goroutine of one attempt.
func (l *Link) connectBulk(p *peer, w *bulkWay, key bulkKey, a *attempt) {
	defer close(a.done)
	addrs := l.cfg.Address(p.id)
	addrs = addrs[:min(len(addrs), addressesMax)]
	failed := &UnreachableError{Peer: p.id}
	var c *conn
	var err error = failed
	if len(addrs) > 0 {
		c, err = l.race(l.ctx, p.id, key.way, key.lane, addrs)
	}
	var refused *RefusedError
	switch {
	case err == nil && c.version < bulkVersion:
		err = fmt.Errorf("node %s (program %s) knows no connections for data: update it", p.id.Short(), c.theirs.Program)
		c.fail(err, &frame{Type: frameBye, Code: CodeVersion, Text: err.Error()})
	case err != nil && !errors.As(err, &refused):
		failed.Errs = flat(err)
		err = failed
	}
	if err == nil {
		err = l.adopt(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w.dialling = nil
	if err != nil {
		if l.closed {
			err = ErrClosed
		}
		a.err, w.failed, w.failedAt = err, err, time.Now()
		return
	}
	w.failed = nil
}

// allLocked are all connections of a peer, those for data, too.
func (p *peer) allLocked() []*conn {
	all := append([]*conn(nil), p.conns...)
	for _, w := range p.bulk {
		if w.conn != nil {
			all = append(all, w.conn)
		}
	}
	return append(all, p.bulkIn...)
}

// adoptBulkLocked puts a connection for data into its place. Its error is the refusal
// of one too many.
func (p *peer) adoptBulkLocked(c *conn) error {
	if c.dialled {
		w := p.bulk[bulkKey{c.kind, c.lane}]
		if w == nil { // the peer was dropped meanwhile
			return ErrClosed
		}
		w.conn = c
		return nil
	}
	if len(p.bulkIn) >= bulkConnsMax {
		return &RefusedError{Peer: c.peer, Addr: c.sess.remote().String(), Code: CodeBusy,
			Text: fmt.Sprintf("node %s has %d connections for data here already, the most allowed", c.peer.Short(), bulkConnsMax)}
	}
	p.bulkIn = append(p.bulkIn, c)
	return nil
}

// BulkStatus is how data goes between this node and a peer over one transport.
type BulkStatus struct {
	Transport   Transport
	Connections int    // of both sides
	Sent, Got   uint64 // bytes of streams, on connections that are open
}

// bulkLocked sums the connections for data.
func (p *peer) bulkLocked() (out []BulkStatus) {
	for _, t := range []Transport{QUIC, TCP} {
		s := BulkStatus{Transport: t}
		for _, c := range p.allLocked() {
			if c.kind == t && c.lane != controlLane {
				s.Connections++
				s.Sent += c.sent.Load()
				s.Got += c.got.Load()
			}
		}
		if s.Connections > 0 {
			out = append(out, s)
		}
	}
	return out
}

// traffic counts bytes of the streams of a connection.
type traffic struct{ sent, got atomic.Uint64 }
