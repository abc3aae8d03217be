package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Builder puts a grammar together from schemas and from rules of the caller. It
// is used once and by one goroutine.
type Builder struct {
	rules  []rule
	names  map[string]bool
	bodies map[string]string // name of the rule with that body
	shared map[string]string // name of the rule, or expression, for a key
	origin map[string]*value // by rule: the schema that it was made for
	at     *value            // the schema that is being compiled; nil: none
	serial int               // the last number given to a name
	size   int               // bytes of all rules
	work   int               // left of schemaWork
}

type rule struct{ name, body string }

// ruleBytes is what a rule has besides name and body.
const ruleBytes = len(" ::= \n")

// rootName is the rule that every grammar begins with.
const rootName = "root"

// NewBuilder returns an empty grammar.
func NewBuilder() *Builder {
	return &Builder{
		names:  map[string]bool{rootName: true},
		bodies: map[string]string{},
		shared: map[string]string{},
		origin: map[string]*value{},
		work:   schemaWork,
	}
}

// FromSchema is the grammar of the JSON texts that a schema describes. The error
// is a *Error.
func FromSchema(schema json.RawMessage) (string, error) {
	b := NewBuilder()
	root, err := b.Schema(schema)
	if err != nil {
		return "", err
	}
	gbnf, err := b.Grammar(root)
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		return "", &Error{Reason: syntax.Reason}
	}
	return gbnf, err
}

// JSON is the grammar of any JSON object.
func JSON() string {
	b := NewBuilder()
	return b.text(b.JSONObject())
}

// Literal is text as a quoted GBNF literal, to be used in the body of a rule.
func (b *Builder) Literal(text string) string { return quote(text) }

// Rule adds a rule and returns its name: name without the characters that rule
// names cannot have, and with a number if it is taken. The body is checked by
// Grammar.
func (b *Builder) Rule(name, body string) string {
	name = b.reserve(name)
	b.fill(name, body)
	return name
}

// Grammar is the whole text; root is a rule's name or any other body. It fails if
// the text breaks a limit or would not work: with a *Error if a schema is at
// fault, else with a *SyntaxError.
func (b *Builder) Grammar(root string) (string, error) {
	if err := b.checkSize(); err != nil {
		return "", err
	}
	text := b.text(root)
	err := Check(text)
	var syntax *SyntaxError
	if errors.As(err, &syntax) {
		rule := syntax.Rule
		if rule == rootName {
			rule = root
		}
		if schema, ok := b.origin[rule]; ok {
			return "", errorAt(schema, "", "%s", syntax.Reason)
		}
	}
	if err != nil {
		return "", err
	}
	return text, nil
}

func (b *Builder) text(root string) string {
	var out strings.Builder
	out.Grow(b.size + len(root) + 16)
	out.WriteString(rootName + " ::= " + root + "\n")
	for _, r := range b.rules {
		out.WriteString(r.name + " ::= " + r.body + "\n")
	}
	return out.String()
}

// checkSize fails once the rules or the work exceed their limits. Compiling a
// schema calls it often enough that it stops soon after.
func (b *Builder) checkSize() error {
	switch {
	case b.size > MaxGrammarBytes:
		return &Error{Reason: fmt.Sprintf("its grammar has more than %d bytes", MaxGrammarBytes)}
	case len(b.rules) > MaxGrammarRules:
		return &Error{Reason: fmt.Sprintf("its grammar has more than %d rules", MaxGrammarRules)}
	case b.work < 0:
		return &Error{Reason: errTooMuchWork.Error()}
	}
	return nil
}

// reserve takes a name for a rule whose body comes later.
func (b *Builder) reserve(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && isWordByte(byte(r)) {
			return r
		}
		return -1
	}, name)
	if name == "" {
		name = "rule"
	}
	unique := name
	for b.names[unique] {
		b.serial++
		unique = name + "-" + strconv.Itoa(b.serial)
	}
	b.names[unique] = true
	return unique
}

// fill gives a reserved name its body.
func (b *Builder) fill(name, body string) {
	if b.at != nil {
		b.origin[name] = b.at
	}
	b.rules = append(b.rules, rule{name, body})
	b.size += len(name) + len(body) + ruleBytes
}

// truncate drops all rules but the first n. Work that has been done stays done, but
// what needs none is still possible.
func (b *Builder) truncate(n int) {
	dropped := map[string]bool{}
	for _, r := range b.rules[n:] {
		dropped[r.name] = true
		b.size -= len(r.name) + len(r.body) + ruleBytes
		if b.bodies[r.body] == r.name {
			delete(b.bodies, r.body)
		}
	}
	for key, rule := range b.shared {
		if dropped[rule] {
			delete(b.shared, key)
		}
	}
	b.rules = b.rules[:n]
	b.work = max(b.work, 0)
}

// define is the name of a rule with that body, which is added if there is none.
func (b *Builder) define(hint, body string) string {
	if name, ok := b.bodies[body]; ok {
		return name
	}
	name := b.Rule(hint, body)
	b.bodies[body] = name
	return name
}

// once is the name of a rule of this package's own.
func (b *Builder) once(name, body string) string {
	if known, ok := b.shared[name]; ok {
		return known
	}
	b.shared[name] = b.define(name, body)
	return b.shared[name]
}

// JSONObject is the rule for any JSON object.
func (b *Builder) JSONObject() string {
	b.JSONValue()
	return b.shared["object"]
}

// JSONValue is the rule for any JSON value.
func (b *Builder) JSONValue() string {
	if name, ok := b.shared["value"]; ok {
		return name
	}
	value, object, array := b.reserve("value"), b.reserve("object"), b.reserve("array")
	b.shared["value"], b.shared["object"], b.shared["array"] = value, object, array
	text, number := b.anyString(), b.anyNumber()
	b.fill(value, fmt.Sprintf(`%s | %s | %s | %s | "true" | "false" | "null"`, object, array, text, number))
	member := b.define("member", fmt.Sprintf(`%s ":" %s %s`, text, b.gap(), value))
	b.fill(object, b.bracketed("{", listOf(member, b.comma()), "}"))
	b.fill(array, b.bracketed("[", listOf(value, b.comma()), "]"))
	return value
}

// blank is what may stand between the tokens of a JSON text: nothing, a blank, or
// a line break with indentation. It is never followed by another.
func (b *Builder) blank() string {
	return b.once("blank", fmt.Sprintf(`" " | "\n" [ \t]{0,%d} | ""`, indentMax))
}

// gap is what may stand after a colon.
func (b *Builder) gap() string { return b.once("gap", `" " | ""`) }

func (b *Builder) comma() string { return b.once("comma", `"," `+b.blank()) }

// bracketed is open, perhaps items, and close.
func (b *Builder) bracketed(open, items, closing string) string {
	blank := b.blank()
	return fmt.Sprintf(`%s %s (%s %s)? %s`, quote(open), blank, items, blank, quote(closing))
}

// listOf is one item or more.
func listOf(item, comma string) string { return fmt.Sprintf("%s (%s %s)*", item, comma, item) }

func (b *Builder) anyString() string {
	return b.once("string", fmt.Sprintf(`"\"" %s "\""`, b.freeText(anyRune())))
}

// anyNumber is bounded in its digits: a model that has lost the thread writes
// digits for ever, and a double holds no more.
func (b *Builder) anyNumber() string {
	return b.once("number", fmt.Sprintf(`"-"? ("0" | [1-9] [0-9]{0,%d}) ("." [0-9]{1,%d})? ([eE] [+\x2D]? [0-9]{1,%d})?`,
		integerDigits-1, fractionDigits, exponentDigits))
}

func (b *Builder) anyInteger() string {
	return b.once("integer", fmt.Sprintf(`"0" | "-"? [1-9] [0-9]{0,%d}`, integerDigits-1))
}
