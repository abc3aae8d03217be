package jinja

import "strings"

type testFunc func(f *frame, v Value, a args) (bool, error)

// testNamed is the test with that name, or nil.
func testNamed(name string) testFunc {
	switch name {
	case "defined":
		return isType(func(v Value) bool { _, ok := v.(Undefined); return !ok })
	case "undefined":
		return isType(func(v Value) bool { _, ok := v.(Undefined); return ok })
	case "none":
		return isType(func(v Value) bool { return v == nil })
	case "boolean":
		return isType(func(v Value) bool { _, ok := v.(bool); return ok })
	case "true":
		return isType(func(v Value) bool { b, ok := v.(bool); return ok && b })
	case "false":
		return isType(func(v Value) bool { b, ok := v.(bool); return ok && !b })
	case "integer":
		return isType(isInteger)
	case "float":
		return isType(func(v Value) bool { _, ok := v.(float64); return ok })
	case "number":
		return isType(func(v Value) bool { _, ok := number(v); return ok || isInteger(v) })
	case "string":
		return isType(func(v Value) bool { _, ok := v.(Text); return ok })
	case "mapping":
		return isType(func(v Value) bool { _, ok := v.(*Dict); return ok })
	case "sequence":
		return isType(isSequence)
	case "iterable":
		return isType(func(v Value) bool { _, ok := v.(Undefined); return ok || isSequence(v) })
	case "callable":
		return isType(func(v Value) bool { _, ok := v.(*Func); return ok })
	case "escaped":
		return isType(func(Value) bool { return false })
	case "filter":
		return isType(func(v Value) bool { t, ok := v.(Text); return ok && filterNamed(t.s) != nil })
	case "test":
		return isType(func(v Value) bool { t, ok := v.(Text); return ok && testNamed(t.s) != nil })
	case "lower":
		return func(f *frame, v Value, _ args) (bool, error) { return isCased(f, f.m.str(v), strings.ToLower), nil }
	case "upper":
		return func(f *frame, v Value, _ args) (bool, error) { return isCased(f, f.m.str(v), strings.ToUpper), nil }
	case "odd":
		return divides(2, 1)
	case "even":
		return divides(2, 0)
	case "divisibleby":
		return divisibleBy
	case "sameas":
		return sameAs
	case "in":
		return func(f *frame, v Value, a args) (bool, error) {
			p, err := a.bind("in", "seq")
			if err != nil {
				return false, err
			}
			return f.contains(p[0], v)
		}
	}
	if op := comparisonNamed(name); op != "" {
		return func(f *frame, v Value, a args) (bool, error) {
			p, err := a.bind(name, "other")
			if err != nil {
				return false, err
			}
			return f.holds(op, v, p[0])
		}
	}
	return nil
}

// comparisonNamed is the operator that a test stands for, or "".
func comparisonNamed(name string) string {
	switch name {
	case "eq", "equalto", "==":
		return "=="
	case "ne", "!=":
		return "!="
	case "lt", "lessthan", "<":
		return "<"
	case "le", "<=":
		return "<="
	case "gt", "greaterthan", ">":
		return ">"
	case "ge", ">=":
		return ">="
	}
	return ""
}

func isType(holds func(Value) bool) testFunc {
	return func(_ *frame, v Value, _ args) (bool, error) { return holds(v), nil }
}

func isInteger(v Value) bool {
	switch v.(type) {
	case int64, bigInt:
		return true
	}
	return false
}

func isSequence(v Value) bool {
	switch v.(type) {
	case Text, *List, *Dict:
		return true
	}
	return false
}

func divides(by, rest int64) testFunc {
	return func(_ *frame, v Value, _ args) (bool, error) {
		i, ok := integer(v)
		if !ok {
			return false, failf("odd and even expect a whole number, got '%s'", typeName(v))
		}
		return ((i%by)+by)%by == rest, nil
	}
}

func divisibleBy(_ *frame, v Value, a args) (bool, error) {
	p, err := a.bind("divisibleby", "num")
	if err != nil {
		return false, err
	}
	by, err := orInt("divisibleby", p[0], 0)
	i, ok := integer(v)
	if err != nil || !ok || by == 0 {
		return false, failf("divisibleby expects whole numbers, and not zero")
	}
	return i%by == 0, nil
}

// sameAs is identity; values without one are compared by type and value.
func sameAs(f *frame, v Value, a args) (bool, error) {
	p, err := a.bind("sameas", "other")
	if err != nil {
		return false, err
	}
	switch v := v.(type) {
	case *List, *Dict:
		return v == p[0], nil
	}
	return typeName(v) == typeName(p[0]) && f.m.equal(v, p[0]), nil
}
