package chat

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// callExamples are answers with calls as models of each family write them.
func callExamples() map[string]string {
	return map[string]string{
		"qwen":         "Sure.\n<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"a\", \"lines\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		"hermes":       "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
		"llama3":       `{"name": "read_file", "parameters": {"path": "a"}}`,
		"mistral":      `[TOOL_CALLS] [{"name": "read_file", "arguments": {"path": "a"}}, {"name": "now", "arguments": {}}]`,
		"mistral-args": `[TOOL_CALLS]read_file[ARGS]{"path": "a"}[TOOL_CALLS]now[ARGS]{}`,
		"chatml":       `{"tool_calls": [{"name": "read_file", "arguments": {"path": "a"}}, {"name": "now", "arguments": {}}]}`,
		"harmony":      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}",
		"r1":           "Hm, a call.\n</think>\n\n" + `{"tool_calls": [{"name": "now", "arguments": {}}]}`,
	}
}

// forced is the grammar for choice required or function.
func forced(t *testing.T, tpl *Template, choice ToolChoice, parallel, open bool) *gbnf {
	t.Helper()
	text, triggers, err := tpl.ToolGrammar(testTools(), choice, parallel, open)
	if err != nil {
		t.Fatal(err)
	}
	if triggers != nil {
		t.Errorf("a grammar that applies from the first token has the triggers %q", triggers)
	}
	return parseGBNF(t, text)
}

func TestForcedAnswersAreCalls(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, name := range families(t) {
		for _, choice := range []ToolChoice{{Mode: "required"}, {Mode: "function", Name: "now"}} {
			for _, parallel := range []bool{true, false} {
				tpl := family(t, name)
				open := name == "r1"
				g := forced(t, tpl, choice, parallel, open)
				for range 40 {
					answer := g.invent(rnd)
					checkCalls(t, name, answer, read(tpl, choice, parallel, open, rnd, answer), choice, parallel)
				}
			}
		}
	}
}

// checkCalls fails unless an answer is nothing but valid calls, perhaps after
// thoughts.
func checkCalls(t *testing.T, name, answer string, got reading, choice ToolChoice, parallel bool) {
	t.Helper()
	if got.content != "" || len(got.calls) == 0 || len(got.calls) > maxCalls || !parallel && len(got.calls) != 1 {
		t.Fatalf("%s: the answer %q is read as %+v", name, answer, got)
	}
	for i, c := range got.calls {
		var args struct {
			Path  *string
			Lines *int
		}
		if err := json.Unmarshal([]byte(c.Arguments), &args); err != nil {
			t.Fatalf("%s: the arguments %s: %v", name, c.Arguments, err)
		}
		known := choice.Mode == "required" && c.Name == "read_file" && args.Path != nil || c.Name == "now"
		if !known || c.Index != i || !strings.HasPrefix(c.ID, "call_") {
			t.Fatalf("%s: call %d of %q is %+v", name, i, answer, c)
		}
	}
}

// TestTriggers feeds answers piece by piece, as the engine does, and checks that
// what a trigger hands to the grammar is something that the grammar accepts: the
// engine cannot recover from anything else.
func TestTriggers(t *testing.T) {
	for name, answer := range callExamples() {
		t.Run(name, func(t *testing.T) {
			text, triggers, err := family(t, name).ToolGrammar(testTools(), ToolChoice{Mode: "auto"}, true, name == "r1")
			if err != nil {
				t.Fatal(err)
			}
			g := parseGBNF(t, text)
			for piece := 1; piece < 12; piece++ {
				at := triggered(t, triggers, answer, piece)
				// A piece may pass the place where a trigger would match.
				if at < 0 && piece == 1 {
					t.Fatalf("none of %q matches", triggers)
				}
				if at >= 0 {
					if alive, whole := g.follow(answer[at:]); !alive || !whole {
						t.Errorf("pieces of %d: the grammar does not accept %q", piece, answer[at:])
					}
				}
			}
		})
	}
}

// triggered is where the grammar begins, or -1.
func triggered(t *testing.T, triggers []string, answer string, piece int) int {
	t.Helper()
	for end := min(piece, len(answer)); ; end = min(end+piece, len(answer)) {
		for _, trigger := range triggers {
			if m := regexp.MustCompile(trigger).FindStringSubmatchIndex(answer[:end]); m != nil {
				if m[3] != end {
					t.Errorf("%s leaves %q of %q to nobody", trigger, answer[m[3]:end], answer[:end])
				}
				return m[2]
			}
		}
		if end == len(answer) {
			return -1
		}
	}
}

// TestTriggersOnNoise looks for text that a trigger takes and the grammar does not.
func TestTriggersOnNoise(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	words := []string{"<tool_call>", "</tool_call>", "\n", " ", "<|channel|>", "<|channel|>commentary to=", "functions", ".", "now", "<|message|>", "{", `{"`, `"name"`, `name": "`, `": "`, "read_file", `"`, `", "`, ",", "[TOOL_CALLS]", "[", "[ARGS]",
		"<think>", "</think>", "a", `{"tool_calls"`, `": [`, ": ", "<|python_tag|>", `{"name": "now"`, "parameters", "<", "x < y"}
	for _, name := range families(t) {
		for _, open := range []bool{false, true} {
			tpl := family(t, name)
			text, triggers, err := tpl.ToolGrammar(testTools(), ToolChoice{Mode: "auto"}, true, open)
			if err != nil {
				t.Fatal(err)
			}
			g := parseGBNF(t, text)
			var patterns []*regexp.Regexp
			for _, trigger := range triggers {
				patterns = append(patterns, regexp.MustCompile(trigger))
			}
			hits := 0
			for range 3000 {
				var answer string
				for range 1 + rnd.IntN(6) {
					answer += words[rnd.IntN(len(words))]
				}
				for _, p := range patterns {
					m := p.FindStringSubmatchIndex(answer)
					if m == nil {
						continue
					}
					hits++
					if alive, _ := g.follow(answer[m[2]:]); !alive || m[3] != len(answer) {
						t.Fatalf("%s: %s takes %q of %q, which the grammar refuses", name, p, answer[m[2]:], answer)
					}
					if open && !tpl.channels && !strings.Contains(answer[:m[2]], tpl.tags.end) {
						t.Fatalf("%s: %s matches inside thoughts: %q", name, p, answer)
					}
				}
			}
			if hits == 0 {
				t.Errorf("%s: no trigger matched anything", name)
			}
		}
	}
}

func TestToolGrammarChoices(t *testing.T) {
	tpl := family(t, "qwen")
	odd := Tool{Name: "odd", Parameters: json.RawMessage(`{"type":"object","properties":{"a":{"type":"nonsense"}}}`)}
	strict := odd
	strict.Strict = true
	for _, c := range []struct {
		name   string
		tools  []Tool
		choice ToolChoice
		want   string // "", "forced", "lazy" or part of the error
	}{
		{"none", testTools(), ToolChoice{Mode: "none"}, ""},
		{"no tools", nil, ToolChoice{Mode: "auto"}, ""},
		{"auto", testTools(), ToolChoice{Mode: "auto"}, "lazy"},
		{"unset", testTools(), ToolChoice{}, "lazy"},
		{"required", testTools(), ToolChoice{Mode: "required"}, "forced"},
		{"required without tools", nil, ToolChoice{Mode: "required"}, "there are no tools"},
		{"named", testTools(), ToolChoice{Mode: "function", Name: "now"}, "forced"},
		{"ghost", testTools(), ToolChoice{Mode: "function", Name: "nope"}, `"nope"`},
		{"schema that cannot hold, auto", []Tool{odd}, ToolChoice{Mode: "auto"}, "lazy"},
		{"schema that cannot hold, required", []Tool{odd}, ToolChoice{Mode: "required"}, "tools[0].function.parameters"},
		{"schema that cannot hold, strict", []Tool{strict}, ToolChoice{Mode: "auto"}, "tools[0].function.parameters"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, triggers, err := tpl.ToolGrammar(c.tools, c.choice, true, false)
			got := "forced"
			switch {
			case err != nil:
				got = err.Error()
			case text == "":
				got = ""
			case len(triggers) > 0:
				got = "lazy"
			}
			if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestObjectSchema(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                    `{"type":"object"}`,
		` {"properties":{}}`:                    `{"type":"object","properties":{}}`,
		`{"type":"string"}`:                     `{"type":"string"}`,
		`{"anyOf":[{}]}`:                        `{"anyOf":[{}]}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{}}}`: `{"$ref":"#/$defs/a","$defs":{"a":{}}}`,
		`true`:                                  `true`,
	} {
		if got := string(objectSchema(json.RawMessage(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

func TestThoughtsEndAtTheFirstTag(t *testing.T) {
	tpl := family(t, "r1")
	g := forced(t, tpl, ToolChoice{Mode: "required"}, false, true)
	call := `{"tool_calls": [{"name": "now", "arguments": {}}]}`
	for text, want := range map[string]bool{
		"a</think>" + call:                   true,
		"</think>\n\n" + call:                true,
		"<</think>" + call:                   true,
		"</</think>" + call:                  true,
		"a < b </thinking> c</think>" + call: true,
		"a</think>b</think>" + call:          false,
		"a" + call:                           false,
		call:                                 false,
	} {
		if _, whole := g.follow(text); whole != want {
			t.Errorf("%q: got %v", text, whole)
		}
	}
}
