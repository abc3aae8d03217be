package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cfg is a parsed grammar in the form that llama.cpp gives it: groups and
// repetitions have become rules of their own.
type cfg struct {
	rules   []cfgRule
	ids     map[string]int // of the rules that have a name in the text
	classes []charset
}

type cfgRule struct {
	name         string // of the rule in the text that it is part of
	line         int    // where it is defined; 0: it is not
	alternatives [][]symbol
}

// symbol is one element of an alternative.
type symbol struct {
	kind  symbolKind
	value int // rune, class or rule
}

type symbolKind uint8

const (
	symbolRune symbolKind = iota
	symbolClass
	symbolRule
)

// cost is what a symbol counts against MaxGrammarElements.
func (s symbol) cost() int {
	if s.kind == symbolRune {
		return utf8.RuneLen(rune(s.value))
	}
	return 1
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// parseGrammar reads GBNF as llama.cpp does, within limits.
func parseGrammar(text string) (*cfg, error) {
	switch {
	case len(text) > MaxGrammarBytes:
		return nil, &SyntaxError{Reason: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(text), MaxGrammarBytes)}
	case !utf8.ValidString(text):
		return nil, &SyntaxError{Reason: "it is not valid UTF-8"}
	case strings.IndexByte(text, 0) >= 0:
		return nil, &SyntaxError{Reason: "it has a NUL character"}
	}
	p := &parser{src: text, cfg: &cfg{ids: map[string]int{}}, classIDs: map[string]int{}}
	p.space(true)
	for p.pos < len(p.src) {
		if err := p.rule(); err != nil {
			return nil, err
		}
	}
	return p.cfg, p.resolve()
}

type parser struct {
	*cfg
	src      string
	pos      int
	line     int    // line breaks before lineAt
	lineAt   int    // what has been counted
	name     string // of the rule that is being read
	depth    int
	elements int
	classIDs map[string]int
}

// currentLine is the line of pos, which only grows between calls.
func (p *parser) currentLine() int {
	if p.pos > p.lineAt {
		p.line += strings.Count(p.src[p.lineAt:p.pos], "\n")
		p.lineAt = p.pos
	}
	return p.line + 1
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Line: p.currentLine(), Rule: p.name, Reason: fmt.Sprintf(format, args...)}
}

// peek is the next byte, 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

// space skips blanks and comments, and line breaks where they mean nothing.
func (p *parser) space(lines bool) {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			p.pos++
		case c == '#':
			n := strings.IndexAny(p.src[p.pos:], "\r\n")
			if n < 0 {
				n = len(p.src) - p.pos
			}
			p.pos += n
		default:
			return
		}
	}
}

func (p *parser) word() string {
	start := p.pos
	for p.pos < len(p.src) && isWordByte(p.src[p.pos]) {
		p.pos++
	}
	return p.src[start:p.pos]
}

// id is the rule named name, which need not be defined yet.
func (p *parser) id(name string) int {
	if id, ok := p.ids[name]; ok {
		return id
	}
	id := len(p.rules)
	p.ids[name] = id
	p.rules = append(p.rules, cfgRule{name: name})
	return id
}

// anonymous makes a rule for a group or a repetition.
func (p *parser) anonymous(alternatives ...[]symbol) (int, error) {
	if len(p.rules) >= MaxGrammarRules {
		return 0, p.fail("the grammar has more than %d rules, groups and optional repetitions", MaxGrammarRules)
	}
	p.rules = append(p.rules, cfgRule{name: p.name, line: p.currentLine(), alternatives: alternatives})
	for _, a := range alternatives {
		if err := p.charge(a, 1); err != nil {
			return 0, err
		}
	}
	return len(p.rules) - 1, nil
}

// charge counts n copies of symbols, and one for the end of each.
func (p *parser) charge(symbols []symbol, n int) error {
	cost := 1
	for _, s := range symbols {
		cost += s.cost()
	}
	if cost > MaxGrammarElements || n > MaxGrammarElements/cost {
		p.elements = MaxGrammarElements
	}
	if p.elements += cost * n; p.elements > MaxGrammarElements {
		return p.fail("the grammar has more than %d symbols, repetitions written out", MaxGrammarElements)
	}
	return nil
}

// rule reads: name ::= alternatives, to the end of the line.
func (p *parser) rule() error {
	p.name = ""
	name := p.word()
	if name == "" {
		return p.fail("a rule name is expected, not %q; allowed: letters, digits and -", p.rest())
	}
	p.name = name
	p.space(false)
	if !strings.HasPrefix(p.src[p.pos:], "::=") {
		return p.fail("::= is expected, not %q", p.rest())
	}
	p.pos += len("::=")
	id := p.id(name)
	if p.rules[id].line > 0 {
		return p.fail("it is defined twice")
	}
	if len(p.rules) > MaxGrammarRules {
		return p.fail("the grammar has more than %d rules", MaxGrammarRules)
	}
	p.rules[id].line = p.currentLine()
	p.space(true)
	alternatives, err := p.alternatives(false)
	if err != nil {
		return err
	}
	p.rules[id].alternatives = alternatives
	if c := p.peek(); p.pos < len(p.src) && c != '\n' && c != '\r' {
		return p.fail("the end of the line is expected, not %q", p.rest())
	}
	p.space(true)
	return nil
}

// rest is the beginning of what has not been read, for messages.
func (p *parser) rest() string {
	line, _, _ := strings.Cut(p.src[p.pos:], "\n")
	return clip(line)
}

func (p *parser) alternatives(nested bool) ([][]symbol, error) {
	var out [][]symbol
	for {
		symbols, err := p.sequence(nested)
		if err != nil {
			return nil, err
		}
		if err := p.charge(nil, 1); err != nil {
			return nil, err
		}
		out = append(out, symbols)
		if p.peek() != '|' {
			return out, nil
		}
		p.pos++
		p.space(true)
	}
}

// sequence reads symbols up to what cannot be one. A repetition applies to what
// came last, also to a whole literal, and to what another repetition made of it.
func (p *parser) sequence(nested bool) ([]symbol, error) {
	var out []symbol
	last := 0 // where the last item begins in out
	for p.pos < len(p.src) {
		item, ok, err := p.item()
		if err != nil {
			return nil, err
		}
		if ok {
			if err := p.charge(item, 1); err != nil {
				return nil, err
			}
			last = len(out)
			out = append(out, item...)
			p.space(nested)
			continue
		}
		lo, hi, ok, err := p.bounds(nested)
		if err != nil || !ok {
			return out, err
		}
		if last == len(out) {
			return nil, p.fail("there is nothing to repeat")
		}
		repeated, err := p.repeat(out[last:], lo, hi)
		if err != nil {
			return nil, err
		}
		out = append(out[:last:last], repeated...)
	}
	return out, nil
}

// item reads what a repetition can apply to; not ok means that none begins here.
func (p *parser) item() ([]symbol, bool, error) {
	var out []symbol
	var err error
	switch c := p.peek(); {
	case c == '"':
		out, err = p.literal()
	case c == '[':
		out, err = p.class()
	case c == '(':
		out, err = p.group()
	case c == '.':
		p.pos++
		out = p.classSymbol(charset{{1, surrogateMin - 1}, {surrogateMax + 1, utf8.MaxRune}})
	case isWordByte(c):
		out = []symbol{{symbolRule, p.id(p.word())}}
	case c == '<' || c == '!':
		err = p.fail("tokens in a grammar are not supported")
	default:
		return nil, false, nil
	}
	return out, true, err
}

func (p *parser) literal() ([]symbol, error) {
	p.pos++
	var out []symbol
	for p.peek() != '"' {
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		out = append(out, symbol{symbolRune, int(r)})
	}
	p.pos++
	return out, nil
}

func (p *parser) class() ([]symbol, error) {
	p.pos++
	inverted := p.peek() == '^'
	if inverted {
		p.pos++
	}
	var spans []span
	for p.peek() != ']' {
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
		}
		if hi < lo {
			return nil, p.fail("a range in a class ends before it begins")
		}
		spans = append(spans, span{lo, hi})
	}
	p.pos++
	if len(spans) == 0 {
		return nil, p.fail("a class is empty")
	}
	set := newCharset(spans...)
	if inverted {
		set = set.union(charset{{0, 0}}).inverted()
	}
	if len(set) == 0 {
		return nil, p.fail("a class matches no character")
	}
	out := p.classSymbol(set)
	if len(p.classes) > MaxGrammarClasses {
		return nil, p.fail("the grammar has more than %d different classes", MaxGrammarClasses)
	}
	return out, nil
}

func (p *parser) classSymbol(set charset) []symbol {
	var key []byte
	for _, s := range set {
		key = strconv.AppendInt(append(key, ','), int64(s.lo), 36)
		key = strconv.AppendInt(append(key, '-'), int64(s.hi), 36)
	}
	id, ok := p.classIDs[string(key)]
	if !ok {
		id = len(p.classes)
		p.classIDs[string(key)] = id
		p.classes = append(p.classes, set)
	}
	return []symbol{{symbolClass, id}}
}

// char reads one character of a literal or class.
func (p *parser) char() (rune, error) {
	if p.pos >= len(p.src) {
		return 0, p.fail("a literal or class is not closed")
	}
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	if r != '\\' {
		return r, nil
	}
	c := p.peek()
	p.pos++
	switch c {
	case 't':
		return '\t', nil
	case 'r':
		return '\r', nil
	case 'n':
		return '\n', nil
	case '\\', '"', '[', ']':
		return rune(c), nil
	case 'x':
		return p.hex(2)
	case 'u':
		return p.hex(4)
	case 'U':
		return p.hex(8)
	}
	p.pos = min(p.pos, len(p.src))
	return 0, p.fail(`unknown escape \%c; allowed: \t \r \n \\ \" \[ \] \xHH \uHHHH \UHHHHHHHH`, c)
}

func (p *parser) hex(n int) (rune, error) {
	end := min(p.pos+n, len(p.src))
	v, err := strconv.ParseUint(p.src[p.pos:end], 16, 32)
	if err != nil || end-p.pos < n {
		return 0, p.fail("an escape needs %d hexadecimal digits", n)
	}
	if v == 0 || v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
		return 0, p.fail("U+%04X is not a character that a text can have", v)
	}
	p.pos = end
	return rune(v), nil
}

func (p *parser) group() ([]symbol, error) {
	if p.depth++; p.depth > MaxGrammarDepth {
		return nil, p.fail("more than %d groups within each other", MaxGrammarDepth)
	}
	p.pos++
	p.space(true)
	id, err := p.anonymous()
	if err != nil {
		return nil, err
	}
	alternatives, err := p.alternatives(true)
	if err != nil {
		return nil, err
	}
	if p.peek() != ')' {
		return nil, p.fail("a group is not closed")
	}
	p.pos++
	p.depth--
	p.rules[id].alternatives = alternatives
	return []symbol{{symbolRule, id}}, nil
}

// bounds reads * + ? {m} {m,} or {m,n}; hi may be unbounded.
func (p *parser) bounds(nested bool) (lo, hi int, ok bool, err error) {
	hi = unbounded
	switch p.peek() {
	case '*':
	case '+':
		lo = 1
	case '?':
		hi = 1
	case '{':
		if lo, hi, err = p.braces(nested); err != nil {
			return 0, 0, false, err
		}
	default:
		return 0, 0, false, nil
	}
	p.pos++
	p.space(nested)
	return lo, hi, true, nil
}

// braces stops at the closing one.
func (p *parser) braces(nested bool) (lo, hi int, err error) {
	p.pos++
	p.space(nested)
	if lo, err = p.number(); err != nil {
		return 0, 0, err
	}
	p.space(nested)
	hi = lo
	if p.peek() == ',' {
		p.pos++
		p.space(nested)
		hi = unbounded
		if p.peek() != '}' {
			if hi, err = p.number(); err != nil {
				return 0, 0, err
			}
			p.space(nested)
		}
	}
	if p.peek() != '}' {
		return 0, 0, p.fail("} is expected, not %q", p.rest())
	}
	if hi != unbounded && hi < lo {
		return 0, 0, p.fail("the repetition {%d,%d} ends before it begins", lo, hi)
	}
	return lo, hi, nil
}

func (p *parser) number() (int, error) {
	n, digits := 0, 0
	for ; p.peek() >= '0' && p.peek() <= '9'; p.pos++ {
		digits++
		if n = n*10 + int(p.peek()-'0'); n > MaxRepetition {
			return 0, p.fail("at most %d repetitions are allowed", MaxRepetition)
		}
	}
	if digits == 0 {
		return 0, p.fail("a number is expected, not %q", p.rest())
	}
	return n, nil
}

// repeat writes item{lo,hi} out: lo copies, and a chain of rules for the others,
// each of which is one more item and the next rule, or nothing.
func (p *parser) repeat(item []symbol, lo, hi int) ([]symbol, error) {
	if err := p.charge(item, max(lo-1, 0)); err != nil {
		return nil, err
	}
	var out []symbol
	for range lo {
		out = append(out, item...)
	}
	if hi == unbounded {
		id, err := p.anonymous()
		if err != nil {
			return nil, err
		}
		loop := append(item[:len(item):len(item)], symbol{symbolRule, id})
		p.rules[id].alternatives = [][]symbol{loop, nil}
		return append(out, symbol{symbolRule, id}), p.charge(loop, 1)
	}
	var rest []symbol
	for range hi - lo {
		id, err := p.anonymous(append(item[:len(item):len(item)], rest...), nil)
		if err != nil {
			return nil, err
		}
		rest = []symbol{{symbolRule, id}}
	}
	return append(out, rest...), nil
}

// resolve makes sure that every rule is defined, and root among them.
func (p *parser) resolve() error {
	p.name = ""
	if id, ok := p.ids[rootName]; !ok || p.rules[id].line == 0 {
		return &SyntaxError{Rule: rootName, Reason: "it is not defined; the text is what this rule matches"}
	}
	for _, r := range p.rules {
		if r.line == 0 {
			return &SyntaxError{Rule: r.name, Reason: "it is used and not defined"}
		}
	}
	return nil
}
