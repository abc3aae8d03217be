package chat

import (
	"fmt"
	"strings"

	"tandem/node/chat/jinja"
	"tandem/node/grammar"
)

// reasoningTags stand around thoughts.
type reasoningTags struct{ open, end string }

// tagsOf finds the tags that a template knows. Models may have learned the usual
// ones even if their template does not mention them.
func tagsOf(source string) (tags reasoningTags, known bool) {
	usual := reasoningTags{"<think>", "</think>"}
	for _, tags := range []reasoningTags{usual, {"[THINK]", "[/THINK]"}, {"<seed:think>", "</seed:think>"}} {
		if strings.Contains(source, tags.end) || strings.Contains(source, tags.open) {
			return tags, true
		}
	}
	return usual, false
}

// opened reports whether a prompt ends inside thoughts: whether what the template
// wrote after the last foreign text opens them and does not close them.
func (g reasoningTags) opened(t jinja.Text) bool {
	tail := t.String()
	if spans := t.ForeignSpans(); len(spans) > 0 {
		tail = tail[spans[len(spans)-1].End:]
	}
	return strings.LastIndex(tail, g.open) > strings.LastIndex(tail, g.end)
}

// ReasoningPrefix is what a grammar for the answer has to begin with, so that the
// model may think first: the rest of the thoughts if the prompt opened them, or
// optional thoughts if the template knows them, else nothing. It must be called
// before anything else is added to b.
func (t *Template) ReasoningPrefix(b *grammar.Builder, thinkOpen bool) string {
	prefix := t.thoughts(b, thinkOpen)
	if t.channels {
		prefix += b.Literal(final) + " "
	}
	return prefix
}

// thoughts is the part of a prefix that is for thoughts alone.
func (t *Template) thoughts(b *grammar.Builder, thinkOpen bool) string {
	if t.channels {
		return fmt.Sprintf("(%s %s %s)? ", b.Literal(analysis), until(b, "thoughts", "<|end|>"), b.Literal(startMark+"assistant"))
	}
	if !thinkOpen && !t.caps.Reasoning {
		return ""
	}
	rest := until(b, "thoughts", t.tags.end) + ` [ \n]{0,4} `
	if thinkOpen {
		return rest
	}
	return fmt.Sprintf("(%s %s)? ", b.Literal(t.tags.open), rest)
}

// until adds rules for any text up to and including the first end: one rule for
// each number of characters of end that have been seen, as in the search of
// Knuth, Morris and Pratt.
func until(b *grammar.Builder, name, end string) string {
	rule := func(seen int) string { return fmt.Sprintf("%s%d", name, seen) }
	for seen := len(end) - 1; seen >= 0; seen-- {
		var ways []string
		known := ""
		for _, c := range distinct(end) {
			next := overlap(end, end[:seen]+string(c))
			switch next {
			case 0:
				continue
			case len(end):
				ways = append(ways, b.Literal(string(c)))
			default:
				ways = append(ways, b.Literal(string(c))+" "+rule(next))
			}
			known += fmt.Sprintf(`\x%02X`, c)
		}
		ways = append(ways, fmt.Sprintf("[^%s] %s", known, rule(0)))
		b.Rule(rule(seen), strings.Join(ways, " | "))
	}
	return rule(0)
}

// distinct lists the bytes of an ASCII text once each.
func distinct(s string) []byte {
	var out []byte
	for i := range len(s) {
		if strings.IndexByte(s, s[i]) == i {
			out = append(out, s[i])
		}
	}
	return out
}

// overlap is the length of the longest prefix of end that s ends with.
func overlap(end, s string) int {
	n := min(len(end), len(s))
	for !strings.HasSuffix(s, end[:n]) {
		n--
	}
	return n
}
