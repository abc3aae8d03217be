package gbnf

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of a grammar.
const (
	SourceBytesMax = 1 << 20
	NestingMax     = 100     // parentheses within parentheses
	RepeatMax      = 10000   // m and n of {m,n}
	instsMax       = 1 << 18 // of the compiled program
	classStatesMax = 1 << 14 // of all character classes together
)

// Error is a fault in the source of a grammar.
type Error struct {
	Line, Column int // from 1; Line 0: the grammar as a whole
	Reason       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// The nodes of a parsed rule.
type (
	node    any
	literal string   // bytes
	choice  []node   // one of
	seq     []node   // all of, in order
	class   []span   // one character; sorted and disjoint
	ref     struct { // another rule
		name string
		at   int
	}
	repeat struct {
		of       node
		min, max int // max -1: no end
	}
)

// span is a range of code points, both ends included.
type span struct{ lo, hi rune }

type parser struct {
	src   string
	pos   int
	depth int
	rules map[string]node
	order []string // names as they are defined
}

// bad stops the parser; parse recovers it.
type bad struct{ err *Error }

func (p *parser) fail(at int, format string, args ...any) {
	before := p.src[:at]
	line := strings.Count(before, "\n") + 1
	column := at - strings.LastIndexByte(before, '\n')
	panic(bad{&Error{line, column, fmt.Sprintf(format, args...)}})
}

// parse reads the rules of src.
func parse(src string) (p *parser, err error) {
	if len(src) > SourceBytesMax {
		return nil, &Error{Reason: fmt.Sprintf("it has %d bytes, at most %d are allowed", len(src), SourceBytesMax)}
	}
	if !utf8.ValidString(src) {
		return nil, &Error{Reason: "it is not valid UTF-8"}
	}
	p = &parser{src: src, rules: map[string]node{}}
	defer func() {
		if r := recover(); r != nil {
			b, ok := r.(bad)
			if !ok {
				panic(r)
			}
			p, err = nil, b.err
		}
	}()
	for p.space(true); p.pos < len(p.src); p.space(true) {
		p.rule()
	}
	return p, nil
}

func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

// space skips blanks and comments, and line ends if they mean nothing here.
func (p *parser) space(lines bool) {
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == ' ' || c == '\t':
			p.pos++
		case c == '#':
			end := strings.IndexAny(p.src[p.pos:], "\r\n")
			if end < 0 {
				end = len(p.src) - p.pos
			}
			p.pos += end
		case lines && (c == '\r' || c == '\n'):
			p.pos++
		default:
			return
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '-' || c == '_'
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func (p *parser) name() string {
	start := p.pos
	for isWord(p.peek()) {
		p.pos++
	}
	if p.pos == start {
		p.fail(start, "a rule name is expected")
	}
	return p.src[start:p.pos]
}

// rule reads: name ::= alternatives, up to the end of the line.
func (p *parser) rule() {
	at := p.pos
	name := p.name()
	if _, ok := p.rules[name]; ok {
		p.fail(at, "rule %s is defined twice", name)
	}
	p.space(false)
	if !strings.HasPrefix(p.src[p.pos:], "::=") {
		p.fail(p.pos, "::= is expected")
	}
	p.pos += len("::=")
	p.space(true)
	p.rules[name] = p.alternatives(false)
	p.order = append(p.order, name)
	if c := p.peek(); p.pos < len(p.src) && c != '\r' && c != '\n' {
		p.fail(p.pos, "unexpected %q", c)
	}
}

func (p *parser) alternatives(nested bool) node {
	alts := choice{p.sequence(nested)}
	for p.bar(nested) {
		p.space(true)
		alts = append(alts, p.sequence(nested))
	}
	if len(alts) == 1 {
		return alts[0]
	}
	return alts
}

// bar skips a "|", which may also begin the next line.
func (p *parser) bar(nested bool) bool {
	start := p.pos
	if !nested {
		p.space(true)
	}
	if p.peek() == '|' {
		p.pos++
		return true
	}
	p.pos = start
	return false
}

func (p *parser) sequence(nested bool) node {
	var items seq
	for p.pos < len(p.src) {
		item, ok := p.item()
		if !ok {
			break
		}
		p.space(nested)
		items = append(items, p.repeats(item, nested))
	}
	if len(items) == 1 {
		return items[0]
	}
	return items
}

// item reads one symbol without its repetition; not ok means that none begins
// here.
func (p *parser) item() (node, bool) {
	at := p.pos
	switch c := p.peek(); {
	case c == '"':
		return p.literal(), true
	case c == '[':
		return p.class(), true
	case c == '.':
		p.pos++
		return invert(nil), true
	case c == '(':
		return p.group(), true
	case isWord(c):
		return ref{p.name(), at}, true
	case c == '<' || c == '!':
		p.fail(at, "tokens in a grammar are not supported")
	case c == '*' || c == '+' || c == '?' || c == '{':
		p.fail(at, "nothing to repeat before %q", c)
	}
	return nil, false
}

func (p *parser) group() node {
	at := p.pos
	if p.depth++; p.depth > NestingMax {
		p.fail(at, "more than %d parentheses within each other", NestingMax)
	}
	p.pos++
	p.space(true)
	n := p.alternatives(true)
	if p.peek() != ')' {
		p.fail(at, "this parenthesis is not closed")
	}
	p.pos++
	p.depth--
	return n
}

// repeats wraps item in the repetitions that follow it.
func (p *parser) repeats(item node, nested bool) node {
	for n := 0; ; n++ {
		r := repeat{of: item, max: -1}
		switch p.peek() {
		case '*':
			p.pos++
		case '+':
			p.pos++
			r.min = 1
		case '?':
			p.pos++
			r.max = 1
		case '{':
			r.min, r.max = p.bounds()
		default:
			return item
		}
		if n == NestingMax {
			p.fail(p.pos, "more than %d repetitions of one symbol", NestingMax)
		}
		p.space(nested)
		item = r
	}
}

// bounds reads {m}, {m,} or {m,n}.
func (p *parser) bounds() (lo, hi int) {
	at := p.pos
	p.pos++
	p.space(true)
	lo = p.number()
	hi = lo
	p.space(true)
	if p.peek() == ',' {
		p.pos++
		p.space(true)
		hi = -1
		if isDigit(p.peek()) {
			hi = p.number()
		}
		p.space(true)
	}
	if p.peek() != '}' {
		p.fail(p.pos, "} is expected")
	}
	p.pos++
	if hi >= 0 && hi < lo {
		p.fail(at, "the repetition {%d,%d} ends before it begins", lo, hi)
	}
	return lo, hi
}

func (p *parser) number() int {
	at, v := p.pos, 0
	for isDigit(p.peek()) {
		v = v*10 + int(p.peek()-'0')
		if v > RepeatMax {
			p.fail(at, "at most %d repetitions are allowed", RepeatMax)
		}
		p.pos++
	}
	if p.pos == at {
		p.fail(at, "a number is expected")
	}
	return v
}

func (p *parser) literal() node {
	at := p.pos
	p.pos++
	var b []byte
	for p.peek() != '"' {
		b = utf8.AppendRune(b, p.char(at, "string"))
	}
	p.pos++
	return literal(b)
}

func (p *parser) class() node {
	at := p.pos
	p.pos++
	inverted := p.peek() == '^'
	if inverted {
		p.pos++
	}
	var spans []span
	for p.peek() != ']' {
		lo := p.char(at, "class")
		hi := lo
		if p.peek() == '-' && p.pos+1 < len(p.src) && p.src[p.pos+1] != ']' {
			p.pos++
			hi = p.char(at, "class")
		}
		if hi < lo {
			p.fail(at, "a range in this class ends before it begins")
		}
		spans = append(spans, span{lo, hi})
	}
	p.pos++
	if inverted {
		return invert(spans)
	}
	if len(spans) == 0 {
		p.fail(at, "the class is empty")
	}
	return normal(spans)
}

// char reads one character, perhaps escaped, of the thing that began at.
func (p *parser) char(at int, thing string) rune {
	if p.pos >= len(p.src) {
		p.fail(at, "this %s is not closed", thing)
	}
	if p.src[p.pos] != '\\' {
		r, n := utf8.DecodeRuneInString(p.src[p.pos:])
		p.pos += n
		return r
	}
	start := p.pos
	p.pos++
	c := p.peek()
	p.pos++
	switch c {
	case 't':
		return '\t'
	case 'r':
		return '\r'
	case 'n':
		return '\n'
	case '\\', '"', '[', ']', '-', '^':
		return rune(c)
	case 'x':
		return p.hex(start, 2)
	case 'u':
		return p.hex(start, 4)
	case 'U':
		return p.hex(start, 8)
	}
	p.fail(start, "unknown escape")
	return 0
}

func (p *parser) hex(at, digits int) rune {
	v := rune(0)
	for range digits {
		c := p.peek()
		switch {
		case isDigit(c):
			v = v<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | rune(c|0x20-'a'+10)
		default:
			p.fail(at, "the escape needs %d hexadecimal digits", digits)
		}
		p.pos++
	}
	if !utf8.ValidRune(v) {
		p.fail(at, "the escape is not a Unicode character")
	}
	return v
}
