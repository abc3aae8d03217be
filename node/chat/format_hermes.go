package chat

import "fmt"

// hermesFormat is that of Hermes and Qwen: objects between tags, anywhere.
type hermesFormat struct{}

const (
	hermesOpen = "<tool_call>"
	hermesEnd  = "</tool_call>"
)

func (hermesFormat) name() string      { return "hermes" }
func (hermesFormat) marker() string    { return hermesOpen }
func (hermesFormat) markers() []string { return []string{hermesOpen, hermesEnd} }

func (hermesFormat) root(g *callGrammar) string {
	one := g.b.Rule("tagged", fmt.Sprintf(`%s [ \n]? %s [ \n]? %s`,
		g.b.Literal(hermesOpen), g.object("arguments", ""), g.b.Literal(hermesEnd)))
	return g.repeated(one, `[ \n]?`)
}

func (hermesFormat) triggers(*callGrammar) []string {
	return []string{hermesOpen + `[ \n]?(?:\{"?)?`}
}

func (hermesFormat) open(s string, _ []string) match {
	v, n := sequence(s, hermesOpen, "{")
	return match{verdict: v, n: n}
}

func (hermesFormat) next(s string, _ []string) match {
	switch v, n := sequence(s, hermesEnd); v {
	case yes:
		return match{verdict: no, n: n + len(hermesEnd)}
	default:
		return match{verdict: v}
	}
}
