package grammar

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// property is one declared property of an object.
type property struct {
	name     string
	schemas  []*value // all of which its value must satisfy
	required bool
	value    string // rule
}

// objectPlan is what several schemas demand of an object.
type objectPlan struct {
	properties []property
	names      []string // of all declared properties, also of forbidden ones
	open       bool     // others are allowed
	others     []*value // what the values of those must satisfy
	keys       *value   // what their names must satisfy
	at         *value   // for errors
	countSpec
}

// object is an expression for the objects that s allows.
func (c *compiler) object(s *spec) (string, error) {
	p, err := c.planObject(s)
	if err != nil {
		return "", err
	}
	if err := c.compileProperties(s, p); err != nil {
		return "", err
	}
	if err := p.settleCount(s); err != nil {
		return "", err
	}
	if len(p.names) == 0 && p.open {
		return c.dictionary(p)
	}
	if p.keys != nil {
		return "", errorAt(p.keys.parent, "propertyNames", "it is not supported together with properties or required")
	}
	return c.members(p)
}

// planObject collects what the schemas say. A property must satisfy each schema
// that declares it, and additionalProperties of each that does not.
func (c *compiler) planObject(s *spec) (*objectPlan, error) {
	p := &objectPlan{countSpec: s.object, at: s.last()}
	at := map[string]int{}
	declare := func(name string) *property {
		i, ok := at[name]
		if !ok {
			i = len(p.properties)
			at[name] = i
			p.properties = append(p.properties, property{name: name})
			p.names = append(p.names, name)
		}
		return &p.properties[i]
	}
	closed, declaring := false, false
	for _, v := range s.schemas {
		if properties := v.get("properties"); properties != nil {
			if properties.kind != kindObject {
				return nil, errorAt(v, "properties", "it is not an object")
			}
			declaring = true
			c.work -= len(properties.keys)
			for _, name := range properties.keys {
				declare(name)
			}
		}
		switch other := v.get("additionalProperties"); {
		case other == nil:
			u := v.get("unevaluatedProperties")
			closed = closed || u != nil && u.kind == kindFalse
		case other.kind == kindFalse:
			closed = true
		default:
			p.open = true
			p.others = append(p.others, other)
		}
		if keys := v.get("propertyNames"); keys != nil && !trivial(keys) {
			if p.keys != nil {
				return nil, errorAt(v, "propertyNames", "it is supported once for an object")
			}
			p.keys = keys
		}
	}
	for _, v := range s.schemas {
		if err := eachRequired(v, func(name string) { c.work--; declare(name).required = true }); err != nil {
			return nil, err
		}
	}
	// An object that declares nothing can have anything; one that declares its
	// properties has no others unless it says so.
	p.open = !closed && (p.open || !declaring)
	return p, c.gather(s, p)
}

func eachRequired(v *value, do func(name string)) error {
	list := v.get("required")
	if list == nil || list.kind == kindTrue || list.kind == kindFalse {
		return nil // a flag of the property itself, as in the oldest drafts
	}
	for _, name := range list.items {
		if name.kind != kindString {
			return errorAt(v, "required", "it is not a list of strings")
		}
		do(name.text)
	}
	if list.kind != kindArray {
		return errorAt(v, "required", "it is not a list of strings")
	}
	return nil
}

// gather finds the schemas of each property.
func (c *compiler) gather(s *spec, p *objectPlan) error {
	for _, v := range s.schemas {
		properties, other := v.get("properties"), v.get("additionalProperties")
		if properties == nil && other == nil {
			continue
		}
		if c.work -= len(p.properties); c.work < 0 {
			return c.checkSize()
		}
		for i := range p.properties {
			var schema *value
			if properties != nil {
				schema = properties.get(p.properties[i].name)
			}
			if schema == nil {
				schema = other
			}
			if schema != nil {
				p.properties[i].schemas = append(p.properties[i].schemas, schema)
			}
		}
	}
	return nil
}

// compileProperties drops optional properties that can have no value.
func (c *compiler) compileProperties(s *spec, p *objectPlan) error {
	kept := p.properties[:0]
	for _, property := range p.properties {
		rule, err := c.inside(property.schemas...)
		if isImpossible(err) {
			if property.required {
				return impossible(s.last(), "required", "property %q can have no value: %s", clip(property.name), clip(err.Error()))
			}
			continue
		}
		if err != nil {
			return err
		}
		property.value = rule
		kept = append(kept, property)
	}
	p.properties = kept
	return nil
}

// settleCount sees to minProperties and maxProperties: what is left of them
// afterwards is for dictionary and members.
func (p *objectPlan) settleCount(s *spec) error {
	required := int64(0)
	for _, property := range p.properties {
		if property.required {
			required++
		}
	}
	declared := int64(len(p.properties))
	if p.impossible() || p.max != unbounded && p.max < required || !p.open && p.min > declared {
		return impossible(s.last(), "minProperties", "an object cannot have as many properties")
	}
	if p.min <= required {
		p.min = 0
	}
	if p.min > 1 {
		// Members of the same name would count as one.
		return errorAt(s.last(), "minProperties", "%d is not supported; allowed: 1, and the number of required properties", p.min)
	}
	switch {
	case !p.open && p.max >= declared:
		p.max = unbounded
	case p.max == 0:
		p.properties, p.open, p.max = nil, false, unbounded
	}
	if p.max != unbounded && len(p.names) > 0 {
		return errorAt(s.last(), "maxProperties", "it is supported for objects without properties, or if it exceeds their number")
	}
	return nil
}

// dictionary is an object whose members have any names.
func (c *compiler) dictionary(p *objectPlan) (string, error) {
	key, rule, err := c.dictionaryMember(p)
	if isImpossible(err) && p.min == 0 {
		return c.wrapped(""), nil
	}
	if err != nil {
		return "", err
	}
	member := c.define("member", fmt.Sprintf(`%s ":" %s %s`, key, c.gap(), rule))
	next := c.define("item", join(c.comma(), member))
	hi := p.max
	if hi != unbounded {
		hi--
	}
	list := join(member, c.counted(repetition{item: next, per: arrayRepeat / 2, native: arrayRepeat}, 0, hi))
	if p.min == 0 {
		return c.wrapped("(" + join(list, c.blank()) + ")?"), nil
	}
	return c.wrapped(join(list, c.blank())), nil
}

// dictionaryMember gives the rules for the names and the values.
func (c *compiler) dictionaryMember(p *objectPlan) (key, rule string, err error) {
	key = c.anyString()
	if p.keys != nil {
		text := &value{kind: kindObject, parent: p.keys.parent, key: p.keys.key, id: stringSchemaID,
			keys: []string{"type"}, items: []*value{{kind: kindString, text: "string"}}}
		if key, err = c.inside(p.keys, text); err != nil {
			return "", "", err
		}
	}
	rule, err = c.inside(p.others...)
	return key, rule, err
}

// inlineMax bounds how many members or elements are written into one rule.
const inlineMax = 16

// stringSchemaID is the id of the schema {"type": "string"} that propertyNames
// implies. Values of the text have others.
const stringSchemaID = -1

func (c *compiler) wrapped(members string) string {
	return join(`"{"`, c.blank(), members, `"}"`)
}

// members is an object with declared properties, in their order, any of the
// optional ones left out, and perhaps others behind.
//
// The grammar is linear in the number of properties, nearly: place i is where
// property i or a later one begins, right after the quote of its name. From a
// place one can go to any property up to the next required one. These are covered
// by few intervals of a length that is a power of two, and the names of an
// interval share their beginnings. So few ways are open at a place, however many
// properties could follow.
func (c *compiler) members(p *objectPlan) (string, error) {
	m := &memberRules{compiler: c, properties: p.properties, intervals: map[[2]int]string{}, members: map[int]string{}}
	if p.open {
		other, err := c.otherMember(p)
		if err != nil && !isImpossible(err) {
			return "", err
		}
		m.other = other
	}
	m.findRequired()
	first := m.place(0)
	blank := c.blank()
	switch {
	case first == "" && p.min > 0:
		return "", impossible(p.at, "minProperties", "an object cannot have properties")
	case first == "":
		return c.wrapped(""), nil
	case m.required[0] < len(m.properties) || p.min > 0:
		return c.wrapped(join(`"\""`, first, blank)), nil
	}
	return c.wrapped(fmt.Sprintf(`("\"" %s %s)?`, first, blank)), nil
}

// otherMember is an undeclared property from behind the first quote of its name.
// The name is not one of the declared ones, whose values have their own schemas.
func (c *compiler) otherMember(p *objectPlan) (string, error) {
	rule, err := c.inside(p.others...)
	if err != nil {
		return "", err
	}
	c.work -= len(p.names)
	name := c.automaton(otherThan(p.names, c.freeText(anyRune())), spellings)
	return c.define("other", fmt.Sprintf(`%s "\":" %s %s`, name, c.gap(), rule)), nil
}

// otherThan accepts every string that is none of names; anything is an expression
// for every string, which may follow the first difference.
func otherThan(names []string, anything string) automaton {
	const free = 1
	a := automaton{states: []state{{accept: true}, {accept: true, tail: anything}}}
	children := []map[rune]int{{}, {}}
	for _, name := range names {
		at := 0
		for _, r := range name {
			next, ok := children[at][r]
			if !ok {
				next = len(a.states)
				children[at][r] = next
				a.states = append(a.states, state{accept: true})
				children = append(children, map[rune]int{})
			}
			at = next
		}
		a.states[at].accept = false
	}
	for i := range a.states {
		if i == free {
			continue
		}
		var spans []span
		for r, to := range children[i] {
			spans = append(spans, span{r, r})
			a.states[i].edges = append(a.states[i].edges, edge{charset{{r, r}}, to})
		}
		slices.SortFunc(a.states[i].edges, func(x, y edge) int { return int(x.set[0].lo - y.set[0].lo) })
		a.states[i].edges = append(a.states[i].edges, edge{newCharset(spans...).inverted(), free})
	}
	return a
}

// memberRules makes the rules for the declared properties of one object.
type memberRules struct {
	*compiler
	properties []property
	other      string            // rule for an undeclared property; "" if there are none
	required   []int             // by place: the next required property, or their number
	intervals  map[[2]int]string // by first property and length
	members    map[int]string    // by property
}

func (m *memberRules) findRequired() {
	n := len(m.properties)
	m.required = make([]int, n+1)
	m.required[n] = n
	for i := n - 1; i >= 0; i-- {
		m.required[i] = m.required[i+1]
		if m.properties[i].required {
			m.required[i] = i
		}
	}
}

// place is what can follow behind a quote where property i is the first that may
// come; "" if nothing can.
func (m *memberRules) place(i int) string {
	end := min(m.required[i]+1, len(m.properties))
	var ways []string
	for from := i; from < end; {
		size := largestInterval(from, end)
		ways = append(ways, m.interval(from, size))
		from += size
	}
	if m.required[i] == len(m.properties) && m.other != "" {
		ways = append(ways, fmt.Sprintf(`%s (%s "\"" %s)*`, m.other, m.comma(), m.other))
	}
	if len(ways) == 1 {
		return ways[0]
	}
	if len(ways) == 0 {
		return ""
	}
	return m.define("p", strings.Join(ways, " | "))
}

// largestInterval is the largest power of two that divides from and fits.
func largestInterval(from, end int) int {
	size := 1 << (bits.Len(uint(end-from)) - 1)
	if from > 0 {
		size = min(size, from&-from)
	}
	return size
}

// interval is the members of size properties, one of which is next.
func (m *memberRules) interval(from, size int) string {
	key := [2]int{from, size}
	if known, ok := m.intervals[key]; ok {
		return known
	}
	choices := make([]choice, size)
	for i := range choices {
		name := appendQuoted(nil, m.properties[from+i].name)
		choices[i] = choice{string(name[1:]) + ":", m.member(from + i)}
	}
	m.work -= size
	m.intervals[key] = m.literals(choices)
	return m.intervals[key]
}

// member is the value of property i and what follows it.
func (m *memberRules) member(i int) string {
	if known, ok := m.members[i]; ok {
		return known
	}
	expr := join(m.gap(), m.properties[i].value, m.behind(i+1))
	shared := i > 0 && !m.properties[i-1].required || !m.properties[i].required
	if shared || i%inlineMax == 0 {
		expr = m.define("m", expr)
	}
	m.members[i] = expr
	return expr
}

// behind is what follows a value if property i is the first that may come.
func (m *memberRules) behind(i int) string {
	next := m.place(i)
	if next == "" {
		return ""
	}
	next = join(m.comma(), `"\""`, next)
	if m.required[i] < len(m.properties) {
		return next
	}
	return "(" + next + ")?"
}
