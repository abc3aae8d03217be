package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// author writes random schemas, and instances of them.
type author struct {
	rng  *rand.Rand
	root *value
}

func (a *author) oneOf(options ...string) string { return options[a.rng.IntN(len(options))] }

func (a *author) sometimes(text string) string {
	if a.rng.IntN(2) == 0 {
		return ""
	}
	return text
}

// schema is a random schema that may refer to the definitions of document.
func (a *author) schema(depth int) string {
	kinds := 12
	if depth <= 0 {
		kinds = 6
	}
	switch a.rng.IntN(kinds) {
	case 0:
		return a.oneOf(`{"type":"null"}`, `{"type":"boolean"}`, `{"const":"k\"\\é😀"}`, `{"enum":["ab","abc","b",1,12,-1.5,null,true]}`, `{"enum":[1,2,3],"type":"integer"}`)
	case 1:
		lo := a.rng.IntN(60) - 30
		return fmt.Sprintf(`{"type":"integer","%s":%d,"maximum":%d}`, a.oneOf("minimum", "exclusiveMinimum"), lo, lo+1+a.rng.IntN(120))
	case 2:
		lo := a.rng.IntN(400) - 200
		return fmt.Sprintf(`{"type":"number","%s":%d.%d,"%s":%d.5}`, a.oneOf("minimum", "exclusiveMinimum"), lo, a.rng.IntN(100), a.oneOf("maximum", "exclusiveMaximum"), lo+1+a.rng.IntN(9))
	case 3:
		n := a.rng.IntN(30)
		return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, n, n+a.rng.IntN(40))
	case 4:
		return fmt.Sprintf(`{"type":"string","pattern":%q%s}`, a.oneOf(`^[a-c]{1,3}$`, `b+c`, `^(ab|c)*d?$`, `^\w+@\w+\.(org|net)$`, `^a|z$`, `^[^a-y]*$`, `\d{2,}`), a.sometimes(`,"maxLength":20`))
	case 5:
		return a.oneOf(`{"type":"string"}`, `{"type":"integer"}`, `{"type":"number"}`, `{"type":"integer","minimum":3}`, `{"type":"number","maximum":-0.5}`, `{"type":["string","null"]}`, `{"type":"number","multipleOf":0.1,"minimum":0}`)
	case 6, 7:
		return a.objectSchema(depth)
	case 8:
		return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, a.schema(depth-1), a.rng.IntN(3), 3+a.rng.IntN(4))
	case 9:
		return fmt.Sprintf(`{"type":"array","prefixItems":[%s,%s],"items":%s,"minItems":%d}`, a.schema(depth-1), a.schema(depth-1), a.schema(depth-1), a.rng.IntN(4))
	case 10:
		return fmt.Sprintf(`{"%s":[%s,%s,%s]}`, a.oneOf("anyOf", "oneOf"), a.schema(depth-1), a.schema(depth-1), a.schema(depth-1))
	}
	return a.oneOf(`{"$ref":"#/$defs/x"}`, `{"$ref":"#/$defs/y"}`,
		fmt.Sprintf(`{"allOf":[%s,%s]}`, a.objectSchema(depth-1), a.objectSchema(depth-1)),
		fmt.Sprintf(`{"type":"object","additionalProperties":%s,"maxProperties":3}`, a.schema(depth-1)))
}

func (a *author) objectSchema(depth int) string {
	var properties, required []string
	for _, name := range []string{"a", "ab", "abc", "b", "é", "x y", `q\"`}[:a.rng.IntN(8)] {
		properties = append(properties, fmt.Sprintf(`"%s":%s`, name, a.schema(depth-1)))
		if a.rng.IntN(2) == 0 {
			required = append(required, `"`+name+`"`)
		}
	}
	more := a.oneOf("", "", `,"additionalProperties":false`, `,"additionalProperties":{"type":"integer"}`)
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]%s}`, strings.Join(properties, ","), strings.Join(required, ","), more)
}

// document is a schema with definitions, one of which is a tree.
func (a *author) document() string {
	body := a.schema(3)
	return fmt.Sprintf(`{"$defs":{"x":%s,"y":{"type":"object","properties":{"v":%s,"kids":{"type":"array","items":{"$ref":"#/$defs/y"},"maxItems":2}}}},"allOf":[%s]}`,
		a.schema(1), a.schema(0), body)
}

// instance is a value that is meant to satisfy s; the reference has the last word.
func (a *author) instance(s *value, depth int) *value {
	if ref := s.get("$ref"); ref != nil {
		return a.instance(a.root.lookup(ref.text[1:]), depth)
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		if list := s.get(keyword); list != nil {
			return a.instance(list.items[a.rng.IntN(len(list.items))], depth)
		}
	}
	if e := s.get("enum"); e != nil {
		return e.items[a.rng.IntN(len(e.items))]
	}
	if c := s.get("const"); c != nil {
		return c
	}
	name := "string"
	if t := s.get("type"); t != nil {
		if name = t.text; t.kind == kindArray {
			name = t.items[a.rng.IntN(len(t.items))].text
		}
	}
	switch name {
	case "null":
		return &value{kind: kindNull}
	case "boolean":
		return &value{kind: kindTrue}
	case "integer":
		return &value{kind: kindNumber, text: fmt.Sprint(a.rng.IntN(200) - 60)}
	case "number":
		return &value{kind: kindNumber, text: a.oneOf(fmt.Sprint(a.rng.IntN(400)-200), fmt.Sprintf("%d.%d", a.rng.IntN(20)-10, 1+a.rng.IntN(9)), fmt.Sprintf("%.2f5", a.rng.Float64()*400-200))}
	case "string":
		return &value{kind: kindString, text: a.text()}
	case "array":
		return a.arrayInstance(s, depth)
	}
	return a.objectInstance(s, depth)
}

func (a *author) text() string {
	words := []string{"a", "ab", "c", "d", "z", "b", "bc", "@", ".org", " ", "é", "😀", "\"", "\\", "\n", "12", "7", "_"}
	var b strings.Builder
	for range a.rng.IntN(14) {
		b.WriteString(words[a.rng.IntN(len(words))])
	}
	return b.String()
}

func (a *author) arrayInstance(s *value, depth int) *value {
	v := &value{kind: kindArray}
	n := a.rng.IntN(4)
	if low := s.get("minItems"); low != nil {
		n += number(low)
	}
	for i := range n {
		item := s.get("items")
		if p := s.get("prefixItems"); p != nil && i < len(p.items) {
			item = p.items[i]
		} else if depth <= 0 {
			break
		}
		v.items = append(v.items, a.instance(item, depth-1))
	}
	return v
}

func (a *author) objectInstance(s *value, depth int) *value {
	v := &value{kind: kindObject}
	add := func(k string, item *value) {
		v.keys, v.items = append(v.keys, k), append(v.items, item)
	}
	if p := s.get("properties"); p != nil {
		for i, k := range p.keys {
			required := s.get("required") != nil && strings.Contains(string(s.get("required").appendJSON(nil)), string(appendQuoted(nil, k)))
			if required || depth > 0 && a.rng.IntN(2) == 0 {
				add(k, a.instance(p.items[i], depth-1))
			}
		}
	}
	if other := s.get("additionalProperties"); other != nil && other.kind == kindObject && a.rng.IntN(2) == 0 {
		add(a.oneOf("zz", "ac", "", "abcd", "A\n"), a.instance(other, depth-1))
	}
	return v
}

// TestSound: what a grammar matches satisfies the schema.
func TestSound(t *testing.T) {
	for seed := range uint64(propertySchemas) {
		a := &author{rng: rand.New(rand.NewPCG(seed, 1))}
		schema := a.document()
		gbnf, err := FromSchema(json.RawMessage(schema))
		if err != nil {
			continue // counted by TestComplete
		}
		m := newMatcher(t, gbnf)
		r := reference{root: decode(t, schema)}
		for range 20 {
			text := m.sample(a.rng, 100)
			v, err := parseValue(json.RawMessage(text))
			if err != nil && strings.Contains(err.Error(), "twice") {
				continue // a grammar cannot remember which names are taken
			}
			if err != nil {
				t.Fatalf("seed %d: schema %s\nmade %q: %v", seed, schema, text, err)
			}
			if !r.valid(r.root, v) {
				t.Fatalf("seed %d: schema %s\nmade %s\n%s", seed, schema, text, gbnf)
			}
			if n := longestBlank(text); n > 64 {
				t.Fatalf("seed %d: %d blanks in a row in %q", seed, n, text)
			}
		}
	}
}

// TestComplete: instances match, and what is made of them by a small change
// matches only if it is an instance, too.
func TestComplete(t *testing.T) {
	refused, valid, invalid := 0, 0, 0
	for seed := range uint64(propertySchemas) {
		a := &author{rng: rand.New(rand.NewPCG(seed, 2))}
		schema := a.document()
		a.root = decode(t, schema)
		gbnf, err := FromSchema(json.RawMessage(schema))
		if err != nil {
			refused++
			continue
		}
		m := newMatcher(t, gbnf)
		r := reference{root: a.root}
		for range 20 {
			v := a.instance(a.root, 3)
			text := string(v.appendJSON(nil))
			// allOf of objects: members of both in the order of the schema are not
			// what instance makes, so only those of the first are tried.
			if r.valid(a.root, v) && declaredOnly(a.root, a.root, v) {
				valid++
				if ok, _ := m.matches(text); !ok {
					t.Fatalf("seed %d: schema %s\nrefuses %s\n%s", seed, schema, text, gbnf)
				}
			}
			mutant := a.mutate(text)
			w, err := parseValue(json.RawMessage(mutant))
			if err == nil && r.valid(a.root, w) {
				continue
			}
			invalid++
			if ok, _ := m.matches(mutant); ok {
				t.Fatalf("seed %d: schema %s\naccepts %s\n%s", seed, schema, mutant, gbnf)
			}
		}
	}
	t.Logf("%d schemas refused, %d instances accepted, %d texts refused", refused, valid, invalid)
	if refused > propertySchemas/3 || valid < propertySchemas || invalid < propertySchemas {
		t.Errorf("of %d schemas %d were refused; %d instances and %d texts are too few to tell", propertySchemas, refused, valid, invalid)
	}
}

// declaredOnly leaves out instances that are valid and yet not generated: objects
// with other members than a schema with properties declares.
func declaredOnly(root, s, v *value) bool {
	if s.kind != kindObject {
		return true
	}
	if ref := s.get("$ref"); ref != nil {
		return declaredOnly(root, root.lookup(ref.text[1:]), v)
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		if list := s.get(keyword); list != nil {
			for _, branch := range list.items {
				if (reference{root}).valid(branch, v) && declaredOnly(root, branch, v) {
					return true
				}
			}
			return false
		}
	}
	p := s.get("properties")
	if v.kind == kindObject && p != nil {
		for i, k := range v.keys {
			schema := p.get(k)
			if schema == nil {
				schema = s.get("additionalProperties")
			}
			if schema == nil || !declaredOnly(root, schema, v.items[i]) {
				return false
			}
		}
	}
	if v.kind == kindArray {
		return len(v.items) == 0 || declaredItems(root, s, v)
	}
	return true
}

func declaredItems(root, s, v *value) bool {
	for i, item := range v.items {
		schema := s.get("items")
		if p := s.get("prefixItems"); p != nil && i < len(p.items) {
			schema = p.items[i]
		}
		if schema != nil && !declaredOnly(root, schema, item) {
			return false
		}
	}
	return true
}

// mutate changes one character, or the place of one.
func (a *author) mutate(text string) string {
	r := []rune(text)
	if len(r) == 0 {
		return "x"
	}
	i := a.rng.IntN(len(r))
	switch a.rng.IntN(4) {
	case 0:
		return string(r[:i]) + string(r[i+1:])
	case 1:
		return string(r[:i]) + string(r[i]) + string(r[i:])
	case 2:
		j := a.rng.IntN(len(r))
		r[i], r[j] = r[j], r[i]
		return string(r)
	}
	r[i] = []rune(`0123456789abz"\,:{}[] -.`)[a.rng.IntN(24)]
	return string(r)
}

// TestNumbers compares every short number with random bounds.
func TestNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	numbers := []string{"-0", "-0.0", "-0.00", "00", "01", "1.", ".1", "-", ""}
	for i := -120; i <= 120; i++ {
		numbers = append(numbers, fmt.Sprint(i), fmt.Sprintf("%.1f", float64(i)/10), fmt.Sprintf("%.2f", float64(i)/100), fmt.Sprintf("%.2f", float64(i)/10), fmt.Sprintf("%d.5", i))
	}
	bound := func() string {
		switch rng.IntN(4) {
		case 0:
			return fmt.Sprint(rng.IntN(21) - 10)
		case 1:
			return fmt.Sprintf("%.1f", rng.Float64()*20-10)
		case 2:
			return fmt.Sprint(rng.IntN(300) - 150)
		}
		return fmt.Sprintf("%.2f", rng.Float64()*4-2)
	}
	for range 300 {
		var parts []string
		for _, keyword := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			if rng.IntN(3) == 0 {
				parts = append(parts, fmt.Sprintf(`"%s":%s`, keyword, bound()))
			}
		}
		schema := fmt.Sprintf(`{"type":"%s"%s}`, []string{"number", "integer"}[rng.IntN(2)], strings.Join(append([]string{""}, parts...), ","))
		gbnf, err := FromSchema(json.RawMessage(schema))
		root := decode(t, schema)
		var m *matcher
		if err == nil {
			m = newMatcher(t, gbnf)
		}
		for _, text := range numbers {
			v, bad := parseValue(json.RawMessage(text))
			want := bad == nil && (reference{root}).valid(root, v)
			if len(parts) == 0 && strings.HasPrefix(text, "-0") {
				continue // written only where no bound is to be kept
			}
			if root.get("type").text == "integer" && strings.ContainsRune(text, '.') || strings.HasPrefix(text, "-0") && v.identity() == "0" {
				want = false // valid, but never written so
			}
			got := false
			if m != nil {
				got, _ = m.matches(text)
			}
			if got != want {
				t.Fatalf("%s: %s is accepted: %v, want %v\n%s", schema, text, got, want, gbnf)
			}
		}
	}
}

// TestCounts tries every length near the places where repetitions are cut.
func TestCounts(t *testing.T) {
	bounds := [][2]int{{0, 14}, {0, 15}, {0, 16}, {0, 17}, {0, 33}, {3, 19}, {16, 16}, {31, 33}, {0, 255}, {0, 256}, {0, 257}, {0, 700}, {300, 301}, {1000, 5000}, {0, 20000}}
	for _, b := range bounds {
		lengths := map[int]bool{0: true, 1: true, 15: true, 16: true, 17: true, 255: true, 256: true, 257: true}
		for d := -2; d <= 2; d++ {
			lengths[max(0, b[0]+d)], lengths[max(0, b[1]+d)], lengths[max(0, (b[0]+b[1])/2+d)] = true, true, true
		}
		for _, s := range []struct{ schema, open, item, comma, end string }{
			{`{"type":"string","minLength":%d,"maxLength":%d}`, `"`, `x`, ``, `"`},
			{`{"type":"string","pattern":"^[xy]{%d,%d}$"}`, `"`, `y`, ``, `"`},
			{`{"type":"array","items":{"type":"null"},"minItems":%d,"maxItems":%d}`, `[`, `null`, `,`, `]`},
		} {
			schema := fmt.Sprintf(s.schema, b[0], b[1])
			t.Run(schema, func(t *testing.T) {
				m := schemaMatcher(t, schema)
				for n := range lengths {
					text := s.open + strings.TrimSuffix(strings.Repeat(s.item+s.comma, n), s.comma) + s.end
					got, widest := m.matches(text)
					if want := n >= b[0] && n <= b[1]; got != want {
						t.Errorf("%d items are accepted: %v", n, got)
					}
					if widest > 30 {
						t.Errorf("%d stacks at once", widest)
					}
				}
			})
		}
	}
}
