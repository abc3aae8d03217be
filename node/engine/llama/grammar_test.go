package llama

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"tandem/node/engine"
)

func TestGrammar(t *testing.T) {
	m := tiny(t, Options{})
	prompt := tokenize(t, m, "the end")
	hot := random(4)
	hot.Temperature = 2
	for name, p := range map[string]engine.Sampling{"greedy": plain(), "random": hot, "greedy, no end": endless()} {
		for _, tt := range []struct{ grammar, prefix, suffix string }{
			{`root ::= "yes" | "no"`, "", ""},
			{`root ::= "{\"name\": \"" [a-z]{1,8} "\"}"`, `{"name": "`, `"}`},
			{`root ::= "é" [α-ω]{2} "😀"`, "é", "😀"},
			{`root ::= ("a" | "b"){20} "<think>"`, "", "<think>"},
		} {
			t.Run(name+" "+tt.grammar, func(t *testing.T) {
				p.Grammar = tt.grammar
				s := answer(t, m, p, prompt, 100)
				g, err := m.grammars.compile(tt.grammar)
				if err != nil {
					t.Fatal(err)
				}
				if end := g.Advance(g.Start(), s.text); end == nil || !end.Complete() {
					t.Errorf("%q does not match", s.text)
				}
				if !strings.HasPrefix(string(s.text), tt.prefix) || !strings.HasSuffix(string(s.text), tt.suffix) {
					t.Errorf("text %q", s.text)
				}
				if last := s.tokens[len(s.tokens)-1]; !m.vocab.IsEOG(last) {
					t.Errorf("the text goes on after its end: %q", s.text)
				}
			})
		}
	}
}

// TestGrammarDistribution: a constrained draw is the free one given that it is
// allowed.
func TestGrammarDistribution(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	probs := distribution(t, m, entry, pos)
	want, sum := make([]float64, len(probs)), 0.0
	for tok := range probs {
		if p := m.vocab.piece(tok); len(p) == 1 && p[0] >= 'a' && p[0] <= 'h' {
			want[tok] = probs[tok]
			sum += probs[tok]
		}
	}
	counts := make([]int, len(want))
	p := random(21)
	p.Grammar = `root ::= [a-h]`
	const draws = 4000
	for i := range draws {
		counts[draw(t, m, p, entry, i).Token]++
	}
	chi := 0.0
	for tok, n := range counts {
		if want[tok] == 0 {
			if n > 0 {
				t.Fatalf("token %d was drawn", tok)
			}
			continue
		}
		expected := want[tok] / sum * draws
		chi += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	if chi > 35 { // seven degrees of freedom: once in 100,000
		t.Errorf("chi-squared %v", chi)
	}
}

// TestGrammarControlTokens: a control token stands for what a grammar spells out
// and for nothing else.
func TestGrammarControlTokens(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	start := tokenize(t, m, "<|im_start|>")[0]
	p := plain()
	p.LogitBias = map[engine.Token]float32{start: 100}
	for grammar, want := range map[string]bool{`root ::= "<|im_start|>" "x"`: true, `root ::= [^"]*`: false, `root ::= .+`: false} {
		p.Grammar = grammar
		if got := draw(t, m, p, entry, pos).Token == start; got != want {
			t.Errorf("%s: control token %v", grammar, got)
		}
	}
}

func TestLazyGrammar(t *testing.T) {
	m := tiny(t, Options{})
	const call = `root ::= "<tool_call>" [0-9]{3} "</tool_call>"`
	const anywhere = `^[\s\S]*?(<tool_call>[0-9]?)$`
	tests := []struct {
		name     string
		triggers []string
		before   string // the text so far
		asleep   bool
		after    string // what must follow
	}{
		{"asleep", []string{anywhere}, "the end <tool", true, ""},
		{"awake", []string{anywhere}, "the end <tool_call>12", false, "</tool_call>"},
		{"without anchors", []string{`(?s).*?(<tool_call>).*`}, "the <tool_call>", false, "</tool_call>"},
		{"without group", []string{`<tool_call>`}, "<tool_call>1", false, "</tool_call>"},
		{"second trigger", []string{`x{5}`, `the end\s*(<tool_call>)`}, "the end <tool_call>1", false, "</tool_call>"},
		{"not at the start", []string{`<tool_call>`}, "the <tool_call>", true, ""},
		{"only talk", []string{`(?s).*?(<tool_call>[ 0-9])`}, "say <tool_call> or", true, ""},
		{"after talk", []string{`(?s).*?(<tool_call>[ 0-9])`}, "say <tool_call> or <tool_call>1", false, "</tool_call>"},
		{"split character", []string{`é(<tool_call>)`}, "é<tool_call>", false, "</tool_call>"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := random(6)
			p.Grammar, p.Triggers, p.IgnoreEOS = call, tt.triggers, true
			before := tokenize(t, m, tt.before)
			m.Remove(0, 0)
			s := newStream(t, m, 0, p, nil, before)
			if got := s.sampler.(*sampler).grammar.asleep; got != tt.asleep {
				t.Fatalf("asleep = %v", got)
			}
			s.prefill(before)
			s.generate(40)
			if tt.after != "" && !strings.HasSuffix(string(s.text), tt.after) {
				t.Errorf("text %q", s.text)
			}
		})
	}
}

// TestWakeInTheText: the model itself writes what wakes the grammar.
func TestWakeInTheText(t *testing.T) {
	m := tiny(t, Options{})
	call := tokenize(t, m, "<tool_call>")[0]
	p := plain()
	p.Grammar, p.Triggers = `root ::= "<tool_call>" [0-9]{3} "</tool_call>"`, []string{`^[\s\S]*?(<tool_call>)$`}
	p.LogitBias = map[engine.Token]float32{call: 100}
	s := answer(t, m, p, tokenize(t, m, "the end"), 20)
	if text := string(s.text); !strings.HasPrefix(text, "<tool_call>") || !strings.HasSuffix(text, "</tool_call>") {
		t.Errorf("text %q", text)
	}
}

func TestGrammarErrors(t *testing.T) {
	m := tiny(t, Options{})
	tests := []struct {
		name      string
		grammar   string
		triggers  []string
		generated string
		want      string
	}{
		{"syntax", `root ::= "a`, nil, "", "line 1, column 10: this string is not closed"},
		{"no root", `x ::= "a"`, nil, "", "root"},
		{"left recursion", `root ::= root "a" | ""`, nil, "", "begins with itself"},
		{"nesting", "root ::= " + strings.Repeat("(", 100000) + strings.Repeat(")", 100000), nil, "", "parentheses within each other"},
		{"long", "root ::= \"" + strings.Repeat("a", 1<<20) + "\"", nil, "", "at most 1048576"},
		{"text so far", `root ::= "abc"`, nil, "abx", "does not allow token 2"},
		{"trigger", `root ::= "a"`, []string{"("}, "", "missing closing )"},
		{"long trigger", `root ::= "a"`, []string{strings.Repeat("a", 5000)}, "", "at most 4096"},
		{"many triggers", `root ::= "a"`, make([]string, 100), "", "at most 64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := plain()
			p.Grammar, p.Triggers = tt.grammar, tt.triggers
			_, err := m.NewSampler(p, nil, tokenize(t, m, tt.generated))
			var g *engine.GrammarError
			if !errors.As(err, &g) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestGrammarStuck: a grammar that no token continues is an error, not a wrong
// text.
func TestGrammarStuck(t *testing.T) {
	m := tiny(t, Options{})
	entry, pos := row(t, m)
	p := plain()
	p.Grammar, p.LogitBias = `root ::= "a"`, map[engine.Token]float32{}
	for tok := range m.vocab.Size() {
		if strings.HasPrefix(string(m.vocab.piece(tok)), "a") {
			p.LogitBias[engine.Token(tok)] = float32(math.Inf(-1))
		}
	}
	s, err := m.NewSampler(p, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var g *engine.GrammarError
	if _, err := m.Sample(entry, s, pos); !errors.As(err, &g) {
		t.Errorf("error %v", err)
	}
}

func TestGrammarsAreKept(t *testing.T) {
	var g grammars
	first, err := g.compile(`root ::= "a"`)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * grammarsMax {
		if _, err := g.compile(fmt.Sprintf(`root ::= "%d"`, i)); err != nil {
			t.Fatal(err)
		}
		if again, _ := g.compile(`root ::= "a"`); again != first {
			t.Fatal("a grammar in use was forgotten")
		}
	}
	if len(g.recent) != grammarsMax {
		t.Errorf("%d grammars are kept", len(g.recent))
	}
}
