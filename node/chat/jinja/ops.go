package jinja

import (
	"math"
	"math/bits"
	"strings"
)

func (e unaryExpr) eval(f *frame) (Value, error) {
	v, err := f.eval(e.x)
	if err != nil {
		return nil, err
	}
	if e.op == "not" {
		return !truth(v), nil
	}
	if i, ok := integer(v); ok && (e.op == "+" || i != math.MinInt64) {
		if e.op == "-" {
			i = -i
		}
		return i, nil
	}
	x, ok := v.(float64)
	switch {
	case !ok:
		return nil, failf("bad operand type for unary %s: '%s'", e.op, typeName(v))
	case e.op == "-":
		return -x, nil
	}
	return x, nil
}

func (e binaryExpr) eval(f *frame) (Value, error) {
	l, err := f.eval(e.l)
	if err != nil {
		return nil, err
	}
	r, err := f.eval(e.r)
	if err != nil {
		return nil, err
	}
	return f.binary(e.op, l, r)
}

// binary is arithmetic, and what + * and % mean for texts and lists.
func (f *frame) binary(op string, l, r Value) (Value, error) {
	if x, ok := integer(l); ok {
		if y, ok := integer(r); ok {
			return intOp(op, x, y)
		}
	}
	if x, ok := number(l); ok {
		if y, ok := number(r); ok {
			return floatOp(op, x, y)
		}
	}
	for _, v := range []Value{l, r} {
		if u, ok := v.(Undefined); ok {
			return nil, u.fail()
		}
	}
	switch {
	case op == "+":
		return f.join(l, r)
	case op == "*":
		if n, ok := integer(r); ok {
			return f.repeat(l, n)
		}
		if n, ok := integer(l); ok {
			return f.repeat(r, n)
		}
	case op == "%":
		if t, ok := l.(Text); ok {
			return f.printf(t, r)
		}
	}
	return nil, operandError(op, l, r)
}

func operandError(op string, l, r Value) error {
	return failf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(l), typeName(r))
}

var errOverflow = failf("a whole number grows beyond 64 bits").Reason

func intOp(op string, x, y int64) (Value, error) {
	switch op {
	case "+":
		if s := x + y; (s > x) == (y > 0) {
			return s, nil
		}
	case "-":
		if s := x - y; (s < x) == (y > 0) {
			return s, nil
		}
	case "*":
		if p, ok := product(x, y); ok {
			return p, nil
		}
	case "**":
		return intPower(x, y)
	case "/":
		return floatOp(op, float64(x), float64(y))
	default:
		return floorOp(op, x, y)
	}
	return nil, failf("%s", errOverflow)
}

// floorOp is // and %, which round towards negative infinity.
func floorOp(op string, x, y int64) (Value, error) {
	if y == 0 {
		return nil, failf("integer division or modulo by zero")
	}
	if x == math.MinInt64 && y == -1 {
		return nil, failf("%s", errOverflow)
	}
	q, rem := x/y, x%y
	if rem != 0 && (rem < 0) != (y < 0) {
		q--
		rem += y
	}
	if op == "//" {
		return q, nil
	}
	return rem, nil
}

func product(x, y int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(x), magnitude(y))
	negative := (x < 0) != (y < 0)
	switch {
	case hi != 0 || lo > math.MaxInt64:
		return 0, false
	case negative:
		return -int64(lo), true
	}
	return int64(lo), true
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return -uint64(x)
	}
	return uint64(x)
}

func intPower(x, y int64) (Value, error) {
	if y < 0 {
		return floatOp("**", float64(x), float64(y))
	}
	if y > 63 && x != 0 && x != 1 && x != -1 {
		return nil, failf("%s", errOverflow)
	}
	if x == -1 {
		y %= 2
	}
	result := int64(1)
	for range min(y, 63) {
		var ok bool
		if result, ok = product(result, x); !ok {
			return nil, failf("%s", errOverflow)
		}
	}
	return result, nil
}

func floatOp(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, failf("division by zero")
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	rem := math.Mod(x, y)
	if rem != 0 && (rem < 0) != (y < 0) {
		rem += y
	}
	return rem, nil
}

// join is + of texts and of lists.
func (f *frame) join(l, r Value) (Value, error) {
	switch x := l.(type) {
	case Text:
		if y, ok := r.(Text); ok {
			return f.m.concat(x, y), f.m.err
		}
		return nil, failf(`can only concatenate str (not "%s") to str`, typeName(r))
	case *List:
		if y, ok := r.(*List); ok && x.tuple == y.tuple {
			n := len(x.items) + len(y.items)
			if err := f.m.afford(1+n/bytesPerStep, itemBytes*n); err != nil {
				return nil, err
			}
			items := append(append(make([]Value, 0, n), x.items...), y.items...)
			return &List{items: items, tuple: x.tuple}, nil
		}
	}
	return nil, operandError("+", l, r)
}

// repeat is * of a text or list and a number.
func (f *frame) repeat(v Value, n int64) (Value, error) {
	n = max(n, 0)
	switch v := v.(type) {
	case Text:
		if err := f.affordTimes(len(v.s)+1, n); err != nil {
			return nil, err
		}
		if len(v.foreign) == 0 {
			return Own(strings.Repeat(v.s, int(n))), nil
		}
		b := f.m.newBuilder()
		for range n {
			b.text(v)
		}
		return b.done(), f.m.err
	case *List:
		if err := f.affordTimes(itemBytes*len(v.items)+1, n); err != nil {
			return nil, err
		}
		items := make([]Value, 0, len(v.items)*int(n))
		for range n {
			items = append(items, v.items...)
		}
		return &List{items: items, tuple: v.tuple}, nil
	}
	return nil, operandError("*", v, n)
}

// affordTimes charges for n copies of something.
func (f *frame) affordTimes(bytes int, n int64) error {
	if n > int64(f.m.limits.Bytes) {
		n = int64(f.m.limits.Bytes) + 1
	}
	return f.m.afford(1, bytes*int(n))
}

// holds is a comparison.
func (f *frame) holds(op string, l, r Value) (bool, error) {
	switch op {
	case "==":
		return f.m.equal(l, r), f.m.err
	case "!=":
		return !f.m.equal(l, r), f.m.err
	case "in":
		return f.contains(r, l)
	case "notin":
		in, err := f.contains(r, l)
		return !in, err
	}
	c, err := f.m.compare(l, r)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c >= 0, err
}

// contains is Python's in.
func (f *frame) contains(in, v Value) (bool, error) {
	switch in := in.(type) {
	case Text:
		t, ok := v.(Text)
		if !ok {
			return false, failf("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(in.s, t.s), f.m.afford(1+len(in.s)/bytesPerStep, 0)
	case *List:
		for _, item := range in.items {
			if f.m.equal(item, v) {
				return true, f.m.err
			}
		}
		return false, f.m.err
	case *Dict:
		norm, err := hashKey(v)
		if err != nil {
			return false, err
		}
		_, ok := in.get(norm)
		return ok, nil
	case Undefined:
		return false, nil
	}
	return false, failf("argument of type '%s' is not iterable", typeName(in))
}
