package chat

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tandem/node/chat/jinja"
)

// maxControlBytes bounds the control texts of a vocabulary; the largest known
// ones have a thousand texts of some 30 bytes.
const maxControlBytes = 1 << 20

// Options describe the vocabulary that a template is for.
type Options struct {
	BOS, EOS     string   // what bos_token and eos_token stand for
	ControlTexts []string // the texts of all control tokens
}

// Template renders conversations for one model and understands its answers. It
// is immutable.
type Template struct {
	tpl      *jinja.Template
	opts     Options
	controls *matcher
	tags     reasoningTags
	channels bool // answers are made of messages, as those of gpt-oss
	format   toolFormat
	shape    shape
	caps     Capabilities
}

// Capabilities are what a template was found to support.
type Capabilities struct {
	Fallback   string // "" if the model has a template; else what is used instead: chatml or plain
	System     bool   // system messages are shown; else they go into the first user message
	Tools      bool   // tools and calls are shown in the model's own format
	Parallel   bool   // one answer may hold several calls
	ToolFormat string // hermes, llama3, mistral, mistral-args, harmony or generic
	Thinking   bool   // enable_thinking makes a difference
	Reasoning  bool   // the template knows reasoning tags
	StopTexts  []string
}

// shape is how a template wants its input.
type shape struct {
	bare          bool // tools that are not given are undefined, not none
	parts         bool // content as a list of parts
	noneContent   bool // calls are shown only if content is none
	textArguments bool // arguments as JSON text, not as a mapping
	shortIDs      bool // call ids of nine letters and digits
	thinking      bool // thoughts are called thinking, and stand for content beside calls
}

// Parse reads a model's chat template; an empty source selects a fallback by
// vocabulary. It fails if the source is not a template, or if it exceeds its
// limits even on a conversation of one message.
func Parse(source string, o Options) (*Template, error) {
	size := 0
	for _, text := range o.ControlTexts {
		size += len(text)
	}
	if size > maxControlBytes {
		return nil, fmt.Errorf("the control tokens have %d bytes of text; at most %d are allowed", size, maxControlBytes)
	}
	t := &Template{opts: o, controls: newMatcher(o.ControlTexts)}
	if strings.TrimSpace(source) == "" {
		source = t.fallback()
	}
	var err error
	if t.tpl, err = jinja.Parse(source); err != nil {
		return nil, err
	}
	t.tags, t.caps.Reasoning = tagsOf(source)
	if strings.Contains(source, analysis) && strings.Contains(source, final) {
		t.channels, t.caps.Reasoning = true, true
		t.shape.thinking = true
	}
	return t, t.probe()
}

// The templates for models without one. The plain one is for models that were
// never trained on conversations.
const (
	chatML = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}" +
		"{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
	plainLines = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}" +
		"{% if add_generation_prompt %}assistant:{% endif %}"
)

func (t *Template) fallback() string {
	for _, text := range t.opts.ControlTexts {
		if text == "<|im_start|>" {
			t.caps.Fallback = "chatml"
			return chatML
		}
	}
	t.caps.Fallback = "plain"
	t.caps.StopTexts = []string{"\nuser:", "\nsystem:"}
	return plainLines
}

// Capabilities tells what the template supports.
func (t *Template) Capabilities() Capabilities { return t.caps }

// Markers are the control texts that the parser of answers must see as text,
// although other control tokens give none.
func (t *Template) Markers() []string {
	wanted := map[string]bool{t.tags.open: true, t.tags.end: true}
	markers := t.format.markers()
	if t.channels {
		markers = append(markers, harmonyFormat{}.markers()...)
	}
	for _, m := range markers {
		wanted[m] = true
	}
	var out []string
	for _, text := range t.opts.ControlTexts {
		if wanted[text] {
			out = append(out, text)
		}
	}
	return out
}

// RenderError is a conversation that the template refuses or fails on, or a
// template that exceeds its limits on it.
type RenderError struct {
	Reason string // a sentence for the client; the template's own words where it has some
	cause  error
}

func (e *RenderError) Error() string { return e.Reason }

// Unwrap returns the *jinja.Error, if there is one.
func (e *RenderError) Unwrap() error { return e.cause }

func refusef(format string, args ...any) *RenderError {
	return &RenderError{Reason: fmt.Sprintf(format, args...)}
}

// renderError turns the failure of a render into a *RenderError; the cause of a
// context stays as it is.
func renderError(err error) error {
	e, ok := errors.AsType[*jinja.Error](err)
	if !ok {
		return err
	}
	reason := e.Error()
	if e.Kind == jinja.Raised {
		reason = "the model's chat template refuses this conversation: " + e.Reason
	}
	return &RenderError{Reason: reason, cause: err}
}

// failed tells failures that another shape of the conversation may avoid.
func failed(err error) bool {
	e, ok := errors.AsType[*jinja.Error](err)
	return ok && (e.Kind == jinja.Raised || e.Kind == jinja.Runtime)
}

// execute runs the template.
func (t *Template) execute(ctx context.Context, v variables, o jinja.Options) (jinja.Text, error) {
	vars, err := t.shape.values(v)
	if err != nil {
		return jinja.Text{}, err
	}
	vars["bos_token"], vars["eos_token"] = jinja.Own(t.opts.BOS), jinja.Own(t.opts.EOS)
	return t.tpl.Render(ctx, vars, o)
}
