package api

import "net/http"

// tokenize serves /tokenize, with the field names of llama.cpp's server and of
// vLLM's. The model must be named: a node has several.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.readBody(w, r)
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	o := decodeBody(body)
	model := o.model("model")
	var text string
	var special bool
	if a, b := o.text("content", &text, MaxBody), o.text("prompt", &text, MaxBody); a == b {
		o.bad("content", "is required, under this name or as prompt")
	}
	o.flag("add_special", &special)
	o.flag("add_special_tokens", &special)
	o.unsupported("with_pieces", "is not supported", "false")
	o.rest()
	setWarning(w, o.unknown, nil)
	if err = o.err; err == nil {
		var tokens []int32
		tokens, err = s.cfg.Generator.Tokenize(r.Context(), model, text, special)
		if err == nil {
			armWrite(w, s.cfg.WriteTimeout)
			writeJSON(w, http.StatusOK, map[string]any{"tokens": append([]int32{}, tokens...), "count": len(tokens)})
			return
		}
	}
	refuseOpenAI(w, s.explain(w, err))
}

// detokenize serves /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, err := s.readBody(w, r)
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	o := decodeBody(body)
	model := o.model("model")
	var tokens []int32
	switch raw := o.take("tokens"); {
	case raw == nil:
		o.bad("tokens", "is required")
	case raw[0] != '[':
		o.wrong("tokens", raw, "an array of token ids")
	default:
		tokens = o.tokenIDs("tokens", raw)
	}
	o.rest()
	setWarning(w, o.unknown, nil)
	if err = o.err; err == nil {
		var text string
		text, err = s.cfg.Generator.Detokenize(r.Context(), model, tokens)
		if err == nil {
			armWrite(w, s.cfg.WriteTimeout)
			writeJSON(w, http.StatusOK, map[string]string{"content": text, "prompt": text})
			return
		}
	}
	refuseOpenAI(w, s.explain(w, err))
}
