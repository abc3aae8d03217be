package chat

import (
	"fmt"
	"regexp"
	"strings"
)

// llamaFormat is that of Llama 3: the whole answer is an object with parameters,
// after a tag if the model likes.
type llamaFormat struct{}

const pythonTag = "<|python_tag|>"

func (llamaFormat) name() string { return "llama3" }

func (llamaFormat) marker() string { return "" }

func (llamaFormat) markers() []string { return []string{pythonTag} }

func (llamaFormat) root(g *callGrammar) string {
	one := g.object("parameters", "")
	return fmt.Sprintf("%s? %s", g.b.Literal(pythonTag), g.repeated(one, g.b.Literal("; ")))
}

func (llamaFormat) triggers(g *callGrammar) []string {
	var names []string
	for _, name := range g.names {
		names = append(names, regexp.QuoteMeta(quotedJSON(name)))
	}
	return []string{
		regexp.QuoteMeta(pythonTag) + `(?:\{"?)?`,
		`\{"name": (?:` + strings.Join(names, "|") + `)(?:,(?: "?)?)?`,
	}
}

func (llamaFormat) open(s string, names []string) match {
	v, n := sequence(s, pythonTag, "{")
	if v == no {
		v, n = sequence(s, "{")
	}
	if v == yes {
		v = callPrefix(s[n:], names)
	}
	return match{verdict: v, n: n}
}

func (llamaFormat) next(s string, names []string) match {
	for _, separator := range []string{";", ","} {
		v, n := sequence(s, separator, "{")
		if v == yes {
			v = callPrefix(s[n:], names)
		}
		if v != no {
			return match{verdict: v, n: n}
		}
	}
	return match{verdict: no}
}

// callPrefix reports whether an object that may not be complete yet can still be
// the call of a tool: an answer in JSON should not be held back to its end.
func callPrefix(s string, names []string) verdict {
	verdicts := []verdict{}
	for _, name := range names {
		v, _ := sequence(s, "{", `"name"`, ":", quotedJSON(name))
		verdicts = append(verdicts, v)
	}
	v, _ := sequence(s, "{", `"type"`, ":", `"function"`)
	return best(append(verdicts, v)...)
}

// best is the most hopeful of several verdicts.
func best(verdicts ...verdict) verdict {
	out := no
	for _, v := range verdicts {
		if v == yes {
			return yes
		}
		out = max(out, v)
	}
	return out
}
