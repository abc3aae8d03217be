package api

import (
	"context"
	"net/http"
	"unicode/utf8"
)

// TokenizeOptions say how a text becomes tokens.
type TokenizeOptions struct {
	AddSpecial   bool // a token for the beginning goes before it, where the model has one
	ParseSpecial bool // text that spells a control token becomes that token
}

// TextToken is a token of a text. Its piece may be part of a character only.
type TextToken struct {
	ID    int32
	Piece []byte
}

// tokenize serves /tokenize, with the field names of llama.cpp's server and of
// vLLM's, each with its own defaults.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	s.textAnswer(w, r, func(o *object) func(context.Context, string) (any, error) {
		var text string
		a, b := o.text("content", &text, MaxBody), o.text("prompt", &text, MaxBody)
		if a == b {
			o.bad("content", "is required, under this name or as prompt")
		}
		options := TokenizeOptions{AddSpecial: b, ParseSpecial: true}
		o.flag("add_special", &options.AddSpecial)
		o.flag("add_special_tokens", &options.AddSpecial)
		o.flag("parse_special", &options.ParseSpecial)
		pieces := false
		o.flag("with_pieces", &pieces)
		return func(ctx context.Context, model string) (any, error) {
			tokens, err := s.cfg.Generator.Tokenize(ctx, model, text, options)
			return map[string]any{"tokens": tokenList(tokens, pieces), "count": len(tokens)}, err
		}
	})
}

// tokenList is the ids of tokens, or with pieces an object for each. A piece that is no
// text is a list of its bytes.
func tokenList(tokens []TextToken, pieces bool) any {
	ids := make([]int32, len(tokens))
	objects := make([]map[string]any, len(tokens))
	for i, t := range tokens {
		ids[i] = t.ID
		var piece any = string(t.Piece)
		if !utf8.Valid(t.Piece) {
			numbers := make([]int, len(t.Piece))
			for k, b := range t.Piece {
				numbers[k] = int(b)
			}
			piece = numbers
		}
		objects[i] = map[string]any{"id": t.ID, "piece": piece}
	}
	if pieces {
		return objects
	}
	return ids
}

// detokenize serves /detokenize.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	s.textAnswer(w, r, func(o *object) func(context.Context, string) (any, error) {
		var tokens []int32
		switch raw := o.take("tokens"); {
		case raw == nil:
			o.bad("tokens", "is required")
		case raw[0] != '[':
			o.wrong("tokens", raw, "an array of token ids")
		default:
			tokens = o.tokenIDs("tokens", raw)
		}
		return func(ctx context.Context, model string) (any, error) {
			text, err := s.cfg.Generator.Detokenize(ctx, model, tokens)
			return map[string]string{"content": text, "prompt": text}, err
		}
	})
}

// textAnswer reads a body and answers with what comes of it. A request of llama.cpp's
// clients names no model: that server has one.
func (s *Server) textAnswer(w http.ResponseWriter, r *http.Request, decode func(*object) func(context.Context, string) (any, error)) {
	body, err := s.readBody(w, r)
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	o := decodeBody(body)
	model := ""
	if o.find("model") != nil {
		model = o.model("model")
	}
	work := decode(o)
	s.adminAnswer(w, r, o.end(w, nil), func(ctx context.Context) (any, error) {
		if model == "" {
			if model, err = s.defaultModel(ctx); err != nil {
				return nil, err
			}
		}
		return work(ctx, model)
	})
}

// defaultModel is the name of the model that a client without a wish gets.
func (s *Server) defaultModel(ctx context.Context) (string, error) {
	models, err := s.cfg.Library.List(ctx)
	if err != nil {
		return "", err
	}
	for _, m := range models {
		if m.Default {
			return m.Name, nil
		}
	}
	return "", BadRequest("model", "model: is missing, and this node has no default model yet; /v1/models lists those there are")
}

// props serves GET /props?model= with what clients of llama.cpp's server look for.
func (s *Server) props(w http.ResponseWriter, r *http.Request) {
	name, err := r.URL.Query().Get("model"), error(nil)
	if name != "" && !validModelName(name) {
		err = BadRequest("model", "model: %q is not a name that a model can have", clip(name, 100))
	}
	s.adminAnswer(w, r, err, func(ctx context.Context) (any, error) {
		if name == "" {
			if name, err = s.defaultModel(ctx); err != nil {
				return nil, err
			}
		}
		m, err := s.cfg.Library.Show(ctx, name)
		if err != nil {
			return nil, err
		}
		d := openAIDefaults()
		return map[string]any{
			"model_alias": m.Name, "model_path": m.Name, // no path of this machine is told
			"chat_template": m.Template, "total_slots": s.cfg.Slots, "build_info": "tandem " + s.cfg.Version, "is_sleeping": !m.Loaded,
			"modalities": map[string]bool{"vision": false, "audio": false},
			"default_generation_settings": map[string]any{"n_ctx": m.ContextLength, "params": map[string]any{
				"temperature": d.Temperature, "top_k": d.TopK, "top_p": d.TopP, "min_p": d.MinP, "typical_p": d.TypicalP,
				"repeat_penalty": d.RepeatPenalty, "repeat_last_n": d.RepeatLastN, "presence_penalty": d.PresencePenalty, "frequency_penalty": d.FrequencyPenalty,
				"mirostat": d.Mirostat, "mirostat_tau": d.MirostatTau, "mirostat_eta": d.MirostatEta, "n_predict": -1, "stream": false,
			}},
		}, nil
	})
}
