package chat

import (
	"context"
	"errors"
	"strings"
	"time"

	"tandem/node/chat/jinja"
)

// probeLimits bound one probe. A conversation of three messages costs known
// templates at most 10,000 steps; some twenty probes of a hostile template must
// not hold up the loading of a model.
func probeLimits() jinja.Limits {
	l := jinja.DefaultLimits()
	l.Steps /= 20
	l.Bytes /= 8
	return l
}

// What the probes are made of: words that no template says by itself.
const (
	probeUser    = "tdmQuestion"
	probeSystem  = "tdmSystem"
	probeTool    = "tdmTool"
	probeAbout   = "tdmAbout"
	probeKey     = "tdmKey"
	probeValue   = "tdmValue"
	probeResult  = "tdmResult"
	probeOther   = "tdmOther"
	probeID      = "call_tdm0001"
	probeOtherID = "call_tdm0002"
)

// probe finds out what a template supports by rendering small conversations.
func (t *Template) probe() error {
	t.format = genericFormat{}
	t.caps.ToolFormat, t.caps.Parallel = t.format.name(), true
	if err := t.probeContent(); err != nil {
		return err
	}
	out, _ := t.try(variables{messages: []Message{{Role: "system", Content: probeSystem}, user(probeUser)}})
	t.caps.System = strings.Contains(out, probeSystem)
	t.probeThinking()
	t.probeTools()
	return nil
}

// probeContent finds a shape in which the template shows what a user says. There
// may be none: some templates insist on more than a user's message.
func (t *Template) probeContent() error {
	usual := t.shape
	for i := range 4 {
		t.shape.bare, t.shape.parts = i&1 != 0, i&2 != 0
		out, err := t.try(variables{messages: []Message{user(probeUser)}})
		if exceeded(err) {
			return err
		}
		if strings.Contains(out, probeUser) {
			return nil
		}
	}
	t.shape = usual
	return nil
}

func user(content string) Message { return Message{Role: "user", Content: content} }

func exceeded(err error) bool {
	e, ok := errors.AsType[*jinja.Error](err)
	return ok && e.Kind == jinja.Exhausted
}

// try renders a probe; nothing if that fails.
func (t *Template) try(v variables) (string, error) {
	v.generate = true
	out, err := t.execute(context.Background(), v, jinja.Options{Now: time.Unix(0, 0).UTC(), Limits: probeLimits()})
	return out.String(), err
}

func (t *Template) probeThinking() {
	render := func(think bool) string {
		out, _ := t.try(variables{messages: []Message{user(probeUser)}, think: &think})
		return out
	}
	t.caps.Thinking = render(true) != render(false)
}

// probeTools looks for tools, calls and results in what the template renders,
// and for the format that it writes calls in. Whatever is missing, the generic
// format stays.
func (t *Template) probeTools() {
	tools := []Tool{{Name: probeTool, Description: probeAbout, Parameters: []byte(`{"type":"object","properties":{"` + probeKey + `":{"type":"string"}}}`)}}
	listed, _ := t.try(variables{messages: []Message{user(probeUser)}, tools: tools})
	if !strings.Contains(listed, probeTool) || !strings.Contains(listed, probeKey) {
		return
	}
	format, sh, ok := t.probeCalls(tools)
	if !ok {
		return
	}
	t.format, t.shape = format, sh
	t.caps.Tools, t.caps.ToolFormat = true, format.name()
	both := variables{messages: []Message{user(probeUser), callMessage(probeTool, probeOther), resultMessage(probeTool, probeID), resultMessage(probeOther, probeOtherID)}, tools: tools}
	out, _ := t.try(both)
	t.caps.Parallel = strings.Contains(out, probeOther)
}

func callMessage(names ...string) Message {
	m := Message{Role: "assistant"}
	for i, name := range names {
		id := []string{probeID, probeOtherID}[i]
		m.ToolCalls = append(m.ToolCalls, ToolCall{ID: id, Name: name, Arguments: `{"` + probeKey + `": "` + probeValue + `"}`})
	}
	return m
}

func resultMessage(name, id string) Message {
	return Message{Role: "tool", Name: name, ToolCallID: id, Content: probeResult}
}

// probeCalls tries the shapes that calls may want until one gives a call with
// proper JSON in a known format, and its result.
func (t *Template) probeCalls(tools []Tool) (toolFormat, shape, bool) {
	v := variables{messages: []Message{user(probeUser), callMessage(probeTool), resultMessage(probeTool, probeID)}}
	for _, sh := range shapes(t.shape) {
		at := *t
		at.shape = sh
		// First without tools: instructions may hold examples of calls.
		v.tools = nil
		out, _ := at.try(v)
		if !strings.Contains(out, probeTool) {
			v.tools = tools
			out, _ = at.try(v)
		}
		if !strings.Contains(out, probeTool) || !strings.Contains(out, probeResult) {
			continue
		}
		if format := formatOf(out); format != nil {
			return format, sh, true
		}
	}
	return nil, shape{}, false
}

// shapes lists the shapes to try, the usual one first.
func shapes(base shape) []shape {
	var out []shape
	for i := range 8 {
		sh := base
		sh.shortIDs, sh.noneContent, sh.textArguments = i&1 != 0, i&2 != 0, i&4 != 0
		out = append(out, sh)
	}
	return out
}
