package engine

import "time"

// Config shapes an engine. The zero value is fit for use.
type Config struct {
	// Parallel is the number of slots: sequences that are decoded together. 0 means
	// 4. More than the model's Info.Sequences or Info.Batch is cut to those.
	Parallel int
	// QueueLimit is how many requests may wait for a slot; a further one gets a
	// *QueueFullError. 0 means 64, negative none.
	QueueLimit int
	// StepBudget bounds the prompt tokens that one step computes beside running
	// streams, and so the gap between their tokens. 0 means Info.MicroBatch.
	StepBudget int
	// StepTime is the aim for such a step: from measured times the engine halves the
	// budget until the step is expected to last no longer. 0 means 100 ms.
	StepTime time.Duration
	// OutputBuffer is the number of tokens of one sequence that may wait for their
	// reader; a sequence that reaches it pauses until half are read. 0 means 4096.
	OutputBuffer int
	// StallTime is after how long without a read a sequence gives its slot to one
	// that waits; it queues again when it is read. 0 means 2 s.
	StallTime time.Duration
	Hooks     Hooks
	// Now is the clock of durations and statistics; nil means time.Now.
	Now func() time.Time

	// afterTurn is called by tests after every turn of the owner goroutine.
	afterTurn func(*Engine)
}

// Hooks tell what happens in an engine. Fields may be nil. Most are called on the
// owner goroutine, between two steps: a hook that blocks stops the model, and it
// must not call the engine.
type Hooks struct {
	// Admitted: a request got a slot after waiting.
	Admitted func(label string, waited time.Duration)
	// FirstToken: the prompt is computed; r holds what is known by then.
	FirstToken func(label string, r Result)
	// Finished: a sequence ended and holds nothing any more; err is nil if it ended
	// by itself. It may be called from the goroutine that cancels.
	Finished func(label string, r Result, err error)
	// Retried: err hit the sequence, which now computes all its tokens once more.
	Retried func(label string, err error)
	// Parked: a sequence with so many tokens that nobody reads gave up its slot.
	Parked func(label string, tokens int)
	// KVFailed: rows could not be copied, exported or imported; they are computed.
	KVFailed func(label string, err error)
	// Evicted: resident tokens were given up for others.
	Evicted func(tokens int)
}

// withDefaults returns c with its zero values replaced and cut to what the model
// can do.
func (c Config) withDefaults(m Info) Config {
	or := func(v, def int) int {
		if v == 0 {
			return def
		}
		return v
	}
	c.Parallel = min(or(c.Parallel, 4), m.Sequences, m.Batch)
	c.QueueLimit = max(or(c.QueueLimit, 64), 0)
	c.StepBudget = min(or(c.StepBudget, m.MicroBatch), m.Batch)
	c.OutputBuffer = or(c.OutputBuffer, 4096)
	if c.StepTime == 0 {
		c.StepTime = 100 * time.Millisecond
	}
	if c.StallTime == 0 {
		c.StallTime = 2 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Hooks = c.Hooks.filled()
	return c
}

// filled replaces nil hooks, so that callers need not ask.
func (h Hooks) filled() Hooks {
	if h.Admitted == nil {
		h.Admitted = func(string, time.Duration) {}
	}
	if h.FirstToken == nil {
		h.FirstToken = func(string, Result) {}
	}
	if h.Finished == nil {
		h.Finished = func(string, Result, error) {}
	}
	if h.Retried == nil {
		h.Retried = func(string, error) {}
	}
	if h.Parked == nil {
		h.Parked = func(string, int) {}
	}
	if h.KVFailed == nil {
		h.KVFailed = func(string, error) {}
	}
	if h.Evicted == nil {
		h.Evicted = func(int) {}
	}
	return h
}
