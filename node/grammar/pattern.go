package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parsePattern reads a regular expression in ECMAScript's syntax, as far as it is
// regular: literals, classes, escapes, groups, alternation, quantifiers, and the
// anchors at the ends. The result matches whole strings: what is not anchored may
// have anything around it.
func parsePattern(terms *terms, pattern string) (*term, error) {
	if len(pattern) > MaxPatternBytes {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(pattern), MaxPatternBytes)
	}
	p := patternParser{terms: terms, src: pattern}
	t, err := p.whole()
	if err != nil {
		return nil, fmt.Errorf("%q: %w", clip(pattern), err)
	}
	return t, nil
}

type patternParser struct {
	terms *terms
	src   string
	pos   int
	depth int
}

func (p *patternParser) more() bool { return p.pos < len(p.src) }

// take skips s if it is next.
func (p *patternParser) take(s string) bool {
	if strings.HasPrefix(p.src[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *patternParser) next() rune {
	r, n := utf8.DecodeRuneInString(p.src[p.pos:])
	p.pos += n
	return r
}

func (p *patternParser) fail(format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", utf8.RuneCountInString(p.src[:p.pos])+1, fmt.Sprintf(format, args...))
}

// whole reads the expression with the anchors of its branches.
func (p *patternParser) whole() (*term, error) {
	var branches []*term
	for {
		t, err := p.branch()
		if err != nil {
			return nil, err
		}
		branches = append(branches, t)
		if !p.more() {
			return p.terms.or(branches...), nil
		}
		if !p.take("|") {
			return nil, p.fail("unexpected %q", p.next())
		}
	}
}

func (p *patternParser) branch() (*term, error) {
	start := p.take("^")
	t, err := p.sequence()
	if err != nil {
		return nil, err
	}
	end := p.take("$")
	anything := p.terms.repeat(p.terms.class(anyRune()), 0, unbounded)
	if !start {
		t = p.terms.concat(anything, t)
	}
	if !end {
		t = p.terms.concat(t, anything)
	}
	return t, nil
}

// alternatives reads what is inside a group.
func (p *patternParser) alternatives() (*term, error) {
	var branches []*term
	for {
		t, err := p.sequence()
		if err != nil {
			return nil, err
		}
		branches = append(branches, t)
		if !p.take("|") {
			return p.terms.or(branches...), nil
		}
	}
}

// sequence reads up to "|", ")", the end, or a final "$".
func (p *patternParser) sequence() (*term, error) {
	var parts []*term
	for p.more() {
		c := p.src[p.pos]
		if c == '|' || c == ')' || c == '$' && p.finalDollar() {
			break
		}
		t, err := p.atom()
		if err != nil {
			return nil, err
		}
		if t, err = p.quantified(t); err != nil {
			return nil, err
		}
		parts = append(parts, t)
		if err := p.terms.check(); err != nil {
			return nil, err
		}
	}
	return p.terms.concat(parts...), nil
}

// finalDollar tells whether the "$" that is next ends a branch that is in no group.
func (p *patternParser) finalDollar() bool {
	rest := p.src[p.pos+1:]
	return p.depth == 0 && (rest == "" || rest[0] == '|')
}

func (p *patternParser) atom() (*term, error) {
	switch c := p.src[p.pos]; c {
	case '(':
		return p.group()
	case '[':
		set, err := p.class()
		return p.terms.class(set), err
	case '.':
		p.pos++
		return p.terms.class(runes("\n\r\u2028\u2029").inverted()), nil
	case '\\':
		set, err := p.escape()
		return p.terms.class(set), err
	case '^', '$':
		return nil, p.fail("%q is supported at the ends of the pattern only", c)
	case '*', '+', '?':
		return nil, p.fail("nothing to repeat before %q", c)
	case '{':
		if _, _, ok := p.bounds(); ok {
			return nil, p.fail("nothing to repeat before %q", c)
		}
	}
	r := p.next()
	return p.terms.class(charset{{r, r}}), nil
}

func (p *patternParser) group() (*term, error) {
	if p.depth++; p.depth > MaxPatternDepth {
		return nil, p.fail("more than %d groups within each other", MaxPatternDepth)
	}
	p.pos++
	if p.take("?") && !p.take(":") {
		if err := p.groupName(); err != nil {
			return nil, err
		}
	}
	t, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.fail("a group is not closed")
	}
	p.depth--
	return t, nil
}

// groupName skips <name> after "(?"; everything else there is not regular or not
// ECMAScript.
func (p *patternParser) groupName() error {
	rest := p.src[p.pos:]
	end := strings.IndexByte(rest, '>')
	if !strings.HasPrefix(rest, "<") || strings.HasPrefix(rest, "<=") || strings.HasPrefix(rest, "<!") || end < 0 {
		return p.fail("lookaround and flags are not supported; allowed: (…), (?:…), (?<name>…)")
	}
	p.pos += end + 1
	return nil
}

// quantified applies the quantifiers that follow t. A lazy one matches the same
// strings.
func (p *patternParser) quantified(t *term) (*term, error) {
	if !p.more() {
		return t, nil
	}
	lo, hi := 0, unbounded
	switch {
	case p.take("*"):
	case p.take("+"):
		lo = 1
	case p.take("?"):
		hi = 1
	case p.src[p.pos] == '{':
		m, n, ok := p.bounds()
		if !ok {
			return t, nil
		}
		lo, hi = m, n
	default:
		return t, nil
	}
	p.take("?")
	if p.more() && strings.IndexByte("*+?", p.src[p.pos]) >= 0 {
		return nil, p.fail("nothing to repeat before %q", p.src[p.pos])
	}
	if hi != unbounded && hi < lo {
		return nil, p.fail("the quantifier {%d,%d} ends before it begins", lo, hi)
	}
	return p.terms.repeat(t, lo, hi), nil
}

// bounds reads {m}, {m,} or {m,n}. Anything else that begins with a brace is
// literal text, and nothing is read.
func (p *patternParser) bounds() (lo, hi int, ok bool) {
	inner, _, closed := strings.Cut(p.src[p.pos+1:], "}")
	from, to, comma := strings.Cut(inner, ",")
	lo, ok = parseCount(from)
	if !closed || !ok {
		return 0, 0, false
	}
	hi = lo
	if comma {
		hi = unbounded
		if to != "" {
			if hi, ok = parseCount(to); !ok {
				return 0, 0, false
			}
		}
	}
	p.pos += len(inner) + 2
	return lo, hi, true
}

// parseCount reads digits; what is too large for any automaton is as good as its
// maximum.
func parseCount(s string) (int, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > 1<<30 {
		n = 1 << 30
	}
	return n, true
}

func (p *patternParser) class() (charset, error) {
	p.pos++
	inverted := p.take("^")
	var set []span
	for !p.take("]") {
		if !p.more() {
			return nil, p.fail("a class is not closed")
		}
		lo, err := p.classItem()
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(p.src[p.pos:], "-") && !strings.HasPrefix(p.src[p.pos:], "-]") {
			p.pos++
			if !p.more() {
				return nil, p.fail("a class is not closed")
			}
			hi, err := p.classItem()
			if err != nil {
				return nil, err
			}
			if lo, err = p.classRange(lo, hi); err != nil {
				return nil, err
			}
		}
		set = append(set, lo...)
	}
	c := newCharset(set...)
	if inverted {
		c = c.inverted()
	}
	if len(c) == 0 {
		return nil, p.fail("a class matches nothing")
	}
	return c, nil
}

// classRange joins the ends of a range, which must be characters.
func (p *patternParser) classRange(lo, hi charset) (charset, error) {
	if !lo.single() || !hi.single() {
		return nil, p.fail("a range in a class needs a character at both ends")
	}
	if lo[0].lo > hi[0].lo {
		return nil, p.fail("a range in a class ends before it begins")
	}
	return charset{{lo[0].lo, hi[0].lo}}, nil
}

func (c charset) single() bool { return len(c) == 1 && c[0].lo == c[0].hi }

func (p *patternParser) classItem() (charset, error) {
	if p.src[p.pos] != '\\' {
		r := p.next()
		return charset{{r, r}}, nil
	}
	if strings.HasPrefix(p.src[p.pos:], `\b`) {
		p.pos += 2
		return runes("\b"), nil
	}
	return p.escape()
}

// escape reads a backslash and what belongs to it.
func (p *patternParser) escape() (charset, error) {
	p.pos++
	if !p.more() {
		return nil, p.fail("nothing follows the backslash")
	}
	r := p.next()
	switch r {
	case 'd':
		return digits(), nil
	case 'D':
		return digits().inverted(), nil
	case 'w':
		return wordRunes(), nil
	case 'W':
		return wordRunes().inverted(), nil
	case 's':
		return spaces(), nil
	case 'S':
		return spaces().inverted(), nil
	case 'x':
		return p.hex(2)
	case 'u':
		return p.unicode()
	}
	if i := strings.IndexRune("tnrfv0", r); i >= 0 {
		c := rune("\t\n\r\f\v\x00"[i])
		return charset{{c, c}}, nil
	}
	if wordRunes().contains(r) && r != '_' {
		return nil, p.fail(`\%c is not supported; allowed: \d \w \s and their opposites, \t \n \r \f \v \0 \xHH \uHHHH, and escaped punctuation`, r)
	}
	return charset{{r, r}}, nil
}

// unicode reads what follows \u: four digits, a pair of surrogates, or {…}.
func (p *patternParser) unicode() (charset, error) {
	if p.take("{") {
		inner, _, ok := strings.Cut(p.src[p.pos:], "}")
		if !ok || inner == "" || len(inner) > 8 {
			return nil, p.fail(`\u{…} is not closed or has no digits`)
		}
		set, err := p.hex(len(inner))
		p.take("}")
		return set, err
	}
	high, err := p.hexValue(4)
	if err != nil {
		return nil, err
	}
	if high >= 0xd800 && high < 0xdc00 && p.take(`\u`) {
		low, err := p.hexValue(4)
		if err != nil {
			return nil, err
		}
		if low >= 0xdc00 && low < 0xe000 {
			high = 0x10000 + (high-0xd800)<<10 + (low - 0xdc00)
		}
	}
	return p.character(high)
}

func (p *patternParser) hex(n int) (charset, error) {
	v, err := p.hexValue(n)
	if err != nil {
		return nil, err
	}
	return p.character(v)
}

func (p *patternParser) hexValue(n int) (rune, error) {
	if p.pos+n > len(p.src) {
		return 0, p.fail("the escape needs %d hexadecimal digits", n)
	}
	v, err := strconv.ParseUint(p.src[p.pos:p.pos+n], 16, 31)
	if err != nil {
		return 0, p.fail("the escape needs %d hexadecimal digits", n)
	}
	p.pos += n
	return rune(v), nil
}

func (p *patternParser) character(r rune) (charset, error) {
	if !utf8.ValidRune(r) {
		return nil, p.fail("U+%04X is not a character", r)
	}
	return charset{{r, r}}, nil
}

func digits() charset { return charset{{'0', '9'}} }

func wordRunes() charset { return charset{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}} }

// spaces is what ECMAScript's \s matches.
func spaces() charset {
	return newCharset(span{'\t', '\r'}, span{' ', ' '}, span{0xa0, 0xa0}, span{0x1680, 0x1680}, span{0x2000, 0x200a},
		span{0x2028, 0x2029}, span{0x202f, 0x202f}, span{0x205f, 0x205f}, span{0x3000, 0x3000}, span{0xfeff, 0xfeff})
}
