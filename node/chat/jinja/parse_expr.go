package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// tuple reads one expression, or several with commas between them. With cond
// false an if ends it, as in the head of a for block.
func (p *parser) tuple(cond bool) (expr, error) {
	var items []expr
	for {
		x, err := p.conditional(cond)
		if err != nil {
			return nil, err
		}
		items = append(items, x)
		if !p.takeOp(",") {
			break
		}
		if p.tupleEnds() {
			return seqExpr{items: items, tuple: true}, nil
		}
	}
	if len(items) == 1 {
		return items[0], nil
	}
	return seqExpr{items: items, tuple: true}, nil
}

func (p *parser) tupleEnds() bool {
	t := p.peek()
	return t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") || p.isName("recursive")
}

func (p *parser) expression() (expr, error) { return p.conditional(true) }

func (p *parser) conditional(cond bool) (expr, error) {
	err := p.deeper()
	defer func() { p.depth-- }()
	if err != nil {
		return nil, err
	}
	x, err := p.or()
	if err != nil || !cond {
		return x, err
	}
	for p.takeName("if") {
		c, err := p.or()
		if err != nil {
			return nil, err
		}
		e := condExpr{cond: c, then: x}
		if p.takeName("else") {
			if e.other, err = p.expression(); err != nil {
				return nil, err
			}
		}
		x = e
	}
	return x, nil
}

func (p *parser) or() (expr, error)  { return p.logic("or", p.and) }
func (p *parser) and() (expr, error) { return p.logic("and", p.not) }

func (p *parser) logic(word string, operand func() (expr, error)) (expr, error) {
	x, err := operand()
	for err == nil && p.takeName(word) {
		var r expr
		r, err = operand()
		x = logicExpr{word, x, r}
	}
	return x, err
}

func (p *parser) not() (expr, error) {
	if !p.isName("not") || p.ahead(1).kind == tokName && p.ahead(1).text == "in" {
		return p.comparison()
	}
	p.at++
	err := p.deeper()
	defer func() { p.depth-- }()
	if err != nil {
		return nil, err
	}
	x, err := p.not()
	return unaryExpr{"not", x}, err
}

func (p *parser) comparison() (expr, error) {
	x, err := p.sum()
	if err != nil {
		return nil, err
	}
	var rest []comparison
	for {
		op := p.comparator()
		if op == "" {
			break
		}
		r, err := p.sum()
		if err != nil {
			return nil, err
		}
		rest = append(rest, comparison{op, r})
	}
	if rest == nil {
		return x, nil
	}
	return compareExpr{x, rest}, nil
}

// comparator consumes a comparison operator; "" if there is none.
func (p *parser) comparator() string {
	t := p.peek()
	switch {
	case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
		p.at++
		return t.text
	case p.takeName("in"):
		return "in"
	case p.isName("not") && p.ahead(1).kind == tokName && p.ahead(1).text == "in":
		p.at += 2
		return "notin"
	}
	return ""
}

// The arithmetic levels, from loosest to tightest: + -, ~, * / // %, **, signs.
func (p *parser) sum() (expr, error) { return p.arithmetic(p.concat, "+", "-") }

func (p *parser) product() (expr, error) { return p.arithmetic(p.power, "*", "/", "//", "%") }

func (p *parser) power() (expr, error) {
	return p.arithmetic(func() (expr, error) { return p.signed(true) }, "**")
}

func (p *parser) arithmetic(operand func() (expr, error), ops ...string) (expr, error) {
	x, err := operand()
	for err == nil && p.peek().kind == tokOp && slices.Contains(ops, p.peek().text) {
		op := p.next().text
		var r expr
		r, err = operand()
		x = binaryExpr{op, x, r}
	}
	return x, err
}

func (p *parser) concat() (expr, error) {
	x, err := p.product()
	if err != nil || !p.isOp("~") {
		return x, err
	}
	parts := []expr{x}
	for p.takeOp("~") {
		if x, err = p.product(); err != nil {
			return nil, err
		}
		parts = append(parts, x)
	}
	return concatExpr{parts}, nil
}

// signed reads signs, a primary and what follows it. A filter or test after a
// sign applies to the signed value.
func (p *parser) signed(withFilters bool) (expr, error) {
	err := p.deeper()
	defer func() { p.depth-- }()
	if err != nil {
		return nil, err
	}
	var x expr
	if p.isOp("-") || p.isOp("+") {
		op := p.next().text
		if x, err = p.signed(false); err != nil {
			return nil, err
		}
		x = unaryExpr{op, x}
	} else if x, err = p.primary(); err != nil {
		return nil, err
	}
	if x, err = p.postfix(x); err != nil || !withFilters {
		return x, err
	}
	return p.filtered(x)
}

func (p *parser) primary() (expr, error) {
	t := p.next()
	switch t.kind {
	case tokName:
		return p.name(t.text), nil
	case tokString:
		var s strings.Builder
		s.WriteString(t.text)
		for p.peek().kind == tokString {
			s.WriteString(p.next().text)
		}
		return literal{Own(s.String())}, nil
	case tokInt:
		return intLiteral(t.text), nil
	case tokFloat:
		f, err := strconv.ParseFloat(strings.ReplaceAll(t.text, "_", ""), 64)
		if err != nil {
			return nil, p.fail("the number '%s' is out of range", clip(t.text))
		}
		return literal{f}, nil
	case tokOp:
		switch t.text {
		case "(":
			return p.parenthesis()
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	p.at--
	return nil, p.fail("unexpected %s", t.describe())
}

func intLiteral(s string) expr {
	if i, err := strconv.ParseInt(s, 0, 64); err == nil {
		return literal{i}
	}
	if i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64); err == nil {
		return literal{i}
	}
	return literal{bigInt(s)}
}

func (p *parser) name(word string) expr {
	switch word {
	case "true", "True":
		return literal{true}
	case "false", "False":
		return literal{false}
	case "none", "None":
		return literal{nil}
	}
	for _, m := range p.macro {
		m.varargs = m.varargs || word == "varargs"
		m.kwargs = m.kwargs || word == "kwargs"
	}
	return nameExpr{word}
}

func (p *parser) parenthesis() (expr, error) {
	if p.takeOp(")") {
		return seqExpr{tuple: true}, nil
	}
	x, err := p.tuple(true)
	if err != nil {
		return nil, err
	}
	return x, p.needOp(")")
}

func (p *parser) list() (expr, error) {
	var items []expr
	for !p.takeOp("]") {
		if len(items) > 0 {
			if err := p.needOp(","); err != nil {
				return nil, err
			}
			if p.takeOp("]") {
				break
			}
		}
		x, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, x)
	}
	return seqExpr{items: items}, nil
}

func (p *parser) dict() (expr, error) {
	var d dictExpr
	for !p.takeOp("}") {
		if len(d.keys) > 0 {
			if err := p.needOp(","); err != nil {
				return nil, err
			}
			if p.takeOp("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.needOp(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	}
	return d, nil
}

// postfix reads attributes, items and calls.
func (p *parser) postfix(x expr) (expr, error) {
	for {
		var err error
		switch {
		case p.takeOp("."):
			x, err = p.attribute(x)
		case p.takeOp("["):
			x, err = p.subscript(x)
		case p.isOp("("):
			x, err = p.callOf(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) attribute(x expr) (expr, error) {
	t := p.next()
	switch t.kind {
	case tokName:
		return attrExpr{x, t.text}, nil
	case tokInt:
		return itemExpr{x, intLiteral(t.text)}, nil
	}
	p.at--
	return nil, p.fail("expected a name or number after '.', got %s", t.describe())
}

func (p *parser) subscript(x expr) (expr, error) {
	var parts [3]expr
	n := 0
	for slice := false; ; slice = true {
		if !p.isOp(":") && !p.isOp("]") {
			var err error
			if parts[n], err = p.tuple(true); err != nil {
				return nil, err
			}
		}
		if p.takeOp("]") {
			if !slice && parts[0] == nil {
				return nil, p.fail("expected an index between '[' and ']'")
			}
			if !slice {
				return itemExpr{x, parts[0]}, nil
			}
			return sliceExpr{x, parts[0], parts[1], parts[2]}, nil
		}
		if err := p.needOp(":"); err != nil {
			return nil, err
		}
		if n++; n > 2 {
			return nil, p.fail("too many ':' in a slice")
		}
	}
}

func (p *parser) callOf(x expr) (expr, error) {
	a, err := p.arguments()
	return callExpr{x, a}, err
}

// arguments reads the arguments of a call with their brackets.
func (p *parser) arguments() (argExprs, error) {
	var a argExprs
	if err := p.needOp("("); err != nil {
		return a, err
	}
	for first := true; !p.takeOp(")"); first = false {
		if !first {
			if err := p.needOp(","); err != nil {
				return a, err
			}
			if p.takeOp(")") {
				break
			}
		}
		if err := p.argument(&a); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (p *parser) argument(a *argExprs) error {
	var err error
	switch {
	case p.takeOp("**"):
		a.starstar, err = p.expression()
		return err
	case p.takeOp("*"):
		a.star, err = p.expression()
		return err
	case p.peek().kind == tokName && p.ahead(1).kind == tokOp && p.ahead(1).text == "=":
		a.names = append(a.names, p.next().text)
		p.at++
		x, err := p.expression()
		a.kw = append(a.kw, x)
		return err
	}
	x, err := p.expression()
	if err == nil && (len(a.kw) > 0 || a.starstar != nil) {
		return p.fail("a positional argument follows a named one")
	}
	a.pos = append(a.pos, x)
	return err
}

// filtered reads filters, tests and calls after an operand.
func (p *parser) filtered(x expr) (expr, error) {
	for {
		var err error
		switch {
		case p.takeOp("|"):
			x, err = p.filterCall(x)
		case p.takeName("is"):
			x, err = p.testCall(x)
		case p.isOp("("):
			x, err = p.callOf(x)
		default:
			return x, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filters reads filters that apply to a block.
func (p *parser) filters() ([]filterExpr, error) {
	var out []filterExpr
	for p.takeOp("|") {
		e, err := p.filterCall(nil)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (p *parser) filterCall(x expr) (filterExpr, error) {
	name, err := p.dotted()
	e := filterExpr{of: x, name: name}
	if err == nil && p.isOp("(") {
		e.args, err = p.arguments()
	}
	return e, err
}

func (p *parser) dotted() (string, error) {
	name, err := p.needName()
	for err == nil && p.takeOp(".") {
		var more string
		more, err = p.needName()
		name += "." + more
	}
	return name, err
}

func (p *parser) testCall(x expr) (expr, error) {
	e := testExpr{of: x, negate: p.takeName("not")}
	var err error
	if e.name, err = p.dotted(); err != nil {
		return nil, err
	}
	switch {
	case p.isOp("("):
		e.args, err = p.arguments()
	case p.startsOperand():
		var arg expr
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		e.args.pos = []expr{arg}
	}
	return e, err
}

// startsOperand reports whether a test's only argument follows without brackets.
func (p *parser) startsOperand() bool {
	t := p.peek()
	switch t.kind {
	case tokName:
		return !slices.Contains([]string{"else", "or", "and", "if", "in", "not", "is", "recursive"}, t.text)
	case tokString, tokInt, tokFloat:
		return true
	}
	return p.isOp("[") || p.isOp("{")
}
