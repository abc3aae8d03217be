package chat

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"tandem/node/chat/jinja"
)

// variables are what one run of a template is about.
type variables struct {
	messages []Message
	tools    []Tool
	args     map[string]any
	think    *bool
	generate bool
}

// values puts variables into the shape that the template wants.
func (sh shape) values(v variables) (map[string]jinja.Value, error) {
	vars := map[string]jinja.Value{}
	if !sh.bare { // as transformers does
		vars["tools"], vars["documents"] = nil, nil
	}
	for name, arg := range v.args {
		if slices.Contains([]string{"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"}, name) {
			return nil, refusef("the template argument %q is set by the server", name)
		}
		raw, err := json.Marshal(arg)
		if err == nil {
			vars[name], err = jinja.FromJSON(raw)
		}
		if err != nil {
			return nil, refusef("the template argument %q is not a JSON value: %v", name, err)
		}
	}
	if v.think != nil {
		vars["enable_thinking"], vars["thinking"] = *v.think, *v.think
	}
	vars["add_generation_prompt"] = v.generate
	if len(v.tools) > 0 {
		tools, err := toolValues(v.tools)
		if err != nil {
			return nil, err
		}
		vars["tools"] = tools
	}
	list := jinja.NewList()
	for i, m := range v.messages {
		value, err := sh.message(m)
		if err != nil {
			return nil, refusef("messages[%d].%v", i, err)
		}
		list.Append(value)
	}
	vars["messages"] = list
	return vars, nil
}

// foreign is text from a client; templates need valid UTF-8.
func foreign(s string) jinja.Text { return jinja.Foreign(strings.ToValidUTF8(s, "\uFFFD")) }

func (sh shape) message(m Message) (jinja.Value, error) {
	if sh.thinking && len(m.ToolCalls) > 0 && m.Reasoning != "" && m.Content != "" {
		m.Reasoning, m.Content = m.Reasoning+"\n\n"+m.Content, ""
	}
	d := jinja.NewDict()
	d.Set("role", jinja.Own(m.Role))
	d.Set("content", sh.content(m))
	if m.Name != "" {
		d.Set("name", foreign(m.Name))
	}
	if m.Reasoning != "" && sh.thinking {
		d.Set("thinking", foreign(m.Reasoning))
	} else if m.Reasoning != "" {
		d.Set("reasoning_content", foreign(m.Reasoning))
	}
	if m.ToolCallID != "" {
		d.Set("tool_call_id", sh.id(m.ToolCallID))
	}
	if len(m.ToolCalls) > 0 {
		calls := jinja.NewList()
		for i, c := range m.ToolCalls {
			call, err := sh.call(c)
			if err != nil {
				return nil, fmt.Errorf("tool_calls[%d].%w", i, err)
			}
			calls.Append(call)
		}
		d.Set("tool_calls", calls)
	}
	return d, nil
}

func (sh shape) content(m Message) jinja.Value {
	switch {
	case m.Content == "" && len(m.ToolCalls) > 0 && sh.noneContent:
		return nil
	case sh.parts:
		part := jinja.NewDict()
		part.Set("type", jinja.Own("text"))
		part.Set("text", foreign(m.Content))
		return jinja.NewList(part)
	}
	return foreign(m.Content)
}

func (sh shape) call(c ToolCall) (jinja.Value, error) {
	args, err := jinja.FromJSON([]byte(orObject(c.Arguments)))
	if err != nil {
		return nil, fmt.Errorf("function.arguments must be one JSON object: %w", err)
	}
	if _, ok := args.(*jinja.Dict); !ok {
		return nil, fmt.Errorf("function.arguments must be one JSON object")
	}
	if sh.textArguments {
		args = foreign(orObject(c.Arguments))
	}
	fn := jinja.NewDict()
	fn.Set("name", foreign(c.Name))
	fn.Set("arguments", args)
	d := jinja.NewDict()
	d.Set("id", sh.id(c.ID))
	d.Set("type", jinja.Own("function"))
	d.Set("function", fn)
	return d, nil
}

// orObject reads missing arguments as none.
func orObject(arguments string) string {
	if strings.TrimSpace(arguments) == "" {
		return "{}"
	}
	return arguments
}

// shortIDLen is the length of call ids that Mistral's templates insist on.
const shortIDLen = 9

// id is a call's id as the template wants it. Short ids are derived from the
// long ones, so that results still point to their calls.
func (sh shape) id(id string) jinja.Text {
	if !sh.shortIDs || isShortID(id) {
		return foreign(id)
	}
	const letters = "0123456789abcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(id))
	short := make([]byte, shortIDLen)
	for i := range short {
		short[i] = letters[int(sum[i])%len(letters)]
	}
	return foreign(string(short))
}

func isShortID(id string) bool {
	alnum := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return len(id) == shortIDLen && strings.IndexFunc(id, func(r rune) bool { return !alnum(r) }) < 0
}

// noParameters is the schema of a tool that takes none.
const noParameters = `{"type":"object","properties":{}}`

func (t Tool) schema() json.RawMessage {
	if len(t.Parameters) == 0 || string(t.Parameters) == "null" {
		return json.RawMessage(noParameters)
	}
	return t.Parameters
}

func toolValues(tools []Tool) (*jinja.List, error) {
	list := jinja.NewList()
	for i, t := range tools {
		params, err := jinja.FromJSON(t.schema())
		if err != nil {
			return nil, refusef("tools[%d].function.parameters: %v", i, err)
		}
		fn := jinja.NewDict()
		fn.Set("name", foreign(t.Name))
		fn.Set("description", foreign(t.Description))
		fn.Set("parameters", params)
		d := jinja.NewDict()
		d.Set("type", jinja.Own("function"))
		d.Set("function", fn)
		list.Append(d)
	}
	return list, nil
}
