package jinja

import "unicode/utf8"

func (e attrExpr) eval(f *frame) (Value, error) {
	v, err := f.eval(e.of)
	if err != nil {
		return nil, err
	}
	return attribute(v, e.name)
}

// attribute is v.name: a method or field, then an item of a dict.
func attribute(v Value, name string) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, v.fail()
	case Text:
		if fn := textMethod(name); fn != nil {
			return bound(name, v, fn), nil
		}
	case *List:
		if fn := listMethod(name); fn != nil {
			return bound(name, v, fn), nil
		}
	case *Dict:
		if fn := dictMethod(name); fn != nil {
			return bound(name, v, fn), nil
		}
		if item, ok := v.get(name); ok {
			return item, nil
		}
	case *namespace:
		if item, ok := v.d.get(name); ok {
			return item, nil
		}
	case *loop:
		return v.attr(name), nil
	}
	return undefinedf("'%s' has no attribute '%s'", typeName(v), clip(name)), nil
}

// bound ties a method to the value it belongs to.
func bound[T any](name string, self T, fn func(*frame, T, args) (Value, error)) *Func {
	return &Func{name: name, call: func(f *frame, a args) (Value, error) {
		v, err := fn(f, self, a)
		if err == nil {
			err = f.m.err
		}
		return v, err
	}}
}

func (e itemExpr) eval(f *frame) (Value, error) {
	v, err := f.eval(e.of)
	if err != nil {
		return nil, err
	}
	key, err := f.eval(e.key)
	if err != nil {
		return nil, err
	}
	return f.item(v, key)
}

// item is v[key]: an item, then an attribute of that name.
func (f *frame) item(v, key Value) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, v.fail()
	case *Dict:
		norm, err := hashKey(key)
		if err != nil {
			return nil, err
		}
		if item, ok := v.get(norm); ok {
			return item, nil
		}
	case *List:
		if i, ok := integer(key); ok {
			if i, ok := position(i, len(v.items)); ok {
				return v.items[i], nil
			}
		}
	case Text:
		if i, ok := integer(key); ok {
			if item, ok := f.charAt(v, i); ok {
				return item, f.m.err
			}
		}
	}
	if name, ok := key.(Text); ok {
		return attribute(v, name.s)
	}
	return undefinedf("'%s' has no element %s", typeName(v), clip(f.m.str(key).s)), nil
}

// position resolves an index that may count from the end.
func position(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

func (f *frame) charAt(t Text, i int64) (Value, bool) {
	if !f.m.spend(1+3*len(t.s)/bytesPerStep, 0) {
		return nil, false
	}
	at, ok := position(i, utf8.RuneCountInString(t.s))
	if !ok {
		return nil, false
	}
	from := byteOffset(t.s, at)
	_, size := utf8.DecodeRuneInString(t.s[from:])
	return f.m.sub(t, from, from+size), true
}

// byteOffset is where the n-th character begins.
func byteOffset(s string, n int) int {
	for at := range s {
		if n == 0 {
			return at
		}
		n--
	}
	return len(s)
}

func (e sliceExpr) eval(f *frame) (Value, error) {
	v, err := f.eval(e.of)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int64
	for i, part := range []expr{e.low, e.high, e.step} {
		if part == nil {
			continue
		}
		b, err := f.eval(part)
		if err != nil {
			return nil, err
		}
		if b == nil {
			continue
		}
		n, ok := integer(b)
		if !ok {
			return nil, failf("slice indices must be integers or None, not %s", typeName(b))
		}
		bounds[i] = &n
	}
	return f.slice(v, bounds[0], bounds[1], bounds[2])
}

// slice is v[low:high:step]; nil bounds are left out.
func (f *frame) slice(v Value, low, high, step *int64) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return nil, v.fail()
	case *List:
		idx, err := f.sliceIndexes(len(v.items), low, high, step)
		if err != nil {
			return nil, err
		}
		items := make([]Value, len(idx))
		for i, at := range idx {
			items[i] = v.items[at]
		}
		return &List{items: items, tuple: v.tuple}, nil
	case Text:
		if step == nil || *step == 1 {
			if err := f.m.afford(1+3*len(v.s)/bytesPerStep, 0); err != nil {
				return nil, err
			}
			from, to := clampSlice(utf8.RuneCountInString(v.s), low, high)
			i := byteOffset(v.s, from)
			j := i + byteOffset(v.s[i:], max(to-from, 0))
			return f.m.sub(v, i, j), f.m.err
		}
		chars, err := f.chars(v)
		if err != nil {
			return nil, err
		}
		idx, err := f.sliceIndexes(len(chars), low, high, step)
		if err != nil {
			return nil, err
		}
		b := f.m.newBuilder()
		for _, at := range idx {
			b.text(chars[at].(Text))
		}
		return b.done(), f.m.err
	}
	return nil, failf("'%s' object cannot be sliced", typeName(v))
}

// clampSlice resolves the bounds of a slice with step 1.
func clampSlice(n int, low, high *int64) (from, to int) {
	resolve := func(b *int64, missing int) int {
		if b == nil {
			return missing
		}
		i := *b
		if i < 0 {
			i += int64(n)
		}
		return int(min(max(i, 0), int64(n)))
	}
	return resolve(low, 0), resolve(high, n)
}

// sliceIndexes lists the positions that a slice picks, in order.
func (f *frame) sliceIndexes(n int, low, high, step *int64) ([]int, error) {
	by := int64(1)
	if step != nil {
		by = *step
	}
	if by == 0 {
		return nil, failf("slice step cannot be zero")
	}
	if err := f.m.afford(1+n, itemBytes*n); err != nil {
		return nil, err
	}
	var idx []int
	if by > 0 {
		from, to := clampSlice(n, low, high)
		for i := int64(from); i < int64(to); {
			idx = append(idx, int(i))
			if by >= int64(n) {
				break
			}
			i += by
		}
		return idx, nil
	}
	from, to := backwards(n, low, high)
	for i := from; i > to; {
		idx = append(idx, int(i))
		if by <= -int64(n) {
			break
		}
		i += by
	}
	return idx, nil
}

// backwards resolves the bounds of a slice with negative step; -1 is before the start.
func backwards(n int, low, high *int64) (from, to int64) {
	resolve := func(b *int64, missing int64) int64 {
		if b == nil {
			return missing
		}
		i := *b
		if i < 0 {
			i += int64(n)
		}
		return min(max(i, -1), int64(n)-1)
	}
	return resolve(low, int64(n)-1), resolve(high, -1)
}
