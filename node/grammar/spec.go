package grammar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// typeSet is a set of JSON types. A number is an integer or not.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeInteger
	typeFractional
	typeString
	typeArray
	typeObject

	typeNumber = typeInteger | typeFractional
	typeAny    = typeNull | typeBoolean | typeNumber | typeString | typeArray | typeObject
)

// typeNamed is the type that a schema calls name.
func typeNamed(name string) (typeSet, bool) {
	switch name {
	case "null":
		return typeNull, true
	case "boolean":
		return typeBoolean, true
	case "integer":
		return typeInteger, true
	case "number":
		return typeNumber, true
	case "string":
		return typeString, true
	case "array":
		return typeArray, true
	case "object":
		return typeObject, true
	}
	return 0, false
}

// keywordTypes is the type that a keyword speaks of. A schema that has such
// keywords and no type is taken to mean that type.
func keywordTypes(keyword string) typeSet {
	switch keyword {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return typeNumber
	case "minLength", "maxLength", "pattern":
		return typeString
	case "items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems":
		return typeArray
	case "properties", "required", "additionalProperties", "unevaluatedProperties", "propertyNames", "minProperties", "maxProperties":
		return typeObject
	}
	return 0
}

// spec is what several schemas demand together.
type spec struct {
	schemas []*value
	types   typeSet
	enum    []*value // the values allowed
	hasEnum bool
	text    textSpec
	number  numberSpec
	array   countSpec
	object  countSpec
}

// countSpec bounds the number of elements, or of properties.
type countSpec struct{ min, max int64 } // max may be unbounded

type textSpec struct {
	countSpec
	patterns []*value
	format   string // one that is supported
}

// last is the schema that errors name for what only came with the merging.
func (s *spec) last() *value { return s.schemas[len(s.schemas)-1] }

// merge collects what schemas demand.
func (c *compiler) merge(schemas []*value) (*spec, error) {
	s := &spec{
		schemas: schemas,
		types:   typeAny,
		text:    textSpec{countSpec: countSpec{max: unbounded}},
		number:  numberSpec{places: unbounded},
		array:   countSpec{max: unbounded},
		object:  countSpec{max: unbounded},
	}
	typed := false
	var hinted typeSet
	for _, v := range schemas {
		if t := v.get("type"); t != nil {
			types, err := typesOf(v, t)
			if err != nil {
				return nil, err
			}
			if s.types, typed = s.types&types, true; s.types == 0 {
				return nil, impossible(v, "type", "the types of several schemas for the same place exclude each other")
			}
		}
		for i, keyword := range v.keys {
			hinted |= keywordTypes(keyword)
			if err := c.demand(s, v, keyword, v.items[i], &hinted); err != nil {
				return nil, err
			}
		}
	}
	if !typed && !s.hasEnum && hinted != 0 {
		s.types = hinted
	}
	s.number.integer = s.types&typeFractional == 0
	return s, nil
}

// typesOf reads type and, with it, OpenAPI's nullable.
func typesOf(at, t *value) (typeSet, error) {
	list := []*value{t}
	if t.kind == kindArray {
		list = t.items
	}
	var types typeSet
	for _, name := range list {
		one, ok := typeNamed(name.text)
		if name.kind != kindString || !ok {
			return 0, errorAt(at, "type", "%s is no type; allowed: null, boolean, integer, number, string, array, object", clip(string(name.appendJSON(nil))))
		}
		types |= one
	}
	if len(list) == 0 {
		return 0, errorAt(at, "type", "it names no type")
	}
	if n := at.get("nullable"); n != nil && n.kind == kindTrue {
		types |= typeNull
	}
	return types, nil
}

// demand adds one keyword of v to s. What it does not know constrains nothing:
// supported has refused the others.
func (c *compiler) demand(s *spec, v *value, keyword string, arg *value, hinted *typeSet) error {
	switch keyword {
	case "enum":
		return c.demandEnum(s, v, arg)
	case "const":
		return c.demandValues(s, v, keyword, []*value{arg})
	case "minLength":
		return s.text.atLeast(v, keyword, arg)
	case "maxLength":
		return s.text.atMost(v, keyword, arg)
	case "minItems":
		return s.array.atLeast(v, keyword, arg)
	case "maxItems":
		return s.array.atMost(v, keyword, arg)
	case "minProperties":
		return s.object.atLeast(v, keyword, arg)
	case "maxProperties":
		return s.object.atMost(v, keyword, arg)
	case "pattern":
		if arg.kind != kindString {
			return errorAt(v, keyword, "it is not a string")
		}
		if !slices.ContainsFunc(s.text.patterns, func(p *value) bool { return p.text == arg.text }) {
			s.text.patterns = append(s.text.patterns, arg)
		}
	case "format":
		return s.demandFormat(v, arg, hinted)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return s.demandBound(v, keyword, arg)
	case "multipleOf":
		return s.demandMultiple(v, arg)
	}
	return nil
}

func (c *compiler) demandEnum(s *spec, v, arg *value) error {
	if arg.kind != kindArray || len(arg.items) == 0 {
		return errorAt(v, "enum", "it is not a list of values")
	}
	if len(arg.items) > MaxEnumValues {
		return errorAt(v, "enum", "it has %d values, at most %d are allowed", len(arg.items), MaxEnumValues)
	}
	return c.demandValues(s, v, "enum", arg.items)
}

// demandValues keeps the values that an earlier schema allows, too.
func (c *compiler) demandValues(s *spec, v *value, keyword string, values []*value) error {
	if !s.hasEnum {
		s.enum, s.hasEnum = values, true
		return nil
	}
	allowed := map[string]bool{}
	for _, e := range values {
		allowed[c.identity(e)] = true
	}
	var both []*value
	for _, e := range s.enum {
		if allowed[c.identity(e)] {
			both = append(both, e)
		}
	}
	if len(both) == 0 {
		return impossible(v, keyword, "it has no value in common with another enum or const for the same place")
	}
	s.enum = both
	return nil
}

func (c *compiler) identity(v *value) string {
	id := v.identity()
	c.work -= 1 + len(id)/workBytes
	return id
}

func (b *countSpec) atLeast(at *value, keyword string, arg *value) error {
	n, err := count(at, keyword, arg)
	b.min = max(b.min, n)
	return err
}

func (b *countSpec) atMost(at *value, keyword string, arg *value) error {
	n, err := count(at, keyword, arg)
	if b.max == unbounded || n < b.max {
		b.max = n
	}
	return err
}

// impossible tells whether no number is within the bounds.
func (b *countSpec) impossible() bool { return b.max != unbounded && b.max < b.min }

// count reads a number of things. Beyond countMax all are as good as countMax.
func count(at *value, keyword string, arg *value) (int64, error) {
	const countMax = 1 << 48
	d, err := parseDecimal(arg.text)
	if arg.kind != kindNumber || err != nil || d.negative || !d.isInteger() {
		return 0, errorAt(at, keyword, "%s is not a whole number from 0 on", clip(string(arg.appendJSON(nil))))
	}
	n, err := strconv.ParseInt(d.whole, 10, 64)
	if err != nil || n > countMax {
		return countMax, nil
	}
	return n, nil
}

// demandBound reads a bound of numbers. In the oldest drafts, the exclusive ones
// are flags of the others.
func (s *spec) demandBound(v *value, keyword string, arg *value) error {
	exclusive := strings.HasPrefix(keyword, "exclusive")
	lower := strings.HasSuffix(strings.ToLower(keyword), "minimum")
	if exclusive && (arg.kind == kindTrue || arg.kind == kindFalse) {
		return nil
	}
	if arg.kind != kindNumber {
		return errorAt(v, keyword, "it is not a number")
	}
	d, err := parseDecimal(arg.text)
	if err != nil {
		return errorAt(v, keyword, "%v", err)
	}
	if flag := v.get("exclusiveM" + keyword[1:]); !exclusive && flag != nil {
		exclusive = flag.kind == kindTrue
	}
	if lower {
		s.number.demandMin(d, exclusive)
	} else {
		s.number.demandMax(d, exclusive)
	}
	return nil
}

func (s *numberSpec) demandMin(d decimal, exclusive bool) {
	c := 1
	if s.min != nil {
		c = d.compare(*s.min)
	}
	if c > 0 {
		s.min, s.exclusiveMin = &d, exclusive
	} else if c == 0 {
		s.exclusiveMin = s.exclusiveMin || exclusive
	}
}

func (s *numberSpec) demandMax(d decimal, exclusive bool) {
	c := -1
	if s.max != nil {
		c = d.compare(*s.max)
	}
	if c < 0 {
		s.max, s.exclusiveMax = &d, exclusive
	} else if c == 0 {
		s.exclusiveMax = s.exclusiveMax || exclusive
	}
}

// demandMultiple takes 1, 0.1, 0.01 and so on: they bound the digits after the
// point.
func (s *spec) demandMultiple(v, arg *value) error {
	d, err := parseDecimal(arg.text)
	if arg.kind != kindNumber || err != nil || d.negative || d.isZero() {
		return errorAt(v, "multipleOf", "it is not a number above 0")
	}
	places := len(d.fraction)
	unit := d.whole == "1" && places == 0 || d.whole == "0" && strings.Trim(d.fraction, "0") == "1"
	if !unit {
		return errorAt(v, "multipleOf", "%s is not supported; allowed: 1, 0.1, 0.01 and so on", clip(arg.text))
	}
	if s.number.places == unbounded || places < s.number.places {
		s.number.places = places
	}
	return nil
}

func (s *spec) demandFormat(v, arg *value, hinted *typeSet) error {
	if arg.kind != kindString {
		return errorAt(v, "format", "it is not a string")
	}
	_, known := formatPattern(arg.text)
	switch {
	case known:
		*hinted |= typeString
	case unsupportedFormat(arg.text):
		return errorAt(v, "format", "%q is not supported; allowed: %s", arg.text, strings.Join(formatNames(), ", "))
	default:
		return nil
	}
	if s.text.format != "" && s.text.format != arg.text {
		return errorAt(v, "format", "%q cannot be combined with %q", arg.text, s.text.format)
	}
	s.text.format = arg.text
	return nil
}

// supported refuses schemas with keywords that would constrain more than the
// grammar does. Unknown keywords constrain nothing.
func (c *compiler) supported(v *value) error {
	if c.checked[v] {
		return nil
	}
	c.checked[v] = true
	for i, keyword := range v.keys {
		if refused(v, keyword, v.items[i]) {
			return errorAt(v, keyword, "it is not supported")
		}
	}
	return nil
}

// refused tells whether a keyword constrains in a way that is not supported.
func refused(v *value, keyword string, arg *value) bool {
	switch keyword {
	case "not", "contains", "$dynamicRef", "$recursiveRef":
		return true
	case "if":
		return v.get("then") != nil || v.get("else") != nil
	case "uniqueItems":
		return arg.kind != kindFalse
	case "dependentSchemas", "dependentRequired", "dependencies", "patternProperties":
		return arg.kind != kindObject || len(arg.keys) > 0
	case "unevaluatedProperties", "unevaluatedItems":
		return !trivial(arg) && arg.kind != kindFalse
	}
	return false
}

// trivial tells whether a schema allows everything.
func trivial(v *value) bool {
	return v.kind == kindTrue || v.kind == kindObject && len(v.keys) == 0
}

// spec is the body of a rule for s.
func (c *compiler) spec(s *spec) (string, error) {
	if s.hasEnum {
		return c.enum(s)
	}
	if len(s.schemas) == 0 {
		return c.JSONValue(), nil
	}
	var ways []string
	var nothing error
	for _, t := range []struct {
		types typeSet
		make  func(*spec) (string, error)
	}{
		{typeObject, c.object}, {typeArray, c.array}, {typeString, c.string}, {typeNumber, c.numbers},
		{typeBoolean, func(*spec) (string, error) { return `"true" | "false"`, nil }},
		{typeNull, func(*spec) (string, error) { return `"null"`, nil }},
	} {
		if s.types&t.types == 0 {
			continue
		}
		way, err := t.make(s)
		if isImpossible(err) {
			nothing = err
			continue
		}
		if err != nil {
			return "", err
		}
		ways = append(ways, way)
	}
	if len(ways) == 0 {
		return "", nothing
	}
	return strings.Join(ways, " | "), nil
}

func (c *compiler) numbers(s *spec) (string, error) {
	expr, ok := c.number(s.number)
	if !ok {
		return "", impossible(s.last(), "minimum", "no number is within the bounds")
	}
	return expr, nil
}

// enum is one of the values that the other keywords allow.
func (c *compiler) enum(s *spec) (string, error) {
	seen := map[string]bool{}
	var choices []choice
	for _, v := range s.enum {
		ok, err := c.allows(s, v)
		if err != nil {
			return "", err
		}
		text := string(v.appendJSON(nil))
		c.work -= 1 + len(text)/workBytes
		if ok && !seen[text] {
			seen[text] = true
			choices = append(choices, choice{text: text})
		}
	}
	if len(choices) == 0 {
		return "", impossible(s.last(), "enum", "the other keywords allow none of its values")
	}
	return c.literals(choices), nil
}

// allows checks a value of an enum against the other keywords.
func (c *compiler) allows(s *spec, v *value) (bool, error) {
	switch v.kind {
	case kindNull:
		return s.types&typeNull != 0, nil
	case kindFalse, kindTrue:
		return s.types&typeBoolean != 0, nil
	case kindNumber:
		return s.allowsNumber(v)
	case kindString:
		return c.allowsText(s, v)
	}
	t := typeArray
	if v.kind == kindObject {
		t = typeObject
	}
	if s.types&t == 0 {
		return false, nil
	}
	for _, schema := range s.schemas {
		for _, keyword := range schema.keys {
			if keywordTypes(keyword) == t {
				return false, errorAt(schema, keyword, "it cannot be combined with an enum or const that has objects or arrays")
			}
		}
	}
	return true, nil
}

func (s *spec) allowsNumber(v *value) (bool, error) {
	d, err := parseDecimal(v.text)
	if err != nil {
		return false, errorAt(v.parent, v.key, "%v", err)
	}
	t := typeFractional
	if d.isInteger() {
		t = typeInteger
	}
	n := s.number
	switch {
	case s.types&t == 0, n.places != unbounded && len(d.fraction) > n.places:
		return false, nil
	case n.min != nil && (d.compare(*n.min) < 0 || n.exclusiveMin && d.compare(*n.min) == 0):
		return false, nil
	case n.max != nil && (d.compare(*n.max) > 0 || n.exclusiveMax && d.compare(*n.max) == 0):
		return false, nil
	}
	return true, nil
}

func (c *compiler) allowsText(s *spec, v *value) (bool, error) {
	n := int64(utf8.RuneCountInString(v.text))
	if s.types&typeString == 0 || n < s.text.min || s.text.max != unbounded && n > s.text.max {
		return false, nil
	}
	t, err := c.textTerm(s)
	if err != nil || t == nil {
		return err == nil, err
	}
	return c.texts.matches(t, v.text), c.checkSize()
}

// describe names what a combination of keywords consists of, for messages.
func (t *textSpec) describe() string {
	var parts []string
	if t.format != "" {
		parts = append(parts, fmt.Sprintf("format %q", t.format))
	}
	for _, p := range t.patterns {
		parts = append(parts, fmt.Sprintf("pattern %q", clip(p.text)))
	}
	if t.min > 0 {
		parts = append(parts, fmt.Sprintf("minLength %d", t.min))
	}
	if t.max != unbounded {
		parts = append(parts, fmt.Sprintf("maxLength %d", t.max))
	}
	return strings.Join(parts, " and ")
}
