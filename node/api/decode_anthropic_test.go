package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func messagesBody(fields string) string {
	return `{"model":"m","max_tokens":10,` + fields + `}`
}

func TestMessagesRefuses(t *testing.T) {
	with := func(fields string) string { return messagesBody(`"messages":[` + hello + `],` + fields) }
	user := func(blocks string) string {
		return messagesBody(`"messages":[{"role":"user","content":[` + blocks + `]}]`)
	}
	assistant := func(blocks string) string {
		return messagesBody(`"messages":[{"role":"assistant","content":[` + blocks + `]},` + hello + `]`)
	}
	tool := `"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	for name, tc := range map[string]struct{ body, param, words string }{
		"no JSON":               {`{`, "", "not valid JSON"},
		"no model":              {`{"max_tokens":1,"messages":[` + hello + `]}`, "model", "required"},
		"no max_tokens":         {`{"model":"m","messages":[` + hello + `]}`, "max_tokens", "required"},
		"max_tokens 0":          {`{"model":"m","max_tokens":0,"messages":[` + hello + `]}`, "max_tokens", "from 1"},
		"no messages":           {`{"model":"m","max_tokens":1}`, "messages", "at least one"},
		"a role":                {messagesBody(`"messages":[{"role":"tool","content":"x"}]`), "messages[0].role", "tool"},
		"no content":            {messagesBody(`"messages":[{"role":"user"}]`), "messages[0].content", "required"},
		"empty content":         {user(``), "messages[0].content", "at least one"},
		"content a number":      {messagesBody(`"messages":[{"role":"user","content":1}]`), "messages[0].content", "array"},
		"a prefill":             {messagesBody(`"messages":[` + hello + `,{"role":"assistant","content":"Once"}]`), "messages[1].role", "must be the user's"},
		"an image":              {user(`{"type":"image","source":{}}`), "messages[0].content[0].type", "image"},
		"a document":            {user(`{"type":"document","source":{}}`), "messages[0].content[0].type", "document"},
		"thoughts of a user":    {user(`{"type":"thinking","thinking":"x"}`), "messages[0].content[0].type", "role user"},
		"redacted thoughts":     {assistant(`{"type":"redacted_thinking","data":"x"}`), "messages[0].content[0].type", "redacted_thinking"},
		"a tool of the server":  {assistant(`{"type":"server_tool_use"}`), "messages[0].content[0].type", "server_tool_use"},
		"a result of nothing":   {user(`{"type":"tool_result","content":"x"}`), "messages[0].content[0].tool_use_id", "required"},
		"an image as a result":  {user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"image"}]}`), "messages[0].content[0].content[0].type", "image"},
		"a call without input":  {assistant(`{"type":"tool_use","id":"c","name":"f"}`), "messages[0].content[0].input", "required"},
		"a call with a list":    {assistant(`{"type":"tool_use","id":"c","name":"f","input":[]}`), "messages[0].content[0].input", "an object"},
		"a block without type":  {user(`{"text":"x"}`), "messages[0].content[0].type", "required"},
		"a block without text":  {user(`{"type":"text"}`), "messages[0].content[0].text", "required"},
		"citations":             {user(`{"type":"text","text":"x","citations":[{}]}`), "messages[0].content[0].citations", "not supported"},
		"an image as system":    {with(`"system":[{"type":"image"}]`), "system[0].type", "image"},
		"temperature 2":         {with(`"temperature":2`), "temperature", "from 0 to 1"},
		"top_k -1":              {with(`"top_k":-1`), "top_k", "from 0"},
		"one stop sequence":     {with(`"stop_sequences":"x"`), "stop_sequences", "an array"},
		"an empty stop":         {with(`"stop_sequences":[""]`), "stop_sequences[0]", "0 bytes"},
		"a tool of Anthropic":   {with(`"tools":[{"type":"bash_20250124","name":"bash"}]`), "tools[0].type", "bash_20250124"},
		"a tool without schema": {with(`"tools":[{"name":"f"}]`), "tools[0].input_schema", "required"},
		"a tool twice":          {with(`"tools":[{"name":"f","input_schema":{}},{"name":"f","input_schema":{}}]`), "tools[1].name", "twice"},
		"examples":              {with(`"tools":[{"name":"f","input_schema":{},"input_examples":[{}]}]`), "tools[0].input_examples", "description"},
		"any tool of none":      {with(`"tool_choice":{"type":"any"}`), "tool_choice", "needs tools"},
		"a tool not there":      {with(tool + `,"tool_choice":{"type":"tool","name":"g"}`), "tool_choice.name", "not among"},
		"a choice unknown":      {with(tool + `,"tool_choice":{"type":"maybe"}`), "tool_choice.type", "maybe"},
		"a choice as text":      {with(tool + `,"tool_choice":"auto"`), "tool_choice", "an object"},
		"no budget":             {with(`"thinking":{"type":"enabled"}`), "thinking.budget_tokens", "required"},
		"a small budget":        {with(`"thinking":{"type":"enabled","budget_tokens":100}`), "thinking.budget_tokens", "1024"},
		"thinking between":      {with(`"thinking":{"type":"between_tools"}`), "thinking.type", "between_tools"},
		"omitted thoughts":      {with(`"thinking":{"type":"adaptive","display":"omitted"}`), "thinking.display", "summarized"},
		"a format unknown":      {with(`"output_config":{"format":{"type":"xml"}}`), "output_config.format.type", "xml"},
		"a format of nothing":   {with(`"output_config":{"format":{"type":"json_schema"}}`), "output_config.format.schema", "required"},
		"effort":                {with(`"output_config":{"effort":"heroic"}`), "output_config.effort", "heroic"},
		"a container":           {with(`"container":"x"`), "container", "not supported"},
		"MCP":                   {with(`"mcp_servers":[{}]`), "mcp_servers", "not supported"},
		"a tier":                {with(`"service_tier":"priority"`), "service_tier", "auto"},
		"speed":                 {with(`"speed":"fast"`), "speed", "standard"},
		"edits of the context":  {with(`"context_management":{}`), "context_management", "ever cut"},
		"diagnostics":           {with(`"diagnostics":{}`), "diagnostics", "usage"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeMessages([]byte(tc.body))
			wantFault(t, err, tc.param, tc.words)
		})
	}
}

// Each block becomes what templates know: results are messages of their own, thoughts
// and calls belong to their answer.
func TestMessagesDecodes(t *testing.T) {
	c, err := decodeMessages([]byte(messagesBody(`
		"system":[{"type":"text","text":"Be short.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"Be kind."}],
		"messages":[
			{"role":"user","content":[{"type":"text","text":"One"},{"type":"text","text":"Two"}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"s"},{"type":"text","text":"Let me see."},{"type":"tool_use","id":"c1","name":"read","input":{"path": "a"}},{"type":"tool_use","id":"c2","name":"list","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"text of a"},{"type":"tool_result","tool_use_id":"c2","is_error":true,"content":[{"type":"text","text":"no such folder"}]},{"type":"text","text":"Go on."}]},
			{"role":"system","content":"Stay calm."},
			{"role":"user","content":"Well?"}],
		"tools":[{"name":"read","description":"d","input_schema":{"type":"object"},"strict":true},{"type":"custom","name":"list","input_schema":{"type":"object"}}],
		"tool_choice":{"type":"any","disable_parallel_tool_use":true},"thinking":{"type":"enabled","budget_tokens":2048},
		"temperature":0.5,"top_k":7,"top_p":0.9,"stop_sequences":["END"],"metadata":{"user_id":"u"},"stream":true,"service_tier":"auto",
		"output_config":{"effort":"low"},"colour":"red"`)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range c.Messages {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s|%s|%v", m.Role, m.Content, m.Reasoning, m.Name, m.ToolCallID, m.ToolCalls))
	}
	want := []string{
		"system|Be short.\n\nBe kind.||||[]", "user|One\n\nTwo||||[]", `assistant|Let me see.|Hm.|||[{c1 read {"path":"a"}} {c2 list {}}]`,
		"tool|text of a||read|c1|[]", "tool|Error: no such folder||list|c2|[]", "user|Go on.||||[]", "system|Stay calm.||||[]", "user|Well?||||[]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c.MaxTokens != 10 || !c.stream || c.Sampling.Temperature != 0.5 || c.Sampling.TopK != 7 || c.Sampling.TopP != 0.9 || c.Stop[0] != "END" ||
		c.ToolChoice.Mode != "required" || c.ParallelToolCalls || c.Think == nil || !*c.Think || !c.Tools[0].Strict || c.TemplateArgs["reasoning_effort"] != "low" {
		t.Errorf("%+v", c)
	}
	if fmt.Sprint(c.warnings) != "[colour]" || len(c.notes) != 1 || !strings.Contains(c.notes[0], "budget_tokens") {
		t.Errorf("warnings %v, notes %v", c.warnings, c.notes)
	}
}

// Nothing said is no thinking, adaptive leaves it to the template; a schema shapes the
// answer.
func TestMessagesThinkingAndFormat(t *testing.T) {
	for fields, want := range map[string]string{"": "false", `,"thinking":{"type":"disabled"}`: "false", `,"thinking":{"type":"adaptive"}`: "nil", `,"thinking":{"type":"enabled","budget_tokens":1024}`: "true"} {
		c, err := decodeMessages([]byte(messagesBody(`"messages":[` + hello + `]` + fields)))
		got := "nil"
		if err == nil && c.Think != nil {
			got = fmt.Sprint(*c.Think)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", fields, got, err, want)
		}
	}
	c, err := decodeMessages([]byte(messagesBody(`"messages":[` + hello + `],"output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}`)))
	if err != nil || string(c.Format.Schema) != `{"type":"object"}` {
		t.Errorf("%s, %v", c.Format.Schema, err)
	}
}

// Whatever goes wrong on these paths has Anthropic's shape, also before a route is
// found.
func TestErrorsInAnthropicsShape(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "a", Secret: "k"}}})
	for name, tc := range map[string]struct {
		method, path, body, key string
		status                  int
		kind                    string
	}{
		"no key":       {"POST", "/v1/messages", "{}", "", 401, "authentication_error"},
		"no method":    {"GET", "/v1/messages", "", "k", 405, "invalid_request_error"},
		"no route":     {"POST", "/v1/messages/batches", "{}", "k", 404, "not_found_error"},
		"no JSON":      {"POST", "/v1/messages", "{", "k", 400, "invalid_request_error"},
		"count":        {"POST", "/v1/messages/count_tokens", "{}", "k", 400, "invalid_request_error"},
		"a large body": {"POST", "/v1/messages", `{"model":"` + strings.Repeat("m", MaxBody) + `"}`, "k", 413, "request_too_large"},
	} {
		headers := []string{}
		if tc.key != "" {
			headers = []string{"X-Api-Key", tc.key}
		}
		r := n.do(tc.method, tc.path, tc.body, headers...)
		var e anthropicError
		if err := json.Unmarshal([]byte(r.body), &e); err != nil || r.status != tc.status || e.Type != "error" || e.Error.Type != tc.kind || e.Error.Message == "" || e.RequestID == "" {
			t.Errorf("%s: %d %s (%v), want %d %s", name, r.status, r.body, err, tc.status, tc.kind)
		}
	}
	for _, header := range []string{"X-Api-Key", "Authorization"} {
		value := map[string]string{"X-Api-Key": "k", "Authorization": "Bearer k"}[header]
		if r := n.post("/v1/messages", messagesBody(`"messages":[`+hello+`]`), header, value); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", header, r.status, r.body)
		}
	}
	if shape := shapeAnthropic(Busy(429, 0, "full")); shape.Error.Type != "rate_limit_error" {
		t.Errorf("%+v", shape)
	}
	if shape := shapeAnthropic(errInternal); shape.Error.Type != "api_error" {
		t.Errorf("%+v", shape)
	}
}

// An answer that ended because the context was full did not reach max_tokens.
func TestAnthropicStopReasons(t *testing.T) {
	c := &call{Request: Request{MaxTokens: 10}}
	for _, tc := range []struct {
		f         Finish
		completed int
		want      string
	}{
		{Finish{Reason: "stop"}, 3, "end_turn"}, {Finish{Reason: "stop", Stop: "x"}, 3, "stop_sequence"}, {Finish{Reason: "tool_calls"}, 3, "tool_use"},
		{Finish{Reason: "length"}, 10, "max_tokens"}, {Finish{Reason: "length"}, 3, "model_context_window_exceeded"},
	} {
		if got, _ := c.stopReason(tc.f, Usage{CompletionTokens: tc.completed}); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc, got, tc.want)
		}
	}
}

func FuzzMessages(f *testing.F) {
	all := func(body []byte) (*call, error) {
		_, _ = decodeCountTokens(body)
		return decodeMessages(body)
	}
	fuzzDecoder(f, all, checkCall, messagesBody(`"messages":[`+hello+`]`),
		messagesBody(`"system":[{"type":"text","text":"s"}],"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"tool_use","id":"c","name":"f","input":{"a":[1]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","is_error":true},{"type":"text","text":"x"}]}]`),
		messagesBody(`"messages":[`+hello+`],"tools":[{"name":"f","input_schema":{"type":"object"}}],"tool_choice":{"type":"tool","name":"f"},"thinking":{"type":"enabled","budget_tokens":1024}`),
		messagesBody(`"messages":[`+hello+`],"output_config":{"effort":"max","format":{"type":"json_schema","schema":true}},"stop_sequences":["a","b"],"top_k":0`))
}
