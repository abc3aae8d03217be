package grammar_test

import (
	"encoding/json"
	"fmt"

	"tandem/node/grammar"
)

func ExampleFromSchema() {
	gbnf, err := grammar.FromSchema(json.RawMessage(`{"enum": ["yes", "no", null]}`))
	fmt.Println(gbnf, err)

	_, err = grammar.FromSchema(json.RawMessage(`{"properties": {"a": {"uniqueItems": true}}}`))
	fmt.Println(err)
	// Output:
	// root ::= t-1
	// t ::= "no\"" | "yes\""
	// t-1 ::= "\"" t | "null"
	//  <nil>
	// schema at /properties/a: keyword "uniqueItems": it is not supported
}

func ExampleBuilder() {
	b := grammar.NewBuilder()
	args, err := b.Schema(json.RawMessage(`{"properties": {"n": {"const": 1}}, "required": ["n"]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	call := b.Rule("call", b.Literal("<tool>")+" "+args+" "+b.Literal("</tool>"))
	gbnf, err := b.Grammar(call + "+")
	fmt.Println(gbnf, err)
	// Output:
	// root ::= call+
	// v-1 ::= "1"
	// gap ::= " " | ""
	// m ::= gap v-1
	// blank ::= " " | "\n" [ \t]{0,20} | ""
	// v ::= "{" blank "\"" "n\":" m blank "}"
	// call ::= "<tool>" v "</tool>"
	//  <nil>
}
