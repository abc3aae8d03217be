package api

import (
	"encoding/json"
	"errors"
	"runtime"
	"testing"
	"time"
)

// fuzzDecoder seeds a target with bodies and holds every decoder to: it never
// panics, refuses with a 4xx only, takes memory in proportion to the body, and what
// it accepts is within the limits.
func fuzzDecoder[T any](f *testing.F, decode func([]byte) (T, error), check func(*testing.T, T), seeds ...string) {
	for _, seed := range append(seeds, `{`, `[]`, `{"model":"m","model":"m"}`, `{"model":"../x"}`, `{"model":"m","x":[[[[[[]]]]]]}`, "{\"model\":\"\xff\"}", `{"model":"\ud800"}`) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := decode(body)
		runtime.ReadMemStats(&after)
		if taken, most := after.TotalAlloc-before.TotalAlloc, uint64(1<<20+100*len(body)); taken > most {
			t.Errorf("%d bytes were allocated for a body of %d", taken, len(body))
		}
		if err == nil {
			check(t, got)
			return
		}
		var e *Error
		if !errors.As(err, &e) || e.Status < 400 || e.Status > 499 || e.Message == "" || len(e.Message) > 2000 {
			t.Errorf("refused with %#v", err)
		}
	})
}

func checkCall(t *testing.T, c *call) {
	s := c.Sampling
	fault := ""
	switch {
	case !validModelName(c.Model):
		fault = "model"
	case c.N < 1 || c.N > MaxChoices || max(len(c.Prompts), 1)*c.N > MaxSequences || c.answers > c.N || c.answers < 1:
		fault = "choices"
	case c.MaxTokens < 0 || c.MaxTokens > MaxTokens || c.Context < 0:
		fault = "tokens"
	case !c.LoadOnly && (len(c.Messages) > 0) == (len(c.Prompts) > 0), len(c.Messages) > MaxMessages, len(c.Tools) > MaxTools, len(c.Stop) > MaxStops:
		fault = "prompt"
	case !temperatures.holds(s.Temperature) || !aboveZero.holds(s.TopP) || !unit.holds(s.MinP) || !aboveZero.holds(s.TypicalP) || s.TopK < 0:
		fault = "sampling"
	case !penalties.holds(s.FrequencyPenalty) || !penalties.holds(s.PresencePenalty) || !repeats.holds(s.RepeatPenalty) || s.RepeatLastN < -1:
		fault = "penalties"
	case s.TopLogprobs < -1 || s.TopLogprobs > MaxTopLogprobs || len(s.LogitBias) > MaxLogitBias || s.Mirostat < 0 || s.Mirostat > 2:
		fault = "logits"
	case len(c.Format.Schema) > MaxSchema || len(c.Format.Grammar) > MaxGrammar || c.Format.JSON && c.Format.Schema != nil || c.Format.Grammar != "" && c.Format.Schema != nil:
		fault = "format"
	case c.KeepAlive != nil && (*c.KeepAlive < -1 || *c.KeepAlive > maxKeepAlive):
		fault = "keep_alive"
	case c.echo != nil && len(c.echo) != len(c.Prompts), len(c.warnings) > maxWarnings:
		fault = "echo or warnings"
	}
	if fault != "" {
		t.Errorf("accepted %s out of bounds: %+v", fault, c)
	}
	for _, m := range c.Messages {
		for _, call := range m.ToolCalls {
			if !json.Valid([]byte(call.Arguments)) || !isObject(call.Arguments) {
				t.Errorf("accepted arguments %q", call.Arguments)
			}
		}
	}
	for _, tool := range c.Tools {
		if !validToolName(tool.Name) || tool.Parameters != nil && !json.Valid(tool.Parameters) {
			t.Errorf("accepted the tool %+v", tool)
		}
	}
	if c.Format.Schema != nil && !json.Valid(c.Format.Schema) {
		t.Errorf("accepted the schema %q", c.Format.Schema)
	}
}

func FuzzChat(f *testing.F) {
	fuzzDecoder(f, decodeChat, checkCall, chatBody(""),
		chatBody(`"temperature":0.5,"top_p":1,"seed":-7,"n":2,"stop":["a"],"logit_bias":{"1":-100},"logprobs":true,"top_logprobs":2,"stream":true,"stream_options":{"include_usage":true}`),
		chatBody(`"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":{"type":"function","function":{"name":"f"}}`),
		chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}},"keep_alive":"5m"`),
		chatBody(`"chat_template_kwargs":{"enable_thinking":true,"a":1.5},"reasoning_effort":"low","max_tokens":-1,"grammar":"root ::= \"a\""`),
		`{"model":"m","messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"x"}]}]}`)
}

func FuzzCompletions(f *testing.F) {
	fuzzDecoder(f, decodeCompletions, checkCall, `{"model":"m","prompt":"x"}`, `{"model":"m","prompt":[1,2,3],"echo":true,"n":3}`,
		`{"model":"m","prompt":["a","b"],"best_of":2,"logprobs":3}`, `{"model":"m","prompt":[[1],[2]],"suffix":""}`, `{"model":"m","prompt":"","suffix":"x"}`)
}

func FuzzEmbeddings(f *testing.F) {
	check := func(t *testing.T, e *embedding) {
		if len(e.Inputs) == 0 || len(e.Inputs) > MaxEmbedInputs || e.Dimensions < 0 || e.Dimensions > MaxDimensions || !validModelName(e.Model) {
			t.Errorf("accepted %+v", e)
		}
		for _, in := range e.Inputs {
			if (in.Text == "") == (len(in.Tokens) == 0) || len(in.Tokens) > MaxPromptTokens {
				t.Errorf("accepted the input %+v", in)
			}
		}
	}
	all := func(body []byte) (*embedding, error) {
		_, _ = decodeOllamaEmbeddings(body)
		if e, err := decodeOllamaEmbed(body); err == nil {
			return e, nil
		}
		return decodeEmbeddings(body)
	}
	fuzzDecoder(f, all, check, `{"model":"m","input":"x"}`, `{"model":"m","input":["a","b"],"encoding_format":"base64"}`, `{"model":"m","input":[[1,2],[3]],"dimensions":8}`,
		`{"model":"m","prompt":"x","options":{"num_ctx":1}}`)
}

func FuzzOllamaChat(f *testing.F) {
	fuzzDecoder(f, decodeOllamaChat, checkCall, `{"model":"m"}`, chatBody(`"options":{"seed":-1,"num_predict":5,"stop":"x","num_gpu":-1},"think":"high","format":"json"`),
		`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":[1]}}}]},{"role":"tool","content":"x"}],"tools":[{"function":{"name":"f"}}]}`)
}

func FuzzOllamaGenerate(f *testing.F) {
	fuzzDecoder(f, decodeOllamaGenerate, checkCall, `{"model":"m"}`, `{"name":"m","prompt":"x","system":"s","raw":false,"keep_alive":-1}`,
		`{"model":"m","prompt":"x","suffix":"y","format":{"type":"object"},"options":{"temperature":0}}`, `{"model":"m","keep_alive":"1e300"}`)
}

func TestKeepAliveBounds(t *testing.T) {
	for text, want := range map[string]time.Duration{`1e300`: maxKeepAlive, `-1e300`: -1, `"1e300"`: maxKeepAlive, `"99999999h"`: -2, `0.5`: 500 * time.Millisecond, `"-5m"`: -1, `"0"`: 0} {
		c, err := decodeOllamaGenerate([]byte(`{"model":"m","keep_alive":` + text + `}`))
		if want == -2 {
			if err == nil {
				t.Errorf("%s: accepted as %v", text, *c.KeepAlive)
			}
			continue
		}
		if err != nil || *c.KeepAlive != want {
			t.Errorf("%s: %v, %v; want %v", text, c.KeepAlive, err, want)
		}
	}
}
