package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schema adds the rules for the JSON texts that a JSON Schema describes and
// returns the name of the first. The error is a *Error; then nothing was added.
func (b *Builder) Schema(schema json.RawMessage) (rule string, err error) {
	root, err := parseValue(schema)
	if err != nil {
		return "", err
	}
	c := &compiler{
		Builder: b,
		root:    root,
		known:   map[string]*compiled{},
		checked: map[*value]bool{},
	}
	rules := len(b.rules)
	rule, err = c.rule(root)
	if err != nil {
		b.at = nil
		b.truncate(rules)
	}
	return rule, err
}

// compiler turns one schema into rules.
//
// A place in a JSON text must often satisfy several schemas at once: those of
// allOf and $ref, and the same property declared twice. So what is compiled is a
// conjunction. Its alternatives (anyOf, oneOf) are multiplied out, and the rest is
// merged keyword by keyword into one spec.
type compiler struct {
	*Builder
	root    *value
	known   map[string]*compiled // by conjunction.key
	level   []string             // keys that are being compiled and have matched no character yet
	checked map[*value]bool      // schemas whose keywords are supported
	texts   *terms               // made when the first pattern is met
}

// compiled is a conjunction that has been compiled, or is being.
type compiled struct {
	name string
	used bool // something refers to it that was compiled before it was done
	err  error
}

// conjunction is a set of schemas that must all hold. Schemas are there without
// what $ref, allOf, anyOf and oneOf say.
type conjunction struct {
	at      *value // where it is used, for errors
	schemas []*value
	choices []*value // the arrays of anyOf and oneOf of which one member must hold, too
	chosen  []*value // those that have been multiplied out
	never   *Error   // why nothing satisfies it
}

func (k *conjunction) key() string {
	var b strings.Builder
	for _, s := range k.schemas {
		b.WriteString(strconv.Itoa(s.id) + ",")
	}
	b.WriteByte('|')
	for _, s := range k.choices {
		b.WriteString(strconv.Itoa(s.id) + ",")
	}
	return b.String()
}

// clone can be added to without changing k.
func (k *conjunction) clone() *conjunction {
	return &conjunction{at: k.at, schemas: slices.Clone(k.schemas), choices: slices.Clone(k.choices), chosen: slices.Clone(k.chosen), never: k.never}
}

// impossibleError is an Error for a schema that nothing satisfies. A union drops
// such a branch, and an object an optional property.
type impossibleError struct{ cause *Error }

func (e impossibleError) Error() string { return e.cause.Error() }

func impossible(at *value, keyword, format string, args ...any) error {
	return impossibleError{errorAt(at, keyword, format, args...)}
}

func isImpossible(err error) bool {
	var e impossibleError
	return errors.As(err, &e)
}

// errorAt refuses a schema.
func errorAt(at *value, keyword, format string, args ...any) *Error {
	return &Error{Path: at.path(), Keyword: keyword, Reason: fmt.Sprintf(format, args...)}
}

// rule is the name of the rule for the top of a schema.
func (c *compiler) rule(v *value) (string, error) {
	name, err := c.all(v)
	var e impossibleError
	if errors.As(err, &e) {
		return "", e.cause
	}
	return name, err
}

// all is the name of the rule for what satisfies all schemas.
func (c *compiler) all(schemas ...*value) (string, error) {
	k := &conjunction{at: c.root}
	visit := map[*value]bool{}
	for _, s := range schemas {
		k.at = s
		if err := c.add(k, s, visit); err != nil {
			return "", err
		}
	}
	return c.compile(k)
}

// inside is all for a place behind a character of the surrounding value: there a
// schema may come back to itself.
func (c *compiler) inside(schemas ...*value) (string, error) {
	level := c.level
	c.level = nil
	defer func() { c.level = level }()
	return c.all(schemas...)
}

// add puts a schema into k, with everything that it refers to. visit tells for
// the schemas on the way whether they are done (true) or under way (false).
func (c *compiler) add(k *conjunction, v *value, visit map[*value]bool) error {
	c.work--
	switch v.kind {
	case kindTrue:
		return nil
	case kindFalse:
		if k.never == nil {
			k.never = errorAt(v, "", "it is false, which nothing satisfies")
		}
		return nil
	case kindObject:
	default:
		return errorAt(v, "", "it is neither an object nor true or false")
	}
	if done, seen := visit[v]; done {
		return nil
	} else if seen {
		return errorAt(v, "$ref", backToItself)
	}
	visit[v] = false
	defer func() { visit[v] = true }()
	if err := c.supported(v); err != nil {
		return err
	}
	if err := c.addReferred(k, v, visit); err != nil {
		return err
	}
	// One that only refers to others is left out, so that all references to a
	// schema are the same conjunction.
	if constrains(v) && !slices.Contains(k.schemas, v) {
		k.schemas = append(k.schemas, v)
		c.work -= len(k.schemas) / 8
	}
	return c.addChoices(k, v)
}

const backToItself = "the schema refers back to itself without describing any value"

func constrains(v *value) bool {
	return slices.ContainsFunc(v.keys, func(keyword string) bool {
		switch keyword {
		case "type", "nullable", "enum", "const", "format":
			return true
		}
		return keywordTypes(keyword) != 0
	})
}

// addReferred adds what $ref and allOf of v name.
func (c *compiler) addReferred(k *conjunction, v *value, visit map[*value]bool) error {
	if ref := v.get("$ref"); ref != nil {
		target, err := c.resolve(v, ref)
		if err != nil {
			return err
		}
		if err := c.add(k, target, visit); err != nil {
			return err
		}
	}
	all := v.get("allOf")
	if all == nil {
		return nil
	}
	if err := schemaList(v, "allOf", all); err != nil {
		return err
	}
	for _, s := range all.items {
		if err := c.add(k, s, visit); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) addChoices(k *conjunction, v *value) error {
	for _, keyword := range []string{"anyOf", "oneOf"} {
		list := v.get(keyword)
		if list == nil {
			continue
		}
		if err := schemaList(v, keyword, list); err != nil {
			return err
		}
		if slices.Contains(k.chosen, list) {
			return errorAt(v, keyword, backToItself)
		}
		c.work -= len(k.choices) / 8
		if !slices.Contains(k.choices, list) {
			k.choices = append(k.choices, list)
		}
	}
	return nil
}

func schemaList(at *value, keyword string, list *value) error {
	if list.kind != kindArray || len(list.items) == 0 {
		return errorAt(at, keyword, "it is not a list of schemas")
	}
	return nil
}

func (c *compiler) resolve(at, ref *value) (*value, error) {
	if ref.kind != kindString {
		return nil, errorAt(at, "$ref", "it is not a string")
	}
	fragment, ok := strings.CutPrefix(ref.text, "#")
	if !ok {
		return nil, errorAt(at, "$ref", "%q is outside the schema; allowed: # and what begins with #/", clip(ref.text))
	}
	c.work -= len(fragment) / workBytes
	target := c.root.lookup(fragment)
	if target == nil {
		return nil, errorAt(at, "$ref", "%q leads nowhere", clip(ref.text))
	}
	return target, nil
}

// compile is the name of the rule for k.
func (c *compiler) compile(k *conjunction) (string, error) {
	if err := c.checkSize(); err != nil {
		return "", err
	}
	if k.never != nil {
		return "", impossibleError{k.never}
	}
	key := k.key()
	c.work -= len(key) / 4
	if known, ok := c.known[key]; ok {
		if slices.Contains(c.level, key) {
			return "", errorAt(k.at, "$ref", backToItself)
		}
		known.used = known.used || known.err == nil
		return known.name, known.err
	}
	if len(c.level) >= MaxSchemaDepth {
		return "", errorAt(k.at, "$ref", "more than %d alternatives refer to each other", MaxSchemaDepth)
	}
	this := &compiled{name: c.reserve("v")}
	c.known[key] = this
	outer := c.at
	c.at, c.level = k.at, append(c.level, key)
	body, err := c.body(k)
	if err == nil {
		c.finish(this, body)
	} else {
		this.err = c.failed(this, err)
	}
	c.at, c.level = outer, c.level[:len(c.level)-1]
	if this.err != nil {
		return "", this.err
	}
	return this.name, nil
}

// failed is final where rules are there already that refer to the failed one.
func (c *compiler) failed(this *compiled, err error) error {
	var e impossibleError
	if this.used && errors.As(err, &e) {
		return e.cause
	}
	return err
}

// finish makes the rule, or drops it for one that is the same.
func (c *compiler) finish(this *compiled, body string) {
	if name, ok := c.bodies[body]; ok && !this.used {
		this.name = name
		return
	}
	if c.names[body] && !this.used {
		this.name = body
		return
	}
	c.fill(this.name, body)
	c.bodies[body] = this.name
}

func (c *compiler) body(k *conjunction) (string, error) {
	if len(k.choices) > 0 {
		return c.union(k)
	}
	s, err := c.merge(k.schemas)
	if err != nil {
		return "", err
	}
	return c.spec(s)
}

// union multiplies out the first choice of k.
func (c *compiler) union(k *conjunction) (string, error) {
	list := k.choices[0]
	var ways []string
	listed := map[string]bool{}
	var nothing error
	for _, s := range list.items {
		branch := k.clone()
		branch.at = s
		branch.choices = branch.choices[1:]
		branch.chosen = append(branch.chosen, list)
		c.work -= len(branch.schemas) + len(branch.choices) + len(branch.chosen)
		err := c.add(branch, s, map[*value]bool{})
		var name string
		if err == nil {
			name, err = c.compile(branch)
		}
		if isImpossible(err) {
			nothing = err
			continue
		}
		if err != nil {
			return "", err
		}
		if !listed[name] {
			listed[name] = true
			ways = append(ways, name)
		}
	}
	if len(ways) == 0 {
		return "", impossible(list.parent, list.key, "no branch can be satisfied; the last one: %s", clip(nothing.Error()))
	}
	return strings.Join(ways, " | "), nil
}
