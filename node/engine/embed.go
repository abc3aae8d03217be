package engine

import (
	"context"
	"math"
	"slices"
)

// embedJob is one call of Embed. Its vectors belong to the owner goroutine until
// it has ended.
type embedJob struct {
	inputs  [][]Token
	vectors [][]float32
	done    chan error // one slot: the outcome

	// Guarded by engine.mu.
	next  int // first input that no step has taken
	left  int // inputs without a vector
	ended bool
}

// end tells the caller the outcome, once.
func (j *embedJob) end(err error) { j.done <- err }

// embedInput is one input of a job in a step.
type embedInput struct {
	job   *embedJob
	index int
}

func (in embedInput) tokens() []Token { return in.job.inputs[in.index] }

// Embed computes one vector of unit length per input, in order. It returns
// ErrNoEmbeddings, a *PromptTooLongError, *InvalidTokenError, *QueueFullError or
// ErrClosed if the job is refused, the cause of ctx if that ends first, and else
// what the engine says. The inputs may not be changed before it returns.
func (e *Engine) Embed(ctx context.Context, inputs [][]Token) ([][]float32, error) {
	if !e.info.Pooled {
		return nil, ErrNoEmbeddings
	}
	limit := min(e.context, e.info.MicroBatch)
	for _, tokens := range inputs {
		if len(tokens) > limit {
			return nil, &PromptTooLongError{Tokens: len(tokens), Context: limit}
		}
		if err := e.checkTokens(tokens); err != nil {
			return nil, err
		}
	}
	if len(inputs) == 0 {
		return nil, nil
	}
	j := &embedJob{inputs: inputs, vectors: make([][]float32, len(inputs)), left: len(inputs), done: make(chan error, 1)}
	if err := e.enqueueJob(ctx, j); err != nil {
		return nil, err
	}
	e.poke()
	select {
	case err := <-j.done:
		if err != nil {
			return nil, err
		}
		return j.vectors, nil
	case <-ctx.Done():
		e.mu.Lock()
		e.dropJobLocked(j)
		e.mu.Unlock()
		return nil, context.Cause(ctx)
	}
}

func (e *Engine) enqueueJob(ctx context.Context, j *embedJob) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.refuseLocked(ctx); err != nil {
		return err
	}
	e.mu.embeds = append(e.mu.embeds, j)
	e.wakeLocked()
	return nil
}

// dropJobLocked forgets a job; steps ignore what they still compute of it.
func (e *Engine) dropJobLocked(j *embedJob) {
	j.ended = true
	if i := slices.Index(e.mu.embeds, j); i >= 0 {
		e.mu.embeds = slices.Delete(e.mu.embeds, i, i+1)
	}
}

// embedStep computes the vectors of some inputs. False: there are none.
func (e *Engine) embedStep() bool {
	if !e.info.Pooled {
		return false
	}
	inputs := e.nextInputs()
	if len(inputs) == 0 {
		return false
	}
	err := e.embed(inputs)
	if err == nil || len(inputs) == 1 {
		e.settleInputs(inputs, err)
		return true
	}
	// One of them is at fault, or the engine was once: each gets a step of its own.
	for i := range inputs {
		one := inputs[i : i+1]
		e.settleInputs(one, e.embed(one))
	}
	return true
}

// nextInputs takes inputs in order, as many as one micro-batch holds.
func (e *Engine) nextInputs() []embedInput {
	e.mu.Lock()
	defer e.mu.Unlock()
	var inputs []embedInput
	room := e.info.MicroBatch
	for _, j := range e.mu.embeds {
		for j.next < len(j.inputs) {
			room -= len(j.inputs[j.next])
			if room < 0 || len(inputs) == e.info.Sequences {
				return inputs
			}
			inputs = append(inputs, embedInput{j, j.next})
			j.next++
		}
	}
	return inputs
}

// embed computes the vectors of inputs in one step and leaves no rows behind.
func (e *Engine) embed(inputs []embedInput) error {
	e.batch.Reset()
	for k, in := range inputs {
		for pos, t := range in.tokens() {
			e.batch.Add(t, pos, SeqID(k), true)
		}
	}
	err := e.backend.Decode(&e.batch)
	e.stats.Steps++
	e.stats.LastStep = e.config.Now()
	if err == nil {
		e.stats.Computed += int64(e.batch.Len())
		err = e.readVectors(inputs)
	}
	for k := range inputs {
		e.backend.Remove(SeqID(k), 0)
	}
	return err
}

func (e *Engine) readVectors(inputs []embedInput) error {
	for k, in := range inputs {
		v, err := e.backend.Embedding(SeqID(k))
		if err != nil {
			return err
		}
		in.job.vectors[in.index] = unitVector(v)
	}
	return nil
}

// settleInputs notes the outcome of inputs and ends the jobs that are complete or have
// failed.
func (e *Engine) settleInputs(inputs []embedInput, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, in := range inputs {
		if in.job.ended {
			continue
		}
		in.job.left--
		if err != nil || in.job.left == 0 {
			e.dropJobLocked(in.job)
			in.job.end(err)
		}
	}
}

// unitVector returns a copy of v with length 1; a vector of zeros stays one.
func unitVector(v []float32) []float32 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	out := make([]float32, len(v))
	if sum == 0 {
		return out
	}
	scale := 1 / math.Sqrt(sum)
	for i, x := range v {
		out[i] = float32(float64(x) * scale)
	}
	return out
}
