package calc

import (
	"cmp"

	"tandem/node/engine"
)

// Kind is what a layer remembers of the tokens before.
type Kind string

// Kinds of layers.
const (
	Full      Kind = "full"      // keys and values of all tokens
	Windowed  Kind = "window"    // of the last Window tokens
	Latent    Kind = "latent"    // one compressed row of all tokens (MLA)
	Recurrent Kind = "recurrent" // a state whose size does not depend on the tokens
	Nothing   Kind = "none"      // it has no memory, or reads that of another layer
)

// Layer is what one layer keeps. Numbers are counts of values, not bytes.
type Layer struct {
	Kind    Kind
	Keys    int // of one token; a latent's row with its rotary part
	Values  int // of one token; 0 in a Latent layer, whose values are its keys
	Window  int // tokens, of a Windowed layer
	Rows    int // of one token in this program's engine, if not Keys + Values; 0: the same
	State   int // of one sequence, held in 32 bits
	Experts bool
}

// row is how many numbers of one token the formula wants, engineRow how many the
// engine keeps.
func (l *Layer) row() int       { return l.Keys + l.Values }
func (l *Layer) engineRow() int { return cmp.Or(l.Rows, l.row()) }

// Model is what the formulas need of a model.
type Model struct {
	Name         string
	Architecture string
	Source       string // "gguf" or "config.json"
	Layers       []Layer
	Embedding    int // width of a token between layers
	FeedForward  int // width inside a layer
	Vocab        int
	Heads        int // of queries, in the first layer with attention
	KVHeads      int // there, too
	Experts      int // of each layer that has some
	ExpertsUsed  int // for one token
	Context      int // tokens, as trained; 0: not said

	// Parameters is counted (GGUF) or follows from the sizes (config.json); 0: not
	// known. ExpertParameters of them are in experts that are not always used.
	Parameters       int64
	ExpertParameters int64
	WeightBytes      int64   // 0: not known
	WeightBits       float64 // of one weight, on average; 0: not known
}

// Attention names how heads share what is kept: "MHA", "GQA", "MQA", "MLA", or "none".
func (m *Model) Attention() string {
	for i := range m.Layers {
		switch m.Layers[i].Kind {
		case Latent:
			return "MLA"
		case Full, Windowed:
			switch {
			case m.KVHeads == m.Heads:
				return "MHA"
			case m.KVHeads == 1:
				return "MQA"
			}
			return "GQA"
		}
	}
	return "none"
}

// count is how many layers are of a kind.
func (m *Model) count(k Kind) int {
	n := 0
	for i := range m.Layers {
		if m.Layers[i].Kind == k {
			n++
		}
	}
	return n
}

// window is the largest window; 0: no layer has one.
func (m *Model) window() int {
	w := 0
	for i := range m.Layers {
		if m.Layers[i].Kind == Windowed {
			w = max(w, m.Layers[i].Window)
		}
	}
	return w
}

// expertLayers is how many layers have experts.
func (m *Model) expertLayers() int {
	n := 0
	for i := range m.Layers {
		if m.Layers[i].Experts {
			n++
		}
	}
	return n
}

// stateBytes is the recurrent state of one sequence.
func (m *Model) stateBytes() int64 {
	n := int64(0)
	for i := range m.Layers {
		n += 4 * int64(m.Layers[i].State)
	}
	return n
}

// kvSize knows the bytes of KV of one model and type.
type kvSize struct {
	model *Model
	bits  float64 // of one number
}

func newKVSize(m *Model, kvType string) (kvSize, error) {
	bits, err := engine.KVBits(kvType)
	if err != nil {
		return kvSize{}, err
	}
	if bits != 16 {
		for i := range m.Layers {
			l, heads := &m.Layers[i], max(m.KVHeads, 1)
			if keys, values := l.Keys/heads, l.Values/heads; keys%32 != 0 || values%32 != 0 {
				return kvSize{}, refuse("kv_type", "%s needs heads of a multiple of 32 numbers, but those of layer %d have %d and %d; allowed: f16", kvType, i, keys, values)
			}
		}
	}
	return kvSize{m, bits}, nil
}

// at is the bytes of a sequence of n tokens by the formula.
func (s kvSize) at(n int) float64 {
	numbers := 0.0
	for i := range s.model.Layers {
		l := &s.model.Layers[i]
		kept := n
		if l.Kind == Windowed {
			kept = min(n, l.Window)
		}
		numbers += float64(l.row()) * float64(kept)
	}
	return numbers*s.bits/8 + s.state(n)
}

// engineAt is the bytes of a sequence of n tokens in this program's engine.
func (s kvSize) engineAt(n int) float64 {
	numbers := 0.0
	for i := range s.model.Layers {
		numbers += float64(s.model.Layers[i].engineRow())
	}
	return numbers*float64(n)*s.bits/8 + s.state(n)
}

func (s kvSize) state(n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(s.model.stateBytes())
}

// perToken is what one more token takes: in a short sequence, in one beyond every
// window, and in the engine.
func (s kvSize) perToken() (short, beyond, inEngine float64) {
	for i := range s.model.Layers {
		l := &s.model.Layers[i]
		short += float64(l.row())
		if l.Kind != Windowed {
			beyond += float64(l.row())
		}
		inEngine += float64(l.engineRow())
	}
	return short * s.bits / 8, beyond * s.bits / 8, inEngine * s.bits / 8
}

// geometry is the model as the engine's own formula of memory takes it: what is kept
// for a token goes in as heads of one number each.
func (m *Model) geometry() engine.Geometry {
	g := engine.Geometry{WeightBytes: m.WeightBytes, Layers: len(m.Layers), Embedding: m.Embedding, FeedForward: m.FeedForward, Vocab: m.Vocab,
		KeyLength: 1, StateBytes: m.stateBytes(), KVHeads: make([]uint32, len(m.Layers))}
	for i := range m.Layers {
		g.KVHeads[i] = uint32(m.Layers[i].engineRow())
	}
	return g
}
