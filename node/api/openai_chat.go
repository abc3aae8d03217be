package api

import (
	"slices"
	"strconv"
	"strings"
)

// call is a decoded request, and how its client wants the answer.
type call struct {
	Request
	stream       bool
	includeUsage bool     // a last chunk with the usage
	answers      int      // choices per prompt in the answer; N, unless the best of N are picked
	logprobs     bool     // the client wants them; picking the best needs them, too
	echo         []string // texts to repeat before the answers, one per prompt; nil: none
	warnings     []string // names of unknown fields
	notes        []string // what else its client should know
	fingerprint  string   // of this server, as OpenAI's answers have one
	responses    *responseEcho
}

// openAIChat is POST /v1/chat/completions.
var openAIChat = dialect{
	endpoint: "chat", idPrefix: "chatcmpl-", decode: decodeChat, refuse: refuseOpenAI,
	media: "text/event-stream", comments: true, stream: newChatStream, whole: wholeChat,
}

func decodeChat(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	c.Model = o.model("model")
	c.Messages = o.messages()
	c.Tools = o.tools()
	c.ToolChoice = o.toolChoice(c.Tools)
	c.ParallelToolCalls = o.parallelCalls(c.ToolChoice)
	c.Sampling = openAIDefaults()
	o.sampling(&c.Sampling)
	o.chatLogprobs(&c.Sampling)
	c.logprobs = c.Sampling.TopLogprobs >= 0
	o.openAICommon(c)
	o.maxTokens(c, "max_completion_tokens")
	c.Format = o.responseFormat()
	o.thinking(c)
	o.refuseChatFields()
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// openAICommon reads what chat and completions share.
func (o *object) openAICommon(c *call) {
	c.N = 1
	o.integer("n", &c.N, 1, MaxChoices)
	c.answers = c.N
	o.flag("stream", &c.stream)
	if options := o.child("stream_options"); options != nil {
		if !c.stream {
			o.bad("stream_options", "needs stream: true")
		}
		options.flag("include_usage", &c.includeUsage)
		options.unsupported("include_obfuscation", "is not supported", "false")
		options.rest()
	}
	c.Stop = o.stops("stop")
	c.Sampling.Seed = o.seed("seed")
	c.KeepAlive = o.keepAlive()
	var user string
	for _, name := range []string{"user", "safety_identifier", "prompt_cache_key"} {
		o.text(name, &user, MaxIdentifier)
	}
	o.unsupported("cache_salt", "is not accepted: the server derives it from the API key")
}

// maxTokens reads max_tokens and its other name. -1, which several clients of
// local servers send, asks for as many as fit.
func (o *object) maxTokens(c *call, names ...string) {
	set := ""
	for _, name := range append([]string{"max_tokens"}, names...) {
		var n int
		if !o.integer(name, &n, -1, MaxTokens) {
			continue
		}
		if n == 0 {
			o.bad(name, "0 is out of range, it must be from 1 to %d, or -1 for as many as fit", MaxTokens)
		}
		n = max(n, 0)
		if set != "" && c.MaxTokens != n {
			o.bad(name, "contradicts %s; give one of them", set)
		}
		c.MaxTokens, set = n, name
	}
}

// efforts are OpenAI's levels of reasoning_effort above none.
var efforts = []string{"minimal", "low", "medium", "high", "xhigh", "max"}

// thinking reads the fields that say whether the model thinks first. The level
// reaches templates that know levels.
func (o *object) thinking(c *call) {
	c.TemplateArgs = o.templateArgs()
	if on, ok := c.TemplateArgs["enable_thinking"].(bool); ok {
		c.Think = &on
	}
	o.think(c)
	var effort string
	if !o.oneOf("reasoning_effort", &effort, append([]string{"none"}, efforts...)...) {
		return
	}
	on := effort != "none"
	if c.Think != nil && *c.Think != on {
		o.bad("reasoning_effort", "%q contradicts the other field that turns thinking on or off", effort)
	}
	c.setEffort(effort, on)
}

// think reads Ollama's field: true, false or a level.
func (o *object) think(c *call) {
	raw := o.take("think")
	switch {
	case raw == nil:
	case raw[0] == 't' || raw[0] == 'f':
		on := raw[0] == 't'
		c.Think = &on
	case raw[0] == '"' && slices.Contains(efforts, unquote(raw)):
		c.setEffort(unquote(raw), true)
	default:
		o.bad("think", "%s must be true, false or one of %s", show(raw), anyOf(efforts))
	}
}

func (c *call) setEffort(effort string, on bool) {
	c.Think = &on
	if !on {
		return
	}
	if c.TemplateArgs == nil {
		c.TemplateArgs = map[string]any{}
	}
	if _, given := c.TemplateArgs["reasoning_effort"]; !given {
		c.TemplateArgs["reasoning_effort"] = effort
	}
}

// reservedArgs are names that the server itself gives to a template. A client that
// could set them could forge roles or control tokens.
var reservedArgs = []string{"chat_template", "messages", "tools", "documents", "functions", "bos_token", "eos_token",
	"unk_token", "pad_token", "add_generation_prompt", "raise_exception", "strftime_now", "tokenize", "namespace", "range"}

// templateArgs reads chat_template_kwargs: named scalars. Text may hold what
// levels, dates and languages need, and nothing that spells a control token.
func (o *object) templateArgs() map[string]any {
	o.unsupported("chat_template", "a template from a request is not accepted; the model's own is used")
	args := o.child("chat_template_kwargs")
	if args == nil {
		return nil
	}
	if len(args.members) > MaxTemplateArgs {
		o.bad("chat_template_kwargs", "has more than %d fields", MaxTemplateArgs)
	}
	values := map[string]any{}
	for _, m := range args.members {
		if !validArgName(m.name) || slices.Contains(reservedArgs, m.name) {
			args.bad(clip(m.name, 64), "cannot be set by a request")
			return nil
		}
		values[m.name] = args.templateArg(m.name)
	}
	return values
}

func validArgName(name string) bool {
	return len(name) <= 64 && validToolName(name) && !strings.Contains(name, "-") && (name[0] < '0' || name[0] > '9')
}

func (o *object) templateArg(name string) any {
	raw := o.take(name)
	if raw == nil {
		return nil
	}
	switch raw[0] {
	case 't', 'f':
		return raw[0] == 't'
	case '"':
		var s string
		if o.text(name, &s, MaxTemplateArg) && !plainText(s) {
			o.bad(name, "%s may hold letters, digits, blanks and . , : / + - _ only", strconv.Quote(clip(s, 40)))
		}
		return s
	case '{', '[':
		o.wrong(name, raw, "a string, a number, true, false or null")
		return nil
	}
	return o.templateNumber(name, raw)
}

// templateNumber keeps whole numbers whole: templates print them.
func (o *object) templateNumber(name string, raw []byte) any {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n
	}
	var v float64
	o.number(name, &v, span{Low: -1e15, High: 1e15})
	return v
}

func plainText(s string) bool {
	for _, c := range []byte(s) {
		if !isAlnum(c) && !strings.ContainsRune(" .,:/+-_", rune(c)) {
			return false
		}
	}
	return true
}

// refuseChatFields meets the documented fields that a node of text models cannot
// honour.
func (o *object) refuseChatFields() {
	o.unsupported("audio", "audio is not supported")
	o.modalities()
	o.unsupported("prediction", "predicted outputs are not supported")
	o.unsupported("web_search_options", "web search is not supported")
	o.unsupported("functions", "is not supported any more; use tools")
	o.unsupported("function_call", "is not supported any more; use tool_choice")
	o.unsupported("store", "answers are not stored; leave it out or send false", "false")
	o.unsupported("moderation", "moderation is not supported")
	o.unsupported("verbosity", "only medium is supported; ask for short or long answers in the prompt", `"medium"`)
	o.unsupported("service_tier", "only auto and default are supported", `"auto"`, `"default"`)
	o.unsupported("prompt_cache_retention", `only "in_memory" is supported`, `"in_memory"`, `"in-memory"`)
	o.cacheOptions()
	o.metadata()
}

func (o *object) cacheOptions() {
	if cache := o.child("prompt_cache_options"); cache != nil {
		cache.unsupported("mode", "only implicit is supported: every prefix is cached", `"implicit"`)
		cache.unsupported("ttl", "is not supported: what is cached stays while there is room")
		cache.rest()
	}
}

func (o *object) modalities() {
	list, _ := o.list("modalities", MaxParts)
	for i, m := range list {
		if string(m) != `"text"` {
			o.bad(at("modalities", i), `%s is not supported; only "text" is`, show(m))
		}
	}
}

// metadata is checked and has no effect: OpenAI keeps it with stored answers.
func (o *object) metadata() {
	pairs := o.child("metadata")
	if pairs == nil {
		return
	}
	if len(pairs.members) > MaxMetadata {
		o.bad("metadata", "has more than %d pairs", MaxMetadata)
	}
	for _, m := range pairs.members {
		var value string
		if raw := pairs.take(m.name); raw != nil && raw[0] != '"' {
			pairs.wrong(clip(m.name, 64), raw, "a string")
		}
		pairs.text(m.name, &value, MaxIdentifier)
	}
}
