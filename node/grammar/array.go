package grammar

import "fmt"

// arrayPlan is what several schemas demand of the elements of an array.
type arrayPlan struct {
	first []string // rules of the first elements
	rest  string   // rule of those behind; "" if there are none
	countSpec
}

// array is an expression for the arrays that s allows.
func (c *compiler) array(s *spec) (string, error) {
	p := arrayPlan{countSpec: s.array}
	if err := c.planArray(s, &p); err != nil {
		return "", err
	}
	if p.rest == "" && (p.max == unbounded || p.max > int64(len(p.first))) {
		p.max = int64(len(p.first))
	}
	if p.impossible() {
		return "", impossible(s.last(), "maxItems", "an array needs %d elements and can have %d", p.min, p.max)
	}
	if p.max != unbounded && int64(len(p.first)) > p.max {
		p.first = p.first[:p.max]
	}
	if p.max == 0 {
		return fmt.Sprintf(`"[" %s "]"`, c.blank()), nil
	}
	blank := c.blank()
	if p.min == 0 {
		return fmt.Sprintf(`"[" %s (%s %s)? "]"`, blank, c.elements(p), blank), nil
	}
	return fmt.Sprintf(`"[" %s %s %s "]"`, blank, c.elements(p), blank), nil
}

// planArray compiles the schemas of the elements. Element i of the array must
// satisfy what each schema says about its place.
func (c *compiler) planArray(s *spec, p *arrayPlan) error {
	var tuples [][]*value
	var rests []*value
	n := 0
	for _, v := range s.schemas {
		tuple, rest, err := elementSchemas(v)
		if err != nil {
			return err
		}
		tuples, rests = append(tuples, tuple), append(rests, rest)
		n = max(n, len(tuple))
	}
	for i := 0; i <= n; i++ {
		var at []*value
		for j, tuple := range tuples {
			if i < len(tuple) {
				at = append(at, tuple[i])
			} else if rests[j] != nil {
				at = append(at, rests[j])
			}
		}
		c.work -= len(tuples)
		rule, err := c.inside(at...)
		if isImpossible(err) {
			// The array ends before this place.
			return c.endsAt(s, p, i, err)
		}
		if err != nil {
			return err
		}
		if i < n {
			p.first = append(p.first, rule)
		} else {
			p.rest = rule
		}
	}
	return nil
}

// endsAt fails if the array must be longer than n.
func (c *compiler) endsAt(s *spec, p *arrayPlan, n int, reason error) error {
	if p.min > int64(n) {
		return impossible(s.last(), "minItems", "there can be %d elements only: %s", n, clip(reason.Error()))
	}
	return nil
}

// elementSchemas reads the keywords about elements: those of the first ones, and
// that of all others, nil if it is anything.
func elementSchemas(v *value) (tuple []*value, rest *value, err error) {
	items, keyword := v.get("items"), "prefixItems"
	list := v.get(keyword)
	rest = items
	if items != nil && items.kind == kindArray {
		// Before 2020 a list was the tuple, and additionalItems the rest.
		list, rest, keyword = items, v.get("additionalItems"), "items"
	}
	if list != nil {
		if list.kind != kindArray {
			return nil, nil, errorAt(v, keyword, "it is not a list of schemas")
		}
		tuple = list.items
	}
	if u := v.get("unevaluatedItems"); u != nil && u.kind == kindFalse && rest == nil {
		rest = u
	}
	return tuple, rest, nil
}

// elements is a sequence of at least one element. Those of the tuple come first,
// then any number of others; each may be the last once there are enough.
func (c *compiler) elements(p arrayPlan) string {
	n := int64(len(p.first))
	after := "" // what follows the tuple
	if p.rest != "" && (p.max == unbounded || p.max > n) {
		after = c.others(p, n)
	}
	if n == 0 {
		return after
	}
	for i := n - 1; i > 0; i-- {
		after = join(c.comma(), p.first[i], after)
		switch {
		case i >= p.min:
			after = "(" + c.define("more", after) + ")?"
		case i%inlineMax == 0:
			after = c.define("more", after)
		}
	}
	return join(p.first[0], after)
}

// others are the elements behind n of the tuple. Without a tuple the first has no
// comma.
func (c *compiler) others(p arrayPlan, n int64) string {
	head := ""
	if n == 0 {
		head, n = p.rest, 1
	}
	item := c.define("item", join(c.comma(), p.rest))
	r := repetition{item: item, per: arrayRepeat / 2, native: arrayRepeat}
	hi := int64(unbounded)
	if p.max != unbounded {
		hi = p.max - n
	}
	return join(head, c.counted(r, max(p.min-n, 0), hi))
}
