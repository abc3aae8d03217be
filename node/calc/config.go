package calc

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"slices"
	"strings"
)

// fields are those of a config.json. The first refusal sticks; getters of fields that
// are null or absent give their default.
type fields struct {
	raw  map[string]json.RawMessage
	path string // of the object itself, with its dot
	err  *FieldError
}

// inner are the names under which models of several kinds of input keep the part that
// generates text.
var inner = []string{"text_config", "llm_config", "language_config"}

// FromConfig reads a config.json of Hugging Face. A field that changes an answer and
// is not understood gives a *FieldError.
func FromConfig(data []byte) (*Model, error) {
	if len(data) > MaxConfigBytes {
		return nil, refuse("config.json", "has %d bytes, at most %d are allowed", len(data), MaxConfigBytes)
	}
	f := &fields{}
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&f.raw); err != nil {
		return nil, refuse("config.json", "is not a JSON object: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, refuse("config.json", "there is more after the JSON object")
	}
	outer := f
	for _, name := range inner {
		raw := f.raw[name]
		if len(raw) == 0 || raw[0] != '{' {
			continue
		}
		text := &fields{path: name + "."}
		if err := json.Unmarshal(raw, &text.raw); err != nil {
			return nil, refuse(name, "is not a JSON object: %v", err)
		}
		f = text
		break
	}
	m := f.model()
	if f.err == nil && m.WeightBits == 0 {
		m.WeightBits = outer.weightBits()
		f.err = outer.err
	}
	if f.err != nil {
		return nil, f.err
	}
	m.Source = "config.json"
	if m.Parameters > 0 && m.WeightBits > 0 {
		m.WeightBytes = int64(math.Ceil(float64(m.Parameters) * m.WeightBits / 8))
	}
	return m, nil
}

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = refuse(f.path+name, format, args...)
	}
}

func (f *fields) has(name string) bool {
	raw, ok := f.raw[name]
	return ok && string(raw) != "null"
}

// decode reads a field into v. False: it is absent, or not of that type.
func (f *fields) decode(name string, v any, want string) bool {
	if !f.has(name) || f.err != nil {
		return false
	}
	if err := json.Unmarshal(f.raw[name], v); err != nil {
		raw := string(f.raw[name])
		f.fail(name, "is %.40q, but must be %s", raw, want)
		return false
	}
	return true
}

// int reads a whole number.
func (f *fields) int(name string, def, least, most int) int {
	var v float64
	if !f.decode(name, &v, "a whole number") {
		return def
	}
	if v != math.Trunc(v) || v < float64(least) || v > float64(most) {
		f.fail(name, "is %v, allowed are whole numbers from %d to %d", v, least, most)
		return def
	}
	return int(v)
}

// first reads the first of several names that is there.
func (f *fields) first(def, least, most int, names ...string) int {
	for _, n := range names {
		if f.has(n) {
			return f.int(n, def, least, most)
		}
	}
	return def
}

// need is first, where one of the names must be there.
func (f *fields) need(least, most int, names ...string) int {
	if !slices.ContainsFunc(names, f.has) {
		f.fail(names[0], "is missing; allowed are whole numbers from %d to %d", least, most)
	}
	return f.first(least, least, most, names...)
}

func (f *fields) flag(name string, def bool) bool {
	v := def
	f.decode(name, &v, "true or false")
	return v
}

func (f *fields) text(name string) string {
	var v string
	f.decode(name, &v, "a string")
	return v
}

// list reads a list of strings of at most n elements.
func (f *fields) list(name string, n int) []string {
	var v []string
	if f.decode(name, &v, "a list of strings") && len(v) > n {
		f.fail(name, "has %d elements, at most %d are allowed", len(v), n)
	}
	return v
}

// places reads a list of numbers of layers.
func (f *fields) places(name string, layers int) []int {
	var v []int
	if f.decode(name, &v, "a list of whole numbers") {
		for _, n := range v {
			if n < 0 || n >= layers {
				f.fail(name, "has %d, allowed are 0 to %d", n, layers-1)
			}
		}
	}
	return v
}

// unknown are fields that change what is kept, in ways that no formula here knows.
var unknown = map[string]string{
	"attention_hidden_size":         "RWKV is known from a GGUF only",
	"attention_k_eq_v":              "keys that serve as values are not known here",
	"attn_type_list":                "its linear attention is not known here",
	"block_configs":                 "layers that differ one by one are not known here",
	"cla_share_factor":              "layers that share keys and values are not known here",
	"cross_attention_layers":        "cross-attention keeps what does not depend on the text",
	"global_head_dim":               "heads of two sizes are not known here",
	"index_topk":                    "what its index of attention keeps is not known here",
	"is_encoder_decoder":            "encoder-decoder models are not known here",
	"linear_attn_config":            "its linear attention is not known here",
	"num_global_key_value_heads":    "layers with unlike numbers of heads are not known here",
	"num_key_value_heads_per_layer": "layers with unlike numbers of heads are not known here",
}

// off are values with which an unknown field changes nothing.
func off(raw json.RawMessage) bool {
	switch string(raw) {
	case "null", "false", "0", "[]", "{}":
		return true
	}
	return false
}

// model reads the text model.
func (f *fields) model() *Model {
	for name, why := range unknown {
		if raw, ok := f.raw[name]; ok && !off(raw) {
			f.fail(name, "%s", why)
			return nil
		}
	}
	m := &Model{Architecture: f.text("model_type"), Name: f.text("_name_or_path")}
	if f.err == nil && strings.Contains(m.Architecture, "rwkv") {
		f.fail("model_type", "is %.40q: RWKV is known from a GGUF only", m.Architecture)
	}
	n := f.need(1, maxLayers, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
	m.Embedding = f.need(1, maxWidth, "hidden_size", "n_embd", "d_model")
	m.Vocab = f.first(0, 1, maxVocab, "vocab_size", "padded_vocab_size")
	m.Context = f.first(0, 1, MaxTokens, "max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
	m.FeedForward = f.first(0, 0, maxFF, "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
	if f.err != nil {
		return m
	}
	m.Layers = make([]Layer, n)
	kinds := f.kinds(m.Architecture, n)
	f.attention(m, kinds)
	f.states(m, kinds)
	f.experts(m)
	if f.err == nil {
		f.shared(m)
		f.parameters(m)
	}
	return m
}

// kvHeads is the number of heads of keys and values.
func (f *fields) kvHeads(heads int) int {
	switch {
	case f.has("multi_query_group_num") && f.flag("multi_query_attention", true):
		return f.int("multi_query_group_num", heads, 1, maxHeads)
	case f.has("new_decoder_architecture") && !f.flag("new_decoder_architecture", false), f.has("multi_query") && !f.has("new_decoder_architecture"):
		if f.flag("multi_query", false) {
			return 1
		}
		return heads
	}
	return f.first(heads, 1, maxHeads, "num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv")
}

// attention fills in the layers that have some.
func (f *fields) attention(m *Model, kinds []Kind) {
	if f.err != nil || !slices.ContainsFunc(kinds, attends) {
		return
	}
	m.Heads = f.need(1, maxHeads, "num_attention_heads", "n_head", "n_heads", "num_heads")
	if rank := f.int("kv_lora_rank", 0, 0, maxWidth); rank > 0 {
		f.latent(m, kinds, rank)
		return
	}
	m.KVHeads = f.kvHeads(m.Heads)
	if f.err == nil && m.Heads%m.KVHeads != 0 {
		f.fail("num_key_value_heads", "is %d, allowed are divisors of the %d heads", m.KVHeads, m.Heads)
	}
	dim := f.first(0, 1, maxHeadDim, "head_dim", "attention_head_dim", "kv_channels")
	if f.err == nil && dim == 0 {
		if m.Embedding%m.Heads != 0 {
			f.fail("head_dim", "is missing, and hidden_size %d is no multiple of the %d heads", m.Embedding, m.Heads)
		}
		dim = m.Embedding / m.Heads
	}
	value := f.int("v_head_dim", dim, 1, maxHeadDim)
	windows := f.windows(m.Architecture, kinds)
	for i := range m.Layers {
		if attends(kinds[i]) {
			l := &m.Layers[i]
			l.Kind, l.Keys, l.Values, l.Window = Full, m.KVHeads*dim, m.KVHeads*value, windows[i]
			if l.Window > 0 {
				l.Kind = Windowed
			}
		}
	}
}

func attends(k Kind) bool { return k == Full || k == Windowed }

// latent fills in the layers of multi-head latent attention: the compressed row, and
// beside it the part of the key that is rotated, which all heads share.
func (f *fields) latent(m *Model, kinds []Kind, rank int) {
	rope := f.need(1, maxHeadDim, "qk_rope_head_dim")
	m.KVHeads = 1
	for i := range m.Layers {
		if kinds[i] == Full {
			// The engine keeps the latent a second time, as values.
			m.Layers[i] = Layer{Kind: Latent, Keys: rank + rope, Rows: rank + rope + rank}
		}
	}
}

// shared takes what is kept from layers that read another one's.
func (f *fields) shared(m *Model) {
	n := f.int("num_kv_shared_layers", 0, 0, len(m.Layers)-1)
	for i := len(m.Layers) - n; i < len(m.Layers); i++ {
		m.Layers[i] = Layer{Kind: Nothing, Experts: m.Layers[i].Experts}
	}
}

// layerKinds are the words of layer_types and of layers_block_type.
var layerKinds = map[string]Kind{
	"full_attention": Full, "attention": Full, "global": Full, "sliding_attention": Windowed, "chunked_attention": Windowed,
	"linear_attention": Recurrent, "mamba": Recurrent, "mamba2": Recurrent, "conv": Recurrent, "mlp": Nothing, "moe": Nothing,
}

// kinds tells what each layer is, before windows that are given in other ways.
func (f *fields) kinds(arch string, n int) []Kind {
	kinds := make([]Kind, n)
	for i := range kinds {
		kinds[i] = Full
	}
	mark := func(is func(int) bool, otherwise Kind) {
		for i := range kinds {
			if !is(i) {
				kinds[i] = otherwise
			}
		}
	}
	listed := "layer_types"
	if !f.has(listed) {
		listed = "layers_block_type"
	}
	switch {
	case arch == "mamba" || arch == "mamba2" || arch == "falcon_mamba":
		mark(func(int) bool { return false }, Recurrent)
	case f.has("hybrid_override_pattern"):
		f.pattern(kinds)
	case f.has(listed):
		words := f.list(listed, n)
		if f.err == nil && len(words) != n {
			f.fail(listed, "has %d elements, allowed are %d, one for each layer", len(words), n)
		}
		for i, w := range words {
			k, ok := layerKinds[w]
			if !ok {
				f.fail(listed, "has %.40q, which is not known here", w)
			} else if f.err == nil {
				kinds[i] = k
			}
		}
	case f.has("attn_layer_period"):
		period, offset := f.int("attn_layer_period", 1, 1, maxLayers), f.int("attn_layer_offset", 0, 0, maxLayers)
		mark(func(i int) bool { return i%period == offset }, Recurrent)
	case f.has("attn_layer_indices"):
		at := f.places("attn_layer_indices", n)
		mark(func(i int) bool { return slices.Contains(at, i) }, Recurrent)
	case f.has("full_attn_idxs"):
		at := f.places("full_attn_idxs", n)
		mark(func(i int) bool { return slices.Contains(at, i) }, Recurrent)
	case f.has("linear_num_value_heads"):
		each := f.int("full_attention_interval", 4, 1, maxLayers)
		mark(func(i int) bool { return (i+1)%each == 0 }, Recurrent)
	}
	return kinds
}

// pattern reads the letters of Nemotron-H.
func (f *fields) pattern(kinds []Kind) {
	p := f.text("hybrid_override_pattern")
	if f.err == nil && len(p) != len(kinds) {
		f.fail("hybrid_override_pattern", "has %d letters, allowed are %d, one for each layer", len(p), len(kinds))
	}
	for i := range p {
		if f.err != nil {
			return
		}
		switch p[i] {
		case 'M':
			kinds[i] = Recurrent
		case '*':
			kinds[i] = Full
		case '-', 'E':
			kinds[i] = Nothing
		default:
			f.fail("hybrid_override_pattern", "has %q, allowed are M, *, - and E", p[i:i+1])
		}
	}
}

// windows is the window of each layer; 0: it has none.
func (f *fields) windows(arch string, kinds []Kind) []int {
	w := make([]int, len(kinds))
	size := f.first(0, 0, MaxTokens, "sliding_window", "attention_chunk_size", "sliding_window_size")
	if size == 0 || !f.flag("use_sliding_window", true) {
		if size == 0 && slices.Contains(kinds, Windowed) {
			f.fail("sliding_window", "is missing, but layer_types has layers with a window; allowed are 1 to %d", MaxTokens)
		}
		return w
	}
	is := func(int) bool { return true }
	each := func(n int) func(int) bool { return func(i int) bool { return (i+1)%n != 0 } }
	switch {
	case f.has("layer_types"):
		is = func(i int) bool { return kinds[i] == Windowed }
	case f.has("no_rope_layers") && arch == "llama4_text":
		is = each(4)
	case f.has("max_window_layers"): // those above it
		from := f.int("max_window_layers", 0, 0, maxLayers)
		is = func(i int) bool { return i >= from }
	case f.has("sliding_window_pattern") && f.raw["sliding_window_pattern"][0] == '"':
		p := f.text("sliding_window_pattern")
		if strings.Trim(p, "LG") != "" || p == "" {
			f.fail("sliding_window_pattern", "is %.40q, allowed are a number, and the letters L and G", p)
			return w
		}
		is = func(i int) bool { return p[i%len(p)] == 'L' && i != len(kinds)-1 }
	case f.has("sliding_window_pattern"):
		is = each(f.int("sliding_window_pattern", 1, 1, maxLayers))
	case arch == "gemma2":
		is = func(i int) bool { return i%2 == 0 }
	case strings.HasPrefix(arch, "gemma3n"):
		is = each(5)
	case strings.HasPrefix(arch, "gemma3"):
		is = each(6)
	case arch == "gpt_oss":
		is = func(i int) bool { return i%2 == 0 }
	case strings.HasPrefix(arch, "llama4"), arch == "cohere2":
		is = each(4)
	}
	for i := range w {
		if is(i) {
			w[i] = size
		}
	}
	return w
}
