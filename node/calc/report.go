package calc

import (
	"fmt"
	"math"

	"tandem/node/engine"
)

// Question is what is asked of a Model. Of rates and memory, zero is "not known".
type Question struct {
	KVType     string // f16, q8_0, q4_0
	Tokens     int    // of a prompt
	Context    int    // of one sequence
	Sequences  int    // that a box answers at once
	MicroBatch int    // tokens of one step

	Links       []Link  // none: StandardGbit
	PrefillRate float64 // of one box, tokens/s
	DecodeRate  float64 // of one answer on one box, tokens/s
	Memory      []int64 // of each box, bytes; one size stands for all boxes
	Boxes       int     // 0: as many as Memory has, at least 2
}

// Report is what Answer works out. Bytes are bytes, and fields are added, never renamed.
type Report struct {
	Model  ModelReport   `json:"model"`
	KV     KVReport      `json:"kv"`
	Links  []LinkReport  `json:"links"`
	Memory MemoryReport  `json:"memory"`
	Splits []SplitReport `json:"splits"` // by link

	PrefillRate float64 `json:"prefill_rate,omitempty"`
	DecodeRate  float64 `json:"decode_rate,omitempty"`
}

// ModelReport is what was read of the model.
type ModelReport struct {
	Name            string  `json:"name"`
	Architecture    string  `json:"architecture"`
	Source          string  `json:"source"`
	Attention       string  `json:"attention"` // MHA, GQA, MQA, MLA, none
	Layers          int     `json:"layers"`
	FullLayers      int     `json:"full_layers"` // of attention to all tokens, latent ones included
	WindowLayers    int     `json:"window_layers"`
	Window          int     `json:"window,omitempty"`
	RecurrentLayers int     `json:"recurrent_layers"`
	Heads           int     `json:"heads"`
	KVHeads         int     `json:"kv_heads"`
	Embedding       int     `json:"embedding"`
	Experts         int     `json:"experts,omitempty"`
	ExpertsUsed     int     `json:"experts_used,omitempty"`
	ContextLength   int     `json:"context_length,omitempty"`
	Parameters      int64   `json:"parameters,omitempty"` // 0: not known
	WeightBytes     int64   `json:"weight_bytes,omitempty"`
	WeightBits      float64 `json:"weight_bits,omitempty"`
}

// KVReport is what a prompt leaves behind.
type KVReport struct {
	Type               string  `json:"type"`
	BytesPerToken      float64 `json:"bytes_per_token"`        // within every window
	BytesPerTokenLong  float64 `json:"bytes_per_token_long"`   // beyond every window
	EngineBytesToken   float64 `json:"engine_bytes_per_token"` // what this program keeps
	StateBytes         int64   `json:"state_bytes,omitempty"`  // of a sequence, whatever its length
	Tokens             int     `json:"tokens"`
	Bytes              float64 `json:"bytes"`
	EngineBytes        float64 `json:"engine_bytes"`
	Difference         string  `json:"difference,omitempty"` // why the engine's figures are others
	PiecewiseShareable bool    `json:"shareable"`            // a prefix can be reused: no layer is recurrent
}

// Answer works out a question, after checking it.
func Answer(m *Model, q Question) (*Report, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	size, err := newKVSize(m, q.KVType)
	if err != nil {
		return nil, err
	}
	if len(q.Links) == 0 {
		q.Links = Links(nil)
	}
	if q.Boxes == 0 {
		q.Boxes = max(2, len(q.Memory))
	}
	r := &Report{Model: m.report(), KV: size.report(q.Tokens), PrefillRate: q.PrefillRate, DecodeRate: q.DecodeRate}
	r.KV.Type = q.KVType
	for _, l := range q.Links {
		r.Links = append(r.Links, l.report(&q, size))
	}
	if r.Memory, err = fit(m, &q, size); err != nil {
		return nil, err
	}
	have := r.Memory
	for len(have.Boxes) > 0 && len(have.Boxes) < q.Boxes { // one box stands for all
		have.Boxes = append(have.Boxes[:len(have.Boxes):len(have.Boxes)], have.Boxes[0])
	}
	for _, l := range q.Links {
		r.Splits = append(r.Splits, split(m, &q, l.resolve(), &have))
	}
	return r, nil
}

// check refuses what is out of range.
func (q *Question) check() error {
	whole := func(field string, v, least, most int) *FieldError {
		if v < least || v > most {
			return refuse(field, "%d is out of range; allowed: %d to %d", v, least, most)
		}
		return nil
	}
	number := func(field string, v, most float64) *FieldError {
		if !(v >= 0 && v <= most) {
			return refuse(field, "%v is out of range; allowed: 0 to %v", v, most)
		}
		return nil
	}
	faults := []*FieldError{
		whole("tokens", q.Tokens, 1, MaxTokens), whole("ctx", q.Context, 1, MaxTokens), whole("parallel", q.Sequences, 1, MaxSequences),
		whole("batch", q.MicroBatch, 1, MaxTokens), whole("boxes", q.Boxes, 0, MaxBoxes), number("prefill_rate", q.PrefillRate, MaxRate),
		number("decode_rate", q.DecodeRate, MaxRate), whole("link", len(q.Links), 0, MaxLinks), whole("memory", len(q.Memory), 0, MaxBoxes),
	}
	for _, l := range q.Links {
		faults = append(faults, number("link", l.Gbit, MaxGbit), number("goodput", l.Goodput, MaxGbit*1e9/8), number("rtt_ms", l.RTTMs, MaxRTT))
		if l.Gbit == 0 && l.Goodput == 0 {
			faults = append(faults, refuse("link", "0 is out of range; allowed: more than 0 and at most %d Gbit/s", MaxGbit))
		}
	}
	for _, b := range q.Memory {
		if b < 1 || b > MaxMemory {
			faults = append(faults, refuse("memory", "%d bytes are out of range; allowed: 1 to %d", b, int64(MaxMemory)))
		}
	}
	if n := len(q.Memory); n > 1 && q.Boxes > 0 && q.Boxes != n {
		faults = append(faults, refuse("memory", "is given for %d boxes; allowed: one size for all %d, or one for each", n, q.Boxes))
	}
	for _, f := range faults {
		if f != nil {
			return f
		}
	}
	return nil
}

func (m *Model) report() ModelReport {
	return ModelReport{Name: m.Name, Architecture: m.Architecture, Source: m.Source, Attention: m.Attention(), Layers: len(m.Layers),
		FullLayers: m.count(Full) + m.count(Latent), WindowLayers: m.count(Windowed), Window: m.window(), RecurrentLayers: m.count(Recurrent),
		Heads: m.Heads, KVHeads: m.KVHeads, Embedding: m.Embedding, Experts: m.Experts, ExpertsUsed: m.ExpertsUsed, ContextLength: m.Context,
		Parameters: m.Parameters, WeightBytes: m.WeightBytes, WeightBits: math.Round(m.WeightBits*100) / 100}
}

func (s kvSize) report(tokens int) KVReport {
	m := s.model
	r := KVReport{StateBytes: m.stateBytes(), Tokens: tokens, Bytes: s.at(tokens), EngineBytes: s.engineAt(tokens),
		PiecewiseShareable: m.stateBytes() == 0 && m.Attention() != "none"}
	r.BytesPerToken, r.BytesPerTokenLong, r.EngineBytesToken = s.perToken()
	switch {
	case m.count(Windowed) > 0:
		r.Difference = fmt.Sprintf("%d of %d layers look back on %d tokens only; this program keeps all their rows, so that any prefix can be reused", m.count(Windowed), len(m.Layers), m.window())
	case m.count(Latent) > 0 && r.EngineBytesToken != r.BytesPerToken:
		r.Difference = "latent attention needs one row for keys and values; llama.cpp keeps the latent once as each"
	}
	return r
}

// MemoryReport is what one box needs to serve the whole model alone.
type MemoryReport struct {
	Context   int   `json:"context"`
	Sequences int   `json:"sequences"`
	Weights   int64 `json:"weights"` // 0: not known
	KV        int64 `json:"kv"`
	Compute   int64 `json:"compute"`
	Total     int64 `json:"total"`

	Boxes   []BoxReport `json:"boxes"` // those whose memory is known
	Verdict string      `json:"verdict"`
}

// BoxReport says whether a box can serve the model alone.
type BoxReport struct {
	Memory int64 `json:"memory"`
	Fits   bool  `json:"fits"`
	// ContextMax is the longest context that fits, with as many sequences; at most
	// what the model was trained for, if that is known. 0: not even one token's.
	ContextMax int `json:"context_max"`
}

// fit asks the engine's own formula.
func fit(m *Model, q *Question, s kvSize) (MemoryReport, error) {
	need := func(context int) (engine.Memory, error) {
		return engine.EstimateMemory(m.geometry(), engine.Shape{Context: context, Sequences: q.Sequences, MicroBatch: q.MicroBatch, KVType: q.KVType})
	}
	n, err := need(q.Context)
	if err != nil {
		return MemoryReport{}, err
	}
	r := MemoryReport{Context: q.Context, Sequences: q.Sequences, Weights: n.Weights, KV: n.KV, Compute: n.Compute, Total: n.Total(), Boxes: []BoxReport{}}
	most := m.Context
	if most == 0 {
		most = MaxTokens
	}
	fits := 0
	for _, have := range q.Memory {
		b := BoxReport{Memory: have, Fits: n.Total() <= have}
		low, high := 0, most // low fits, or is 0
		for low < high {
			middle := low + (high-low+1)/2
			if t, err := need(middle); err == nil && t.Total() <= have {
				low = middle
			} else {
				high = middle - 1
			}
		}
		b.ContextMax = low
		if b.Fits {
			fits++
		}
		r.Boxes = append(r.Boxes, b)
	}
	switch {
	case m.WeightBytes == 0:
		r.Verdict = "the size of the weights is not known: what is said here is without them"
	case len(q.Memory) == 0:
		r.Verdict = "no memory was given to compare with"
	case fits == len(q.Memory):
		r.Verdict = "it fits"
	case len(q.Memory) == 1:
		r.Verdict = "it does not fit"
	default:
		r.Verdict = fmt.Sprintf("it fits into %d of %d boxes", fits, len(q.Memory))
	}
	return r, nil
}
