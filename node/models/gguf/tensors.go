package gguf

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Tensor is one entry of the tensor directory.
type Tensor struct {
	Name   string
	Type   TensorType
	Shape  []uint64 // 1 to 4 dimensions, the innermost first
	Offset int64    // from File.DataOffset
	Bytes  int64
}

// Elements is the number of weights.
func (t *Tensor) Elements() int64 {
	n := uint64(1)
	for _, d := range t.Shape {
		n *= d
	}
	return int64(n)
}

// dim is the size of dimension i; those that a shape leaves out are 1.
func (t *Tensor) dim(i int) uint64 {
	if i < len(t.Shape) {
		return t.Shape[i]
	}
	return 1
}

// directory reads the tensor directory.
func (d *decoder) directory(count uint64) []Tensor {
	if d.err != nil {
		return nil
	}
	tensors := make([]Tensor, 0, count)
	names := make(map[string]bool, count)
	for i := uint64(0); i < count && d.err == nil; i++ {
		t := d.tensor(i)
		if names[t.Name] {
			d.fail("tensor "+t.Name, "is there twice, allowed is once")
		}
		names[t.Name] = true
		tensors = append(tensors, t)
	}
	return tensors
}

func (d *decoder) tensor(i uint64) (t Tensor) {
	field := fmt.Sprintf("tensor %d", i)
	t.Name = string(d.text(field+" name", MaxTensorName))
	if d.err == nil && !printable(t.Name) {
		d.fail(field+" name", "is %s, allowed is text without control characters", quote(t.Name))
	}
	field = "tensor " + t.Name
	n := d.u32(field + " dimensions")
	if d.err == nil && (n < 1 || n > maxDims) {
		d.fail(field+" dimensions", "are %d, allowed are 1 to %d", n, maxDims)
	}
	for j := uint32(0); j < n && d.err == nil; j++ {
		t.Shape = append(t.Shape, d.u64(field+" shape"))
	}
	t.Type = TensorType(d.u32(field + " type"))
	offset := d.u64(field + " offset")
	if d.err != nil {
		return t
	}
	var err *FormatError
	if t.Bytes, err = storage(field, t.Type, t.Shape, d.size); err != nil {
		d.err = err
	}
	if offset > d.size {
		d.fail(field+" offset", "is %d, the file has %d bytes", offset, d.size)
	}
	t.Offset = int64(offset)
	return t
}

// storage is the number of bytes of a tensor, which are at most limit.
func storage(field string, t TensorType, shape []uint64, limit uint64) (int64, *FormatError) {
	l, ok := layouts[t]
	if !ok {
		return 0, refuse(field+" type", "is %d, which is not a type of weights", uint32(t))
	}
	if shape[0]%l.block != 0 {
		return 0, refuse(field+" shape", "is %v, rows of %s are allowed in multiples of %d", shape, l.name, l.block)
	}
	n := l.bytes
	for i, dim := range shape {
		if i == 0 {
			dim /= l.block
		}
		over, product := bits.Mul64(n, dim)
		if dim == 0 || over != 0 || product > limit {
			return 0, refuse(field+" shape", "is %v in %s, allowed are sizes of 1 to the %d bytes of the file", shape, l.name, limit)
		}
		n = product
	}
	return int64(n), nil
}

// place finds where the data begins and checks that each tensor begins where
// the one before it ends, padded, and ends within the file.
func (f *File) place(headerEnd uint64) *FormatError {
	if len(f.Tensors) == 0 {
		return refuse("tensor count", "is 0: the file is incomplete")
	}
	f.DataOffset = padded(int64(headerEnd), f.Alignment)
	expect := int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Offset != expect {
			return refuse("tensor "+t.Name+" offset", "is %d, allowed is %d, where the tensor before it ends", t.Offset, expect)
		}
		if end := f.DataOffset + t.Offset + t.Bytes; end > f.Size {
			return refuse("tensor "+t.Name, "ends at byte %d, the file has %d: it is incomplete", end, f.Size)
		}
		expect = padded(t.Offset+t.Bytes, f.Alignment)
	}
	return nil
}

// padded rounds up to a multiple of align. Both are far below 2^62.
func padded(n, align int64) int64 { return (n + align - 1) / align * align }

// shapes checks what llama.cpp asserts of tensors before, or instead of,
// comparing their shapes with the hyperparameters.
func (f *File) shapes(h *hparams, v *vocab) *FormatError {
	byName := make(map[string]*Tensor, len(f.Tensors))
	blocks := make([]bool, h.layers)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		byName[t.Name] = t
		if n, _, ok := block(t.Name); ok && n < h.layers {
			blocks[n] = true
		}
	}
	for n, there := range blocks {
		if !there {
			return refuse(fmt.Sprintf("blk.%d", n), "has no tensor, but %s.block_count is %d: the file is incomplete", h.arch, h.layers)
		}
	}
	embd := byName["token_embd.weight"]
	if embd == nil {
		return refuse("tensor token_embd.weight", "is missing")
	}
	if embd.dim(0) != uint64(h.embedding) || embd.dim(1) != uint64(v.tokens) {
		return refuse("tensor token_embd.weight shape", "is %v, allowed is [%d %d], the embedding length and the tokens", embd.Shape, h.embedding, v.tokens)
	}
	for i := range f.Tensors {
		if err := tensorRules(&f.Tensors[i], byName, h); err != nil {
			return err
		}
	}
	return nil
}

// block splits "blk.7.attn_q.weight" into 7 and "attn_q.weight".
func block(name string) (n int, rest string, ok bool) {
	rest, ok = strings.CutPrefix(name, "blk.")
	if !ok {
		return 0, name, false
	}
	number, rest, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || strconv.Itoa(n) != number {
		return 0, name, false
	}
	return n, rest, true
}

func tensorRules(t *Tensor, byName map[string]*Tensor, h *hparams) *FormatError {
	field := "tensor " + t.Name
	n, base, inBlock := block(t.Name)
	if other(t.Name) {
		return refuse(field, "belongs to a vision or audio part, which this engine does not load; use a GGUF of the text model alone")
	}
	if t.Type != F32 && onlyF32(t, base) {
		return refuse(field+" type", "is %s, allowed is F32", t.Type)
	}
	switch {
	case lookedUp[base] && (t.dim(2) != 1 || t.dim(3) != 1):
		return refuse(field+" shape", "is %v, allowed are 2 dimensions", t.Shape)
	case strings.HasSuffix(base, "exps.weight"):
		if h.expertsUsed == 0 {
			return refuse(field, "holds experts, but %s.expert_used_count is 0", h.arch)
		}
		if t.dim(3) != 1 {
			return refuse(field+" shape", "is %v, allowed are 3 dimensions", t.Shape)
		}
	case (base == "ssm_conv1d.weight" || base == "shortconv.conv.weight" || base == "ssm_a") && (t.dim(2) != 1 || t.dim(3) != 1):
		return refuse(field+" shape", "is %v, allowed are 2 dimensions", t.Shape)
	}
	for _, pair := range companions[h.arch] {
		name := strings.TrimSuffix(t.Name, base) + pair[1]
		if inBlock && base == pair[0] && byName[name] == nil {
			return refuse("tensor "+name, "is missing")
		}
	}
	if err := biasRule(t, byName); err != nil {
		return err
	}
	if inBlock && n < h.layers {
		return attentionRule(t, base, n, h)
	}
	return nil
}

// lookedUp are the tensors of which llama.cpp takes rows.
var lookedUp = map[string]bool{"token_embd.weight": true, "position_embd.weight": true, "token_types.weight": true, "per_layer_token_embd.weight": true}

// other says whether a tensor is of a vision or audio encoder that some
// converters put into the same file.
func other(name string) bool {
	for _, p := range [...]string{"v.", "a.", "mm.", "vision.", "audio.", "resampler."} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// onlyF32 says whether a tensor goes into an element-wise operation, for which
// the CPU code has no other type.
func onlyF32(t *Tensor, base string) bool {
	return len(t.Shape) == 1 || t.Elements() == int64(t.dim(0)) || strings.HasSuffix(base, ".bias") || strings.Contains(base, "norm") ||
		strings.HasPrefix(base, "rope_f") || strings.HasPrefix(base, "ssm_a") || strings.HasPrefix(base, "ssm_d") && base != "ssm_dt.weight" || strings.HasPrefix(base, "ssm_conv1d") ||
		base == "shortconv.conv.weight" || strings.HasPrefix(base, "time_mix_lerp") || base == "time_mix_first.weight" ||
		strings.HasPrefix(base, "time_mix_decay.") || strings.HasPrefix(base, "channel_mix_lerp")
}

// biasRule: a bias is added to what its weight yields, so it is as long.
func biasRule(t *Tensor, byName map[string]*Tensor) *FormatError {
	stem, ok := strings.CutSuffix(t.Name, ".bias")
	if !ok {
		return nil
	}
	w := byName[stem+".weight"]
	if w == nil {
		return nil
	}
	rows := w.dim(1)
	if len(w.Shape) == 1 {
		rows = w.dim(0)
	}
	if t.dim(0) != rows {
		return refuse("tensor "+t.Name+" shape", "is %v, allowed is a length of %d, that of its weight's rows", t.Shape, rows)
	}
	return nil
}

// attentionRule: the graph splits these rows into heads and asserts the sizes.
func attentionRule(t *Tensor, base string, layer int, h *hparams) *FormatError {
	if h.traits.ownAttention || h.heads[layer] == 0 {
		return nil
	}
	heads, kv := uint64(h.heads[layer]), uint64(h.headsKV[layer])
	k, v := uint64(h.keyLength), uint64(h.valueLength)
	var have, want uint64
	switch base {
	case "attn_q.weight":
		have, want = t.dim(1), heads*k
	case "attn_k.weight":
		have, want = t.dim(1), kv*k
	case "attn_v.weight":
		have, want = t.dim(1), kv*v
	case "attn_qkv.weight":
		have, want = t.dim(1), heads*k+kv*(k+v)
	case "attn_output.weight":
		have, want = t.dim(0), heads*v
	case "attn_q_norm.weight":
		return normRule(t, heads*k)
	case "attn_k_norm.weight":
		return normRule(t, kv*k)
	}
	if have != want {
		return refuse("tensor "+t.Name+" shape", "is %v, but %d heads (%d for keys and values) of %d and %d values need %d", t.Shape, heads, kv, k, v, want)
	}
	return nil
}

// normRule: a norm of queries or keys repeats over a row of all heads.
func normRule(t *Tensor, row uint64) *FormatError {
	if row%t.dim(0) != 0 {
		return refuse("tensor "+t.Name+" shape", "is %v, allowed are lengths that divide the %d values of all heads", t.Shape, row)
	}
	return nil
}
