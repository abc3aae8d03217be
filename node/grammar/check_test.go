package grammar

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

const arithmetic = `root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*
`

const smallC = `# a language like C
root ::= (declaration)*
declaration ::= type identifier "(" parameter? ")" "{" statement* "}"
type ::= "int" ws | "float" ws | "char" ws
identifier ::= [a-zA-Z] [a-zA-Z0-9]*
parameter ::= type identifier
statement ::=
	( type identifier ws "=" ws expression ";" ) |
	( identifier ws "=" ws expression ";" ) |
	( identifier ws "(" argList? ")" ";" ) |
	( "return" ws expression ";" ) |
	( "while" "(" condition ")" "{" statement* "}" ) |
	( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? )
condition ::= expression relation expression
relation ::= ("<=" | "<" | "==" | "!=" | ">=" | ">")
expression ::= term (("+" | "-") term)*
term ::= factor(("*" | "/") factor)*
factor ::= identifier | number | unary | call | "(" expression ")"
unary ::= "-" factor
call ::= identifier "(" argList? ")"
argList ::= expression ("," ws expression)*
number ::= [0-9]+
ws ::= ([ \t\n]+)
`

const moves = `root ::= (move " " move "\n"){1,4}
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?`

func TestCheck(t *testing.T) {
	tests := []struct {
		name, grammar string
		yes, no       []string
	}{
		{"literal", `root ::= "a\n\x41é\u00e9\U0001F600\\\""`, []string{"a\nAéé😀\\\""}, []string{"", "a"}},
		{"empty", `root ::= ""`, []string{""}, []string{"a"}},
		{"empty alternative", `root ::= | "a" | b` + "\nb ::= \"c\" |", []string{"", "a", "c"}, []string{"b"}},
		{"class", `root ::= [a-c\x5D\[-] [^0-9x]`, []string{"aa", "]é", "[\n", "-y"}, []string{"a1", "ax", "dd"}},
		{"any", `root ::= . .`, []string{"ab", "é😀"}, []string{"a", "abc"}},
		{"repetitions", `root ::= "ab"* [c]+ "d"? ("e" | "f"){2} "g"{1,2} "h"{1,}`, []string{"cefgh", "ababcdffgghhh"}, []string{"cegh", "cefh", "cefg"}},
		{"repetition of a repetition", `root ::= "a"{2}{3}`, []string{"aaaaaa"}, []string{"aaaaa", "aaaaaaa"}},
		{"zero times", `root ::= "a"{0} "b"{0,0} "c"`, []string{"c"}, []string{"ac"}},
		{"comments and blanks", "# x\n\n root ::= ( # y\n\"a\"\n|\n\"b\" )\t# z\r\n", []string{"a", "b"}, nil},
		{"recursion", `root ::= "(" root ")" | ""`, []string{"", "((()))"}, []string{"(", "())"}},
		{"several rules in a line", "root ::= a a\na ::= \"1\"", []string{"11"}, []string{"1"}},
		{"json", JSON(), []string{`{}`, `{"a": [1, null]}`}, []string{`[]`}},
		{"arithmetic", arithmetic, []string{"1+x=3\n", "(a*(2+b))=c\n1=2\n"}, []string{"1=\n"}},
		{"small C", smallC, []string{"int main(){return f(1,  x);}", "int f(int a){while(a<b){a = a-1;}if(x==y){}else{f ();}}"}, []string{"int main()"}},
		{"chess", moves, []string{"e4 e5\nNf3 Nc6\n"}, []string{"e4\n"}},
		{"1000 words", "root ::= " + strings.Join(words(1000), " | "), []string{"w7", "w999"}, []string{"w", "w1000"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMatcher(t, tt.grammar)
			for _, text := range tt.yes {
				if ok, _ := m.matches(text); !ok {
					t.Errorf("%q is refused", text)
				}
			}
			for _, text := range tt.no {
				if ok, _ := m.matches(text); ok {
					t.Errorf("%q is accepted", text)
				}
			}
		})
	}
}

// words are literals that share their beginning.
func words(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"w%d"`, i)
	}
	return out
}

func TestCheckErrors(t *testing.T) {
	tests := []struct {
		name, grammar string
		line          int
		rule, reason  string
	}{
		{"nothing", "", 0, "root", "not defined"},
		{"no root", `a ::= "b"`, 0, "root", "not defined"},
		{"root is only used", `a ::= root`, 0, "root", "not defined"},
		{"undefined", "root ::= a\nb ::= c", 0, "a", "used and not defined"},
		{"twice", "root ::= \"a\"\n\nroot ::= \"b\"", 3, "root", "twice"},
		{"no name", `::= "a"`, 1, "", "a rule name is expected"},
		{"underscore", `my_rule ::= "a"`, 1, "my", "::= is expected"},
		{"no arrow", "\nroot \"a\"", 2, "root", "::= is expected"},
		{"stray", `root ::= "a" )`, 1, "root", "end of the line is expected"},
		{"next line", "root ::= \"a\"\n | \"b\"", 2, "", "a rule name is expected"},
		{"open literal", `root ::= "a`, 1, "root", "not closed"},
		{"open class", `root ::= [a`, 1, "root", "not closed"},
		{"open range", `root ::= [a-`, 1, "root", "not closed"},
		{"open group", "root ::= (\"a\"\n\"b\"", 2, "root", "not closed"},
		{"backslash at the end", `root ::= "\`, 1, "root", "unknown escape"},
		{"unknown escape", `root ::= "\q"`, 1, "root", `unknown escape \q`},
		{"short escape", `root ::= "\x4`, 1, "root", "2 hexadecimal digits"},
		{"surrogate", `root ::= "\uD800"`, 1, "root", "U+D800"},
		{"beyond Unicode", `root ::= "\U00110000"`, 1, "root", "U+110000"},
		{"escaped NUL", `root ::= "\x00"`, 1, "root", "U+0000"},
		{"NUL", "root ::= \"\x00\"", 0, "", "NUL"},
		{"not UTF-8", "root ::= \"\xff\"", 0, "", "UTF-8"},
		{"empty class", `root ::= []`, 1, "root", "class is empty"},
		{"class of nothing", `root ::= [^\x01-\U0010FFFF]`, 1, "root", "matches no character"},
		{"range", `root ::= [z-a]`, 1, "root", "ends before it begins"},
		{"nothing to repeat", `root ::= *`, 1, "root", "nothing to repeat"},
		{"empty literal repeated", `root ::= ""*`, 1, "root", "nothing to repeat"},
		{"no number", `root ::= "a"{x}`, 1, "root", "a number is expected"},
		{"open braces", `root ::= "a"{1`, 1, "root", "} is expected"},
		{"wrong braces", `root ::= "a"{3,1}`, 1, "root", "ends before it begins"},
		{"huge repetition", `root ::= "a"{99999999999999999999}`, 1, "root", "at most 2000"},
		{"huge expansion", `root ::= "abc"{2000}{2000}`, 1, "root", "symbols"},
		{"huge expansion in steps", "root ::= " + strings.Repeat(`"a"{2000} `, 200), 1, "root", "symbols"},
		{"many optional ones", "root ::= " + strings.Repeat(`("a" "b"){0,2000} `, 40), 1, "root", "symbols"},
		{"many rules", "root ::= \"a\"\n" + manyRules(70000), MaxGrammarRules + 1, "r65535", "more than 65536 rules"},
		{"token", `root ::= <think>`, 1, "root", "tokens"},
		{"no token", `root ::= !<[12]>`, 1, "root", "tokens"},
		{"left recursion", `root ::= root "a" | "b"`, 1, "root", "begins with itself"},
		{"indirect left recursion", "root ::= x\nx ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\"", 3, "a", "begins with itself"},
		{"left recursion behind something empty", "root ::= a? root \"x\" | \"y\"\na ::= \"b\"", 1, "root", "begins with itself"},
		{"empty loop", `root ::= ("a"?)* "b"`, 1, "root", "repeats something empty"},
		{"empty loop in a rule", "root ::= a+\na ::= b*\nb ::= \"x\"*", 1, "root", "repeats something empty"},
		{"never ends", "root ::= \"a\" x\nx ::= \"b\" x", 1, "root", "never end"},
		{"deep groups", "root ::= " + strings.Repeat("(", 100000), 1, "root", "more than 100 groups"},
		{"words without end", "root ::= " + strings.Join(words(20000), " | "), 1, "root", "more than 16384 ways"},
		{"many words", "root ::= " + strings.Join(words(2000), " | "), 1, "root", "too ambiguous"},
		{"ways that multiply", "root ::= a a a a a a a a a a a a a a a a\na ::= \"x\"? | \"y\"?", 1, "root", "ways to begin"},
		{"doubling rules", doubling(40), 27, "r25", "ways to begin"},
		{"deep start", deepStart(3000), 1000, "r999", "more than 2000 rules"},
		{"doubling stacks", "root ::= s\ns ::= \"x\" s \"y\" | \"x\" s \"z\" | \"x\"", 2, "s", "too ambiguous"},
		{"doubling stacks after a long way", "root ::= \"" + strings.Repeat("a", 5000) + "\" s\ns ::= \"xxxxxxxxxxxx\" s \"y\" | \"xxxxxxxxxxxx\" s \"z\" | \"x\"", 2, "s", "too ambiguous"},
		{"optional ones in a counted loop", `root ::= (("a" "b"?){0,60} "a"?){0,60}`, 1, "root", ""},
		{"too many classes", "root ::= " + manyClasses(1100), 1, "root", "different classes"},
		{"too long", "root ::= \"" + strings.Repeat("a", MaxGrammarBytes) + "\"", 0, "", "bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			err := Check(tt.grammar)
			if took := time.Since(start); took > hostileTime {
				t.Errorf("took %v", took)
			}
			var e *SyntaxError
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a *SyntaxError", err)
			}
			if e.Line != tt.line || e.Rule != tt.rule || !strings.Contains(e.Reason, tt.reason) {
				t.Errorf("got %#v, want line %d, rule %q, reason %q", e, tt.line, tt.rule, tt.reason)
			}
		})
	}
}

// doubling is a chain of rules, each of which can begin with the next in two ways.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString("root ::= r0\n")
	for i := range n {
		fmt.Fprintf(&b, "r%d ::= r%d | r%d \"x\"\n", i, i+1, i+1)
	}
	fmt.Fprintf(&b, "r%d ::= \"y\"\n", n)
	return b.String()
}

// deepStart is a chain of rules that begin with the next.
func deepStart(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "r%d ::= r%d \"x\"\n", i, i+1)
	}
	fmt.Fprintf(&b, "r%d ::= \"y\"\nroot ::= r0\n", n)
	return b.String()
}

func manyClasses(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[a\\u%04x] ", 0x1000+2*i)
	}
	return b.String()
}

func manyRules(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "r%d::=\n", i)
	}
	return strings.ReplaceAll(b.String(), "\n", "\"\"\n")
}
