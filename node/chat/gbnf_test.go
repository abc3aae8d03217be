package chat

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// This is a small reading of GBNF for tests: it follows a text through a grammar
// and makes up texts that the grammar describes.

type gbnf struct {
	rules    map[string]gnode
	shortest map[ref]int
}

// gnode is a part of a rule: one of set, ref, and, or, many.
type gnode any

type (
	set struct {
		ranges [][2]rune
		not    bool
	}
	ref  string
	and  []gnode
	or   []gnode
	many struct {
		of       gnode
		min, max int // max -1: no bound
	}
)

func parseGBNF(t testing.TB, text string) *gbnf {
	t.Helper()
	g := &gbnf{rules: map[string]gnode{}}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		name, body, ok := strings.Cut(line, "::=")
		if !ok {
			t.Fatalf("no rule: %s", line)
		}
		p := &gbnfParser{t: t, s: strings.TrimSpace(body)}
		g.rules[strings.TrimSpace(name)] = p.alternatives()
		if p.at != len(p.s) {
			t.Fatalf("cannot read %q of %s", p.s[p.at:], line)
		}
	}
	g.measure()
	return g
}

type gbnfParser struct {
	t  testing.TB
	s  string
	at int
}

func (p *gbnfParser) peek() byte {
	for p.at < len(p.s) && p.s[p.at] == ' ' {
		p.at++
	}
	if p.at == len(p.s) {
		return 0
	}
	return p.s[p.at]
}

func (p *gbnfParser) alternatives() gnode {
	out := or{p.sequence()}
	for p.peek() == '|' {
		p.at++
		out = append(out, p.sequence())
	}
	return out
}

func (p *gbnfParser) sequence() gnode {
	var out and
	for c := p.peek(); c != 0 && c != '|' && c != ')'; c = p.peek() {
		out = append(out, p.repeated(p.item()))
	}
	return out
}

func (p *gbnfParser) item() gnode {
	switch c := p.s[p.at]; {
	case c == '"':
		var out and
		for p.at++; p.s[p.at] != '"'; {
			r := p.char()
			out = append(out, set{ranges: [][2]rune{{r, r}}})
		}
		p.at++
		return out
	case c == '[':
		return p.class()
	case c == '(':
		p.at++
		out := p.alternatives()
		p.at++
		return out
	case c == '.':
		p.at++
		return set{ranges: [][2]rune{{0, 0x10ffff}}}
	}
	from := p.at
	for p.at < len(p.s) && (p.s[p.at] == '-' || p.s[p.at] == '_' || p.s[p.at] >= '0' && p.s[p.at] <= '9' || p.s[p.at]|0x20 >= 'a' && p.s[p.at]|0x20 <= 'z') {
		p.at++
	}
	if from == p.at {
		p.t.Fatalf("cannot read %q", p.s[p.at:])
	}
	return ref(p.s[from:p.at])
}

func (p *gbnfParser) class() gnode {
	p.at++
	var out set
	if p.s[p.at] == '^' {
		out.not = true
		p.at++
	}
	for p.s[p.at] != ']' {
		from := p.char()
		to := from
		if p.s[p.at] == '-' && p.s[p.at+1] != ']' {
			p.at++
			to = p.char()
		}
		out.ranges = append(out.ranges, [2]rune{from, to})
	}
	p.at++
	return out
}

func (p *gbnfParser) char() rune {
	if p.s[p.at] != '\\' {
		r := []rune(p.s[p.at:min(p.at+4, len(p.s))])[0]
		p.at += len(string(r))
		return r
	}
	p.at += 2
	width := 0
	switch c := p.s[p.at-1]; c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'x':
		width = 2
	case 'u':
		width = 4
	case 'U':
		width = 8
	default:
		return rune(c)
	}
	v, err := strconv.ParseInt(p.s[p.at:p.at+width], 16, 32)
	if err != nil {
		p.t.Fatal(err)
	}
	p.at += width
	return rune(v)
}

func (p *gbnfParser) repeated(of gnode) gnode {
	for {
		switch p.peek() {
		case '?':
			of = many{of, 0, 1}
		case '*':
			of = many{of, 0, -1}
		case '+':
			of = many{of, 1, -1}
		case '{':
			end := p.at + strings.IndexByte(p.s[p.at:], '}')
			low, high, comma := strings.Cut(p.s[p.at+1:end], ",")
			m := many{of, 0, -1}
			m.min, _ = strconv.Atoi(strings.TrimSpace(low))
			if !comma {
				m.max = m.min
			} else if high = strings.TrimSpace(high); high != "" {
				m.max, _ = strconv.Atoi(high)
			}
			of, p.at = m, end
		default:
			return of
		}
		p.at++
	}
}

// cont is what is still to be matched: a stack of parts.
type cont struct {
	part gnode
	next *cont
	key  string // identifies equal stacks
}

func push(part gnode, next *cont) *cont {
	key := fmt.Sprintf("%T%v", part, part)
	if next != nil {
		key += "/" + next.key
	}
	return &cont{part, next, key}
}

// follow reports whether a text is the beginning of one that the grammar
// describes, and whether it is one itself.
func (g *gbnf) follow(text string) (alive, whole bool) {
	states := map[string]*cont{}
	done := g.expand(push(ref("root"), nil), states)
	for _, r := range text {
		next := map[string]*cont{}
		done = false
		for _, c := range states {
			if s := c.part.(set); s.has(r) {
				done = g.expand(c.next, next) || done
			}
		}
		states = next
	}
	return len(states) > 0 || done, done
}

func (s set) has(r rune) bool {
	for _, span := range s.ranges {
		if span[0] <= r && r <= span[1] {
			return !s.not
		}
	}
	return s.not
}

// expand adds the stacks that begin with a set; it reports whether nothing need
// follow.
func (g *gbnf) expand(c *cont, into map[string]*cont) bool {
	if c == nil {
		return true
	}
	done := false
	switch part := c.part.(type) {
	case set:
		into[c.key] = c
	case ref:
		return g.expand(push(g.rules[string(part)], c.next), into)
	case and:
		next := c.next
		for i := len(part) - 1; i >= 0; i-- {
			next = push(part[i], next)
		}
		return g.expand(next, into)
	case or:
		for _, way := range part {
			done = g.expand(push(way, c.next), into) || done
		}
	case many:
		if part.min == 0 {
			done = g.expand(c.next, into)
		}
		if part.max != 0 {
			rest := many{part.of, max(part.min-1, 0), part.max - 1}
			if part.max < 0 {
				rest.max = -1
			}
			done = g.expand(push(part.of, push(rest, c.next)), into) || done
		}
	default:
		panic(fmt.Sprintf("no such part: %T", part))
	}
	return done
}

// invent makes up a text.
func (g *gbnf) invent(rnd *rand.Rand) string {
	var b strings.Builder
	g.write(&b, rnd, ref("root"), 0)
	return b.String()
}

func (g *gbnf) write(b *strings.Builder, rnd *rand.Rand, part gnode, depth int) {
	switch part := part.(type) {
	case set:
		b.WriteRune(part.any(rnd))
	case ref:
		g.write(b, rnd, g.rules[string(part)], depth+1)
	case and:
		for _, p := range part {
			g.write(b, rnd, p, depth)
		}
	case or:
		way := rnd.IntN(len(part))
		if depth > 25 { // deep: take the way with the least behind it
			for i := range part {
				if g.weight(part[i]) < g.weight(part[way]) {
					way = i
				}
			}
		}
		g.write(b, rnd, part[way], depth)
	case many:
		n := part.min
		if depth < 25 {
			most := part.max
			if most < 0 || most > n+2 {
				most = n + 2
			}
			n += rnd.IntN(most - n + 1)
		}
		for range n {
			g.write(b, rnd, part.of, depth)
		}
	}
}

// measure finds the length of the shortest text of each rule.
func (g *gbnf) measure() {
	g.shortest = map[ref]int{}
	for changed := true; changed; {
		changed = false
		for name, body := range g.rules {
			known, ok := g.shortest[ref(name)]
			if n := g.weight(body); n < 1<<20 && (!ok || n < known) {
				g.shortest[ref(name)], changed = n, true
			}
		}
	}
}

// weight is the length of the shortest text of a part.
func (g *gbnf) weight(part gnode) int {
	sum := 0
	switch part := part.(type) {
	case set:
		return 1
	case ref:
		if n, ok := g.shortest[part]; ok {
			return n
		}
		return 1 << 20
	case and:
		for _, p := range part {
			sum += g.weight(p)
		}
	case or:
		sum = 1 << 20
		for _, p := range part {
			sum = min(sum, g.weight(p))
		}
	case many:
		sum = part.min * g.weight(part.of)
	}
	return sum
}

func (s set) any(rnd *rand.Rand) rune {
	if s.not {
		for {
			if r := rune(' ' + rnd.IntN(95)); s.has(r) {
				return r
			}
		}
	}
	span := s.ranges[rnd.IntN(len(s.ranges))]
	return span[0] + rune(rnd.IntN(int(span[1]-span[0])+1))
}
