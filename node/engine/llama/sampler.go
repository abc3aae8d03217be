package llama

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"tandem/node/engine"
)

// sampler is the engine.Sampler. Penalties and draws live in C, the grammar in
// Go.
type sampler struct {
	c       *C.td_sampler
	result  *C.td_result // of the last draw, in C's memory
	grammar *constraint  // nil: none
}

func (m *model) NewSampler(p engine.Sampling, prompt, generated []engine.Token) (engine.Sampler, error) {
	var grammar *constraint
	if p.Grammar != "" {
		var err error
		if grammar, err = m.constraint(p, generated); err != nil {
			return nil, err
		}
	}
	cp := m.cSampling(p)
	tokens, bias := biasArrays(p.LogitBias)
	var err C.td_error
	c := C.td_sampler_new(&cp, int32Ptr(tokens), floatPtr(bias), C.size_t(len(bias)), &err)
	if c == nil {
		return nil, errors.New("llama: sampler: " + errorText(&err))
	}
	s := &sampler{c: c, result: C.td_sampler_result(c), grammar: grammar}
	for _, seen := range [][]engine.Token{prompt, generated} {
		seen = seen[max(0, len(seen)-int(cp.repeat_last_n)):]
		if C.td_sampler_accept(c, int32Ptr(seen), C.size_t(len(seen)), &err) != C.TD_OK {
			s.Close()
			return nil, errors.New("llama: sampler: " + errorText(&err))
		}
	}
	return s, nil
}

// constraint compiles p's grammar and leads it to the end of the generated text.
func (m *model) constraint(p engine.Sampling, generated []engine.Token) (*constraint, error) {
	g, err := m.grammars.compile(p.Grammar)
	if err != nil {
		return nil, err
	}
	c, err := newConstraint(g, p.Triggers)
	if err != nil {
		return nil, err
	}
	m.grammars.vocabulary(m.vocab)
	for i, t := range generated {
		if !m.vocab.IsEOG(t) && !c.push(m.vocab.Piece(t, true), m.vocab.IsControl(t)) {
			return nil, &engine.GrammarError{Reason: fmt.Sprintf("it does not allow token %d of the text so far", i)}
		}
	}
	return c, nil
}

func (m *model) cSampling(p engine.Sampling) C.td_sampling {
	lastN := p.RepeatLastN
	if lastN < 0 {
		lastN = int32(m.info.Context)
	}
	return C.td_sampling{
		temperature: C.float(p.Temperature), top_k: C.int32_t(p.TopK), top_p: C.float(p.TopP), min_p: C.float(p.MinP),
		typical_p: C.float(p.TypicalP), repeat_penalty: C.float(p.RepeatPenalty), repeat_last_n: C.int32_t(lastN),
		frequency_penalty: C.float(p.FrequencyPenalty), presence_penalty: C.float(p.PresencePenalty),
		mirostat: C.int32_t(p.Mirostat), mirostat_tau: C.float(p.MirostatTau), mirostat_eta: C.float(p.MirostatEta),
		seed: C.uint64_t(p.Seed), top_logprobs: C.int32_t(p.TopLogprobs), ignore_eos: C.bool(p.IgnoreEOS),
	}
}

func (m *model) Sample(i int, s engine.Sampler, pos int) (engine.Output, error) {
	if i < 0 || i >= m.decoded || m.logits[i] == 0 {
		return engine.Output{}, fmt.Errorf("llama: batch entry %d has no logits", i)
	}
	sm := s.(*sampler)
	if err := m.draw(sm, i, pos, nil, 0); err != nil {
		return engine.Output{}, err
	}
	if sm.grammar != nil && !m.allows(sm.grammar, engine.Token(sm.result.token)) {
		if err := m.drawAllowed(sm, i, pos); err != nil {
			return engine.Output{}, err
		}
	}
	out := engine.Output{Token: engine.Token(sm.result.token)}
	out.Piece = m.vocab.Piece(out.Token, false)
	if sm.result.n_top >= 0 {
		out.Logprob = m.logprob(sm.result)
	}
	return out, nil
}

// draw chooses a token for pos; allowed is what a grammar lets follow, nil all.
func (m *model) draw(s *sampler, i, pos int, allowed []uint64, end C.int) error {
	mask := (*C.uint64_t)(unsafe.SliceData(allowed))
	if C.td_sample(m.c, s.c, C.int32_t(i), C.int64_t(pos), mask, end, &m.err) != C.TD_OK {
		return errors.New("llama: sample: " + errorText(&m.err))
	}
	return nil
}

// allows tells whether token t may follow, and appends it if so.
func (m *model) allows(g *constraint, t engine.Token) bool {
	if m.vocab.IsEOG(t) {
		return g.asleep || g.state.Complete()
	}
	text := m.vocab.Piece(t, true)
	if len(text) == 0 {
		return g.asleep
	}
	return g.push(text, m.vocab.IsControl(t))
}

// drawAllowed draws again, from what the grammar lets follow.
func (m *model) drawAllowed(s *sampler, i, pos int) error {
	state := s.grammar.state
	mask := s.grammar.grammar.Mask(state, m.grammars.vocabulary(m.vocab))
	if mask == nil {
		return &engine.GrammarError{Reason: "it is too ambiguous to find the tokens that may follow"}
	}
	end := C.int(0)
	if state.Complete() {
		end |= C.TD_END
	}
	if state.Final() {
		end |= C.TD_ONLY_END
	}
	if err := m.draw(s, i, pos, mask, end); err != nil {
		return &engine.GrammarError{Reason: "no token of the vocabulary continues the text"}
	}
	if !m.allows(s.grammar, engine.Token(s.result.token)) {
		return &engine.GrammarError{Reason: "a token that may follow was refused"}
	}
	return nil
}

func (m *model) logprob(r *C.td_result) *engine.Logprob {
	l := &engine.Logprob{Logprob: float32(r.logprob), Top: make([]engine.TokenLogprob, int(r.n_top))}
	for i, t := range unsafe.Slice(r.top, int(r.n_top)) {
		tok := engine.Token(t.token)
		l.Top[i] = engine.TokenLogprob{Token: tok, Piece: m.vocab.Piece(tok, true), Logprob: float32(t.logprob)}
	}
	return l
}

// Close frees the sampler, before or after its model.
func (s *sampler) Close() {
	if s.c != nil {
		C.td_sampler_free(s.c)
		s.c, s.result = nil, nil
	}
}

// biasArrays is in order of tokens, so that equal maps give equal arithmetic.
func biasArrays(m map[engine.Token]float32) ([]engine.Token, []float32) {
	if len(m) == 0 {
		return nil, nil
	}
	tokens := make([]engine.Token, 0, len(m))
	for t := range m {
		tokens = append(tokens, t)
	}
	slices.Sort(tokens)
	bias := make([]float32, len(tokens))
	for i, t := range tokens {
		bias[i] = m[t]
	}
	return tokens, bias
}

func int32Ptr(s []int32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(s))) }

func floatPtr(s []float32) *C.float { return (*C.float)(unsafe.Pointer(unsafe.SliceData(s))) }

// uniform is the number in [0, 1) that decides draw number draw at pos.
func uniform(seed, pos uint64, draw uint32) float64 {
	return float64(C.td_uniform(C.uint64_t(seed), C.uint64_t(pos), C.uint32_t(draw)))
}
