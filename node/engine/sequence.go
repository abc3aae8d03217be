package engine

import (
	"context"
	"io"
	"time"
)

// Sequence is one request in the engine: queued, then running in a slot, perhaps
// parked and queued again, then ended. Next is for one goroutine; the other methods are for any.
//
// The fields below "owner" belong to the engine's owner goroutine from the moment
// the sequence leaves the queue, and to whoever holds the engine's lock before.
type Sequence struct {
	engine     *Engine
	number     uint64 // order of arrival
	label      string
	salt       string
	prompt     int // tokens of the prompt: tokens[:prompt]
	limit      int // tokens with which the sequence ends
	noReuse    bool
	background bool // see Request
	sampling   Sampling
	blocks     Blocks // nil: nothing is kept outside
	submitted  time.Time
	detach     func() bool // stops listening to the context of Submit
	out        outbox
	done       chan struct{} // closed when nothing is held any more

	// Guarded by engine.mu.
	state  sequenceState
	cancel error // why it was cancelled; nil if it was not

	// owner
	sampler   Sampler
	tokens    []Token   // prompt, then what was generated
	computed  int       // tokens whose rows are in the cache: len(entry.tokens)
	kept      int       // tokens whose blocks were offered to blocks
	entry     *entry    // nil until a place was found: then computed is 0
	leader    *Sequence // that is computing what this one can share; entry is nil then
	shared    int       // tokens to be shared with leader
	fetching  bool      // kept rows are on their way; entry is nil then
	rows      []Rows    // kept rows that are still to be written behind those of entry
	running   bool      // in engine.running
	paused    bool      // the outbox is full
	noRestore bool      // kept rows could not be written
	retried   bool      // an engine error hit it before: no reuse, and the next is the end
	suspect   bool      // runs alone until a token shows that it does no harm
	cached    int       // prompt tokens that no placement had to compute
	result    Result
	started   time.Time // first step that computed something of it
	first     time.Time // first token
}

// sequenceState is where a sequence is.
type sequenceState int

const (
	stateQueued sequenceState = iota
	stateRunning
	stateParked // its reader does not read; queued again when it does
	stateEnded
)

// pending is the number of tokens whose rows are missing: at least 1, and exactly
// 1 for a sequence that decodes.
func (s *Sequence) pending() int { return len(s.tokens) - s.computed }

// ready tells whether a step may compute tokens of s.
func (s *Sequence) ready() bool { return s.entry != nil && len(s.rows) == 0 && !s.paused }

// decodes tells whether somebody waits for the next token of s.
func (s *Sequence) decodes() bool { return s.ready() && len(s.tokens) > s.prompt }

// Next returns the next token. At the end it returns io.EOF, or the error that
// ended the sequence: the cause if it was cancelled, what the engine said if that
// failed. When ctx ends, Next cancels the sequence. Whenever Next returns an error
// the sequence holds nothing any more.
func (s *Sequence) Next(ctx context.Context) (Output, error) {
	for {
		out, state := s.out.take()
		switch state {
		case boxOutputResume:
			s.engine.poke()
			return out, nil
		case boxOutput:
			return out, nil
		case boxClosed:
			<-s.done
			if _, err := s.out.outcome(); err != nil {
				return Output{}, err
			}
			return Output{}, io.EOF
		}
		select {
		case <-s.out.wake:
		case <-ctx.Done():
			s.engine.cancel(s, context.Cause(ctx))
			<-s.done
			if _, err := s.out.outcome(); err != nil {
				return Output{}, err
			}
			return Output{}, context.Cause(ctx)
		}
	}
}

// Cancel ends the sequence: at once if it is queued, else after the step that is
// being computed. It does not wait for that, and Next then returns
// context.Canceled. To cancel an ended sequence does nothing.
func (s *Sequence) Cancel() { s.engine.cancel(s, context.Canceled) }

// Done is closed when the sequence has ended and holds nothing any more.
func (s *Sequence) Done() <-chan struct{} { return s.done }

// Wait returns when Done is closed.
func (s *Sequence) Wait() { <-s.done }

// Result is what the sequence has cost so far; Reason is empty before its end.
func (s *Sequence) Result() Result {
	r, _ := s.out.outcome()
	return r
}

// Position is the sequence's place in the queue, from 1; 0 once it has left.
func (s *Sequence) Position() int { return s.engine.position(s) }
