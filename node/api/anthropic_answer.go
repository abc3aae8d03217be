package api

import (
	"encoding/json"
	"net/http"
	"strings"
)

// anthropicError is the body of an error in Anthropic's shape, and the data of an
// error event.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

// anthropicTypes are Anthropic's names of errors by HTTP status.
var anthropicTypes = map[int]string{
	http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error", http.StatusNotFound: "not_found_error",
	http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error", http.StatusGatewayTimeout: "timeout_error",
}

func shapeAnthropic(e *Error) anthropicError {
	out := anthropicError{Type: "error"}
	out.Error.Message = e.Message
	switch name, ok := anthropicTypes[e.Status]; {
	case ok:
		out.Error.Type = name
	case e.Status >= 400 && e.Status < 500:
		out.Error.Type = "invalid_request_error"
	default:
		out.Error.Type = "api_error"
	}
	return out
}

func refuseAnthropic(w http.ResponseWriter, e *Error) {
	body := shapeAnthropic(e)
	body.RequestID = w.Header().Get(requestID)
	refuse(w, e, body)
}

// anthropicUsage counts tokens. Cached ones are not among the input tokens.
type anthropicUsage struct {
	Input         int `json:"input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	Output        int `json:"output_tokens"`
}

func anthropicUsageOf(u Usage) anthropicUsage {
	return anthropicUsage{Input: u.PromptTokens - u.CachedTokens, CacheRead: u.CachedTokens, Output: u.CompletionTokens}
}

// anthropicMessage is a whole answer, and without content the beginning of a stream.
type anthropicMessage struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Model        string           `json:"model"`
	Content      []anthropicBlock `json:"content"`
	StopReason   *string          `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	Usage        anthropicUsage   `json:"usage"`
}

// anthropicBlock is one block of content; which fields are there depends on its type.
type anthropicBlock struct {
	Type      string          `json:"type"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	Text      *string         `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

func thinkingBlock(text string) anthropicBlock {
	return anthropicBlock{Type: "thinking", Thinking: &text, Signature: new(string)}
}

func textBlock(text string) anthropicBlock { return anthropicBlock{Type: "text", Text: &text} }

func toolBlock(id, name, input string) anthropicBlock {
	return anthropicBlock{Type: "tool_use", ID: id, Name: name, Input: json.RawMessage(input)}
}

// stopReason is why an answer ended, in Anthropic's words, and at which of the
// client's sequences.
func (c *call) stopReason(f Finish, u Usage) (reason string, sequence *string) {
	switch {
	case f.Reason == string(OutcomeToolCalls):
		return "tool_use", nil
	case f.Reason == string(OutcomeLength) && u.CompletionTokens < c.MaxTokens:
		return "model_context_window_exceeded", nil
	case f.Reason == string(OutcomeLength):
		return "max_tokens", nil
	case f.Stop != "":
		return "stop_sequence", &f.Stop
	}
	return "end_turn", nil
}

func wholeMessage(c *call, a Accepted, choices []choice, res Result) any {
	given := onlyChoice(choices)
	m := anthropicMessage{ID: c.ID, Type: "message", Role: "assistant", Model: a.Model, Content: []anthropicBlock{}, Usage: anthropicUsageOf(res.Usage)}
	if text := given.reasoning.String(); text != "" {
		m.Content = append(m.Content, thinkingBlock(text))
	}
	if text := given.content.String(); text != "" {
		m.Content = append(m.Content, textBlock(text))
	}
	for _, t := range wholeCalls(given.calls) {
		m.Content = append(m.Content, toolBlock(t.ID, t.Name, strings.TrimSpace(t.Arguments)))
	}
	reason, sequence := c.stopReason(given.finish, res.Usage)
	m.StopReason, m.StopSequence = &reason, sequence
	return m
}

// messagesStream encodes the events of /v1/messages.
type messagesStream struct {
	call     *call
	accepted Accepted
	begun    bool
	// Invariant: blocks counts those that were opened; the last of them is open while
	// kind is not empty.
	blocks   int
	kind     string // of the open block: thinking, text, tool_use
	tool     int    // index of the open call
	finished Finish
}

func newMessagesStream(c *call, a Accepted) encoder { return &messagesStream{call: c, accepted: a} }

// event appends one event, whose name is also in its data.
func event(b []byte, name string, data any) []byte {
	body, _ := marshal(data) // strings, numbers and checked JSON only; it ends with a newline
	b = append(append(append(b, "event: "...), name...), "\ndata: "...)
	return append(append(b, body...), '\n')
}

// begin opens the message. How much of the prompt was cached is told at the end.
func (s *messagesStream) begin(b []byte) []byte {
	if s.begun {
		return b
	}
	s.begun = true
	return event(b, "message_start", struct {
		Type    string           `json:"type"`
		Message anthropicMessage `json:"message"`
	}{"message_start", anthropicMessage{ID: s.call.ID, Type: "message", Role: "assistant", Model: s.accepted.Model, Content: []anthropicBlock{},
		Usage: anthropicUsage{Input: s.accepted.PromptTokens}}})
}

// open closes the block before and opens one.
func (s *messagesStream) open(b []byte, kind string, block anthropicBlock) []byte {
	b = s.shut(s.begin(b))
	s.kind = kind
	b = event(b, "content_block_start", struct {
		Type  string         `json:"type"`
		Index int            `json:"index"`
		Block anthropicBlock `json:"content_block"`
	}{"content_block_start", s.blocks, block})
	s.blocks++
	return b
}

func (s *messagesStream) shut(b []byte) []byte {
	if s.kind == "" {
		return b
	}
	s.kind = ""
	b = append(b, `event: content_block_stop`+"\n"+`data: {"type":"content_block_stop","index":`...)
	return append(append(appendInt(b, s.blocks-1), '}'), endOfEvent...)
}

// piece appends a delta of the open block. field is the member that has the text, and
// with _delta the type of most.
func (s *messagesStream) piece(b []byte, kind, field, text string) []byte {
	b = append(b, `event: content_block_delta`+"\n"+`data: {"type":"content_block_delta","index":`...)
	b = append(appendInt(b, s.blocks-1), `,"delta":{"type":"`...)
	b = append(append(b, kind...), '"')
	b = appendString(appendKey(b, field), text)
	return append(append(b, '}', '}'), endOfEvent...)
}

func (s *messagesStream) delta(b []byte, _ int, d *Delta) []byte {
	if d.Reasoning != "" {
		if s.kind != "thinking" {
			b = s.open(b, "thinking", thinkingBlock(""))
		}
		b = s.piece(b, "thinking_delta", "thinking", d.Reasoning)
	}
	if d.Content != "" {
		if s.kind != "text" {
			b = s.open(b, "text", textBlock(""))
		}
		b = s.piece(b, "text_delta", "text", d.Content)
	}
	for _, t := range d.ToolCalls {
		if s.kind != "tool_use" || s.tool != t.Index {
			b = s.open(b, "tool_use", toolBlock(t.ID, t.Name, "{}"))
			s.tool = t.Index
		}
		if t.Arguments != "" {
			b = s.piece(b, "input_json_delta", "partial_json", t.Arguments)
		}
	}
	return b
}

func (s *messagesStream) finish(b []byte, _ int, f Finish) []byte {
	s.finished = f
	return s.shut(s.begin(b))
}

func (s *messagesStream) end(b []byte, res Result) []byte {
	type reason struct {
		Reason   string  `json:"stop_reason"`
		Sequence *string `json:"stop_sequence"`
	}
	why, sequence := s.call.stopReason(s.finished, res.Usage)
	b = event(s.shut(s.begin(b)), "message_delta", struct {
		Type  string         `json:"type"`
		Delta reason         `json:"delta"`
		Usage anthropicUsage `json:"usage"`
	}{"message_delta", reason{why, sequence}, anthropicUsageOf(res.Usage)})
	return append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}"+endOfEvent...)
}

func (s *messagesStream) fail(b []byte, e *Error) []byte { return event(b, "error", shapeAnthropic(e)) }
