package api

import "encoding/json"

// openAIUsage is the usage object of answers and last chunks.
type openAIUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	PromptDetails    struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionDetails struct {
		ReasoningTokens int `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

func usageOf(u Usage) *openAIUsage {
	out := &openAIUsage{PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens, TotalTokens: u.PromptTokens + u.CompletionTokens}
	out.PromptDetails.CachedTokens = u.CachedTokens
	out.CompletionDetails.ReasoningTokens = u.ReasoningTokens
	return out
}

// openAIAnswer is a whole answer; Choices depend on the endpoint.
type openAIAnswer struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	Model       string       `json:"model"`
	Fingerprint string       `json:"system_fingerprint"`
	Choices     []any        `json:"choices"`
	Usage       *openAIUsage `json:"usage"`
}

type chatChoice struct {
	Index        int             `json:"index"`
	Message      chatMessage     `json:"message"`
	Logprobs     json.RawMessage `json:"logprobs"`
	FinishReason string          `json:"finish_reason"`
}

type chatMessage struct {
	Role      string         `json:"role"`
	Content   *string        `json:"content"`
	Refusal   *string        `json:"refusal"`
	Reasoning string         `json:"reasoning_content,omitempty"`
	ToolCalls []chatToolCall `json:"tool_calls,omitempty"`
}

type chatToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

func wholeChat(c *call, a Accepted, choices []choice, res Result) any {
	answer := wholeAnswer(c, a, "chat.completion", res)
	for i := range choices {
		answer.Choices = append(answer.Choices, wholeChatChoice(c, i, &choices[i]))
	}
	return answer
}

func wholeAnswer(c *call, a Accepted, object string, res Result) openAIAnswer {
	return openAIAnswer{ID: c.ID, Object: object, Created: a.created(), Model: a.Model, Fingerprint: c.fingerprint,
		Choices: []any{}, Usage: usageOf(res.Usage)}
}

func wholeChatChoice(c *call, index int, answer *choice) chatChoice {
	out := chatChoice{Index: index, FinishReason: answer.finish.Reason,
		Message: chatMessage{Role: "assistant", Reasoning: answer.reasoning.String()}}
	for _, t := range wholeCalls(answer.calls) {
		out.Message.ToolCalls = append(out.Message.ToolCalls, chatToolCall{t.ID, "function", chatFunction{t.Name, t.Arguments}})
	}
	if text := answer.content.String(); text != "" || len(out.Message.ToolCalls) == 0 {
		out.Message.Content = &text
	}
	if c.logprobs {
		out.Logprobs = appendChatLogprobs(nil, answer.logprobs)
	}
	return out
}

func appendChatLogprobs(b []byte, tokens []TokenLogprob) []byte {
	b = appendTokens(append(b, `{"content":`...), tokens)
	return append(b, `,"refusal":null}`...)
}

type textChoice struct {
	Text         string          `json:"text"`
	Index        int             `json:"index"`
	Logprobs     json.RawMessage `json:"logprobs"`
	FinishReason string          `json:"finish_reason"`
}

func wholeCompletions(c *call, a Accepted, choices []choice, res Result) any {
	answer := wholeAnswer(c, a, "text_completion", res)
	picked := best(c, choices)
	for i := range picked {
		text := picked[i].reasoning.String() + picked[i].content.String()
		out := textChoice{Text: echoOf(c, i/c.answers) + text, Index: i, FinishReason: picked[i].finish.Reason}
		if c.logprobs {
			var offset int
			out.Logprobs = appendTextLogprobs(nil, picked[i].logprobs, &offset)
		}
		answer.Choices = append(answer.Choices, out)
	}
	return answer
}

// echoOf is the text to repeat before the answers to a prompt.
func echoOf(c *call, prompt int) string {
	if c.echo == nil {
		return ""
	}
	return c.echo[prompt]
}

// appendTextLogprobs appends logprobs in the form of /v1/completions: one list per
// column. offset counts the characters before the first token, and is moved on.
func appendTextLogprobs(b []byte, tokens []TokenLogprob, offset *int) []byte {
	b = append(b, `{"tokens":`...)
	b = appendColumn(b, tokens, func(b []byte, t *TokenLogprob) []byte { return appendString(b, tokenText(t.Bytes)) })
	b = append(b, `,"token_logprobs":`...)
	b = appendColumn(b, tokens, func(b []byte, t *TokenLogprob) []byte { return appendLogprob(b, t.Logprob) })
	b = append(b, `,"top_logprobs":`...)
	b = appendColumn(b, tokens, appendTopObject)
	b = append(b, `,"text_offset":`...)
	b = appendColumn(b, tokens, func(b []byte, t *TokenLogprob) []byte {
		b = appendInt(b, *offset)
		*offset += startedCharacters(t.Bytes)
		return b
	})
	return append(b, '}')
}

func appendColumn(b []byte, tokens []TokenLogprob, cell func([]byte, *TokenLogprob) []byte) []byte {
	b = append(b, '[')
	for i := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = cell(b, &tokens[i])
	}
	return append(b, ']')
}

// appendTopObject appends the alternatives of a token by their text. Of two that
// read the same, the likelier stays.
func appendTopObject(b []byte, t *TokenLogprob) []byte {
	b = append(b, '{')
	seen := make(map[string]bool, len(t.Top))
	for i := range t.Top {
		text := tokenText(t.Top[i].Bytes)
		if seen[text] {
			continue
		}
		if len(seen) > 0 {
			b = append(b, ',')
		}
		seen[text] = true
		b = appendLogprob(append(appendString(b, text), ':'), t.Top[i].Logprob)
	}
	return append(b, '}')
}

// startedCharacters counts the characters that begin in p.
func startedCharacters(p []byte) int {
	n := 0
	for _, c := range p {
		if c&0xc0 != 0x80 {
			n++
		}
	}
	return n
}
