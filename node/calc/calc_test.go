package calc

import (
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tandem/node/engine"
	"tandem/node/models/gguf/gguftest"
)

var update = flag.Bool("update", false, "rewrite the golden reports")

func config(t *testing.T, name string) *Model {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := FromConfig(data)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	m.Name = name
	return m
}

func sizeOf(t *testing.T, m *Model, kvType string) kvSize {
	t.Helper()
	s, err := newKVSize(m, kvType)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The sizes of models whose makers published them; bytes of a token as f16, weights in
// all. Sources are named in docs/calc.md.
func TestPublishedGeometries(t *testing.T) {
	for _, tt := range []struct {
		name, attention     string
		short, long, engine float64
		state               int64
		parameters          int64 // as published; 0: not counted here
	}{
		{"llama-2-7b", "MHA", 524_288, 524_288, 524_288, 0, 6_738_415_616},
		{"llama-3.1-8b", "GQA", 131_072, 131_072, 131_072, 0, 8_030_261_248},
		{"llama-3.1-70b", "GQA", 327_680, 327_680, 327_680, 0, 70_553_706_496},
		{"llama-3.1-405b", "GQA", 516_096, 516_096, 516_096, 0, 405_853_388_800},
		{"qwen2.5-1.5b", "GQA", 28_672, 28_672, 28_672, 0, 1_543_714_304},
		{"qwen2.5-72b", "GQA", 327_680, 327_680, 327_680, 0, 72_706_203_648},
		{"qwen3-1.7b", "GQA", 114_688, 114_688, 114_688, 0, 1_720_574_976},
		{"qwen3-32b", "GQA", 262_144, 262_144, 262_144, 0, 32_762_123_264},
		{"mistral-7b-v0.1", "GQA", 131_072, 0, 131_072, 0, 7_241_732_096},
		{"mixtral-8x7b", "GQA", 131_072, 131_072, 131_072, 0, 46_702_792_704},
		{"gemma-3-27b", "GQA", 507_904, 81_920, 507_904, 0, 27_009_346_304},
		{"deepseek-v3", "MLA", 70_272, 70_272, 132_736, 0, 671_026_419_200},
		{"falcon-7b", "MQA", 8_192, 8_192, 8_192, 0, 0},
		{"gpt-oss-20b", "GQA", 49_152, 24_576, 49_152, 0, 0},
		{"jamba-v0.1", "GQA", 16_384, 16_384, 16_384, 28 * 4 * (3*8192 + 16*8192), 0},
		{"qwen3-next-80b", "GQA", 24_576, 24_576, 24_576, 36 * 4 * (3*8192 + 128*4096), 0},
		{"nemotron-3-nano-30b", "GQA", 6_144, 6_144, 6_144, 23 * 4 * (3*(4096+2*8*128) + 128*4096), 0},
		{"mamba-2.8b", "none", 0, 0, 0, 64 * 4 * (3*5120 + 16*5120), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := config(t, tt.name)
			short, long, inEngine := sizeOf(t, m, "f16").perToken()
			if m.Attention() != tt.attention || short != tt.short || long != tt.long || inEngine != tt.engine || m.stateBytes() != tt.state {
				t.Errorf("%s, %v, %v and %v bytes a token, state %d; want %+v", m.Attention(), short, long, inEngine, m.stateBytes(), tt)
			}
			if off := math.Abs(float64(m.Parameters)/float64(tt.parameters) - 1); tt.parameters == 0 && m.Parameters != 0 || off > 0.001 {
				t.Errorf("%d weights, published are %d", m.Parameters, tt.parameters)
			}
		})
	}
}

// The Jamba paper's table of the KV of 256K tokens as 16 bits: Llama-2 128 GB, Mistral and
// Mixtral 32 GB, Jamba 4 GB. Mistral is that of its later versions, without a window.
func TestPublishedKVOfALongPrompt(t *testing.T) {
	for name, want := range map[string]float64{"llama-2-7b": 128, "mixtral-8x7b": 32, "jamba-v0.1": 4} {
		s := sizeOf(t, config(t, name), "f16")
		if got := (s.at(256<<10) - s.state(1)) / (1 << 30); got != want {
			t.Errorf("%s: %v GiB, published are %v", name, got, want)
		}
	}
}

// Layers with a window keep no more than that; what quantised numbers take.
func TestKVOfAPrompt(t *testing.T) {
	gemma := sizeOf(t, config(t, "gemma-3-27b"), "f16")
	const each = 2 * 16 * 128 * 2 // bytes of a token in one layer
	if got, want := gemma.at(8192), float64(each*(52*1024+10*8192)); got != want {
		t.Errorf("gemma 3: %v bytes, want %v", got, want)
	}
	if got, want := gemma.engineAt(8192), float64(each*62*8192); got != want {
		t.Errorf("gemma 3 here: %v bytes, want %v", got, want)
	}
	llama := config(t, "llama-3.1-8b")
	for kvType, bits := range map[string]float64{"f16": 16, "q8_0": 8.5, "q4_0": 4.5} {
		if got, want := sizeOf(t, llama, kvType).at(1000), 131_072_000*bits/16; got != want {
			t.Errorf("%s: %v bytes, want %v", kvType, got, want)
		}
	}
	if _, err := newKVSize(llama, "q5_1"); err == nil {
		t.Error("q5_1 was taken")
	}
	odd := &Model{KVHeads: 2, Layers: []Layer{{Kind: Full, Keys: 160, Values: 160}}}
	if _, err := newKVSize(odd, "q8_0"); err == nil {
		t.Error("heads of 80 numbers were taken as q8_0")
	}
}

// P* of the facts this project began with: the prefill rate below which fetching beats
// computing, by goodput.
func TestRatesBelowWhichFetchingWins(t *testing.T) {
	for _, tt := range []struct {
		name    string
		goodput float64
		want    float64
	}{
		{"qwen2.5-1.5b", 112e6, 3_900}, {"qwen3-1.7b", 112e6, 977}, {"llama-3.1-8b", 112e6, 854}, {"qwen3-32b", 112e6, 427},
		{"llama-3.1-8b", 280e6, 2_140}, {"llama-3.1-8b", 1e9, 7_630}, {"qwen3-32b", 10e9, 38_100},
	} {
		q := Question{KVType: "f16", Tokens: 1000, Context: 1000, Sequences: 1, MicroBatch: 512, Links: []Link{{Goodput: tt.goodput}}}
		r, err := Answer(config(t, tt.name), q)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Links[0].PrefillRateMax; math.Abs(got/tt.want-1) > 0.005 {
			t.Errorf("%s at %v B/s: %v tokens/s, published are %v", tt.name, tt.goodput, got, tt.want)
		}
	}
}

// The homelab case of those facts: 8,000 tokens of Qwen3-1.7B on 1 Gbit/s take 8 s,
// a box that computes 8,000 tokens/s takes 1 s.
func TestSlowWireLosesAgainstAFastBox(t *testing.T) {
	m := config(t, "qwen3-1.7b")
	q := Question{KVType: "f16", Tokens: 8000, Context: 8192, Sequences: 1, MicroBatch: 512, PrefillRate: 8000, Links: []Link{{Gbit: 1}, {Gbit: 400}}}
	r, err := Answer(m, q)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Links[0].Seconds; s < 7 || s > 8.5 || r.Links[0].BreakEvenTokens != nil {
		t.Errorf("1 Gbit/s: %+v", r.Links[0])
	}
	if n := r.Links[1].BreakEvenTokens; n == nil || *n > 100 {
		t.Errorf("400 Gbit/s: %+v", r.Links[1])
	}
	// The same wire wins where the box is slow, from where the fixed cost is paid on.
	q.PrefillRate = 170
	if r, err = Answer(m, q); err != nil {
		t.Fatal(err)
	}
	n := r.Links[0].BreakEvenTokens
	if n == nil || *n < 1 || *n > 2 {
		t.Fatalf("1 Gbit/s against 170 tokens/s: %+v", r.Links[0])
	}
}

// The break-even length is the first at which fetching is faster, by trying all.
func TestBreakEvenIsTheFirst(t *testing.T) {
	for _, name := range []string{"llama-3.1-8b", "gemma-3-27b", "qwen3-next-80b", "deepseek-v3", "mamba-2.8b"} {
		for _, rate := range []float64{20, 300, 900, 5000, 80_000} {
			m := config(t, name)
			q := Question{KVType: "q8_0", Tokens: 1, Context: 6000, Sequences: 1, MicroBatch: 512, PrefillRate: rate}
			if name == "mamba-2.8b" {
				q.KVType = "f16"
			}
			r, err := Answer(m, q)
			if err != nil {
				t.Fatal(err)
			}
			s := sizeOf(t, m, q.KVType)
			for i, l := range Links(nil) {
				l = l.resolve()
				want := 0
				for n := 1; n <= q.Context && want == 0; n++ {
					if l.transfer(s.engineAt(n)) < float64(n)/rate {
						want = n
					}
				}
				got := 0
				if b := r.Links[i].BreakEvenTokens; b != nil {
					got = *b
				}
				if got != want {
					t.Errorf("%s, %v tokens/s, %v Gbit/s: %d, want %d", name, rate, l.Gbit, got, want)
				}
			}
		}
	}
}

// Memory is that of the engine's own formula.
func TestMemoryIsTheEnginesFormula(t *testing.T) {
	m := config(t, "llama-3.1-8b")
	const gib = 1 << 30
	q := Question{KVType: "f16", Tokens: 4096, Context: 8192, Sequences: 4, MicroBatch: 512, Memory: []int64{8 * gib, 24 * gib}}
	r, err := Answer(m, q)
	if err != nil {
		t.Fatal(err)
	}
	kv := make([]uint32, 32)
	for i := range kv {
		kv[i] = 8
	}
	want, err := engine.EstimateMemory(engine.Geometry{WeightBytes: m.WeightBytes, Layers: 32, Embedding: 4096, FeedForward: 14336, Vocab: 128256, KVHeads: kv, KeyLength: 128, ValueLength: 128},
		engine.Shape{Context: 8192, Sequences: 4, MicroBatch: 512, KVType: "f16"})
	if err != nil {
		t.Fatal(err)
	}
	if g := r.Memory; g.Total != want.Total() || g.KV != 4*gib || g.Weights != m.WeightBytes || g.Boxes[0].Fits || !g.Boxes[1].Fits {
		t.Errorf("%+v, want %+v", g, want)
	}
	// The longest context fits, and one more token does not.
	q.Context = r.Memory.Boxes[1].ContextMax
	if r, err = Answer(m, q); err != nil || !r.Memory.Boxes[1].Fits {
		t.Fatalf("%d tokens: %+v, %v", q.Context, r, err)
	}
	q.Context++
	if r, err = Answer(m, q); err != nil || r.Memory.Boxes[1].Fits {
		t.Errorf("%d tokens: %+v, %v", q.Context, r.Memory, err)
	}
}

// What the papers count for one token: two sums of its width in each layer, by a ring;
// one hand-over of it; and its way to the experts and back.
func TestTrafficOfSplits(t *testing.T) {
	q := Question{KVType: "f16", Tokens: 1024, Context: 4096, Sequences: 1, MicroBatch: 512, Boxes: 8, Links: []Link{{Gbit: 10}}}
	r, err := Answer(config(t, "llama-3.1-70b"), q)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Splits[0]
	if want := 2. * 80 * (2 * 7. / 8) * 8192 * 2; s.Tensor.BytesPerToken != want || s.Tensor.Messages != 2*80*14 {
		t.Errorf("tensor: %+v, want %v bytes", s.Tensor, want)
	}
	if s.Pipeline.BytesPerToken != 8192*2 || s.Pipeline.Messages != 8 || math.Abs(s.Pipeline.Bubble-7./9) > 1e-9 {
		t.Errorf("pipeline: %+v", s.Pipeline)
	}
	if s.Data.BytesPerToken != 0 || s.Expert.Possible || !strings.Contains(s.Expert.Why, "no experts") {
		t.Errorf("data: %+v, expert: %+v", s.Data, s.Expert)
	}
	if r, err = Answer(config(t, "deepseek-v3"), q); err != nil {
		t.Fatal(err)
	}
	if e := r.Splits[0].Expert; e.BytesPerToken != 2*58*8*7168*2*7./8 || e.Messages != 2*58 || !e.Possible {
		t.Errorf("expert: %+v", e)
	}
	q.Boxes = 3 // does not divide 8 heads
	if r, err = Answer(config(t, "llama-3.1-70b"), q); err != nil || r.Splits[0].Tensor.Possible {
		t.Errorf("tensor over 3 boxes: %+v, %v", r.Splits[0].Tensor, err)
	}
}

func TestChoice(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		name, model string
		q           Question
		choose      string
	}{
		{"fits everywhere", "llama-3.1-8b", Question{Memory: []int64{24 * gib}}, "data"},
		{"fits into one", "llama-3.1-8b", Question{Memory: []int64{24 * gib, 8 * gib}}, "data"},
		{"fits into none, fast boxes, slow wire", "llama-3.1-70b", Question{Memory: []int64{96 * gib}, DecodeRate: 20, Links: []Link{{Gbit: 1}}}, "pipeline"},
		{"fits into none, fast wire, slow boxes", "llama-3.1-70b", Question{Memory: []int64{96 * gib}, DecodeRate: 2, Links: []Link{{Gbit: 400}}}, "tensor"},
		{"fits nowhere", "deepseek-v3", Question{Memory: []int64{24 * gib}}, "none"},
		{"one answer on a slow box, fast wire", "llama-3.1-8b", Question{Memory: []int64{24 * gib}, DecodeRate: 3, Links: []Link{{Gbit: 400}}, Sequences: 1}, "tensor"},
		{"unlike boxes", "llama-3.1-70b", Question{Memory: []int64{128 * gib, 24 * gib}, Context: 2048}, "pipeline"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := tt.q
			q.KVType, q.Tokens, q.MicroBatch = "f16", 4096, 512
			q.Context, q.Sequences = max(q.Context, 4096), max(q.Sequences, 1)
			if tt.q.Context > 0 {
				q.Context = tt.q.Context
			}
			r, err := Answer(config(t, tt.model), q)
			if err != nil {
				t.Fatal(err)
			}
			if s := r.Splits[0]; s.Choose != tt.choose || s.Reason == "" {
				t.Errorf("%s: %s; want %s (memory %+v)", s.Choose, s.Reason, tt.choose, r.Memory)
			}
		})
	}
}

// What a GGUF says and what llama.cpp then keeps of it.
func TestFromGGUF(t *testing.T) {
	for _, tt := range []struct {
		build  gguftest.Model
		layers string
		row    int // numbers of a token in each layer
	}{
		{gguftest.Llama(), "full full", 2 * 2 * 16},
		{gguftest.Qwen3(), "full full", 2 * 2 * 32},
		{gguftest.Gemma3(), "window window window window window full", 2 * 32},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := tt.build.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		m := readGGUF(t, path)
		var kinds []string
		for i := range m.Layers {
			kinds = append(kinds, string(m.Layers[i].Kind))
			if m.Layers[i].engineRow() != tt.row {
				t.Errorf("%s: layer %d: %+v, want %d numbers", tt.build.Arch, i, m.Layers[i], tt.row)
			}
		}
		if got := strings.Join(kinds, " "); got != tt.layers || m.window() != tt.build.Window || m.Embedding != 64 || m.FeedForward != 128 || m.Parameters == 0 || m.WeightBytes == 0 {
			t.Errorf("%s: %s, %+v", tt.build.Arch, got, m)
		}
	}
}

// A report, whole. -update rewrites it; read the difference.
func TestGoldenReports(t *testing.T) {
	const gib = 1 << 30
	for _, name := range []string{"llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b"} {
		r, err := Answer(config(t, name), Question{KVType: "f16", Tokens: 8000, Context: 32768, Sequences: 2, MicroBatch: 512, PrefillRate: 1000, DecodeRate: 10,
			Memory: []int64{64 * gib, 64 * gib, 24 * gib, 24 * gib}, Links: []Link{{Gbit: 2.5}, {Name: "from attic", Goodput: 900e6, RTTMs: 0.3, Basis: "given"}, {Gbit: 100}}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != string(got)+"\n" {
			t.Errorf("%s differs from the report (%v); run with -update and read the difference:\n%s", file, err, got)
		}
	}
}

// Faults name the field, the value and what is allowed.
func TestConfigFaults(t *testing.T) {
	const head = `{"model_type":"llama","num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4`
	for _, tt := range []struct{ name, config, field, says string }{
		{"no JSON", `{`, "config.json", "not a JSON object"},
		{"two values", head + `} {}`, "config.json", "more after"},
		{"too long", head + `,"x":"` + strings.Repeat("x", MaxConfigBytes) + `"}`, "config.json", "at most 1048576"},
		{"no layers", `{"hidden_size":64}`, "num_hidden_layers", "missing"},
		{"too many layers", `{"num_hidden_layers":5000,"hidden_size":64}`, "num_hidden_layers", "5000, allowed are whole numbers from 1 to 512"},
		{"half a layer", `{"num_hidden_layers":1.5,"hidden_size":64}`, "num_hidden_layers", "1.5"},
		{"a word for a number", `{"num_hidden_layers":"two","hidden_size":64}`, "num_hidden_layers", "two"},
		{"heads that do not divide", head + `,"num_key_value_heads":3}`, "num_key_value_heads", "3, allowed are divisors of the 4 heads"},
		{"no size of a head", `{"num_hidden_layers":2,"hidden_size":65,"num_attention_heads":4}`, "head_dim", "65"},
		{"kinds of too few layers", head + `,"layer_types":["full_attention"]}`, "layer_types", "1 elements, allowed are 2"},
		{"a kind that is not known", head + `,"layer_types":["full_attention","dreaming"]}`, "layer_types", "dreaming"},
		{"windows without a size", head + `,"layer_types":["full_attention","sliding_attention"]}`, "sliding_window", "missing"},
		{"what nobody knows", head + `,"index_topk":2048}`, "index_topk", "not known here"},
		{"inside", `{"text_config":` + head + `,"num_key_value_heads":3}}`, "text_config.num_key_value_heads", "divisors"},
		{"letters", head + `,"hybrid_override_pattern":"M?"}`, "hybrid_override_pattern", "?"},
		{"RWKV", `{"model_type":"rwkv6","num_hidden_layers":2,"hidden_size":64}`, "model_type", "GGUF only"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := FromConfig([]byte(tt.config))
			var field *FieldError
			if !errors.As(err, &field) || field.Field != tt.field || !strings.Contains(field.Text, tt.says) {
				t.Errorf("%v, want %s: ... %s", err, tt.field, tt.says)
			}
		})
	}
}

func TestQuestionFaults(t *testing.T) {
	good := Question{KVType: "f16", Tokens: 10, Context: 10, Sequences: 1, MicroBatch: 10}
	m := config(t, "llama-3.1-8b")
	for field, change := range map[string]func(*Question){
		"tokens": func(q *Question) { q.Tokens = 0 }, "ctx": func(q *Question) { q.Context = MaxTokens + 1 }, "parallel": func(q *Question) { q.Sequences = 5000 },
		"link": func(q *Question) { q.Links = []Link{{}} }, "memory": func(q *Question) { q.Memory = []int64{1, 2}; q.Boxes = 3 },
		"prefill_rate": func(q *Question) { q.PrefillRate = math.NaN() }, "boxes": func(q *Question) { q.Boxes = -1 }, "rtt_ms": func(q *Question) { q.Links = []Link{{Gbit: 1, RTTMs: -1}} },
	} {
		q := good
		change(&q)
		_, err := Answer(m, q)
		var f *FieldError
		if !errors.As(err, &f) || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := Answer(m, good); err != nil {
		t.Error(err)
	}
}

// FuzzConfig: no file makes the reader panic, take memory beyond its size, or give an
// answer that is not a number.
func FuzzConfig(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"num_hidden_layers":512,"hidden_size":262144,"num_attention_heads":8192,"head_dim":16384,"vocab_size":16777216,"intermediate_size":16777216,"model_type":"llama","num_experts":4096,"num_experts_per_tok":4096,"torch_dtype":"float32"}`))
	f.Add([]byte(`{"model_type":"exaone4","num_hidden_layers":4,"hidden_size":64,"num_attention_heads":4,"sliding_window":8,"sliding_window_pattern":"LLLG","num_kv_shared_layers":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := FromConfig(data)
		runtime.ReadMemStats(&after)
		if taken, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+200*len(data)); taken > most {
			t.Errorf("%d bytes were allocated for a file of %d", taken, len(data))
		}
		if err != nil {
			var field *FieldError
			if !errors.As(err, &field) || len(err.Error()) > 2000 {
				t.Errorf("refused with %#v", err)
			}
			return
		}
		r, err := Answer(m, Question{KVType: "f16", Tokens: MaxTokens, Context: MaxTokens, Sequences: MaxSequences, MicroBatch: MaxTokens, PrefillRate: 1, DecodeRate: 1, Memory: []int64{1}, Boxes: 7})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
		if m.Parameters < 0 || m.WeightBytes < 0 || r.KV.Bytes < 0 || r.KV.EngineBytes < r.KV.Bytes {
			t.Errorf("%+v", r)
		}
	})
}
