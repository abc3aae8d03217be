package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

func dump(t *testing.T, name, gbnf string, texts ...string) {
	dir := os.Getenv("DUMP")
	m := newMatcher(t, gbnf)
	rng := rand.New(rand.NewPCG(uint64(len(gbnf)), 9))
	a := &author{rng: rng}
	var b strings.Builder
	for range 6 {
		s := m.sample(rng, 60)
		texts = append(texts, s, a.mutate(s), a.mutate(s))
	}
	for _, s := range texts {
		ok, _ := m.matches(s)
		sign := "-"
		if ok {
			sign = "+"
		}
		fmt.Fprintf(&b, "%s%d\n%s\n", sign, len(s), s)
	}
	os.WriteFile(dir+"/"+name+".gbnf", []byte(gbnf), 0o644)
	os.WriteFile(dir+"/"+name+".txt", []byte(b.String()), 0o644)
}

func TestDump(t *testing.T) {
	if os.Getenv("DUMP") == "" {
		t.Skip()
	}
	for i, g := range []string{JSON(), arithmetic, smallC, moves, `root ::= "a"{2}{3}`, `root ::= "ab"* [c]+ "d"? ("e" | "f"){2} "g"{1,2} "h"{1,}`, "root ::= | \"a\" | b\nb ::= \"c\" |", `root ::= [a-c\x5D\[-] [^0-9x]`, `root ::= "a"{0} "b"{0,0} "c"`} {
		dump(t, fmt.Sprintf("c%d", i), g)
	}
	extra := []string{`{"maxLength":60000}`, `{"maxLength":2000}`, `{"items":{"type":"number"},"minItems":10,"maxItems":1000}`, `{"maxItems":1000000000}`, `{"format":"date-time"}`, `{"format":"ipv6"}`, `{"format":"email"}`, `{"format":"uri"}`, `{"format":"duration"}`, `{"format":"hostname"}`, `{"pattern":"^(a|b){1,8}-[0-9]{4}$"}`, `true`,
		`{"minimum":0,"maximum":1}`, `{"enum":["cat","car",1,12,null,{"a":[1,2]},"","👩‍👩‍👧 é 日本語 🙂"]}`}
	for i, s := range extra {
		g, err := FromSchema(json.RawMessage(s))
		if err != nil {
			t.Fatal(err)
		}
		dump(t, fmt.Sprintf("e%d", i), g, `"👩‍👩‍👧 é 日本語 🙂"`, `"`+strings.Repeat("x", 2000)+`"`, `"`+strings.Repeat("x", 60000)+`"`, `"`+strings.Repeat("x", 60001)+`"`)
	}
	for seed := range uint64(400) {
		a := &author{rng: rand.New(rand.NewPCG(seed, 5))}
		g, err := FromSchema(json.RawMessage(a.document()))
		if err == nil {
			dump(t, fmt.Sprintf("s%d", seed), g)
		}
	}
	var b strings.Builder
	b.WriteString(`{"enum":["x"`)
	for i := range 20000 {
		fmt.Fprintf(&b, `,"value-%d"`, i)
	}
	g, err := FromSchema(json.RawMessage(b.String() + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	dump(t, "z0", g)
	b.Reset()
	b.WriteString(`{"properties":{"x":true`)
	for i := range 1000 {
		fmt.Fprintf(&b, `,"p%d":{"type":"integer"}`, i)
	}
	g, err = FromSchema(json.RawMessage(b.String() + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	dump(t, "z1", g)
}
