package llama

import (
	"slices"
	"testing"

	"tandem/node/engine"
)

// ran answers prompts together, by Run, in pieces of some steps.
func ran(t *testing.T, m *model, p engine.Sampling, prompts [][]engine.Token, n, piece int) [][]engine.Token {
	t.Helper()
	streams := make([]*stream, len(prompts))
	var b engine.Batch
	var samplers []engine.Sampler
	for i, prompt := range prompts {
		m.Remove(engine.SeqID(i), 0)
		streams[i] = newStream(t, m, engine.SeqID(i), p, prompt, nil)
		streams[i].prefill(prompt)
		streams[i].sample()
		samplers = append(samplers, streams[i].sampler)
	}
	for len(streams[0].tokens) < n {
		b.Reset()
		for _, s := range streams {
			b.Add(s.tokens[len(s.tokens)-1], s.pos, s.seq, true)
		}
		steps := 0
		err := m.Run(&b, samplers, min(piece, n-len(streams[0].tokens)), func(out []engine.Output) bool {
			for i, s := range streams {
				s.tokens = append(s.tokens, out[i].Token)
				s.pos++
			}
			steps++
			return true
		})
		if err != nil || steps == 0 {
			t.Fatalf("%d steps, %v", steps, err)
		}
	}
	out := make([][]engine.Token, len(streams))
	for i, s := range streams {
		out[i] = s.tokens
	}
	return out
}

// TestRun: tokens are the same whether each step is asked for or Run goes on by itself.
func TestRun(t *testing.T) {
	greedy := endless()
	seeded := endless()
	seeded.Temperature, seeded.Seed, seeded.TopK, seeded.TopP, seeded.MinP = 0.9, 42, 40, 0.95, 0.02
	seeded.RepeatPenalty, seeded.RepeatLastN, seeded.PresencePenalty = 1.1, 16, 0.3
	steered := endless()
	steered.Temperature, steered.Seed, steered.Mirostat, steered.MirostatTau, steered.MirostatEta = 1, 7, 2, 4, 0.1
	for name, p := range map[string]engine.Sampling{"greedy": greedy, "seeded": seeded, "mirostat": steered} {
		t.Run(name, func(t *testing.T) {
			m := tiny(t, Options{Sequences: 3})
			ps := prompts(t, m, 3)
			want := ran(t, m, p, ps, 40, 1)
			if got := ran(t, m, p, ps, 40, 17); !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("in pieces %v, one by one %v", got, want)
			}
			if alone := answer(t, m, p, ps[1], 40).tokens; name == "greedy" && !slices.Equal(want[1], alone) {
				t.Errorf("by Run %v, by Decode %v", want[1], alone)
			}
		})
	}
}

// TestRunEnds: Run tells of every step that was computed, ends with the token that ends a
// sequence, and the sequence can go on from there.
func TestRunEnds(t *testing.T) {
	m := tiny(t, Options{})
	run := func(p engine.Sampling, each func(step int) bool) (steps int) {
		m.Remove(0, 0)
		s := newStream(t, m, 0, p, nil, nil)
		s.prefill(prompts(t, m, 1)[0])
		var b engine.Batch
		var last engine.Token
		b.Add(tokenize(t, m, "a")[0], s.pos, 0, true)
		if err := m.Run(&b, []engine.Sampler{s.sampler}, 32, func(out []engine.Output) bool {
			steps++
			last = out[0].Token
			return each(steps)
		}); err != nil {
			t.Fatal(err)
		}
		s.pos += steps
		s.prefill([]engine.Token{last}) // fails if rows are missing, or there are more
		return steps
	}
	if n := run(endless(), func(step int) bool { return step < 3 }); n < 3 {
		t.Errorf("%d steps; it was told to end at the third", n)
	}
	end := plain()
	end.LogitBias = map[engine.Token]float32{m.vocab.EOS(): 1e6}
	if n := run(end, func(int) bool { return true }); n != 1 {
		t.Errorf("%d steps; the first token ends the text", n)
	}
}
