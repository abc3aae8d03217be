package calc

import (
	"fmt"
	"strings"

	"tandem/node/models/gguf"
)

// interleaving is which layers of an architecture have a window, where the file gives
// one: of every Each layers all but one. The exception comes last, or First.
type interleaving struct {
	each  int
	first bool
}

// interleavings are those of llama.cpp ec98e2002. Files name the window, not the layers.
var interleavings = map[string]interleaving{
	"llama4": {each: 4}, "afmoe": {each: 4}, "gemma2": {each: 2}, "gemma3": {each: 6}, "gemma3n": {each: 5}, "gemma-embedding": {each: 6},
	"cohere2": {each: 4}, "olmo2": {each: 4}, "exaone4": {each: 4}, "gpt-oss": {each: 2}, "smallthinker": {each: 4, first: true},
}

func (p interleaving) windowed(layer int) bool {
	if p.each == 0 {
		return false
	}
	if p.first {
		return layer%p.each != 0
	}
	return layer%p.each < p.each-1
}

// gemma3nOwn is how many layers of a Gemma 3n keep KV; those above read theirs.
const gemma3nOwn = 20

// qwen3nextEach: of so many layers of a Qwen3-Next one has attention, the last.
const qwen3nextEach = 4

// FromGGUF reads the header of a checked file.
func FromGGUF(f *gguf.File) *Model {
	a := f.Architecture
	count := func(name string) int {
		n, _ := f.Uint(a + "." + name) // the file is checked, so it fits
		return int(n)
	}
	m := &Model{Name: f.Name, Architecture: a, Source: "gguf", Layers: make([]Layer, f.Layers), Embedding: f.Embedding, FeedForward: count("feed_forward_length"),
		Vocab: f.VocabSize, Experts: f.Experts, ExpertsUsed: f.ExpertsUsed, Context: f.ContextLength, Parameters: f.Parameters, WeightBytes: f.WeightBytes}
	if m.FeedForward == 0 {
		m.FeedForward = widest(f.Metadata[a+".feed_forward_length"])
	}
	if m.Parameters > 0 {
		m.WeightBits = float64(m.WeightBytes) * 8 / float64(m.Parameters)
	}
	own := f.Layers
	switch {
	case a == "gemma3n":
		own = min(own, gemma3nOwn)
	case count("nextn_predict_layers") > 0: // they are in the file, but not computed
		own -= count("nextn_predict_layers")
	}
	state := ggufState(f, count)
	m.readExperts(f)
	absorbed := f.Metadata[a+".attention.key_length_mla"] != nil
	for i := range m.Layers {
		l := &m.Layers[i]
		l.Kind = Nothing
		if ggufRecurrent(f, i) {
			l.Kind, l.State = Recurrent, state
		}
		kv := 0
		if i < len(f.KVHeads) {
			kv = int(f.KVHeads[i])
		}
		if f.IsRecurrent || kv == 0 || i >= own || l.Kind == Recurrent && a != "falcon-h1" {
			continue
		}
		if m.Heads == 0 {
			m.Heads, m.KVHeads = int(f.Heads[i]), kv
		}
		l.Kind, l.Keys, l.Values = Full, kv*f.KeyLength, kv*f.ValueLength
		switch {
		case absorbed:
			l.Kind, l.Rows, l.Values = Latent, l.Keys+l.Values, 0
		case f.SlidingWindow > 0 && interleavings[a].windowed(i):
			l.Kind, l.Window = Windowed, f.SlidingWindow
		}
	}
	return m
}

// widest is the largest number of a list in metadata.
func widest(v any) int {
	a, _ := v.(gguf.Array)
	most := 0
	for _, e := range a.Values {
		switch n := e.(type) {
		case int32:
			most = max(most, int(n))
		case uint32:
			most = max(most, int(n))
		}
	}
	return most
}

// ggufRecurrent tells whether a layer has recurrent state, by the rules of llama.cpp.
func ggufRecurrent(f *gguf.File, layer int) bool {
	switch f.Architecture {
	case "falcon-h1":
		return true // beside its attention
	case "qwen3next":
		return (layer+1)%qwen3nextEach != 0
	case "nemotron_h", "nemotron_h_moe":
		return f.KVHeads[layer] == 0 && !feedsForward(f, layer)
	}
	return f.IsRecurrent || f.IsHybrid && f.KVHeads[layer] == 0
}

// feedsForward tells whether a layer of a model whose layers differ has feed-forward
// weights.
func feedsForward(f *gguf.File, layer int) bool {
	a, ok := f.Metadata[f.Architecture+".feed_forward_length"].(gguf.Array)
	if !ok || layer >= len(a.Values) {
		return false
	}
	switch n := a.Values[layer].(type) {
	case int32:
		return n > 0
	case uint32:
		return n > 0
	}
	return false
}

// ggufState is the recurrent state of one layer: what convolutions look back on, and
// the state proper.
func ggufState(f *gguf.File, count func(string) int) int {
	switch {
	case count("wkv.head_size") > 0:
		shift := 2
		if n := count("token_shift_count"); n > 0 {
			shift = n
		}
		return f.Embedding * (shift + count("wkv.head_size"))
	case count("shortconv.l_cache") > 0:
		return f.Embedding * (count("shortconv.l_cache") - 1)
	}
	return ssmState(count("ssm.conv_kernel"), count("ssm.inner_size"), count("ssm.group_count"), count("ssm.state_size"))
}

// ssmState is the state of one layer of Mamba or of gated delta rules.
func ssmState(kernel, inner, groups, state int) int {
	return max(kernel-1, 0)*(inner+2*groups*state) + state*inner
}

// readExperts notes which layers have experts, and how many weights those have.
func (m *Model) readExperts(f *gguf.File) {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		var layer int
		if _, err := fmt.Sscanf(t.Name, "blk.%d.", &layer); err != nil || !strings.Contains(t.Name, "_exps.") {
			continue
		}
		m.ExpertParameters += t.Elements()
		if layer >= 0 && layer < len(m.Layers) {
			m.Layers[layer].Experts = true
		}
	}
}
