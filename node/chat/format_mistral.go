package chat

import (
	"fmt"
	"strings"
)

// mistralFormat is that of Mistral up to tokeniser version 7: a marker and a list
// of objects.
type mistralFormat struct{}

const (
	mistralCalls = "[TOOL_CALLS]"
	mistralArgs  = "[ARGS]"
	mistralID    = "[CALL_ID]"
)

func (mistralFormat) name() string      { return "mistral" }
func (mistralFormat) marker() string    { return mistralCalls }
func (mistralFormat) markers() []string { return []string{mistralCalls, mistralArgs, mistralID} }

func (mistralFormat) root(g *callGrammar) string {
	id := fmt.Sprintf(`(", \"id\": \"" [a-zA-Z0-9]{%d} "\"")? `, shortIDLen)
	one := g.object("arguments", id)
	return fmt.Sprintf(`%s " "? "[" %s "]"`, g.b.Literal(mistralCalls), g.repeated(one, `"," " "?`))
}

func (mistralFormat) triggers(*callGrammar) []string {
	return []string{`\[TOOL_CALLS\] ?(?:\[(?:\{"?)?)?`}
}

// open also takes a single object, and the form of later versions: models and
// their templates do not always agree.
func (mistralFormat) open(s string, names []string) match {
	var verdicts []verdict
	for _, texts := range [][]string{{mistralCalls, "[", "{"}, {mistralCalls, "{"}} {
		v, n := sequence(s, texts...)
		if v == yes {
			return match{verdict: yes, n: n}
		}
		verdicts = append(verdicts, v)
	}
	m := mistralArgsFormat{}.open(s, names)
	if m.verdict == yes {
		return m
	}
	return match{verdict: best(append(verdicts, m.verdict)...)}
}

func (mistralFormat) next(s string, _ []string) match {
	return nextInList(s, "]")
}

// nextInList looks for the next object of a list, or its end.
func nextInList(s string, ends ...string) match {
	v, n := sequence(s, ",", "{")
	if v != no {
		return match{verdict: v, n: n}
	}
	switch v, n = sequence(s, ends...); v {
	case yes:
		return match{verdict: no, n: n + len(ends[len(ends)-1])}
	default:
		return match{verdict: v}
	}
}

// mistralArgsFormat is that of later versions: marker, name, marker, arguments.
type mistralArgsFormat struct{}

func (mistralArgsFormat) name() string      { return "mistral-args" }
func (mistralArgsFormat) marker() string    { return mistralCalls }
func (mistralArgsFormat) markers() []string { return mistralFormat{}.markers() }

func (mistralArgsFormat) root(g *callGrammar) string {
	id := fmt.Sprintf(`(%s [a-zA-Z0-9]{%d})?`, g.b.Literal(mistralID), shortIDLen)
	var ways []string
	for i, name := range g.names {
		ways = append(ways, fmt.Sprintf("%s %s %s %s", g.b.Literal(name), id, g.b.Literal(mistralArgs), g.args[i]))
	}
	one := g.b.Rule("call", fmt.Sprintf("%s (%s)", g.b.Literal(mistralCalls), strings.Join(ways, " | ")))
	return g.repeated(one, "")
}

func (mistralArgsFormat) triggers(*callGrammar) []string {
	return []string{`\[TOOL_CALLS\]`}
}

func (mistralArgsFormat) open(s string, names []string) match {
	var verdicts []verdict
	for _, name := range names {
		v, n := sequence(s, mistralCalls, name)
		if v == yes {
			rest := s[n+len(name):]
			v, n = argsStart(rest)
			n += len(s) - len(rest)
		}
		if v == yes {
			return match{verdict: yes, n: n, name: name}
		}
		verdicts = append(verdicts, v)
	}
	return match{verdict: best(verdicts...)}
}

// argsStart looks for the object after a name, past an id and a marker.
func argsStart(s string) (verdict, int) {
	at := 0
	switch literalAt(s, mistralID) {
	case more:
		return more, 0
	case yes:
		at = len(mistralID)
		for at < len(s) && s[at] != '[' && s[at] != '{' && at < len(mistralID)+4*shortIDLen {
			at++
		}
		if at == len(s) {
			return more, 0
		}
	}
	v, n := sequence(s[at:], mistralArgs, "{")
	if v == no {
		v, n = sequence(s[at:], "{")
	}
	return v, at + n
}

func (mistralArgsFormat) next(string, []string) match { return match{verdict: no} }
