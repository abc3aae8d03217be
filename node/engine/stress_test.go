package engine_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

var stressSeed = flag.Uint64("stress.seed", 0, "seed of TestStress; 0 draws one")

// stress is one random world: a fake model and engine of random sizes, and clients
// that ask, stall, leave and compare what they got with what a lone cold run gives.
type stress struct {
	t       *testing.T
	rand    *rand.Rand // of the main goroutine
	options enginetest.Options
	config  engine.Config
	prompts []string
	want    map[string]string // by prompt
	kept    *shelf            // nil: nothing is kept outside the engine
	faulty  bool
}

// answerLength is what every request may generate.
const answerLength = 60

func newStress(t *testing.T, seed uint64) *stress {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &stress{t: t, rand: r, faulty: r.IntN(2) == 0, want: map[string]string{}}
	parallel := 1 + r.IntN(6)
	s.options = enginetest.Options{
		Context: 300, Batch: 8 << r.IntN(5), Sequences: parallel + r.IntN(6), EndOdds: 100, Recurrent: r.IntN(4) == 0,
	}
	s.config = engine.Config{Parallel: parallel, QueueLimit: 1000, StepBudget: 1 + r.IntN(64), OutputBuffer: 1 + r.IntN(40), StallTime: time.Duration(r.IntN(3)) * time.Millisecond}
	if r.IntN(3) > 0 && !s.options.Recurrent {
		s.kept = newShelf(1 + r.IntN(20))
	}
	s.drawPrompts()
	for _, p := range s.prompts {
		s.want[p] = alone(t, s.options, engine.Request{Tokens: words(t, p), MaxTokens: answerLength})
	}
	if s.faulty {
		s.options.FailDecode = failAtRandom(rand.New(rand.NewPCG(seed, 2)))
		s.options.FailImport = func(n int) error { return map[bool]error{true: errors.New("broken")}[n%7 == 0] }
	}
	return s
}

// drawPrompts makes a tree of prompts: long common beginnings, forks everywhere.
func (s *stress) drawPrompts() {
	s.prompts = []string{"."}
	for i := range 15 {
		base := s.prompts[s.rand.IntN(len(s.prompts))]
		base = base[:1+s.rand.IntN(len(base))]
		text := base + fmt.Sprint(i) + prompt(s.rand.IntN(120))
		s.prompts = append(s.prompts, text[:min(280, len(text))])
	}
}

// failAtRandom breaks some steps.
func failAtRandom(r *rand.Rand) func(int, *engine.Batch) error {
	broken := errors.New("broken")
	return func(int, *engine.Batch) error {
		if r.IntN(100) == 0 {
			return broken
		}
		return nil
	}
}

// client makes requests one after another, each with an end of its own choice.
func (s *stress) client(e *engine.Engine, r *rand.Rand) error {
	for range 12 {
		ctx, cancel := context.WithCancel(context.Background())
		err := s.request(ctx, cancel, e, r)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stress) request(ctx context.Context, cancel func(), e *engine.Engine, r *rand.Rand) error {
	p := s.prompts[r.IntN(len(s.prompts))]
	request := engine.Request{Label: p, Tokens: words(s.t, p), MaxTokens: answerLength,
		Salt: strings.Repeat("s", r.IntN(2)), NoReuse: r.IntN(8) == 0, Sampling: engine.Sampling{TopLogprobs: -1}}
	if s.kept != nil {
		request.Blocks = s.kept.open(request.Tokens, request.Salt)
	}
	seq, err := e.Submit(ctx, request)
	if err != nil {
		return fmt.Errorf("Submit: %w", err)
	}
	leaveAfter := -1
	if r.IntN(3) == 0 {
		leaveAfter = r.IntN(answerLength)
	}
	var text strings.Builder
	for n := 0; ; n++ {
		if n == leaveAfter {
			if r.IntN(2) == 0 {
				seq.Cancel()
			} else {
				cancel()
			}
		}
		for r.IntN(3) == 0 { // a reader that is slow now and then
			runtime.Gosched()
		}
		out, err := seq.Next(context.Background())
		if err != nil {
			return s.judge(seq, p, text.String(), err, leaveAfter >= 0)
		}
		text.Write(out.Piece)
	}
}

// judge compares the end of a request with what may happen in this world.
func (s *stress) judge(seq *engine.Sequence, p, text string, err error, left bool) error {
	select {
	case <-seq.Done():
	default:
		return fmt.Errorf("Next says %w before the end", err)
	}
	switch result := seq.Result(); {
	case errors.Is(err, io.EOF) && text == s.want[p] && result.Generated == len(text):
		return nil
	case errors.Is(err, context.Canceled) && left && strings.HasPrefix(s.want[p], text):
		return nil
	case s.faulty && strings.HasPrefix(s.want[p], text) && (result.Reason == engine.FinishFailed || result.Reason == engine.FinishLength):
		return nil
	}
	return fmt.Errorf("prompt %q: got %q, %w, alone %q", p, text, err, s.want[p])
}

func TestStress(t *testing.T) {
	runs := 40
	if testing.Short() {
		runs = 5
	}
	seed := *stressSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	} else {
		runs = 1
	}
	for i := range uint64(runs) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Logf("to repeat: go test -race ./node/engine -run TestStress -stress.seed %d", seed+i)
			stressOnce(t, seed+i)
		})
	}
}

func stressOnce(t *testing.T, seed uint64) {
	s := newStress(t, seed)
	e, b := start(t, s.options, s.config)
	var clients sync.WaitGroup
	for i := range 2 + s.rand.IntN(10) {
		r := rand.New(rand.NewPCG(seed, uint64(100+i)))
		clients.Go(func() {
			if err := s.client(e, r); err != nil {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	st := e.Stats()
	if st.Running != 0 || st.Queued != 0 || b.Samplers() != 0 {
		t.Errorf("after all have ended: %+v, %d samplers", st, b.Samplers())
	}
	if s.kept != nil {
		if n := s.kept.inUse.Load(); n != 0 {
			t.Errorf("%d uses of blocks were not closed", n)
		}
	}
}
