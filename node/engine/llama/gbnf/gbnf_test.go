package gbnf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func compile(t testing.TB, src string) *Grammar {
	t.Helper()
	g, err := Compile(src)
	if err != nil {
		t.Fatalf("Compile(%q): %v", src, err)
	}
	return g
}

// matches reports whether the whole text matches.
func matches(g *Grammar, text string) bool {
	s := g.Advance(g.Start(), []byte(text))
	return s != nil && s.Complete()
}

const jsonGrammar = `root ::= value
value ::= object | array | string | number | ("true" | "false" | "null")
object ::= "{" ws ( pair ("," ws pair)* )? "}" ws   # members
pair ::= string ":" ws value
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws ::= [ \t\n]*
`

func TestMatch(t *testing.T) {
	tests := []struct {
		name, grammar string
		yes, no       []string
	}{
		{"literal", `root ::= "ab\n\x41\u00e9"`, []string{"ab\nAé"}, []string{"", "ab", "ab\nAe", "ab\nAéé"}},
		{"alternatives", `root ::= "a" | "bc" |`, []string{"", "a", "bc"}, []string{"b", "abc"}},
		{"next line", "root ::= \"a\"\n  | \"b\" # c\n\n | x\nx ::= \"c\"", []string{"a", "b", "c"}, []string{"d"}},
		{"class", `root ::= [a-c_\]] [^0-9x]`, []string{"aa", "_]", "]é", "c\n"}, []string{"a1", "ax", "dd", "a", "a\x00"}},
		{"class with minus", `root ::= [a-] [-a]`, []string{"--", "a-"}, []string{"b-"}},
		{"any", `root ::= . .`, []string{"ab", "é€", "😀\n"}, []string{"a", "abc", "\x00a", "\xff\xff"}},
		{"surrogates", `root ::= [\uD7FF-\uE000]`, []string{"\uD7FF", "\uE000"}, []string{"\xed\xa0\x80"}},
		{"star", `root ::= "a"* "b"`, []string{"b", "aaab"}, []string{"a", "bb"}},
		{"plus", `root ::= ("ab")+`, []string{"ab", "abab"}, []string{"", "aba"}},
		{"optional", `root ::= "a"? "b"?`, []string{"", "a", "b", "ab"}, []string{"ba"}},
		{"exactly", `root ::= [a-z]{3}`, []string{"abc"}, []string{"ab", "abcd"}},
		{"at least", `root ::= "xy"{2,}`, []string{"xyxy", "xyxyxy"}, []string{"xy"}},
		{"between", `root ::= "a" | ("xy"{1,3})`, []string{"a", "xy", "xyxyxy"}, []string{"", "xyxyxyxy"}},
		{"zero times", `root ::= "a"{0} "b"`, []string{"b"}, []string{"ab"}},
		{"nested empties", `root ::= (("a"?)*)* "b"`, []string{"b", "aab"}, []string{"a"}},
		{"right recursion", `root ::= "a" root | "b"`, []string{"b", "aaab"}, []string{"a"}},
		{"middle recursion", `root ::= "(" root ")" | ""`, []string{"", "()", "((()))"}, []string{"(", "())"}},
		{"root is last", "x ::= \"1\"\nroot ::= x x", []string{"11"}, []string{"1"}},
		{"json", jsonGrammar, []string{`{"a":[1,-2.5e+3,"é\u12aF\n"],"b":{}}`, `""`, `null`, `[[[]]]`, `0.5`},
			[]string{`{"a"}`, `[1,]`, `"` + "\n" + `"`, `-`, `{"a":1}}`, `01`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := compile(t, tt.grammar)
			for _, s := range tt.yes {
				if !matches(g, s) {
					t.Errorf("%q does not match", s)
				}
			}
			for _, s := range tt.no {
				if matches(g, s) {
					t.Errorf("%q matches", s)
				}
			}
		})
	}
}

func TestFinal(t *testing.T) {
	g := compile(t, `root ::= "a" "b"?`)
	s := g.Advance(g.Start(), []byte("a"))
	if !s.Complete() || s.Final() {
		t.Errorf("after a: complete %v, final %v", s.Complete(), s.Final())
	}
	s = g.Advance(s, []byte("b"))
	if !s.Complete() || !s.Final() {
		t.Errorf("after ab: complete %v, final %v", s.Complete(), s.Final())
	}
}

func TestErrors(t *testing.T) {
	tests := []struct{ name, grammar, want string }{
		{"empty", "", `it has no rule "root"`},
		{"no root", `a ::= "b"`, `it has no rule "root"`},
		{"undefined", "root ::= \"a\"\nx ::= y", "line 2, column 7: rule y is not defined"},
		{"twice", "root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: rule root is defined twice"},
		{"left recursion", `root ::= root "a" | "b"`, "rule root begins with itself"},
		{"hidden left recursion", "root ::= a\na ::= b? a \"x\"\nb ::= \"y\"", "rule a begins with itself"},
		{"indirect left recursion", "root ::= a\na ::= b\nb ::= c | \"x\"\nc ::= a \"y\"", "begins with itself"},
		{"open string", `root ::= "a`, "column 10: this string is not closed"},
		{"open class", `root ::= [a`, "column 10: this class is not closed"},
		{"open group", `root ::= ("a"`, "column 10: this parenthesis is not closed"},
		{"stray", `root ::= )`, "column 10: unexpected ')'"},
		{"empty class", `root ::= []`, "the class is empty"},
		{"wrong range", `root ::= [z-a]`, "ends before it begins"},
		{"wrong repetition", `root ::= "a"{3,1}`, "ends before it begins"},
		{"nothing to repeat", `root ::= *`, "nothing to repeat"},
		{"too often", `root ::= "a"{99999}`, "at most 10000 repetitions"},
		{"escape", `root ::= "\q"`, "unknown escape"},
		{"hex", `root ::= "\x4"`, "needs 2 hexadecimal digits"},
		{"surrogate", `root ::= "\uD800"`, "not a Unicode character"},
		{"token", `root ::= <think>`, "tokens in a grammar are not supported"},
		{"no name", `::= "a"`, "a rule name is expected"},
		{"no arrow", `root "a"`, "::= is expected"},
		{"not UTF-8", "root ::= \"\xff\"", "not valid UTF-8"},
		{"deep", "root ::= " + strings.Repeat("(", 101) + strings.Repeat(")", 101), "more than 100 parentheses"},
		{"long", strings.Repeat(" ", SourceBytesMax+1), "at most 1048576 are allowed"},
		{"large", "root ::= " + strings.Repeat("a{9999} ", 30) + "\na ::= \"\"", "it is too large"},
		{"classes", "root ::= " + classes(5000), "too many different character classes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Compile(tt.grammar)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func classes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[^%c] ", rune(0x1000+i))
	}
	return b.String()
}

// TestHostile: grammars that cost other matchers their time or their stack.
func TestHostile(t *testing.T) {
	chain := func(n int, link string) string {
		var b strings.Builder
		b.WriteString("root ::= r0\n")
		for i := range n {
			fmt.Fprintf(&b, "r%d ::= %s\n", i, strings.ReplaceAll(link, "N", fmt.Sprint("r", i+1)))
		}
		fmt.Fprintf(&b, "r%d ::= \"a\"?\n", n)
		return b.String()
	}
	tests := []struct{ name, grammar, text string }{
		{"two ways each", chain(60, "N | N"), "a"},
		{"twice each", chain(40, "N N"), "aaaa"},
		{"long chain", chain(5000, "N"), "a"},
		{"optional to the power", `root ::= ((("a"?){30}){30}){30}`, strings.Repeat("a", 50)},
		{"many optional", `root ::= ("a"?){9000}`, strings.Repeat("a", 50)},
		{"ambiguous stacks", `root ::= "a" root "b" | "a" root "c" | ""`, strings.Repeat("a", 40)},
		{"deep text", `root ::= "[" root "]" | ""`, strings.Repeat("[", 100000)},
		{"every rule empty", "root ::= (" + manyRules(10000) + ") \"x\"\n" + manyEmpty(10000), "x"},
		{"brackets", strings.Repeat("root ::= (((((\"a\"", 20000), "a"},
		{"enumeration", "root ::= " + enumeration(5000), "value-77"},
		{"long text", `root ::= ("a" | "b")*`, strings.Repeat("ab", 200000)},
	}
	tokens := NewTokens(20000, func(i int) ([]byte, bool) { return []byte(strings.Repeat("ab", i%9) + fmt.Sprint(i)), i%100 == 0 })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g, err := Compile(tt.grammar)
			if err != nil {
				t.Logf("refused: %v", err)
				return
			}
			if s := g.Advance(g.Start(), []byte(tt.text)[:min(len(tt.text), 20)]); s != nil {
				g.Mask(s, tokens)
			}
			g.Advance(g.Start(), []byte(tt.text))
			if len(g.states) > statesMax || len(g.frames) > framesMax+visitsMax {
				t.Errorf("%d states, %d frames", len(g.states), len(g.frames))
			}
		})
	}
}

func manyRules(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("r", i)
	}
	return strings.Join(names, " | ")
}

func manyEmpty(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "r%d ::= \"a\"?\n", i)
	}
	return b.String()
}

func enumeration(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"value-%d"`, i)
	}
	return strings.Join(names, " | ")
}

// TestForget: what is matched does not depend on what is kept.
func TestForget(t *testing.T) {
	g := compile(t, jsonGrammar)
	text := []byte(`{"a":[1,{"b":[true,"x"]}],"c":-1.5}`)
	s := g.Start()
	for i := range text {
		if s = g.Advance(s, text[i:i+1]); s == nil {
			t.Fatalf("refused at byte %d", i)
		}
		g.mu.Lock()
		g.reset()
		g.mu.Unlock()
	}
	if !s.Complete() {
		t.Error("not complete")
	}
}

// TestAgainstRegexp compares with the regular expressions of the standard
// library on random expressions and texts.
func TestAgainstRegexp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"a", "b", "é", "€", "😀"}
	var expr func(depth int) (g, re string)
	expr = func(depth int) (string, string) {
		if depth == 0 || rng.IntN(5) == 0 {
			switch c := alphabet[rng.IntN(len(alphabet))]; rng.IntN(4) {
			case 0:
				return "[^" + c + "b]", "[^" + c + "b\\x00]"
			case 1:
				return "[a-" + c + "]", "[a-" + c + "]"
			default:
				return `"` + c + `"`, c
			}
		}
		g1, r1 := expr(depth - 1)
		g2, r2 := expr(depth - 1)
		switch rng.IntN(6) {
		case 0:
			return "(" + g1 + " | " + g2 + ")", "(?:" + r1 + "|" + r2 + ")"
		case 1:
			return "(" + g1 + ")*", "(?:" + r1 + ")*"
		case 2:
			return "(" + g1 + ")?", "(?:" + r1 + ")?"
		case 3:
			return "(" + g1 + "){1,3}", "(?:" + r1 + "){1,3}"
		default:
			return g1 + " " + g2, r1 + r2
		}
	}
	matched := 0
	for range 2000 {
		gs, rs := expr(4)
		g := compile(t, "root ::= "+gs)
		re := regexp.MustCompile(`\A(?:` + rs + `)\z`)
		for range 20 {
			var text string
			for range rng.IntN(6) {
				text += alphabet[rng.IntN(len(alphabet))]
			}
			want := re.MatchString(text)
			if got := matches(g, text); got != want {
				t.Fatalf("grammar %s, regexp %s, text %q: %v, want %v", gs, rs, text, got, want)
			}
			if want {
				matched++
			}
		}
	}
	if matched < 1000 {
		t.Errorf("only %d texts matched", matched)
	}
}

func TestMask(t *testing.T) {
	texts := []string{"a", "b", "ab", "abc", "", "é", "\xc3", "\xa9", "a\xc3", "abd", "bcd", `"`, "aa"}
	tokens := NewTokens(len(texts), func(i int) ([]byte, bool) { return []byte(texts[i]), false })
	grammars := []string{
		`root ::= "a" ("b" | "é") .*`, `root ::= "é" "a"`, `root ::= [^a]+`, `root ::= "ab"`, jsonGrammar, `root ::= ("a" | "b")*`,
	}
	for _, src := range grammars {
		g := compile(t, src)
		for _, before := range []string{"", "a", "ab", "\xc3", `"`, "é"} {
			s := g.Advance(g.Start(), []byte(before))
			if s == nil {
				continue
			}
			mask := g.Mask(s, tokens)
			for i, text := range texts {
				want := text != "" && g.Advance(s, []byte(text)) != nil
				if got := mask[i/64]>>(i%64)&1 == 1; got != want {
					t.Errorf("%s after %q: token %q allowed %v, want %v", src, before, text, got, want)
				}
			}
		}
	}
}

func TestLiteral(t *testing.T) {
	g := compile(t, `root ::= "<call>" [^"]* | "x" .*`)
	tests := []struct {
		before, text string
		want         bool
	}{
		{"", "<call>", true}, {"", "<ca", true}, {"<ca", "ll>", true}, {"<call>", "<call>", false}, {"x", "a", false}, {"", "x", true}, {"", "y", false},
	}
	texts := make([]string, len(tests))
	for i, tt := range tests {
		texts[i] = tt.text
	}
	tokens := NewTokens(len(texts), func(i int) ([]byte, bool) { return []byte(texts[i]), true })
	for i, tt := range tests {
		s := g.Advance(g.Start(), []byte(tt.before))
		next := g.AdvanceLiteral(s, []byte(tt.text))
		if got := next != nil; got != tt.want {
			t.Errorf("%q after %q: %v", tt.text, tt.before, got)
		}
		if got := g.Mask(s, tokens)[0]>>i&1 == 1; got != tt.want {
			t.Errorf("%q after %q: in the mask: %v", tt.text, tt.before, got)
		}
	}
	if s := g.Advance(g.AdvanceLiteral(g.Start(), []byte("<call>")), []byte("é")); s == nil || !s.Complete() {
		t.Error("after a literal the grammar does not go on")
	}
}

func TestEncodings(t *testing.T) {
	for _, s := range []span{{0, utf8.MaxRune}, {0x7f, 0x80}, {0x7fe, 0x801}, {0xfff, 0x10001}, {0x20ac, 0x20ac}, {0xd7ff, 0xe000}, {0x1234, 0x3456}} {
		a := newAutomaton(class{s}, classStatesMax)
		for r := rune(0); r <= utf8.MaxRune; r++ {
			if !utf8.ValidRune(r) {
				continue
			}
			state := int32(classInit)
			for _, b := range []byte(string(r)) {
				if state = a.step(state, b); state == classDead {
					break
				}
			}
			if got, want := state == classDone, r >= s.lo && r <= s.hi; got != want {
				t.Fatalf("span %x-%x, character %x: %v", s.lo, s.hi, r, got)
			}
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(jsonGrammar, `{"a":1}`)
	f.Add(`root ::= (("a"?)*)* [^b-c]{2,3} | x`+"\nx ::= .", "aaa")
	f.Add("root ::= root", "")
	f.Fuzz(func(t *testing.T, src, text string) {
		if len(src) > 1<<12 || len(text) > 1<<8 {
			return
		}
		g, err := Compile(src)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%T", err)
			}
			return
		}
		// A text matches bytewise as it does in one go.
		whole, s := g.Advance(g.Start(), []byte(text)), g.Start()
		for i := 0; i < len(text) && s != nil; i++ {
			s = g.Advance(s, []byte(text[i:i+1]))
		}
		if (whole == nil) != (s == nil) || whole != nil && whole.Complete() != s.Complete() {
			t.Fatal("the answer depends on how the text is cut")
		}
	})
}

func BenchmarkMask(b *testing.B) {
	rng := rand.New(rand.NewPCG(3, 4))
	texts := make([][]byte, 50000)
	for i := range texts {
		for range 1 + rng.IntN(7) {
			texts[i] = append(texts[i], byte('a'+rng.IntN(26)))
		}
	}
	tokens := NewTokens(len(texts), func(i int) ([]byte, bool) { return texts[i], false })
	g := compile(b, jsonGrammar)
	s := g.Advance(g.Start(), []byte(`{"a`))
	for b.Loop() {
		s.mask = nil
		g.Mask(s, tokens)
	}
}
