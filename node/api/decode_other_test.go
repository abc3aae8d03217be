package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/node/chat"
)

func TestCompletionsDecode(t *testing.T) {
	want := func(change func(c *call)) *call {
		c := &call{answers: 1, Request: Request{Model: "m", Prompts: []Prompt{{Text: "x"}}, N: 1, MaxTokens: 16, Sampling: openAIDefaults()}}
		change(c)
		return c
	}
	for name, tc := range map[string]struct {
		fields string
		want   *call
	}{
		"text":        {`"prompt":"x"`, want(func(*call) {})},
		"texts":       {`"prompt":["x","y"],"n":2,"max_tokens":5`, want(func(c *call) { c.Prompts, c.N, c.answers, c.MaxTokens = []Prompt{{Text: "x"}, {Text: "y"}}, 2, 2, 5 })},
		"tokens":      {`"prompt":[1,2,3]`, want(func(c *call) { c.Prompts = []Prompt{{Tokens: []int32{1, 2, 3}}} })},
		"token lists": {`"prompt":[[1],[2,3]]`, want(func(c *call) { c.Prompts = []Prompt{{Tokens: []int32{1}}, {Tokens: []int32{2, 3}}} })},
		"suffix":      {`"prompt":"x","suffix":"z"`, want(func(c *call) { c.Prompts = []Prompt{{Text: "x", Suffix: "z", Plain: true}} })},
		"suffix only": {`"prompt":"","suffix":"z"`, want(func(c *call) { c.Prompts = []Prompt{{Suffix: "z", Plain: true}} })},
		"echo":        {`"prompt":["x","y"],"echo":true`, want(func(c *call) { c.Prompts, c.echo = []Prompt{{Text: "x"}, {Text: "y"}}, []string{"x", "y"} })},
		"logprobs 0":  {`"prompt":"x","logprobs":0`, want(func(c *call) { c.Sampling.TopLogprobs, c.logprobs = 0, true })},
		"best_of":     {`"prompt":"x","best_of":3`, want(func(c *call) { c.N, c.Sampling.TopLogprobs = 3, 0 })},
		"best_of n":   {`"prompt":"x","best_of":2,"n":2`, want(func(c *call) { c.N, c.answers = 2, 2 })},
		"no bound":    {`"prompt":"x","max_tokens":-1`, want(func(c *call) { c.MaxTokens = 0 })},
		"unknown":     {`"prompt":"x","use_beam_search":true`, want(func(c *call) { c.warnings = []string{"use_beam_search"} })},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeCompletions([]byte(`{"model":"m",` + tc.fields + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct{ fields, param, words string }{
		"missing":           {`"n":1`, "prompt", "required"},
		"null":              {`"prompt":null`, "prompt", "required"},
		"empty":             {`"prompt":""`, "prompt", "empty"},
		"none":              {`"prompt":[]`, "prompt", "empty"},
		"one empty":         {`"prompt":["x",""]`, "prompt[1]", "empty"},
		"object":            {`"prompt":{}`, "prompt", "a string, or an array"},
		"mixed":             {`"prompt":[1,"x"]`, "prompt[1]", "token id"},
		"mixed the other":   {`"prompt":["x",1]`, "prompt[1]", "a string or an array"},
		"negative token":    {`"prompt":[-1]`, "prompt[0]", "token id"},
		"broken token":      {`"prompt":[1.5]`, "prompt[0]", "token id"},
		"huge token":        {`"prompt":[99999999999]`, "prompt[0]", "token id"},
		"empty tokens":      {`"prompt":[[]]`, "prompt[0]", "empty"},
		"too many":          {`"prompt":["x"` + strings.Repeat(`,"x"`, MaxSequences) + `]`, "prompt", "more than 64"},
		"too many answers":  {`"prompt":["a","b","c","d","e"],"n":16`, "prompt", "80 answers"},
		"best_of too few":   {`"prompt":"x","n":3,"best_of":2`, "best_of", "less than n"},
		"best_of streamed":  {`"prompt":"x","best_of":2,"stream":true`, "best_of", "streamed"},
		"echo and logprobs": {`"prompt":"x","echo":true,"logprobs":1`, "echo", "logprobs"},
		"echo and suffix":   {`"prompt":"x","echo":true,"suffix":"y"`, "echo", "suffix"},
		"suffix and tokens": {`"prompt":[1],"suffix":"y"`, "suffix", "text"},
		"logprobs bool":     {`"prompt":"x","logprobs":true`, "logprobs", "whole number"},
		"max_tokens 0":      {`"prompt":"x","max_tokens":0`, "max_tokens", "from 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeCompletions([]byte(`{"model":"m",` + tc.fields + `}`))
			wantFault(t, err, tc.param, tc.words)
		})
	}
}

func TestEmbeddingsDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		decode func([]byte) (*embedding, error)
		fields string
		want   embedding
	}{
		"text":     {decodeEmbeddings, `"input":"x"`, embedding{EmbedRequest: EmbedRequest{Inputs: []Prompt{{Text: "x", Plain: true}}}}},
		"texts":    {decodeEmbeddings, `"input":["x","y"],"encoding_format":"base64","dimensions":8,"user":"u"`, embedding{EmbedRequest: EmbedRequest{Inputs: []Prompt{{Text: "x", Plain: true}, {Text: "y", Plain: true}}, Dimensions: 8}, base64: true}},
		"tokens":   {decodeEmbeddings, `"input":[[1,2],[3]]`, embedding{EmbedRequest: EmbedRequest{Inputs: []Prompt{{Tokens: []int32{1, 2}, Plain: true}, {Tokens: []int32{3}, Plain: true}}}}},
		"ollama":   {decodeOllamaEmbed, `"input":["x"],"truncate":true,"options":{"num_ctx":9}`, embedding{EmbedRequest: EmbedRequest{Inputs: []Prompt{{Text: "x", Plain: true}}, Truncate: true}}},
		"default":  {decodeOllamaEmbed, `"input":"x","foo":1`, embedding{EmbedRequest: EmbedRequest{Inputs: []Prompt{{Text: "x", Plain: true}}}, warnings: []string{"foo"}}},
		"old form": {decodeOllamaEmbeddings, `"prompt":"x"`, embedding{EmbedRequest: EmbedRequest{Inputs: []Prompt{{Text: "x", Plain: true}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.decode([]byte(`{"model":"m",` + tc.fields + `}`))
			if err != nil {
				t.Fatal(err)
			}
			tc.want.Model = "m"
			if !reflect.DeepEqual(*got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", *got, tc.want)
			}
		})
	}
	for name, tc := range map[string]struct{ fields, param, words string }{
		"missing":    {`"user":"x"`, "input", "required"},
		"empty":      {`"input":""`, "input", "empty"},
		"one empty":  {`"input":["a",""]`, "input[1]", "empty"},
		"too many":   {`"input":["x"` + strings.Repeat(`,"x"`, MaxEmbedInputs) + `]`, "input", "more than 2048"},
		"encoding":   {`"input":"x","encoding_format":"int8"`, "encoding_format", "int8"},
		"dimensions": {`"input":"x","dimensions":0`, "dimensions", "from 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeEmbeddings([]byte(`{"model":"m",` + tc.fields + `}`))
			wantFault(t, err, tc.param, tc.words)
		})
	}
}

func TestOllamaDecode(t *testing.T) {
	user := []chat.Message{{Role: "user", Content: "hi"}}
	zero := time.Duration(0)
	base := func(change func(c *call)) *call {
		c := &call{stream: true, answers: 1, Request: Request{Model: "m", N: 1, Messages: user, Sampling: ollamaDefaults()}}
		change(c)
		return c
	}
	chatCall := func(change func(c *call)) *call {
		return base(func(c *call) {
			c.ToolChoice, c.ParallelToolCalls = chat.ToolChoice{Mode: "none"}, true
			change(c)
		})
	}
	seed := uint64(42)
	for name, tc := range map[string]struct {
		decode func([]byte) (*call, error)
		fields string
		want   *call
	}{
		"chat":           {decodeOllamaChat, `"messages":[` + hello + `]`, chatCall(func(*call) {})},
		"chat, old name": {decodeOllamaChat, `"name":"m","model":"","messages":[` + hello + `],"stream":false`, chatCall(func(c *call) { c.stream = false })},
		"chat load":      {decodeOllamaChat, `"messages":[]`, chatCall(func(c *call) { c.LoadOnly, c.stream, c.Messages = true, false, []chat.Message{} })},
		"upper case":     {decodeOllamaChat, `"messages":[{"role":"User","content":"hi","images":[]}]`, chatCall(func(*call) {})},
		"tools": {decodeOllamaChat, `"messages":[` + hello + `],"tools":[{"type":"function","function":{"name":"f"}}],"format":"json","think":"high"`, chatCall(func(c *call) {
			yes := true
			c.Tools, c.ToolChoice.Mode, c.Format.JSON, c.Think = []chat.Tool{{Name: "f"}}, "auto", true, &yes
			c.TemplateArgs = map[string]any{"reasoning_effort": "high"}
		})},
		"history": {decodeOllamaChat, `"messages":[{"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{"b": 1,"a":2}}},{"function":{"name":"g","arguments":{}}}]},
			{"role":"tool","tool_name":"g","content":"G"},{"role":"tool","content":"F"}]`, chatCall(func(c *call) {
			c.Messages = []chat.Message{
				{Role: "assistant", Reasoning: "hm", ToolCalls: []chat.ToolCall{{ID: "call_0", Name: "f", Arguments: `{"b":1,"a":2}`}, {ID: "call_1", Name: "g", Arguments: "{}"}}},
				{Role: "tool", Name: "g", ToolCallID: "call_1", Content: "G"}, {Role: "tool", Name: "f", ToolCallID: "call_0", Content: "F"}}
		})},
		"options": {decodeOllamaChat, `"messages":[` + hello + `],"truncate":true,"options":{"num_keep":5,"seed":42,"num_predict":100,"top_k":20,"top_p":0.9,"min_p":0.0,"typical_p":0.7,
			"repeat_last_n":33,"temperature":0.8,"repeat_penalty":1.2,"presence_penalty":1.5,"frequency_penalty":1.0,"penalize_newline":true,"stop":["\n","user:"],"numa":false,
			"num_ctx":1024,"main_gpu":0,"use_mmap":true,"num_gpu":-1,"num_thread":0,"spam":1}`, chatCall(func(c *call) {
			c.Sampling = Sampling{Temperature: 0.8, TopK: 20, TopP: 0.9, TypicalP: 0.7, RepeatLastN: 33, RepeatPenalty: 1.2, PresencePenalty: 1.5, FrequencyPenalty: 1,
				MirostatTau: 5, MirostatEta: 0.1, TopLogprobs: -1, Seed: &seed}
			c.MaxTokens, c.Stop, c.Context, c.Truncate, c.warnings = 100, []string{"\n", "user:"}, 1024, true, []string{"options.spam"}
		})},
		"any seed, no bound": {decodeOllamaChat, `"messages":[` + hello + `],"options":{"seed":-1,"num_predict":-2}`, chatCall(func(*call) {})},
		"generate":           {decodeOllamaGenerate, `"prompt":"hi"`, base(func(*call) {})},
		"system":             {decodeOllamaGenerate, `"prompt":"hi","system":"s","context":[],"images":null`, base(func(c *call) { c.Messages = append([]chat.Message{{Role: "system", Content: "s"}}, user...) })},
		"raw":                {decodeOllamaGenerate, `"prompt":"hi","raw":true`, base(func(c *call) { c.Messages, c.Prompts = nil, []Prompt{{Text: "hi"}} })},
		"suffix":             {decodeOllamaGenerate, `"prompt":"hi","suffix":"z"`, base(func(c *call) { c.Messages, c.Prompts = nil, []Prompt{{Text: "hi", Suffix: "z", Plain: true}} })},
		"load":               {decodeOllamaGenerate, `"stream":true`, base(func(c *call) { c.Messages, c.LoadOnly, c.stream = nil, true, false })},
		"unload":             {decodeOllamaGenerate, `"keep_alive":0`, base(func(c *call) { c.Messages, c.LoadOnly, c.stream, c.KeepAlive = nil, true, false, &zero })},
		"schema":             {decodeOllamaGenerate, `"prompt":"hi","format":{"type":"object"}`, base(func(c *call) { c.Format.Schema = json.RawMessage(`{"type":"object"}`) })},
		"no format":          {decodeOllamaGenerate, `"prompt":"hi","format":""`, base(func(*call) {})},
		"logprobs":           {decodeOllamaGenerate, `"prompt":"hi","logprobs":true,"top_logprobs":2`, base(func(c *call) { c.Sampling.TopLogprobs, c.logprobs = 2, true })},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"model":"m",` + tc.fields + `}`
			if strings.Contains(tc.fields, `"name":"m"`) {
				body = `{` + tc.fields + `}`
			}
			got, err := tc.decode([]byte(body))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

func TestOllamaRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ fields, param, words string }{
		"template":        {`"prompt":"x","template":"{{ .Prompt }}"`, "template", "not accepted"},
		"context":         {`"prompt":"x","context":[1,2]`, "context", "/api/chat"},
		"images":          {`"prompt":"x","images":["AAAA"]`, "images", "not supported"},
		"raw with system": {`"prompt":"x","raw":true,"system":"s"`, "system", "raw"},
		"shift":           {`"prompt":"x","shift":true`, "shift", "never shifted"},
		"width":           {`"prompt":"x","width":64`, "width", "images"},
		"format":          {`"prompt":"x","format":"yaml"`, "format", "json"},
		"format list":     {`"prompt":"x","format":[]`, "format", "json"},
		"think":           {`"prompt":"x","think":"very"`, "think", "one of"},
		"options text":    {`"prompt":"x","options":"x"`, "options", "an object"},
		"num_gpu":         {`"prompt":"x","options":{"num_gpu":1}`, "options.num_gpu", "whole node"},
		"num_batch":       {`"prompt":"x","options":{"num_batch":2}`, "options.num_batch", "whole node"},
		"num_thread":      {`"prompt":"x","options":{"num_thread":8}`, "options.num_thread", "whole node"},
		"tfs_z":           {`"prompt":"x","options":{"tfs_z":0.5}`, "options.tfs_z", "min_p"},
		"newline":         {`"prompt":"x","options":{"penalize_newline":false}`, "options.penalize_newline", "not supported"},
		"temperature":     {`"prompt":"x","options":{"temperature":"x"}`, "options.temperature", "a number"},
		"num_predict":     {`"prompt":"x","options":{"num_predict":-3}`, "options.num_predict", "from -2"},
		"num_ctx":         {`"prompt":"x","options":{"num_ctx":0.5}`, "options.num_ctx", "whole number"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeOllamaGenerate([]byte(`{"model":"m",` + tc.fields + `}`))
			wantFault(t, err, tc.param, tc.words)
		})
	}
	for name, tc := range map[string]struct{ messages, param, words string }{
		"role":           {`{"role":"","content":"x"}`, "messages[0].role", "not one of"},
		"parts":          {`{"role":"user","content":[]}`, "messages[0].content", "a string"},
		"no content":     {`{"role":"user"}`, "messages[0].content", "required"},
		"images":         {`{"role":"user","content":"x","images":["AA"]}`, "messages[0].images", "not supported"},
		"arguments text": {`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}`, "messages[0].tool_calls[0].function.arguments", "an object"},
	} {
		t.Run("message "+name, func(t *testing.T) {
			_, err := decodeOllamaChat([]byte(`{"model":"m","messages":[` + tc.messages + `]}`))
			wantFault(t, err, tc.param, tc.words)
		})
	}
}
