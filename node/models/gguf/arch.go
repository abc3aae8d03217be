package gguf

import (
	"fmt"
	"strings"
)

// traits is what the checks and the Summary must know of an architecture.
type traits struct {
	refused   string // why files of this architecture are not taken
	recurrent bool   // no attention at all
	hybrid    bool   // attention in some layers, recurrent state in others
	encoder   bool   // makes embeddings, cannot generate

	headless     bool // attention heads have no meaning
	gaps         bool // layers without attention are allowed
	ownAttention bool // keys, values and projections are cut in ways of its own
	fullRope     bool // the whole head is rotated; asserted
	experts      bool // has no dense form; asserted
	gating       bool // uses expert_gating_func without a default
	window       bool // needs a sliding window above 0
}

// architectures are those of llama.cpp ec98e2002. What its graph builders and
// hyperparameter code assert was read for each.
var architectures = map[string]traits{
	"clip":             {refused: "this is the vision part of a model, not a model"},
	"gptj":             {refused: "llama.cpp has no code for it"},
	"t5":               {refused: "encoder-decoder models cannot be served"},
	"t5encoder":        {refused: "encoder-decoder models cannot be served"},
	"wavtokenizer-dec": {refused: "audio models cannot be served"},
	"dream":            {refused: "diffusion models cannot be served"},
	"llada":            {refused: "diffusion models cannot be served"},
	"llada-moe":        {refused: "diffusion models cannot be served"},
	"rnd1":             {refused: "diffusion models cannot be served"},
	"solar":            {refused: "llama.cpp reads parts of it that need not be there"},
	"plm":              {refused: "llama.cpp cannot compute it"},
	"chameleon":        {refused: "models that make images cannot be served"},

	"bert":            {encoder: true},
	"nomic-bert":      {encoder: true},
	"nomic-bert-moe":  {encoder: true},
	"neo-bert":        {encoder: true},
	"jina-bert-v2":    {encoder: true},
	"jina-bert-v3":    {encoder: true},
	"gemma-embedding": {encoder: true, window: true},

	"mamba":      {recurrent: true, headless: true},
	"mamba2":     {recurrent: true, headless: true},
	"rwkv6":      {recurrent: true, headless: true},
	"rwkv6qwen2": {recurrent: true, headless: true},
	"rwkv7":      {recurrent: true, headless: true},
	"arwkv7":     {recurrent: true, headless: true},

	"jamba":          {hybrid: true, gaps: true},
	"falcon-h1":      {hybrid: true},
	"plamo2":         {hybrid: true, gaps: true},
	"granitehybrid":  {hybrid: true, gaps: true},
	"lfm2":           {hybrid: true, gaps: true},
	"lfm2moe":        {hybrid: true, gaps: true, experts: true, gating: true},
	"nemotron_h":     {hybrid: true, gaps: true},
	"nemotron_h_moe": {hybrid: true, gaps: true},
	"qwen3next":      {hybrid: true, ownAttention: true},

	"deepseek2": {ownAttention: true},
	"minicpm3":  {ownAttention: true},

	"llama": {fullRope: true}, "llama4": {fullRope: true}, "mistral3": {fullRope: true}, "refact": {}, "minicpm": {fullRope: true},
	"deci": {fullRope: true, gaps: true}, "falcon": {fullRope: true}, "grok": {fullRope: true, experts: true}, "gpt2": {}, "gptneox": {},
	"mpt": {}, "baichuan": {fullRope: true}, "starcoder": {}, "starcoder2": {fullRope: true}, "bloom": {}, "stablelm": {},
	"qwen": {}, "qwen2": {fullRope: true}, "qwen2moe": {fullRope: true, experts: true}, "qwen2vl": {fullRope: true},
	"qwen3": {fullRope: true}, "qwen3moe": {fullRope: true, experts: true}, "qwen3vl": {fullRope: true}, "qwen3vlmoe": {fullRope: true, experts: true},
	"phi2": {}, "phi3": {}, "phimoe": {experts: true}, "plamo": {fullRope: true}, "codeshell": {fullRope: true}, "orion": {fullRope: true},
	"internlm2": {fullRope: true}, "gemma": {}, "gemma2": {window: true}, "gemma3": {}, "gemma3n": {window: true}, "xverse": {fullRope: true},
	"command-r": {}, "cohere2": {window: true}, "dbrx": {fullRope: true, experts: true}, "olmo": {fullRope: true}, "olmo2": {fullRope: true},
	"olmoe": {fullRope: true, experts: true}, "openelm": {}, "arctic": {fullRope: true, experts: true}, "deepseek": {fullRope: true},
	"chatglm": {}, "glm4": {}, "glm4moe": {experts: true}, "bitnet": {}, "jais": {}, "nemotron": {},
	"exaone": {fullRope: true}, "exaone4": {fullRope: true}, "granite": {fullRope: true}, "granitemoe": {fullRope: true},
	"bailingmoe": {experts: true}, "bailingmoe2": {experts: true, gating: true},
	"dots1": {fullRope: true, experts: true, gating: true}, "arcee": {fullRope: true}, "afmoe": {experts: true, window: true}, "ernie4_5": {fullRope: true},
	"ernie4_5-moe": {fullRope: true, experts: true}, "hunyuan-moe": {fullRope: true, experts: true}, "hunyuan-dense": {fullRope: true},
	"smollm3": {fullRope: true}, "gpt-oss": {window: true, experts: true}, "smallthinker": {fullRope: true, experts: true, gating: true},
	"seed_oss": {fullRope: true}, "grovemoe": {fullRope: true, experts: true}, "apertus": {fullRope: true}, "minimax-m2": {experts: true, gating: true},
	"cogvlm": {fullRope: true}, "pangu-embedded": {fullRope: true},
}

// patterns are the architectures with windowed layers, and how many layers it
// takes until both kinds have come: llama.cpp cannot do with one kind alone.
var patterns = map[string]int{"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gemma-embedding": 1, "cohere2": 4, "gpt-oss": 2, "olmo2": 4, "llama4": 4,
	"afmoe": 4, "exaone4": 4, "smallthinker": 2}

// effectiveWindow is the window that llama.cpp uses: some architectures have one
// that the file does not name, and for those without a pattern it ignores the
// file's.
func (h *hparams) effectiveWindow() uint32 {
	_, windowed := patterns[h.arch]
	switch {
	case !windowed, h.arch == "exaone4" && h.layers != 64:
		return 0
	case h.arch == "llama4":
		return 8192
	case h.window == 0 && (h.arch == "gemma2" || h.arch == "exaone4"), h.window > 0 && h.arch == "smallthinker":
		return 4096
	}
	return h.window
}

// companions are tensors that llama.cpp's loader takes as optional and its graph
// then uses: a layer that has the first must have the second.
var companions = map[string][][2]string{
	"phi3":           {{"attn_norm.weight", "attn_qkv.weight"}},
	"qwen2vl":        {{"attn_norm.weight", "attn_q.bias"}, {"attn_norm.weight", "attn_k.bias"}, {"attn_norm.weight", "attn_v.bias"}},
	"falcon-h1":      {{"ssm_conv1d.weight", "ssm_conv1d.bias"}},
	"granitehybrid":  {{"ssm_conv1d.weight", "ssm_conv1d.bias"}},
	"nemotron_h":     {{"ssm_conv1d.weight", "ssm_conv1d.bias"}},
	"nemotron_h_moe": {{"ssm_conv1d.weight", "ssm_conv1d.bias"}},
}

// quirks checks what single architectures assert or divide by.
func (p *params) quirks(h *hparams, f *File) {
	if p.err != nil {
		return
	}
	if h.traits.window && h.window == 0 && (p.arch != "gemma2" || p.has("attention.sliding_window")) {
		p.fail("attention.sliding_window", "is 0 or missing, allowed are 1 to %d", maxContext)
	}
	if n := patterns[p.arch]; h.effectiveWindow() > 0 && h.layers < n {
		p.fail("block_count", "is %d, allowed are %d or more with a sliding window", h.layers, n)
	}
	if _, _, err := f.arrayOf(p.key("classifier.output_labels"), String); err != nil {
		p.err = err
	}
	p.unread(h)
	switch p.arch {
	case "deepseek2", "minicpm3":
		p.latent(h)
	case "qwen2vl", "qwen3vl", "qwen3vlmoe":
		if !p.has("rope.dimension_sections") {
			p.fail("rope.dimension_sections", "is missing")
		}
		p.get("n_deepstack_layers", 0, 0, uint32(h.layers))
	case "gemma-embedding":
		p.dense(h)
	case "ernie4_5-moe":
		p.need("interleave_moe_layer_step", 1, MaxLayers)
	case "grovemoe":
		if n := p.need("experts_per_group", 1, h.experts); n > 0 && h.experts%n != 0 {
			p.fail("experts_per_group", "is %d, allowed are divisors of the %d experts", n, h.experts)
		} else if n > 0 && h.expertsUsed > h.experts/n {
			p.fail("expert_used_count", "is %d, allowed are 1 to %d, the number of groups", h.expertsUsed, h.experts/n)
		}
	case "baichuan":
		if h.layers != 32 && h.layers != 40 {
			p.fail("block_count", "is %d, allowed are 32 and 40", h.layers)
		}
	case "nemotron_h", "nemotron_h_moe":
		if h.expertsUsed == 0 {
			p.need("expert_feed_forward_length", 1, maxFF)
		}
	case "bailingmoe2", "glm4moe":
		p.get("nextn_predict_layers", 0, 0, uint32(h.layers)-1)
	case "apertus":
		for _, name := range [...]string{"xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps"} {
			p.layerArray(name, h.layers, Float32)
		}
	}
	p.state(h, f)
}

// unread are keys that reach arithmetic in C whatever the architecture.
func (p *params) unread(h *hparams) {
	for _, name := range [...]string{"leading_dense_block_count", "interleave_moe_layer_step", "moe_every_n_layers", "expert_shared_count", "rescale_every_n_layers"} {
		p.get(name, 0, 0, maxFF)
	}
	for _, name := range [...]string{"expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_chunk_feed_forward_length"} {
		p.get(name, 0, 0, maxFF)
	}
	scale := p.float("attention.temperature_scale", 0, -1e6, 1e6)
	if floor := p.get("attention.temperature_length", 0, 0, maxContext); p.arch == "deepseek2" && scale != 0 && floor == 0 {
		p.fail("attention.temperature_length", "is 0 or missing, but attention.temperature_scale is set")
	}
}

// latent checks models that keep compressed keys and values.
func (p *params) latent(h *hparams) {
	key := p.get("attention.key_length_mla", h.keyLength, 1, maxHeadDim)
	p.get("attention.value_length_mla", h.valueLength, 1, maxHeadDim)
	p.need("attention.kv_lora_rank", 1, maxEmbedding)
	p.get("attention.q_lora_rank", 1, 1, maxEmbedding)
	for i := range h.heads {
		want := h.heads[0]
		if p.has("attention.key_length_mla") {
			want = 1
		}
		if h.heads[i] != h.heads[0] || h.headsKV[i] != want {
			p.fail("attention.head_count_kv", "is %d in layer %d of %d heads, allowed is %d", h.headsKV[i], i, h.heads[i], want)
		}
	}
	if h.ropeDims >= key {
		p.fail("rope.dimension_count", "is %d, allowed are less than the %d values of a key", h.ropeDims, key)
	}
}

// dense checks the layers after pooling that sentence-transformers have.
func (p *params) dense(h *hparams) {
	for _, name := range [...]string{"dense_2_feat_in", "dense_3_feat_out"} {
		if n := p.get(name, 0, 0, maxEmbedding); n != 0 && n != uint32(h.embedding) {
			p.fail(name, "is %d, allowed is %d, the embedding length", n, h.embedding)
		}
	}
	if in, out := p.get("dense_3_feat_in", 0, 0, maxEmbedding), p.get("dense_2_feat_out", 0, 0, maxEmbedding); in != out {
		p.fail("dense_3_feat_in", "is %d, allowed is %d, what the dense layer before yields", in, out)
	}
}

// state checks the sizes of recurrent state.
func (p *params) state(h *hparams, f *File) {
	switch {
	case !h.traits.recurrent && !h.traits.hybrid:
	case strings.Contains(p.arch, "rwkv"):
		p.wkv(h, f)
	case strings.HasPrefix(p.arch, "lfm2"):
		p.need("shortconv.l_cache", 2, 1024)
	default:
		p.ssm(h)
	}
}

func (p *params) ssm(h *hparams) {
	p.need("ssm.conv_kernel", 1, 1024)
	inner := p.need("ssm.inner_size", 1, maxEmbedding)
	state := p.need("ssm.state_size", 1, 65536)
	rank := p.need("ssm.time_step_rank", 1, 65536)
	if p.err != nil {
		return
	}
	switch p.arch {
	case "mamba2", "jamba", "granitehybrid":
		if int(inner) != 2*h.embedding {
			p.fail("ssm.inner_size", "is %d, allowed is %d, twice the embedding length", inner, 2*h.embedding)
		}
	}
	if p.arch == "mamba" || p.arch == "jamba" {
		return
	}
	if inner%rank != 0 {
		p.fail("ssm.time_step_rank", "is %d, allowed are divisors of the inner size %d", rank, inner)
	}
	if p.arch == "plamo2" {
		p.get("ssm.group_count", 0, 0, 0)
		return
	}
	groups := p.need("ssm.group_count", 1, 65536)
	if groups > 0 && (rank%groups != 0 || inner%groups != 0) {
		p.fail("ssm.group_count", "is %d, allowed are divisors of %d and %d", groups, rank, inner)
	}
	if p.arch == "qwen3next" && inner != rank*state {
		p.fail("ssm.inner_size", "is %d, allowed is %d, heads times state", inner, rank*state)
	}
}

func (p *params) wkv(h *hparams, f *File) {
	size := p.need("wkv.head_size", 1, 65536)
	if p.err == nil && h.embedding%int(size) != 0 {
		p.fail("wkv.head_size", "is %d, allowed are divisors of the embedding length %d", size, h.embedding)
	}
	for i, kv := range h.headsKV {
		if heads := uint32(h.embedding) / max(size, 1); kv != 0 && (p.arch == "rwkv6" || p.arch == "rwkv7" || heads%kv != 0) {
			p.fail("attention.head_count_kv", "is %d in layer %d, allowed is 0", kv, i)
		}
	}
	shift := uint32(2)
	if strings.HasSuffix(p.arch, "qwen2") || p.arch == "arwkv7" {
		shift = 1
	}
	if n := p.get("token_shift_count", 2, 1, 2); n != shift {
		p.fail("token_shift_count", "is %d, allowed is %d", n, shift)
	}
	if p.arch == "rwkv6" || p.arch == "rwkv6qwen2" {
		p.lerp(h, f)
	}
}

// lerp: each layer has its mixing factors in one tensor or in five.
func (p *params) lerp(h *hparams, f *File) {
	there := make(map[int]bool, h.layers)
	for i := range f.Tensors {
		if n, base, ok := block(f.Tensors[i].Name); ok && (base == "time_mix_lerp_fused.weight" || base == "time_mix_lerp_w.weight") {
			there[n] = true
		}
	}
	for n := range h.layers {
		if !there[n] && p.err == nil {
			p.err = refuse(fmt.Sprintf("tensor blk.%d.time_mix_lerp_fused.weight", n), "is missing")
		}
	}
}
