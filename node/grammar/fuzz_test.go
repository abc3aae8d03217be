package grammar

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

func FuzzFromSchema(f *testing.F) {
	for _, s := range []string{
		`true`, `{"type":"object","properties":{"a":{"type":"string"},"b":{"items":{"$ref":"#"}}},"required":["a"],"additionalProperties":{"type":"null"}}`,
		`{"$defs":{"x":{"enum":[1,"é",null,{"a":[]}]}},"anyOf":[{"$ref":"#/$defs/x"},{"pattern":"^(a|b)+[^c-e]?\\d{2,3}$","maxLength":9}]}`,
		`{"type":"number","minimum":-1.5,"exclusiveMaximum":20}`, `{"type":"integer","minimum":1e3,"maximum":99999}`, `{"multipleOf":0.01}`,
		`{"minLength":3,"maxLength":700}`, `{"format":"date-time"}`, `{"prefixItems":[true,false],"items":{"type":"null"},"minItems":1,"maxItems":4000}`,
		`{"allOf":[{"properties":{"a":{"minimum":1}}},{"properties":{"a":{"maximum":2}},"oneOf":[{"required":["a"]},{"required":["b"]}]}]}`,
		`{"allOf":[{"$ref":"#"}]}`, `{"$ref":"#/$defs/P","$defs":{"P":{"$ref":"#/$defs/P"}}}`, `{"pattern":"(((a*)*)*)*"}`, `{"pattern":"a.{20}$"}`,
		`{"propertyNames":{"enum":["a","b"]},"additionalProperties":true,"maxProperties":2}`, `{"pattern":"[\\u{1F600}-\\uD83D\\uDE4F\\x41]"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, schema []byte) {
		start := time.Now()
		gbnf, err := FromSchema(schema)
		if took := time.Since(start); took > 10*hostileTime {
			t.Errorf("took %v", took)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %T %v, want an *Error", err, err)
			}
			return
		}
		if len(gbnf) > MaxGrammarBytes {
			t.Errorf("%d bytes", len(gbnf))
		}
		checkSamples(t, gbnf, schema)
	})
}

// checkSamples makes sure that what a grammar matches is JSON and nothing follows.
func checkSamples(t *testing.T, gbnf string, schema []byte) {
	if len(gbnf) > 1<<16 {
		return
	}
	m := newMatcher(t, gbnf)
	rng := rand.New(rand.NewPCG(uint64(len(gbnf)), 0))
	for range 3 {
		text := m.sample(rng, 200)
		if len(text) > 1<<16 {
			return
		}
		if !json.Valid([]byte(text)) {
			t.Fatalf("schema %q made %q", schema, text)
		}
		if ok, _ := m.matches(text); !ok {
			t.Fatalf("schema %q made %q, which does not match", schema, text)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		JSON(), arithmetic, smallC, moves, "root ::= root", `root ::= ("a"?)*`, `root ::= "a"{2}{3}[b-]{0,4}`, "root ::= \"\\x41\\u00e9\\U0001F600\" | [^\\]] . # x\n",
		"root ::= s\ns ::= \"x\" s \"y\" | \"x\" s \"z\" | \"x\"", `root ::= (("a" "b"?){0,60} "a"?){0,60}`, "root ::= <a>", "a ::=\nroot ::= a |",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, gbnf string) {
		start := time.Now()
		err := Check(gbnf)
		if took := time.Since(start); took > 10*hostileTime {
			t.Errorf("took %v", took)
		}
		var e *SyntaxError
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("got %T %v, want a *SyntaxError", err, err)
		}
		if err == nil && len(gbnf) < 1<<14 {
			m := newMatcher(t, gbnf)
			text := m.sample(rand.New(rand.NewPCG(1, 0)), 100)
			if len(text) < 1<<14 {
				if ok, _ := m.matches(text); !ok {
					t.Fatalf("%q made %q, which does not match", gbnf, text)
				}
			}
		}
	})
}
