package api

import "tandem/node/chat"

// ollamaChat is POST /api/chat.
var ollamaChat = dialect{
	endpoint: "ollama_chat", idPrefix: "chat-", decode: decodeOllamaChat, refuse: refuseOllama,
	media: "application/x-ndjson", stream: newOllamaChatStream, whole: wholeOllamaChat,
}

func decodeOllamaChat(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	c.Model = o.ollamaModel()
	c.Messages = o.ollamaMessages()
	c.LoadOnly = len(c.Messages) == 0
	c.Tools = o.tools()
	c.ToolChoice = chat.ToolChoice{Mode: "none"}
	if len(c.Tools) > 0 {
		c.ToolChoice.Mode = "auto"
	}
	c.ParallelToolCalls = true
	o.ollamaCommon(c)
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// ollamaCommon reads what /api/chat and /api/generate share.
func (o *object) ollamaCommon(c *call) {
	c.N, c.answers = 1, 1
	c.stream = true
	o.flag("stream", &c.stream)
	c.stream = c.stream && !c.LoadOnly
	c.Sampling = ollamaDefaults()
	o.ollamaOptions(c)
	o.chatLogprobs(&c.Sampling)
	c.logprobs = c.Sampling.TopLogprobs >= 0
	c.Format = o.ollamaFormat()
	c.KeepAlive = o.keepAlive()
	o.think(c)
	o.flag("truncate", &c.Truncate)
	o.unsupported("shift", "the context is never shifted; an answer ends when it is full", "false")
	o.unsupported("template", "a template from a request is not accepted; the model's own is used", `""`)
	o.unsupported("_debug_render_only", "is not supported", "false")
	o.unsupported("cache_salt", "is not accepted: the server derives it from the API key")
}

// ollamaOptions reads the options object. Those that Ollama applies when it loads a
// model are set for the whole node here.
func (o *object) ollamaOptions(c *call) {
	options := o.child("options")
	if options == nil {
		return
	}
	options.sampling(&c.Sampling)
	options.ollamaSeed(&c.Sampling)
	c.Stop = options.stops("stop")
	if n := -1; options.integer("num_predict", &n, -2, MaxTokens) {
		c.MaxTokens = max(n, 0) // all of -2, -1 and 0 mean: until the context is full
	}
	options.integer("num_ctx", &c.Context, 0, MaxTokens)
	keep := 0 // of a context that is shifted, which never happens
	options.integer("num_keep", &keep, -1, MaxTokens)

	const load = "is set for the whole node, when it starts; leave it out"
	options.unsupported("num_batch", load)
	options.unsupported("num_gpu", load, "-1")
	options.unsupported("main_gpu", load, "0")
	options.unsupported("num_thread", load, "0")
	options.unsupported("numa", load, "false")
	options.unsupported("use_mmap", load, "true")
	options.unsupported("use_mlock", load, "false")
	options.unsupported("low_vram", load, "false")
	options.unsupported("vocab_only", load, "false")
	options.unsupported("f16_kv", load, "true")
	options.unsupported("embedding_only", load, "false")
	options.unsupported("logits_all", load, "false")
	options.unsupported("penalize_newline", "false is not supported", "true")
	options.unsupported("tfs_z", "tail-free sampling is not supported; use min_p", "1", "1.0")
	options.rest()
}

// ollamaSeed reads a seed of which negative ones mean: any.
func (o *object) ollamaSeed(s *Sampling) {
	if s.Seed = o.seed("seed"); s.Seed != nil && int64(*s.Seed) < 0 {
		s.Seed = nil
	}
}
