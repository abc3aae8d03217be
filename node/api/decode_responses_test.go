package api

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

func responseBody(fields string) string { return `{"model":"m",` + fields + `}` }

func TestResponsesRefuses(t *testing.T) {
	with := func(fields string) string { return responseBody(`"input":"hi",` + fields) }
	items := func(list string) string { return responseBody(`"input":[` + list + `]`) }
	tool := `"tools":[{"type":"function","name":"f"}]`
	for name, tc := range map[string]struct{ body, param, words string }{
		"no input":               {`{"model":"m"}`, "input", "required"},
		"an empty input":         {items(``), "input", "at least one"},
		"a number":               {responseBody(`"input":1`), "input", "array of items"},
		"no model":               {`{"input":"hi"}`, "model", "required"},
		"an earlier answer":      {with(`"previous_response_id":"resp_1"`), "previous_response_id", "whole conversation"},
		"a conversation":         {with(`"conversation":"c"`), "conversation", "whole conversation"},
		"store":                  {with(`"store":true`), "store", "not stored"},
		"background":             {with(`"background":true`), "background", "not stored"},
		"a stored prompt":        {with(`"prompt":{"id":"p"}`), "prompt", "instructions"},
		"truncation":             {with(`"truncation":"auto"`), "truncation", "never cut"},
		"tool calls":             {with(`"max_tool_calls":3`), "max_tool_calls", "built-in"},
		"an image model":         {with(`"image":{}`), "image", "not supported"},
		"output tokens":          {with(`"max_output_tokens":0`), "max_output_tokens", "from 1"},
		"a search":               {with(`"tools":[{"type":"web_search"}]`), "tools[0].type", "web_search"},
		"a tool twice":           {with(`"tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]`), "tools[1].name", "twice"},
		"a tool in old shape":    {with(`"tools":[{"type":"function","function":{"name":"f"}}]`), "tools[0].name", "1 to 64"},
		"a choice not there":     {with(tool + `,"tool_choice":{"type":"function","name":"g"}`), "tool_choice", "not among"},
		"a choice of tools":      {with(tool + `,"tool_choice":{"type":"allowed_tools"}`), "tool_choice.type", "allowed_tools"},
		"required of none":       {with(`"tool_choice":"required"`), "tool_choice", "needs tools"},
		"an image":               {items(`{"role":"user","content":[{"type":"input_image","image_url":"x"}]}`), "input[0].content[0].type", "input_image"},
		"a file":                 {items(`{"role":"user","content":[{"type":"input_file"}]}`), "input[0].content[0].type", "input_file"},
		"a reference":            {items(`{"type":"item_reference","id":"x"}`), "input[0].type", "item_reference"},
		"a call of a computer":   {items(`{"type":"computer_call"}`), "input[0].type", "computer_call"},
		"a role":                 {items(`{"role":"tool","content":"x"}`), "input[0].role", "tool"},
		"no content":             {items(`{"role":"user"}`), "input[0].content", "required"},
		"a call without id":      {items(`{"type":"function_call","name":"f","arguments":"{}"}`), "input[0].call_id", "required"},
		"arguments":              {items(`{"type":"function_call","call_id":"c","name":"f","arguments":"[]"}`), "input[0].arguments", "one JSON object"},
		"a result of nothing":    {items(`{"type":"function_call_output","output":"x"}`), "input[0].call_id", "required"},
		"no result":              {items(`{"type":"function_call_output","call_id":"c"}`), "input[0].output", "required"},
		"thoughts in a cipher":   {items(`{"type":"reasoning","summary":[],"encrypted_content":"x"}`), "input[0].encrypted_content", "as text"},
		"a format":               {with(`"text":{"format":{"type":"xml"}}`), "text.format.type", "xml"},
		"a schema without name":  {with(`"text":{"format":{"type":"json_schema","schema":1}}`), "text.format.schema", "JSON Schema"},
		"verbosity":              {with(`"text":{"verbosity":"low"}`), "text.verbosity", "medium"},
		"effort":                 {with(`"reasoning":{"effort":"heroic"}`), "reasoning.effort", "heroic"},
		"a short summary":        {with(`"reasoning":{"summary":"concise"}`), "reasoning.summary", "whole"},
		"what to include":        {with(`"include":["file_search_call.results"]`), "include[0]", "file_search_call.results"},
		"logprobs not asked for": {with(`"top_logprobs":3`), "top_logprobs", "include"},
		"obfuscation":            {with(`"stream":true,"stream_options":{"include_obfuscation":true}`), "stream_options.include_obfuscation", "not supported"},
		"options of no stream":   {with(`"stream_options":{}`), "stream_options", "stream: true"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeResponses([]byte(tc.body))
			wantFault(t, err, tc.param, tc.words)
		})
	}
}

// Items of one answer become one message, in their order.
func TestResponsesDecodes(t *testing.T) {
	c, err := decodeResponses([]byte(responseBody(`"instructions":"Be short.","input":[
		{"role":"developer","content":"Be kind."},
		{"type":"message","role":"user","content":[{"type":"input_text","text":"One"},{"type":"input_text","text":" two"}]},
		{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],"content":[{"type":"reasoning_text","text":"Hm."}]},
		{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"Let me see.","annotations":[],"logprobs":[]}]},
		{"type":"function_call","id":"fc_1","call_id":"c1","name":"read","arguments":"{\"path\":\"a\"}","status":"completed"},
		{"type":"function_call","call_id":"c2","name":"list","arguments":""},
		{"type":"function_call_output","call_id":"c1","output":"text of a"},
		{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"b"}]},
		{"role":"assistant","content":"Done."},{"role":"assistant","content":"Really."},
		{"role":"user","content":"Well?"}],
		"tools":[{"type":"function","name":"read","parameters":{"type":"object"},"strict":true},{"type":"function","name":"list"}],
		"tool_choice":{"type":"function","name":"read"},"max_output_tokens":9,"temperature":0.5,"top_p":0.9,"stream":true,"store":false,"background":false,
		"reasoning":{"effort":"low","summary":"auto"},"text":{"format":{"type":"text"}},"truncation":"disabled","user":"u","metadata":{"a":"b"},
		"include":["reasoning.encrypted_content","message.output_text.logprobs"],"top_logprobs":2,"service_tier":"auto","colour":"red"`)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range c.Messages {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s|%s|%v", m.Role, m.Content, m.Reasoning, m.Name, m.ToolCallID, m.ToolCalls))
	}
	want := []string{
		"system|Be short.||||[]", "developer|Be kind.||||[]", "user|One two||||[]", `assistant|Let me see.|Hm.|||[{c1 read {"path":"a"}} {c2 list {}}]`,
		"tool|text of a||read|c1|[]", "tool|b||list|c2|[]", "assistant|Done.||||[]", "assistant|Really.||||[]", "user|Well?||||[]",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c.MaxTokens != 9 || !c.stream || c.Sampling.Temperature != 0.5 || c.Sampling.TopP != 0.9 || c.ToolChoice.Mode != "function" || c.ToolChoice.Name != "read" ||
		c.ParallelToolCalls || c.Think == nil || !*c.Think || !c.Tools[0].Strict || !c.logprobs || c.Sampling.TopLogprobs != 2 {
		t.Errorf("%+v", c)
	}
	if fmt.Sprint(c.warnings) != "[colour]" {
		t.Errorf("warnings %v", c.warnings)
	}
	for fields, json := range map[string]bool{`"text":{"format":{"type":"json_object"}}`: true, `"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object"}}}`: false} {
		c, err := decodeResponses([]byte(responseBody(`"input":"hi",` + fields)))
		if err != nil || c.Format.JSON != json || (c.Format.Schema == nil) != json {
			t.Errorf("%s: %+v, %v", fields, c.Format, err)
		}
	}
}

func TestProps(t *testing.T) {
	n := start(t, Config{Version: "1.2.3", Slots: 3})
	for _, query := range []string{"", "?model=m"} {
		v := n.do("GET", "/props"+query, "").json(t)
		settings, _ := v["default_generation_settings"].(map[string]any)
		if v["total_slots"] != 3.0 || v["chat_template"] != "{{ messages }}" || v["build_info"] != "tandem 1.2.3" || settings["n_ctx"] != 512.0 {
			t.Errorf("%s: %v", query, v)
		}
	}
	if r := n.do("GET", "/props?model=other", ""); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := n.do("GET", "/props?model=../x", ""); r.status != 400 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func FuzzResponses(f *testing.F) {
	all := func(body []byte) (*call, error) {
		_, _ = decodeResponseTokens(body)
		return decodeResponses(body)
	}
	fuzzDecoder(f, all, checkCall, responseBody(`"input":"hi"`),
		responseBody(`"input":[{"type":"reasoning","summary":[]},{"role":"assistant","content":[{"type":"output_text","text":"x"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c","output":"y"}]`),
		responseBody(`"input":"hi","instructions":"i","tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"tool_choice":"required","text":{"format":{"type":"json_schema","name":"n","schema":true}}`),
		responseBody(`"input":"hi","include":["message.output_text.logprobs"],"top_logprobs":20,"reasoning":{"effort":"none"},"stream":true,"metadata":{"a":"b"}`))
}

// FuzzTokenize: the bodies of the routes that make tokens of text and text of tokens.
func FuzzTokenize(f *testing.F) {
	for _, seed := range []string{`{"content":"a b","add_special":true,"with_pieces":true}`, `{"model":"m","prompt":"x"}`, `{"tokens":[1,2]}`, `{"model":"../x","content":""}`} {
		f.Add([]byte(seed))
	}
	s := New(Config{Generator: &fakeGenerator{}, Library: &fakeLibrary{}, Loopback: true})
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/tokenize", "/detokenize"} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest("POST", "http://127.0.0.1"+path, bytes.NewReader(body)))
			if w.Code != 200 && (w.Code < 400 || w.Code > 499) {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	})
}
