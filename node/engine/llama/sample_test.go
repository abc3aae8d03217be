package llama

import (
	"math"
	"slices"
	"testing"

	"tandem/node/engine"
)

// row computes a prompt and leaves its logits to be sampled, as often as wanted.
func row(t testing.TB, m *model) (entry, pos int) {
	t.Helper()
	prompt := tokenize(t, m, "the end of the ")
	m.Remove(0, 0)
	s := &stream{t: t, m: m}
	s.prefill(prompt)
	return s.entry, s.pos
}

// draw samples one row with a new sampler.
func draw(t testing.TB, m *model, p engine.Sampling, entry, pos int) engine.Output {
	t.Helper()
	s, err := m.NewSampler(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	out, err := m.Sample(entry, s, pos)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// distribution is every token's probability in a row.
func distribution(t testing.TB, m *model, entry, pos int) []float64 {
	t.Helper()
	p := plain()
	p.TopLogprobs = m.vocab.Size()
	out := draw(t, m, p, entry, pos)
	if len(out.Logprob.Top) != m.vocab.Size() {
		t.Fatalf("%d logprobs of %d tokens", len(out.Logprob.Top), m.vocab.Size())
	}
	probs := make([]float64, m.vocab.Size())
	for _, l := range out.Logprob.Top {
		probs[l.Token] = math.Exp(float64(l.Logprob))
	}
	return probs
}

func random(seed uint64) engine.Sampling {
	p := plain()
	p.Temperature, p.Seed = 1, seed
	return p
}

func TestUniform(t *testing.T) {
	// The published test vector of Philox4x32-10 for zero key and counter.
	if got, want := uniform(0, 0, 0), float64(0xe169c58d6627e8d5>>11)/(1<<53); got != want {
		t.Errorf("uniform(0, 0, 0) = %v, want %v", got, want)
	}
	seen := map[float64]bool{}
	sum := 0.0
	for seed := range uint64(10) {
		for pos := range uint64(1000) {
			for draw := range uint32(2) {
				u := uniform(seed, pos, draw)
				if u < 0 || u >= 1 || seen[u] {
					t.Fatalf("uniform(%d, %d, %d) = %v", seed, pos, draw, u)
				}
				seen[u] = true
				sum += u
			}
		}
	}
	if mean := sum / 20000; math.Abs(mean-0.5) > 0.01 {
		t.Errorf("mean %v", mean)
	}
}

func TestGreedyIsDeterministic(t *testing.T) {
	m := tiny(t, Options{})
	prompt := tokenize(t, m, "the end")
	want := answer(t, m, endless(), prompt, 30).tokens
	other := tiny(t, Options{})
	if got := answer(t, other, endless(), prompt, 30).tokens; !slices.Equal(got, want) {
		t.Errorf("%v, then %v", want, got)
	}
	entry, pos := row(t, m)
	p := plain()
	p.TopLogprobs = 1
	if out := draw(t, m, p, entry, pos); out.Token != out.Logprob.Top[0].Token {
		t.Errorf("token %d, but %d is likelier", out.Token, out.Logprob.Top[0].Token)
	}
}

// TestSeed: a text follows from the seed and the positions, also when it is
// continued by another sampler.
func TestSeed(t *testing.T) {
	m := tiny(t, Options{})
	prompt := tokenize(t, m, "the end")
	settings := map[string]engine.Sampling{"plain": random(7)}
	filtered := random(7)
	filtered.TopK, filtered.TopP, filtered.MinP, filtered.TypicalP, filtered.Temperature = 40, 0.95, 0.01, 0.9, 1.3
	filtered.RepeatPenalty, filtered.RepeatLastN, filtered.FrequencyPenalty = 1.2, 8, 0.1
	settings["all filters"] = filtered
	constrained := random(7)
	constrained.Grammar = `root ::= [a-z ]{3,40} "." [0-9]*`
	settings["grammar"] = constrained
	for name, p := range settings {
		t.Run(name, func(t *testing.T) {
			p.IgnoreEOS = true
			want := answer(t, m, p, prompt, 30).tokens
			if got := answer(t, m, p, prompt, 30).tokens; !slices.Equal(got, want) {
				t.Errorf("%v, then %v", want, got)
			}
			other := p
			other.Seed++
			if got := answer(t, m, other, prompt, 30).tokens; slices.Equal(got, want) {
				t.Error("another seed gives the same text")
			}
			m.Remove(0, 0)
			s := newStream(t, m, 0, p, prompt, want[:11])
			s.prefill(slices.Concat(prompt, want[:11]))
			if got := s.generate(len(want) - 11); !slices.Equal(got, want[11:]) {
				t.Errorf("continued %v, want %v", got, want[11:])
			}
		})
	}
}

func TestLogprobs(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	sum := 0.0
	for _, p := range distribution(t, m, entry, pos) {
		sum += p
	}
	if math.Abs(sum-1) > 1e-4 {
		t.Errorf("the probabilities sum to %v", sum)
	}
	p := random(3)
	p.Temperature, p.TopLogprobs, p.TopK = 5, 4, 50
	out := draw(t, m, p, entry, pos)
	probs := distribution(t, m, entry, pos)
	if got := math.Exp(float64(out.Logprob.Logprob)); math.Abs(got-probs[out.Token]) > 1e-6 {
		t.Errorf("probability %v of the chosen token, want %v", got, probs[out.Token])
	}
	top := out.Logprob.Top
	if len(top) != 4 || !slices.IsSortedFunc(top, func(a, b engine.TokenLogprob) int { return int(math.Copysign(1, float64(b.Logprob-a.Logprob))) }) {
		t.Errorf("top %v", top)
	}
	if string(top[0].Piece) != string(m.vocab.Piece(top[0].Token, true)) {
		t.Errorf("piece %q", top[0].Piece)
	}
	p.TopLogprobs = 0
	if out := draw(t, m, p, entry, pos); out.Logprob == nil || len(out.Logprob.Top) != 0 {
		t.Errorf("with none wanted beside the token's own: %+v", out.Logprob)
	}
	p.TopLogprobs = -1
	if out := draw(t, m, p, entry, pos); out.Logprob != nil {
		t.Errorf("logprobs although they are off: %+v", out.Logprob)
	}
}

// TestDistribution compares how often tokens are drawn with their probability
// under the filters.
func TestDistribution(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	probs := distribution(t, m, entry, pos)
	order := make([]engine.Token, len(probs))
	for i := range order {
		order[i] = engine.Token(i)
	}
	slices.SortFunc(order, func(a, b engine.Token) int { return int(math.Copysign(1, probs[b]-probs[a])) })
	// keep is the tokens that a filter leaves, likeliest first.
	nucleus := func(limit float64) int {
		sum := 0.0
		for i, tok := range order {
			if sum += probs[tok]; sum >= limit {
				return i + 1
			}
		}
		return len(order)
	}
	mass := func(n int) float64 {
		sum := 0.0
		for _, tok := range order[:n] {
			sum += probs[tok]
		}
		return sum
	}
	atLeast := func(least float64) int {
		return slices.IndexFunc(order, func(tok engine.Token) bool { return probs[tok] < least })
	}
	tests := []struct {
		name        string
		change      func(*engine.Sampling)
		keep        int
		temperature float64
	}{
		{"all", func(*engine.Sampling) {}, len(order), 1},
		{"temperature", func(p *engine.Sampling) { p.Temperature = 0.5 }, len(order), 0.5},
		{"top-k", func(p *engine.Sampling) { p.TopK = 5 }, 5, 1},
		{"top-k of one", func(p *engine.Sampling) { p.TopK = 1 }, 1, 1},
		{"top-k of too many", func(p *engine.Sampling) { p.TopK = 1 << 30 }, len(order), 1},
		{"top-p", func(p *engine.Sampling) { p.TopP = 0.3 }, nucleus(0.3), 1},
		{"top-p of nearly all", func(p *engine.Sampling) { p.TopP = 0.999 }, nucleus(0.999), 1},
		{"min-p", func(p *engine.Sampling) { p.MinP = 0.4 }, atLeast(0.4 * probs[order[0]]), 1},
		// top-p counts the probability that top-k has left.
		{"all of them", func(p *engine.Sampling) { p.TopK, p.TopP, p.MinP, p.Temperature = 100, 0.5, 0.01, 2 },
			nucleus(0.5 * mass(100)), 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := random(11)
			tt.change(&p)
			want, sum := make([]float64, len(probs)), 0.0
			for _, tok := range order[:tt.keep] {
				want[tok] = math.Pow(probs[tok], 1/tt.temperature)
				sum += want[tok]
			}
			compareDraws(t, m, p, entry, want, sum)
		})
	}
}

// compareDraws draws at many positions from one row. For a fair draw the
// chi-squared sum is about the number of tokens, with a deviation of the root of
// its double.
func compareDraws(t *testing.T, m *model, p engine.Sampling, entry int, want []float64, sum float64) {
	t.Helper()
	const draws = 20000
	counts := make([]int, len(want))
	s, err := m.NewSampler(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range draws {
		out, err := m.Sample(entry, s, i)
		if err != nil {
			t.Fatal(err)
		}
		counts[out.Token]++
	}
	chi, cells := 0.0, 0.0
	for tok, n := range counts {
		if want[tok] == 0 {
			if n > 0 {
				t.Fatalf("token %d was drawn %d times although it was removed", tok, n)
			}
			continue
		}
		expected := want[tok] / sum * draws
		chi += (float64(n) - expected) * (float64(n) - expected) / expected
		cells++
	}
	if math.Abs(chi-(cells-1)) > 6*math.Sqrt(2*cells)+1 {
		t.Errorf("chi-squared %v with %v tokens", chi, cells)
	}
}

// TestTypical: what is kept is near to the entropy and at least its share.
func TestTypical(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	probs := distribution(t, m, entry, pos)
	entropy := 0.0
	for _, q := range probs {
		entropy -= q * math.Log(q)
	}
	type typical struct {
		tok  int
		away float64
	}
	order := make([]typical, len(probs))
	for tok, q := range probs {
		order[tok] = typical{tok, math.Abs(-math.Log(q) - entropy)}
	}
	slices.SortFunc(order, func(a, b typical) int { return int(math.Copysign(1, a.away-b.away)) })
	want, sum := make([]float64, len(probs)), 0.0
	for _, o := range order {
		want[o.tok] = probs[o.tok]
		if sum += probs[o.tok]; sum > 0.5 {
			break
		}
	}
	p := random(5)
	p.TypicalP = 0.5
	compareDraws(t, m, p, entry, want, sum)
}

func TestMirostat(t *testing.T) {
	m := tiny(t, Options{})
	prompt := tokenize(t, m, "the end")
	for version := int32(1); version <= 2; version++ {
		surprise := func(tau float32) float64 {
			p := random(9)
			p.Mirostat, p.MirostatTau, p.MirostatEta, p.TopLogprobs, p.IgnoreEOS = version, tau, 0.1, 0, true
			m.Remove(0, 0)
			s := newStream(t, m, 0, p, prompt, nil)
			s.prefill(prompt)
			sum := 0.0
			for range 200 {
				out := s.sample()
				sum -= float64(out.Logprob.Logprob) / math.Ln2
				s.prefill([]engine.Token{out.Token})
			}
			first := s.tokens
			again := answer(t, m, p, prompt, 200).tokens
			if !slices.Equal(first, again) {
				t.Errorf("version %d is not a function of its seed", version)
			}
			return sum / 200
		}
		if low, high := surprise(1), surprise(6); low >= high {
			t.Errorf("version %d: surprise %v at tau 1, %v at tau 6", version, low, high)
		}
	}
}

func TestLogitBias(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	p := plain()
	best := draw(t, m, p, entry, pos).Token
	p.LogitBias = map[engine.Token]float32{best: -100, 1 << 30: 5, -1: 5}
	if got := draw(t, m, p, entry, pos).Token; got == best {
		t.Error("a banned token was chosen")
	}
	p.LogitBias = map[engine.Token]float32{42: 100}
	p.TopLogprobs = 0
	out := draw(t, m, p, entry, pos)
	if out.Token != 42 {
		t.Errorf("token %d although 42 was wanted", out.Token)
	}
	if probs := distribution(t, m, entry, pos); math.Abs(math.Exp(float64(out.Logprob.Logprob))-probs[42]) > 1e-6 {
		t.Error("the logprob is not the one before the bias")
	}
	if got := draw(t, m, plain(), entry, pos).Token; got != best {
		t.Error("the bias of another sampler stayed in the row")
	}
}

func TestPenalties(t *testing.T) {
	m := tiny(t, Options{})
	prompt := tokenize(t, m, "the end")
	tests := []struct {
		name   string
		change func(*engine.Sampling)
		window int // tokens within which none may repeat
	}{
		{"repeat", func(p *engine.Sampling) { p.RepeatPenalty, p.RepeatLastN = 1000, 16 }, 16},
		{"frequency", func(p *engine.Sampling) { p.FrequencyPenalty, p.RepeatLastN = 1000, 16 }, 16},
		{"presence", func(p *engine.Sampling) { p.PresencePenalty, p.RepeatLastN = 1000, 16 }, 16},
		{"whole context", func(p *engine.Sampling) { p.PresencePenalty, p.RepeatLastN = 1000, -1 }, 60},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := endless()
			tt.change(&p)
			all := slices.Concat(prompt, answer(t, m, p, prompt, 60-len(prompt)).tokens)
			for i := len(prompt); i < len(all); i++ {
				if slices.Contains(all[max(0, i-tt.window):i], all[i]) {
					t.Errorf("token %d at %d is a repetition", all[i], i)
				}
			}
		})
	}
	off := endless()
	off.RepeatPenalty, off.RepeatLastN = 1000, 0
	if got, want := answer(t, m, off, prompt, 20).tokens, answer(t, m, endless(), prompt, 20).tokens; !slices.Equal(got, want) {
		t.Error("a window of no tokens changes the text")
	}
}

func TestIgnoreEOS(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	p := plain()
	p.LogitBias = map[engine.Token]float32{m.vocab.EOS(): 100}
	if got := draw(t, m, p, entry, pos).Token; !m.vocab.IsEOG(got) {
		t.Fatalf("token %d instead of the end", got)
	}
	p.IgnoreEOS = true
	if got := draw(t, m, p, entry, pos).Token; m.vocab.IsEOG(got) {
		t.Error("the end was drawn")
	}
}

func TestSamplerAfterClose(t *testing.T) {
	m := tiny(t, Options{})
	s, err := m.NewSampler(random(1), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	s.Close()
	s.Close()
}

// TestSampleAllocates: the hot path allocates only what it returns.
func TestSampleAllocates(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	hot := random(1)
	hot.TopK, hot.MinP = 40, 0.05
	for name, p := range map[string]engine.Sampling{"greedy": plain(), "random": random(1), "filtered": hot} {
		s, err := m.NewSampler(p, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if n := testing.AllocsPerRun(100, func() {
			if _, err := m.Sample(entry, s, pos); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
