package sim

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

//go:embed hardware.csv
var hardwareCSV []byte

//go:embed models.csv
var modelsCSV []byte

// What is not measured of a device is a roofline with these shares of what its maker
// says, as engines for data centres reach them.
const (
	rooflineCompute   = 0.5
	rooflineBandwidth = 0.8
	// attentionShare is how fast attention over a long context computes beside the
	// rest: an RTX 3090 with flash attention makes 1,717 prompt tokens/s of an 8B model
	// at a context of 32,768 (github.com/ggml-org/llama.cpp/pull/17505), where floating
	// point operations alone would allow 1.3 times that.
	attentionShare = 0.75
	// overlapMissed is the part of the shorter one of reading weights and computing
	// that does not hide behind the longer one: steps of 8 to 64 tokens in the same
	// source fit 0.5 to 0.74.
	overlapMissed = 0.7
	// memoryUsed is the share of a device's memory for weights and KV.
	memoryUsed = 0.9
	// measuredPrompt is the length of the prompts that the table's figures are of, and
	// measuredAnswer the context at the middle of its answers.
	measuredPrompt = 1024
	measuredAnswer = 512
	// ubatch is how many prompt tokens llama.cpp computes at a time.
	ubatch = 512
)

// Device is a GPU or CPU of the table; see hardware.csv for its columns.
type Device struct {
	Name                string
	MemoryGB            float64
	BandwidthGBs        float64
	TFLOPS              float64
	HostGBs             float64
	PrefillQ4, DecodeQ4 float64 // tokens/s of Llama 3 8B; 0: not measured
	PrefillF16          float64
	DecodeF16           float64
	Like                string
	Source              string
}

// Model is the geometry of a model.
type Model struct {
	Name    string
	Params  float64 // of all its weights
	Layers  int
	Heads   int
	KVHeads int
	HeadDim int
	Weights Weights
	KVBits  float64 // of one element of KV; 16
}

// Weights is a kind of quantisation.
type Weights string

// The kinds.
const (
	Q4  Weights = "q4_k_m"
	Q8  Weights = "q8_0"
	F16 Weights = "f16"
	FP8 Weights = "fp8"
)

// bits are those of a weight, block scales included.
func (w Weights) bits() float64 {
	switch w {
	case Q8:
		return 8.5
	case F16:
		return 16
	case FP8:
		return 8
	}
	return 4.9 // 4.58 GiB for 8.03e9 weights
}

// KVBytes is what the KV of one token takes: keys and values of each layer.
func (m Model) KVBytes() int {
	return int(2 * float64(m.Layers*m.KVHeads*m.HeadDim) * m.KVBits / 8)
}

// WeightBytes is what one step reads.
func (m Model) WeightBytes() float64 { return m.Params * m.Weights.bits() / 8 }

// doubling is the context at which a prompt token takes twice as long as at none:
// 2 operations for each weight against 4 for each element of queries and token of
// context.
func (m Model) doubling() float64 {
	return attentionShare * 2 * m.Params / (4 * float64(m.Layers*m.Heads*m.HeadDim))
}

// reference is the model that the table is of.
func reference(w Weights) Model {
	m, err := FindModel("llama-3.1-8b:" + string(w))
	if err != nil {
		panic("sim: the table of models lacks the one that devices were measured with: " + err.Error())
	}
	return m
}

// rows reads one of our own tables; that they are well formed is tested.
func rows(table []byte) [][]string {
	r := csv.NewReader(bytes.NewReader(table))
	r.Comment = '#'
	all, err := r.ReadAll()
	if err != nil {
		panic("sim: a table of this package: " + err.Error())
	}
	return all[1:]
}

func number(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic("sim: a table of this package: " + err.Error())
	}
	return v
}

// Devices is the table.
func Devices() []Device {
	var out []Device
	for _, f := range rows(hardwareCSV) {
		out = append(out, Device{Name: f[0], MemoryGB: number(f[1]), BandwidthGBs: number(f[2]), TFLOPS: number(f[3]), HostGBs: number(f[4]),
			PrefillQ4: number(f[5]), DecodeQ4: number(f[6]), PrefillF16: number(f[7]), DecodeF16: number(f[8]), Like: f[9], Source: f[10]})
	}
	return out
}

// Models is the table of models, with weights of Q4_K_M.
func Models() []Model {
	var out []Model
	for _, f := range rows(modelsCSV) {
		out = append(out, Model{Name: f[0], Params: number(f[1]) * 1e9, Layers: int(number(f[2])), Heads: int(number(f[3])),
			KVHeads: int(number(f[4])), HeadDim: int(number(f[5])), Weights: Q4, KVBits: 16})
	}
	return out
}

// aliases are names for what people have without knowing its name.
var aliases = map[string]string{"cpu": "Ryzen7950X"}

// FindDevice finds a device by name, in any case.
func FindDevice(name string) (Device, error) {
	if a, ok := aliases[strings.ToLower(name)]; ok {
		name = a
	}
	all := Devices()
	at := slices.IndexFunc(all, func(d Device) bool { return strings.EqualFold(d.Name, name) })
	if at < 0 {
		names := make([]string, 0, len(all)+1)
		for _, d := range all {
			names = append(names, d.Name)
		}
		return Device{}, fmt.Errorf("device %.64q is not in the table; allowed are cpu, %s", name, strings.Join(names, ", "))
	}
	d := all[at]
	if d.Like != "" {
		like, err := FindDevice(d.Like)
		if err != nil {
			return Device{}, err
		}
		compute, bandwidth := d.TFLOPS/like.TFLOPS, d.BandwidthGBs/like.BandwidthGBs
		d.PrefillQ4, d.PrefillF16 = like.PrefillQ4*compute, like.PrefillF16*compute
		d.DecodeQ4, d.DecodeF16 = like.DecodeQ4*bandwidth, like.DecodeF16*bandwidth
	}
	return d, nil
}

// FindModel finds a model by name, with a kind of weights and of KV after colons:
// llama-3.1-8b, qwen3-32b:f16, qwen3-32b:f16:kv8.
func FindModel(text string) (Model, error) {
	parts := strings.Split(text, ":")
	all := Models()
	at := slices.IndexFunc(all, func(m Model) bool { return strings.EqualFold(m.Name, parts[0]) })
	if at < 0 {
		names := make([]string, 0, len(all))
		for _, m := range all {
			names = append(names, m.Name)
		}
		return Model{}, fmt.Errorf("model %.64q is not in the table; allowed are %s", parts[0], strings.Join(names, ", "))
	}
	m := all[at]
	for _, option := range parts[1:] {
		switch w := Weights(strings.ToLower(option)); w {
		case Q4, Q8, F16, FP8:
			m.Weights = w
		case "kv16":
			m.KVBits = 16
		case "kv8":
			m.KVBits = 8.5
		default:
			return Model{}, fmt.Errorf("model %.64q: %.16q is not known; allowed after the name are :q4_k_m, :q8_0, :fp8, :f16, and :kv16 or :kv8 for its KV", text, option)
		}
	}
	return m, nil
}

// Engine is how fast a device runs a model.
//
// A step with n prompt tokens and b streams takes the longer one of reading the
// weights and computing, plus overlapMissed of the shorter one, plus what attention
// reads and computes.
type Engine struct {
	// ComputeRate is tokens/s without reading weights, at short contexts.
	ComputeRate float64
	// Doubling is the context at which a prompt token takes twice as long; 0: never.
	Doubling float64
	// WeightsMs is the time to read the weights once.
	WeightsMs float64
	// ContextMs is the time to read the KV of one token for a stream that decodes.
	ContextMs float64
}

// stepMs is how long a step takes; context is the sum over its streams.
func (e Engine) stepMs(prompt, streams int, attention, context float64) float64 {
	compute := float64(prompt+streams) / e.ComputeRate * 1000
	return max(compute, e.WeightsMs) + overlapMissed*min(compute, e.WeightsMs) + attention + context*e.ContextMs
}

// attentionMs is what attention adds to prompt tokens after a context.
func (e Engine) attentionMs(from, tokens int) float64 {
	if e.Doubling <= 0 {
		return 0
	}
	return float64(tokens) / e.ComputeRate * 1000 * (float64(from) + float64(tokens)/2) / e.Doubling
}

// prefillRate is what a self-benchmark would measure: prompts of ubatch tokens.
func (e Engine) prefillRate() float64 {
	return ubatch * 1000 / e.stepMs(ubatch, 0, e.attentionMs(0, ubatch), 0)
}

// paceMs is the time between tokens with some streams of a usual context.
func (e Engine) paceMs(streams int, context float64) float64 {
	return e.stepMs(0, streams, 0, float64(streams)*context)
}

// NewEngine says how fast tensor-parallel devices run a model. Each further device adds
// tensorShare of its own.
func NewEngine(d Device, m Model, devices int) Engine {
	pp, tg, w := d.PrefillQ4, d.DecodeQ4, Q4
	if m.Weights.bits() >= 12 && d.PrefillF16 > 0 {
		pp, w = d.PrefillF16, F16
	}
	factor := tensorFactor(devices)
	e := Engine{Doubling: m.doubling()}
	bandwidth := d.BandwidthGBs * 1e9 * rooflineBandwidth * factor
	e.ContextMs = float64(m.KVBytes()) / bandwidth * 1000
	e.WeightsMs = m.WeightBytes() / bandwidth * 1000
	if m.Weights.bits() >= 12 && d.DecodeF16 > 0 {
		e.WeightsMs = weightsMs(d.DecodeF16, reference(F16), bandwidth, factor) * m.WeightBytes() / reference(F16).WeightBytes()
	} else if m.Weights.bits() < 12 && tg > 0 {
		e.WeightsMs = weightsMs(tg, reference(Q4), bandwidth, factor) * m.WeightBytes() / reference(Q4).WeightBytes()
	}
	if pp == 0 {
		e.ComputeRate = d.TFLOPS * 1e12 * rooflineCompute * factor / (2 * m.Params)
		return e
	}
	// What was measured includes reading the weights once for each ubatch, and
	// attention.
	ref := reference(w)
	stepMs := ubatch / pp * 1000 / (1 + measuredPrompt/2/ref.doubling())
	refWeightsMs := e.WeightsMs * factor * ref.WeightBytes() / m.WeightBytes()
	e.ComputeRate = ubatch * 1000 / max(stepMs/2, stepMs-overlapMissed*refWeightsMs) * ref.Params / m.Params * factor
	return e
}

// weightsMs takes what reading KV and computing take from the time of one token.
func weightsMs(tokens float64, ref Model, bandwidth, factor float64) float64 {
	return (1000/tokens)/factor - measuredAnswer*float64(ref.KVBytes())/bandwidth*1000
}

// tensorShare is what a further device of a node adds, for what they must tell each
// other. It is an assumption: published figures go from 0.3 over PCIe without a direct
// way to 0.9 over NVLink.
const tensorShare = 0.85

func tensorFactor(devices int) float64 { return 1 + tensorShare*float64(max(devices, 1)-1) }

// Rates are what a self-benchmark would show: prompt tokens/s at short contexts, and
// tokens/s of one answer.
func (e Engine) Rates() (prompt, answer float64) {
	return e.prefillRate(), 1000 / e.paceMs(1, measuredAnswer)
}
