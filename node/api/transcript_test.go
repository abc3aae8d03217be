package api

import (
	"context"
	"flag"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt; read the diff")

// talk is a generator that puts out everything an answer can hold.
func talk(_ context.Context, r *Request, out Sink) (Result, error) {
	if r.LoadOnly {
		return say(r, out)
	}
	a := accepted()
	a.Warnings = []string{"a warning"}
	out.Accepted(a)
	top := []TokenLogprob{{ID: 1, Bytes: []byte("Hé"), Logprob: -0.25}, {ID: 2, Bytes: []byte{0xf0, 0x9f}, Logprob: math.Inf(-1)}}
	script := []Delta{
		{Reasoning: "Let me\nthink"},
		{Content: "Hé", Logprobs: []TokenLogprob{{ID: 1, Bytes: []byte("Hé"), Logprob: -0.25, Top: top}}},
		{Content: " \"you\"\x01🙂", Logprobs: []TokenLogprob{{Bytes: []byte(" \"you\"\x01\xf0\x9f"), Logprob: -1.5}, {Bytes: []byte("\x99\x82"), Logprob: 0}}},
	}
	if len(r.Tools) > 0 {
		script = append(script[:2],
			Delta{ToolCalls: []ToolCallDelta{{Index: 0, ID: "call_a", Name: "read"}}},
			Delta{ToolCalls: []ToolCallDelta{{Index: 0, Arguments: `{"path":`}}},
			Delta{ToolCalls: []ToolCallDelta{{Index: 0, Arguments: `"a.txt"}`}}},
			Delta{ToolCalls: []ToolCallDelta{{Index: 1, ID: "call_b", Name: "list", Arguments: "{}"}}})
	}
	for choice := range max(len(r.Prompts), 1) * r.N {
		for _, d := range script {
			if err := out.Delta(choice, d); err != nil {
				return Result{}, err
			}
		}
		reason := "stop"
		if len(r.Tools) > 0 {
			reason = "tool_calls"
		}
		if r.MaxTokens == 3 {
			reason = "length"
		}
		if err := out.Finish(choice, Finish{Reason: reason}); err != nil {
			return Result{}, err
		}
	}
	return Result{Usage: Usage{PromptTokens: 5, CachedTokens: 2, CompletionTokens: 4, ReasoningTokens: 1},
		Load: 1, Prefill: 2, Decode: 3, Total: 9 * time.Nanosecond}, nil
}

// broken fails after two pieces.
func broken(_ context.Context, _ *Request, out Sink) (Result, error) {
	out.Accepted(accepted())
	_ = out.Delta(0, Delta{Content: "one"})
	return Result{}, Busy(http.StatusServiceUnavailable, time.Second, "the node is shutting down")
}

// cutCall ends within the arguments of a call.
func cutCall(_ context.Context, _ *Request, out Sink) (Result, error) {
	out.Accepted(accepted())
	_ = out.Delta(0, Delta{ToolCalls: []ToolCallDelta{{ID: "call_a", Name: "read", Arguments: "{}"}}})
	_ = out.Delta(0, Delta{ToolCalls: []ToolCallDelta{{Index: 1, ID: "call_b", Name: "read", Arguments: `{"pa`}}})
	return Result{}, out.Finish(0, Finish{Reason: "length"})
}

// stopped ends at a stop string of the client's.
func stopped(_ context.Context, r *Request, out Sink) (Result, error) {
	out.Accepted(accepted())
	_ = out.Delta(0, Delta{Content: "one "})
	return Result{Usage: Usage{PromptTokens: 5, CompletionTokens: 2}}, out.Finish(0, Finish{Reason: "stop", Stop: r.Stop[0]})
}

// silent answers with nothing.
func silent(_ context.Context, _ *Request, out Sink) (Result, error) {
	out.Accepted(accepted())
	return Result{}, out.Finish(0, Finish{Reason: "stop"})
}

var volatile = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`(chatcmpl|cmpl|embd|chat|gen)-[A-Z2-7]{26}`), "$1-ID"},
	{regexp.MustCompile(`(msg|resp|rs|fc)_[A-Z2-7]{26}`), "${1}_ID"},
	{regexp.MustCompile(`req-[A-Z2-7]{26}`), "req-ID"},
	{regexp.MustCompile(`"created_at":"[^"]*Z"`), `"created_at":"TIME"`},
	{regexp.MustCompile(`"completed_at":[0-9]+`), `"completed_at":0`},
}

// TestTranscripts compares whole answers, byte for byte, with what was reviewed.
func TestTranscripts(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"read"}},{"type":"function","function":{"name":"list"}}]`
	claudeTools := `"tools":[{"name":"read","input_schema":{"type":"object"}},{"name":"list","input_schema":{"type":"object"}}]`
	flatTools := `"tools":[{"type":"function","name":"read"},{"type":"function","name":"list","parameters":{"type":"object"},"strict":true}]`
	streamed := `"stream":true,"stream_options":{"include_usage":true}`
	for name, tc := range map[string]struct {
		path, fields string
		generate     func(context.Context, *Request, Sink) (Result, error)
	}{
		"chat":                     {"/v1/chat/completions", `"messages":[` + hello + `],"logprobs":true,"top_logprobs":2`, talk},
		"chat_stream":              {"/v1/chat/completions", `"messages":[` + hello + `],"nonsense":1,"logprobs":true,"top_logprobs":2,` + streamed, talk},
		"chat_stream_n2":           {"/v1/chat/completions", `"messages":[` + hello + `],"n":2,"stream":true`, talk},
		"chat_stream_tools":        {"/v1/chat/completions", `"messages":[` + hello + `],"stream":true,` + tools, talk},
		"chat_stream_error":        {"/v1/chat/completions", `"messages":[` + hello + `],"stream":true`, broken},
		"chat_stream_silent":       {"/v1/chat/completions", `"messages":[` + hello + `],"stream":true`, silent},
		"chat_tools":               {"/v1/chat/completions", `"messages":[` + hello + `],` + tools, talk},
		"chat_tools_cut":           {"/v1/chat/completions", `"messages":[` + hello + `],` + tools, cutCall},
		"chat_error":               {"/v1/chat/completions", `"messages":[` + hello + `]`, broken},
		"completions":              {"/v1/completions", `"prompt":["a","b"],"n":2,"echo":true`, talk},
		"completions_logprobs":     {"/v1/completions", `"prompt":"a","logprobs":2`, talk},
		"completions_stream":       {"/v1/completions", `"prompt":"a","logprobs":2,` + streamed, talk},
		"completions_stream_echo":  {"/v1/completions", `"prompt":["a",[7,8]],"echo":true,"stream":true`, talk},
		"messages":                 {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],"system":"Be short.","stop_sequences":["x"]`, talk},
		"messages_tools":           {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],` + claudeTools, talk},
		"messages_stop_sequence":   {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],"stop_sequences":["END"]`, stopped},
		"messages_stream":          {"/v1/messages", `"max_tokens":3,"messages":[` + hello + `],"nonsense":1,"stream":true`, talk},
		"messages_stream_tools":    {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],"stream":true,` + claudeTools, talk},
		"messages_stream_stop":     {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],"stream":true,"stop_sequences":["END"]`, stopped},
		"messages_stream_error":    {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],"stream":true`, broken},
		"messages_stream_silent":   {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `],"stream":true`, silent},
		"messages_error":           {"/v1/messages", `"max_tokens":9,"messages":[` + hello + `]`, broken},
		"messages_refused":         {"/v1/messages", `"messages":[` + hello + `]`, nil},
		"messages_count":           {"/v1/messages/count_tokens", `"system":"Be short.","messages":[` + hello + `]`, nil},
		"responses":                {"/v1/responses", `"input":"hi","instructions":"Be short.","temperature":0,"metadata":{"a":"b"}`, talk},
		"responses_logprobs":       {"/v1/responses", `"input":"hi","include":["message.output_text.logprobs"],"top_logprobs":2`, talk},
		"responses_tools":          {"/v1/responses", `"input":"hi",` + flatTools, talk},
		"responses_tools_cut":      {"/v1/responses", `"input":"hi",` + flatTools, cutCall},
		"responses_stream":         {"/v1/responses", `"input":"hi","nonsense":1,"stream":true,"max_output_tokens":3`, talk},
		"responses_stream_tools":   {"/v1/responses", `"input":"hi","stream":true,` + flatTools, talk},
		"responses_stream_cut":     {"/v1/responses", `"input":"hi","stream":true,` + flatTools, cutCall},
		"responses_stream_error":   {"/v1/responses", `"input":"hi","stream":true`, broken},
		"responses_stream_silent":  {"/v1/responses", `"input":"hi","stream":true`, silent},
		"responses_error":          {"/v1/responses", `"input":"hi"`, broken},
		"responses_count":          {"/v1/responses/input_tokens", `"input":"hi there"`, nil},
		"embeddings":               {"/v1/embeddings", `"input":["a","b"]`, nil},
		"embeddings_base64":        {"/v1/embeddings", `"input":"a","encoding_format":"base64"`, nil},
		"ollama_chat":              {"/api/chat", `"messages":[` + hello + `],"stream":false,` + tools, talk},
		"ollama_chat_stream":       {"/api/chat", `"messages":[` + hello + `],"logprobs":true,"top_logprobs":2`, talk},
		"ollama_chat_stream_tools": {"/api/chat", `"messages":[` + hello + `],` + tools, talk},
		"ollama_chat_stream_cut":   {"/api/chat", `"messages":[` + hello + `],` + tools, cutCall},
		"ollama_chat_stream_error": {"/api/chat", `"messages":[` + hello + `]`, broken},
		"ollama_generate":          {"/api/generate", `"prompt":"hi","stream":false`, talk},
		"ollama_generate_stream":   {"/api/generate", `"prompt":"hi","options":{"num_predict":3}`, talk},
		"ollama_load":              {"/api/generate", `"keep_alive":-1`, talk},
		"ollama_unload":            {"/api/chat", `"messages":[],"keep_alive":0`, talk},
		"ollama_embed":             {"/api/embed", `"input":["a","b"]`, nil},
		"ollama_embeddings":        {"/api/embeddings", `"prompt":"a"`, nil},
		"ollama_pull":              {"/api/pull", `"stream":true`, nil},
		"ollama_pull_whole":        {"/api/pull", `"stream":false`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, Config{Version: "1.2.3"})
			n.generator.generate = tc.generate
			r := n.post(tc.path, `{"model":"m",`+tc.fields+`}`)
			got := transcript(r)
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func transcript(r reply) string {
	var b strings.Builder
	b.WriteString(http.StatusText(r.status) + "\n")
	for _, name := range []string{"Content-Type", "Retry-After", "X-Tandem-Node", "X-Tandem-Prefill", "X-Tandem-Reason", "X-Tandem-Warning"} {
		if v := r.header.Get(name); v != "" {
			b.WriteString(name + ": " + v + "\n")
		}
	}
	b.WriteString("\n" + r.body)
	text := b.String()
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.text)
	}
	return text
}
