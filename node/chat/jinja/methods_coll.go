package jinja

import "slices"

// listMethod is the method of lists with that name, or nil.
func listMethod(name string) func(*frame, *List, args) (Value, error) {
	switch name {
	case "append":
		return listAppend
	case "extend":
		return listExtend
	case "insert":
		return listInsert
	case "pop":
		return listPop
	case "index":
		return listIndex
	case "count":
		return listCount
	case "copy":
		return func(f *frame, l *List, _ args) (Value, error) { return f.newList(slices.Clone(l.items)) }
	}
	return nil
}

// changeable refuses to change tuples.
func (l *List) changeable(f *frame, more int) error {
	if l.tuple {
		return failf("a tuple cannot be changed")
	}
	return f.m.afford(1+more, itemBytes*more)
}

func listAppend(f *frame, l *List, a args) (Value, error) {
	p, err := a.bind("append", "object")
	if err == nil {
		err = l.changeable(f, 1)
	}
	if err != nil {
		return nil, err
	}
	l.items = append(l.items, p[0])
	return nil, nil
}

func listExtend(f *frame, l *List, a args) (Value, error) {
	p, err := a.bind("extend", "iterable")
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(p[0])
	if err == nil {
		err = l.changeable(f, len(items))
	}
	if err != nil {
		return nil, err
	}
	l.items = append(l.items, items...)
	return nil, nil
}

func listInsert(f *frame, l *List, a args) (Value, error) {
	p, err := a.bind("insert", "index", "object")
	if err != nil {
		return nil, err
	}
	i, err := orInt("insert", p[0], 0)
	if err == nil {
		err = l.changeable(f, len(l.items)+1)
	}
	if err != nil {
		return nil, err
	}
	at, _ := clampSlice(len(l.items), &i, nil)
	l.items = slices.Insert(slices.Clone(l.items), at, p[1])
	return nil, nil
}

func listPop(f *frame, l *List, a args) (Value, error) {
	p, err := a.bind("pop", "index")
	if err != nil {
		return nil, err
	}
	i, err := orInt("pop", p[0], -1)
	if err == nil {
		err = l.changeable(f, len(l.items))
	}
	if err != nil {
		return nil, err
	}
	at, ok := position(i, len(l.items))
	if !ok {
		return nil, failf("pop index out of range")
	}
	v := l.items[at]
	l.items = slices.Delete(slices.Clone(l.items), at, at+1)
	return v, nil
}

func listIndex(f *frame, l *List, a args) (Value, error) {
	p, err := a.bind("index", "value")
	if err != nil {
		return nil, err
	}
	for i, v := range l.items {
		if f.m.equal(v, p[0]) {
			return int64(i), nil
		}
	}
	return nil, failf("the value is not in the list")
}

func listCount(f *frame, l *List, a args) (Value, error) {
	p, err := a.bind("count", "value")
	if err != nil {
		return nil, err
	}
	n := int64(0)
	for _, v := range l.items {
		n += boolInt(f.m.equal(v, p[0]))
	}
	return n, nil
}

// dictMethod is the method of dicts with that name, or nil.
func dictMethod(name string) func(*frame, *Dict, args) (Value, error) {
	switch name {
	case "get":
		return dictGet
	case "items":
		return func(f *frame, d *Dict, _ args) (Value, error) { return f.pairs(d) }
	case "keys":
		return func(f *frame, d *Dict, _ args) (Value, error) { return f.newList(slices.Clone(d.keys)) }
	case "values":
		return func(f *frame, d *Dict, _ args) (Value, error) { return f.newList(slices.Clone(d.vals)) }
	case "update":
		return dictUpdate
	case "setdefault":
		return dictSetDefault
	case "pop":
		return dictPop
	case "copy":
		return func(f *frame, d *Dict, _ args) (Value, error) {
			out := NewDict()
			return out, f.merge(out, d)
		}
	}
	return nil
}

// pairs lists the entries of a dict as tuples.
func (f *frame) pairs(d *Dict) (*List, error) {
	n := d.Len()
	if err := f.m.afford(n, n*(textBytes+2*itemBytes)); err != nil {
		return nil, err
	}
	items := make([]Value, n)
	for i := range items {
		items[i] = newTuple(d.keys[i], d.vals[i])
	}
	return &List{items: items}, nil
}

func dictGet(_ *frame, d *Dict, a args) (Value, error) {
	p, err := a.bind("get", "key", "default")
	if err != nil {
		return nil, err
	}
	norm, err := hashKey(p[0])
	if err != nil {
		return nil, err
	}
	if v, ok := d.get(norm); ok {
		return v, nil
	}
	if given(p[1]) {
		return p[1], nil
	}
	return nil, nil
}

func (f *frame) merge(into, from *Dict) error {
	for i := range from.keys {
		if err := f.m.setValue(into, from.keys[i], from.vals[i]); err != nil {
			return err
		}
	}
	return nil
}

func dictUpdate(f *frame, d *Dict, a args) (Value, error) {
	for _, v := range a.pos {
		other, ok := v.(*Dict)
		if !ok {
			return nil, failf("update expects a mapping, got '%s'", typeName(v))
		}
		if err := f.merge(d, other); err != nil {
			return nil, err
		}
	}
	for i, name := range a.names {
		if err := f.m.setValue(d, Own(name), a.kw[i]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func dictSetDefault(f *frame, d *Dict, a args) (Value, error) {
	p, err := a.bind("setdefault", "key", "default")
	if err != nil {
		return nil, err
	}
	norm, err := hashKey(p[0])
	if err != nil {
		return nil, err
	}
	if v, ok := d.get(norm); ok {
		return v, nil
	}
	v := p[1]
	if !given(v) {
		v = nil
	}
	return v, f.m.setValue(d, p[0], v)
}

func dictPop(f *frame, d *Dict, a args) (Value, error) {
	p, err := a.bind("pop", "key", "default")
	if err != nil {
		return nil, err
	}
	norm, err := hashKey(p[0])
	if err != nil {
		return nil, err
	}
	v, ok := d.get(norm)
	if !ok {
		if given(p[1]) {
			return p[1], nil
		}
		return nil, failf("the key is not in the dict")
	}
	f.m.spend(d.Len(), 0)
	d.remove(norm)
	return v, nil
}
