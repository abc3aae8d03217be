package jinja

import "errors"

// stmt is a statement.
type stmt interface {
	exec(f *frame) error
}

// node is a statement and where it is.
type node struct {
	s    stmt
	line int
}

type (
	dataStmt   struct{ text string }
	outputStmt struct{ x expr }
	ifStmt     struct {
		conds  []expr
		bodies [][]node // one more than conds if there is an else
	}
	forStmt struct {
		target    target
		iter      expr
		filter    expr // nil: all
		recursive bool
		body      []node
		other     []node
	}
	breakStmt    struct{}
	continueStmt struct{}
	setStmt      struct {
		target target
		x      expr
	}
	setBlockStmt struct {
		target  target
		filters []filterExpr
		body    []node
	}
	macroStmt struct{ macro *macro }
	callStmt  struct {
		call   callExpr
		caller *macro
	}
	filterStmt struct {
		filters []filterExpr
		body    []node
	}
	withStmt struct {
		targets []target
		values  []expr
		body    []node
	}
	// bodyStmt is a block that only groups: generation, autoescape, block.
	bodyStmt struct{ body []node }
)

func (s dataStmt) exec(f *frame) error {
	f.out.own(s.text)
	return f.checkOutput()
}

func (s outputStmt) exec(f *frame) error {
	v, err := f.eval(s.x)
	if err != nil {
		return err
	}
	f.out.text(f.m.str(v))
	return f.checkOutput()
}

func (f *frame) checkOutput() error {
	if n := f.m.limits.Output; f.out.len() > n && f.m.err == nil {
		f.m.err = exhausted("it writes more than %d bytes", n)
	}
	return f.m.err
}

func (s ifStmt) exec(f *frame) error {
	for i, c := range s.conds {
		v, err := f.eval(c)
		if err != nil {
			return err
		}
		if truth(v) {
			return f.run(s.bodies[i])
		}
	}
	if len(s.bodies) > len(s.conds) {
		return f.run(s.bodies[len(s.conds)])
	}
	return nil
}

func (breakStmt) exec(*frame) error    { return errBreak }
func (continueStmt) exec(*frame) error { return errContinue }

func (s setStmt) exec(f *frame) error {
	v, err := f.eval(s.x)
	if err != nil {
		return err
	}
	return s.target.assign(f, v)
}

func (s setBlockStmt) exec(f *frame) error {
	t, err := f.inner().capture(s.body)
	if err != nil {
		return err
	}
	v, err := f.applyAll(s.filters, t)
	if err != nil {
		return err
	}
	return s.target.assign(f, v)
}

func (f *frame) applyAll(filters []filterExpr, v Value) (Value, error) {
	for _, e := range filters {
		var err error
		if v, err = e.apply(f, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (s filterStmt) exec(f *frame) error {
	t, err := f.inner().capture(s.body)
	if err != nil {
		return err
	}
	v, err := f.applyAll(s.filters, t)
	if err != nil {
		return err
	}
	f.out.text(f.m.str(v))
	return f.checkOutput()
}

func (s withStmt) exec(f *frame) error {
	in := f.inner()
	for i, t := range s.targets {
		v, err := f.eval(s.values[i])
		if err != nil {
			return err
		}
		if err := t.assign(in, v); err != nil {
			return err
		}
	}
	return in.run(s.body)
}

func (s bodyStmt) exec(f *frame) error { return f.inner().run(s.body) }

func (s macroStmt) exec(f *frame) error {
	f.set(s.macro.name, s.macro.bind(f))
	return f.m.err
}

func (s callStmt) exec(f *frame) error {
	fn, err := f.eval(s.call.fn)
	if err != nil {
		return err
	}
	a, err := f.evalArgs(s.call.args)
	if err != nil {
		return err
	}
	a.names = append(append([]string(nil), a.names...), "caller")
	a.kw = append(a.kw, s.caller.bind(f))
	v, err := f.call(fn, a)
	if err != nil {
		return err
	}
	f.out.text(f.m.str(v))
	return f.checkOutput()
}

// target is what can be assigned to.
type target interface {
	assign(f *frame, v Value) error
}

type (
	nameTarget  struct{ name string }
	attrTarget  struct{ of, name string } // of a namespace
	tupleTarget struct{ parts []target }
)

func (t nameTarget) assign(f *frame, v Value) error {
	f.set(t.name, v)
	return f.m.err
}

func (t attrTarget) assign(f *frame, v Value) error {
	of, _ := f.scope.get(t.of)
	ns, ok := of.(*namespace)
	if !ok {
		return failf("cannot assign attribute on '%s', which is not a namespace", clip(t.of))
	}
	return f.m.setValue(ns.d, Own(t.name), v)
}

func (t tupleTarget) assign(f *frame, v Value) error {
	items, err := f.iterate(v)
	if err != nil {
		return err
	}
	if len(items) != len(t.parts) {
		return failf("cannot unpack %d values into %d names", len(items), len(t.parts))
	}
	for i, p := range t.parts {
		if err := p.assign(f, items[i]); err != nil {
			return err
		}
	}
	return nil
}

// macro is a macro, or the body of a call block.
type macro struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     []node
	// What the body refers to, and the macro therefore takes.
	varargs, kwargs bool
}

// bind makes a macro callable. It sees the variables of the place where it is
// written, as they are when it is called.
func (mc *macro) bind(f *frame) *Func {
	home := f.scope
	return &Func{name: mc.name, call: func(caller *frame, a args) (Value, error) {
		in := &frame{m: caller.m, scope: &scope{parent: home}, out: caller.m.newBuilder()}
		if err := mc.assign(in, a); err != nil {
			return nil, err
		}
		if err := in.run(mc.body); err != nil {
			return nil, err
		}
		return in.out.done(), in.m.err
	}}
}

// assign gives the parameters their values.
func (mc *macro) assign(f *frame, a args) error {
	rest := NewDict()
	named := make(map[string]Value, len(a.kw))
	for i, name := range a.names {
		named[name] = a.kw[i]
	}
	for i, p := range mc.params {
		v, given := named[p]
		delete(named, p)
		switch d := i - (len(mc.params) - len(mc.defaults)); {
		case i < len(a.pos):
			if given {
				return failf("macro '%s' got two values for '%s'", mc.name, p)
			}
			v = a.pos[i]
		case given:
		case d >= 0:
			var err error
			if v, err = f.eval(mc.defaults[d]); err != nil {
				return err
			}
		default:
			v = undefinedf("parameter '%s' was not provided", p)
		}
		f.set(p, v)
	}
	if c, ok := named["caller"]; ok {
		f.set("caller", c)
		delete(named, "caller")
	}
	for _, name := range a.names {
		if v, ok := named[name]; ok {
			rest.Set(name, v)
		}
	}
	return mc.overflow(f, a.pos, rest)
}

// overflow handles arguments that no parameter takes.
func (mc *macro) overflow(f *frame, pos []Value, rest *Dict) error {
	if rest.Len() > 0 && !mc.kwargs {
		return failf("macro '%s' takes no keyword argument '%s'", mc.name, clip(f.m.str(rest.keys[0]).s))
	}
	extra := pos[min(len(pos), len(mc.params)):]
	if len(extra) > 0 && !mc.varargs {
		return failf("macro '%s' takes not more than %d argument(s)", mc.name, len(mc.params))
	}
	if mc.varargs {
		f.set("varargs", newTuple(extra...))
	}
	if mc.kwargs {
		f.set("kwargs", rest)
	}
	return f.m.err
}

// isLoopControl tells break and continue from failures.
func isLoopControl(err error) (stop, ok bool) {
	switch {
	case errors.Is(err, errBreak):
		return true, true
	case errors.Is(err, errContinue):
		return false, true
	}
	return false, false
}
