package enginetest

import (
	"tandem/node/engine"
)

// wrongKV is the token that a sequence yields whose KV is not that of its tokens.
const wrongKV engine.Token = '#'

// sampler knows the tokens that its sequence should hold, as a hash of the rows
// that they give when nothing goes wrong.
type sampler struct {
	b        *Backend
	sampling engine.Sampling
	prompt   []engine.Token
	length   int // tokens accepted, with the prompt
	state    uint64
	answer   []engine.Token // of the script; nil: babble
	closed   bool
}

// NewSampler prepares the draws of one sequence.
func (b *Backend) NewSampler(s engine.Sampling, prompt, generated []engine.Token) (engine.Sampler, error) {
	if s.Grammar != "" && b.options.Grammar != nil {
		if err := b.options.Grammar(s.Grammar); err != nil {
			return nil, &engine.GrammarError{Reason: err.Error()}
		}
	}
	out := &sampler{b: b, sampling: s, prompt: prompt}
	for _, t := range prompt {
		out.accept(t)
	}
	for _, t := range generated {
		out.accept(t)
	}
	if b.options.Script != nil {
		if answer, ok := b.options.Script(Vocab{}.Text(prompt)); ok {
			tokens, err := Vocab{}.Tokenize(answer, true)
			if err != nil {
				return nil, err
			}
			out.answer = append(tokens, ImEnd)
		}
	}
	b.samplers.Add(1)
	return out, nil
}

// accept adds a token to what the sequence should hold.
func (s *sampler) accept(t engine.Token) {
	s.state = fold(s.state, rowValue(t, s.length, s.state))
	s.length++
}

// Close frees the sampler; twice is a fault.
func (s *sampler) Close() {
	if s.closed {
		s.b.mu.Lock()
		s.b.faultLocked("sampler closed twice")
		s.b.mu.Unlock()
		return
	}
	s.closed = true
	s.b.samplers.Add(-1)
}

// Sample draws the token after batch entry i.
func (b *Backend) Sample(i int, es engine.Sampler, pos int) (engine.Output, error) {
	b.own("Sample")
	defer b.release()
	s := es.(*sampler)
	switch {
	case s.closed:
		return engine.Output{}, b.faultLocked("Sample with a closed sampler")
	case i < 0 || i >= len(b.mu.logits) || !b.mu.logits[i]:
		return engine.Output{}, b.faultLocked("Sample of entry %d, which has no logits", i)
	case pos != s.length:
		return engine.Output{}, b.faultLocked("Sample for position %d of a sequence of %d tokens", pos, s.length)
	}
	if b.options.FailSample != nil {
		if err := b.options.FailSample(s.prompt, pos); err != nil {
			return engine.Output{}, err
		}
	}
	token := s.draw(pos)
	if b.mu.states[i] != s.state {
		b.faultLocked("the KV before position %d is not that of the sequence's tokens", pos)
		token = wrongKV
	}
	s.accept(token)
	return engine.Output{Token: token, Piece: b.pieces[token], Logprob: s.logprob(token)}, nil
}

// draw chooses the next token from the hash of all rows, and with a temperature
// from seed and position.
func (s *sampler) draw(pos int) engine.Token {
	if n := pos - len(s.prompt); n < len(s.answer) && s.allowed(s.answer[n]) {
		return s.answer[n]
	}
	h := s.state
	if s.sampling.Temperature > 0 {
		h = mix(h ^ mix(s.sampling.Seed+uint64(pos)))
	}
	for t, bias := range s.sampling.LogitBias {
		if bias >= 50 {
			return t
		}
	}
	if odds := s.b.options.EndOdds; odds > 0 && h>>32%uint64(odds) == 0 && s.allowed(EOS) {
		return EOS
	}
	for range 100 {
		if t := babble(h); s.allowed(t) {
			return t
		}
		h = mix(h + 1)
	}
	return '.'
}

// babble turns a hash into a letter or, one time in six, a space.
func babble(h uint64) engine.Token {
	if h%6 == 0 {
		return ' '
	}
	return engine.Token('a' + h>>8%26)
}

// allowed tells whether t may be drawn.
func (s *sampler) allowed(t engine.Token) bool {
	if s.sampling.IgnoreEOS && (Vocab{}).IsEOG(t) {
		return false
	}
	return s.sampling.LogitBias[t] > -50
}

// logprob makes up probabilities: the chosen token has one half, each alternative
// half of the one before it.
func (s *sampler) logprob(chosen engine.Token) *engine.Logprob {
	if s.sampling.TopLogprobs < 0 {
		return nil
	}
	const ln2 = 0.6931472
	p := &engine.Logprob{Logprob: -ln2}
	t := chosen
	for i := range s.sampling.TopLogprobs {
		p.Top = append(p.Top, engine.TokenLogprob{Token: t, Piece: s.b.pieces[t], Logprob: -ln2 * float32(i+1)})
		t = (t + 1) % vocabSize
	}
	return p
}
