package api

import "slices"

// openAICompletions is POST /v1/completions.
var openAICompletions = dialect{
	endpoint: "completions", idPrefix: "cmpl-", decode: decodeCompletions, refuse: refuseOpenAI,
	media: "text/event-stream", comments: true, stream: newCompletionsStream, whole: wholeCompletions,
}

// completionTokens is the documented default of max_tokens.
const completionTokens = 16

func decodeCompletions(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	c.Model = o.model("model")
	c.Sampling = openAIDefaults()
	o.sampling(&c.Sampling)
	if o.integer("logprobs", &c.Sampling.TopLogprobs, 0, MaxTopLogprobs) {
		c.logprobs = true
	}
	o.openAICommon(c)
	c.MaxTokens = completionTokens
	o.maxTokens(c)
	o.bestOf(c)
	o.prompts(c)
	o.echo(c)
	c.Format = o.responseFormat()
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// prompts reads a text, several, the token ids of one, or of several.
func (o *object) prompts(c *call) {
	var suffix string
	o.text("suffix", &suffix, MaxBody)
	c.Prompts = o.inputs("prompt", MaxSequences, suffix != "")
	for i := range c.Prompts {
		p := &c.Prompts[i]
		p.Suffix, p.Plain = suffix, suffix != ""
		if suffix != "" && p.Tokens != nil {
			o.bad("suffix", "needs a prompt that is text")
		}
	}
	if n := len(c.Prompts) * max(c.N, 1); n > MaxSequences {
		o.bad("prompt", "%d prompts with %d choices each are %d answers, at most %d are allowed", len(c.Prompts), c.N, n, MaxSequences)
	}
}

// inputs reads a field that holds one text or several, as strings or token ids.
func (o *object) inputs(name string, limit int, emptyAllowed bool) []Prompt {
	raw := o.take(name)
	if raw == nil {
		o.bad(name, "is required")
		return nil
	}
	if raw[0] == '"' {
		return []Prompt{o.input(name, raw, emptyAllowed)}
	}
	if raw[0] != '[' {
		o.wrong(name, raw, "a string, or an array of strings or token ids")
		return nil
	}
	if first := raw[nextItem(raw, 1)]; first == '-' || '0' <= first && first <= '9' {
		return []Prompt{o.input(name, raw, emptyAllowed)}
	}
	list, _ := o.list(name, limit)
	if len(list) == 0 {
		o.bad(name, "must not be empty")
	}
	inputs := make([]Prompt, 0, len(list))
	for i, e := range list {
		inputs = append(inputs, o.input(at(name, i), e, emptyAllowed))
	}
	return inputs
}

func (o *object) input(name string, raw []byte, emptyAllowed bool) Prompt {
	switch raw[0] {
	case '"':
		p := Prompt{Text: unquote(raw)}
		if p.Text == "" && !emptyAllowed {
			o.bad(name, "must not be empty")
		}
		return p
	case '[':
		return Prompt{Tokens: o.tokenIDs(name, raw)}
	}
	o.wrong(name, raw, "a string or an array of token ids")
	return Prompt{}
}

// tokenIDs reads the ids of a prompt; whether the vocabulary has them is for the
// model to say.
func (o *object) tokenIDs(name string, raw []byte) []int32 {
	ids := []int32{}
	for i, e := range elements(raw) {
		v, ok := parseNumber(e)
		if !ok || v != float64(int32(v)) || v < 0 {
			o.bad(at(name, i), "%s is not a token id", show(e))
			return ids
		}
		if i == MaxPromptTokens {
			o.bad(name, "has more than %d tokens", MaxPromptTokens)
			return ids
		}
		ids = append(ids, int32(v))
	}
	if len(ids) == 0 {
		o.bad(name, "must not be empty")
	}
	return ids
}

// bestOf reads how many answers are made of which the n best are returned.
func (o *object) bestOf(c *call) {
	best := c.N
	if !o.integer("best_of", &best, 1, MaxChoices) || best == c.N {
		return
	}
	switch {
	case best < c.N:
		o.bad("best_of", "%d is less than n: %d", best, c.N)
	case c.stream:
		o.bad("best_of", "%d cannot be streamed: which answers are the best is known at the end", best)
	}
	c.N = best
	c.Sampling.TopLogprobs = max(c.Sampling.TopLogprobs, 0)
}

// echo reads whether the prompt is repeated before the answer. Texts of prompts
// that came as token ids are filled in later: they need the vocabulary.
func (o *object) echo(c *call) {
	var on bool
	if o.flag("echo", &on); !on {
		return
	}
	if c.logprobs {
		o.bad("echo", "cannot be combined with logprobs: those of prompt tokens are not computed")
	}
	if slices.ContainsFunc(c.Prompts, func(p Prompt) bool { return p.Suffix != "" }) {
		o.bad("echo", "cannot be combined with suffix")
	}
	c.echo = make([]string, len(c.Prompts))
	for i, p := range c.Prompts {
		c.echo[i] = p.Text
	}
}
