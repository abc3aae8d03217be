package llama

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tandem/node/engine"
)

const question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"

// TestRealModel needs a model that has learned something; see real.
func TestRealModel(t *testing.T) {
	m := real(t, Options{Context: 1024, Sequences: 2, Threads: 1})
	prompt := tokenize(t, m, question)
	t.Run("answer", func(t *testing.T) {
		if text := string(answer(t, m, plain(), prompt, 40).text); !strings.Contains(text, "Paris") {
			t.Errorf("answer %q", text)
		}
	})
	t.Run("schema", func(t *testing.T) {
		p := plain()
		p.Grammar = `root ::= "{\"capital\": \"" [A-Za-z ]{1,30} "\", \"population\": " [1-9] [0-9]{0,9} "}"`
		var v struct {
			Capital    string
			Population int
		}
		text := answer(t, m, p, prompt, 60).text
		if err := json.Unmarshal(text, &v); err != nil || v.Capital == "" || v.Population == 0 {
			t.Errorf("%q: %v", text, err)
		}
	})
	t.Run("random but sensible", func(t *testing.T) {
		p := plain()
		p.Temperature, p.TopK, p.TopP, p.MinP, p.Seed = 0.8, 40, 0.95, 0.05, 1
		if text := answer(t, m, p, prompt, 60).text; len(text) < 10 {
			t.Errorf("answer %q", text)
		}
	})
}

// BenchmarkSample measures what one token costs beside the computation.
func BenchmarkSample(b *testing.B) {
	m := real(b, Options{Context: 256, Threads: 1})
	prompt := tokenize(b, m, question)
	s := &stream{t: b, m: m}
	s.prefill(prompt)
	usual := plain()
	usual.Temperature, usual.TopK, usual.TopP, usual.MinP = 0.8, 40, 0.95, 0.05
	hot := plain()
	hot.Temperature = 1
	nucleus := hot
	nucleus.TopP = 0.9
	logprobs := plain()
	logprobs.TopLogprobs = 5
	repeat := plain()
	repeat.RepeatPenalty, repeat.RepeatLastN = 1.1, 64
	allowed := plain()
	allowed.Grammar = `root ::= .*`
	refused := plain()
	refused.Grammar = `root ::= "{" [^}]* "}"`
	for _, c := range []struct {
		name string
		p    engine.Sampling
	}{{"greedy", plain()}, {"penalties", repeat}, {"temperature", hot}, {"top-p", nucleus}, {"usual", usual}, {"logprobs", logprobs},
		{"grammar allows", allowed}, {"grammar refuses", refused}} {
		b.Run(c.name, func(b *testing.B) {
			sampler, err := m.NewSampler(c.p, prompt, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer sampler.Close()
			constraint := kept(sampler)
			for b.Loop() {
				if constraint != nil {
					constraint.state = constraint.grammar.Start()
				}
				if _, err := m.Sample(s.entry, sampler, s.pos); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func kept(s engine.Sampler) *constraint { return s.(*sampler).grammar }

// BenchmarkDecode measures tokens per second of streams that decode together
// beside what other sequences keep in the cache.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name     string
		running  int
		resident int // sequences of 1000 tokens that only lie there
	}{
		{"1/alone", 1, 0}, {"1/resident 8000", 1, 8}, {"8/alone", 8, 0}, {"8/resident 8000", 8, 8},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := real(b, Options{Context: 1024, Sequences: 16})
			prompt := tokenize(b, m, strings.Repeat("All work and no play makes Jack a dull boy. ", 100))[:1000]
			for i := range c.resident {
				s := &stream{t: b, m: m, seq: engine.SeqID(8 + i)}
				s.prefill(prompt)
			}
			var batch engine.Batch
			pos := 0
			step := func() {
				batch.Reset()
				for i := range c.running {
					batch.Add(prompt[pos], pos, engine.SeqID(i), true)
				}
				pos++
				if err := m.Decode(&batch); err != nil {
					b.Fatal(err)
				}
			}
			for range 100 {
				step()
			}
			start := time.Now()
			n := 0
			for b.Loop() {
				if pos == 900 {
					for i := range c.running {
						m.Remove(engine.SeqID(i), 100)
					}
					pos = 100
				}
				step()
				n++
			}
			b.ReportMetric(float64(n*c.running)/time.Since(start).Seconds(), "tok/s")
		})
	}
}
