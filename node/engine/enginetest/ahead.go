package enginetest

import "tandem/node/engine"

// Ahead is a fake that goes on by itself: engine.Runner. A call of the backend while
// it does is a fault.
type Ahead struct{ *Backend }

// Draws implements engine.Runner.
func (a Ahead) Draws(s engine.Sampler) bool {
	own := s.(*sampler)
	return own.sampling.Grammar == "" && own.sampling.TopLogprobs < 0
}

// Run implements engine.Runner.
func (a Ahead) Run(first *engine.Batch, samplers []engine.Sampler, steps int, each func([]engine.Output) bool) error {
	a.runs.Add(1)
	var b engine.Batch
	for i := range first.Len() {
		b.Add(first.Tokens[i], int(first.Pos[i]), first.Seq[i], true)
	}
	outputs := make([]engine.Output, b.Len())
	for step, halted := 1, false; ; step++ {
		if err := a.Decode(&b); err != nil {
			return err
		}
		last := step == steps || halted
		for i, s := range samplers {
			out, err := a.Sample(i, s, int(b.Pos[i])+1)
			if err != nil {
				return err
			}
			outputs[i] = out
			last = last || a.Vocab().IsEOG(out.Token)
		}
		if last {
			each(outputs)
			return nil
		}
		for i, out := range outputs {
			b.Tokens[i] = out.Token
			b.Pos[i]++
		}
		a.busy.Store(true) // the next step is being computed
		halted = !each(outputs)
		a.busy.Store(false)
	}
}

// Runs is how often Run was called.
func (b *Backend) Runs() int { return int(b.runs.Load()) }
