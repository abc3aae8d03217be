package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Engine runs one model. Its methods may be called from any goroutine.
type Engine struct {
	backend Backend
	vocab   Vocab
	info    Info
	config  Config
	context int           // tokens of one sequence: no more than the cache holds
	wake    chan struct{} // one slot: the owner goroutine has something to look at
	dirty   atomic.Bool   // set before wake: a step must be preceded by a look at mu
	stopped chan struct{} // closed when the owner goroutine has ended

	// mu guards what callers and the owner goroutine share. It is never held while
	// the model computes.
	mu struct {
		sync.Mutex
		stopped bool           // refuse requests and end those that are there
		closed  bool           // then free the model
		users   sync.WaitGroup // calls of the backend on other goroutines; none begins once stopped
		queue   []*Sequence    // waits for a slot, in order
		parked  []*Sequence    // has lost its slot until its reader reads
		slots   int            // slots taken: len(running)
		embeds  []*embedJob
		idle    bool      // the owner goroutine sleeps, or is about to
		since   time.Time // when it last finished a step or found work
		numbers uint64    // sequences submitted so far
		hold    time.Duration
		back    []*Sequence // background requests that have not ended
		used    time.Time
		forget  bool  // what was measured so far is to be forgotten
		stats   Stats // published after each step, without what is known here
	}

	// The rest belongs to the owner goroutine.
	cache    cache
	running  []*Sequence // holds a slot each, in the order of admission
	batch    Batch
	work     []work
	pace     pace
	rates    rates
	rotation int  // who comes first when a budget is too small for all
	flip     bool // the last step was that of a suspect
	stats    Stats
}

// New starts an engine, which owns b from then on and closes it at its end.
func New(b Backend, cfg Config) *Engine {
	e := newEngine(b, cfg)
	go e.run()
	return e
}

// newEngine makes an engine without its goroutine.
func newEngine(b Backend, cfg Config) *Engine {
	info := b.Info()
	e := &Engine{
		backend: b, vocab: b.Vocab(), info: info, config: cfg.withDefaults(info),
		context: info.Context,
		wake:    make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	e.cache = newCache(b, e.config.Hooks.Evicted)
	e.stats = Stats{Slots: e.config.Parallel, Context: e.context, KVCells: info.Context * info.Sequences}
	e.mu.stats, e.mu.idle = e.stats, true
	return e
}

// Info describes the model. Info().Context is what is enforced.
func (e *Engine) Info() Info {
	info := e.info
	info.Context = e.context
	return info
}

// Vocab is the model's vocabulary.
func (e *Engine) Vocab() Vocab { return e.vocab }

// Submit queues a request. It returns a *PromptTooLongError, *InvalidTokenError,
// *GrammarError, *QueueFullError, ErrNoGeneration or ErrClosed if the request is
// refused, and the cause of ctx if that has ended. The end of ctx cancels the
// sequence at any time later. Submit does not wait, except for the compilation of
// a grammar.
func (e *Engine) Submit(ctx context.Context, r Request) (*Sequence, error) {
	s, err := e.submit(ctx, r)
	if err != nil && r.Blocks != nil {
		r.Blocks.Close()
	}
	return s, err
}

func (e *Engine) submit(ctx context.Context, r Request) (*Sequence, error) {
	if err := e.validate(r); err != nil {
		return nil, err
	}
	if err := e.enter(ctx); err != nil {
		return nil, err
	}
	defer e.mu.users.Done()
	sampler, err := e.backend.NewSampler(r.Sampling, r.Tokens, r.Generated)
	if err != nil {
		return nil, err
	}
	s := e.newSequence(r, sampler)
	if err := e.enqueue(ctx, s); err != nil {
		sampler.Close()
		return nil, err
	}
	if !s.background {
		e.giveWay()
	}
	if s.blocks != nil {
		s.blocks.Start(e.poke)
	}
	e.poke()
	return s, nil
}

// validate refuses what can never run here.
func (e *Engine) validate(r Request) error {
	if e.info.Pooled {
		return ErrNoGeneration
	}
	if n := len(r.Tokens) + len(r.Generated); n+1 > e.context {
		return &PromptTooLongError{Tokens: n, Context: e.context}
	}
	if n := len(r.Generated); r.MaxTokens > 0 && n >= r.MaxTokens {
		return fmt.Errorf("engine: %d tokens were generated already, at most %d are wanted", n, r.MaxTokens)
	}
	if len(r.Generated) > 0 {
		if err := e.checkTokens(r.Generated); err != nil {
			return err
		}
	}
	return e.checkTokens(r.Tokens)
}

// checkTokens refuses token lists that are empty or not of this vocabulary.
func (e *Engine) checkTokens(tokens []Token) error {
	if len(tokens) == 0 {
		return &InvalidTokenError{}
	}
	size := e.vocab.Size()
	for i, t := range tokens {
		if t < 0 || int(t) >= size {
			return &InvalidTokenError{Index: i, Token: t, Size: size}
		}
	}
	return nil
}

// enter announces a user of the backend unless a request would be refused now.
func (e *Engine) enter(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.refuseLocked(ctx)
	if err == nil {
		e.mu.users.Add(1)
	}
	return err
}

// refuseLocked tells why a request cannot be queued.
func (e *Engine) refuseLocked(ctx context.Context) error {
	switch waiting := e.mu.slots + len(e.mu.queue) + len(e.mu.parked) + len(e.mu.embeds); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case e.mu.stopped:
		return ErrClosed
	case waiting >= e.config.Parallel+e.config.QueueLimit:
		return &QueueFullError{Limit: e.config.QueueLimit, RetryAfter: e.retryAfterLocked()}
	}
	return nil
}

// Bounds of the advice to come back later.
const (
	retryAfterMin = time.Second
	retryAfterMax = time.Minute
)

// retryAfterLocked estimates when a place in the queue becomes free: when the next
// of the running sequences ends.
func (e *Engine) retryAfterLocked() time.Duration {
	next := e.mu.hold / time.Duration(max(e.mu.slots, 1))
	return min(max(next.Round(time.Second), retryAfterMin), retryAfterMax)
}

func (e *Engine) newSequence(r Request, sampler Sampler) *Sequence {
	limit := e.context
	if r.MaxTokens > 0 {
		limit = min(limit, len(r.Tokens)+r.MaxTokens)
	}
	s := &Sequence{
		engine: e, label: r.Label, salt: r.Salt, prompt: len(r.Tokens), limit: limit, noReuse: r.NoReuse, background: r.Background,
		sampling: r.Sampling, sampler: sampler, submitted: e.config.Now(), done: make(chan struct{}),
		tokens: append(append(make([]Token, 0, min(limit, len(r.Tokens)+len(r.Generated)+answerRoom)), r.Tokens...), r.Generated...),
		cached: len(r.Tokens), result: Result{PromptTokens: len(r.Tokens)},
		out: outbox{limit: e.config.OutputBuffer, now: e.config.Now, wake: make(chan struct{}, 1)}, blocks: r.Blocks,
	}
	s.out.mu.result = s.result
	return s
}

// answerRoom is for how many generated tokens memory is taken in advance, so that
// steps seldom allocate.
const answerRoom = 512

// enqueue puts s at the end of the queue unless it is refused.
func (e *Engine) enqueue(ctx context.Context, s *Sequence) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuseLocked(ctx); err != nil {
		return err
	}
	if s.background && e.mu.slots+len(e.mu.queue)+len(e.mu.parked)+len(e.mu.embeds) > len(e.mu.back) {
		return ErrGaveWay
	}
	e.mu.numbers++
	s.number = e.mu.numbers
	e.mu.queue = append(e.mu.queue, s)
	if s.background {
		e.mu.back = append(e.mu.back, s)
	} else {
		e.mu.used = e.config.Now()
	}
	e.wakeLocked()
	s.detach = context.AfterFunc(ctx, func() { e.cancel(s, context.Cause(ctx)) })
	return nil
}

// wakeLocked notes that there is work from now on.
func (e *Engine) wakeLocked() {
	if e.mu.idle {
		e.mu.idle, e.mu.since = false, e.config.Now()
	}
}

// poke makes the owner goroutine look at what changed before its next step.
func (e *Engine) poke() {
	e.dirty.Store(true)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// cancel ends a sequence because of cause. A queued one is gone when it returns.
func (e *Engine) cancel(s *Sequence, cause error) {
	e.mu.Lock()
	if s.state == stateEnded || s.cancel != nil {
		e.mu.Unlock()
		return
	}
	s.cancel = cause
	queued := s.state == stateQueued || s.state == stateParked
	if queued {
		is := func(q *Sequence) bool { return q == s }
		e.mu.queue, e.mu.parked = slices.DeleteFunc(e.mu.queue, is), slices.DeleteFunc(e.mu.parked, is)
		s.state = stateEnded
		e.mu.users.Add(1)
	}
	e.mu.Unlock()
	if queued {
		s.end(FinishCancelled, cause)
		e.mu.users.Done()
	}
	e.poke()
}

// end frees what is left when a sequence is in no list any more, and tells its
// reader.
func (s *Sequence) end(reason FinishReason, err error) {
	s.engine.ended(s)
	s.detach()
	s.sampler.Close()
	if s.blocks != nil {
		s.blocks.Close()
	}
	s.result.Reason = reason
	s.engine.config.Hooks.Finished(s.label, s.result, err)
	s.out.close(s.result, err, reason == FinishCancelled)
	close(s.done)
}

func (e *Engine) position(s *Sequence) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Index(e.mu.queue, s) + 1
}

// Stats is a snapshot, also while a step is being computed. Its token counts are
// those after the last step.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.mu.stats
	for _, q := range e.mu.queue {
		if !q.background {
			s.Waiting += len(q.tokens)
		}
	}
	s.Hold, s.Used = e.mu.hold, e.mu.used
	s.Running, s.Queued, s.Parked = e.mu.slots, len(e.mu.queue)+len(e.mu.embeds), len(e.mu.parked)
	for _, b := range e.mu.back {
		switch b.state {
		case stateQueued:
			s.Queued--
		case stateRunning:
			s.Running--
		}
	}
	if !e.mu.idle {
		s.Stalled = e.config.Now().Sub(e.mu.since)
	}
	return s
}

// Stop refuses new requests and ends all others with ErrClosed, without waiting
// for that. The model stays usable for its vocabulary until Close.
func (e *Engine) Stop() {
	e.mu.Lock()
	e.mu.stopped = true
	e.mu.Unlock()
	e.poke()
}

// Close stops the engine, frees the model and waits for that or for the end of
// ctx, whose cause it then returns; the rest goes on nevertheless. Nobody may use
// the vocabulary any more. Close may be called more than once.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.mu.stopped, e.mu.closed = true, true
	e.mu.Unlock()
	e.poke()
	select {
	case <-e.stopped:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run is the owner goroutine.
func (e *Engine) run() {
	defer close(e.stopped)
	defer e.backend.Close()
	for {
		switch e.turn() {
		case turnIdle:
			<-e.wake
		case turnClosed:
			return
		}
	}
}
