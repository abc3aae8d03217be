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
)

// BulkLanes is over how many connections data is spread. One QUIC connection uses
// no more than one core, and one queue of its socket; TLS over TCP gains nothing from
// more than two (BenchmarkBulk).
func BulkLanes(way Transport) int {
	switch way {
	case QUIC:
		return 4
	case TCP:
		return 2
	}
	return 1
}

// streamsMax is how many streams are open at once on a connection.
func (n lane) streamsMax() int {
	if n != controlLane {
		return bulkStreamsMax
	}
	return StreamsMax
}

// patience stretches a time between pings, or until a silent peer is given up, for a
// lane.
func (n lane) patience(d time.Duration) time.Duration {
	if n != controlLane {
		return bulkPatience * d
	}
	return d
}

// bulkKey is one connection of a peer for data.
type bulkKey struct {
	way  Transport
	lane lane
}

// bulkLane is such a connection that this node dials.
type bulkLane struct {
	conn     *conn    // nil: there is none
	dialling *attempt // nil: nobody tries
}

// bulkFailure is why a transport gave no connection for data. It answers for all
// lanes, which have the same way.
type bulkFailure struct {
	err   error
	until time.Time
}

// OpenBulk opens a stream that lives no longer than ctx, as OpenBound does, for much
// data: over a connection of that transport (QUIC or TCP) which carries no tokens.
// number is that of the lane, 0 to BulkLanes(way)-1; each is a connection of its own,
// which is made when it is first needed and kept for a while. Another transport is
// never taken instead: the error says why this one cannot be had, and is the answer of
// the next calls, too, for Timings.RetryBulk or until the peer is connected anew. A
// node's streams to itself take memory, whatever the transport.
func (l *Link) OpenBulk(ctx context.Context, to member.ID, service string, way Transport, number int) (*Stream, error) {
	switch {
	case way != QUIC && way != TCP || number < 0 || number >= BulkLanes(way):
		return nil, fmt.Errorf("open %s: lane %d of transport %q; allowed: 0 to %d of quic, 0 to %d of tcp", service, number, way, BulkLanes(QUIC)-1, BulkLanes(TCP)-1)
	case to == l.cfg.Self:
		return l.OpenBound(ctx, to, service)
	case way == QUIC && l.cfg.TCPOnly:
		return nil, fmt.Errorf("open %s: node %s does not use QUIC", service, l.cfg.Self.Short())
	case l.cfg.Versions.Max < bulkVersion:
		return nil, fmt.Errorf("open %s: node %s speaks %v, which has no connections for data", service, l.cfg.Self.Short(), l.cfg.Versions)
	}
	return l.openLane(ctx, to, service, bulkKey{way, lane(number) + 1})
}

func (l *Link) openLane(ctx context.Context, to member.ID, service string, key bulkKey) (*Stream, error) {
	return l.openBound(ctx, service, func(ctx context.Context) (*conn, error) { return l.bulkConnection(ctx, to, key) })
}

// bulkConnection returns the connection of a lane, and makes it if there is none. Many
// may wait for the same attempt, each with its own context.
func (l *Link) bulkConnection(ctx context.Context, to member.ID, key bulkKey) (*conn, error) {
	for {
		l.mu.Lock()
		c, dialling, err := l.laneLocked(to, key, time.Now())
		l.mu.Unlock()
		if c != nil || err != nil {
			return c, err
		}
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

// laneLocked is the connection of a lane, the attempt that is to be waited for, or
// why there is neither.
func (l *Link) laneLocked(to member.ID, key bulkKey, now time.Time) (*conn, *attempt, error) {
	if l.closed {
		return nil, nil, ErrClosed
	}
	p := l.peerLocked(to)
	b := p.bulk[key]
	if b == nil {
		b = &bulkLane{}
		p.bulk[key] = b
	}
	if b.conn != nil && b.conn.ctx.Err() == nil {
		return b.conn, nil, nil
	}
	if b.dialling == nil {
		if err := p.bulkErrorLocked(key.way, now); err != nil {
			return nil, nil, err
		}
		a := &attempt{done: make(chan struct{})}
		b.dialling = a
		l.wg.Go(func() { l.connectBulk(p, b, key, a) })
	}
	return nil, b.dialling, nil
}

// bulkErrorLocked tells why a transport need not be tried now.
func (p *peer) bulkErrorLocked(way Transport, now time.Time) error {
	if c := p.bestLocked(now); c != nil && c.version < bulkVersion {
		return fmt.Errorf("node %s (program %s) speaks wire version %d, which has no connections for data: update it", p.id.Short(), c.theirs.Program, c.version)
	}
	if f := p.bulkFailed[way]; now.Before(f.until) {
		return f.err
	}
	return nil
}

// connectBulk is the goroutine of one attempt.
func (l *Link) connectBulk(p *peer, b *bulkLane, key bulkKey, a *attempt) {
	defer close(a.done)
	c, err := l.dialBulk(p.id, key)
	if err == nil {
		err = l.adopt(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b.dialling = nil
	switch {
	case err == nil:
		delete(p.bulkFailed, key.way)
	case l.closed:
		a.err = ErrClosed
	default:
		a.err = err
		p.bulkFailed[key.way] = bulkFailure{err, time.Now().Add(l.cfg.Timings.RetryBulk)}
	}
}

// dialBulk connects to a peer by one transport.
func (l *Link) dialBulk(to member.ID, key bulkKey) (*conn, error) {
	addrs := l.cfg.Address(to)
	addrs = addrs[:min(len(addrs), addressesMax)]
	if len(addrs) == 0 {
		return nil, &UnreachableError{Peer: to}
	}
	c, err := l.race(l.ctx, to, key.way, key.lane, addrs)
	var refused *RefusedError
	if err != nil && !errors.As(err, &refused) {
		return nil, &UnreachableError{Peer: to, Errs: flat(err)}
	}
	return c, err
}

// bulkAgainLocked forgets failures that a new connection c for control disproves: of
// its own transport, and all if QUIC passes, as TCP then most likely does, or if the
// peer was started again.
func (p *peer) bulkAgainLocked(c *conn, restarted bool) {
	if c.kind == QUIC || restarted {
		clear(p.bulkFailed)
	}
	delete(p.bulkFailed, c.kind)
}

// roomFor refuses a connection for data beyond those that a peer may dial.
func (l *Link) roomFor(h hello, n lane, addr string) error {
	if n == controlLane {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.peers[h.Node]; p != nil && p.dialledLocked(h.Instance) >= bulkConnsMax {
		return bulkRefusal(l, p.id, addr)
	}
	return nil
}

// dialledLocked is how many connections for data one life of the peer has here.
func (p *peer) dialledLocked(instance uint64) (n int) {
	for _, c := range p.bulkIn {
		if c.theirs.Instance == instance {
			n++
		}
	}
	return n
}

func bulkRefusal(l *Link, peer member.ID, addr string) *RefusedError {
	return &RefusedError{Peer: peer, Addr: addr, Code: CodeBusy,
		Text: fmt.Sprintf("node %s has %d connections for data to node %s, the most that it takes: use those", peer.Short(), bulkConnsMax, l.cfg.Self.Short())}
}

// placeBulkLocked puts a connection for data into its place. Those that said hello at
// the same time may be too many only now.
func (p *peer) placeBulkLocked(c *conn) *RefusedError {
	if c.dialled {
		key := bulkKey{c.kind, c.lane}
		if p.bulk[key] == nil { // the peer was dropped meanwhile, as one for control may be
			p.bulk[key] = &bulkLane{}
		}
		p.bulk[key].conn = c
		return nil
	}
	if p.dialledLocked(c.theirs.Instance) >= bulkConnsMax {
		return bulkRefusal(c.link, c.peer, c.sess.remote().String())
	}
	p.bulkIn = append(p.bulkIn, c)
	return nil
}

// allLocked are all connections of a peer, those for data, too.
func (p *peer) allLocked() []*conn {
	all := append([]*conn(nil), p.conns...)
	for _, b := range p.bulk {
		if b.conn != nil {
			all = append(all, b.conn)
		}
	}
	return append(all, p.bulkIn...)
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
