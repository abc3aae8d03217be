package chat

import (
	"encoding/json"
	"regexp"
	"strings"
)

// toolFormat is how a family of models writes calls: the grammar that forces
// them and the reading of answers, side by side. Implementations have no state.
type toolFormat interface {
	name() string
	// marker begins calls anywhere in an answer; without one, calls stand only at
	// its beginning.
	marker() string
	// markers are all texts around calls that may be control tokens.
	markers() []string
	// root is the body of a grammar for one or more calls.
	root(g *callGrammar) string
	// triggers are the bodies of patterns for the beginning of a call; each matches
	// only what the grammar of root also begins with.
	triggers(g *callGrammar) []string
	// open looks for the beginning of calls at the start of s.
	open(s string, names []string) match
	// next looks for what follows a call at the start of s: another one (yes, at
	// its object), or the end (no, with the length of what belongs to the calls).
	next(s string, names []string) match
}

// verdict says whether a text is what was looked for.
type verdict int

const (
	no verdict = iota
	yes
	more // it depends on what follows
)

// match is the result of looking at a text.
type match struct {
	verdict verdict
	n       int    // bytes before the JSON object of the call
	name    string // of the tool, if it stands before the object, which then holds only the arguments
}

// formatOf recognises the format of the probe's call in a rendered conversation.
func formatOf(rendered string) toolFormat {
	words := strings.NewReplacer("@name", probeTool, "@args", `\{ ?"`+probeKey+`": ?"`+probeValue+`" ?\}`)
	call := func(pattern string) bool {
		return regexp.MustCompile(words.Replace(pattern)).MatchString(rendered)
	}
	switch {
	case call(`to=functions\.@name<\|channel\|>commentary[^<]*<\|message\|>@args<\|call\|>`):
		return harmonyFormat{}
	case call(`\[TOOL_CALLS\]\s*\[\s*\{[^{]*"name": ?"@name", ?"arguments": ?@args`):
		return mistralFormat{}
	case call(`\[TOOL_CALLS\]\s*@name(\[CALL_ID\]\w*)?(\[ARGS\])?\s*@args`):
		return mistralArgsFormat{}
	case call(`<tool_call>\s*\{[^{]*"name": ?"@name", ?"arguments": ?@args`):
		return hermesFormat{}
	case call(`\{"name": ?"@name", ?"parameters": ?@args`):
		return llamaFormat{}
	}
	return nil
}

// quotedJSON is s as a JSON string.
func quotedJSON(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(raw)
}

// literal looks for want at the start of s.
func literalAt(s, want string) verdict {
	switch {
	case strings.HasPrefix(s, want):
		return yes
	case strings.HasPrefix(want, s):
		return more
	}
	return no
}

// sequence looks for texts in order, with optional whitespace before each; n is
// where the last one begins.
func sequence(s string, texts ...string) (v verdict, n int) {
	at := 0
	for _, want := range texts {
		at += len(s[at:]) - len(strings.TrimLeft(s[at:], " \t\r\n"))
		if v := literalAt(s[at:], want); v != yes {
			return v, 0
		}
		n = at
		at += len(want)
	}
	return yes, n
}
