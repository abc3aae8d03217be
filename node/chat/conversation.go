package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// conversation is the messages of a request while they are made to fit a
// template. It never changes the request's own.
type conversation struct {
	messages []Message
	warnings []string
}

func newConversation(messages []Message) *conversation {
	c := &conversation{messages: slices.Clone(messages)}
	names := map[string]string{}
	for i := range c.messages {
		m := &c.messages[i]
		if m.Role == "developer" {
			m.Role = "system"
		}
		for _, call := range m.ToolCalls {
			names[call.ID] = call.Name
		}
		if m.Role == "tool" && m.Name == "" {
			m.Name = names[m.ToolCallID]
		}
	}
	return c
}

func (c *conversation) warn(text string) { c.warnings = append(c.warnings, text) }

// foldSystem moves system messages into the first user message after them.
func (c *conversation) foldSystem() {
	var out []Message
	var held []string
	for _, m := range c.messages {
		switch {
		case m.Role == "system":
			held = append(held, m.Content)
			continue
		case len(held) > 0 && m.Role == "user":
			m.Content = strings.Join(append(held, m.Content), "\n\n")
			held = nil
		case len(held) > 0:
			out = append(out, Message{Role: "user", Content: strings.Join(held, "\n\n")})
			held = nil
		}
		out = append(out, m)
	}
	if len(held) > 0 {
		out = append(out, Message{Role: "user", Content: strings.Join(held, "\n\n")})
	}
	if len(out) < len(c.messages) || !slices.EqualFunc(out, c.messages, sameRole) {
		c.warn("the model's template has no system role: system messages were put into user messages")
	}
	c.messages = out
}

func sameRole(a, b Message) bool { return a.Role == b.Role }

// missing reports whether a prompt lacks what a user or the system says. Answers
// and results may be shown in another form; these never are.
func (c *conversation) missing(prompt string) bool {
	const (
		enough    = 80 // bytes that tell a message from others
		elsewhere = 50 // messages that are looked for in the whole prompt
	)
	at, searches := 0, 0
	for _, m := range c.messages {
		if m.Role != "user" && m.Role != "system" {
			continue
		}
		words := strings.TrimSpace(m.Content)
		words = strings.ToValidUTF8(words[:min(len(words), enough)], "")
		// Users' messages come in order; system messages may go elsewhere.
		if m.Role == "user" {
			if n := strings.Index(prompt[at:], words); n >= 0 {
				at += n + len(words)
				continue
			}
		}
		if searches++; searches > elsewhere {
			return false
		}
		if !strings.Contains(prompt, words) {
			return true
		}
	}
	return false
}

// alternate makes the roles alternate for templates that insist on it: system
// messages in the middle, or where there is nothing else, become the user's, and
// neighbours of the same role are joined. It reports whether that changed anything.
func (c *conversation) alternate() bool {
	var out []Message
	changed := false
	for i, m := range c.messages {
		middle := i > 0 && out[len(out)-1].Role != "system"
		if m.Role == "system" && (middle || len(c.messages) == 1) {
			m.Role, changed = "user", true
		}
		if n := len(out) - 1; n >= 0 && joinable(out[n], m) {
			out[n].Content = strings.TrimPrefix(out[n].Content+"\n\n"+m.Content, "\n\n")
			out[n].ToolCalls = m.ToolCalls
			changed = true
			continue
		}
		out = append(out, m)
	}
	if changed {
		c.messages = out
		c.warn("the model's template wants alternating roles: some messages were joined or given to the user")
	}
	return changed
}

func joinable(a, b Message) bool {
	return a.Role == b.Role && a.Role != "tool" && len(a.ToolCalls) == 0
}

// splitCalls gives each call its own message, with its result behind it, for
// templates that know only one call at a time.
func (c *conversation) splitCalls() {
	results := map[string]int{} // the message that answers a call
	for i, m := range c.messages {
		if m.Role == "tool" {
			results[m.ToolCallID] = i
		}
	}
	moved := map[int]bool{}
	var out []Message
	for i, m := range c.messages {
		if moved[i] {
			continue
		}
		if len(m.ToolCalls) < 2 {
			out = append(out, m)
			continue
		}
		for n, call := range m.ToolCalls {
			one := m
			one.ToolCalls = []ToolCall{call}
			if n > 0 {
				one.Content, one.Reasoning = "", ""
			}
			out = append(out, one)
			if at, ok := results[call.ID]; ok && at > i && !moved[at] {
				out = append(out, c.messages[at])
				moved[at] = true
			}
		}
	}
	c.messages = out
}

// genericCall is a call as the generic format writes it.
type genericCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// tellTools describes tools in a system message, for templates that cannot.
func (c *conversation) tellTools(tools []Tool) error {
	var b strings.Builder
	b.WriteString("You can call these tools. Their arguments are described by JSON Schema.\n")
	for i, t := range tools {
		var params bytes.Buffer
		if err := json.Compact(&params, t.schema()); err != nil {
			return refusef("tools[%d].function.parameters: %v", i, err)
		}
		fmt.Fprintf(&b, "\nTool %s\n", t.Name)
		if t.Description != "" {
			b.WriteString(t.Description + "\n")
		}
		fmt.Fprintf(&b, "Arguments: %s\n", params.Bytes())
	}
	b.WriteString("\nTo call tools, answer with nothing but JSON of this form:\n" +
		`{"tool_calls": [{"name": "the tool", "arguments": {"argument": "value"}}]}` +
		"\nTheir results come with the next message. If no tool is needed, answer in plain words.")
	if len(c.messages) > 0 && c.messages[0].Role == "system" {
		c.messages[0].Content += "\n\n" + b.String()
		return nil
	}
	c.messages = append([]Message{{Role: "system", Content: b.String()}}, c.messages...)
	return nil
}

// plainCalls writes earlier calls and their results as ordinary messages.
func (c *conversation) plainCalls() error {
	var out []Message
	results := false // the last message holds results
	for i, m := range c.messages {
		if m.Role == "tool" {
			text := fmt.Sprintf("Result of %s:\n%s", orTool(m.Name), m.Content)
			if results {
				out[len(out)-1].Content += "\n\n" + text
			} else {
				out = append(out, Message{Role: "user", Content: text})
			}
			results = true
			continue
		}
		results = false
		if len(m.ToolCalls) > 0 {
			text, err := callsText(m.ToolCalls)
			if err != nil {
				return refusef("messages[%d].tool_calls: %v", i, err)
			}
			m.Content, m.ToolCalls = strings.TrimPrefix(m.Content+"\n"+text, "\n"), nil
		}
		out = append(out, m)
	}
	c.messages = out
	return nil
}

func orTool(name string) string {
	if name == "" {
		return "the tool"
	}
	return name
}

func callsText(calls []ToolCall) (string, error) {
	var list []genericCall
	for _, c := range calls {
		list = append(list, genericCall{c.Name, json.RawMessage(orObject(c.Arguments))})
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(map[string]any{"tool_calls": list})
	return strings.TrimSpace(b.String()), err
}
