package api

import (
	"net/http"
	"sync"
	"time"
)

// stream is the open body of a response. Producers append whole events; one
// goroutine writes and flushes whatever has gathered since its last write, so a
// client that keeps up gets each event at once, and one that lags gets several in
// one system call. While nothing is appended it writes keep-alive comments.
//
// Memory: at most maxPending and one event wait. Then append blocks, and after the
// write timeout the writer gives up, calls lost and append fails.
type stream struct {
	w        http.ResponseWriter
	rc       *http.ResponseController
	timeout  time.Duration
	interval time.Duration // of keep-alive comments; 0: the format has no comments
	lost     func(error)   // the client is gone

	mu struct {
		sync.Mutex
		pending []byte
		closed  bool
		err     error
	}
	wake chan struct{} // something is pending, or closed
	room chan struct{} // pending was taken, or failed
	done chan struct{} // the writer has ended
}

// newStream sends the head of the answer and starts the writer. close must follow.
func newStream(w http.ResponseWriter, media string, timeout, interval time.Duration, lost func(error)) *stream {
	s := &stream{w: w, rc: http.NewResponseController(w), timeout: timeout, interval: interval, lost: lost,
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{})}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	_ = s.rc.SetWriteDeadline(time.Now().Add(timeout))
	w.WriteHeader(http.StatusOK)
	_ = s.rc.Flush() // a failure shows again at the first write
	go s.run()
	return s
}

// append adds one event, which add appends to the bytes it is given. It blocks
// while too much waits, and fails once the client is gone.
func (s *stream) append(add func([]byte) []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.mu.pending) >= maxPending && s.mu.err == nil {
		s.mu.Unlock()
		<-s.room
		s.mu.Lock()
	}
	if s.mu.err != nil {
		return s.mu.err
	}
	s.mu.pending = add(s.mu.pending)
	signal(s.wake)
	return nil
}

// close writes what is left and waits for the writer's end. It may be called
// again.
func (s *stream) close() error {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	signal(s.wake)
	<-s.done
	return s.mu.err // the writer, its only writer, has ended
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// run is the writer.
func (s *stream) run() {
	defer close(s.done)
	var quiet <-chan time.Time
	var timer *time.Timer
	if s.interval > 0 {
		timer = time.NewTimer(s.interval)
		defer timer.Stop()
		quiet = timer.C
	}
	var spare []byte
	for {
		comment := false
		select {
		case <-s.wake:
		case <-quiet:
			comment = true
		}
		pending, closed := s.take(spare)
		if len(pending) == 0 && comment {
			pending = append(pending, keepAliveComment...)
		}
		if len(pending) > 0 && !s.write(pending) {
			return
		}
		if closed {
			return
		}
		spare = recycle(pending)
		if timer != nil {
			timer.Reset(s.interval)
		}
	}
}

const keepAliveComment = ": keep-alive\n\n"

// take swaps the pending bytes for an empty buffer.
func (s *stream) take(spare []byte) (pending []byte, closed bool) {
	s.mu.Lock()
	pending, s.mu.pending = s.mu.pending, spare[:0]
	closed = s.mu.closed
	s.mu.Unlock()
	signal(s.room)
	return pending, closed
}

// recycle keeps buffers of the usual size and drops those that one large event
// made large.
func recycle(b []byte) []byte {
	if cap(b) > 2*maxPending {
		return nil
	}
	return b
}

// write sends p and says whether the client still takes it.
func (s *stream) write(p []byte) bool {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	_, err := s.w.Write(p)
	if err == nil {
		err = s.rc.Flush()
	}
	if err == nil {
		return true
	}
	s.mu.Lock()
	s.mu.err = errStalled
	s.mu.Unlock()
	signal(s.room)
	s.lost(errStalled)
	return false
}
