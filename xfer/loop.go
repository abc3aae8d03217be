package xfer

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// loopSession is one end of a connection of a node with itself.
type loopSession struct {
	peer   *loopSession
	first  bool          // opens the odd ids
	queue  chan *loopEnd // streams that the other end has opened
	next   uint64        // id of the next stream; open is called by one at a time
	done   chan struct{} // closed with either end
	finish *sync.Once    // of done, shared by both ends
}

// newLoop makes a connection with both its ends.
func newLoop() (a, b *loopSession) {
	done, finish := make(chan struct{}), new(sync.Once)
	a = &loopSession{first: true, queue: make(chan *loopEnd, acceptMax+1), next: 1, done: done, finish: finish}
	b = &loopSession{queue: make(chan *loopEnd, acceptMax+1), next: 2, done: done, finish: finish}
	a.peer, b.peer = b, a
	return a, b
}

func (s *loopSession) open(ctx context.Context) (rawStream, error) {
	there, back := newPipe(s.done), newPipe(s.done)
	id := s.next
	select {
	case s.peer.queue <- &loopEnd{number: id, in: there, out: back}:
		s.next += 2
		return &loopEnd{number: id, in: back, out: there}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *loopSession) accept() (rawStream, error) {
	select {
	case end := <-s.queue:
		return end, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *loopSession) ours(id uint64) bool     { return id%2 == 1 == s.first }
func (s *loopSession) close(*frame, rawStream) { s.finish.Do(func() { close(s.done) }) }
func (s *loopSession) heard() time.Time        { return time.Now() }
func (s *loopSession) remote() net.Addr        { return Addr{Transport: Loop, Address: "here"} }

// loopEnd is one end of a stream of a loop.
type loopEnd struct {
	number  uint64
	in, out *pipe
}

func (e *loopEnd) id() uint64                        { return e.number }
func (e *loopEnd) Read(p []byte) (int, error)        { return e.in.read(p) }
func (e *loopEnd) Write(p []byte) (int, error)       { return e.out.write(p) }
func (e *loopEnd) SetReadDeadline(t time.Time) error { e.in.setDeadline(&e.in.readBy, t); return nil }
func (e *loopEnd) SetWriteDeadline(t time.Time) error {
	e.out.setDeadline(&e.out.writeBy, t)
	return nil
}
func (e *loopEnd) closeWrite() error { e.out.end(false); return nil }
func (e *loopEnd) stopRead()         { e.in.end(true) }
func (e *loopEnd) reset()            { e.stopRead(); e.out.end(true) }

// pipe is a bounded buffer in one direction.
type pipe struct {
	done <-chan struct{} // the session is over
	mu   sync.Mutex
	// changed is closed and replaced whenever a waiting side may go on.
	changed         chan struct{}
	waiting         int          // sides that wait for changed
	held            bytes.Buffer // at most StreamBufferMax
	ended           bool         // nothing more is written
	dropped         bool         // nobody reads
	readBy, writeBy time.Time
}

func newPipe(done <-chan struct{}) *pipe {
	return &pipe{done: done, changed: make(chan struct{})}
}

// pokeLocked lets both sides look again.
func (p *pipe) pokeLocked() {
	if p.waiting == 0 {
		return
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pipe) end(drop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	if drop {
		p.dropped, p.held = true, bytes.Buffer{}
	}
	p.pokeLocked()
}

func (p *pipe) setDeadline(of *time.Time, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*of = t
	p.pokeLocked()
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.dropped:
			return 0, io.ErrClosedPipe
		case p.held.Len() > 0:
			n, _ := p.held.Read(b)
			p.pokeLocked()
			return n, nil
		case p.ended:
			return 0, io.EOF
		}
		if err := p.waitLocked(&p.readBy); err != nil {
			return 0, err
		}
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for len(b) > 0 {
		if p.ended {
			return written, io.ErrClosedPipe
		}
		if room := StreamBufferMax - p.held.Len(); room > 0 {
			n := min(room, len(b))
			p.held.Write(b[:n])
			b, written = b[n:], written+n
			p.pokeLocked()
			continue
		}
		if err := p.waitLocked(&p.writeBy); err != nil {
			return written, err
		}
	}
	return written, nil
}

// waitLocked waits for a change, without the lock.
func (p *pipe) waitLocked(by *time.Time) error {
	var expired <-chan time.Time
	if !by.IsZero() {
		left := time.Until(*by)
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		expired = timer.C
	}
	changed := p.changed
	p.waiting++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.waiting--
	}()
	select {
	case <-changed:
	case <-expired: // the loop sees it
	case <-p.done:
		return net.ErrClosed
	}
	return nil
}
