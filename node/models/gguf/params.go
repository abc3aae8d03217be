package gguf

import "fmt"

// hparams are the hyperparameters that the checks of tensors and the Summary use.
type hparams struct {
	arch        string
	traits      traits
	layers      int
	context     int
	embedding   int
	heads       []uint32 // per layer; 0: no attention
	headsKV     []uint32
	keyLength   uint32
	valueLength uint32
	ropeDims    uint32
	experts     uint32
	expertsUsed uint32
	window      uint32
	pooling     uint32 // noPooling if the file does not say
}

const noPooling = ^uint32(0)

// params reads keys of the architecture; names come without its prefix. The
// first refusal sticks.
type params struct {
	arch string
	meta map[string]any
	err  *FormatError
}

func (p *params) key(name string) string { return p.arch + "." + name }

func (p *params) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = refuse(p.key(name), format, args...)
	}
}

func (p *params) has(name string) bool {
	_, ok := p.meta[p.key(name)]
	return ok
}

// need reads a required count.
func (p *params) need(name string, least, most uint32) uint32 {
	if !p.has(name) {
		p.fail(name, "is missing")
	}
	return p.get(name, least, least, most)
}

// get reads an optional count. The default is not checked.
func (p *params) get(name string, def, least, most uint32) uint32 {
	raw, ok := p.meta[p.key(name)]
	if !ok {
		return def
	}
	v, ok := raw.(uint32)
	if !ok {
		p.fail(name, "is of type %s, allowed is uint32", typeName(raw))
		return def
	}
	if v < least || v > most {
		p.fail(name, "is %d, allowed are %d to %d", v, least, most)
	}
	return v
}

// text reads an optional string.
func (p *params) text(name, def string) string {
	raw, ok := p.meta[p.key(name)]
	if !ok {
		return def
	}
	s, ok := raw.(string)
	if !ok {
		p.fail(name, "is of type %s, allowed is string", typeName(raw))
	}
	return s
}

// float reads an optional number.
func (p *params) float(name string, def, least, most float32) float32 {
	raw, ok := p.meta[p.key(name)]
	if !ok {
		return def
	}
	v, ok := raw.(float32)
	if !ok {
		p.fail(name, "is of type %s, allowed is float32", typeName(raw))
	} else if v < least || v > most {
		p.fail(name, "is %v, allowed are %v to %v", v, least, most)
	}
	return v
}

// perLayer reads one count for all n layers, or an array of n.
func (p *params) perLayer(name string, n int, def []uint32, most uint32) []uint32 {
	raw, ok := p.meta[p.key(name)]
	if !ok {
		return def
	}
	a, ok := raw.(Array)
	if !ok {
		v := p.get(name, 0, 0, most)
		all := make([]uint32, n)
		for i := range all {
			all[i] = v
		}
		return all
	}
	if a.Len != n {
		p.fail(name, "has %d elements, allowed are %d", a.Len, n)
		return def
	}
	all := make([]uint32, 0, n)
	for i, e := range a.Values {
		v, ok := e.(uint32)
		if s, signed := e.(int32); signed && s >= 0 {
			v, ok = uint32(s), true
		}
		if !ok || v > most {
			p.fail(name, "element %d is %v (%s), allowed are integers from 0 to %d", i, e, a.Elem, most)
			return def
		}
		all = append(all, v)
	}
	if len(all) != n {
		p.fail(name, "is an array of %s, allowed are arrays of int32 and uint32", a.Elem)
	}
	return all
}

// check validates everything but the encoding and fills the Summary.
func (f *File) check(v *vocab) error {
	arch, err := f.text("general.architecture")
	if err != nil {
		return err
	}
	if err := f.kind(); err != nil {
		return err
	}
	t, known := architectures[arch]
	if !known {
		return refuse("general.architecture", "is %s, which this engine does not know", quote(arch))
	}
	if t.refused != "" {
		return refuse("general.architecture", "is %s: %s", quote(arch), t.refused)
	}
	if err := f.vocabulary(v); err != nil {
		return err
	}
	p := &params{arch: arch, meta: f.Metadata}
	h := p.model(t)
	p.quirks(h, f)
	if p.err != nil {
		return p.err
	}
	if err := f.shapes(h, v); err != nil {
		return err
	}
	f.summarise(h, v)
	return nil
}

// kind refuses files that hold something else than a whole model.
func (f *File) kind() *FormatError {
	if k, _ := f.Metadata["general.type"].(string); k != "" && k != "model" {
		return refuse("general.type", "is %s, allowed is \"model\"", quote(k))
	}
	if raw, ok := f.Metadata["split.count"]; ok {
		if n, ok := raw.(uint16); !ok || n > 1 {
			return refuse("split.count", "is %v: the model is split over several files; join them with llama-gguf-split --merge", raw)
		}
	}
	if raw, ok := f.Metadata["general.file_type"]; ok {
		if _, ok := raw.(uint32); !ok {
			return refuse("general.file_type", "is of type %s, allowed is uint32", typeName(raw))
		}
	}
	return nil
}

// text reads a required string of any section.
func (f *File) text(key string) (string, *FormatError) {
	raw, ok := f.Metadata[key]
	if !ok {
		return "", refuse(key, "is missing")
	}
	s, ok := raw.(string)
	if !ok {
		return "", refuse(key, "is of type %s, allowed is string", typeName(raw))
	}
	return s, nil
}

// arrayOf reads an optional array of one of the given element types.
func (f *File) arrayOf(key string, elem ...ValueType) (a Array, there bool, err *FormatError) {
	raw, there := f.Metadata[key]
	if !there {
		return a, false, nil
	}
	a, ok := raw.(Array)
	if ok {
		for _, e := range elem {
			if a.Elem == e {
				return a, true, nil
			}
		}
	}
	return a, true, refuse(key, "is of type %s, allowed is array of %s", typeName(raw), elem[0])
}

// model reads what all architectures share.
func (p *params) model(t traits) *hparams {
	h := &hparams{arch: p.arch, traits: t}
	h.layers = int(p.need("block_count", 1, MaxLayers))
	h.embedding = int(p.need("embedding_length", 1, maxEmbedding))
	h.context = int(p.need("context_length", 1, maxContext))
	if p.err != nil {
		return h
	}
	p.perLayer("feed_forward_length", h.layers, nil, maxFF)
	p.attention(h)
	p.experts(h)
	p.rope(h)
	p.norms()
	h.window = p.get("attention.sliding_window", 0, 0, maxContext)
	h.pooling = p.get("pooling_type", noPooling, 0, 4)
	return h
}

func (p *params) attention(h *hparams) {
	h.heads = p.perLayer("attention.head_count", h.layers, make([]uint32, h.layers), maxHeads)
	h.headsKV = p.perLayer("attention.head_count_kv", h.layers, h.heads, maxHeads)
	if p.err != nil || h.traits.headless {
		return
	}
	for i := range h.heads {
		q, kv := h.heads[i], h.headsKV[i]
		switch {
		case i == 0 && q == 0:
			p.fail("attention.head_count", "is 0 or missing, allowed are 1 to %d", maxHeads)
		case kv == 0 && !h.traits.gaps:
			p.fail("attention.head_count_kv", "is 0 in layer %d, allowed are 1 to %d", i, maxHeads)
		case kv > 0 && (q == 0 || q%kv != 0):
			p.fail("attention.head_count_kv", "is %d in layer %d, allowed are divisors of the %d heads", kv, i, q)
		}
	}
	if p.err != nil {
		return
	}
	if !(p.has("attention.key_length") && p.has("attention.value_length")) && h.embedding%int(h.heads[0]) != 0 {
		p.fail("embedding_length", "is %d, allowed are multiples of the %d heads", h.embedding, h.heads[0])
	}
	def := uint32(h.embedding) / h.heads[0]
	h.keyLength = p.get("attention.key_length", def, 1, maxHeadDim)
	h.valueLength = p.get("attention.value_length", def, 1, maxHeadDim)
	if h.keyLength != h.valueLength && !h.traits.ownAttention {
		p.fail("attention.value_length", "is %d, allowed is %d, the length of keys", h.valueLength, h.keyLength)
	}
}

func (p *params) experts(h *hparams) {
	h.experts = p.get("expert_count", 0, 0, MaxExperts)
	h.expertsUsed = p.get("expert_used_count", 0, 0, h.experts)
	groups := p.get("expert_group_count", 0, 0, max(h.experts, 1)-1)
	used := p.get("expert_group_used_count", 0, 0, MaxExperts)
	if h.experts > 0 && h.expertsUsed == 0 {
		p.fail("expert_used_count", "is 0 or missing, allowed are 1 to %d", h.experts)
	}
	if groups > 1 && (h.experts%groups != 0 || h.experts/groups < 2) {
		p.fail("expert_group_count", "is %d, allowed are divisors of the %d experts with at least 2 in each group", groups, h.experts)
	}
	if groups > 1 && (used == 0 || used >= groups) {
		p.fail("expert_group_used_count", "is %d, allowed are 1 to %d", used, groups-1)
	}
	if h.traits.experts && h.experts == 0 {
		p.fail("expert_count", "is 0 or missing, allowed are 1 to %d", MaxExperts)
	}
	gating := p.get("expert_gating_func", 0, 0, 3)
	if h.traits.gating && gating == 0 {
		p.fail("expert_gating_func", "is 0 or missing, allowed are 1 to 3")
	}
}

// ropeScalings are the names of rope.scaling.type; llama.cpp asserts them.
var ropeScalings = map[string]bool{"none": true, "linear": true, "yarn": true, "longrope": true}

func (p *params) rope(h *hparams) {
	if s := p.text("rope.scaling.type", "linear"); !ropeScalings[s] {
		p.fail("rope.scaling.type", "is %s, allowed are none, linear, yarn and longrope", quote(s))
	}
	p.get("rope.scaling.original_context_length", 0, 0, maxContext)
	if h.traits.headless || p.err != nil {
		return
	}
	h.ropeDims = p.get("rope.dimension_count", h.keyLength, 0, h.keyLength)
	if h.ropeDims%2 != 0 {
		p.fail("rope.dimension_count", "is %d, allowed are even numbers up to %d", h.ropeDims, h.keyLength)
	}
	if h.traits.fullRope && h.ropeDims != h.keyLength {
		p.fail("rope.dimension_count", "is %d, allowed is %d, the length of keys", h.ropeDims, h.keyLength)
	}
	p.sections(h)
}

// sections checks how a multi-axis rotary embedding divides a head.
func (p *params) sections(h *hparams) {
	const name = "rope.dimension_sections"
	if !p.has(name) {
		return
	}
	sum := uint32(0)
	for _, s := range p.perLayer(name, 4, nil, maxHeadDim) {
		sum += s
	}
	if sum == 0 || sum > h.keyLength {
		p.fail(name, "add up to %d, allowed are 1 to %d", sum, h.keyLength)
	}
}

// norms checks the epsilons, of which ggml asserts that they are not negative.
func (p *params) norms() {
	found := false
	for _, name := range [...]string{"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon", "attention.group_norm_epsilon"} {
		found = found || p.has(name)
		p.float(name, 0, 0, 1)
	}
	if !found {
		p.fail("attention.layer_norm_rms_epsilon", "is missing")
	}
}

// layerArray checks the type and length of an optional array that has one
// element for each layer.
func (p *params) layerArray(name string, n int, elem ValueType) {
	raw, ok := p.meta[p.key(name)]
	if !ok {
		return
	}
	if a, isArray := raw.(Array); isArray && (a.Elem != elem || a.Len != n) {
		p.fail(name, "is an array of %d %s, allowed are %d %s", a.Len, a.Elem, n, elem)
	} else if !isArray && fmt.Sprintf("%T", raw) != elem.String() {
		p.fail(name, "is of type %s, allowed is %s", typeName(raw), elem)
	}
}
