package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"tandem/cluster/member"
)

// Stream is one conversation with a peer: bytes in order in both directions, each
// with its own end. One goroutine may read while another writes; any may cancel or
// close. Whoever has a stream must Close or Cancel it, except a handler, whose
// return does.
//
// Invariant: the bytes that Read returned, in order, are the first ones that the
// peer wrote, and io.EOF comes only after the peer said how many there were and all
// have been read.
type Stream struct {
	conn   *conn
	raw    rawStream
	opened bool // by this side
	ctx    context.Context
	cancel context.CancelCauseFunc

	readMu   sync.Mutex // held while reading
	received uint64     // bytes, the header included

	writeMu sync.Mutex // held while writing
	sent    uint64     // bytes, the header included

	failed   chan struct{} // closed with failure
	finished chan struct{} // closed with the first finish
	stopped  chan struct{} // closed when the peer reads no more

	mu        sync.Mutex
	service   string
	failure   error  // both directions are over, for this reason
	writeOver error  // nothing more can be written, for this reason
	finish    *frame // how many bytes the peer wrote, and why it stopped
	readOver  bool   // Read has returned the end
	readBy    time.Time
	writeBy   time.Time
	released  bool   // the connection does not know it any more
	atEnd     func() // called once when it is released
}

func newStream(c *conn, raw rawStream, service string, opened bool) *Stream {
	s := &Stream{conn: c, raw: raw, service: service, opened: opened,
		failed: make(chan struct{}), finished: make(chan struct{}), stopped: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	return s
}

// Peer is the node at the other end.
func (s *Stream) Peer() member.ID { return s.conn.peer }

// Service is the name under which the stream was opened.
func (s *Stream) Service() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.service
}

// Transport is what carries the stream.
func (s *Stream) Transport() Transport { return s.conn.kind }

// Context ends when the peer no longer takes part or the stream was closed here;
// context.Cause tells why. What the peer wrote before it finished can still be read.
func (s *Stream) Context() context.Context { return s.ctx }

// Done is closed once nothing more can be read: the stream was closed or cancelled,
// on this side, or cancelled by the peer, or the peer is gone. A handler that gives
// its stream to somebody else waits for it.
func (s *Stream) Done() <-chan struct{} { return s.failed }

// Read reads what the peer wrote. It returns io.EOF after the last byte, a
// *RemoteError if the peer cancelled or failed, *PeerLostError if it is gone,
// net.ErrClosed after Close, *CancelledError after Cancel, and
// os.ErrDeadlineExceeded. A cancel discards what was not read yet.
func (s *Stream) Read(p []byte) (int, error) {
	s.readMu.Lock()
	defer s.readMu.Unlock()
	for {
		if err := s.readError(); err != nil {
			return 0, err
		}
		n, err := s.raw.Read(p)
		s.received += uint64(n)
		s.conn.got.Add(uint64(n))
		if failure := s.failureNow(); failure != nil {
			return 0, failure
		}
		switch {
		case n > 0 || err == nil && len(p) == 0:
			return n, nil
		case err == nil:
			continue
		case isTimeout(err):
			return 0, os.ErrDeadlineExceeded
		}
		return 0, s.readVerdict()
	}
}

// readError is what a Read finds before it starts.
func (s *Stream) readError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failure != nil:
		return s.failure
	case s.readOver:
		return s.endLocked()
	}
	return pastErr(s.readBy)
}

// pastErr is for deadlines that were over before the call: raw streams look at them
// only when they have to wait.
func pastErr(by time.Time) error {
	if !by.IsZero() && !time.Now().Before(by) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// readVerdict finds out why no more bytes come: what tells travels on the control
// stream and may be late.
func (s *Stream) readVerdict() error {
	if !s.await(s.finished) {
		s.reject("a stream ended and nothing said why")
		return s.failureNow()
	}
	s.mu.Lock()
	if s.failure != nil {
		defer s.mu.Unlock()
		return s.failure
	}
	if s.finish.Size != s.received {
		size := s.finish.Size
		s.mu.Unlock()
		s.reject(fmt.Sprintf("a stream ended after %d of %d bytes", s.received, size))
		return s.failureNow()
	}
	s.readOver = true
	err := s.endLocked()
	s.mu.Unlock()
	s.settle()
	return err
}

// endLocked is the end that the peer gave to its direction.
func (s *Stream) endLocked() error {
	if s.finish.Code == CodeOK {
		return io.EOF
	}
	return s.remoteLocked(s.finish)
}

func (s *Stream) remoteLocked(f *frame) error {
	return &RemoteError{Peer: s.conn.peer, Service: s.service, Code: f.Code, Text: f.Text}
}

// await waits for an event or the failure of the stream, for as long as a word on
// the control stream may take.
func (s *Stream) await(event <-chan struct{}) bool {
	timer := time.NewTimer(s.conn.link.cfg.Timings.Header)
	defer timer.Stop()
	select {
	case <-event:
	case <-s.failed:
	case <-timer.C:
		return false
	}
	return true
}

// Write writes p and waits while the peer does not read. It returns ErrPeerDone, or
// the *RemoteError with which the peer ended the stream, once that reads no more;
// else the errors of Read.
func (s *Stream) Write(p []byte) (int, error) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	written := 0
	for {
		if err := s.writeError(); err != nil {
			return written, err
		}
		n, err := s.raw.Write(p[:min(len(p), writeChunkMax)])
		s.sent += uint64(n)
		s.conn.traffic.sent.Add(uint64(n))
		written += n
		p = p[n:]
		if err != nil {
			return written, s.writeVerdict(err)
		}
		if len(p) == 0 {
			return written, nil
		}
	}
}

func (s *Stream) writeError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failure != nil:
		return s.failure
	case s.writeOver != nil:
		return s.writeOver
	}
	return pastErr(s.writeBy)
}

// writeVerdict finds out why a raw write failed.
func (s *Stream) writeVerdict(err error) error {
	if over := s.writeError(); over != nil {
		return over
	}
	if isTimeout(err) {
		return os.ErrDeadlineExceeded
	}
	if !s.await(s.stopped) {
		s.reject(fmt.Sprintf("a write failed and nothing said why: %v", err))
	}
	return s.writeError()
}

// CloseWrite ends this side's direction: the peer reads io.EOF after what was
// written. Reading goes on.
func (s *Stream) CloseWrite() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	if s.failure != nil || s.writeOver != nil {
		defer s.mu.Unlock()
		return s.failure
	}
	s.writeOver = net.ErrClosed
	s.mu.Unlock()
	f := frame{Type: frameFinish, Stream: s.raw.id(), Size: s.sent}
	s.conn.enqueue(func() error {
		if err := s.conn.write(f); err != nil {
			return err
		}
		s.raw.closeWrite()
		return nil
	})
	s.settle()
	return nil
}

// Close ends both directions: the peer gets what was written and can send nothing
// more. It does not wait for the peer.
func (s *Stream) Close() error {
	s.closeWith(CodeOK, "")
	return nil
}

// closeWith ends both directions; the peer reads what was written and then the code.
func (s *Stream) closeWith(code Code, text string) {
	settled, first := s.fail(net.ErrClosed)
	if !first || settled {
		return
	}
	s.conn.enqueue(func() error {
		s.writeMu.Lock() // a Write in progress has been woken
		size := s.sent
		s.writeMu.Unlock()
		if err := s.conn.write(frame{Type: frameFinish, Stream: s.raw.id(), Size: size, Stops: true, Code: code, Text: text}); err != nil {
			return err
		}
		s.raw.closeWrite()
		s.raw.stopRead()
		return nil
	})
}

// Cancel ends both directions at once and tells the peer why: its calls return a
// *RemoteError with CodeCancelled, and the context of its handler ends. What is on
// its way is discarded. It does not wait.
func (s *Stream) Cancel(reason string) {
	s.cancelWith(&CancelledError{Reason: clip(reason, textBytesMax)}, CodeCancelled, reason)
}

// cancelWith ends both directions with an error here and a code there.
func (s *Stream) cancelWith(here error, code Code, text string) {
	settled, first := s.fail(here)
	if !first || settled {
		return
	}
	f := frame{Type: frameCancel, Stream: s.raw.id(), Code: code, Text: text}
	s.conn.enqueue(func() error {
		err := s.conn.write(f)
		s.raw.reset()
		return err
	})
}

// reject cancels a stream whose peer broke the rules.
func (s *Stream) reject(what string) {
	s.mu.Lock()
	err := s.remoteLocked(&frame{Code: CodeProtocol, Text: what})
	s.mu.Unlock()
	s.cancelWith(err, CodeProtocol, what)
}

// fail makes err the end of both directions, unless there is one. It tells whether
// the stream had already ended in both directions, and whether this was the first.
func (s *Stream) fail(err error) (settled, first bool) {
	s.mu.Lock()
	if s.failure != nil {
		defer s.mu.Unlock()
		return s.released, false
	}
	settled = s.released
	s.failure = err
	close(s.failed)
	s.raw.SetReadDeadline(long)
	s.raw.SetWriteDeadline(long)
	s.mu.Unlock()
	s.release(err)
	return settled, true
}

func (s *Stream) failureNow() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// settle releases a stream of which both directions have ended.
func (s *Stream) settle() {
	s.mu.Lock()
	over := s.readOver && s.writeOver != nil
	s.mu.Unlock()
	if over {
		s.release(net.ErrClosed)
	}
}

func (s *Stream) release(cause error) {
	s.mu.Lock()
	done := s.released
	s.released = true
	atEnd := s.atEnd
	s.mu.Unlock()
	if done {
		return
	}
	s.cancel(cause)
	s.conn.release(s)
	if atEnd != nil {
		atEnd()
	}
}

// onFinish takes the word of the peer that its bytes end. It does not wait.
func (s *Stream) onFinish(f frame) {
	s.mu.Lock()
	if s.failure != nil || s.finish != nil && (s.finish.Stops || s.finish.Size != f.Size) {
		s.mu.Unlock()
		return
	}
	if s.finish == nil {
		defer close(s.finished)
	}
	s.finish = &f
	if !f.Stops {
		s.mu.Unlock()
		return
	}
	cause := ErrPeerDone
	if f.Code != CodeOK {
		cause = s.remoteLocked(&f)
	}
	open := s.writeOver == nil
	if open {
		s.writeOver = cause
		s.raw.SetWriteDeadline(long)
	}
	close(s.stopped)
	s.mu.Unlock()
	s.cancel(cause)
	if open {
		s.conn.enqueue(func() error {
			s.writeMu.Lock() // a Write in progress has been woken
			defer s.writeMu.Unlock()
			s.raw.closeWrite()
			return nil
		})
	}
	s.settle()
}

// onCancel takes the cancel of the peer. It does not wait.
func (s *Stream) onCancel(f frame) {
	s.mu.Lock()
	err := s.remoteLocked(&f)
	s.mu.Unlock()
	if _, first := s.fail(err); first {
		s.conn.enqueue(func() error { s.raw.reset(); return nil })
	}
}

// end gives a stream the end that its handler returned.
func (s *Stream) end(err error) {
	var remote *RemoteError
	switch {
	case err == nil:
		s.closeWith(CodeOK, "")
	case errors.As(err, &remote) && remote.Code != CodeOK:
		s.closeWith(remote.Code, remote.Text)
	case errors.Is(err, context.DeadlineExceeded):
		s.closeWith(CodeDeadline, err.Error())
	default:
		s.closeWith(CodeFailed, err.Error())
	}
}

// SetDeadline sets both deadlines; see net.Conn.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline is when a Read gives up; zero: never.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		return s.failure
	}
	s.readBy = t
	return s.raw.SetReadDeadline(t)
}

// SetWriteDeadline is when a Write gives up; zero: never.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.failure != nil:
		return s.failure
	case s.writeOver != nil:
		return nil
	}
	s.writeBy = t
	return s.raw.SetWriteDeadline(t)
}

// LocalAddr is this node.
func (s *Stream) LocalAddr() net.Addr {
	return Addr{ID: s.conn.link.cfg.Self, Transport: s.conn.kind, Address: s.conn.link.Addr()}
}

// RemoteAddr is the peer.
func (s *Stream) RemoteAddr() net.Addr { return s.conn.addr() }

// Addr is the end of a stream: a node, and where it was reached.
type Addr struct {
	ID        member.ID
	Transport Transport
	Address   string
}

// Network is "tandem".
func (a Addr) Network() string { return "tandem" }

func (a Addr) String() string { return string(a.ID) }
