package chat

import (
	"context"
	"strings"
	"time"

	"tandem/node/chat/jinja"
)

// Input is a conversation to render.
type Input struct {
	Messages            []Message
	Tools               []Tool
	Choice              ToolChoice     // with Mode "none" the tools are left out
	Args                map[string]any // further variables; their values are JSON values and foreign
	Think               *bool          // nil: the template decides
	Now                 time.Time
	AddGenerationPrompt bool
}

// Prompt is a rendered conversation.
type Prompt struct {
	Segments  []Segment
	HasBOS    bool     // it begins with the BOS text: the tokeniser must not add the token again
	ThinkOpen bool     // it ends inside thoughts, so the answer begins there
	Warnings  []string // what was changed to fit the template
}

// Text joins the segments.
func (p Prompt) Text() string {
	var b strings.Builder
	for _, s := range p.Segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// Render turns a conversation into a prompt. Its errors are *RenderError, or the
// cause of ctx.
func (t *Template) Render(ctx context.Context, in Input) (Prompt, error) {
	if in.Choice.Mode == "none" {
		in.Tools = nil
	}
	c := newConversation(in.Messages)
	tools, err := t.fit(c, in.Tools)
	if err != nil {
		return Prompt{}, err
	}
	run := func() (jinja.Text, error) {
		v := variables{c.messages, tools, in.Args, in.Think, in.AddGenerationPrompt}
		return t.execute(ctx, v, jinja.Options{Now: in.Now})
	}
	text, err := run()
	if failed(err) || err == nil && c.missing(text.String()) {
		// A template that wants strict turns refuses others, trips over them, or
		// leaves them out.
		if c.alternate() {
			text, err = run()
		}
	}
	if err != nil {
		return Prompt{}, renderError(err)
	}
	if c.missing(text.String()) {
		c.warn("the model's template leaves out some of the messages")
	}
	if text.String() == "" {
		return Prompt{}, refusef("the model's chat template renders nothing for this conversation")
	}
	return t.prompt(text, in.AddGenerationPrompt, c.warnings), nil
}

// fit changes a conversation to what the template supports, and returns the
// tools that are left for it to show.
func (t *Template) fit(c *conversation, tools []Tool) ([]Tool, error) {
	switch {
	case t.caps.Tools && !t.caps.Parallel:
		c.splitCalls()
	case !t.caps.Tools:
		if err := c.plainCalls(); err != nil {
			return nil, err
		}
		if len(tools) > 0 {
			if err := c.tellTools(tools); err != nil {
				return nil, err
			}
			tools = nil
		}
	}
	if !t.caps.System {
		c.foldSystem()
	}
	return tools, nil
}

func (t *Template) prompt(text jinja.Text, generate bool, warnings []string) Prompt {
	p := Prompt{Segments: t.controls.segments(text), Warnings: warnings}
	p.ThinkOpen = generate && t.tags.opened(text)
	if bos := t.opts.BOS; bos != "" && strings.HasPrefix(text.String(), bos) {
		spans := text.ForeignSpans()
		p.HasBOS = len(spans) == 0 || spans[0].Start >= len(bos)
	}
	return p
}
