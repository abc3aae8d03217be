package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"tandem/node/chat"
)

// messages reads a conversation in OpenAI's shape.
func (o *object) messages() []chat.Message {
	list, _ := o.list("messages", MaxMessages)
	if len(list) == 0 {
		o.bad("messages", "is required and must hold at least one message")
		return nil
	}
	messages := make([]chat.Message, 0, len(list))
	for i, raw := range list {
		messages = append(messages, o.object(at("messages", i), raw).message())
		if o.err != nil {
			return nil
		}
	}
	nameResults(messages)
	return messages
}

func (o *object) message() chat.Message {
	var m chat.Message
	if o.text("role", &m.Role, MaxIdentifier); m.Role == "function" {
		o.bad("role", "functions are not supported; use tools, and the role tool for their results")
	}
	o.oneOf("role", &m.Role, "system", "developer", "user", "assistant", "tool")
	if m.Role == "" {
		o.bad("role", "is required")
	}
	var given bool
	m.Content, given = o.content(m.Role)
	o.text("name", &m.Name, MaxIdentifier)
	switch m.Role {
	case "assistant":
		given = o.assistant(&m) || given
	case "tool":
		if !o.text("tool_call_id", &m.ToolCallID, MaxIdentifier) || m.ToolCallID == "" {
			o.bad("tool_call_id", "is required: it says which call this is the result of")
		}
	}
	if !given {
		o.bad("content", "is required in a message of the role %s", m.Role)
	}
	o.rest()
	return m
}

// assistant reads what only answers have. It reports whether there is something
// that can stand without content.
func (o *object) assistant(m *chat.Message) bool {
	o.unsupported("audio", "audio is not supported")
	o.unsupported("function_call", "functions are not supported; use tool_calls")
	o.unsupported("annotations", "annotations are not supported", "[]")
	if refusal := ""; o.text("refusal", &refusal, MaxBody) && m.Content == "" {
		m.Content = refusal
	}
	o.text("reasoning", &m.Reasoning, MaxBody)
	o.text("reasoning_content", &m.Reasoning, MaxBody)
	m.ToolCalls = o.toolCalls()
	return len(m.ToolCalls) > 0 || m.Content != "" || m.Reasoning != ""
}

// content reads a string, or text parts, which are joined in order.
func (o *object) content(role string) (string, bool) {
	const name = "content"
	raw := o.take(name)
	switch {
	case raw == nil:
		return "", false
	case raw[0] == '"':
		return unquote(raw), true
	case raw[0] != '[':
		o.wrong(name, raw, "a string or an array of parts")
		return "", false
	}
	parts, _ := o.list(name, MaxParts)
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(o.object(o.param(at(name, i)), part).part(role))
	}
	return b.String(), true
}

func (o *object) part(role string) string {
	var kind, text string
	if !o.text("type", &kind, MaxIdentifier) {
		o.bad("type", "is required")
	}
	field := "text"
	switch {
	case kind == "text":
	case kind == "refusal" && role == "assistant":
		field = "refusal"
	default:
		o.bad("type", "a part of the type %q is not supported; only text is", clip(kind, 40))
	}
	if !o.text(field, &text, MaxBody) {
		o.bad(field, "is required")
	}
	o.take("prompt_cache_breakpoint") // granted: every prefix is cached
	o.rest()
	return text
}

func (o *object) toolCalls() []chat.ToolCall {
	list, _ := o.list("tool_calls", MaxToolCalls)
	var calls []chat.ToolCall
	for i, raw := range list {
		c := o.object(o.param(at("tool_calls", i)), raw)
		call := chat.ToolCall{}
		var kind string
		if !c.text("id", &call.ID, MaxIdentifier) || call.ID == "" {
			c.bad("id", "is required")
		}
		c.oneOf("type", &kind, "function")
		c.take("index") // left over by clients that joined a stream
		if f := c.function(&call); f != nil {
			call.Arguments = f.argumentText()
			f.rest()
		}
		c.rest()
		calls = append(calls, call)
	}
	return calls
}

func (o *object) function(call *chat.ToolCall) *object {
	f := o.child("function")
	if f == nil || !f.text("name", &call.Name, MaxIdentifier) || call.Name == "" {
		o.bad("function.name", "is required")
		return nil
	}
	return f
}

// argumentText reads arguments that come as text, which must be one JSON object;
// no text is an empty one.
func (o *object) argumentText() string {
	const name = "arguments"
	var s string
	o.text(name, &s, MaxBody)
	if strings.TrimSpace(s) == "" {
		return "{}"
	}
	raw := bytes.TrimSpace([]byte(s))
	if err := checkJSON(raw); err != nil {
		o.bad(name, "must be one JSON object: %v", err)
	} else if raw[0] != '{' {
		o.bad(name, "is %s, but must be one JSON object", kindOf(raw))
	}
	return s
}

// ollamaMessages reads a conversation in Ollama's shape.
func (o *object) ollamaMessages() []chat.Message {
	list, _ := o.list("messages", MaxMessages)
	messages := make([]chat.Message, 0, len(list))
	for i, raw := range list {
		messages = append(messages, o.object(at("messages", i), raw).ollamaMessage())
		if o.err != nil {
			return nil
		}
	}
	numberCalls(messages)
	nameResults(messages)
	return messages
}

func (o *object) ollamaMessage() chat.Message {
	var m chat.Message
	var role string
	o.text("role", &role, MaxIdentifier)
	switch m.Role = strings.ToLower(role); m.Role {
	case "system", "developer", "user", "assistant", "tool":
	default:
		o.bad("role", "%q is not one of %s", clip(role, 40), anyOf([]string{"system", "user", "assistant", "tool"}))
	}
	given := o.text("content", &m.Content, MaxBody)
	o.unsupported("images", "images are not supported", "[]")
	if m.Role == "assistant" {
		o.text("thinking", &m.Reasoning, MaxBody)
		m.ToolCalls = o.ollamaToolCalls()
		given = given || len(m.ToolCalls) > 0 || m.Reasoning != ""
	}
	if m.Role == "tool" {
		o.text("tool_name", &m.Name, MaxIdentifier)
		o.text("name", &m.Name, MaxIdentifier)
		o.text("tool_call_id", &m.ToolCallID, MaxIdentifier)
	}
	if !given {
		o.bad("content", "is required in a message of the role %s", m.Role)
	}
	o.rest()
	return m
}

func (o *object) ollamaToolCalls() []chat.ToolCall {
	list, _ := o.list("tool_calls", MaxToolCalls)
	var calls []chat.ToolCall
	for i, raw := range list {
		c := o.object(o.param(at("tool_calls", i)), raw)
		call := chat.ToolCall{Arguments: "{}"}
		c.text("id", &call.ID, MaxIdentifier)
		c.take("type")
		if f := c.function(&call); f != nil {
			f.take("index")
			if raw := f.take("arguments"); raw != nil {
				if raw[0] != '{' {
					f.wrong("arguments", raw, "an object")
				}
				call.Arguments = compact(raw)
			}
			f.rest()
		}
		c.rest()
		calls = append(calls, call)
	}
	return calls
}

func compact(raw []byte) string {
	var b bytes.Buffer
	_ = json.Compact(&b, raw) // cannot fail: raw was checked
	return b.String()
}

// numberCalls gives ids to calls of a conversation that has none, and results to
// the oldest call that waits for one: some templates ask for ids. The ids depend
// on the position alone, so that a conversation keeps its prefix from turn to turn.
func numberCalls(messages []chat.Message) {
	var waiting []chat.ToolCall
	count := 0
	for i := range messages {
		m := &messages[i]
		for k := range m.ToolCalls {
			if m.ToolCalls[k].ID == "" {
				m.ToolCalls[k].ID = "call_" + strconv.Itoa(count)
			}
			count++
		}
		waiting = append(waiting, m.ToolCalls...)
		if m.Role == "tool" {
			waiting = takeResult(m, waiting)
		}
	}
}

// takeResult finds the call that m answers and returns those that still wait.
func takeResult(m *chat.Message, waiting []chat.ToolCall) []chat.ToolCall {
	for i, call := range waiting {
		if m.ToolCallID == call.ID || m.ToolCallID == "" && (m.Name == "" || m.Name == call.Name) {
			m.ToolCallID = call.ID
			return append(waiting[:i:i], waiting[i+1:]...)
		}
	}
	return waiting
}

// nameResults fills in the names of tools, which only the calls tell.
func nameResults(messages []chat.Message) {
	names := map[string]string{}
	for i := range messages {
		m := &messages[i]
		for _, call := range m.ToolCalls {
			names[call.ID] = call.Name
		}
		if m.Role == "tool" && m.Name == "" {
			m.Name = names[m.ToolCallID]
		}
	}
}
