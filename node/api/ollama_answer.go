package api

import (
	"encoding/json"
	"strings"
	"time"
)

// ollamaAnswer is a whole answer, and the last line of a stream.
type ollamaAnswer struct {
	Model      string          `json:"model"`
	CreatedAt  time.Time       `json:"created_at"`
	Message    *ollamaMessage  `json:"message,omitempty"`  // /api/chat
	Response   *string         `json:"response,omitempty"` // /api/generate
	Thinking   string          `json:"thinking,omitempty"` // /api/generate
	Done       bool            `json:"done"`
	DoneReason string          `json:"done_reason,omitempty"`
	Truncated  int             `json:"truncated,omitempty"` // tokens cut off the prompt
	Logprobs   json.RawMessage `json:"logprobs,omitempty"`
	*ollamaCosts
}

// ollamaCosts are counts of tokens, and durations in nanoseconds.
type ollamaCosts struct {
	Total       time.Duration `json:"total_duration"`
	Load        time.Duration `json:"load_duration"`
	PromptCount int           `json:"prompt_eval_count"`
	Prompt      time.Duration `json:"prompt_eval_duration"`
	Count       int           `json:"eval_count"`
	Eval        time.Duration `json:"eval_duration"`
}

type ollamaMessage struct {
	Role      string           `json:"role"`
	Content   string           `json:"content"`
	Thinking  string           `json:"thinking,omitempty"`
	ToolCalls []ollamaToolCall `json:"tool_calls,omitempty"`
}

type ollamaToolCall struct {
	ID       string         `json:"id,omitempty"`
	Function ollamaFunction `json:"function"`
}

type ollamaFunction struct {
	Index     int             `json:"index"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// ollamaCalls are the complete ones of calls.
func ollamaCalls(calls []ToolCallDelta) []ollamaToolCall {
	var out []ollamaToolCall
	for _, c := range wholeCalls(calls) {
		out = append(out, ollamaToolCall{c.ID, ollamaFunction{c.Index, c.Name, json.RawMessage(strings.TrimSpace(c.Arguments))}})
	}
	return out
}

func costsOf(res Result) *ollamaCosts {
	return &ollamaCosts{Total: res.Total, Load: res.Load, PromptCount: res.PromptTokens, Prompt: res.Prefill,
		Count: res.CompletionTokens, Eval: res.Decode}
}

// doneReason is Ollama's word: it has none for tool calls.
func doneReason(c *call, f Finish) string {
	switch {
	case c.LoadOnly && c.KeepAlive != nil && *c.KeepAlive == 0:
		return "unload"
	case c.LoadOnly:
		return "load"
	case f.Reason == string(OutcomeLength):
		return "length"
	}
	return "stop"
}

func lastOllama(c *call, a Accepted, f Finish, res Result) ollamaAnswer {
	return ollamaAnswer{Model: a.Model, CreatedAt: time.Now().UTC(), Done: true, DoneReason: doneReason(c, f),
		Truncated: a.Truncated, ollamaCosts: costsOf(res)}
}

// onlyChoice is the answer: Ollama knows no n. It is empty if a model was loaded.
func onlyChoice(choices []choice) *choice {
	if len(choices) == 0 {
		return &choice{}
	}
	return &choices[0]
}

func wholeOllamaChat(c *call, a Accepted, choices []choice, res Result) any {
	given := onlyChoice(choices)
	answer := lastOllama(c, a, given.finish, res)
	answer.Message = &ollamaMessage{Role: "assistant", Content: given.content.String(), Thinking: given.reasoning.String(),
		ToolCalls: ollamaCalls(given.calls)}
	if c.logprobs && !c.LoadOnly {
		answer.Logprobs = appendTokens(nil, given.logprobs)
	}
	return answer
}

func wholeOllamaGenerate(c *call, a Accepted, choices []choice, res Result) any {
	given := onlyChoice(choices)
	answer := lastOllama(c, a, given.finish, res)
	text := given.content.String()
	answer.Response, answer.Thinking = &text, given.reasoning.String()
	if c.logprobs && !c.LoadOnly {
		answer.Logprobs = appendTokens(nil, given.logprobs)
	}
	return answer
}

// ollamaStream encodes lines of /api/chat and /api/generate.
type ollamaStream struct {
	call     *call
	accepted Accepted
	chat     bool
	head     []byte // {"model":...,"created_at":" up to the time
	calls    []ToolCallDelta
	sent     int // of calls
	finished Finish
}

func newOllamaChatStream(c *call, a Accepted) encoder     { return newOllamaStream(c, a, true) }
func newOllamaGenerateStream(c *call, a Accepted) encoder { return newOllamaStream(c, a, false) }

func newOllamaStream(c *call, a Accepted, chat bool) *ollamaStream {
	head := appendString([]byte(`{"model":`), a.Model)
	return &ollamaStream{call: c, accepted: a, chat: chat, head: append(head, `,"created_at":"`...)}
}

func (s *ollamaStream) delta(b []byte, _ int, d *Delta) []byte {
	for _, piece := range d.ToolCalls {
		if piece.Index > s.sent {
			b = s.sendCalls(b, piece.Index)
		}
		s.calls = joinCall(s.calls, piece)
	}
	logprobs := s.call.logprobs && len(d.Logprobs) > 0
	if d.Content == "" && d.Reasoning == "" && !logprobs {
		return b
	}
	b = append(b, s.head...)
	b = append(time.Now().UTC().AppendFormat(b, time.RFC3339Nano), '"')
	text := "response"
	if s.chat {
		b = append(b, `,"message":{"role":"assistant"`...)
		text = "content"
	}
	b = appendString(appendKey(b, text), d.Content)
	if d.Reasoning != "" {
		b = appendString(appendKey(b, "thinking"), d.Reasoning)
	}
	if s.chat {
		b = append(b, '}')
	}
	b = append(b, `,"done":false`...)
	if logprobs {
		b = appendTokens(append(b, `,"logprobs":`...), d.Logprobs)
	}
	return append(b, '}', '\n')
}

// sendCalls appends the calls before the one numbered end: the next has begun, or
// the answer has ended, so they are complete.
func (s *ollamaStream) sendCalls(b []byte, end int) []byte {
	for ; s.sent < min(end, len(s.calls)); s.sent++ {
		calls := ollamaCalls(s.calls[s.sent : s.sent+1])
		if !s.chat || len(calls) == 0 {
			continue
		}
		line, _ := marshal(ollamaAnswer{Model: s.accepted.Model, CreatedAt: time.Now().UTC(),
			Message: &ollamaMessage{Role: "assistant", ToolCalls: calls}}) // checked JSON and strings only
		b = append(b, line...)
	}
	return b
}

func (s *ollamaStream) finish(b []byte, _ int, f Finish) []byte {
	s.finished = f
	return s.sendCalls(b, len(s.calls))
}

func (s *ollamaStream) end(b []byte, res Result) []byte {
	last := lastOllama(s.call, s.accepted, s.finished, res)
	if s.chat {
		last.Message = &ollamaMessage{Role: "assistant"}
	} else {
		last.Response = new(string)
	}
	line, _ := marshal(last) // numbers and strings only
	return append(b, line...)
}

func (s *ollamaStream) fail(b []byte, e *Error) []byte {
	line, _ := marshal(ollamaError{e.Message})
	return append(b, line...)
}
