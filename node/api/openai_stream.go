package api

import (
	"encoding/json"
	"strconv"
)

// openAIStream has what the chunks of one stream share.
type openAIStream struct {
	call *call
	head []byte // from "data: " to the opening of choices; the same in every chunk
	// Invariant: a choice has begun once its first chunk, the one with the role or
	// the echo, was sent.
	begun []bool
}

func newOpenAIStream(c *call, a Accepted, object string) openAIStream {
	head := appendString([]byte(`data: {"id":`), c.ID)
	head = appendString(append(head, `,"object":`...), object)
	head = strconv.AppendInt(append(head, `,"created":`...), a.created(), 10)
	head = appendString(append(head, `,"model":`...), a.Model)
	head = appendString(append(head, `,"system_fingerprint":`...), c.fingerprint)
	head = append(head, `,"choices":[`...)
	return openAIStream{call: c, head: head, begun: make([]bool, max(len(c.Prompts), 1)*c.N)}
}

const endOfEvent = "\n\n"

// end appends the usage, if it was asked for, and [DONE].
func (s *openAIStream) end(b []byte, res Result) []byte {
	if s.call.includeUsage {
		usage, _ := json.Marshal(usageOf(res.Usage)) // numbers only
		b = append(append(b, s.head...), `],"usage":`...)
		b = append(append(append(b, usage...), '}'), endOfEvent...)
	}
	return append(b, "data: [DONE]"+endOfEvent...)
}

// fail appends an error as the last event.
func (s *openAIStream) fail(b []byte, e *Error) []byte {
	body, _ := json.Marshal(shapeOpenAI(e)) // strings only
	return append(append(append(b, "data: "...), body...), endOfEvent...)
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// appendFinish appends a finish_reason, null before the end, and closes the chunk.
func appendFinish(b []byte, reason string) []byte {
	b = append(b, `,"finish_reason":`...)
	if reason == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, reason)
	}
	return append(b, "}]}"+endOfEvent...)
}

// chatStream encodes chunks of /v1/chat/completions.
type chatStream struct{ openAIStream }

func newChatStream(c *call, a Accepted) encoder {
	return &chatStream{newOpenAIStream(c, a, "chat.completion.chunk")}
}

// open appends a chunk up to the inside of its delta. The first chunk of a choice
// is one of its own: clients are known that read nothing but the role of it.
func (s *chatStream) open(b []byte, choice int) []byte {
	if !s.begun[choice] {
		s.begun[choice] = true
		b = append(s.open(b, choice), `"role":"assistant","content":""}`...)
		b = appendFinish(b, "")
	}
	b = append(append(b, s.head...), `{"index":`...)
	return append(appendInt(b, choice), `,"delta":{`...)
}

func (s *chatStream) delta(b []byte, choice int, d *Delta) []byte {
	logprobs := s.call.logprobs && len(d.Logprobs) > 0
	if d.Content == "" && d.Reasoning == "" && len(d.ToolCalls) == 0 && !logprobs {
		return b
	}
	b = s.open(b, choice)
	if d.Reasoning != "" {
		b = appendString(appendKey(b, "reasoning_content"), d.Reasoning)
	}
	if d.Content != "" {
		b = appendString(appendKey(b, "content"), d.Content)
	}
	if len(d.ToolCalls) > 0 {
		b = appendCallDeltas(appendKey(b, "tool_calls"), d.ToolCalls)
	}
	b = append(b, '}')
	if logprobs {
		b = appendChatLogprobs(append(b, `,"logprobs":`...), d.Logprobs)
	}
	return appendFinish(b, "")
}

func appendCallDeltas(b []byte, calls []ToolCallDelta) []byte {
	b = append(b, '[')
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(append(b, `{"index":`...), c.Index)
		if c.ID != "" {
			b = appendString(append(b, `,"id":`...), c.ID)
			b = append(b, `,"type":"function"`...)
		}
		b = append(b, `,"function":{`...)
		if c.Name != "" {
			b = appendString(appendKey(b, "name"), c.Name)
		}
		b = append(appendString(appendKey(b, "arguments"), c.Arguments), '}', '}')
	}
	return append(b, ']')
}

func (s *chatStream) finish(b []byte, choice int, f Finish) []byte {
	return appendFinish(append(s.open(b, choice), '}'), f.Reason)
}

// completionsStream encodes chunks of /v1/completions.
type completionsStream struct {
	openAIStream
	offsets []int // characters sent of each choice
}

func newCompletionsStream(c *call, a Accepted) encoder {
	s := &completionsStream{openAIStream: newOpenAIStream(c, a, "text_completion")}
	s.offsets = make([]int, len(s.begun))
	return s
}

func (s *completionsStream) chunk(b []byte, choice int, text string, tokens []TokenLogprob, reason string) []byte {
	b = appendString(append(append(b, s.head...), `{"text":`...), text)
	b = appendInt(append(b, `,"index":`...), choice)
	b = append(b, `,"logprobs":`...)
	if s.call.logprobs && len(tokens) > 0 {
		b = appendTextLogprobs(b, tokens, &s.offsets[choice])
	} else {
		b = append(b, "null"...)
	}
	return appendFinish(b, reason)
}

// begin appends the echo before a choice's first piece.
func (s *completionsStream) begin(b []byte, choice int) []byte {
	if s.begun[choice] {
		return b
	}
	s.begun[choice] = true
	if text := echoOf(s.call, choice/s.call.N); text != "" {
		b = s.chunk(b, choice, text, nil, "")
	}
	return b
}

func (s *completionsStream) delta(b []byte, choice int, d *Delta) []byte {
	text := d.Content
	if d.Reasoning != "" {
		text = d.Reasoning + text
	}
	return s.chunk(s.begin(b, choice), choice, text, d.Logprobs, "")
}

func (s *completionsStream) finish(b []byte, choice int, f Finish) []byte {
	return s.chunk(s.begin(b, choice), choice, "", nil, f.Reason)
}
