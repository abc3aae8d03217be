package api

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// decoder reads one request body. It keeps the first fault; after it every getter
// does nothing, so that callers check once, at the end.
type decoder struct {
	err     error
	unknown []string // fields that nobody asked for, each named once
}

// fail records a fault of the field param.
func (d *decoder) fail(param, format string, args ...any) {
	if d.err == nil {
		d.err = BadRequest(param, "%s: %s", param, fmt.Sprintf(format, args...))
	}
}

// object is a JSON object that is taken apart field by field. A field that is
// null counts as absent. What no getter took when rest is called is unknown.
type object struct {
	*decoder
	path    string // of the object itself; "" at the top
	members []member
}

type member struct {
	name string
	raw  []byte
	used bool
}

// decodeBody checks a whole body and opens its object. The object is never nil.
func decodeBody(body []byte) *object {
	o := &object{decoder: &decoder{}}
	if err := checkJSON(body); err != nil {
		o.err = &Error{Status: 400, Type: "invalid_request_error", Code: "invalid_json", Message: "the body is not valid JSON: " + err.Error()}
		return o
	}
	o.open(bytes.TrimSpace(body))
	return o
}

// object opens a nested object.
func (d *decoder) object(path string, raw []byte) *object {
	o := &object{decoder: d, path: path}
	o.open(raw)
	return o
}

func (o *object) open(raw []byte) {
	if o.err != nil {
		return
	}
	if raw[0] != '{' {
		if o.path == "" {
			o.err = BadRequest("", "the body is %s, but must be a JSON object", kindOf(raw))
			return
		}
		o.fail(o.path, "is %s, but must be an object", kindOf(raw))
		return
	}
	for key, value := range members(raw) {
		name := unquote(key)
		if len(o.members) == MaxMembers {
			o.err = BadRequest(o.path, "an object has more than %d fields", MaxMembers)
			return
		}
		if o.find(name) != nil {
			o.fail(o.param(clip(name, 64)), "is there twice")
			return
		}
		o.members = append(o.members, member{name: name, raw: value})
	}
}

func (o *object) find(name string) *member {
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	return nil
}

// param is the name of a field as errors call it.
func (o *object) param(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// bad records a fault of a field of this object.
func (o *object) bad(name, format string, args ...any) {
	o.fail(o.param(name), format, args...)
}

// wrong says that a value has the wrong type.
func (o *object) wrong(name string, raw []byte, want string) {
	o.bad(name, "%s is %s, but must be %s", show(raw), kindOf(raw), want)
}

// take is the value of a field, nil if it is absent, null or there was a fault.
func (o *object) take(name string) []byte {
	m := o.find(name)
	if m == nil || o.err != nil {
		return nil
	}
	m.used = true
	if m.raw[0] == 'n' {
		return nil
	}
	return m.raw
}

// rest notes the fields that nobody asked for.
func (o *object) rest() {
	for i := range o.members {
		if m := &o.members[i]; !m.used {
			o.note(o.path, m.name)
		}
	}
}

// note adds an unknown field to the warnings; indexes are left out, so that a
// field of every message is named once.
func (d *decoder) note(path, name string) {
	full := clip(name, 64)
	if path != "" {
		full = withoutIndexes(path) + "." + full
	}
	if len(d.unknown) < maxWarnings && !slices.Contains(d.unknown, full) {
		d.unknown = append(d.unknown, full)
	}
}

func withoutIndexes(path string) string {
	var b strings.Builder
	inside := false
	for _, c := range path {
		switch c {
		case '[':
			inside = true
		case ']':
			inside = false
			b.WriteString("[]")
		default:
			if !inside {
				b.WriteRune(c)
			}
		}
	}
	return b.String()
}

// unsupported refuses a documented field, unless its value is one of off: JSON
// literals for which doing nothing is right.
func (o *object) unsupported(name, why string, off ...string) {
	raw := o.take(name)
	if raw != nil && !slices.Contains(off, string(raw)) {
		o.bad(name, "%s", why)
	}
}

// text reads a string of at most limit bytes. It reports whether there is one.
func (o *object) text(name string, into *string, limit int) bool {
	raw := o.take(name)
	if raw == nil {
		return false
	}
	if raw[0] != '"' {
		o.wrong(name, raw, "a string")
		return false
	}
	s := unquote(raw)
	if len(s) > limit {
		o.bad(name, "has %d bytes, at most %d are allowed", len(s), limit)
		return false
	}
	*into = s
	return true
}

// flag reads a boolean.
func (o *object) flag(name string, into *bool) bool {
	raw := o.take(name)
	if raw == nil {
		return false
	}
	if raw[0] != 't' && raw[0] != 'f' {
		o.wrong(name, raw, "true or false")
		return false
	}
	*into = raw[0] == 't'
	return true
}

// span is a range of numbers; openLow leaves out Low itself.
type span struct {
	Low, High float64
	openLow   bool
}

func (s span) holds(v float64) bool {
	return v <= s.High && (v > s.Low || v == s.Low && !s.openLow)
}

func (s span) String() string {
	if s.openLow {
		return fmt.Sprintf("more than %v and at most %v", s.Low, s.High)
	}
	return fmt.Sprintf("from %v to %v", s.Low, s.High)
}

// number reads a number within s.
func (o *object) number(name string, into *float64, s span) bool {
	raw := o.take(name)
	if raw == nil {
		return false
	}
	v, ok := parseNumber(raw)
	switch {
	case !ok:
		o.wrong(name, raw, "a number "+s.String())
	case !s.holds(v):
		o.bad(name, "%s is out of range, it must be %v", show(raw), s)
	default:
		*into = v
		return true
	}
	return false
}

// parseNumber fails for values that are no numbers. One that is too large for a
// float64 is infinite, so that range checks refuse it.
func parseNumber(raw []byte) (float64, bool) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	v, _ := strconv.ParseFloat(string(raw), 64)
	return v, true
}

// integer reads a whole number from low to high. 16.0 is one, 1.5 and "2" are not.
func (o *object) integer(name string, into *int, low, high int) bool {
	raw := o.take(name)
	if raw == nil {
		return false
	}
	v, ok := parseNumber(raw)
	switch {
	case !ok || v != math.Trunc(v) && !math.IsInf(v, 0):
		o.wrong(name, raw, fmt.Sprintf("a whole number from %d to %d", low, high))
	case v < float64(low) || v > float64(high):
		o.bad(name, "%s is out of range, it must be from %d to %d", show(raw), low, high)
	default:
		*into = int(v)
		return true
	}
	return false
}

// seed reads any whole number of 64 bits, signed or not.
func (o *object) seed(name string) *uint64 {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	if v, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		u := uint64(v)
		return &u
	}
	if u, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return &u
	}
	o.wrong(name, raw, "a whole number of at most 64 bits")
	return nil
}

// child opens an object in a field; nil if it is absent.
func (o *object) child(name string) *object {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	return o.object(o.param(name), raw)
}

// list splits an array of at most limit elements; ok is false if it is absent.
func (o *object) list(name string, limit int) (list [][]byte, ok bool) {
	raw := o.take(name)
	if raw == nil {
		return nil, false
	}
	if raw[0] != '[' {
		o.wrong(name, raw, "an array")
		return nil, false
	}
	for i, e := range elements(raw) {
		if i == limit {
			o.bad(name, "has more than %d elements", limit)
			return nil, false
		}
		list = append(list, e)
	}
	return list, true
}

// show is a value as messages quote it: its first bytes.
func show(raw []byte) string {
	const enough = 44 // more than clip keeps, a whole character more
	return clip(string(raw[:min(len(raw), enough)]), 40)
}

// at is the name of an element of an array field.
func at(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }

// anyOf joins allowed values for a message.
func anyOf(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return strings.Join(quoted, ", ")
}

// oneOf reads a string that must be among values.
func (o *object) oneOf(name string, into *string, values ...string) bool {
	var s string
	if !o.text(name, &s, MaxIdentifier) {
		return false
	}
	if !slices.Contains(values, s) {
		o.bad(name, "%q is not one of %s", clip(s, 40), anyOf(values))
		return false
	}
	*into = s
	return true
}
