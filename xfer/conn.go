package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"tandem/cluster/member"
)

// conn is a connection after both hellos. It has four goroutines, which its link
// waits for: accept takes streams, listen reads control frames, speak alone writes
// them, keep pings and notices silence. None of them waits for a handler or for a
// reader of a stream.
type conn struct {
	link *Link
	peer member.ID
	kind Transport
	lane lane
	traffic
	sess    session
	control rawStream
	dialled bool // by this side
	theirs  hello
	version uint16
	stamp   uint64
	since   time.Time

	keepAlive, deadAfter time.Duration

	ctx    context.Context // ends with the connection; its cause says why
	cancel context.CancelCauseFunc

	places  chan struct{} // one for each stream that is open from here
	opening chan struct{} // held by who opens a stream, so that ids ascend
	awake   chan struct{} // there is work

	mu sync.Mutex
	// streams are those that control frames may be about.
	streams map[uint64]*Stream
	serving int // handlers that run
	// highest is the last id that the peer has opened, if seen. early holds ends of
	// streams beyond it: control frames overtake.
	highest    uint64
	seen       bool
	early      map[uint64][]frame
	earlyCount int
	work       []func() error // for speak
	lost       error          // why the connection ended
	idleSince  time.Time      // of the last stream

	nonce    uint64
	pings    map[uint64]*ping
	rtt      time.Duration // smoothed
	floor    time.Time     // silence before it does not count
	lastPing time.Time
}

// ping is one that has no answer yet.
type ping struct {
	sent     time.Time
	answered chan time.Duration // has room for one; nil if nobody waits
}

func newConn(l *Link, peer member.ID, kind Transport, n lane, sess session, control rawStream, dialled bool, theirs hello) *conn {
	now := time.Now()
	c := &conn{link: l, peer: peer, kind: kind, lane: n, sess: sess, control: control, dialled: dialled, theirs: theirs, since: now, idleSince: now, floor: now,
		places: make(chan struct{}, min(int(min(theirs.Streams, StreamsMax)), n.streamsMax())), opening: make(chan struct{}, 1), awake: make(chan struct{}, 1),
		streams: map[uint64]*Stream{}, early: map[uint64][]frame{}, pings: map[uint64]*ping{}}
	c.deadAfter = n.patience(min(l.cfg.Timings.DeadAfter, theirs.Idle))
	c.keepAlive = min(n.patience(l.cfg.Timings.KeepAlive), c.deadAfter/3)
	c.ctx, c.cancel = context.WithCancelCause(l.ctx)
	if !sess.ours(control.id()) {
		c.highest, c.seen = control.id(), true
	}
	if q, ok := control.(quicStream); ok {
		q.promote()
	}
	control.SetReadDeadline(time.Time{})
	control.SetWriteDeadline(time.Time{})
	return c
}

// start runs the goroutines. It tells false if the link has been closed.
func (c *conn) start() bool {
	return c.link.start(c.accept) && c.link.start(c.listen) && c.link.start(c.speak) && c.link.start(c.keep)
}

func (c *conn) addr() Addr {
	return Addr{ID: c.peer, Transport: c.kind, Address: c.sess.remote().String()}
}

// lostBecause is the error of all streams when the connection ends.
func (c *conn) lostBecause(why string, cause error) *PeerLostError {
	return &PeerLostError{Peer: c.peer, Addr: c.sess.remote().String(), Transport: c.kind, Why: why, Err: cause}
}

// lostWith explains an error of the transport.
func (c *conn) lostWith(err error) *PeerLostError {
	var application *quic.ApplicationError
	var reset *quic.StatelessResetError
	switch {
	case errors.As(err, &application) && application.Remote:
		return c.lostBecause("it closed the connection: "+application.ErrorMessage, err)
	case errors.As(err, &reset):
		return c.lostBecause("it does not know the connection; it was started again", err)
	case errors.Is(err, io.EOF):
		return c.lostBecause("it closed the connection", err)
	}
	return c.lostBecause(err.Error(), err)
}

// fail ends the connection and all its streams, once. goodbye, if any, is told to
// the peer.
func (c *conn) fail(err error, goodbye *frame) {
	c.mu.Lock()
	if c.lost != nil {
		c.mu.Unlock()
		return
	}
	c.lost = err
	streams := make([]*Stream, 0, len(c.streams))
	for _, s := range c.streams {
		streams = append(streams, s)
	}
	c.mu.Unlock()
	c.cancel(err)
	c.link.forget(c, err)
	for _, s := range streams {
		s.fail(err)
	}
	c.sess.close(goodbye, c.control)
}

// broken ends a connection because the transport did. A goodbye may lie unread on
// the control stream and tells more: listen has a moment to find it.
func (c *conn) broken(err error) {
	timer := time.NewTimer(byeTimeout)
	defer timer.Stop()
	select {
	case <-c.ctx.Done():
	case <-timer.C:
	}
	c.fail(c.lostWith(c.explain(err)), nil)
}

// open makes a stream of a service. It waits while too many are open.
func (c *conn) open(ctx context.Context, service string, within time.Duration) (*Stream, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case c.places <- struct{}{}:
	default:
		if err := c.awaitPlace(ctx, service); err != nil {
			return nil, err
		}
	}
	s, err := c.openPlaced(ctx, service)
	if err != nil {
		<-c.places
		return nil, err
	}
	if by, ok := ctx.Deadline(); ok {
		s.SetWriteDeadline(by)
	}
	if _, err := s.Write(appendHeader(nil, header{Service: service, Within: within})); err != nil {
		s.Cancel("its header could not be sent")
		return nil, fmt.Errorf("open %s of node %s: %w", service, c.peer.Short(), err)
	}
	s.SetWriteDeadline(time.Time{})
	return s, nil
}

// awaitPlace waits until one of the streams that use up all places is over.
func (c *conn) awaitPlace(ctx context.Context, service string) error {
	select {
	case c.places <- struct{}{}:
		return nil
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-ctx.Done():
		return fmt.Errorf("open %s of node %s: %d streams are open, the most that it takes: %w", service, c.peer.Short(), cap(c.places), context.Cause(ctx))
	}
}

func (c *conn) openPlaced(ctx context.Context, service string) (*Stream, error) {
	select {
	case c.opening <- struct{}{}:
		defer func() { <-c.opening }()
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	raw, err := c.sess.open(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.broken(err)
			err = context.Cause(c.ctx)
		}
		return nil, err
	}
	s := newStream(c, raw, service, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost != nil {
		s.cancel(c.lost)
		return nil, c.lost
	}
	c.streams[raw.id()] = s
	return s, nil
}

// release forgets a stream.
func (c *conn) release(s *Stream) {
	c.mu.Lock()
	delete(c.streams, s.raw.id())
	if len(c.streams) == 0 {
		c.idleSince = time.Now()
	}
	c.mu.Unlock()
	if s.opened {
		<-c.places
	}
}

// accept takes the streams of the peer.
func (c *conn) accept() {
	for {
		raw, err := c.sess.accept()
		if err != nil {
			c.broken(err)
			return
		}
		if err := c.admit(raw); err != nil {
			c.breach(err)
			return
		}
	}
}

// breach ends a connection whose peer broke the rules.
func (c *conn) breach(err error) {
	c.fail(c.lostBecause("it broke the protocol: "+err.Error(), err), &frame{Type: frameBye, Code: CodeProtocol, Text: err.Error()})
}

func (c *conn) admit(raw rawStream) error {
	id := raw.id()
	s := newStream(c, raw, "a stream", false)
	c.mu.Lock()
	if c.lost != nil {
		c.mu.Unlock()
		s.cancel(nil)
		return nil
	}
	if c.lane != controlLane && c.dialled {
		c.mu.Unlock()
		s.cancel(nil)
		return protocolErrorf("it opened stream %d on a connection for data, which only the dialler may do", id)
	}
	if c.sess.ours(id) || c.seen && id <= c.highest {
		c.mu.Unlock()
		s.cancel(nil)
		return protocolErrorf("it opened stream %d after stream %d", id, c.highest)
	}
	c.highest, c.seen = id, true
	c.streams[id] = s
	early := c.early[id]
	delete(c.early, id)
	c.earlyCount -= len(early)
	full := c.serving >= acceptMax
	if !full {
		c.serving++
	}
	c.mu.Unlock()
	for _, f := range early {
		s.on(f)
	}
	switch {
	case full:
		s.cancelWith(net.ErrClosed, CodeBusy, fmt.Sprintf("%d streams of this peer are being served, the most allowed: try again later", acceptMax))
	case !c.link.start(func() { c.serve(s) }):
		s.cancelWith(ErrClosed, CodeClosing, "the node shuts down")
	}
	return nil
}

// serve reads the header of a stream and runs its handler.
func (c *conn) serve(s *Stream) {
	defer func() {
		c.mu.Lock()
		c.serving--
		c.mu.Unlock()
	}()
	s.SetReadDeadline(time.Now().Add(c.link.cfg.Timings.Header))
	h, err := readHeader(s)
	if err != nil {
		if s.failureNow() == nil {
			s.reject(fmt.Sprintf("a stream without a header: %v", err))
		}
		return
	}
	s.mu.Lock()
	s.service = h.Service
	s.mu.Unlock()
	handler := c.link.handler(h.Service)
	if handler == nil {
		text := fmt.Sprintf("node %s (program %s) has no service %q: update the older program", c.link.cfg.Self.Short(), c.link.cfg.Program, h.Service)
		s.cancelWith(net.ErrClosed, CodeNoService, text)
		return
	}
	s.SetReadDeadline(time.Time{})
	ctx, cancel := s.ctx, context.CancelFunc(func() {})
	if h.Within > 0 {
		ctx, cancel = context.WithTimeout(ctx, h.Within)
	}
	defer cancel()
	s.end(handler(ctx, s))
}

// on takes a control frame about a stream.
func (s *Stream) on(f frame) {
	if f.Type == frameCancel {
		s.onCancel(f)
		return
	}
	s.onFinish(f)
}

// listen reads the control stream.
func (c *conn) listen() {
	for {
		f, err := readFrame(c.control)
		var breach protocolError
		switch {
		case errors.As(err, &breach):
			c.breach(breach)
			return
		case err != nil:
			c.fail(c.lostWith(c.explain(err)), nil)
			return
		}
		if err := c.take(f); err != nil {
			c.breach(err)
			return
		}
	}
}

// explain looks for what lies behind an error of the control stream.
func (c *conn) explain(err error) error {
	if t, ok := c.sess.(*tcpSession); ok {
		return t.explain(err)
	}
	return err
}

// take does what a control frame says. It does not wait.
func (c *conn) take(f frame) error {
	switch f.Type {
	case framePing:
		c.enqueue(func() error { return c.write(frame{Type: framePong, Nonce: f.Nonce}) })
	case framePong:
		c.onPong(f.Nonce)
	case frameFinish, frameCancel:
		return c.route(f)
	case frameBye, frameRefuse:
		c.fail(c.lostBecause("it closed the connection: "+f.Text, nil), nil)
	case frameHello:
		return protocolErrorf("a second hello")
	}
	return nil
}

// route finds the stream of a frame. Frames about streams that are over here are
// late; those about streams that have not come yet are kept.
func (c *conn) route(f frame) error {
	c.mu.Lock()
	s := c.streams[f.Stream]
	if s == nil && !c.sess.ours(f.Stream) && (!c.seen || f.Stream > c.highest) {
		defer c.mu.Unlock()
		if c.earlyCount >= earlyMax {
			return protocolErrorf("it ended %d streams that it did not open", earlyMax)
		}
		c.early[f.Stream] = append(c.early[f.Stream], f)
		c.earlyCount++
		return nil
	}
	c.mu.Unlock()
	if s != nil {
		s.on(f)
	}
	return nil
}

// enqueue gives speak something to do. It does not wait.
func (c *conn) enqueue(do func() error) {
	c.mu.Lock()
	if c.lost != nil {
		c.mu.Unlock()
		return
	}
	full := len(c.work) >= workMax
	if !full {
		c.work = append(c.work, do)
	}
	c.mu.Unlock()
	if full {
		c.fail(c.lostBecause(fmt.Sprintf("it leaves %d control frames unread", workMax), nil), nil)
		return
	}
	select {
	case c.awake <- struct{}{}:
	default:
	}
}

// speak writes control frames and ends directions of streams, in order. What it does
// may wait for the network, but never for a reader.
func (c *conn) speak() {
	for {
		select {
		case <-c.awake:
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		work := c.work
		c.work = nil
		c.mu.Unlock()
		for _, do := range work {
			if err := do(); err != nil {
				c.broken(err)
				return
			}
		}
	}
}

// write writes a control frame; only speak may.
func (c *conn) write(f frame) error {
	_, err := c.control.Write(appendFrame(nil, f))
	return err
}
