package jinja

import "time"

// maxRange is Jinja2's own bound in its sandbox.
const maxRange = 100_000

// globalValues are the functions that every template has.
func globalValues(now time.Time) map[string]Value {
	return map[string]Value{
		"range":           &Func{"range", rangeFunc},
		"namespace":       &Func{"namespace", namespaceFunc},
		"dict":            &Func{"dict", dictFunc},
		"joiner":          &Func{"joiner", joinerFunc},
		"raise_exception": &Func{"raise_exception", raise},
		"strftime_now": &Func{"strftime_now", func(f *frame, a args) (Value, error) {
			return strftimeNow(f, a, now)
		}},
	}
}

func rangeFunc(f *frame, a args) (Value, error) {
	p, err := a.bind("range", "start", "stop", "step")
	if err != nil {
		return nil, err
	}
	if !given(p[1]) {
		p[0], p[1] = int64(0), p[0]
	}
	bounds := [3]int64{0, 0, 1}
	for i, v := range p {
		if bounds[i], err = orInt("range", v, bounds[i]); err != nil {
			return nil, err
		}
	}
	from, to, step := bounds[0], bounds[1], bounds[2]
	if step == 0 {
		return nil, failf("range() arg 3 must not be zero")
	}
	var items []Value
	for i := from; step > 0 && i < to || step < 0 && i > to; {
		if len(items) >= maxRange {
			return nil, exhausted("a range has more than %d numbers", maxRange)
		}
		if err := f.m.afford(1, 2*itemBytes); err != nil {
			return nil, err
		}
		items = append(items, i)
		next := i + step
		if (next > i) != (step > 0) {
			break
		}
		i = next
	}
	return &List{items: items}, nil
}

func namespaceFunc(f *frame, a args) (Value, error) {
	d, err := dictFunc(f, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*Dict)}, nil
}

// dictFunc makes a dict of mappings, lists of pairs and named arguments.
func dictFunc(f *frame, a args) (Value, error) {
	d := NewDict()
	for _, v := range a.pos {
		if err := f.addTo(d, v); err != nil {
			return nil, err
		}
	}
	_, err := dictUpdate(f, d, args{names: a.names, kw: a.kw})
	return d, err
}

func (f *frame) addTo(d *Dict, v Value) error {
	if from, ok := v.(*Dict); ok {
		return f.merge(d, from)
	}
	items, err := f.iterate(v)
	if err != nil {
		return err
	}
	for _, item := range items {
		pair, err := f.iterate(item)
		if err != nil {
			return err
		}
		if len(pair) != 2 {
			return failf("dict() expects pairs, got %d values", len(pair))
		}
		if err := f.m.setValue(d, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// joinerFunc makes a function that gives nothing the first time and the
// separator from then on.
func joinerFunc(_ *frame, a args) (Value, error) {
	p, err := a.bind("joiner", "sep")
	if err != nil {
		return nil, err
	}
	sep, err := orText("joiner", p[0], ", ")
	used := false
	return &Func{"joiner", func(*frame, args) (Value, error) {
		if !used {
			used = true
			return Text{}, nil
		}
		return sep, nil
	}}, err
}

func raise(f *frame, a args) (Value, error) {
	p, err := a.bind("raise_exception", "message")
	if err != nil {
		return nil, err
	}
	reason := "no reason given"
	if given(p[0]) {
		reason = clip(f.m.str(p[0]).s)
	}
	return nil, &Error{Kind: Raised, Reason: reason}
}

func strftimeNow(f *frame, a args, now time.Time) (Value, error) {
	p, err := a.bind("strftime_now", "format")
	if err != nil {
		return nil, err
	}
	format, err := needText("strftime_now", p[0])
	if err != nil {
		return nil, err
	}
	f.m.spend(1+len(format.s), 16*len(format.s))
	if f.m.err != nil {
		return nil, f.m.err
	}
	return Own(strftime(now, format.s)), nil
}
