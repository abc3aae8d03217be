package enginetest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tandem/node/engine"
)

func TestTokenizeRoundTrip(t *testing.T) {
	tests := []struct {
		text    string
		special bool
		want    []engine.Token
	}{
		{"", true, nil},
		{"hé\xff\x00", true, []engine.Token{'h', 0xc3, 0xa9, 0xff, 0}},
		{"<|im_start|>a<|im_end|></s>", true, []engine.Token{ImStart, 'a', ImEnd, EOS}},
		{"</s>", false, []engine.Token{'<', '/', 's', '>'}},
		{"<|im_<s", true, []engine.Token{'<', '|', 'i', 'm', '_', '<', 's'}},
	}
	for _, tt := range tests {
		tokens, err := Vocab{}.Tokenize(tt.text, tt.special)
		if err != nil || !slices.Equal(tokens, tt.want) {
			t.Errorf("%q: %v, %v, want %v", tt.text, tokens, err, tt.want)
		}
		if text := (Vocab{}).Text(tokens); text != tt.text {
			t.Errorf("%q became %q", tt.text, text)
		}
	}
}

// add decodes tokens that follow what seq holds, and draws after the last.
func add(t *testing.T, b *Backend, s engine.Sampler, seq engine.SeqID, text string) (engine.Token, error) {
	t.Helper()
	var batch engine.Batch
	pos := len(b.Held(seq))
	for i := range len(text) {
		batch.Add(engine.Token(text[i]), pos+i, seq, i == len(text)-1)
	}
	if err := b.Decode(&batch); err != nil {
		return 0, err
	}
	out, err := b.Sample(len(text)-1, s, pos+len(text))
	return out.Token, err
}

func newSampler(t *testing.T, b *Backend, prompt string) engine.Sampler {
	t.Helper()
	tokens, err := Vocab{}.Tokenize(prompt, true)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.NewSampler(engine.Sampling{TopLogprobs: -1}, tokens, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWrongKVShows damages the cache in the ways an engine could and looks for the
// fault in the text.
func TestWrongKVShows(t *testing.T) {
	const first, second = "the quick brown fox", "the quiet brown fox"
	tests := []struct {
		name   string
		damage func(b *Backend)
		right  bool
	}{
		{"right", func(b *Backend) { fill(b, 0, first[:10]) }, true},
		{"right, copied", func(b *Backend) { fill(b, 1, first[:12]); b.Copy(1, 0, 10) }, true},
		{"right, restored", func(b *Backend) {
			fill(b, 1, first[:12])
			b.Import(0, 0, []engine.Rows{exported(b, 1, 0, 4), exported(b, 1, 4, 10)})
		}, true},
		{"restored in another order", func(b *Backend) {
			fill(b, 1, first[:12])
			b.Import(0, 0, []engine.Rows{exported(b, 1, 0, 3), exported(b, 1, 4, 11)})
		}, false},
		{"right, cut", func(b *Backend) { fill(b, 0, first[:7]+second[7:15]); b.Remove(0, 7); fill(b, 0, first[7:10]) }, true},
		{"of another prompt", func(b *Backend) { fill(b, 0, second[:10]) }, false},
		{"spliced from two prompts", func(b *Backend) {
			fill(b, 1, second[:10])
			fill(b, 2, first[:9])
			b.Import(0, 0, []engine.Rows{exported(b, 2, 0, 9), exported(b, 1, 9, 10)}) // the same token, but computed after others
		}, false},
		{"swapped tokens", func(b *Backend) { fill(b, 0, "teh quick ") }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := New(Options{})
			s := newSampler(t, b, first)
			tt.damage(b)
			token, err := add(t, b, s, 0, first[10:])
			if err != nil {
				t.Fatal(err)
			}
			if (token != wrongKV) != tt.right || (b.Faults() == nil) != tt.right {
				t.Errorf("drew %q, faults: %v", token, b.Faults())
			}
		})
	}
}

// exported are rows [from, to) of a sequence.
func exported(b *Backend, seq engine.SeqID, from, to int) engine.Rows {
	r := engine.Rows{Tokens: to - from, Data: make([]byte, (to-from)*rowShape.Bytes())}
	if err := b.Export(seq, from, to, r.Data); err != nil {
		panic(err)
	}
	return r
}

// fill adds rows without drawing.
func fill(b *Backend, seq engine.SeqID, text string) {
	var batch engine.Batch
	pos := len(b.Held(seq))
	for i := range len(text) {
		batch.Add(engine.Token(text[i]), pos+i, seq, false)
	}
	if err := b.Decode(&batch); err != nil {
		panic(err)
	}
}

func TestMisuseIsAFault(t *testing.T) {
	tests := []struct {
		name   string
		misuse func(b *Backend)
	}{
		{"a hole", func(b *Backend) {
			b.Decode(&engine.Batch{Tokens: []engine.Token{1}, Pos: []int32{3}, Seq: []engine.SeqID{0}, Logits: []bool{true}})
		}},
		{"a position twice", func(b *Backend) {
			fill(b, 0, "a")
			b.Decode(&engine.Batch{Tokens: []engine.Token{1}, Pos: []int32{0}, Seq: []engine.SeqID{0}, Logits: []bool{true}})
		}},
		{"an unknown sequence", func(b *Backend) {
			b.Decode(&engine.Batch{Tokens: []engine.Token{1}, Pos: []int32{0}, Seq: []engine.SeqID{99}, Logits: []bool{true}})
		}},
		{"an empty batch", func(b *Backend) { b.Decode(&engine.Batch{}) }},
		{"no logits", func(b *Backend) {
			s, _ := b.NewSampler(engine.Sampling{}, []engine.Token{'a'}, nil)
			fill(b, 0, "a")
			b.Sample(0, s, 1)
		}},
		{"a copy beyond the end", func(b *Backend) { fill(b, 0, "abc"); b.Copy(0, 1, 4) }},
		{"a copy onto itself", func(b *Backend) { fill(b, 0, "abc"); b.Copy(0, 0, 2) }},
		{"an export beyond the end", func(b *Backend) { fill(b, 0, "abc"); b.Export(0, 0, 4, make([]byte, 4*rowShape.Bytes())) }},
		{"an export into little memory", func(b *Backend) { fill(b, 0, "abc"); b.Export(0, 0, 2, make([]byte, 3)) }},
		{"an import of half a row", func(b *Backend) { b.Import(0, 0, []engine.Rows{{Tokens: 1, Data: make([]byte, 7)}}) }},
		{"sequences out of order", func(b *Backend) {
			b.Decode(&engine.Batch{Tokens: []engine.Token{1, 2}, Pos: []int32{0, 0}, Seq: []engine.SeqID{1, 0}, Logits: []bool{true, true}})
		}},
		{"an open sampler at the end", func(b *Backend) { b.NewSampler(engine.Sampling{}, []engine.Token{'a'}, nil); b.Close() }},
		{"a sampler closed twice", func(b *Backend) {
			s, _ := b.NewSampler(engine.Sampling{}, []engine.Token{'a'}, nil)
			s.Close()
			s.Close()
		}},
		{"use after the end", func(b *Backend) { b.Close(); b.Remove(0, 0) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := New(Options{})
			if tt.misuse(b); b.Faults() == nil {
				t.Error("no fault")
			}
		})
	}
}

func TestSampling(t *testing.T) {
	draw := func(s engine.Sampling, o Options) engine.Output {
		b := New(o)
		sampler, err := b.NewSampler(s, []engine.Token{'a'}, nil)
		if err != nil {
			t.Fatal(err)
		}
		fillLogits(b, "a")
		out, err := b.Sample(0, sampler, 1)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	script := Options{Script: func(p string) (string, bool) { return strings.ToUpper(p), p == "a" }}
	ending := Options{EndOdds: 1}
	hot := engine.Sampling{Temperature: 1, TopLogprobs: -1}
	other := hot
	other.Seed = 2
	if out := draw(engine.Sampling{TopLogprobs: -1}, script); out.Token != 'A' || string(out.Piece) != "A" || out.Logprob != nil {
		t.Errorf("script: %+v", out)
	}
	if out := draw(engine.Sampling{}, ending); out.Token != EOS {
		t.Errorf("odds of 1: %+v", out)
	}
	if out := draw(engine.Sampling{IgnoreEOS: true}, ending); out.Token == EOS {
		t.Error("IgnoreEOS ends")
	}
	if out := draw(engine.Sampling{LogitBias: map[engine.Token]float32{EOS: -100}}, ending); out.Token == EOS {
		t.Error("a banned token is drawn")
	}
	if out := draw(engine.Sampling{LogitBias: map[engine.Token]float32{'Q': 100}}, Options{}); out.Token != 'Q' {
		t.Errorf("a forced token is not drawn: %+v", out)
	}
	if a, b := draw(hot, Options{}), draw(other, Options{}); a.Token == b.Token {
		t.Error("the seed does not matter")
	}
	if out := draw(engine.Sampling{TopLogprobs: 3}, Options{}); len(out.Logprob.Top) != 3 || out.Logprob.Top[0].Token != out.Token {
		t.Errorf("logprobs: %+v", out.Logprob)
	}
	refuse := Options{Grammar: func(string) error { return errors.New("no") }}
	var bad *engine.GrammarError
	if _, err := New(refuse).NewSampler(engine.Sampling{Grammar: "x"}, nil, nil); !errors.As(err, &bad) {
		t.Errorf("refused grammar: %v", err)
	}
}

func fillLogits(b *Backend, text string) {
	var batch engine.Batch
	for i := range len(text) {
		batch.Add(engine.Token(text[i]), i, 0, true)
	}
	if err := b.Decode(&batch); err != nil {
		panic(err)
	}
}
