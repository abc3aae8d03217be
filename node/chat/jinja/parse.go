package jinja

import "slices"

// maxNesting bounds how deep blocks and brackets may nest in a source, and with
// it the parser's stack. A bracket counts twice; people stay under 40.
const maxNesting = 200

// parser turns tokens into statements and expressions.
type parser struct {
	toks  []token
	at    int
	depth int
	loops int      // for blocks around the present place, in the same macro
	macro []*macro // macros around the present place, innermost last
}

func (p *parser) peek() token { return p.toks[p.at] }

func (p *parser) ahead(n int) token { return p.toks[min(p.at+n, len(p.toks)-1)] }

func (p *parser) next() token {
	t := p.toks[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{Kind: Syntax, Line: p.peek().line, Reason: failf(format, args...).Reason}
}

// isOp reports whether the next token is this operator; isName, this word.
func (p *parser) isOp(op string) bool { t := p.peek(); return t.kind == tokOp && t.text == op }

func (p *parser) isName(words ...string) bool {
	t := p.peek()
	return t.kind == tokName && slices.Contains(words, t.text)
}

func (p *parser) takeOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) takeName(word string) bool {
	if p.isName(word) {
		p.at++
		return true
	}
	return false
}

func (p *parser) needOp(op string) error {
	if !p.takeOp(op) {
		return p.fail("expected '%s', got %s", op, p.peek().describe())
	}
	return nil
}

func (p *parser) needName() (string, error) {
	t := p.peek()
	if t.kind != tokName {
		return "", p.fail("expected a name, got %s", t.describe())
	}
	p.at++
	return t.text, nil
}

func (p *parser) needBlockEnd() error {
	if t := p.next(); t.kind != tokBlockEnd {
		p.at--
		return p.fail("expected '%%}', got %s", t.describe())
	}
	return nil
}

// deeper counts a level of nesting; the caller defers p.depth--.
func (p *parser) deeper() error {
	p.depth++
	if p.depth > maxNesting {
		return p.fail("it nests deeper than %d levels", maxNesting)
	}
	return nil
}

// root reads a whole template.
func (p *parser) root() ([]node, error) {
	body, end, err := p.block()
	if err != nil {
		return nil, err
	}
	if end != "" {
		return nil, p.fail("unexpected '%s'", clip(end))
	}
	return body, nil
}

// block reads statements up to a tag with one of the given words, which it
// consumes up to and including the word. Without words it reads to the end.
func (p *parser) block(ends ...string) (body []node, end string, err error) {
	err = p.deeper()
	defer func() { p.depth-- }()
	if err != nil {
		return nil, "", err
	}
	for {
		t := p.next()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, "", p.fail("a block is not closed: expected %s", ends[len(ends)-1])
			}
			return body, "", nil
		case tokData:
			body = append(body, node{dataStmt{t.text}, t.line})
		case tokVarBegin:
			x, err := p.tuple(true)
			if err != nil {
				return nil, "", err
			}
			if p.peek().kind != tokVarEnd {
				return nil, "", p.fail("expected '}}', got %s", p.peek().describe())
			}
			p.at++
			body = append(body, node{outputStmt{x}, t.line})
		case tokBlockBegin:
			if p.isName(ends...) {
				return body, p.next().text, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, "", err
			}
			body = append(body, node{s, t.line})
		}
	}
}

// closed reads a block that ends with one word and nothing after it.
func (p *parser) closed(end string) ([]node, error) {
	if err := p.needBlockEnd(); err != nil {
		return nil, err
	}
	body, _, err := p.block(end)
	if err != nil {
		return nil, err
	}
	return body, p.needBlockEnd()
}

// statement reads a tag after its opener.
func (p *parser) statement() (stmt, error) {
	word, err := p.needName()
	if err != nil {
		return nil, err
	}
	switch word {
	case "if":
		return p.ifBlock()
	case "for":
		return p.forBlock()
	case "set":
		return p.set()
	case "macro":
		return p.macroBlock()
	case "call":
		return p.callBlock()
	case "filter":
		return p.filterBlock()
	case "with":
		return p.with()
	case "generation":
		body, err := p.closed("endgeneration")
		return bodyStmt{body}, err
	case "block":
		return p.namedBlock()
	case "autoescape":
		return p.autoescape()
	case "break", "continue":
		return p.loopControl(word)
	case "include", "import", "from", "extends":
		return nil, p.fail("'%s' is not allowed: a chat template is one file", word)
	}
	return nil, p.fail("unknown tag '%s'", clip(word))
}

func (p *parser) loopControl(word string) (stmt, error) {
	if p.loops == 0 {
		return nil, p.fail("'%s' outside of a loop", word)
	}
	if err := p.needBlockEnd(); err != nil {
		return nil, err
	}
	if word == "break" {
		return breakStmt{}, nil
	}
	return continueStmt{}, nil
}

func (p *parser) ifBlock() (stmt, error) {
	var s ifStmt
	for word := "if"; word != "endif"; {
		if word != "else" {
			cond, err := p.tuple(true)
			if err != nil {
				return nil, err
			}
			s.conds = append(s.conds, cond)
		}
		if err := p.needBlockEnd(); err != nil {
			return nil, err
		}
		ends := []string{"elif", "else", "endif"}
		if word == "else" {
			ends = ends[2:]
		}
		body, end, err := p.block(ends...)
		if err != nil {
			return nil, err
		}
		s.bodies = append(s.bodies, body)
		word = end
	}
	return s, p.needBlockEnd()
}

func (p *parser) forBlock() (stmt, error) {
	s := &forStmt{}
	var err error
	if s.target, err = p.targets(); err != nil {
		return nil, err
	}
	if !p.takeName("in") {
		return nil, p.fail("expected 'in', got %s", p.peek().describe())
	}
	if s.iter, err = p.tuple(false); err != nil {
		return nil, err
	}
	if p.takeName("if") {
		if s.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	s.recursive = p.takeName("recursive")
	if err := p.needBlockEnd(); err != nil {
		return nil, err
	}
	p.loops++
	body, end, err := p.block("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	s.body = body
	if end == "else" {
		s.other, err = p.closed("endfor")
		return s, err
	}
	return s, p.needBlockEnd()
}

func (p *parser) set() (stmt, error) {
	t, err := p.targets()
	if err != nil {
		return nil, err
	}
	if p.takeOp("=") {
		x, err := p.tuple(true)
		if err != nil {
			return nil, err
		}
		return setStmt{t, x}, p.needBlockEnd()
	}
	filters, err := p.filters()
	if err != nil {
		return nil, err
	}
	body, err := p.closed("endset")
	return setBlockStmt{t, filters, body}, err
}

// targets reads what is assigned to: a name, an attribute of a namespace, or
// several of them.
func (p *parser) targets() (target, error) {
	paren := p.takeOp("(")
	var parts []target
	tuple := false
	for {
		t, err := p.target()
		if err != nil {
			return nil, err
		}
		parts = append(parts, t)
		if !p.takeOp(",") {
			break
		}
		tuple = true
		if p.peek().kind != tokName && !p.isOp("(") || p.isName("in") {
			break
		}
	}
	if paren {
		if err := p.needOp(")"); err != nil {
			return nil, err
		}
	}
	if tuple {
		return tupleTarget{parts}, nil
	}
	return parts[0], nil
}

func (p *parser) target() (target, error) {
	err := p.deeper()
	defer func() { p.depth-- }()
	if err != nil {
		return nil, err
	}
	if p.isOp("(") {
		return p.targets()
	}
	name, err := p.needName()
	if err != nil {
		return nil, err
	}
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		return nil, p.fail("cannot assign to '%s'", name)
	}
	if p.takeOp(".") {
		attr, err := p.needName()
		return attrTarget{name, attr}, err
	}
	return nameTarget{name}, nil
}

func (p *parser) macroBlock() (stmt, error) {
	name, err := p.needName()
	if err != nil {
		return nil, err
	}
	m := &macro{name: name}
	if err := p.needOp("("); err != nil {
		return nil, err
	}
	if err := p.params(m); err != nil {
		return nil, err
	}
	return macroStmt{m}, p.macroBody(m, "endmacro")
}

// params reads parameters after the opening bracket.
func (p *parser) params(m *macro) error {
	for !p.takeOp(")") {
		if len(m.params) > 0 {
			if err := p.needOp(","); err != nil {
				return err
			}
		}
		name, err := p.needName()
		if err != nil {
			return err
		}
		m.params = append(m.params, name)
		switch {
		case p.takeOp("="):
			x, err := p.expression()
			if err != nil {
				return err
			}
			m.defaults = append(m.defaults, x)
		case len(m.defaults) > 0:
			return p.fail("a parameter without default follows one with a default")
		}
	}
	return nil
}

func (p *parser) macroBody(m *macro, end string) error {
	loops := p.loops
	p.loops = 0
	p.macro = append(p.macro, m)
	body, err := p.closed(end)
	p.macro = p.macro[:len(p.macro)-1]
	p.loops = loops
	m.body = body
	return err
}

func (p *parser) callBlock() (stmt, error) {
	m := &macro{name: "caller"}
	if p.takeOp("(") {
		if err := p.params(m); err != nil {
			return nil, err
		}
	}
	x, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := x.(callExpr)
	if !ok {
		return nil, p.fail("expected a call")
	}
	return callStmt{call, m}, p.macroBody(m, "endcall")
}

func (p *parser) filterBlock() (stmt, error) {
	first, err := p.filterCall(nil)
	if err != nil {
		return nil, err
	}
	more, err := p.filters()
	if err != nil {
		return nil, err
	}
	body, err := p.closed("endfilter")
	return filterStmt{append([]filterExpr{first}, more...), body}, err
}

func (p *parser) with() (stmt, error) {
	var s withStmt
	for p.peek().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			if err := p.needOp(","); err != nil {
				return nil, err
			}
		}
		t, err := p.target()
		if err != nil {
			return nil, err
		}
		if err := p.needOp("="); err != nil {
			return nil, err
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.targets, s.values = append(s.targets, t), append(s.values, x)
	}
	var err error
	s.body, err = p.closed("endwith")
	return s, err
}

// namedBlock reads a block for inheritance, which there is none of: its body
// stands where it is.
func (p *parser) namedBlock() (stmt, error) {
	if _, err := p.needName(); err != nil {
		return nil, err
	}
	if err := p.needBlockEnd(); err != nil {
		return nil, err
	}
	body, _, err := p.block("endblock")
	if err != nil {
		return nil, err
	}
	if p.peek().kind == tokName {
		p.at++
	}
	return bodyStmt{body}, p.needBlockEnd()
}

// autoescape has no effect: prompts are not HTML.
func (p *parser) autoescape() (stmt, error) {
	if _, err := p.expression(); err != nil {
		return nil, err
	}
	body, err := p.closed("endautoescape")
	return bodyStmt{body}, err
}
