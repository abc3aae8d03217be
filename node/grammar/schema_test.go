package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestSchema(t *testing.T) {
	tests := []struct {
		name, schema string
		yes, no      []string
	}{
		{"true", `true`, []string{`1`, `"a"`, `{"a":[null,{}]}`, `[]`, `false`}, []string{``, `nul`, `{"a"}`, `[1,]`, `1 `}},
		{"empty", `{}`, []string{`-1.5e+3`, `"\ud83d\ude00"`}, []string{`"\ud83d"`, `01`, `"` + "\n" + `"`, `"` + "\x7f" + `"`, ` 1`}},
		{"annotations only", `{"title":"a","description":"b","default":1,"examples":[2],"$id":"x","$schema":"y","x-vendor":{"not":{}}}`, []string{`1`, `"a"`}, nil},
		{"null", `{"type":"null"}`, []string{`null`}, []string{`0`}},
		{"boolean", `{"type":"boolean"}`, []string{`true`, `false`}, []string{`null`}},
		{"integer", `{"type":"integer"}`, []string{`0`, `-7`, `1234567890123456`}, []string{`-0`, `1.0`, `01`, `1e3`, `"1"`}},
		{"number", `{"type":"number"}`, []string{`0`, `-7.25`, `1e-9`, `2E+10`}, []string{`.5`, `1.`, `+1`}},
		{"type list", `{"type":["string","null"]}`, []string{`"a"`, `null`}, []string{`1`}},
		{"nullable", `{"type":"integer","nullable":true}`, []string{`5`, `null`}, []string{`"a"`}},
		{"type from keyword", `{"minLength":2}`, []string{`"ab"`}, []string{`"a"`, `1`}},
		{"types from keywords", `{"minLength":2,"minimum":3}`, []string{`"ab"`, `3`}, []string{`"a"`, `2`, `null`}},

		{"object", `{"properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"]}`,
			[]string{`{"a":1,"b":"x","c":null}`, `{"b":"x"}`, `{"a": 1, "b": "x"}`, "{\n  \"b\": \"x\",\n  \"c\": null\n}", `{"b":"x","c":null}`},
			[]string{`{}`, `{"a":1}`, `{"b":"x","a":1}`, `{"b":"x","d":1}`, `{"a":"1","b":"x"}`, `{"b":"x",}`, `{"b":"x"}}`, `{,"b":"x"}`, `{"b" :"x"}`}},
		{"all optional", `{"properties":{"a":true,"b":true,"c":true}}`, []string{`{}`, `{"a":1}`, `{"c":1}`, `{"a":1,"c":1}`, `{"b":1,"c":1}`, `{ }`}, []string{`{"c":1,"a":1}`, `{"a":1,"a":1}`}},
		{"free object", `{"type":"object"}`, []string{`{}`, `{"x":1,"y":{"z":[]}}`}, []string{`[]`, `{"x":1,}`}},
		{"no properties", `{"type":"object","properties":{}}`, []string{`{}`}, []string{`{"a":1}`}},
		{"closed", `{"type":"object","additionalProperties":false}`, []string{`{}`}, []string{`{"a":1}`}},
		{"open", `{"properties":{"ab":{"type":"integer"},"a":{"type":"null"}},"additionalProperties":{"type":"string"}}`,
			[]string{`{"ab":1,"abc":"x"}`, `{"":"x"}`, `{"b":"x","a\"":"y"}`, `{"a":null}`, `{"A":"x"}`}, []string{`{"ab":"x"}`, `{"x":1}`, `{"a":"x"}`, `{"x":"y","ab":1}`}},
		{"required only", `{"type":"object","required":["k"]}`, []string{`{"k":1}`, `{"k":{},"z":2}`}, []string{`{}`, `{"z":1}`}},
		{"dictionary", `{"additionalProperties":{"type":"integer"},"minProperties":1,"maxProperties":2}`, []string{`{"a":1}`, `{"a":1,"b":2}`}, []string{`{}`, `{"a":1,"b":2,"c":3}`, `{"a":"x"}`}},
		{"property names", `{"additionalProperties":true,"propertyNames":{"pattern":"^[a-z]+$"}}`, []string{`{}`, `{"abc":1}`}, []string{`{"A":1}`}},
		{"at least one", `{"properties":{"a":{"type":"null"},"b":{"type":"null"}},"minProperties":1}`, []string{`{"a":null}`, `{"b":null}`, `{"a":null,"b":null}`}, []string{`{}`}},
		{"odd names", `{"properties":{"\"q\\\u0001é😀":{"type":"null"}},"required":["\"q\\\u0001é😀"]}`, []string{`{"\"q\\\u0001é😀":null}`}, nil},
		{"optional that can have no value", `{"properties":{"a":false,"b":{"type":"null"}}}`, []string{`{"b":null}`, `{}`}, []string{`{"a":null}`}},
		{"unevaluated", `{"allOf":[{"properties":{"a":{"type":"null"}}}],"properties":{"b":{"type":"null"}},"unevaluatedProperties":false}`, []string{`{"a":null,"b":null}`}, []string{`{"c":1}`}},

		{"array", `{"type":"array","items":{"type":"integer"}}`, []string{`[]`, `[1]`, `[1,2]`, `[1, 2]`, "[\n 1,\n 2\n]", `[ ]`}, []string{`[1,]`, `["a"]`, `[,1]`}},
		{"array bounds", `{"items":{"type":"null"},"minItems":1,"maxItems":3}`, []string{`[null]`, `[null,null,null]`}, []string{`[]`, `[null,null,null,null]`}},
		{"exactly two", `{"items":{"type":"null"},"minItems":2,"maxItems":2}`, []string{`[null,null]`}, []string{`[null]`, `[null,null,null]`}},
		{"no items", `{"type":"array","maxItems":0}`, []string{`[]`}, []string{`[1]`}},
		{"tuple", `{"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"}}`, []string{`[]`, `[1]`, `[1,"a"]`, `[1,"a",null,null]`}, []string{`["a"]`, `[1,null]`, `[1,"a",2]`}},
		{"tuple with minimum", `{"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"minItems":3,"maxItems":4}`, []string{`[1,"a",null]`, `[1,"a",null,null]`}, []string{`[1,"a"]`, `[1,"a",null,null,null]`}},
		{"old tuple", `{"items":[{"type":"integer"}],"additionalItems":false}`, []string{`[]`, `[1]`}, []string{`[1,2]`}},
		{"closed tuple", `{"prefixItems":[{"type":"integer"},false]}`, []string{`[]`, `[1]`}, []string{`[1,2]`}},

		{"length", `{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"abc"`, `"é😀"`, `"\n\u0041"`, `"\ud83d\ude00x"`}, []string{`"a"`, `"abcd"`, `""`}},
		{"exact length", `{"type":"string","minLength":20,"maxLength":20}`, []string{`"` + strings.Repeat("x", 20) + `"`}, []string{`"` + strings.Repeat("x", 19) + `"`, `"` + strings.Repeat("x", 21) + `"`}},
		{"pattern", `{"pattern":"^(a|b){1,8}-[0-9]{4}$"}`, []string{`"a-0123"`, `"abababab-9999"`}, []string{`"-0123"`, `"ababababa-9999"`, `"a-012"`}},
		{"pattern in the middle", `{"pattern":"foo"}`, []string{`"foo"`, `"xfoo\"y"`}, []string{`"fo"`}},
		{"pattern with quotes", `{"pattern":"^[\"\\\\\\n/]+$"}`, []string{`"\"\\\n/"`}, []string{`"x"`, `""`}},
		{"pattern alternatives", `{"pattern":"^a$|^b"}`, []string{`"a"`, `"bx"`}, []string{`"ax"`, `"xb"`}},
		{"pattern and length", `{"pattern":"^[a-z][a-z0-9]*$","minLength":2,"maxLength":4}`, []string{`"a1"`, `"abcd"`}, []string{`"a"`, `"abcde"`, `"1a"`}},
		{"one class and length", `{"pattern":"^[a-z]+$","maxLength":60000}`, []string{`"a"`, `"` + strings.Repeat("a", 60000) + `"`}, []string{`""`, `"` + strings.Repeat("a", 60001) + `"`}},
		{"two patterns", `{"allOf":[{"pattern":"a"},{"pattern":"b$"}],"type":"string"}`, []string{`"ab"`, `"xayb"`}, []string{`"ba"`, `"b"`}},

		{"integer range", `{"type":"integer","minimum":-5,"maximum":3}`, []string{`-5`, `-1`, `0`, `3`}, []string{`-6`, `4`, `-0`, `33`, `-55`}},
		{"exclusive", `{"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":101}`, []string{`10`, `99`, `100`}, []string{`9`, `101`, `1000`}},
		{"fractional bounds of an integer", `{"type":"integer","minimum":0.5,"maximum":2.5}`, []string{`1`, `2`}, []string{`0`, `3`}},
		{"minimum", `{"type":"integer","minimum":1}`, []string{`1`, `10`, `999999`}, []string{`0`, `-1`}},
		{"number range", `{"type":"number","minimum":0,"maximum":1}`, []string{`0`, `1`, `0.5`, `1.0`, `0.001`}, []string{`1.1`, `-0.1`, `2`, `1e0`, `1.01`}},
		{"number between", `{"type":"number","exclusiveMinimum":-1.25,"maximum":10.5}`, []string{`-1.2`, `-1.249`, `0`, `-0.5`, `10.5`, `9.999`, `10.50`}, []string{`-1.25`, `-1.250`, `10.51`, `-2`}},
		{"old exclusive", `{"type":"integer","minimum":3,"exclusiveMinimum":true}`, []string{`4`}, []string{`3`}},
		{"cents", `{"type":"number","multipleOf":0.01,"minimum":0}`, []string{`1`, `1.5`, `1.55`}, []string{`1.555`}},
		{"multiple of one", `{"type":"number","multipleOf":1.0}`, []string{`12`}, []string{`1.5`}},
		{"large bounds", `{"type":"integer","minimum":9007199254740993,"maximum":1e20}`, []string{`9007199254740993`, `100000000000000000000`}, []string{`9007199254740992`, `100000000000000000001`}},

		{"enum", `{"enum":["cat","car",1,12,null,{"a":[1,2]},"","👩‍👩‍👧 é 日本語 🙂","\"\\\n"]}`, []string{`"cat"`, `"car"`, `1`, `12`, `null`, `{"a":[1,2]}`, `""`, `"👩‍👩‍👧 é 日本語 🙂"`, `"\"\\\n"`}, []string{`"ca"`, `123`, `2`}},
		{"const", `{"const":-1.50}`, []string{`-1.50`}, []string{`-1.5`}},
		{"enum and type", `{"type":"string","enum":["a",1,"bcd"],"maxLength":2}`, []string{`"a"`}, []string{`1`, `"bcd"`}},
		{"enum and pattern", `{"enum":["a1","b"],"pattern":"\\d"}`, []string{`"a1"`}, []string{`"b"`}},
		{"enum and enum", `{"allOf":[{"enum":[1,2,3]},{"enum":[4,3.0,2]}]}`, []string{`2`, `3`}, []string{`1`, `4`}},

		{"anyOf", `{"anyOf":[{"type":"null"},{"const":"x"}]}`, []string{`null`, `"x"`}, []string{`"y"`}},
		{"oneOf", `{"oneOf":[{"type":"integer"},{"type":"boolean"}]}`, []string{`1`, `true`}, []string{`"y"`}},
		{"anyOf with siblings", `{"properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			[]string{`{"a":null}`, `{"b":null}`, `{"a":null,"b":null}`}, []string{`{}`}},
		{"anyOf of an empty branch", `{"anyOf":[false,{"type":"null"}]}`, []string{`null`}, nil},
		{"allOf", `{"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":{"type":"null"}}}]}`,
			[]string{`{"a":3}`, `{"a":4,"b":null}`}, []string{`{"a":2}`, `{"b":null}`}},
		{"allOf and additionalProperties", `{"allOf":[{"properties":{"a":{"type":"null"}}},{"properties":{"b":{"type":"null"}},"additionalProperties":false}]}`, []string{`{"b":null}`, `{}`}, []string{`{"a":null}`}},

		{"ref", `{"$defs":{"n":{"type":"null"}},"properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"]}`, []string{`{"a":null}`}, []string{`{"a":1}`}},
		{"ref with siblings", `{"definitions":{"n":{"type":"integer"}},"$ref":"#/definitions/n","minimum":5}`, []string{`5`}, []string{`4`}},
		{"escaped ref", `{"$defs":{"a/b~c d":{"type":"null"}},"items":{"$ref":"#/$defs/a~1b~0c%20d"}}`, []string{`[null]`}, []string{`[1]`}},
		{"tree", `{"$ref":"#/$defs/N","$defs":{"N":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/N"}}},"required":["v"]}}}`,
			[]string{`{"v":1}`, `{"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]}`}, []string{`{"kids":[]}`, `{"v":1,"kids":[{}]}`}},
		{"list", `{"properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"]}`, []string{`{"next":null}`, `{"next":{"next":null}}`}, []string{`{"next":{}}`}},
		{"array of itself", `{"type":"array","items":{"$ref":"#"}}`, []string{`[]`, `[[],[[]]]`}, []string{`[1]`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := schemaMatcher(t, tt.schema)
			for _, text := range tt.yes {
				if ok, _ := m.matches(text); !ok {
					t.Errorf("%.80s is refused", text)
				}
			}
			for _, text := range tt.no {
				if ok, _ := m.matches(text); ok {
					t.Errorf("%.80s is accepted", text)
				}
			}
		})
	}
}

func TestSchemaErrors(t *testing.T) {
	tests := []struct{ name, schema, path, keyword, reason string }{
		{"not JSON", `{"a"`, "", "", "not JSON"},
		{"nothing", ``, "", "", "not JSON"},
		{"two values", `{} {}`, "", "", "something follows"},
		{"not UTF-8", "\"\xff\"", "", "", "UTF-8"},
		{"lone surrogate", `{"const":"\udc00"}`, "", "", "surrogate"},
		{"not a schema", `3`, "", "", "neither an object"},
		{"not a schema inside", `{"properties":{"a":3}}`, "/properties/a", "", "neither an object"},
		{"key twice", `{"properties":{"a":{"type":"null","type":"string"}}}`, "/properties/a", "type", "twice"},
		{"false", `false`, "", "", "nothing satisfies"},
		{"unknown type", `{"type":"nope"}`, "", "type", `"nope" is no type`},
		{"no type", `{"type":[]}`, "", "type", "names no type"},
		{"not", `{"properties":{"a":{"not":{}}}}`, "/properties/a", "not", "not supported"},
		{"if", `{"if":true,"then":false}`, "", "if", "not supported"},
		{"dependentSchemas", `{"dependentSchemas":{"a":true}}`, "", "dependentSchemas", "not supported"},
		{"patternProperties", `{"patternProperties":{"a":true}}`, "", "patternProperties", "not supported"},
		{"uniqueItems", `{"uniqueItems":true}`, "", "uniqueItems", "not supported"},
		{"contains", `{"contains":true}`, "", "contains", "not supported"},
		{"unevaluatedProperties", `{"unevaluatedProperties":{"type":"null"}}`, "", "unevaluatedProperties", "not supported"},
		{"multipleOf", `{"multipleOf":5}`, "", "multipleOf", "5 is not supported"},
		{"format", `{"format":"regex"}`, "", "format", `"regex" is not supported`},
		{"propertyNames", `{"properties":{"a":true},"propertyNames":{"maxLength":3}}`, "/", "propertyNames", "not supported together"},
		{"minProperties", `{"additionalProperties":true,"minProperties":2}`, "", "minProperties", "2 is not supported"},
		{"maxProperties", `{"properties":{"a":true,"b":true},"maxProperties":1}`, "", "maxProperties", "supported for"},
		{"ref to itself", `{"$ref":"#"}`, "", "$ref", "refers back to itself"},
		{"refs in a circle", `{"$ref":"#/$defs/P","$defs":{"P":{"$ref":"#/$defs/Q"},"Q":{"$ref":"#/$defs/P"}}}`, "/$defs/P", "$ref", "refers back to itself"},
		{"allOf itself", `{"allOf":[{"$ref":"#"}]}`, "", "$ref", "refers back to itself"},
		{"anyOf itself", `{"anyOf":[{"type":"null"},{"$ref":"#"}]}`, "", "anyOf", "refers back to itself"},
		{"anyOf in a circle", `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/b"},{"type":"null"}]},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`, "/$defs/a", "anyOf", "refers back to itself"},
		{"never ends", `{"properties":{"a":{"$ref":"#"}},"required":["a"]}`, "", "", "never end"},
		{"remote ref", `{"$ref":"http://127.0.0.1/s.json"}`, "", "$ref", "outside the schema"},
		{"ref to nowhere", `{"items":{"$ref":"#/nowhere/at/all"}}`, "/items", "$ref", "leads nowhere"},
		{"anchor", `{"$ref":"#name"}`, "", "$ref", "leads nowhere"},
		{"types exclude each other", `{"allOf":[{"type":"string"},{"type":"null"}]}`, "/allOf/1", "type", "exclude each other"},
		{"no value left", `{"type":"string","enum":[1]}`, "", "enum", "allow none"},
		{"no number", `{"type":"integer","minimum":3,"maximum":2}`, "", "minimum", "no number"},
		{"no length", `{"minLength":3,"maxLength":2}`, "", "maxLength", "below minLength"},
		{"no array", `{"prefixItems":[true],"items":false,"minItems":2}`, "", "minItems", "1 elements only"},
		{"required and impossible", `{"properties":{"a":false},"required":["a"]}`, "", "required", `"a" can have no value`},
		{"wrong count", `{"maxLength":-1}`, "", "maxLength", "not a whole number"},
		{"wrong bound", `{"minimum":"1"}`, "", "minimum", "not a number"},
		{"huge bound", `{"minimum":1e999999999}`, "", "minimum", "exponent"},
		{"enum of nothing", `{"enum":[]}`, "", "enum", "not a list"},
		{"anyOf of nothing", `{"anyOf":[]}`, "", "anyOf", "not a list"},
		{"enum of objects", `{"enum":[{"a":1}],"properties":{"a":true}}`, "", "properties", "cannot be combined"},
		{"two formats", `{"allOf":[{"format":"uuid"},{"format":"date"}]}`, "/allOf/1", "format", "cannot be combined"},
		{"lookahead", `{"pattern":"^(?=a)"}`, "", "pattern", "lookaround"},
		{"back reference", `{"pattern":"(a)\\1"}`, "", "pattern", `\1 is not supported`},
		{"word boundary", `{"pattern":"\\ba"}`, "", "pattern", `\b is not supported`},
		{"inner anchor", `{"pattern":"a^b"}`, "", "pattern", "at the ends"},
		{"open group", `{"pattern":"(a"}`, "", "pattern", "not closed"},
		{"pattern of nothing", `{"pattern":"^a$","minLength":2}`, "", "pattern", "no string satisfies"},
		{"pattern too large", `{"pattern":"^(ab){3000}$"}`, "", "pattern", "more than 4096 states"},
		{"pattern explodes", `{"pattern":"a.{20}$"}`, "", "pattern", "too complex"},
		{"ambiguous recursion", `{"$defs":{"e":{"anyOf":[{"properties":{"l":{"$ref":"#/$defs/e"},"x":{"type":"null"}},"required":["l","x"]},{"properties":{"l":{"$ref":"#/$defs/e"},"y":{"type":"null"}},"required":["l","y"]},{"type":"null"}]}},"$ref":"#/$defs/e"}`, "/$defs/e/anyOf/0", "", "too ambiguous"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := FromSchema(json.RawMessage(tt.schema))
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if tt.path == "/" {
				e.Path = "/"
			}
			if e.Path != tt.path || e.Keyword != tt.keyword || !strings.Contains(e.Reason, tt.reason) {
				t.Errorf("got %#v (%v), want path %q, keyword %q, reason %q", e, err, tt.path, tt.keyword, tt.reason)
			}
		})
	}
}

// TestHostileSchemas runs what has taken servers down, within time.
func TestHostileSchemas(t *testing.T) {
	nest := func(n int) string {
		return strings.Repeat(`{"properties":{"a":`, n) + `{"type":"string"}` + strings.Repeat(`}}`, n)
	}
	list := func(n int, item string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, item, i)
		}
		return b.String()
	}
	chain := func(n int, item string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, item, i, i+1)
		}
		return b.String()
	}
	tests := []struct {
		name, schema string
		ok           bool
	}{
		{"50 levels", nest(50), true},
		{"2000 levels", nest(2000), false},
		{"50000 levels", nest(50000), false},
		{"brackets", strings.Repeat("[", 1<<20), false},
		{"50 groups", `{"pattern":"` + strings.Repeat("(", 50) + "a" + strings.Repeat(")", 50) + `"}`, true},
		{"5000 groups", `{"pattern":"` + strings.Repeat("(", 5000) + "a" + strings.Repeat(")", 5000) + `"}`, false},
		{"100000 groups", `{"pattern":"` + strings.Repeat("(", 100000) + "a" + strings.Repeat(")", 100000) + `"}`, false},
		{"nested quantifiers", `{"pattern":"^((((a{100}){100}){100}){100})$"}`, false},
		{"nested stars", `{"pattern":"^((((((a*)*)*)*)*)*)*$"}`, true},
		{"optional chain", `{"pattern":"^` + strings.Repeat("a?", 20000) + `$"}`, false},
		{"alternatives", `{"pattern":"^(` + strings.Repeat("ab|", 20000) + `c)*$"}`, true},
		{"many classes", `{"pattern":"^` + strings.Repeat("[a-c]?[b-d]?", 2000) + `$"}`, false},
		{"enum of 20000", `{"enum":[` + list(20000, `"value-%d"`) + `]}`, true},
		{"enum of 40000", `{"enum":[` + list(40000, `"value-%d"`) + `]}`, false},
		{"long values", `{"enum":["` + strings.Repeat("a", 200000) + `","` + strings.Repeat("a", 200001) + `"]}`, true},
		{"growing values", `{"enum":[` + growing(1000) + `]}`, true},
		{"1000 optional properties", `{"properties":{` + list(1000, `"p%d":{"type":"integer"}`) + `}}`, true},
		{"10000 required properties", `{"properties":{` + list(10000, `"p%d":true`) + `},"required":[` + list(10000, `"p%d"`) + `]}`, true},
		{"open with many names", `{"properties":{` + list(400, `"p%d":true`) + `},"additionalProperties":true}`, true},
		{"chain of refs", `{"$ref":"#/$defs/d0","$defs":{` + chain(5000, `"d%d":{"$ref":"#/$defs/d%d"},`) + `"d5000":{"type":"null"}}}`, true},
		{"chain of objects", `{"$ref":"#/$defs/d0","$defs":{` + chain(3000, `"d%d":{"properties":{"a":{"$ref":"#/$defs/d%d"}}},`) + `"d3000":{"type":"null"}}}`, true},
		{"chain of unions", `{"$ref":"#/$defs/d0","$defs":{` + chain(5000, `"d%d":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/d%d"}]},`) + `"d5000":{"type":"null"}}}`, false},
		{"product of unions", `{"allOf":[` + list(20, `{"anyOf":[{"minLength":%d},{"maxLength":9}]}`) + `]}`, false},
		{"allOf of many", `{"allOf":[` + list(5000, `{"properties":{"p%d":{"type":"null"}}}`) + `]}`, false},
		{"maxLength 60000", `{"maxLength":60000}`, true},
		{"maxLength 2^40", `{"maxLength":1099511627776}`, true},
		{"minLength 2^62", `{"minLength":4611686018427387904}`, true},
		{"items 10 to 1000", `{"items":{"type":"number"},"minItems":10,"maxItems":1000}`, true},
		{"items up to 10^9", `{"items":{"type":"number"},"maxItems":1000000000}`, true},
		{"nested bounds", `{"maxItems":1000,"items":{"maxItems":1000,"items":{"maxItems":1000,"items":{"maxLength":2000}}}}`, true},
		{"long bound", `{"minimum":` + strings.Repeat("9", 100000) + `}`, false},
		{"many ranges", `{"anyOf":[` + list(3000, `{"minimum":1000000000000%d,"maximum":2000000000000000000}`) + `]}`, false},
		{"many patterns", `{"anyOf":[` + list(2000, `{"pattern":"^a{1,50}%d$"}`) + `]}`, false},
		{"large enum in many branches", `{"enum":[` + list(20000, `"value-%d"`) + `],"anyOf":[` + list(2000, `{"minLength":%d}`) + `]}`, false},
		{"large required in many branches", `{"required":[` + list(30000, `"p%d"`) + `],"anyOf":[` + list(2000, `{"minProperties":%d}`) + `]}`, false},
		{"long ref in many branches", `{"$defs":{"a":{"$ref":"#/` + strings.Repeat("x", 400000) + `"},"b":{"$ref":"#/$defs/` + strings.Repeat("%63", 100000) + `"},"` + strings.Repeat("c", 100000) + `":true},"anyOf":[` + list(5000, `{"minimum":%d,"$ref":"#/$defs/b"}`) + `]}`, false},
		{"equal long values", `{"anyOf":[` + list(3000, `{"minLength":%d}`) + `],"allOf":[{"enum":["` + strings.Repeat("x", 200000) + `","b"]},{"enum":["` + strings.Repeat("x", 200000) + `","b"]}]}`, false},
		{"union of many", `{"anyOf":[` + list(20000, `{"const":%d}`) + `]}`, false},
		{"many unions", `{"allOf":[` + list(20000, `{"anyOf":[{"minLength":%d}]}`) + `]}`, false},
		{"deep equal values", `{"allOf":[{"const":` + strings.Repeat("[", 500) + `"` + strings.Repeat("x", 400000) + `"` + strings.Repeat("]", 500) + `},{"const":` + strings.Repeat("[", 500) + `"` + strings.Repeat("x", 400000) + `"` + strings.Repeat("]", 500) + `}]}`, false},
		{"long key", `{"properties":{"` + strings.Repeat("k", 1000000) + `":true}}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			gbnf, err := FromSchema(json.RawMessage(tt.schema))
			if took := time.Since(start); took > hostileTime {
				t.Errorf("took %v", took)
			}
			if (err == nil) != tt.ok {
				t.Errorf("got %v", err)
			}
			if err != nil && len(err.Error()) > 4*messageMax {
				t.Errorf("long message: %v", err)
			}
			t.Logf("%d bytes, %v, %v", len(gbnf), time.Since(start), err)
		})
	}
}

// growing is the list of "a", "aa", "aaa" and so on.
func growing(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = `"` + strings.Repeat("a", i) + `"`
	}
	return strings.Join(parts, ",")
}

// TestBlanks follows texts that consist of blanks wherever they can.
func TestBlanks(t *testing.T) {
	schemas := []string{`true`, `{"type":"string"}`, `{"maxLength":60000}`, `{"minLength":100,"maxLength":900}`, `{"minLength":100}`, `{"pattern":"^a.*b.*$"}`,
		`{"pattern":"^\\s*x\\s*$"}`, `{"pattern":"^ *$"}`, `{"pattern":"^[ a]*$","minLength":300}`, `{"additionalProperties":true,"properties":{"a":true}}`,
		`{"items":{"type":"integer"},"prefixItems":[true]}`}
	for _, schema := range schemas {
		t.Run(schema, func(t *testing.T) {
			m := schemaMatcher(t, schema)
			for _, blank := range " \t\n\u00a0\u3000" {
				m.machine.work = 1 << 40
				stacks := m.machine.start(m.machine.ids[rootName])
				run := 0
				for range 3000 {
					if next := m.machine.step(stacks, blank); len(next) > 0 {
						stacks = next
						if run++; run > 64 {
							t.Fatalf("more than 64 times %q in a row", blank)
						}
						continue
					}
					run = 0
					c := m.machine.candidates(stacks)
					if len(c) == 0 {
						break
					}
					stacks = m.machine.step(stacks, c[0])
				}
			}
		})
	}
}

// TestNothingFollows makes sure that a text ends with its value.
func TestNothingFollows(t *testing.T) {
	m := newMatcher(t, JSON())
	for _, text := range []string{`{}`, `{"a": 1}`, `{"a":{"b":[]}}`} {
		if !m.final(text) {
			t.Errorf("something can follow %s", text)
		}
	}
	for _, text := range []string{`[]`, `1`, ` {}`, `{} `} {
		if ok, _ := m.matches(text); ok {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestFormats(t *testing.T) {
	tests := []struct {
		format  string
		yes, no []string
	}{
		{"date", []string{"2024-02-29", "1999-12-31", "2000-02-29"}, []string{"2023-02-29", "2024-13-01", "2024-04-31", "1900-02-29", "24-01-01"}},
		{"time", []string{"12:00:00Z", "23:59:59.123+01:00"}, []string{"24:00:00Z", "12:00Z", "12:00:00"}},
		{"date-time", []string{"2024-02-29T12:00:00Z"}, []string{"2024-02-29", "2024-02-30T12:00:00Z"}},
		{"duration", []string{"P1D", "PT1H30M", "P1Y2M3DT4H", "P3W"}, []string{"P", "PT", "1D"}},
		{"uuid", []string{"123e4567-e89b-12d3-a456-426614174000"}, []string{"123e4567e89b12d3a456426614174000"}},
		{"ipv4", []string{"0.0.0.0", "255.249.199.9"}, []string{"256.0.0.1", "1.2.3", "01.2.3.4"}},
		{"ipv6", []string{"::", "::1", "1::", "2001:db8::ff00:42:8329", "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7::"}, []string{"1:2:3:4:5:6:7", "1::2::3", ":1", "12345::"}},
		{"hostname", []string{"localhost", "a-b.example.org"}, []string{"-a", "a-", "a..b", ""}},
		{"email", []string{"a@b.cc", "x.y+z@mail.example.org"}, []string{"a@b", "@b.cc", "a b@c.dd"}},
		{"uri", []string{"https://example.org", "http://a.b:80/c?d=e#f", "mailto:a@b.cc", "urn:isbn:1"}, []string{"example.org", "http://", "https://a b"}},
		{"password", []string{"anything at all"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.format, func(t *testing.T) {
			m := schemaMatcher(t, fmt.Sprintf(`{"type":"string","format":%q}`, tt.format))
			for _, s := range tt.yes {
				if ok, _ := m.matches(`"` + s + `"`); !ok {
					t.Errorf("%s is refused", s)
				}
			}
			for _, s := range tt.no {
				if ok, _ := m.matches(`"` + s + `"`); ok {
					t.Errorf("%s is accepted", s)
				}
			}
			rng := rand.New(rand.NewPCG(1, 2))
			for range 200 {
				text := decode(t, m.sample(rng, 60)).text
				if !validFormat(tt.format, text) {
					t.Errorf("%q is no %s", text, tt.format)
				}
			}
		})
	}
}

func TestBuilder(t *testing.T) {
	b := NewBuilder()
	args, err := b.Schema(json.RawMessage(`{"properties":{"x":{"type":"integer"}},"required":["x"]}`))
	if err != nil {
		t.Fatal(err)
	}
	call := b.Rule("tool call", b.Literal("<call>\n\"f\" \\ ")+" "+args)
	if again := b.Rule("tool call", b.JSONObject()); again == call {
		t.Errorf("two rules are named %s", call)
	}
	gbnf, err := b.Grammar(call + " | " + b.JSONValue())
	if err != nil {
		t.Fatal(err)
	}
	m := newMatcher(t, gbnf)
	for _, text := range []string{"<call>\n\"f\" \\ {\"x\":1}", `[1]`} {
		if ok, _ := m.matches(text); !ok {
			t.Errorf("%q is refused\n%s", text, gbnf)
		}
	}
}

// TestBuilderAfterError goes on with something else after a schema was refused.
func TestBuilderAfterError(t *testing.T) {
	refused := []string{
		`{"properties":{"a":true,"b":{"properties":{"c":{"$ref":"#"},"d":{"type":"number","minimum":0}}},"z":{"not":{}}},"additionalProperties":true}`,
		`{"pattern":"a.{20}$"}`, `{"properties":{"a":{"minLength":300,"maxLength":900},"b":false},"required":["b"]}`,
	}
	for _, schema := range refused {
		b := NewBuilder()
		if _, err := b.Schema(json.RawMessage(schema)); err == nil {
			t.Fatalf("%s is accepted", schema)
		}
		gbnf, err := b.Grammar(b.JSONObject())
		if err != nil {
			t.Fatalf("after %s: %v", schema, err)
		}
		if ok, _ := newMatcher(t, gbnf).matches(`{"a":[1,"b"]}`); !ok {
			t.Errorf("after %s: an object is refused", schema)
		}
	}
}

func TestBuilderRefuses(t *testing.T) {
	tests := []struct{ name, body string }{
		{"undefined", "nowhere"}, {"syntax", `"a`}, {"two lines", "\"a\"\nx ::= \"b\"\nx ::= \"c\""}, {"left recursion", "root"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := NewBuilder()
			var e *SyntaxError
			if _, err := b.Grammar(b.Rule("mine", tt.body)); !errors.As(err, &e) {
				t.Errorf("got %v, want a *SyntaxError", err)
			}
		})
	}
}
