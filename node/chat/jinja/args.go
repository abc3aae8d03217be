package jinja

import "slices"

// absent marks a parameter that the call did not give.
type absent struct{}

// bind gives each parameter of a built-in its value, or absent{}.
func (a args) bind(fn string, params ...string) ([]Value, error) {
	if len(a.pos) > len(params) {
		return nil, failf("%s takes at most %d argument(s), got %d", fn, len(params), len(a.pos))
	}
	out := make([]Value, len(params))
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
	for i, name := range a.names {
		at := slices.Index(params, name)
		if at < 0 {
			return nil, failf("%s takes no keyword argument '%s'", fn, clip(name))
		}
		if out[at] != (absent{}) {
			return nil, failf("%s got two values for '%s'", fn, clip(name))
		}
		out[at] = a.kw[i]
	}
	return out, nil
}

func given(v Value) bool { return v != Value(absent{}) }

// orText, orInt and orBool convert an argument, with a value for an absent one.
func orText(fn string, v Value, missing string) (Text, error) {
	switch v := v.(type) {
	case absent:
		return Own(missing), nil
	case Text:
		return v, nil
	case Undefined:
		return Text{}, v.fail()
	}
	return Text{}, failf("%s expects a string, got '%s'", fn, typeName(v))
}

func orInt(fn string, v Value, missing int64) (int64, error) {
	if !given(v) {
		return missing, nil
	}
	if i, ok := integer(v); ok {
		return i, nil
	}
	return 0, failf("%s expects a whole number, got '%s'", fn, typeName(v))
}

func orBool(v Value, missing bool) bool {
	if !given(v) {
		return missing
	}
	return truth(v)
}

// needText is orText for a required argument.
func needText(fn string, v Value) (Text, error) {
	if !given(v) {
		return Text{}, failf("%s lacks an argument", fn)
	}
	return orText(fn, v, "")
}
