package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"tandem/node/grammar"
)

// maxCalls bounds the calls of one answer, so that a model that repeats itself
// comes to an end.
const maxCalls = 16

// callGrammar is what a format builds its grammar from.
type callGrammar struct {
	b     *grammar.Builder
	names []string // of the tools that may be called
	args  []string // the rules of their arguments
	many  bool     // more than one call is allowed
}

// ToolGrammar is the grammar for calls. With choice required or function every
// answer is one or more valid calls from its first token on, after thoughts if
// the model has any. With auto the grammar is to sleep until the text generated
// so far matches one of the triggers, as a whole; what the first group matches is
// where the grammar begins. With none, or without tools, there is no grammar.
//
// parallel allows several calls if the template knows them; thinkOpen is that of
// the prompt.
func (t *Template) ToolGrammar(tools []Tool, choice ToolChoice, parallel, thinkOpen bool) (gbnf string, triggers []string, err error) {
	tools, err = callable(tools, choice)
	if len(tools) == 0 || err != nil {
		return "", nil, err
	}
	forced := choice.Mode == "required" || choice.Mode == "function"
	g := &callGrammar{b: grammar.NewBuilder(), many: parallel && t.caps.Parallel}
	prefix := ""
	if forced {
		prefix = t.thoughts(g.b, thinkOpen)
	}
	for i, tool := range tools {
		rule, err := g.arguments(tool, forced || tool.Strict)
		if err != nil {
			return "", nil, refusef("tools[%d].function.parameters: %v", i, err)
		}
		g.names, g.args = append(g.names, tool.Name), append(g.args, rule)
	}
	gbnf, err = g.b.Grammar(prefix + t.format.root(g))
	if err != nil {
		return "", nil, refusef("tools: %v", err)
	}
	if !forced {
		for _, body := range t.format.triggers(g) {
			triggers = append(triggers, t.triggerPattern(body, thinkOpen))
		}
	}
	return gbnf, triggers, nil
}

// callable picks the tools that a choice allows.
func callable(tools []Tool, choice ToolChoice) ([]Tool, error) {
	switch choice.Mode {
	case "none":
		return nil, nil
	case "function":
		for _, t := range tools {
			if t.Name == choice.Name {
				return []Tool{t}, nil
			}
		}
		return nil, refusef("tool_choice names %q, which is not one of the tools", choice.Name)
	case "required":
		if len(tools) == 0 {
			return nil, refusef("tool_choice is required, but there are no tools")
		}
	}
	return tools, nil
}

// arguments adds the rule for a tool's arguments. A schema that grammars cannot
// express fails if it must hold; else any object will do.
func (g *callGrammar) arguments(t Tool, must bool) (string, error) {
	rule, err := g.b.Schema(objectSchema(t.schema()))
	if err != nil && !must {
		return g.b.JSONObject(), nil
	}
	return rule, err
}

// objectSchema makes a schema that does not say what it is for describe an object:
// arguments always are one.
func objectSchema(schema json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(schema, &fields) != nil || fields["type"] != nil || fields["$ref"] != nil {
		return schema
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf", "const", "enum"} {
		if fields[keyword] != nil {
			return schema
		}
	}
	object := bytes.TrimPrefix(bytes.TrimSpace(schema), []byte("{"))
	comma := ","
	if len(fields) == 0 {
		comma = ""
	}
	return append([]byte(`{"type":"object"`+comma), object...)
}

// object is the call of any tool as a JSON object with the name first.
func (g *callGrammar) object(key, after string) string {
	var ways []string
	for i, name := range g.names {
		start := g.b.Literal(`{"name": ` + quotedJSON(name) + `, "` + key + `": `)
		ways = append(ways, start+" "+g.args[i]+" "+after+g.b.Literal("}"))
	}
	return g.b.Rule("call", strings.Join(ways, " | "))
}

// repeated is one or more of something.
func (g *callGrammar) repeated(one, separator string) string {
	if !g.many {
		return one
	}
	return fmt.Sprintf("%s (%s %s){0,%d}", one, separator, one, maxCalls-1)
}

// triggerPattern completes the pattern for the beginning of a call: calls do not
// begin inside thoughts.
func (t *Template) triggerPattern(body string, thinkOpen bool) string {
	anywhere := t.format.marker() != ""
	tagged := t.caps.Reasoning && !t.channels
	end := regexp.QuoteMeta(t.tags.end)
	thoughts := `[\s\S]*?` + end
	before := ""
	switch {
	case thinkOpen && anywhere:
		before = thoughts + `[\s\S]*?`
	case thinkOpen:
		before = thoughts + `\s*`
	case tagged && anywhere:
		// An answer that begins with a tag has thoughts; any other begins otherwise.
		before = `(?:\s*` + regexp.QuoteMeta(t.tags.open) + thoughts + `[\s\S]*?|\s*(?:[^` + regexp.QuoteMeta(t.tags.open[:1]) + `\s][\s\S]*?)?)`
	case tagged:
		before = `(?:\s*` + regexp.QuoteMeta(t.tags.open) + thoughts + `)?\s*`
	case anywhere:
		before = `[\s\S]*?`
	default:
		before = `\s*`
	}
	return "^" + before + "(" + body + ")$"
}
