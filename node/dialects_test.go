package node_test

import (
	"encoding/json"
	"strings"
	"testing"

	"tandem/node/nodetest"
)

// claude is what the tests look at of an answer of /v1/messages.
type claude struct {
	Content []struct {
		Type, Text, Thinking, ID, Name string
		Input                          map[string]any
	}
	StopReason   string  `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	Usage        struct {
		Input  int `json:"input_tokens"`
		Cached int `json:"cache_read_input_tokens"`
		Output int `json:"output_tokens"`
	}
}

func postTo[T any](t *testing.T, n *nodetest.Node, path, body string) (v T) {
	t.Helper()
	status, _, text := n.Post(path, body)
	if status != 200 {
		t.Fatalf("%s: %d %s", path, status, text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

const claudeHello = `"model":"tiny","messages":[{"role":"user","content":"hi"}],"system":"Be short."`

// The stop sequence that ended an answer is named, and nobody else's is.
func TestMessagesNameTheStopSequence(t *testing.T) {
	n := nodetest.Start(t, says("one two three"), nil)
	m := postTo[claude](t, n, "/v1/messages", `{`+claudeHello+`,"max_tokens":50,"stop_sequences":["zzz","two"]}`)
	if m.Content[0].Text != "one " || m.StopReason != "stop_sequence" || m.StopSequence == nil || *m.StopSequence != "two" {
		t.Errorf("%+v", m)
	}
	m = postTo[claude](t, n, "/v1/messages", `{`+claudeHello+`,"max_tokens":50}`)
	if m.Content[0].Text != "one two three" || m.StopReason != "end_turn" || m.StopSequence != nil {
		t.Errorf("%+v", m)
	}
	m = postTo[claude](t, n, "/v1/messages", `{`+claudeHello+`,"max_tokens":3}`)
	if m.StopReason != "max_tokens" || m.Usage.Output != 3 {
		t.Errorf("%+v", m)
	}
}

// What is counted beforehand is what the prompt has; cached tokens are told apart.
func TestCountedTokensAreThoseOfThePrompt(t *testing.T) {
	n := nodetest.Start(t, says("ok"), nil)
	count := postTo[struct {
		N int `json:"input_tokens"`
	}](t, n, "/v1/messages/count_tokens", `{`+claudeHello+`}`)
	for range 2 {
		m := postTo[claude](t, n, "/v1/messages", `{`+claudeHello+`,"max_tokens":9}`)
		if count.N == 0 || m.Usage.Input+m.Usage.Cached != count.N {
			t.Errorf("counted %d, used %+v", count.N, m.Usage)
		}
	}
	other := postTo[struct {
		N int `json:"input_tokens"`
	}](t, n, "/v1/responses/input_tokens", `{"model":"tiny","instructions":"Be short.","input":"hi"}`)
	if other.N != count.N {
		t.Errorf("%d tokens by one API, %d by another", count.N, other.N)
	}
	// A prompt that is too long to be answered is counted all the same.
	long := postTo[struct {
		N int `json:"input_tokens"`
	}](t, n, "/v1/messages/count_tokens", `{"model":"tiny","messages":[{"role":"user","content":"`+strings.Repeat("x", 100_000)+`"}]}`)
	if long.N < 100_000 {
		t.Errorf("%d tokens", long.N)
	}
}

// Tools by either API: the call comes out, its result goes in.
func TestToolsByOtherAPIs(t *testing.T) {
	n := nodetest.Start(t, says(`{"tool_calls":[{"name":"read","arguments":{"path":"a.txt"}}]}`), nil)
	const tools = `"tool_choice":{"type":"any"},"tools":[{"name":"read","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}}]`
	m := postTo[claude](t, n, "/v1/messages", `{`+claudeHello+`,"max_tokens":500,`+tools+`}`)
	call := m.Content[len(m.Content)-1]
	if m.StopReason != "tool_use" || call.Type != "tool_use" || call.Name != "read" || call.Input["path"] != "a.txt" || call.ID == "" {
		t.Errorf("%+v", m)
	}
	postTo[claude](t, n, "/v1/messages", `{"model":"tiny","max_tokens":500,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"`+call.ID+
		`","name":"read","input":{"path":"a.txt"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"`+call.ID+`","content":"text"}]}],`+tools+`}`)

	r := postTo[struct {
		Status string
		Output []struct {
			Type, Name, Arguments string
			CallID                string `json:"call_id"`
		}
	}](t, n, "/v1/responses", `{"model":"tiny","input":"hi","tool_choice":"required","tools":[{"type":"function","name":"read","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}]}`)
	last := r.Output[len(r.Output)-1]
	if r.Status != "completed" || last.Type != "function_call" || last.Name != "read" || last.Arguments != `{"path":"a.txt"}` || last.CallID == "" {
		t.Errorf("%+v", r)
	}
}

// Refusals name the field as the API calls it.
func TestRefusalsOfOtherAPIs(t *testing.T) {
	n := nodetest.Start(t, says("ok"), nil)
	for path, tc := range map[string]struct{ body, words string }{
		"/v1/messages":              {`{` + claudeHello + `,"max_tokens":9,"thinking":{"type":"enabled","budget_tokens":1024}}`, "thinking.type: "},
		"/v1/messages/count_tokens": {`{` + claudeHello + `,"thinking":{"type":"enabled","budget_tokens":1024}}`, "thinking.type: "},
		"/v1/responses":             {`{"model":"tiny","input":"hi","reasoning":{"effort":"low"}}`, "reasoning.effort: "},
		"/v1/responses/":            {`{}`, "no such route"},
	} {
		if status, _, body := n.Post(path, tc.body); status/100 != 4 || !strings.Contains(body, tc.words) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, body := n.Post("/v1/messages", `{"model":"claude-opus","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`); status != 404 || !strings.Contains(body, "not_found_error") {
		t.Errorf("%d %s", status, body)
	}
}

// The routes of llama.cpp's server, which names no model.
func TestRoutesOfLlamaServer(t *testing.T) {
	n := nodetest.Start(t, says("ok"), nil)
	if err := n.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	type tokens struct {
		Tokens []json.RawMessage
		Count  int
	}
	if got := postTo[tokens](t, n, "/tokenize", `{"content":"a<s>"}`); got.Count != 2 {
		t.Errorf("%+v", got)
	}
	if got := postTo[tokens](t, n, "/tokenize", `{"content":"a<s>","parse_special":false}`); got.Count != 4 {
		t.Errorf("%+v", got)
	}
	if got := postTo[tokens](t, n, "/tokenize", `{"content":"é","with_pieces":true}`); got.Count != 2 || !strings.Contains(string(got.Tokens[0]), `"piece":[195]`) {
		t.Errorf("%s", got.Tokens)
	}
	if got := postTo[map[string]string](t, n, "/detokenize", `{"tokens":[104,105]}`); got["content"] != "hi" {
		t.Errorf("%v", got)
	}
	status, body := n.Get("/props")
	var props struct {
		TotalSlots   int    `json:"total_slots"`
		ChatTemplate string `json:"chat_template"`
		Settings     struct {
			Context int `json:"n_ctx"`
		} `json:"default_generation_settings"`
	}
	if err := json.Unmarshal([]byte(body), &props); err != nil || status != 200 || props.TotalSlots == 0 || props.Settings.Context == 0 || props.ChatTemplate == "" {
		t.Errorf("%d %s %v", status, body, err)
	}
}
