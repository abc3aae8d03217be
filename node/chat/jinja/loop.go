package jinja

// loop is the variable of that name inside a for block.
type loop struct {
	stmt  *forStmt
	home  *frame // where the for block stands
	items []Value
	at    int
	depth int64 // 0 for the outermost of a recursive loop

	seen    bool // changed was called before
	changed Value
}

func (s *forStmt) exec(f *frame) error {
	v, err := f.eval(s.iter)
	if err != nil {
		return err
	}
	return s.loop(f, v, 0)
}

// loop runs the body once per element.
func (s *forStmt) loop(f *frame, over Value, depth int64) error {
	items, err := f.iterate(over)
	if err == nil && s.filter != nil {
		items, err = s.selected(f, items)
	}
	if err != nil {
		return err
	}
	if len(items) == 0 {
		return f.inner().run(s.other)
	}
	l := &loop{stmt: s, home: f, items: items, depth: depth}
	for l.at = range items {
		in := f.inner()
		if err := s.target.assign(in, items[l.at]); err != nil {
			return err
		}
		in.set("loop", l)
		err := in.run(s.body)
		if stop, ok := isLoopControl(err); ok {
			if stop {
				return nil
			}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// selected returns the elements that the loop's own if lets through.
func (s *forStmt) selected(f *frame, items []Value) ([]Value, error) {
	var out []Value
	for _, item := range items {
		in := f.inner()
		if err := s.target.assign(in, item); err != nil {
			return nil, err
		}
		v, err := in.eval(s.filter)
		if err != nil {
			return nil, err
		}
		if truth(v) && f.m.spend(1, itemBytes) {
			out = append(out, item)
		}
	}
	return out, f.m.err
}

// recurse is loop(items) in a recursive loop.
func (l *loop) recurse(f *frame, a args) (Value, error) {
	if !l.stmt.recursive {
		return nil, failf("the loop is not recursive")
	}
	p, err := a.bind("loop", "iterable")
	if err != nil {
		return nil, err
	}
	in := &frame{m: f.m, scope: l.home.scope, out: f.m.newBuilder()}
	if err := l.stmt.loop(in, p[0], l.depth+1); err != nil {
		return nil, err
	}
	return in.out.done(), f.m.err
}

// attr is an attribute of the loop variable.
func (l *loop) attr(name string) Value {
	n := int64(len(l.items))
	i := int64(l.at)
	switch name {
	case "index":
		return i + 1
	case "index0":
		return i
	case "revindex":
		return n - i
	case "revindex0":
		return n - i - 1
	case "first":
		return i == 0
	case "last":
		return i == n-1
	case "length":
		return n
	case "depth":
		return l.depth + 1
	case "depth0":
		return l.depth
	case "previtem":
		if i > 0 {
			return l.items[i-1]
		}
		return undefinedf("there is no previous item")
	case "nextitem":
		if i < n-1 {
			return l.items[i+1]
		}
		return undefinedf("there is no next item")
	case "cycle":
		return &Func{name: name, call: l.cycle}
	case "changed":
		return &Func{name: name, call: l.changes}
	}
	return undefinedf("'loop' has no attribute '%s'", clip(name))
}

func (l *loop) cycle(_ *frame, a args) (Value, error) {
	if len(a.pos) == 0 {
		return nil, failf("no items for cycling given")
	}
	return a.pos[l.at%len(a.pos)], nil
}

func (l *loop) changes(f *frame, a args) (Value, error) {
	now := Value(newTuple(a.pos...))
	if l.seen && f.m.equal(l.changed, now) {
		return false, f.m.err
	}
	l.seen, l.changed = true, now
	return true, f.m.err
}
