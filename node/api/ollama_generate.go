package api

import (
	"tandem/node/chat"
)

// ollamaGenerate is POST /api/generate.
var ollamaGenerate = dialect{
	endpoint: "ollama_generate", idPrefix: "gen-", decode: decodeOllamaGenerate, refuse: refuseOllama,
	media: "application/x-ndjson", stream: newOllamaGenerateStream, whole: wholeOllamaGenerate,
}

func decodeOllamaGenerate(body []byte) (*call, error) {
	o := decodeBody(body)
	c := &call{}
	c.Model = o.ollamaModel()
	o.ollamaPrompt(c)
	o.ollamaCommon(c)
	o.unsupported("images", "images are not supported", "[]")
	o.unsupported("context", "is not supported; send the conversation to /api/chat instead", "[]")
	for _, name := range []string{"width", "height", "steps"} {
		o.unsupported(name, "making images is not supported", "0")
	}
	o.rest()
	c.warnings = o.unknown
	return c, o.err
}

// ollamaPrompt makes a conversation of the prompt, or with raw or a suffix a prompt
// without a template. Without any prompt the request only loads the model.
func (o *object) ollamaPrompt(c *call) {
	var prompt, suffix, system string
	var raw bool
	o.text("prompt", &prompt, MaxBody)
	o.text("suffix", &suffix, MaxBody)
	o.text("system", &system, MaxBody)
	o.flag("raw", &raw)
	if system != "" && (raw || suffix != "") {
		o.bad("system", "cannot be combined with raw or suffix, which use no template")
	}
	switch {
	case prompt == "" && suffix == "":
		c.LoadOnly = true
	case raw || suffix != "":
		c.Prompts = []Prompt{{Text: prompt, Suffix: suffix, Plain: suffix != ""}}
	default:
		if system != "" {
			c.Messages = append(c.Messages, chat.Message{Role: "system", Content: system})
		}
		c.Messages = append(c.Messages, chat.Message{Role: "user", Content: prompt})
	}
}
