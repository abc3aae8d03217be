package chat

import "fmt"

// genericFormat is for models without a known format of their own: the whole
// answer is an object with a list of calls, as conversation.tellTools describes.
type genericFormat struct{}

func (genericFormat) name() string      { return "generic" }
func (genericFormat) marker() string    { return "" }
func (genericFormat) markers() []string { return nil }

func (genericFormat) root(g *callGrammar) string {
	one := g.object("arguments", "")
	return fmt.Sprintf("%s %s %s", g.b.Literal(`{"tool_calls": [`), g.repeated(one, g.b.Literal(", ")), g.b.Literal("]}"))
}

func (genericFormat) triggers(*callGrammar) []string {
	return []string{`\{"tool_calls"(?::(?: (?:\[(?:\{"?)?)?)?)?`}
}

func (genericFormat) open(s string, _ []string) match {
	v, n := sequence(s, "{", `"tool_calls"`, ":", "[", "{")
	return match{verdict: v, n: n}
}

func (genericFormat) next(s string, _ []string) match {
	return nextInList(s, "]", "}")
}
