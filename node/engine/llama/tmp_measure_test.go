package llama

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tandem/node/engine"
)

func TestMeasure(t *testing.T) {
	threads, _ := strconv.Atoi(os.Getenv("MT"))
	if threads == 0 {
		t.Skip()
	}
	type cfg struct {
		name     string
		streams  bool
		running  int
		resident int
		best     float64
		m        *model
		pos      int
	}
	cs := []*cfg{}
	for _, running := range []int{1, 8} {
		for _, resident := range []int{0, 8} {
			for _, streams := range []bool{false, true} {
				cs = append(cs, &cfg{name: "x", streams: streams, running: running, resident: resident})
			}
		}
	}
	for _, c := range cs {
		c.m = real(t, Options{Context: 1024, Cells: 16 * 1024, Parallel: 16, Streams: c.streams, Threads: threads})
	}
	prompt := tokenize(t, cs[0].m, strings.Repeat("All work and no play makes Jack a dull boy. ", 100))[:1000]
	for _, c := range cs {
		for i := range c.resident {
			s := &stream{t: t, m: c.m, seq: engine.SeqID(8 + i)}
			s.prefill(prompt)
		}
		c.pos = 0
	}
	for round := range 12 {
		for _, c := range cs {
			var b engine.Batch
			step := func() {
				b.Reset()
				for i := range c.running {
					b.Add(prompt[c.pos], c.pos, engine.SeqID(i), true)
				}
				c.pos++
				if err := c.m.Decode(&b); err != nil {
					t.Fatal(err)
				}
				c.m.Sample(0, nilSampler(t, c.m), c.pos)
			}
			if c.pos == 0 || c.pos > 800 {
				for i := range c.running {
					c.m.Remove(engine.SeqID(i), 0, -1)
					s := &stream{t: t, m: c.m, seq: engine.SeqID(i)}
					s.prefill(prompt[:400])
				}
				c.pos = 400
			}
			for range 6 {
				start := time.Now()
				for range 5 {
					step()
				}
				if v := float64(5*c.running) / time.Since(start).Seconds(); v > c.best {
					c.best = v
				}
			}
		}
		_ = round
	}
	for _, c := range cs {
		t.Logf("threads %d streams=%-5v running=%d resident=%d000: %.1f tok/s", threads, c.streams, c.running, c.resident, c.best)
	}
}

var ns = map[*model]engine.Sampler{}

func nilSampler(t *testing.T, m *model) engine.Sampler {
	if ns[m] == nil {
		ns[m], _ = m.NewSampler(plain(), nil, nil)
	}
	return ns[m]
}
