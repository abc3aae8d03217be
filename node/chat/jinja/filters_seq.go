package jinja

import (
	"slices"
	"strconv"
	"strings"
)

func filterList(f *frame, v Value, _ args) (Value, error) {
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	return f.newList(slices.Clone(items))
}

func filterItems(f *frame, v Value, _ args) (Value, error) {
	switch v := v.(type) {
	case *Dict:
		return f.pairs(v)
	case Undefined:
		return NewList(), nil
	}
	return nil, failf("can only get item pairs from a mapping, not '%s'", typeName(v))
}

func filterFirst(f *frame, v Value, _ args) (Value, error) {
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undefinedf("no first item, sequence was empty"), nil
	}
	return items[0], nil
}

func filterLast(f *frame, v Value, _ args) (Value, error) {
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undefinedf("no last item, sequence was empty"), nil
	}
	return items[len(items)-1], nil
}

func filterReverse(f *frame, v Value, _ args) (Value, error) {
	if t, ok := v.(Text); ok {
		back := int64(-1)
		return f.slice(t, nil, nil, &back)
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return f.newList(items)
}

func filterJoin(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("join", "d", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	get, err := getter(p[1])
	if err != nil {
		return nil, err
	}
	sep := Text{}
	if given(p[0]) {
		sep = f.m.str(p[0])
	}
	b := f.m.newBuilder()
	for i, item := range items {
		if i > 0 {
			b.text(sep)
		}
		if item, err = get(f, item); err != nil {
			return nil, err
		}
		b.text(f.m.str(item))
	}
	return b.done(), nil
}

// getter reads a dotted attribute such as function.name from elements; without
// one it returns them as they are.
func getter(attr Value) (func(f *frame, v Value) (Value, error), error) {
	if !given(attr) || attr == nil {
		return func(_ *frame, v Value) (Value, error) { return v, nil }, nil
	}
	if i, ok := integer(attr); ok {
		return func(f *frame, v Value) (Value, error) { return f.item(v, i) }, nil
	}
	t, err := needText("attribute", attr)
	if err != nil {
		return nil, err
	}
	path := strings.Split(t.s, ".")
	return func(f *frame, v Value) (Value, error) {
		var err error
		for _, name := range path {
			if err := f.m.afford(1, 0); err != nil {
				return nil, err
			}
			var key Value = Own(name)
			if i, convErr := strconv.ParseInt(name, 10, 64); convErr == nil {
				key = i
			}
			if v, err = f.item(v, key); err != nil {
				return nil, err
			}
		}
		return v, nil
	}, nil
}

// elements is iterate for filters that take anything false for an empty sequence.
func (f *frame) elements(v Value) ([]Value, error) {
	if !truth(v) {
		return nil, nil
	}
	return f.iterate(v)
}

// filterMap reads an attribute from each element, or applies a filter to it.
func filterMap(f *frame, v Value, a args) (Value, error) {
	items, err := f.elements(v)
	if err != nil {
		return nil, err
	}
	each, err := mapper(f, a)
	if err != nil {
		return nil, err
	}
	out := make([]Value, 0, min(len(items), maxRange))
	for _, item := range items {
		if err := f.m.afford(1, itemBytes); err != nil {
			return nil, err
		}
		if item, err = each(f, item); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return &List{items: out}, nil
}

func mapper(f *frame, a args) (func(f *frame, v Value) (Value, error), error) {
	if len(a.pos) > 0 {
		name, err := needText("map", a.pos[0])
		rest := args{pos: a.pos[1:], names: a.names, kw: a.kw}
		return func(f *frame, v Value) (Value, error) { return f.filter(name.s, v, rest) }, err
	}
	p, err := a.bind("map", "attribute", "default")
	if err != nil {
		return nil, err
	}
	if !given(p[0]) {
		return nil, failf("map requires a filter or an attribute")
	}
	get, err := getter(p[0])
	return func(f *frame, v Value) (Value, error) {
		v, err := get(f, v)
		if _, missing := v.(Undefined); missing && given(p[1]) {
			return p[1], nil
		}
		return v, err
	}, err
}

// selecting is select, reject, selectattr and rejectattr: it keeps the elements
// for which a test (by default: truth) gives keep.
func selecting(byAttr, keep bool) filterFunc {
	return func(f *frame, v Value, a args) (Value, error) {
		items, err := f.elements(v)
		if err != nil {
			return nil, err
		}
		var attr Value = absent{}
		if byAttr {
			if len(a.pos) == 0 {
				return nil, failf("the name of an attribute is missing")
			}
			attr, a.pos = a.pos[0], a.pos[1:]
		}
		get, err := getter(attr)
		if err != nil {
			return nil, err
		}
		holds, err := predicate(a)
		if err != nil {
			return nil, err
		}
		var out []Value
		for _, item := range items {
			x, err := get(f, item)
			if err != nil {
				return nil, err
			}
			ok, err := holds(f, x)
			if err != nil {
				return nil, err
			}
			if err := f.m.afford(1, itemBytes); err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return &List{items: out}, nil
	}
}

func predicate(a args) (func(f *frame, v Value) (bool, error), error) {
	if len(a.pos) == 0 {
		return func(_ *frame, v Value) (bool, error) { return truth(v), nil }, nil
	}
	name, err := needText("select", a.pos[0])
	rest := args{pos: a.pos[1:], names: a.names, kw: a.kw}
	return func(f *frame, v Value) (bool, error) { return f.test(name.s, v, rest) }, err
}

// sorted orders elements by a key of each, stably.
func (f *frame) sorted(items []Value, key func(Value) (Value, error), reverse bool) ([]Value, error) {
	n := len(items)
	if err := f.m.afford(1+n, 2*itemBytes*n); err != nil {
		return nil, err
	}
	type keyed struct{ key, v Value }
	all := make([]keyed, n)
	for i, v := range items {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		all[i] = keyed{k, v}
	}
	var failed error
	slices.SortStableFunc(all, func(a, b keyed) int {
		if failed != nil {
			return 0
		}
		c, err := f.m.compare(a.key, b.key)
		failed = err
		if reverse {
			return -c
		}
		return c
	})
	out := make([]Value, n)
	for i := range all {
		out[i] = all[i].v
	}
	return out, failed
}

// folded makes texts compare without regard to case.
func (f *frame) folded(v Value, caseSensitive bool) Value {
	if t, ok := v.(Text); ok && !caseSensitive {
		return f.m.mapText(t, strings.ToLower)
	}
	return v
}

func filterSort(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("sort", "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	get, err := getter(p[2])
	if err != nil {
		return nil, err
	}
	exact := orBool(p[1], false)
	items, err = f.sorted(items, func(v Value) (Value, error) {
		v, err := get(f, v)
		return f.folded(v, exact), err
	}, orBool(p[0], false))
	return &List{items: items}, err
}

func filterDictSort(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("dictsort", "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, failf("dictsort expects a mapping, got '%s'", typeName(v))
	}
	by, err := orText("dictsort", p[1], "key")
	if err != nil {
		return nil, err
	}
	pairs, err := f.pairs(d)
	if err != nil {
		return nil, err
	}
	exact, at := orBool(p[0], false), int(boolInt(by.s == "value"))
	items, err := f.sorted(pairs.items, func(v Value) (Value, error) {
		return f.folded(v.(*List).items[at], exact), nil
	}, orBool(p[2], false))
	return &List{items: items}, err
}

// keyOrder is the order in which entries are written.
func (m *meter) keyOrder(d *Dict, sorted bool) ([]int, error) {
	n := d.Len()
	if err := m.afford(1+n, itemBytes*n); err != nil {
		return nil, err
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if !sorted {
		return order, nil
	}
	var failed error
	slices.SortStableFunc(order, func(a, b int) int {
		c, err := m.compare(d.keys[a], d.keys[b])
		if err != nil {
			failed = err
		}
		return c
	})
	return order, failed
}

func filterUnique(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("unique", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	get, err := getter(p[1])
	if err != nil {
		return nil, err
	}
	seen := map[any]bool{}
	var out []Value
	for _, item := range items {
		k, err := get(f, item)
		if err != nil {
			return nil, err
		}
		norm, err := hashKey(f.folded(k, orBool(p[0], false)))
		if err != nil {
			return nil, err
		}
		if err := f.m.afford(1, entryBytes); err != nil {
			return nil, err
		}
		if !seen[norm] {
			seen[norm] = true
			out = append(out, item)
		}
	}
	return &List{items: out}, nil
}

// extreme is max and min.
func extreme(name string, sign int) filterFunc {
	return func(f *frame, v Value, a args) (Value, error) {
		p, err := a.bind(name, "case_sensitive", "attribute")
		if err != nil {
			return nil, err
		}
		get, err := getter(p[1])
		if err != nil {
			return nil, err
		}
		exact := orBool(p[0], false)
		items, err := f.iterate(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return undefinedf("no aggregated item, sequence was empty"), nil
		}
		var best, bestKey Value
		for i, item := range items {
			k, err := get(f, item)
			if err != nil {
				return nil, err
			}
			k = f.folded(k, exact)
			c := sign
			if i > 0 {
				if c, err = f.m.compare(k, bestKey); err != nil {
					return nil, err
				}
			}
			if c*sign > 0 {
				best, bestKey = item, k
			}
		}
		return best, nil
	}
}

func filterSum(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("sum", "attribute", "start")
	if err != nil {
		return nil, err
	}
	get, err := getter(p[0])
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	total := p[1]
	if !given(total) {
		total = int64(0)
	}
	for _, item := range items {
		if err := f.m.afford(1, 0); err != nil {
			return nil, err
		}
		if item, err = get(f, item); err != nil {
			return nil, err
		}
		if total, err = f.binary("+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// filterBatch cuts a sequence into lists of the same length.
func filterBatch(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("batch", "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	n, err := orInt("batch", p[0], 0)
	if err != nil {
		return nil, err
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	if n < 1 || n > maxRange {
		return nil, failf("batch expects a size from 1 to %d, got %d", maxRange, n)
	}
	var out []Value
	for chunk := range slices.Chunk(items, int(n)) {
		if err := f.m.afford(1, textBytes+itemBytes*int(n)); err != nil {
			return nil, err
		}
		chunk = slices.Clone(chunk)
		for given(p[1]) && p[1] != nil && len(chunk) < int(n) {
			chunk = append(chunk, p[1])
		}
		out = append(out, &List{items: chunk})
	}
	return &List{items: out}, nil
}

// filterGroupBy gives pairs of a key and the elements that have it, in order of
// the keys.
func filterGroupBy(f *frame, v Value, a args) (Value, error) {
	p, err := a.bind("groupby", "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	read, err := getter(p[0])
	if err != nil {
		return nil, err
	}
	get := func(v Value) (Value, error) {
		v, err := read(f, v)
		if _, missing := v.(Undefined); missing && given(p[1]) {
			v = p[1]
		}
		return f.folded(v, orBool(p[2], false)), err
	}
	items, err := f.iterate(v)
	if err != nil {
		return nil, err
	}
	if items, err = f.sorted(items, get, false); err != nil {
		return nil, err
	}
	groups := NewList()
	var members *List
	var last Value
	for _, item := range items {
		k, err := get(item)
		if err != nil {
			return nil, err
		}
		if members == nil || !f.m.equal(k, last) {
			members, last = NewList(), k
			groups.Append(newTuple(k, members))
		}
		if err := f.m.afford(1, textBytes+4*itemBytes); err != nil {
			return nil, err
		}
		members.Append(item)
	}
	return groups, nil
}
