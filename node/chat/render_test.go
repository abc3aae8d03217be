package chat

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestRenderErrors(t *testing.T) {
	for _, c := range []struct {
		name, family, want string
		in                 Input
	}{
		{"the template's own words", "mistral", "beginning with user", Input{Messages: []Message{{Role: "assistant", Content: "a"}, user("b")}}},
		{"broken arguments", "qwen", "messages[0].tool_calls[0].function.arguments must be one JSON object", Input{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{testCall("a", "now", `{"a":1}{"b":2}`)}}}}},
		{"arguments that are a list", "qwen", "messages[0].tool_calls[0].function.arguments must be one JSON object", Input{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{testCall("a", "now", `[1]`)}}}}},
		{"broken arguments, generic", "chatml", "messages[0].tool_calls", Input{Messages: []Message{{Role: "assistant", ToolCalls: []ToolCall{testCall("a", "now", `{"a"`)}}}}},
		{"broken parameters", "qwen", "tools[0].function.parameters", Input{Messages: []Message{user("a")}, Tools: []Tool{{Name: "a", Parameters: []byte(`{`)}}}},
		{"broken parameters, generic", "chatml", "tools[0].function.parameters", Input{Messages: []Message{user("a")}, Tools: []Tool{{Name: "a", Parameters: []byte(`{`)}}}},
		{"an argument of the server", "qwen", `"messages"`, Input{Messages: []Message{user("a")}, Args: map[string]any{"messages": 1}}},
		{"an argument that is no JSON", "qwen", `"f"`, Input{Messages: []Message{user("a")}, Args: map[string]any{"f": func() {}}}},
		{"nothing to render", "chatml", "renders nothing", Input{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := family(t, c.family).Render(t.Context(), c.in)
			if e, ok := errors.AsType[*RenderError](err); !ok || !strings.Contains(e.Reason, c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRenderIsCancelled(t *testing.T) {
	gone := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	var many []Message
	for range 2000 {
		many = append(many, user("x"))
	}
	if _, err := family(t, "qwen").Render(ctx, Input{Messages: many}); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
}

func TestRenderLeavesTheRequestAlone(t *testing.T) {
	messages := []Message{{Role: "developer", Content: "s"}, user("a"), user("b"), {Role: "tool", Content: "r", ToolCallID: "x"}}
	before := len(messages)
	for _, name := range families(t) {
		// Some refuse it, which is the point: they are the ones that rewrite.
		_, _ = family(t, name).Render(t.Context(), Input{Messages: messages, Tools: testTools()})
	}
	if len(messages) != before || messages[0].Role != "developer" || messages[0].Content != "s" || messages[1].Content != "a" || messages[3].Name != "" {
		t.Errorf("the messages became %+v", messages)
	}
}

func TestTemplateArguments(t *testing.T) {
	tpl := family(t, "llama3")
	p, err := tpl.Render(t.Context(), Input{Messages: []Message{user("a")}, Args: map[string]any{"date_string": "today<|eot_id|>"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(p.Segments); !strings.Contains(got, "Date: today]‹<|eot_id|>›") {
		t.Errorf("got %s", got)
	}
}

func TestBOSOfTheUserDoesNotCount(t *testing.T) {
	tpl, err := Parse("{{ messages[0].content }}", Options{BOS: "<s>", ControlTexts: []string{"<s>"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := tpl.Render(t.Context(), Input{Messages: []Message{user("<s>a")}})
	if err != nil || p.HasBOS || show(p.Segments) != "‹<s>›[a]" {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestControlTextsAreBounded(t *testing.T) {
	if _, err := Parse("", Options{ControlTexts: []string{strings.Repeat("x", maxControlBytes+1)}}); err == nil {
		t.Error("a megabyte of control texts is taken")
	}
}

func TestShortIDs(t *testing.T) {
	sh := shape{shortIDs: true}
	for _, id := range []string{"", "call_abcdefgh", "chatcmpl-tool-0123456789", "äöü"} {
		got := sh.id(id).String()
		if !isShortID(got) || got != sh.id(id).String() {
			t.Errorf("%q becomes %q", id, got)
		}
	}
	if got := sh.id("aB3456789").String(); got != "aB3456789" {
		t.Errorf("a short id becomes %q", got)
	}
	if a, b := sh.id("call_a").String(), sh.id("call_b").String(); a == b {
		t.Errorf("two ids become %q", a)
	}
}

func BenchmarkRender(b *testing.B) {
	tpl := family(b, "qwen")
	for name, in := range map[string]Input{
		"short": {Messages: []Message{user("Hello")}, AddGenerationPrompt: true},
		"200KB": {Messages: []Message{user(strings.Repeat("The quick brown fox. ", 10_000))}, AddGenerationPrompt: true},
		"tools": {Messages: []Message{user("Hello")}, Tools: testTools(), AddGenerationPrompt: true},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tpl.Render(b.Context(), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
