package llama

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"tandem/node/engine"
	"tandem/node/models/gguf/gguftest"
)

func TestTokenize(t *testing.T) {
	m := tiny(t, Options{})
	im := tokenize(t, m, "<|im_start|>")
	if len(im) != 1 || !m.vocab.IsControl(im[0]) || m.vocab.IsEOG(im[0]) {
		t.Fatalf("<|im_start|> is %v", im)
	}
	tests := []struct {
		name, text string
		special    bool
		want       []engine.Token // nil: only the text is compared
	}{
		{"empty", "", true, nil},
		{"text", "the end", false, nil},
		{"control text", "<|im_start|>", true, im},
		{"control text as text", "<|im_start|>", false, nil},
		{"user-defined", "<think>x", false, nil},
		{"zero bytes", "a\x00b", false, nil},
		{"emoji", "é😀\n", false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := m.vocab.Tokenize(tt.text, tt.special)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != nil && !slices.Equal(got, tt.want) {
				t.Errorf("tokens %v, want %v", got, tt.want)
			}
			var text []byte
			for _, tok := range got {
				if !tt.special && m.vocab.IsControl(tok) {
					t.Errorf("control token %d out of plain text", tok)
				}
				text = append(text, m.vocab.Piece(tok, true)...)
			}
			if string(text) != tt.text {
				t.Errorf("the tokens' text is %q", text)
			}
		})
	}
}

func TestVocab(t *testing.T) {
	m := tiny(t, Options{})
	v := m.Vocab()
	eos := v.EOS()
	if !v.IsEOG(eos) || v.Piece(eos, false) != nil || string(v.Piece(eos, true)) != "<|im_end|>" {
		t.Errorf("EOS %d: EOG %v, piece %q", eos, v.IsEOG(eos), v.Piece(eos, true))
	}
	if string(v.Piece(v.BOS(), true)) != "<|endoftext|>" || v.AddBOS() {
		t.Errorf("BOS is %q, added: %v", v.Piece(v.BOS(), true), v.AddBOS())
	}
	for _, text := range []string{"<|im_start|>", "<|im_end|>", "<think>", "</tool_call>"} {
		if !slices.Contains(v.ControlTexts(), text) {
			t.Errorf("%s is not among the control texts", text)
		}
	}
	if _, _, _, ok := v.Infill(); ok {
		t.Error("a vocabulary without fill-in-the-middle tokens has them")
	}
	for _, tok := range []engine.Token{-1, engine.Token(v.Size()), 1 << 30} {
		if v.IsEOG(tok) || v.IsControl(tok) || v.Piece(tok, true) != nil {
			t.Errorf("token %d exists", tok)
		}
	}
}

func TestVocabInfill(t *testing.T) {
	w := gguftest.Llama().Writer()
	for i, key := range []string{"fim_pre", "fim_suf", "fim_mid"} {
		w.Set("tokenizer.ggml."+key+"_token_id", uint32(10+i))
	}
	m := loadWriter(t, w, Options{})
	if p, s, mid, ok := m.vocab.Infill(); !ok || p != 10 || s != 11 || mid != 12 {
		t.Errorf("infill tokens %d %d %d %v", p, s, mid, ok)
	}
}

func TestVocabSPM(t *testing.T) {
	m := loadWriter(t, gguftest.Gemma3().Writer(), Options{})
	for _, text := range []string{"the and", "é\x00", strings.Repeat("x", 40000)} {
		var got []byte
		for _, tok := range tokenize(t, m, text) {
			got = append(got, m.vocab.Piece(tok, true)...)
		}
		if strings.TrimPrefix(string(got), " ") != text {
			t.Errorf("%.20q became %.20q", text, got)
		}
	}
}

// TestTokenizeHostile: texts that overflow the stack of the C++ library's
// regular expressions, or that cost an exception per byte.
func TestTokenizeHostile(t *testing.T) {
	for _, pre := range []string{"gpt-2", "qwen2", "deepseek-llm", "tekken"} {
		t.Run(pre, func(t *testing.T) {
			w := gguftest.Llama().Writer()
			w.Set("tokenizer.ggml.pre", pre)
			m := loadWriter(t, w, Options{})
			for _, unit := range []string{"a", " ", "1", "\x00", "\xff", "é", "!", "\n", "a1", "A", "\u00a0", "漢", "!\n"} {
				text := strings.Repeat(unit, 40000)
				tokens, err := m.vocab.Tokenize(text, false)
				if err != nil {
					t.Errorf("%q: %v", unit, err)
				}
				var back []byte
				for _, tok := range tokens {
					back = append(back, m.vocab.Piece(tok, true)...)
				}
				if utf8.ValidString(text) && string(back) != text {
					t.Errorf("%q: the tokens have another text", unit)
				}
			}
			for _, pair := range [][2]string{{"!", "\n"}, {" ", "a"}, {"1", "\n"}} {
				text := strings.Repeat(pair[0], 20000) + strings.Repeat(pair[1], 20000)
				if _, err := m.vocab.Tokenize(text, false); err != nil {
					t.Errorf("%q: %v", pair, err)
				}
			}
		})
	}
}

func TestTokenizeTooLong(t *testing.T) {
	m := tiny(t, Options{})
	if _, err := m.vocab.Tokenize(strings.Repeat("a", TextMax+1), false); err == nil {
		t.Error("no error")
	}
}

func TestTokenizeWhileClosing(t *testing.T) {
	m := tiny(t, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				tokens, err := m.vocab.Tokenize("the end of the world", true)
				if errors.Is(err, engine.ErrClosed) {
					return
				}
				if err != nil || len(tokens) == 0 {
					t.Errorf("%v, %v", tokens, err)
					return
				}
			}
		})
	}
	m.Close()
	wg.Wait()
	m.Close()
}

func TestCutRun(t *testing.T) {
	long := strings.Repeat("x", runMax)
	tests := []struct {
		name, text string
		n, longest int
	}{
		{"empty", "", 0, 0},
		{"words", "ab cde  f", 9, 3},
		{"just fits", long + " ", runMax + 1, runMax},
		{"too long", " " + long + "x", runMax + 1, runMax},
		{"blanks", "a" + strings.Repeat(" ", runMax+5), runMax + 1, runMax},
		{"whole characters", long[1:] + "é", runMax - 1, runMax - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n, longest := cutRun(tt.text); n != tt.n || longest != tt.longest {
				t.Errorf("cutRun = %d, %d, want %d, %d", n, longest, tt.n, tt.longest)
			}
		})
	}
}

func FuzzTokenize(f *testing.F) {
	m := tiny(f, Options{})
	f.Add("<|im_start|>user\nthe <think> \u00a0\x00\xff😀", true)
	f.Add("the 123  end\r\n\r\n", false)
	f.Fuzz(func(t *testing.T, text string, special bool) {
		tokens, err := m.vocab.Tokenize(text, special)
		if err != nil {
			t.Fatal(err)
		}
		var back bytes.Buffer
		for _, tok := range tokens {
			back.Write(m.vocab.Piece(tok, true))
		}
		if want := strings.ToValidUTF8(text, "\uFFFD"); back.String() != want {
			t.Errorf("%q became %q", want, back.String())
		}
	})
}
