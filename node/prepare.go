package node

import (
	"context"
	"math/rand/v2"
	"time"

	"tandem/node/api"
	"tandem/node/chat"
	"tandem/node/engine"
	"tandem/node/grammar"
)

// renderChat turns messages into the tokens of one prompt. Plain segments hold
// text of users that looks like control tokens: they are tokenised as text.
func renderChat(ctx context.Context, vocab engine.Vocab, template *chat.Template, r *api.Request, p *plan) error {
	prompt, err := template.Render(ctx, chat.Input{Messages: r.Messages, Tools: r.Tools, Choice: r.ToolChoice, Args: r.TemplateArgs, Think: r.Think,
		Now: time.Now(), AddGenerationPrompt: true})
	if err != nil {
		return err
	}
	p.thinkOpen, p.warnings = prompt.ThinkOpen, append(p.warnings, prompt.Warnings...)
	var tokens []engine.Token
	if vocab.AddBOS() && !prompt.HasBOS {
		tokens = append(tokens, vocab.BOS())
	}
	for _, s := range prompt.Segments {
		part, err := vocab.Tokenize(s.Text, !s.Plain)
		if err != nil {
			return err
		}
		tokens = append(tokens, part...)
	}
	p.prompts = append(p.prompts, tokens)
	return nil
}

// fieldOf is what the endpoint of a request calls a field.
func fieldOf(r *api.Request, name string) string {
	other := map[string]map[string]string{
		"messages":  {"think": "thinking.type", "response_format": "output_config.format"},
		"responses": {"think": "reasoning.effort", "response_format": "text.format"},
	}[r.Endpoint][name]
	if other != "" {
		return other
	}
	return name
}

// checkModel refuses what a model cannot do at all.
func checkModel(model *reader, r *api.Request) error {
	if model.pooled {
		return api.BadRequest("model", "model %q makes embeddings only; use /v1/embeddings, or another model", r.Model)
	}
	if caps := model.template(r).Capabilities(); r.Messages != nil && r.Think != nil && *r.Think && !caps.Thinking && !caps.Reasoning {
		name, off := fieldOf(r, "think"), "false"
		switch r.Endpoint {
		case "messages":
			off = "disabled, adaptive"
		case "responses":
			off = "none"
		}
		return api.BadRequest(name, "%s: model %q cannot think; allowed: %s", name, r.Model, off)
	}
	return nil
}

// tokenizePrompts takes raw prompts as they are: text with its control tokens,
// after a BOS token where the model wants one, or token ids.
func tokenizePrompts(vocab engine.Vocab, prompts []api.Prompt, p *plan) error {
	for _, prompt := range prompts {
		tokens := prompt.Tokens
		var err error
		switch {
		case tokens != nil:
		case prompt.Suffix != "":
			tokens, err = infill(vocab, prompt)
		default:
			if tokens, err = vocab.Tokenize(prompt.Text, !prompt.Plain); err == nil && vocab.AddBOS() {
				tokens = append([]engine.Token{vocab.BOS()}, tokens...)
			}
		}
		if err != nil {
			return err
		}
		if len(tokens) == 0 {
			return api.BadRequest("prompt", "prompt: it is empty, and this model has no token to begin a text with; allowed: at least one token")
		}
		p.prompts = append(p.prompts, tokens)
	}
	return nil
}

// infill puts prefix and suffix around the place to be filled, if the model has
// been trained for that.
func infill(vocab engine.Vocab, prompt api.Prompt) ([]engine.Token, error) {
	pre, suf, mid, ok := vocab.Infill()
	if !ok {
		return nil, api.BadRequest("suffix", "suffix: this model has no tokens for filling in the middle; allowed: none")
	}
	prefix, err := vocab.Tokenize(prompt.Text, false)
	if err != nil {
		return nil, err
	}
	suffix, err := vocab.Tokenize(prompt.Suffix, false)
	if err != nil {
		return nil, err
	}
	tokens := append([]engine.Token{pre}, prefix...)
	tokens = append(append(tokens, suf), suffix...)
	return append(tokens, mid), nil
}

// constrain turns the wanted format, or the tools, into a grammar.
func constrain(template *chat.Template, r *api.Request, p *plan) error {
	s := &p.sampling
	tools := r.Messages != nil && len(r.Tools) > 0 && r.ToolChoice.Mode != "none"
	var err error
	switch {
	case tools && (r.Format.JSON || r.Format.Schema != nil || r.Format.Grammar != ""):
		name := fieldOf(r, "response_format")
		return api.BadRequest(name, "%s: it cannot be combined with tools; allowed: one of them, or tool_choice none", name)
	case tools:
		s.Grammar, s.Triggers, err = template.ToolGrammar(r.Tools, r.ToolChoice, r.ParallelToolCalls, p.thinkOpen)
	case r.Format.Grammar != "":
		s.Grammar, err = r.Format.Grammar, grammar.Check(r.Format.Grammar)
	case r.Format.Schema != nil || r.Format.JSON:
		s.Grammar, err = jsonGrammar(template, r, p.thinkOpen)
	}
	return err
}

// jsonGrammar is the grammar of an answer in JSON. A chat model may think first.
func jsonGrammar(template *chat.Template, r *api.Request, thinkOpen bool) (string, error) {
	b, prefix := grammar.NewBuilder(), ""
	if r.Messages != nil {
		prefix = template.ReasoningPrefix(b, thinkOpen)
	}
	if r.Format.JSON {
		return b.Grammar(prefix + b.JSONObject())
	}
	rule, err := b.Schema(r.Format.Schema)
	if err != nil {
		return "", err
	}
	return b.Grammar(prefix + rule)
}

// parserOptions is what the parser of answers has to know of a request.
func parserOptions(r *api.Request, p *plan) chat.ParserOptions {
	return chat.ParserOptions{Tools: r.Tools, Choice: r.ToolChoice, Parallel: r.ParallelToolCalls, ThinkOpen: p.thinkOpen, Source: rand.NewPCG(rand.Uint64(), rand.Uint64())}
}
