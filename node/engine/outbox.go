package engine

import (
	"sync"
	"time"
)

// outbox carries the tokens of one sequence from the owner goroutine, which never
// waits, to the one goroutine that reads them.
//
// Invariant: full is set when the limit is reached and cleared when at most half
// of it is left; while it is set, the owner adds nothing.
type outbox struct {
	limit int
	now   func() time.Time
	wake  chan struct{} // one slot: there is something to look at

	mu struct {
		sync.Mutex
		outputs []Output
		head    int // first unread output
		full    bool
		parked  bool      // set by the owner, cleared when something is read
		since   time.Time // unread outputs wait since then: nothing was read later
		result  Result    // so far
		closed  bool
		err     error // of a sequence that did not end by itself
	}
}

// boxState says what take found.
type boxState int

const (
	boxEmpty boxState = iota
	boxOutput
	boxOutputResume // the sequence that paused or was parked may go on
	boxClosed
)

// put adds one output and the state of the sequence after it. The result says
// whether the sequence must pause.
func (o *outbox) put(out Output, r *Result, now time.Time) (full bool) {
	o.mu.Lock()
	if o.mu.head > 0 && len(o.mu.outputs) == cap(o.mu.outputs) {
		n := copy(o.mu.outputs, o.mu.outputs[o.mu.head:])
		clear(o.mu.outputs[n:])
		o.mu.outputs, o.mu.head = o.mu.outputs[:n], 0
	}
	if len(o.mu.outputs) == o.mu.head {
		o.mu.since = now
	}
	o.mu.outputs = append(o.mu.outputs, out)
	o.mu.result = *r
	o.mu.full = len(o.mu.outputs)-o.mu.head >= o.limit
	full = o.mu.full
	o.mu.Unlock()
	o.signal()
	return full
}

// take removes the oldest output.
func (o *outbox) take() (Output, boxState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	unread := len(o.mu.outputs) - o.mu.head
	if unread == 0 {
		if o.mu.closed {
			return Output{}, boxClosed
		}
		return Output{}, boxEmpty
	}
	out := o.mu.outputs[o.mu.head]
	o.mu.outputs[o.mu.head] = Output{}
	o.mu.head++
	if unread == 1 {
		o.mu.outputs, o.mu.head = o.mu.outputs[:0], 0
	}
	resume := o.mu.parked
	o.mu.parked, o.mu.since = false, o.now()
	if o.mu.full && unread-1 <= o.limit/2 {
		o.mu.full, resume = false, true
	}
	if resume {
		return out, boxOutputResume
	}
	return out, boxOutput
}

// close ends the stream. With discard the reader does not get what it has not
// read yet.
func (o *outbox) close(r Result, err error, discard bool) {
	o.mu.Lock()
	if discard {
		o.mu.outputs, o.mu.head = nil, 0
	}
	o.mu.result, o.mu.err, o.mu.closed = r, err, true
	o.mu.Unlock()
	o.signal()
}

// outcome returns the result so far and the error that ended the sequence.
func (o *outbox) outcome() (Result, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.result, o.mu.err
}

// isFull tells whether the sequence still has to pause.
func (o *outbox) isFull() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.full
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// park notes that the sequence waits until something is read.
func (o *outbox) park() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.parked = len(o.mu.outputs) > o.mu.head
}

func (o *outbox) isParked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.parked
}

// unreadFor is how long nothing was read although there is something; 0 if there
// is nothing.
func (o *outbox) unreadFor(now time.Time) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.outputs) == o.mu.head {
		return 0
	}
	return now.Sub(o.mu.since)
}
