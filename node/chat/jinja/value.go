package jinja

import (
	"math"
	"strings"
)

// Value is what templates compute with: nil (none), bool, int64, float64, Text,
// *List, *Dict, and inside this package also bigInt, Undefined, *Func,
// *namespace and *loop.
type Value = any

// bigInt is a whole number beyond int64, kept as its digits: it can be printed
// but not computed with.
type bigInt string

// Undefined is the value of a name, attribute or item that is not there. It
// prints as nothing, and using it for anything else fails with its description.
type Undefined struct{ what string }

// List is a list or tuple.
type List struct {
	items []Value
	tuple bool
}

// NewList returns a list of the given values.
func NewList(items ...Value) *List { return &List{items: items} }

// Append adds a value.
func (l *List) Append(v Value) { l.items = append(l.items, v) }

func newTuple(items ...Value) *List { return &List{items: items, tuple: true} }

// Dict is a mapping in order of insertion.
type Dict struct {
	keys  []Value // as inserted
	vals  []Value
	index map[any]int // normalised key to position
}

// NewDict returns an empty mapping.
func NewDict() *Dict { return &Dict{index: map[any]int{}} }

// Set puts a value under a key that is the server's own word.
func (d *Dict) Set(key string, v Value) { d.put(Own(key), key, v) }

// Len is the number of entries.
func (d *Dict) Len() int { return len(d.keys) }

func (d *Dict) put(key Value, norm any, v Value) {
	if i, ok := d.index[norm]; ok {
		d.vals[i] = v
		return
	}
	d.index[norm] = len(d.keys)
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
}

func (d *Dict) get(norm any) (Value, bool) {
	i, ok := d.index[norm]
	if !ok {
		return nil, false
	}
	return d.vals[i], true
}

func (d *Dict) remove(norm any) {
	at, ok := d.index[norm]
	if !ok {
		return
	}
	delete(d.index, norm)
	d.keys = append(d.keys[:at], d.keys[at+1:]...)
	d.vals = append(d.vals[:at], d.vals[at+1:]...)
	for k, i := range d.index {
		if i > at {
			d.index[k] = i - 1
		}
	}
}

// setValue puts a value under any key that can be one.
func (m *meter) setValue(d *Dict, key, v Value) error {
	norm, err := hashKey(key)
	if err != nil {
		return err
	}
	if err := m.afford(1, entryBytes); err != nil {
		return err
	}
	d.put(key, norm, v)
	return nil
}

type noneKey struct{}

// hashKey makes equal keys equal Go values.
func hashKey(v Value) (any, error) {
	switch v := v.(type) {
	case nil:
		return noneKey{}, nil
	case Text:
		return v.s, nil
	case int64, bigInt:
		return v, nil
	case bool:
		return boolInt(v), nil
	case float64:
		if i := int64(v); float64(i) == v && i != math.MaxInt64 {
			return i, nil
		}
		return v, nil
	}
	return nil, failf("unhashable type: '%s'", typeName(v))
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// namespace is the one thing whose attributes a template may set.
type namespace struct{ d *Dict }

// Func is something that can be called.
type Func struct {
	name string
	call func(f *frame, a args) (Value, error)
}

// typeName is Python's name of a value's type, for messages.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, bigInt:
		return "int"
	case float64:
		return "float"
	case Text:
		return "str"
	case *List:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *Dict:
		return "dict"
	case Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	}
	return "function"
}

// truth is Python's bool().
func truth(v Value) bool {
	switch v := v.(type) {
	case nil, Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case Text:
		return v.s != ""
	case *List:
		return len(v.items) > 0
	case *Dict:
		return v.Len() > 0
	}
	return true
}

// number returns a value as a float; bools count as numbers, as in Python.
func number(v Value) (f float64, ok bool) {
	switch v := v.(type) {
	case bool:
		return float64(boolInt(v)), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// integer returns a whole number; bools count.
func integer(v Value) (int64, bool) {
	switch v := v.(type) {
	case bool:
		return boolInt(v), true
	case int64:
		return v, true
	}
	return 0, false
}

// equal is Python's ==.
func (m *meter) equal(a, b Value) bool {
	if m.enter() != nil || !m.spend(1, 0) {
		m.leave()
		return false
	}
	defer m.leave()
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return x == y
		}
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case Text:
		b, ok := b.(Text)
		m.spend(len(a.s)/bytesPerStep, 0)
		return ok && a.s == b.s
	case bigInt:
		b, ok := b.(bigInt)
		return ok && a == b
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case *List:
		b, ok := b.(*List)
		return ok && m.equalLists(a, b)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && m.equalDicts(a, b)
	}
	return a == b
}

func (m *meter) equalLists(a, b *List) bool {
	if len(a.items) != len(b.items) || a.tuple != b.tuple {
		return false
	}
	for i := range a.items {
		if !m.equal(a.items[i], b.items[i]) {
			return false
		}
	}
	return true
}

func (m *meter) equalDicts(a, b *Dict) bool {
	if a.Len() != b.Len() {
		return false
	}
	for norm, i := range a.index {
		v, ok := b.get(norm)
		if !ok || !m.equal(a.vals[i], v) {
			return false
		}
	}
	return true
}

// compare is Python's ordering: negative, zero or positive.
func (m *meter) compare(a, b Value) (int, error) {
	if err := m.enter(); err != nil {
		m.leave()
		return 0, err
	}
	defer m.leave()
	if err := m.afford(1, 0); err != nil {
		return 0, err
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return compareNumbers(x, y), nil
		}
	}
	switch x := a.(type) {
	case Text:
		if y, ok := b.(Text); ok {
			m.spend(min(len(x.s), len(y.s))/bytesPerStep, 0)
			return strings.Compare(x.s, y.s), m.err
		}
	case *List:
		if y, ok := b.(*List); ok {
			return m.compareLists(x, y)
		}
	case Undefined:
		return 0, x.fail()
	}
	if y, ok := b.(Undefined); ok {
		return 0, y.fail()
	}
	return 0, failf("cannot order '%s' and '%s'", typeName(a), typeName(b))
}

func compareNumbers(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func (m *meter) compareLists(a, b *List) (int, error) {
	for i := range min(len(a.items), len(b.items)) {
		if c, err := m.compare(a.items[i], b.items[i]); c != 0 || err != nil {
			return c, err
		}
	}
	return compareNumbers(float64(len(a.items)), float64(len(b.items))), nil
}

func (u Undefined) fail() error { return failf("%s", u.what) }

func undefinedf(format string, args ...any) Undefined {
	return Undefined{what: failf(format, args...).Reason}
}

// Vars makes the entries of a dict variables.
func Vars(d *Dict) map[string]Value {
	vars := make(map[string]Value, d.Len())
	for i, k := range d.keys {
		if name, ok := k.(Text); ok {
			vars[name.s] = d.vals[i]
		}
	}
	return vars
}
