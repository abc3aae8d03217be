package jinja

// expr is an expression. Its parts are evaluated with frame.eval, which meters.
type expr interface {
	eval(f *frame) (Value, error)
}

type (
	literal  struct{ v Value }
	nameExpr struct{ name string }
	attrExpr struct {
		of   expr
		name string
	}
	itemExpr struct{ of, key expr }
	// sliceExpr has nil for the parts left out.
	sliceExpr struct{ of, low, high, step expr }
	seqExpr   struct {
		items []expr
		tuple bool
	}
	dictExpr  struct{ keys, vals []expr }
	unaryExpr struct {
		op string // - + not
		x  expr
	}
	binaryExpr struct {
		op   string // + - * / // % **
		l, r expr
	}
	concatExpr struct{ parts []expr }
	logicExpr  struct {
		op   string // and, or
		l, r expr
	}
	compareExpr struct {
		first expr
		rest  []comparison
	}
	comparison struct {
		op string // == != < <= > >= in notin
		x  expr
	}
	condExpr struct {
		cond, then expr
		other      expr // nil: undefined
	}
	callExpr struct {
		fn   expr
		args argExprs
	}
	filterExpr struct {
		of   expr // nil in a filter block: the block's text
		name string
		args argExprs
	}
	testExpr struct {
		of     expr
		name   string
		args   argExprs
		negate bool
	}
)

// argExprs are the arguments of a call as written.
type argExprs struct {
	pos      []expr
	names    []string // of kw
	kw       []expr
	star     expr // *args
	starstar expr // **kwargs
}

// args are the arguments of a call.
type args struct {
	pos   []Value
	names []string
	kw    []Value
}

func (e literal) eval(*frame) (Value, error) { return e.v, nil }

func (e nameExpr) eval(f *frame) (Value, error) {
	if v, ok := f.scope.get(e.name); ok {
		return v, nil
	}
	return undefinedf("'%s' is undefined", clip(e.name)), nil
}

func (e seqExpr) eval(f *frame) (Value, error) {
	items, err := f.evalAll(e.items)
	if err != nil {
		return nil, err
	}
	l, err := f.newList(items)
	if err != nil {
		return nil, err
	}
	l.tuple = e.tuple
	return l, nil
}

func (f *frame) evalAll(es []expr) ([]Value, error) {
	vals := make([]Value, 0, len(es))
	for _, e := range es {
		v, err := f.eval(e)
		if err != nil {
			return nil, err
		}
		vals = append(vals, v)
	}
	return vals, nil
}

func (e dictExpr) eval(f *frame) (Value, error) {
	d := NewDict()
	for i := range e.keys {
		k, err := f.eval(e.keys[i])
		if err != nil {
			return nil, err
		}
		v, err := f.eval(e.vals[i])
		if err != nil {
			return nil, err
		}
		if err := f.m.setValue(d, k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (e logicExpr) eval(f *frame) (Value, error) {
	l, err := f.eval(e.l)
	if err != nil || truth(l) == (e.op == "or") {
		return l, err
	}
	return f.eval(e.r)
}

func (e condExpr) eval(f *frame) (Value, error) {
	c, err := f.eval(e.cond)
	switch {
	case err != nil:
		return nil, err
	case truth(c):
		return f.eval(e.then)
	case e.other == nil:
		return undefinedf("the condition is false and there is no else"), nil
	}
	return f.eval(e.other)
}

func (e concatExpr) eval(f *frame) (Value, error) {
	b := f.m.newBuilder()
	for _, p := range e.parts {
		v, err := f.eval(p)
		if err != nil {
			return nil, err
		}
		b.text(f.m.str(v))
	}
	return b.done(), f.m.err
}

func (e compareExpr) eval(f *frame) (Value, error) {
	l, err := f.eval(e.first)
	if err != nil {
		return nil, err
	}
	for _, c := range e.rest {
		r, err := f.eval(c.x)
		if err != nil {
			return nil, err
		}
		ok, err := f.holds(c.op, l, r)
		if err != nil || !ok {
			return false, err
		}
		l = r
	}
	return true, nil
}

func (e callExpr) eval(f *frame) (Value, error) {
	fn, err := f.eval(e.fn)
	if err != nil {
		return nil, err
	}
	a, err := f.evalArgs(e.args)
	if err != nil {
		return nil, err
	}
	return f.call(fn, a)
}

// call calls a value.
func (f *frame) call(fn Value, a args) (Value, error) {
	err := f.m.enter()
	defer f.m.leave()
	if err != nil {
		return nil, err
	}
	switch fn := fn.(type) {
	case *Func:
		return fn.call(f, a)
	case *loop:
		return fn.recurse(f, a)
	case Undefined:
		return nil, fn.fail()
	}
	return nil, failf("'%s' object is not callable", typeName(fn))
}

func (f *frame) evalArgs(e argExprs) (args, error) {
	pos, err := f.evalAll(e.pos)
	if err != nil {
		return args{}, err
	}
	kw, err := f.evalAll(e.kw)
	if err != nil {
		return args{}, err
	}
	a := args{pos: pos, names: e.names, kw: kw}
	if e.star != nil {
		if err := f.spread(&a, e.star); err != nil {
			return args{}, err
		}
	}
	if e.starstar != nil {
		if err := f.spreadNamed(&a, e.starstar); err != nil {
			return args{}, err
		}
	}
	return a, f.m.afford(0, itemBytes*(len(a.pos)+len(a.kw)))
}

func (f *frame) spread(a *args, e expr) error {
	v, err := f.eval(e)
	if err != nil {
		return err
	}
	items, err := f.iterate(v)
	if err != nil {
		return err
	}
	if err := f.m.afford(1, itemBytes*len(items)); err != nil {
		return err
	}
	a.pos = append(a.pos, items...)
	return nil
}

func (f *frame) spreadNamed(a *args, e expr) error {
	v, err := f.eval(e)
	if err != nil {
		return err
	}
	d, ok := v.(*Dict)
	if !ok {
		return failf("argument after ** must be a mapping, not %s", typeName(v))
	}
	if err := f.m.afford(d.Len(), itemBytes*d.Len()); err != nil {
		return err
	}
	names := append([]string(nil), a.names...)
	for i, k := range d.keys {
		name, ok := k.(Text)
		if !ok {
			return failf("keywords must be strings")
		}
		names = append(names, name.s)
		a.kw = append(a.kw, d.vals[i])
	}
	a.names = names
	return nil
}

func (e filterExpr) eval(f *frame) (Value, error) {
	v, err := f.eval(e.of)
	if err != nil {
		return nil, err
	}
	return e.apply(f, v)
}

func (e filterExpr) apply(f *frame, v Value) (Value, error) {
	a, err := f.evalArgs(e.args)
	if err != nil {
		return nil, err
	}
	return f.filter(e.name, v, a)
}

// filter applies a filter by name.
func (f *frame) filter(name string, v Value, a args) (Value, error) {
	fn := filterNamed(name)
	if fn == nil {
		return nil, failf("there is no filter named '%s'", clip(name))
	}
	out, err := fn(f, v, a)
	if err == nil {
		err = f.m.err
	}
	return out, err
}

func (e testExpr) eval(f *frame) (Value, error) {
	v, err := f.eval(e.of)
	if err != nil {
		return nil, err
	}
	a, err := f.evalArgs(e.args)
	if err != nil {
		return nil, err
	}
	ok, err := f.test(e.name, v, a)
	return ok != e.negate, err
}

// test applies a test by name.
func (f *frame) test(name string, v Value, a args) (bool, error) {
	fn := testNamed(name)
	if fn == nil {
		return false, failf("there is no test named '%s'", clip(name))
	}
	ok, err := fn(f, v, a)
	if err == nil {
		err = f.m.err
	}
	return ok, err
}
