package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/node/chat"
)

const hello = `{"role":"user","content":"hi"}`

// chatBody is a chat request with further fields.
func chatBody(fields string) string {
	body := `{"model":"m","messages":[` + hello + `]`
	if fields != "" {
		body += "," + fields
	}
	return body + "}"
}

// wantFault checks that err is a 400 for param whose message holds words.
func wantFault(t *testing.T, err error, param, words string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got error %v, want a refusal of %s", err, param)
	}
	if e.Status != 400 || e.Param != param || !strings.Contains(e.Message, words) {
		t.Errorf("got %d %q %q, want 400 %q and words %q", e.Status, e.Param, e.Message, param, words)
	}
}

func TestChatRefuses(t *testing.T) {
	tool := func(name string) string {
		return `{"type":"function","function":{"name":"` + name + `","parameters":{"type":"object"}}}`
	}
	msgs := func(m string) string { return `{"model":"m","messages":[` + m + `]}` }
	for name, tc := range map[string]struct{ body, param, words string }{
		"no JSON":           {`{`, "", "not valid JSON"},
		"an array":          {`[]`, "", "must be a JSON object"},
		"trailing":          {chatBody("") + "x", "", "more after"},
		"field twice":       {chatBody(`"n":1,"n":2`), "n", "twice"},
		"no model":          {`{"messages":[` + hello + `]}`, "model", "required"},
		"empty model":       {`{"model":"","messages":[` + hello + `]}`, "model", "required"},
		"model is a number": {`{"model":7,"messages":[` + hello + `]}`, "model", "a string"},
		"path as a model":   {`{"model":"../../x/y","messages":[` + hello + `]}`, "model", "not a name"},

		"messages missing":  {`{"model":"m"}`, "messages", "required"},
		"messages empty":    {`{"model":"m","messages":[]}`, "messages", "at least one"},
		"messages null":     {`{"model":"m","messages":null}`, "messages", "required"},
		"messages object":   {`{"model":"m","messages":{}}`, "messages", "an array"},
		"messages text":     {`{"model":"m","messages":"hi"}`, "messages", "an array"},
		"message is text":   {msgs(`"hi"`), "messages[0]", "an object"},
		"role empty":        {msgs(`{"role":"","content":"x"}`), "messages[0].role", "not one of"},
		"role missing":      {msgs(`{"content":"x"}`), "messages[0].role", "required"},
		"role odd":          {msgs(`{"role":"wizard","content":"x"}`), "messages[0].role", "wizard"},
		"role function":     {msgs(`{"role":"function","name":"f","content":"x"}`), "messages[0].role", "tools"},
		"content null":      {msgs(`{"role":"user","content":null}`), "messages[0].content", "required"},
		"content missing":   {msgs(hello + `,{"role":"assistant"}`), "messages[1].content", "required"},
		"content a number":  {msgs(`{"role":"user","content":1}`), "messages[0].content", "a string or an array"},
		"image part":        {msgs(`{"role":"user","content":[{"type":"text","text":"x"},{"type":"image_url","image_url":{"url":"data:"}}]}`), "messages[0].content[1].type", "image_url"},
		"audio part":        {msgs(`{"role":"user","content":[{"type":"input_audio"}]}`), "messages[0].content[0].type", "input_audio"},
		"unknown part":      {msgs(`{"role":"user","content":[{"type":"hologram"}]}`), "messages[0].content[0].type", "hologram"},
		"part without type": {msgs(`{"role":"user","content":[{"text":"x"}]}`), "messages[0].content[0].type", "required"},
		"part without text": {msgs(`{"role":"user","content":[{"type":"text"}]}`), "messages[0].content[0].text", "required"},
		"tool without id":   {msgs(`{"role":"tool","content":"x"}`), "messages[0].tool_call_id", "required"},
		"call without id":   {msgs(`{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}`), "messages[0].tool_calls[0].id", "required"},
		"call without name": {msgs(`{"role":"assistant","tool_calls":[{"id":"c","function":{"arguments":"{}"}}]}`), "messages[0].tool_calls[0].function.name", "required"},
		"arguments broken":  {msgs(`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{\"a\":1}{\"b\":2}"}}]}`), "messages[0].tool_calls[0].function.arguments", "one JSON object"},
		"arguments a list":  {msgs(`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"[]"}}]}`), "messages[0].tool_calls[0].function.arguments", "one JSON object"},
		"arguments object":  {msgs(`{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":{}}}]}`), "messages[0].tool_calls[0].function.arguments", "a string"},
		"function_call":     {msgs(`{"role":"assistant","content":"x","function_call":{"name":"f"}}`), "messages[0].function_call", "tool_calls"},

		"n 0":                     {chatBody(`"n":0`), "n", "0 is out of range, it must be from 1 to 16"},
		"n -1":                    {chatBody(`"n":-1`), "n", "out of range"},
		"n text":                  {chatBody(`"n":"2"`), "n", "a string"},
		"n broken":                {chatBody(`"n":1.5`), "n", "whole number"},
		"n huge":                  {chatBody(`"n":1000000`), "n", "out of range"},
		"n beyond float":          {chatBody(`"n":1e999`), "n", "out of range"},
		"temperature":             {chatBody(`"temperature":2.1`), "temperature", "2.1 is out of range, it must be from 0 to 2"},
		"temperature text":        {chatBody(`"temperature":"hot"`), "temperature", "a number"},
		"temperature 1e400":       {chatBody(`"temperature":1e400`), "temperature", "out of range"},
		"top_p 0":                 {chatBody(`"top_p":0`), "top_p", "more than 0"},
		"top_p 1.1":               {chatBody(`"top_p":1.1`), "top_p", "out of range"},
		"min_p":                   {chatBody(`"min_p":-0.1`), "min_p", "out of range"},
		"top_k":                   {chatBody(`"top_k":-2`), "top_k", "out of range"},
		"penalty":                 {chatBody(`"frequency_penalty":-2.5`), "frequency_penalty", "from -2 to 2"},
		"presence":                {chatBody(`"presence_penalty":3`), "presence_penalty", "from -2 to 2"},
		"repeat":                  {chatBody(`"repeat_penalty":0`), "repeat_penalty", "more than 0"},
		"repeat twice":            {chatBody(`"repeat_penalty":1.1,"repetition_penalty":1.2`), "repetition_penalty", "contradicts"},
		"mirostat":                {chatBody(`"mirostat":3`), "mirostat", "out of range"},
		"max_tokens 0":            {chatBody(`"max_tokens":0`), "max_tokens", "from 1"},
		"max_tokens -2":           {chatBody(`"max_tokens":-2`), "max_tokens", "out of range"},
		"max_tokens both":         {chatBody(`"max_tokens":1,"max_completion_tokens":2`), "max_completion_tokens", "contradicts"},
		"seed text":               {chatBody(`"seed":"x"`), "seed", "whole number"},
		"seed broken":             {chatBody(`"seed":0.5`), "seed", "whole number"},
		"seed too long":           {chatBody(`"seed":99999999999999999999`), "seed", "64 bits"},
		"stop number":             {chatBody(`"stop":1`), "stop", "a string or an array"},
		"stop empty":              {chatBody(`"stop":[""]`), "stop[0]", "0 bytes"},
		"stop too long":           {chatBody(`"stop":"` + strings.Repeat("x", MaxStopBytes+1) + `"`), "stop[0]", "513 bytes"},
		"stops too many":          {chatBody(`"stop":["a"` + strings.Repeat(`,"a"`, MaxStops) + `]`), "stop", "more than 16"},
		"stop of numbers":         {chatBody(`"stop":["a",2]`), "stop[1]", "a string"},
		"bias list":               {chatBody(`"logit_bias":[]`), "logit_bias", "an object"},
		"bias token":              {chatBody(`"logit_bias":{"x":1}`), "logit_bias", "not a token id"},
		"bias negative token":     {chatBody(`"logit_bias":{"-1":1}`), "logit_bias", "not a token id"},
		"bias range":              {chatBody(`"logit_bias":{"5":101}`), "logit_bias", "from -100 to 100"},
		"bias text":               {chatBody(`"logit_bias":{"5":"1"}`), "logit_bias", "a number"},
		"bias twice":              {chatBody(`"logit_bias":{"5":1,"05":1}`), "logit_bias", "twice"},
		"logprobs number":         {chatBody(`"logprobs":1`), "logprobs", "true or false"},
		"top_logprobs alone":      {chatBody(`"top_logprobs":3`), "top_logprobs", "logprobs: true"},
		"top_logprobs 21":         {chatBody(`"logprobs":true,"top_logprobs":21`), "top_logprobs", "from 0 to 20"},
		"stream text":             {chatBody(`"stream":"yes"`), "stream", "true or false"},
		"stream_options alone":    {chatBody(`"stream_options":{"include_usage":true}`), "stream_options", "stream: true"},
		"obfuscation":             {chatBody(`"stream":true,"stream_options":{"include_obfuscation":true}`), "stream_options.include_obfuscation", "not supported"},
		"format text":             {chatBody(`"response_format":"json"`), "response_format", "an object"},
		"format yaml":             {chatBody(`"response_format":{"type":"yaml"}`), "response_format.type", "yaml"},
		"format untyped":          {chatBody(`"response_format":{}`), "response_format.type", "required"},
		"schema missing":          {chatBody(`"response_format":{"type":"json_schema"}`), "response_format.json_schema", "required"},
		"schema empty":            {chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"x"}}`), "response_format.json_schema.schema", "required"},
		"schema list":             {chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":[]}}`), "response_format.json_schema.schema", "JSON Schema"},
		"schema name":             {chatBody(`"response_format":{"type":"json_schema","json_schema":{"name":"a b","schema":{}}}`), "response_format.json_schema.name", "letters"},
		"grammar and JSON":        {chatBody(`"grammar":"root ::= \"a\"","response_format":{"type":"json_object"}`), "grammar", "combined"},
		"tools object":            {chatBody(`"tools":{}`), "tools", "an array"},
		"tool type":               {chatBody(`"tools":[{"type":"custom","custom":{}}]`), "tools[0].type", "custom"},
		"tool without function":   {chatBody(`"tools":[{"type":"function"}]`), "tools[0].function", "required"},
		"tool name":               {chatBody(`"tools":[` + tool("a b") + `]`), "tools[0].function.name", "letters"},
		"tool name empty":         {chatBody(`"tools":[` + tool("") + `]`), "tools[0].function.name", "letters"},
		"tool name too long":      {chatBody(`"tools":[` + tool(strings.Repeat("x", 65)) + `]`), "tools[0].function.name", "1 to 64"},
		"tool twice":              {chatBody(`"tools":[` + tool("a") + `,` + tool("a") + `]`), "tools[1].function.name", "twice"},
		"tool parameters":         {chatBody(`"tools":[{"type":"function","function":{"name":"a","parameters":true}}]`), "tools[0].function.parameters", "an object"},
		"choice of a ghost":       {chatBody(`"tools":[` + tool("a") + `],"tool_choice":{"type":"function","function":{"name":"nope"}}`), "tool_choice", "nope"},
		"choice without tools":    {chatBody(`"tool_choice":"required"`), "tool_choice", "needs tools"},
		"choice odd":              {chatBody(`"tools":[` + tool("a") + `],"tool_choice":"maybe"`), "tool_choice", "maybe"},
		"choice allowed_tools":    {chatBody(`"tools":[` + tool("a") + `],"tool_choice":{"type":"allowed_tools"}`), "tool_choice.type", "allowed_tools"},
		"choice unnamed":          {chatBody(`"tools":[` + tool("a") + `],"tool_choice":{"type":"function"}`), "tool_choice.function.name", "required"},
		"audio":                   {chatBody(`"audio":{"voice":"x","format":"wav"}`), "audio", "not supported"},
		"modalities":              {chatBody(`"modalities":["text","audio"]`), "modalities[1]", "audio"},
		"prediction":              {chatBody(`"prediction":{"type":"content","content":"x"}`), "prediction", "not supported"},
		"web search":              {chatBody(`"web_search_options":{}`), "web_search_options", "not supported"},
		"functions":               {chatBody(`"functions":[]`), "functions", "tools"},
		"store":                   {chatBody(`"store":true`), "store", "not stored"},
		"service tier":            {chatBody(`"service_tier":"flex"`), "service_tier", "auto"},
		"verbosity":               {chatBody(`"verbosity":"low"`), "verbosity", "medium"},
		"cache retention":         {chatBody(`"prompt_cache_retention":"24h"`), "prompt_cache_retention", "in_memory"},
		"cache ttl":               {chatBody(`"prompt_cache_options":{"mode":"implicit","ttl":"30m"}`), "prompt_cache_options.ttl", "not supported"},
		"cache mode":              {chatBody(`"prompt_cache_options":{"mode":"explicit"}`), "prompt_cache_options.mode", "implicit"},
		"cache salt":              {chatBody(`"cache_salt":"key_a"`), "cache_salt", "server"},
		"metadata text":           {chatBody(`"metadata":"x"`), "metadata", "an object"},
		"metadata value":          {chatBody(`"metadata":{"a":1}`), "metadata.a", "a string"},
		"user number":             {chatBody(`"user":1`), "user", "a string"},
		"effort":                  {chatBody(`"reasoning_effort":"huge"`), "reasoning_effort", "huge"},
		"effort contradicts":      {chatBody(`"reasoning_effort":"none","think":true`), "reasoning_effort", "contradicts"},
		"think":                   {chatBody(`"think":3`), "think", "true, false"},
		"template":                {chatBody(`"chat_template":"{{ x }}"`), "chat_template", "not accepted"},
		"template in kwargs":      {chatBody(`"chat_template_kwargs":{"chat_template":"x"}`), "chat_template_kwargs.chat_template", "cannot be set"},
		"messages in kwargs":      {chatBody(`"chat_template_kwargs":{"messages":"x"}`), "chat_template_kwargs.messages", "cannot be set"},
		"bos_token in kwargs":     {chatBody(`"chat_template_kwargs":{"bos_token":"x"}`), "chat_template_kwargs.bos_token", "cannot be set"},
		"odd name in kwargs":      {chatBody(`"chat_template_kwargs":{"a.b":"x"}`), "chat_template_kwargs.a.b", "cannot be set"},
		"list in kwargs":          {chatBody(`"chat_template_kwargs":{"a":[1]}`), "chat_template_kwargs.a", "a string, a number"},
		"control token in kwargs": {chatBody(`"chat_template_kwargs":{"a":"<|im_end|>"}`), "chat_template_kwargs.a", "letters"},
		"keep_alive text":         {chatBody(`"keep_alive":"soon"`), "keep_alive", "duration"},
		"keep_alive list":         {chatBody(`"keep_alive":[]`), "keep_alive", "duration"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeChat([]byte(tc.body))
			wantFault(t, err, tc.param, tc.words)
		})
	}
}

func TestChatLimits(t *testing.T) {
	many := func(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }
	var bias, fields []string
	for i := range MaxLogitBias + 1 {
		bias = append(bias, fmt.Sprintf(`"%d":1`, i))
	}
	for i := range MaxMembers {
		fields = append(fields, fmt.Sprintf(`"x%d":1`, i))
	}
	for name, tc := range map[string]struct{ body, param string }{
		"messages":   {`{"model":"m","messages":[` + many(MaxMessages+1, hello) + `]}`, "messages"},
		"parts":      {`{"model":"m","messages":[{"role":"user","content":[` + many(MaxParts+1, `{"type":"text","text":"x"}`) + `]}]}`, "messages[0].content"},
		"tools":      {chatBody(`"tools":[` + many(MaxTools+1, `0`) + `]`), "tools"},
		"schema":     {chatBody(`"response_format":{"type":"json_schema","json_schema":{"schema":{"title":"` + strings.Repeat("x", MaxSchema) + `"}}}`), "response_format.json_schema.schema"},
		"grammar":    {chatBody(`"grammar":"` + strings.Repeat("x", MaxGrammar+1) + `"`), "grammar"},
		"bias":       {chatBody(`"logit_bias":{` + strings.Join(bias, ",") + `}`), "logit_bias"},
		"fields":     {chatBody(strings.Join(fields, ",")), ""},
		"user":       {chatBody(`"user":"` + strings.Repeat("x", MaxIdentifier+1) + `"`), "user"},
		"model name": {`{"model":"` + strings.Repeat("a", 5000) + `","messages":[` + hello + `]}`, "model"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeChat([]byte(tc.body))
			wantFault(t, err, tc.param, "")
			if len(err.Error()) > 400 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestChatAccepts(t *testing.T) {
	five, zero, ever := 5*time.Minute, time.Duration(0), time.Duration(-1)
	seed := func(v int64) *uint64 { u := uint64(v); return &u }
	yes, no := true, false
	for name, tc := range map[string]struct {
		fields string
		want   func(c *call)
	}{
		"defaults": {``, func(*call) {}},
		"nulls": {`"temperature":null,"stop":null,"stream_options":null,"tools":null,"tool_choice":null,"audio":null,"logit_bias":null,"seed":null,
			"response_format":null,"store":null,"n":null,"max_tokens":null`, func(*call) {}},
		"sampling": {`"temperature":0,"top_p":0.5,"top_k":40,"min_p":0,"typical_p":0.9,"frequency_penalty":-2,"presence_penalty":2,"mirostat":2,"mirostat_tau":4,
			"mirostat_eta":0.2,"ignore_eos":true,"repeat_last_n":-1,"repetition_penalty":1.1`, func(c *call) {
			c.Sampling = Sampling{Temperature: 0, TopP: 0.5, TopK: 40, TypicalP: 0.9, FrequencyPenalty: -2, PresencePenalty: 2, Mirostat: 2, MirostatTau: 4,
				MirostatEta: 0.2, IgnoreEOS: true, RepeatLastN: -1, RepeatPenalty: 1.1, TopLogprobs: -1}
		}},
		"repeat penalty looks back": {`"repeat_penalty":1.3`, func(c *call) { c.Sampling.RepeatPenalty, c.Sampling.RepeatLastN = 1.3, 64 }},
		"top_k off":                 {`"top_k":-1`, func(*call) {}},
		"whole float":               {`"n":2.0,"max_tokens":16.0`, func(c *call) { c.N, c.answers, c.MaxTokens = 2, 2, 16 }},
		"max_completion_tokens":     {`"max_completion_tokens":7`, func(c *call) { c.MaxTokens = 7 }},
		"both the same":             {`"max_tokens":7,"max_completion_tokens":7`, func(c *call) { c.MaxTokens = 7 }},
		"no bound":                  {`"max_tokens":-1`, func(*call) {}},
		"far bound":                 {`"max_tokens":100000`, func(c *call) { c.MaxTokens = 100000 }},
		"stop string":               {`"stop":"\n"`, func(c *call) { c.Stop = []string{"\n"} }},
		"stop list":                 {`"stop":["a","b"]`, func(c *call) { c.Stop = []string{"a", "b"} }},
		"stop none":                 {`"stop":[]`, func(*call) {}},
		"seed":                      {`"seed":42`, func(c *call) { c.Sampling.Seed = seed(42) }},
		"seed below zero":           {`"seed":-9223372036854775808`, func(c *call) { c.Sampling.Seed = seed(-1 << 63) }},
		"bias":                      {`"logit_bias":{"2":-100,"50000":1.5}`, func(c *call) { c.Sampling.LogitBias = map[int32]float64{2: -100, 50000: 1.5} }},
		"logprobs":                  {`"logprobs":true`, func(c *call) { c.Sampling.TopLogprobs, c.logprobs = 0, true }},
		"top_logprobs":              {`"logprobs":true,"top_logprobs":20`, func(c *call) { c.Sampling.TopLogprobs, c.logprobs = 20, true }},
		"top_logprobs 0":            {`"top_logprobs":0`, func(*call) {}},
		"stream":                    {`"stream":true,"stream_options":{"include_usage":true}`, func(c *call) { c.stream, c.includeUsage = true, true }},
		"format text":               {`"response_format":{"type":"text"}`, func(*call) {}},
		"format object":             {`"response_format":{"type":"json_object"}`, func(c *call) { c.Format.JSON = true }},
		"format schema": {`"response_format":{"type":"json_schema","json_schema":{"name":"s","strict":true,"schema":{"b":1, "a":2}}}`,
			func(c *call) { c.Format.Schema = json.RawMessage(`{"b":1, "a":2}`) }},
		"format true": {`"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":true}}`, func(c *call) { c.Format.Schema = json.RawMessage(`true`) }},
		"grammar":     {`"grammar":"root ::= \"a\""`, func(c *call) { c.Format.Grammar = `root ::= "a"` }},
		"tools": {`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"g"}}]`,
			func(c *call) {
				c.Tools = []chat.Tool{{Name: "f", Description: "d", Parameters: json.RawMessage(`{"type":"object"}`), Strict: true}, {Name: "g"}}
				c.ToolChoice.Mode = "auto"
			}},
		"one call": {`"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":false`,
			func(c *call) {
				c.Tools, c.ToolChoice, c.ParallelToolCalls = []chat.Tool{{Name: "f"}}, chat.ToolChoice{Mode: "auto"}, false
			}},
		"a named tool is called once": {`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`,
			func(c *call) {
				c.Tools, c.ToolChoice, c.ParallelToolCalls = []chat.Tool{{Name: "f"}}, chat.ToolChoice{Mode: "function", Name: "f"}, false
			}},
		"tool choice none": {`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"none"`, func(c *call) { c.Tools = []chat.Tool{{Name: "f"}} }},
		"choice auto":      {`"tool_choice":"auto","tools":[]`, func(*call) {}},
		"without effect":   {`"user":"u","store":false,"metadata":{"k":"v"},"service_tier":"auto","parallel_tool_calls":true,"safety_identifier":"s","prompt_cache_key":"p","modalities":["text"],"verbosity":"medium","prompt_cache_options":{"mode":"implicit"}`, func(*call) {}},
		"kwargs": {`"chat_template_kwargs":{"enable_thinking":false,"level":"high","date":"26 July 2024","n":3,"x":0.5,"nothing":null}`, func(c *call) {
			c.TemplateArgs = map[string]any{"enable_thinking": false, "level": "high", "date": "26 July 2024", "n": int64(3), "x": 0.5, "nothing": nil}
			c.Think = &no
		}},
		"effort none":         {`"reasoning_effort":"none"`, func(c *call) { c.Think = &no }},
		"effort high":         {`"reasoning_effort":"high"`, func(c *call) { c.Think, c.TemplateArgs = &yes, map[string]any{"reasoning_effort": "high"} }},
		"think":               {`"think":true`, func(c *call) { c.Think = &yes }},
		"keep_alive":          {`"keep_alive":"5m"`, func(c *call) { c.KeepAlive = &five }},
		"seconds":             {`"keep_alive":300`, func(c *call) { c.KeepAlive = &five }},
		"text number":         {`"keep_alive":"300"`, func(c *call) { c.KeepAlive = &five }},
		"at once":             {`"keep_alive":0`, func(c *call) { c.KeepAlive = &zero }},
		"for ever":            {`"keep_alive":-1`, func(c *call) { c.KeepAlive = &ever }},
		"for ever, with unit": {`"keep_alive":"-1m"`, func(c *call) { c.KeepAlive = &ever }},
		"unknown":             {`"nonsense":{"deep":[1,2,3]},"kv_transfer_params":{"tp_size":2000000000}`, func(c *call) { c.warnings = []string{"nonsense", "kv_transfer_params"} }},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeChat([]byte(chatBody(tc.fields)))
			if err != nil {
				t.Fatal(err)
			}
			want := &call{answers: 1, Request: Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: "hi"}}, N: 1,
				ToolChoice: chat.ToolChoice{Mode: "none"}, ParallelToolCalls: true, Sampling: openAIDefaults()}}
			tc.want(want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestChatMessages(t *testing.T) {
	call1 := []chat.ToolCall{{ID: "call_1", Name: "read_gauge", Arguments: "{}"}}
	wire := `"tool_calls":[{"id":"call_1","type":"function","function":{"name":"read_gauge","arguments":"{}"}}]`
	for name, tc := range map[string]struct {
		messages string
		want     []chat.Message
	}{
		"content null beside calls":    {`{"role":"assistant","content":null,` + wire + `}`, []chat.Message{{Role: "assistant", ToolCalls: call1}}},
		"content missing beside calls": {`{"role":"assistant",` + wire + `}`, []chat.Message{{Role: "assistant", ToolCalls: call1}}},
		"content empty beside calls":   {`{"role":"assistant","content":"",` + wire + `}`, []chat.Message{{Role: "assistant", ToolCalls: call1}}},
		"arguments empty":              {`{"role":"assistant",` + strings.Replace(wire, `"{}"`, `""`, 1) + `}`, []chat.Message{{Role: "assistant", ToolCalls: call1}}},
		"result gets its name": {`{"role":"assistant",` + wire + `},{"role":"tool","tool_call_id":"call_1","content":"17 bar"}`,
			[]chat.Message{{Role: "assistant", ToolCalls: call1}, {Role: "tool", ToolCallID: "call_1", Name: "read_gauge", Content: "17 bar"}}},
		"parts join": {`{"role":"user","content":[{"type":"text","text":"alpha "},{"type":"text","text":"beta"}]}`, []chat.Message{{Role: "user", Content: "alpha beta"}}},
		"empty user": {`{"role":"user","content":""}`, []chat.Message{{Role: "user"}}},
		"sdk dump": {`{"role":"assistant","content":"x","refusal":null,"audio":null,"function_call":null,"annotations":[],"tool_calls":null}`,
			[]chat.Message{{Role: "assistant", Content: "x"}}},
		"refusal":                 {`{"role":"assistant","content":null,"refusal":"no"}`, []chat.Message{{Role: "assistant", Content: "no"}}},
		"reasoning":               {`{"role":"assistant","content":"x","reasoning_content":"hm"}`, []chat.Message{{Role: "assistant", Content: "x", Reasoning: "hm"}}},
		"developer":               {`{"role":"developer","content":"be short"}`, []chat.Message{{Role: "developer", Content: "be short"}}},
		"control tokens are text": {`{"role":"user","content":"hi<|im_end|>"}`, []chat.Message{{Role: "user", Content: "hi<|im_end|>"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := decodeChat([]byte(`{"model":"m","messages":[` + tc.messages + `]}`))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(c.Messages, tc.want) {
				t.Errorf("got  %+v\nwant %+v", c.Messages, tc.want)
			}
			if c.warnings != nil {
				t.Errorf("warns of %v", c.warnings)
			}
		})
	}
}

func TestUnknownFieldsAreNamedOnce(t *testing.T) {
	c, err := decodeChat([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{}}]},
		{"role":"user","content":[{"type":"text","text":"b","cache_control":{}}]}],"x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"messages[].content[].cache_control", "x"}; !reflect.DeepEqual(c.warnings, want) {
		t.Errorf("got %q, want %q", c.warnings, want)
	}
}

func TestModelNames(t *testing.T) {
	for _, name := range []string{"m", "llama3.2:1b", "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "registry.example:5000/ns/model:tag",
		"SmolLM2-135M-Instruct-Q8_0.gguf", "command-r+", "a/b/c/d"} {
		if !validModelName(name) {
			t.Errorf("%q is refused", name)
		}
	}
	for _, name := range []string{"", " ", ".", "..", "../../../../x/y", "..%2f..%2fx", "%2e%2e/x", `..\..\x`, "/abs/x", "a/../../b", "a//b", "a\x00b", "a\nb",
		"a b:latest", "./x", "~x", "x:../../y", "registry.example/../../x:1", "con", "CON.gguf", "x/nul", "com1:tag", strings.Repeat("a", 5000), "\u202etxt",
		"<img src=x>", "a/b/c/d/e", "a:", ":a", "a/b:c/d", "a:b:c", "a/", "a."} {
		if validModelName(name) {
			t.Errorf("%q is accepted", name)
		}
	}
}
