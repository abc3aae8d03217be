package api

import (
	"bytes"
	"encoding/json"
	"strings"

	"tandem/node/chat"
)

// openAIResponses is POST /v1/responses: the part of it that needs no memory of
// earlier answers.
var openAIResponses = dialect{
	endpoint: "responses", idPrefix: responsePrefix, decode: decodeResponses, refuse: refuseOpenAI,
	media: "text/event-stream", comments: true, stream: newResponsesStream, whole: wholeResponse,
}

// responsePrefix begins the ids of answers.
const responsePrefix = "resp_"

// responseEcho are the fields of a request that its answer repeats, as they came; nil:
// they were left out.
type responseEcho struct {
	instructions, tools, toolChoice, text, reasoning, metadata json.RawMessage
	user                                                       string
	temperature, topP                                          float64
}

func decodeResponses(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	o.responsePrompt(c)
	o.flag("stream", &c.stream)
	if options := o.child("stream_options"); options != nil {
		if !c.stream {
			o.bad("stream_options", "needs stream: true")
		}
		options.unsupported("include_obfuscation", "is not supported", "false")
		options.rest()
	}
	o.integer("max_output_tokens", &c.MaxTokens, 1, MaxTokens)
	o.number("temperature", &c.Sampling.Temperature, temperatures)
	o.number("top_p", &c.Sampling.TopP, aboveZero)
	o.responseLogprobs(c)
	o.text("user", &c.responses.user, MaxIdentifier)
	var ignored string
	for _, name := range []string{"safety_identifier", "prompt_cache_key"} {
		o.text(name, &ignored, MaxIdentifier)
	}
	o.unsupported("store", "answers are not stored; leave it out or send false", "false")
	o.unsupported("background", "answers are not stored, so none can be fetched later", "false")
	o.unsupported("max_tool_calls", "is for built-in tools, which are not supported")
	o.unsupported("service_tier", "only auto and default are supported", `"auto"`, `"default"`)
	o.unsupported("prompt_cache_retention", `only "in_memory" is supported`, `"in_memory"`, `"in-memory"`)
	o.unsupported("moderation", "moderation is not supported")
	o.unsupported("image", "images are not supported")
	o.unsupported("access_programs", "is not supported")
	o.unsupported("background_options", "answers are not stored, so none can be fetched later")
	o.cacheOptions()
	o.metadata()
	o.rest()
	c.warnings = o.unknown
	c.responses.temperature, c.responses.topP = c.Sampling.Temperature, c.Sampling.TopP
	return c, o.err
}

// decodeResponseTokens reads the body of POST /v1/responses/input_tokens: what of a
// request makes its prompt.
func decodeResponseTokens(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	o.responsePrompt(c)
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// responsePrompt reads what makes the prompt.
func (o *object) responsePrompt(c *call) {
	c.N, c.answers = 1, 1
	c.Sampling = openAIDefaults()
	c.responses = &responseEcho{instructions: o.keep("instructions"), tools: o.keep("tools"), toolChoice: o.keep("tool_choice"), text: o.keep("text"),
		reasoning: o.keep("reasoning"), metadata: o.keep("metadata")}
	c.Model = o.model("model")
	var instructions string
	if o.text("instructions", &instructions, MaxBody) && instructions != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: instructions})
	}
	c.Messages = append(c.Messages, o.responseInput()...)
	c.Tools = o.responseTools()
	c.ToolChoice = o.responseToolChoice(c.Tools)
	c.ParallelToolCalls = o.parallelCalls(c.ToolChoice)
	c.Format = o.responseText()
	o.responseReasoning(c)
	const stateless = "answers are not stored; send the whole conversation as input"
	o.unsupported("previous_response_id", stateless)
	o.unsupported("conversation", stateless)
	o.unsupported("prompt", "stored prompts are not supported; send instructions and input")
	o.unsupported("truncation", "only disabled is supported: a prompt is never cut", `"disabled"`)
	o.unsupported("context_management", "is not supported: a prompt is never cut", "[]")
	o.unsupported("personality", "is not supported; use instructions")
}

// keep is a copy of a field that another getter reads, too: what it is part of can be
// freed.
func (o *object) keep(name string) json.RawMessage {
	if m := o.find(name); m != nil && o.err == nil && m.raw[0] != 'n' {
		return bytes.Clone(m.raw)
	}
	return nil
}

// responseInput reads a text, or the items of a conversation.
func (o *object) responseInput() []chat.Message {
	raw := o.take("input")
	switch {
	case raw == nil:
		o.bad("input", "is required")
		return nil
	case raw[0] == '"':
		return []chat.Message{{Role: "user", Content: unquote(raw)}}
	case raw[0] != '[':
		o.wrong("input", raw, "a string or an array of items")
		return nil
	}
	items, ok := o.list("input", MaxMessages)
	if ok && len(items) == 0 {
		o.bad("input", "is empty; it must hold at least one item")
	}
	var turn responseTurns
	for i, raw := range items {
		o.object(at("input", i), raw).inputItem(&turn)
		if o.err != nil {
			return nil
		}
	}
	nameResults(turn.messages)
	return turn.messages
}

// responseTurns joins items into messages: thoughts, a text and the calls that follow
// them are one answer of the model.
type responseTurns struct {
	messages []chat.Message
	open     bool // the last message is an answer that further items may belong to
}

// answer is the message that the items of an answer go into. A text begins a new one
// unless only thoughts came before.
func (t *responseTurns) answer(begins bool) *chat.Message {
	if n := len(t.messages); t.open && !(begins && (t.messages[n-1].Content != "" || len(t.messages[n-1].ToolCalls) > 0)) {
		return &t.messages[n-1]
	}
	t.add(chat.Message{Role: "assistant"})
	t.open = true
	return &t.messages[len(t.messages)-1]
}

func (t *responseTurns) add(m chat.Message) {
	t.messages, t.open = append(t.messages, m), false
}

// inputItem reads one item.
func (o *object) inputItem(turn *responseTurns) {
	kind := "message"
	o.text("type", &kind, MaxIdentifier)
	var ignored string
	o.text("id", &ignored, MaxIdentifier)
	o.text("status", &ignored, MaxIdentifier)
	switch kind {
	case "message":
		o.inputMessage(turn)
	case "function_call":
		call := chat.ToolCall{}
		if !o.text("call_id", &call.ID, MaxIdentifier) || call.ID == "" {
			o.bad("call_id", "is required")
		}
		if !o.text("name", &call.Name, MaxIdentifier) || call.Name == "" {
			o.bad("name", "is required")
		}
		call.Arguments = o.argumentText()
		o.take("caller") // who called it, which the answers of this server never say
		o.unsupported("namespace", "namespaces of tools are not supported")
		m := turn.answer(false)
		if m.ToolCalls = append(m.ToolCalls, call); len(m.ToolCalls) > MaxToolCalls {
			o.bad("type", "more than %d calls follow one another", MaxToolCalls)
		}
	case "function_call_output":
		m := chat.Message{Role: "tool"}
		if !o.text("call_id", &m.ToolCallID, MaxIdentifier) || m.ToolCallID == "" {
			o.bad("call_id", "is required: it says which call this is the result of")
		}
		var given bool
		if m.Content, given = o.inputParts("output", "tool"); !given {
			o.bad("output", "is required")
		}
		turn.add(m)
	case "reasoning":
		m := turn.answer(true)
		m.Reasoning = strings.TrimPrefix(m.Reasoning+"\n\n"+o.reasoningItem(), "\n\n")
	default:
		o.bad("type", "an item of the type %q is not supported", clip(kind, 40))
	}
	o.rest()
}

func (o *object) inputMessage(turn *responseTurns) {
	var role string
	if !o.oneOf("role", &role, "system", "developer", "user", "assistant") {
		o.bad("role", "is required")
	}
	text, given := o.inputParts("content", role)
	if !given {
		o.bad("content", "is required in a message of the role %s", role)
	}
	o.take("phase") // which part of an answer it was; the text is the same
	if role == "assistant" {
		turn.answer(true).Content = text
		return
	}
	turn.add(chat.Message{Role: role, Content: text})
}

// inputParts reads a string, or parts of text, which are joined in order.
func (o *object) inputParts(name, role string) (string, bool) {
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
		p := o.object(o.param(at(name, i)), part)
		field, text := "text", ""
		switch kind := p.blockType(); {
		case kind == "refusal" && role == "assistant":
			field = "refusal"
		case kind != "input_text" && kind != "output_text" && kind != "text":
			p.bad("type", "a part of the type %q is not supported; only text is", clip(kind, 40))
		}
		if !p.text(field, &text, MaxBody) {
			p.bad(field, "is required")
		}
		p.take("annotations") // of the answer that came back: they are not in its text
		p.take("logprobs")
		p.rest()
		b.WriteString(text)
	}
	return b.String(), true
}

// reasoningItem reads thoughts that came back: whole, or what other servers make of
// them.
func (o *object) reasoningItem() string {
	o.unsupported("encrypted_content", "thoughts come as text here, and are read as such", `""`)
	text := ""
	for _, name := range []string{"content", "summary"} {
		parts, _ := o.list(name, MaxParts)
		for i, part := range parts {
			p := o.object(o.param(at(name, i)), part)
			if kind := p.blockType(); kind != "reasoning_text" && kind != "summary_text" {
				p.bad("type", "a part of the type %q is not supported here", clip(kind, 40))
			}
			var piece string
			if !p.text("text", &piece, MaxBody) {
				p.bad("text", "is required")
			}
			p.rest()
			if name == "content" || text == "" {
				text += piece
			}
		}
	}
	return text
}

// responseTools reads the functions that the model may call.
func (o *object) responseTools() []chat.Tool {
	list, _ := o.list("tools", MaxTools)
	var tools []chat.Tool
	names := map[string]bool{}
	for i, raw := range list {
		t := o.object(o.param(at("tools", i)), raw)
		if kind := t.blockType(); kind != "function" {
			t.bad("type", "a tool of the type %q is not supported; only function is", clip(kind, 40))
		}
		t.unsupported("defer_loading", "is not supported", "false")
		t.unsupported("allowed_callers", `only ["direct"] is supported`, `["direct"]`)
		t.unsupported("output_schema", "is not supported; say in the description what comes back")
		tool := t.functionTool()
		if names[tool.Name] {
			t.bad("name", "%q is there twice", tool.Name)
		}
		if o.err != nil {
			return nil
		}
		names[tool.Name] = true
		tools = append(tools, tool)
	}
	return tools
}

func (o *object) responseToolChoice(tools []chat.Tool) chat.ToolChoice {
	const name = "tool_choice"
	choice := chat.ToolChoice{Mode: "none"}
	if len(tools) > 0 {
		choice.Mode = "auto"
	}
	raw := o.take(name)
	switch {
	case raw == nil:
		return choice
	case raw[0] == '{':
		choice.Mode = "function"
		named := o.object(name, raw)
		if kind := named.blockType(); kind != "function" {
			named.bad("type", "a choice of the type %q is not supported; only function is", clip(kind, 40))
		}
		if !named.text("name", &choice.Name, MaxIdentifier) {
			named.bad("name", "is required")
		}
		named.rest()
	case raw[0] == '"':
		o.oneOf(name, &choice.Mode, "none", "auto", "required")
	default:
		o.wrong(name, raw, "a string or an object")
	}
	return o.checkChoice(choice, tools)
}

// responseText reads the shape of the text.
func (o *object) responseText() Format {
	var f Format
	text := o.child("text")
	if text == nil {
		return f
	}
	if format := text.child("format"); format != nil {
		var kind string
		if !format.oneOf("type", &kind, "text", "json_object", "json_schema") {
			format.bad("type", "is required")
		}
		switch kind {
		case "json_object":
			f.JSON = true
		case "json_schema":
			format.schemaFormat(&f)
		}
		format.rest()
	}
	text.unsupported("verbosity", "only medium is supported; ask for short or long answers in the prompt", `"medium"`)
	text.rest()
	return f
}

func (o *object) responseReasoning(c *call) {
	r := o.child("reasoning")
	if r == nil {
		return
	}
	var effort string
	if r.oneOf("effort", &effort, append([]string{"none"}, efforts...)...) {
		c.setEffort(effort, effort != "none")
	}
	for _, name := range []string{"summary", "generate_summary"} {
		r.unsupported(name, "only auto is supported: thoughts come whole", `"auto"`)
	}
	r.unsupported("context", "only auto is supported: the model's template decides", `"auto"`)
	r.unsupported("mode", "only standard is supported", `"standard"`)
	r.rest()
}

// responseLogprobs reads what more than the text is wanted.
func (o *object) responseLogprobs(c *call) {
	list, _ := o.list("include", MaxParts)
	for i, raw := range list {
		switch string(raw) {
		case `"message.output_text.logprobs"`:
			c.logprobs = true
		case `"reasoning.encrypted_content"`: // granted in plain text
		default:
			o.bad(at("include", i), "%s is not supported; only message.output_text.logprobs and reasoning.encrypted_content are", show(raw))
		}
	}
	top := 0
	given := o.integer("top_logprobs", &top, 0, MaxTopLogprobs)
	switch {
	case c.logprobs:
		c.Sampling.TopLogprobs = top
	case given && top > 0:
		o.bad("top_logprobs", `needs include: ["message.output_text.logprobs"]`)
	}
}
