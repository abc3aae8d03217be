package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// response is an answer of /v1/responses, and what the first and last events of a
// stream hold.
type response struct {
	ID           string              `json:"id"`
	Object       string              `json:"object"`
	CreatedAt    int64               `json:"created_at"`
	CompletedAt  *int64              `json:"completed_at"`
	Status       string              `json:"status"`
	Background   bool                `json:"background"`
	Error        *responseError      `json:"error"`
	Incomplete   *responseIncomplete `json:"incomplete_details"`
	Instructions json.RawMessage     `json:"instructions"`
	MaxOutput    *int                `json:"max_output_tokens"`
	Model        string              `json:"model"`
	Output       []responseItem      `json:"output"`
	Parallel     bool                `json:"parallel_tool_calls"`
	Previous     *string             `json:"previous_response_id"`
	Reasoning    json.RawMessage     `json:"reasoning"`
	Store        bool                `json:"store"`
	Temperature  float64             `json:"temperature"`
	Text         json.RawMessage     `json:"text"`
	ToolChoice   json.RawMessage     `json:"tool_choice"`
	Tools        json.RawMessage     `json:"tools"`
	TopP         float64             `json:"top_p"`
	Truncation   string              `json:"truncation"`
	Usage        *responseUsage      `json:"usage"`
	User         *string             `json:"user"`
	Metadata     json.RawMessage     `json:"metadata"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responseIncomplete struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"` // 0: nothing is charged for that
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// responseItem is an item of output: reasoning, message or function_call.
type responseItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Status    string          `json:"status"`
	Role      string          `json:"role,omitempty"`
	Summary   *[]struct{}     `json:"summary,omitempty"`
	Content   *[]responsePart `json:"content,omitempty"`
	CallID    string          `json:"call_id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments *string         `json:"arguments,omitempty"`
}

// responsePart is output_text or reasoning_text.
type responsePart struct {
	Type        string          `json:"type"`
	Text        string          `json:"text"`
	Annotations *[]struct{}     `json:"annotations,omitempty"`
	Logprobs    json.RawMessage `json:"logprobs,omitempty"`
}

// Items have ids made from the answer's, so that nothing has to be remembered.
func (c *call) itemID(prefix string, index int) string {
	return string(appendInt([]byte(prefix+strings.TrimPrefix(c.ID, responsePrefix)+"_"), index))
}

func (c *call) reasoningItem(index int, status, text string) responseItem {
	parts := []responsePart{}
	if text != "" {
		parts = append(parts, responsePart{Type: "reasoning_text", Text: text})
	}
	return responseItem{ID: c.itemID("rs_", index), Type: "reasoning", Status: status, Summary: &[]struct{}{}, Content: &parts}
}

func outputText(text string, logprobs []TokenLogprob) responsePart {
	return responsePart{Type: "output_text", Text: text, Annotations: &[]struct{}{}, Logprobs: appendTokens(nil, logprobs)}
}

func (c *call) messageItem(index int, status string, parts ...responsePart) responseItem {
	parts = append([]responsePart{}, parts...)
	return responseItem{ID: c.itemID("msg_", index), Type: "message", Status: status, Role: "assistant", Content: &parts}
}

func (c *call) callItem(index int, status string, t ToolCallDelta) responseItem {
	return responseItem{ID: c.itemID("fc_", index), Type: "function_call", Status: status, CallID: t.ID, Name: t.Name, Arguments: &t.Arguments}
}

// newResponse is an answer that has just begun.
func newResponse(c *call, a Accepted) *response {
	or := func(raw json.RawMessage, def string) json.RawMessage {
		if raw == nil {
			return json.RawMessage(def)
		}
		return raw
	}
	e := c.responses
	r := &response{ID: c.ID, Object: "response", CreatedAt: a.created(), Status: "in_progress", Instructions: or(e.instructions, "null"), Model: a.Model,
		Output: []responseItem{}, Parallel: c.ParallelToolCalls, Reasoning: or(e.reasoning, `{"effort":null,"summary":null}`), Temperature: e.temperature,
		Text: or(e.text, `{"format":{"type":"text"}}`), ToolChoice: or(e.toolChoice, `"auto"`), Tools: or(e.tools, "[]"), TopP: e.topP,
		Truncation: "disabled", Metadata: or(e.metadata, "{}")}
	if c.MaxTokens > 0 {
		r.MaxOutput = &c.MaxTokens
	}
	if e.user != "" {
		r.User = &e.user
	}
	return r
}

// end completes an answer.
func (r *response) end(f Finish, u Usage) {
	r.Status = "completed"
	if f.Reason == string(OutcomeLength) {
		r.Status, r.Incomplete = "incomplete", &responseIncomplete{"max_output_tokens"}
	}
	if r.Status == "completed" {
		now := time.Now().Unix()
		r.CompletedAt = &now
	}
	r.Usage = &responseUsage{Input: u.PromptTokens, Output: u.CompletionTokens, Total: u.PromptTokens + u.CompletionTokens}
	r.Usage.InputDetails.Cached, r.Usage.OutputDetails.Reasoning = u.CachedTokens, u.ReasoningTokens
}

func wholeResponse(c *call, a Accepted, choices []choice, res Result) any {
	given := onlyChoice(choices)
	r := newResponse(c, a)
	r.end(given.finish, res.Usage)
	if text := given.reasoning.String(); text != "" {
		r.Output = append(r.Output, c.reasoningItem(len(r.Output), "completed", text))
	}
	calls := wholeCalls(given.calls)
	if text := given.content.String(); text != "" || len(calls)+len(r.Output) == 0 {
		logprobs := given.logprobs
		if !c.logprobs {
			logprobs = nil
		}
		r.Output = append(r.Output, c.messageItem(len(r.Output), r.Status, outputText(text, logprobs)))
	}
	for _, t := range calls {
		r.Output = append(r.Output, c.callItem(len(r.Output), "completed", t))
	}
	return r
}

// responsesStream encodes the events of /v1/responses.
type responsesStream struct {
	call     *call
	response *response
	number   int // of the next event
	// Invariant: kind says what item is open, and response.Output has the items that
	// were closed; the open one's index is their number.
	kind     string // reasoning, message, function_call; "": none
	text     strings.Builder
	logprobs []TokenLogprob
	tool     ToolCallDelta
	finished Finish
}

func newResponsesStream(c *call, a Accepted) encoder {
	return &responsesStream{call: c, response: newResponse(c, a)}
}

// responseEvent is the data of an event; which fields are there depends on its type.
type responseEvent struct {
	Type     string          `json:"type"`
	Sequence int             `json:"sequence_number"`
	Response *response       `json:"response,omitempty"`
	ItemID   string          `json:"item_id,omitempty"`
	Output   *int            `json:"output_index,omitempty"`
	Content  *int            `json:"content_index,omitempty"`
	Item     *responseItem   `json:"item,omitempty"`
	Part     *responsePart   `json:"part,omitempty"`
	Delta    *string         `json:"delta,omitempty"`
	Text     *string         `json:"text,omitempty"`
	Name     string          `json:"name,omitempty"`
	Args     *string         `json:"arguments,omitempty"`
	Logprobs json.RawMessage `json:"logprobs,omitempty"`
}

func (s *responsesStream) event(b []byte, kind string, e responseEvent) []byte {
	if s.number == 0 && kind != "response.created" {
		b = s.event(b, "response.created", responseEvent{Response: s.response})
		b = s.event(b, "response.in_progress", responseEvent{Response: s.response})
	}
	e.Type, e.Sequence = kind, s.number
	s.number++
	return event(b, kind, e)
}

// at fills in where an event belongs: the open item, and its only part.
func (s *responsesStream) at(part bool, e responseEvent) responseEvent {
	index, first := len(s.response.Output), 0
	e.Output, e.ItemID = &index, s.call.itemID(map[string]string{"reasoning": "rs_", "message": "msg_", "function_call": "fc_"}[s.kind], index)
	if part {
		e.Content = &first
	}
	return e
}

// open closes the item before and opens one.
func (s *responsesStream) open(b []byte, kind string, tool ToolCallDelta) []byte {
	b = s.shut(b, "completed")
	s.kind, s.tool = kind, ToolCallDelta{Index: tool.Index, ID: tool.ID, Name: tool.Name}
	s.text.Reset()
	s.logprobs = nil
	index := len(s.response.Output)
	var item responseItem
	switch kind {
	case "reasoning":
		item = s.call.reasoningItem(index, "in_progress", "")
	case "message":
		item = s.call.messageItem(index, "in_progress")
	default:
		item = s.call.callItem(index, "in_progress", s.tool)
	}
	b = s.event(b, "response.output_item.added", responseEvent{Output: &index, Item: &item})
	switch kind {
	case "reasoning":
		b = s.event(b, "response.content_part.added", s.at(true, responseEvent{Part: &responsePart{Type: "reasoning_text"}}))
	case "message":
		part := outputText("", nil)
		b = s.event(b, "response.content_part.added", s.at(true, responseEvent{Part: &part}))
	}
	return b
}

// shut closes the open item.
func (s *responsesStream) shut(b []byte, status string) []byte {
	if s.kind == "" {
		return b
	}
	index, text := len(s.response.Output), s.text.String()
	var item responseItem
	switch s.kind {
	case "reasoning":
		item = s.call.reasoningItem(index, status, text)
		b = s.event(b, "response.reasoning_text.done", s.at(true, responseEvent{Text: &text}))
		b = s.event(b, "response.content_part.done", s.at(true, responseEvent{Part: &responsePart{Type: "reasoning_text", Text: text}}))
	case "message":
		part := outputText(text, s.logprobs)
		item = s.call.messageItem(index, status, part)
		b = s.event(b, "response.output_text.done", s.at(true, responseEvent{Text: &text, Logprobs: part.Logprobs}))
		b = s.event(b, "response.content_part.done", s.at(true, responseEvent{Part: &part}))
	default:
		s.tool.Arguments = text
		item = s.call.callItem(index, status, s.tool)
		b = s.event(b, "response.function_call_arguments.done", s.at(false, responseEvent{Name: s.tool.Name, Args: &text}))
	}
	b = s.event(b, "response.output_item.done", responseEvent{Output: &index, Item: &item})
	s.response.Output = append(s.response.Output, item)
	s.kind = ""
	return b
}

func (s *responsesStream) delta(b []byte, _ int, d *Delta) []byte {
	if d.Reasoning != "" {
		if s.kind != "reasoning" {
			b = s.open(b, "reasoning", ToolCallDelta{})
		}
		s.text.WriteString(d.Reasoning)
		b = s.event(b, "response.reasoning_text.delta", s.at(true, responseEvent{Delta: &d.Reasoning}))
	}
	if d.Content != "" {
		if s.kind != "message" {
			b = s.open(b, "message", ToolCallDelta{})
		}
		s.text.WriteString(d.Content)
		logprobs := []TokenLogprob(nil)
		if s.call.logprobs {
			logprobs = d.Logprobs
			s.logprobs = append(s.logprobs, logprobs...)
		}
		b = s.event(b, "response.output_text.delta", s.at(true, responseEvent{Delta: &d.Content, Logprobs: appendTokens(nil, logprobs)}))
	}
	for _, t := range d.ToolCalls {
		if s.kind != "function_call" || s.tool.Index != t.Index {
			b = s.open(b, "function_call", t)
		}
		if t.Arguments != "" {
			s.text.WriteString(t.Arguments)
			b = s.event(b, "response.function_call_arguments.delta", s.at(false, responseEvent{Delta: &t.Arguments}))
		}
	}
	return b
}

// finish closes what is open. An answer without anything is a message without text.
func (s *responsesStream) finish(b []byte, _ int, f Finish) []byte {
	s.finished = f
	if s.kind == "" && len(s.response.Output) == 0 {
		b = s.open(b, "message", ToolCallDelta{})
	}
	status := "completed"
	if f.Reason == string(OutcomeLength) {
		status = "incomplete"
	}
	return s.shut(b, status)
}

func (s *responsesStream) end(b []byte, res Result) []byte {
	s.response.end(s.finished, res.Usage)
	return s.event(b, "response."+s.response.Status, responseEvent{Response: s.response})
}

func (s *responsesStream) fail(b []byte, e *Error) []byte {
	code := "server_error"
	switch {
	case e.Status == http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
	case e.Status < 500:
		code = "invalid_prompt"
	}
	s.response.Status, s.response.Error = "failed", &responseError{Code: code, Message: e.Message}
	return s.event(b, "response.failed", responseEvent{Response: s.response})
}
