package chat

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// reading is a whole answer as the client sees it.
type reading struct {
	content   string
	reasoning string
	calls     []CallDelta
}

func (r *reading) add(deltas []Delta) {
	for _, d := range deltas {
		r.content += d.Content
		r.reasoning += d.Reasoning
		if d.Call != nil {
			r.calls = append(r.calls, *d.Call)
		}
	}
}

func (r reading) String() string {
	var b strings.Builder
	if r.reasoning != "" {
		fmt.Fprintf(&b, "thinks %q ", r.reasoning)
	}
	if r.content != "" {
		fmt.Fprintf(&b, "says %q ", r.content)
	}
	for _, c := range r.calls {
		fmt.Fprintf(&b, "calls %d:%s(%s) ", c.Index, c.Name, c.Arguments)
	}
	return strings.TrimSpace(b.String())
}

func newTestParser(tpl *Template, choice ToolChoice, parallel, open bool) *Parser {
	return tpl.NewParser(ParserOptions{Tools: testTools(), Choice: choice, Parallel: parallel, ThinkOpen: open, Source: rand.NewPCG(1, 1)})
}

// read reads an answer in pieces of random length.
func read(tpl *Template, choice ToolChoice, parallel, open bool, rnd *rand.Rand, answer string) reading {
	p := newTestParser(tpl, choice, parallel, open)
	var r reading
	for answer != "" {
		n := len(answer)
		if rnd != nil {
			n = 1 + rnd.IntN(n)
		}
		r.add(p.Push(answer[:n]))
		answer = answer[n:]
	}
	r.add(p.Close())
	return r
}

func TestParser(t *testing.T) {
	const one = `{"name": "read_file", "arguments": {"path": "a"}}`
	for _, c := range []struct {
		name, family, in, want string
	}{
		{"plain", "qwen", "Hello, world.\n", `says "Hello, world.\n"`},
		{"blanks at the start stay", "qwen", "  Hello", `says "  Hello"`},
		{"only blanks", "qwen", " \n", `says " \n"`},
		{"nothing", "qwen", "", ""},
		{"thoughts", "qwen", "<think>\nHm.\n\nSo.\n</think>\n\nHello", `thinks "Hm.\n\nSo." says "Hello"`},
		{"empty thoughts", "qwen", "<think>\n\n</think>\n\nHello", `says "Hello"`},
		{"cut in thoughts", "qwen", "<think>\nHm. </thi", `thinks "Hm. </thi"`},
		{"a tag that is none", "qwen", "<thing> <think>x</think>", `says "<thing> <think>x</think>"`},
		{"a tag in the text", "qwen", "Use <think> here.", `says "Use <think> here."`},
		{"thoughts opened by the prompt", "r1", "Hm.\n</think>\n\nHello", `thinks "Hm." says "Hello"`},
		{"opened twice", "r1", "<think>\nHm.</think>Hello", `thinks "Hm." says "Hello"`},
		{"a call", "qwen", "<tool_call>\n" + one + "\n</tool_call>", `calls 0:read_file({"path": "a"})`},
		{"a call without its end", "qwen", "<tool_call>" + one, `calls 0:read_file({"path": "a"})`},
		{"thoughts, text, two calls, text", "qwen", "<think>Hm</think>Sure.\n<tool_call>" + one + "</tool_call>\n<tool_call>\n{\"name\":\"now\"}\n</tool_call>\nDone.",
			`thinks "Hm" says "Sure.\nDone." calls 0:read_file({"path": "a"}) calls 1:now({})`},
		{"an unknown tool", "qwen", `<tool_call>{"name": "rm", "arguments": {}}</tool_call>`, `says "<tool_call>{\"name\": \"rm\", \"arguments\": {}}</tool_call>"`},
		{"arguments that are no object", "qwen", `<tool_call>{"name": "now", "arguments": [1]}</tool_call>`, `says "<tool_call>{\"name\": \"now\", \"arguments\": [1]}</tool_call>"`},
		{"arguments as text", "qwen", `<tool_call>{"name": "now", "arguments": "{\"a\": 1}"}</tool_call>`, `calls 0:now({"a": 1})`},
		{"broken JSON", "qwen", `<tool_call>{"name": now}</tool_call> ok`, `says "<tool_call>{\"name\": now}</tool_call> ok"`},
		{"a broken call, then a good one", "qwen", `<tool_call>{"name": now}<tool_call>` + one, `says "<tool_call>{\"name\": now}" calls 0:read_file({"path": "a"})`},
		{"cut in a call", "qwen", "Sure.<tool_call>\n{\"name\": \"read_f", `says "Sure.<tool_call>\n{\"name\": \"read_f"`},
		{"cut in the marker", "qwen", "Sure.<tool_", `says "Sure.<tool_"`},
		{"brackets and quotes in strings", "qwen", `<tool_call>{"name": "now", "arguments": {"a": "}\"{[", "b": "\\"}}</tool_call>`, `calls 0:now({"a": "}\"{[", "b": "\\"})`},
		{"the marker in a string", "qwen", `<tool_call>{"name": "now", "arguments": {"a": "</tool_call><tool_call>"}}</tool_call>`, `calls 0:now({"a": "</tool_call><tool_call>"})`},

		{"llama", "llama3", `{"name": "read_file", "parameters": {"path": "a"}}`, `calls 0:read_file({"path": "a"})`},
		{"llama with its tag", "llama3", `<|python_tag|>{"name": "now", "parameters": {}}`, `calls 0:now({})`},
		{"llama with a type", "llama3", `{"type": "function", "name": "now", "parameters": {}}`, `calls 0:now({})`},
		{"llama, two", "llama3", `{"name": "now", "parameters": {}}; {"name": "read_file", "parameters": {"path": "a"}}`, `calls 0:now({}) calls 1:read_file({"path": "a"})`},
		{"llama, JSON that is an answer", "llama3", `{"name": "Ada", "age": 36}`, `says "{\"name\": \"Ada\", \"age\": 36}"`},
		{"llama, other JSON", "llama3", `{"answer": {"a": 1}}`, `says "{\"answer\": {\"a\": 1}}"`},
		{"llama, code", "llama3", `<|python_tag|>print(1)`, `says "<|python_tag|>print(1)"`},
		{"llama, a call after text is text", "llama3", `Sure: {"name": "now", "parameters": {}}`, `says "Sure: {\"name\": \"now\", \"parameters\": {}}"`},

		{"mistral", "mistral", `[TOOL_CALLS] [` + one + `, {"name": "now", "arguments": {}, "id": "abcdefghi"}]`, `calls 0:read_file({"path": "a"}) calls 1:now({})`},
		{"mistral, text before", "mistral", `Sure. [TOOL_CALLS][` + one + `]`, `says "Sure. " calls 0:read_file({"path": "a"})`},
		{"mistral, a single object", "mistral", `[TOOL_CALLS]` + one, `calls 0:read_file({"path": "a"})`},
		{"mistral, cut in the second", "mistral", `[TOOL_CALLS] [` + one + `, {"name": "n`, `says ", {\"name\": \"n" calls 0:read_file({"path": "a"})`},
		{"mistral, an empty list", "mistral", `[TOOL_CALLS] []`, `says "[TOOL_CALLS] []"`},
		{"mistral, newer form", "mistral-args", `[TOOL_CALLS]read_file[ARGS]{"path": "a"}[TOOL_CALLS]now[ARGS]{}`, `calls 0:read_file({"path": "a"}) calls 1:now({})`},
		{"mistral, with an id", "mistral-args", `Ok[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}`, `says "Ok" calls 0:now({})`},
		{"mistral, an unknown tool", "mistral-args", `[TOOL_CALLS]rm[ARGS]{}`, `says "[TOOL_CALLS]rm[ARGS]{}"`},
		{"mistral, arguments are no JSON", "mistral-args", `[TOOL_CALLS]now[ARGS]{a}`, `says "[TOOL_CALLS]now[ARGS]{a}"`},

		{"messages", "harmony", "<|channel|>analysis<|message|>Hm, \n<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>", `thinks "Hm, \n" says "Hello."`},
		{"messages, the end unseen", "harmony", "<|channel|>final<|message|>Hello", `says "Hello"`},
		{"messages, a call", "harmony", "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{\"path\": \"a\"}<|call|>", `thinks "Hm" calls 0:read_file({"path": "a"})`},
		{"messages, recipient first", "harmony", " to=functions.now<|channel|>commentary json<|message|>{}", `calls 0:now({})`},
		{"messages, a preamble and two calls", "harmony", "<|channel|>commentary<|message|>Both.<|end|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.now<|message|>{}", `says "Both." calls 0:now({}) calls 1:now({})`},
		{"messages, an unknown tool", "harmony", "<|channel|>commentary to=functions.rm<|message|>{}", `says "{}"`},
		{"messages, cut in a call", "harmony", "<|channel|>commentary to=functions.now<|message|>{\"a", `says "{\"a"`},
		{"messages, cut in a header", "harmony", "<|channel|>final<|message|>Hi<|end|><|start|>assist", `says "Hi"`},
		{"messages, none", "harmony", "Hello", `says "Hello"`},
		{"messages, an end that is none", "harmony", "<|channel|>final<|message|>a <|en b", `says "a <|en b"`},

		{"generic", "chatml", `{"tool_calls": [` + one + `, {"name": "now", "arguments": {}}]}`, `calls 0:read_file({"path": "a"}) calls 1:now({})`},
		{"generic, with blanks", "chatml", "\n{ \"tool_calls\" : [ " + one + " ] } ", `calls 0:read_file({"path": "a"})`},
		{"generic, JSON that is an answer", "chatml", `{"tools": 1}`, `says "{\"tools\": 1}"`},
		{"generic, no calls", "chatml", `{"tool_calls": []}`, `says "{\"tool_calls\": []}"`},
		{"generic, cut", "chatml", `{"tool_ca`, `says "{\"tool_ca"`},
		{"generic, text after", "chatml", `{"tool_calls": [` + one + `]} Done.`, `says "Done." calls 0:read_file({"path": "a"})`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tpl, open := family(t, c.family), c.family == "r1"
			auto := ToolChoice{Mode: "auto"}
			if got := read(tpl, auto, true, open, nil, c.in).String(); got != c.want {
				t.Errorf("%q\n got %s\nwant %s", c.in, got, c.want)
			}
			checkSplits(t, tpl, true, open, c.in)
		})
	}
}

// checkSplits reads an answer byte by byte, and in two pieces at each place.
func checkSplits(t *testing.T, tpl *Template, parallel, open bool, answer string) {
	t.Helper()
	auto := ToolChoice{Mode: "auto"}
	want := read(tpl, auto, parallel, open, nil, answer).String()
	p := newTestParser(tpl, auto, parallel, open)
	var bytewise reading
	for i := range len(answer) {
		bytewise.add(p.Push(answer[i : i+1]))
	}
	bytewise.add(p.Close())
	if got := bytewise.String(); got != want {
		t.Errorf("%q byte by byte\n got %s\nwant %s", answer, got, want)
	}
	for i := range len(answer) {
		p := newTestParser(tpl, auto, parallel, open)
		var r reading
		r.add(p.Push(answer[:i]))
		r.add(p.Push(answer[i:]))
		r.add(p.Close())
		if got := r.String(); got != want {
			t.Errorf("%q cut at %d\n got %s\nwant %s", answer, i, got, want)
			return
		}
	}
}

func TestParserWithoutCalls(t *testing.T) {
	answer := `<tool_call>{"name": "now", "arguments": {}}</tool_call>`
	tpl := family(t, "qwen")
	if got := read(tpl, ToolChoice{Mode: "none"}, true, false, nil, answer); got.content != answer || got.calls != nil {
		t.Errorf("tool_choice none: %s", got)
	}
	named := ToolChoice{Mode: "function", Name: "read_file"}
	if got := read(tpl, named, true, false, nil, answer); got.calls != nil {
		t.Errorf("another tool was named: %s", got)
	}
	p := tpl.NewParser(ParserOptions{})
	var r reading
	r.add(p.Push(answer))
	r.add(p.Close())
	if r.content != answer {
		t.Errorf("no tools: %s", r)
	}
}

func TestParserOfOneCall(t *testing.T) {
	for family_, answer := range callExamples() {
		tpl := family(t, family_)
		got := read(tpl, ToolChoice{Mode: "auto"}, false, family_ == "r1", nil, answer)
		if len(got.calls) != 1 {
			t.Errorf("%s: %s", family_, got)
		}
		checkSplits(t, tpl, false, family_ == "r1", answer)
	}
}

func TestFinishReason(t *testing.T) {
	tpl := family(t, "qwen")
	call := `<tool_call>{"name": "now", "arguments": {}}</tool_call>`
	for _, c := range []struct {
		answer, engine, want string
	}{
		{"Hi", "stop", "stop"},
		{"Hi", "length", "length"},
		{call, "stop", "tool_calls"},
		{call + `<tool_call>{"na`, "length", "length"},
		{`<tool_call>{"na`, "length", "length"},
		{`<tool_call>{"na`, "stop", "stop"},
	} {
		p := newTestParser(tpl, ToolChoice{Mode: "required"}, true, false)
		p.Push(c.answer)
		p.Close()
		if got := p.FinishReason(c.engine); got != c.want {
			t.Errorf("%q ended by %s: got %s, want %s", c.answer, c.engine, got, c.want)
		}
	}
}

func TestContentIsNotHeldBack(t *testing.T) {
	p := newTestParser(family(t, "qwen"), ToolChoice{Mode: "auto"}, true, false)
	for _, c := range []struct{ in, want string }{
		{"Hel", "Hel"}, {"lo <", "lo "}, {"b", "<b"}, {"> <tool", "> "}, {"box>", "<toolbox>"},
	} {
		var r reading
		r.add(p.Push(c.in))
		if r.content != c.want {
			t.Errorf("after %q: %q, want %q", c.in, r.content, c.want)
		}
	}
}

func TestIDsAreUnique(t *testing.T) {
	p := newTestParser(family(t, "qwen"), ToolChoice{Mode: "auto"}, true, false)
	seen := map[string]bool{}
	for i := range 1000 {
		var r reading
		r.add(p.Push(`<tool_call>{"name": "now", "arguments": {}}</tool_call>`))
		if len(r.calls) != 1 || r.calls[0].Index != i || seen[r.calls[0].ID] || len(r.calls[0].ID) != len("call_")+24 {
			t.Fatalf("call %d: %s %+v", i, r, r.calls)
		}
		seen[r.calls[0].ID] = true
	}
}

// TestLongCallIsReadInLinearTime would take minutes if each piece were looked at
// again with all before it.
func TestLongCallIsReadInLinearTime(t *testing.T) {
	p := newTestParser(family(t, "qwen"), ToolChoice{Mode: "auto"}, true, false)
	p.Push(`<tool_call>{"name": "now", "arguments": {"a": "`)
	for range 400_000 {
		p.Push("word ")
	}
	var r reading
	r.add(p.Push(`"}}</tool_call>`))
	if len(r.calls) != 1 || len(r.calls[0].Arguments) < 2_000_000 {
		t.Errorf("%d calls", len(r.calls))
	}
}

func FuzzParser(f *testing.F) {
	examples := callExamples()
	for _, answer := range examples {
		f.Add(answer, uint64(1), true)
	}
	f.Add("<think>a</think> <tool_call>{\"name\": \"now\"}</tool_call", uint64(2), false)
	f.Add("<think></think><think>[TOOL_CALLS] [{\"name\":\"now\"},{}", uint64(3), true)
	var all []*Template
	for _, name := range families(f) {
		all = append(all, family(f, name))
	}
	f.Fuzz(func(t *testing.T, answer string, seed uint64, parallel bool) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		for _, tpl := range all {
			for _, open := range []bool{false, true} {
				auto := ToolChoice{Mode: "auto"}
				want := read(tpl, auto, parallel, open, nil, answer)
				got := read(tpl, auto, parallel, open, rnd, answer)
				if got.String() != want.String() {
					t.Fatalf("%s: %q\nin pieces %s\nwhole %s", tpl.caps.ToolFormat, answer, got, want)
				}
				for _, c := range want.calls {
					if c.Arguments == "" || c.Arguments[0] != '{' {
						t.Fatalf("%q: the arguments %q", answer, c.Arguments)
					}
				}
			}
		}
	})
}
