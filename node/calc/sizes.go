package calc

import (
	"encoding/json"
	"slices"
	"strings"
)

// This file reads what a config.json says of recurrent state, of experts, and of how
// many weights there are.

// states fills in the layers that are recurrent. As in a GGUF, a convolution keeps one
// column less than its kernel.
func (f *fields) states(m *Model, kinds []Kind) {
	if f.err == nil && !slices.Contains(kinds, Recurrent) {
		f.unseen()
	}
	if f.err != nil || !slices.Contains(kinds, Recurrent) {
		return
	}
	state := 0
	switch {
	case f.has("linear_num_value_heads"):
		keys := f.need(1, maxHeadDim, "linear_key_head_dim")
		inner := f.int("linear_num_value_heads", 1, 1, maxHeads) * f.need(1, maxHeadDim, "linear_value_head_dim")
		state = ssmState(f.int("linear_conv_kernel_dim", 4, 1, 1024), inner, f.need(1, maxHeads, "linear_num_key_heads"), keys)
	case f.has("conv_L_cache"):
		state = m.Embedding * (f.int("conv_L_cache", 1, 1, 1024) - 1)
	default:
		inner := f.first(0, 1, maxWidth, "mamba_intermediate_size")
		heads := f.first(0, 1, maxHeads, "mamba_num_heads", "mamba_n_heads", "n_mamba_heads")
		dim := f.first(0, 1, maxHeadDim, "mamba_head_dim", "mamba_d_head")
		switch {
		case inner > 0:
		case heads > 0 && dim > 0:
			inner = heads * dim
		case f.has("intermediate_size") && strings.Contains(m.Architecture, "mamba"):
			inner = m.FeedForward
		default:
			inner = m.Embedding * f.first(2, 1, 64, "mamba_expand", "expand")
		}
		groups := f.first(0, 0, maxState, "n_groups", "mamba_n_groups")
		state = ssmState(f.need(1, 1024, "conv_kernel", "mamba_d_conv", "d_conv"), inner, groups, f.need(1, maxState, "ssm_state_size", "mamba_d_state", "state_size", "d_state"))
	}
	for i, k := range kinds {
		if k == Recurrent {
			m.Layers[i] = Layer{Kind: Recurrent, State: state}
		}
	}
	for i := range m.Layers {
		if m.Layers[i].Kind == "" {
			m.Layers[i].Kind = Nothing
		}
	}
}

// unseen refuses a file that speaks of recurrent layers in a way that kinds does not
// know: they would be taken for layers of attention.
func (f *fields) unseen() {
	if f.has("layer_types") || f.has("layers_block_type") {
		return
	}
	for name, raw := range f.raw {
		known := strings.HasPrefix(name, "mamba_") || strings.HasPrefix(name, "ssm_") || name == "block_types" || name == "lru_width"
		if known && !off(raw) {
			f.fail(name, "this mix of layers is not known here; a GGUF of the model may be")
		}
	}
}

// experts reads which layers have experts.
func (f *fields) experts(m *Model) {
	if f.err != nil {
		return
	}
	for i := range m.Layers {
		if m.Layers[i].Kind == "" {
			m.Layers[i].Kind = Nothing
		}
	}
	m.Experts = f.first(0, 0, maxExperts, "num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
	if m.Experts < 2 {
		m.Experts = 0
		return
	}
	m.ExpertsUsed = f.need(1, m.Experts, "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "top_k_experts")
	lead := f.int("first_k_dense_replace", 0, 0, maxLayers)
	step := f.first(1, 1, maxLayers, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "expert_layer_period")
	dense := f.places("mlp_only_layers", len(m.Layers))
	letters := f.text("hybrid_override_pattern")
	offset := f.int("expert_layer_offset", step-1, 0, maxLayers)
	for i := range m.Layers {
		switch {
		case letters != "":
			m.Layers[i].Experts = i < len(letters) && letters[i] == 'E'
		case step > 1 && f.has("moe_layer_freq"):
			m.Layers[i].Experts = i >= lead && i%step == 0
		default:
			m.Layers[i].Experts = i >= lead && i%step == offset%step && !slices.Contains(dense, i)
		}
	}
}

// gated are the kinds of models whose feed-forward layers are three matrices and whose
// weights the sizes below count; of others the number is not known.
var gated = map[string]bool{
	"llama": true, "mistral": true, "mixtral": true, "qwen2": true, "qwen2_moe": true, "qwen3": true, "qwen3_moe": true, "gemma": true, "gemma2": true,
	"gemma3": true, "gemma3_text": true, "phi3": true, "deepseek_v2": true, "deepseek_v3": true, "kimi_k2": true, "smollm3": true, "olmo2": true, "granite": true,
}

// tied are those of them whose output shares the input's embeddings unless the file
// says otherwise.
var tied = map[string]bool{"gemma": true, "gemma2": true, "gemma3": true, "gemma3_text": true}

// parameters counts the weights of matrices; norms and biases are less than 0.1 % and
// left out.
func (f *fields) parameters(m *Model) {
	m.WeightBits = f.weightBits()
	if !gated[m.Architecture] || m.Vocab == 0 || m.FeedForward == 0 || m.count(Recurrent) > 0 {
		return
	}
	// Floating point, because sizes from a file may multiply beyond 64 bits.
	width := float64(m.Embedding)
	total := float64(m.Vocab) * width
	if !f.flag("tie_word_embeddings", tied[m.Architecture]) {
		total *= 2
	}
	one := float64(f.first(m.FeedForward, 1, maxFF, "moe_intermediate_size"))
	shared := float64(f.int("shared_expert_intermediate_size", 0, 0, maxFF)) + one*float64(f.int("n_shared_experts", 0, 0, maxExperts))
	inExperts := 0.0
	for i := range m.Layers {
		l := &m.Layers[i]
		total += f.attentionWeights(m, l)
		if !l.Experts {
			total += 3 * width * float64(m.FeedForward)
			continue
		}
		experts := 3 * width * one * float64(m.Experts)
		inExperts += experts
		total += experts + 3*width*shared + width*float64(m.Experts)
	}
	m.Parameters, m.ExpertParameters = count(total), count(inExperts)
}

// count stops where sums of some counts still fit into 64 bits.
func count(n float64) int64 { return int64(min(n, 1<<58)) }

// attentionWeights are the projections of one layer.
func (f *fields) attentionWeights(m *Model, l *Layer) float64 {
	width, heads := float64(m.Embedding), float64(m.Heads)
	if l.Kind != Latent {
		keys, values := float64(l.Keys), float64(l.Values)
		groups := heads / float64(max(m.KVHeads, 1))
		return width*groups*keys + width*(keys+values) + groups*values*width
	}
	number := func(name string, least, most int) float64 { return float64(f.int(name, least, least, most)) }
	rank, rope := number("kv_lora_rank", 1, maxWidth), number("qk_rope_head_dim", 1, maxHeadDim)
	nope, value := number("qk_nope_head_dim", 0, maxHeadDim), number("v_head_dim", 0, maxHeadDim)
	q := width * heads * (nope + rope)
	if low := number("q_lora_rank", 0, maxWidth); low > 0 {
		q = low * (width + heads*(nope+rope))
	}
	return q + width*(rank+rope) + rank*heads*(nope+value) + heads*value*width
}

// weightBits is how wide the file says that weights are; 0: it does not say.
func (f *fields) weightBits() float64 {
	if raw := f.raw["quantization_config"]; len(raw) > 0 && raw[0] == '{' {
		var q struct {
			Method string  `json:"quant_method"`
			Bits   float64 `json:"bits"`
		}
		if json.Unmarshal(raw, &q) == nil {
			switch {
			case q.Bits >= 1 && q.Bits <= 32:
				return q.Bits
			case q.Method == "fp8":
				return 8
			}
		}
		return 0
	}
	for _, name := range []string{"torch_dtype", "dtype"} {
		switch f.text(name) {
		case "float32":
			return 32
		case "bfloat16", "float16":
			return 16
		case "float8_e4m3fn":
			return 8
		}
	}
	return 0
}
