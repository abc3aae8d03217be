package api

import "net/http"

// count serves a route that tells how many tokens the prompt of a request of a dialect
// has.
func (s *Server) count(d *dialect, decode func([]byte) (*call, error), shape func(tokens int) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tokens, err := s.countBody(w, r, d, decode)
		armWrite(w, s.cfg.WriteTimeout)
		if err != nil {
			if e := s.explain(w, err); e.Status != statusClientGone {
				d.refuse(w, e)
			}
			return
		}
		writeJSON(w, http.StatusOK, shape(tokens))
	}
}

func (s *Server) countBody(w http.ResponseWriter, r *http.Request, d *dialect, decode func([]byte) (*call, error)) (int, error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return 0, err
	}
	c, err := decode(body)
	setWarning(w, c.warnings, nil)
	if err != nil {
		return 0, err
	}
	c.ID, c.Endpoint, c.Tenant = w.Header().Get(requestID), d.endpoint, tenantOf(r.Context())
	return s.cfg.Generator.Count(r.Context(), &c.Request)
}

func messageTokens(n int) any { return map[string]int{"input_tokens": n} }

func responseTokens(n int) any {
	return map[string]any{"object": "response.input_tokens", "input_tokens": n}
}
