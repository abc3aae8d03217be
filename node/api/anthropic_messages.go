package api

import (
	"strconv"
	"strings"

	"tandem/node/chat"
)

// anthropicMessages is POST /v1/messages.
var anthropicMessages = dialect{
	endpoint: "messages", idPrefix: "msg_", decode: decodeMessages, refuse: refuseAnthropic,
	media: "text/event-stream", comments: true, stream: newMessagesStream, whole: wholeMessage,
}

func decodeMessages(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	o.anthropicPrompt(c)
	o.flag("stream", &c.stream)
	if !o.integer("max_tokens", &c.MaxTokens, 1, MaxTokens) {
		o.bad("max_tokens", "is required: a whole number from 1 to %d", MaxTokens)
	}
	c.Sampling = openAIDefaults()
	o.number("temperature", &c.Sampling.Temperature, unit)
	o.number("top_p", &c.Sampling.TopP, aboveZero)
	o.integer("top_k", &c.Sampling.TopK, 0, MaxTokens)
	if raw := o.take("stop_sequences"); raw != nil && raw[0] != '[' {
		o.wrong("stop_sequences", raw, "an array of strings")
	}
	c.Stop = o.stops("stop_sequences")
	if meta := o.child("metadata"); meta != nil {
		var user string
		meta.text("user_id", &user, MaxIdentifier)
		meta.rest()
	}
	o.unsupported("service_tier", "only auto and standard_only are supported", `"auto"`, `"standard_only"`)
	o.unsupported("speed", "only standard is supported", `"standard"`)
	o.unsupported("inference_geo", "is not supported: answers are computed where this cluster is")
	o.unsupported("diagnostics", "is not supported: usage tells what was cached")
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// decodeCountTokens reads the body of POST /v1/messages/count_tokens: what of a
// message makes its prompt.
func decodeCountTokens(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	o.anthropicPrompt(c)
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// anthropicPrompt reads what makes the prompt.
func (o *object) anthropicPrompt(c *call) {
	c.N, c.answers = 1, 1
	c.Sampling = openAIDefaults()
	c.Model = o.model("model")
	c.Messages = o.anthropicConversation()
	c.Tools = o.anthropicTools()
	c.ParallelToolCalls = true
	c.ToolChoice = o.anthropicToolChoice(c)
	o.anthropicThinking(c)
	o.outputConfig(c)
	o.take("cache_control") // granted: every prefix is cached
	o.unsupported("container", "containers are not supported")
	o.unsupported("context_management", "is not supported: nothing is ever cut from a conversation")
	o.unsupported("user_profile_id", "is not supported: the API key says who asks")
	o.unsupported("workspace_id", "is not supported: the API key says who asks")
	o.unsupported("mcp_servers", "MCP servers are not supported", "[]")
	o.unsupported("output_format", "is not supported under this name; use output_config.format")
}

// anthropicThinking reads whether the model thinks first. Nothing said is "no", as in
// the original. The budget is a target there, not a limit; what ends thoughts here is
// the model itself, or max_tokens.
func (o *object) anthropicThinking(c *call) {
	on := false
	c.Think = &on
	t := o.child("thinking")
	if t == nil {
		return
	}
	var kind string
	if !t.oneOf("type", &kind, "enabled", "disabled", "adaptive") {
		t.bad("type", "is required")
	}
	budget := 0
	given := t.integer("budget_tokens", &budget, 1024, MaxTokens)
	switch {
	case kind == "enabled" && !given:
		t.bad("budget_tokens", "is required with type enabled: a whole number from 1024 to %d", MaxTokens)
	case kind == "enabled":
		on = true
		c.notes = append(c.notes, "thinking.budget_tokens is a target that is not enforced: max_tokens bounds thoughts and text together")
	case kind == "adaptive":
		c.Think = nil
	}
	t.unsupported("display", "only summarized is supported: thoughts come whole", `"summarized"`)
	t.rest()
}

// outputConfig reads the shape of the answer, and how much effort it is worth: levels
// reach the templates that know some.
func (o *object) outputConfig(c *call) {
	config := o.child("output_config")
	if config == nil {
		return
	}
	var effort string
	if config.oneOf("effort", &effort, "low", "medium", "high", "xhigh", "max") {
		c.TemplateArgs = map[string]any{"reasoning_effort": effort}
	}
	if format := config.child("format"); format != nil {
		var kind string
		if !format.oneOf("type", &kind, "json_schema") {
			format.bad("type", "is required")
		}
		if c.Format.Schema = format.schema("schema"); c.Format.Schema == nil {
			format.bad("schema", "is required")
		}
		format.rest()
	}
	config.unsupported("task_budget", "is not supported")
	config.rest()
}

// anthropicConversation reads the system prompt and the messages.
func (o *object) anthropicConversation() []chat.Message {
	var messages []chat.Message
	if text, given := o.textBlocks("system"); given && text != "" {
		messages = append(messages, chat.Message{Role: "system", Content: text})
	}
	list, _ := o.list("messages", MaxMessages)
	if len(list) == 0 {
		o.bad("messages", "is required and must hold at least one message")
		return nil
	}
	for i, raw := range list {
		m := o.object(at("messages", i), raw)
		var role string
		if !m.oneOf("role", &role, "user", "assistant", "system") {
			m.bad("role", "is required")
		}
		if i == len(list)-1 && role == "assistant" {
			m.bad("role", "an answer that the request begins is not supported; the last message must be the user's")
		}
		messages = append(messages, m.anthropicContent(role)...)
		m.rest()
		if o.err != nil {
			return nil
		}
	}
	nameResults(messages)
	return messages
}

// textBlocks reads a string, or blocks of text, which become paragraphs.
func (o *object) textBlocks(name string) (string, bool) {
	raw := o.take(name)
	switch {
	case raw == nil:
		return "", false
	case raw[0] == '"':
		return unquote(raw), true
	case raw[0] != '[':
		o.wrong(name, raw, "a string or an array of blocks")
		return "", false
	}
	blocks, _ := o.list(name, MaxParts)
	var texts []string
	for i, block := range blocks {
		b := o.object(o.param(at(name, i)), block)
		if kind := b.blockType(); kind != "text" {
			b.bad("type", "a block of the type %q is not supported here; only text is", clip(kind, 40))
		}
		texts = append(texts, b.blockText())
	}
	return paragraphs(texts), true
}

func paragraphs(texts []string) string { return strings.Join(texts, "\n\n") }

func (o *object) blockType() string {
	var kind string
	if !o.text("type", &kind, MaxIdentifier) {
		o.bad("type", "is required")
	}
	return kind
}

// blockText reads the rest of a block of text.
func (o *object) blockText() string {
	var text string
	if !o.text("text", &text, MaxBody) {
		o.bad("text", "is required")
	}
	o.take("cache_control")
	o.unsupported("citations", "citations are not supported", "[]")
	o.rest()
	return text
}

// anthropicContent reads the content of one message. Results of tools are messages of
// their own, in the order in which they come.
func (o *object) anthropicContent(role string) []chat.Message {
	raw := o.take("content")
	switch {
	case raw == nil:
		o.bad("content", "is required in a message of the role %s", role)
		return nil
	case raw[0] == '"':
		return []chat.Message{{Role: role, Content: unquote(raw)}}
	case raw[0] != '[':
		o.wrong("content", raw, "a string or an array of blocks")
		return nil
	}
	blocks, _ := o.list("content", MaxParts)
	var messages []chat.Message
	var texts []string
	m := chat.Message{Role: role}
	for i, block := range blocks {
		b := o.object(o.param(at("content", i)), block)
		switch kind := b.blockType(); {
		case kind == "text":
			texts = append(texts, b.blockText())
		case kind == "tool_result" && role == "user":
			if len(texts) > 0 {
				messages, texts = append(messages, chat.Message{Role: role, Content: paragraphs(texts)}), nil
			}
			messages = append(messages, b.toolResult())
		case kind == "tool_use" && role == "assistant":
			m.ToolCalls = append(m.ToolCalls, b.toolUse())
		case kind == "thinking" && role == "assistant":
			m.Reasoning = strings.TrimPrefix(m.Reasoning+"\n\n"+b.thought(), "\n\n")
		default:
			b.bad("type", "a block of the type %q is not supported in a message of the role %s", clip(kind, 40), role)
		}
		if o.err != nil {
			return nil
		}
	}
	if len(m.ToolCalls) > MaxToolCalls {
		o.bad("content", "has more than %d calls of tools", MaxToolCalls)
	}
	m.Content = paragraphs(texts)
	if len(texts) > 0 || len(m.ToolCalls) > 0 || m.Reasoning != "" {
		messages = append(messages, m)
	}
	if len(messages) == 0 {
		o.bad("content", "is empty; it must hold at least one block")
	}
	return messages
}

// toolResult reads what a tool gave. Templates have no place for "it failed": the text
// says it.
func (o *object) toolResult() chat.Message {
	m := chat.Message{Role: "tool"}
	if !o.text("tool_use_id", &m.ToolCallID, MaxIdentifier) || m.ToolCallID == "" {
		o.bad("tool_use_id", "is required: it says which call this is the result of")
	}
	m.Content, _ = o.textBlocks("content")
	failed := false
	if o.flag("is_error", &failed); failed {
		m.Content = "Error: " + m.Content
	}
	o.take("cache_control")
	o.unsupported("toolset_name", "toolsets are not supported")
	o.rest()
	return m
}

func (o *object) toolUse() chat.ToolCall {
	var call chat.ToolCall
	if !o.text("id", &call.ID, MaxIdentifier) || call.ID == "" {
		o.bad("id", "is required")
	}
	if !o.text("name", &call.Name, MaxIdentifier) || call.Name == "" {
		o.bad("name", "is required")
	}
	call.Arguments = "{}"
	if raw := o.take("input"); raw == nil {
		o.bad("input", "is required: an object")
	} else if raw[0] != '{' {
		o.wrong("input", raw, "an object")
	} else {
		call.Arguments = compact(raw)
	}
	o.take("cache_control")
	o.unsupported("toolset_name", "toolsets are not supported")
	o.take("caller") // who called it, which the answers of this server never say
	o.rest()
	return call
}

// thought reads thoughts of an answer that came back. Their signature is not looked
// at: nothing here signs.
func (o *object) thought() string {
	var text, signature string
	if !o.text("thinking", &text, MaxBody) {
		o.bad("thinking", "is required")
	}
	o.text("signature", &signature, MaxBody)
	o.rest()
	return text
}

// anthropicTools reads the functions that the model may call.
func (o *object) anthropicTools() []chat.Tool {
	list, _ := o.list("tools", MaxTools)
	var tools []chat.Tool
	names := map[string]bool{}
	for i, raw := range list {
		t := o.object(o.param(at("tools", i)), raw)
		var tool chat.Tool
		kind := "custom"
		if t.text("type", &kind, MaxIdentifier); kind != "custom" {
			t.bad("type", "a tool of the type %q is not supported; only custom ones are", clip(kind, 40))
		}
		t.text("name", &tool.Name, MaxIdentifier)
		if !validToolName(tool.Name) {
			t.bad("name", "%s must have 1 to %d letters, digits, _ or -", strconv.Quote(clip(tool.Name, 40)), MaxToolName)
		}
		if names[tool.Name] {
			t.bad("name", "%q is there twice", tool.Name)
		}
		names[tool.Name] = true
		t.text("description", &tool.Description, MaxSchema)
		if raw := t.take("input_schema"); raw == nil {
			t.bad("input_schema", "is required: a JSON Schema")
		} else if raw[0] != '{' {
			t.wrong("input_schema", raw, "an object")
		}
		tool.Parameters = t.schema("input_schema")
		t.flag("strict", &tool.Strict)
		t.take("cache_control")
		t.take("eager_input_streaming") // input is streamed as it is made, always
		t.unsupported("defer_loading", "is not supported", "false")
		t.unsupported("allowed_callers", `only ["direct"] is supported`, `["direct"]`)
		t.unsupported("input_examples", "is not supported; put examples into the description", "[]")
		t.rest()
		if o.err != nil {
			return nil
		}
		tools = append(tools, tool)
	}
	return tools
}

// anthropicToolChoice reads tool_choice, which also says whether several calls may
// come at once.
func (o *object) anthropicToolChoice(c *call) chat.ToolChoice {
	choice := chat.ToolChoice{Mode: "none"}
	if len(c.Tools) > 0 {
		choice.Mode = "auto"
	}
	t := o.child("tool_choice")
	if t == nil {
		return choice
	}
	var kind string
	if !t.oneOf("type", &kind, "auto", "any", "tool", "none") {
		t.bad("type", "is required")
	}
	single := false
	t.flag("disable_parallel_tool_use", &single)
	c.ParallelToolCalls = !single && kind != "tool"
	if kind == "tool" && !t.text("name", &choice.Name, MaxIdentifier) {
		t.bad("name", "is required with type tool")
	}
	t.rest()
	switch {
	case o.err != nil:
	case len(c.Tools) == 0 && (kind == "any" || kind == "tool"):
		o.bad("tool_choice", "%q needs tools", kind)
	case kind == "tool" && !hasTool(c.Tools, choice.Name):
		t.bad("name", "%q is not among the tools", clip(choice.Name, MaxToolName))
	case len(c.Tools) == 0:
	default:
		choice.Mode = map[string]string{"auto": "auto", "any": "required", "tool": "function", "none": "none"}[kind]
	}
	return choice
}
