package api

import (
	"fmt"
	"maps"
	"net/http"
	"time"
)

type ollamaDetails struct {
	ParentModel       string   `json:"parent_model"`
	Format            string   `json:"format"`
	Family            string   `json:"family"`
	Families          []string `json:"families"`
	ParameterSize     string   `json:"parameter_size"`
	QuantizationLevel string   `json:"quantization_level"`
}

func detailsOf(m Model) ollamaDetails {
	return ollamaDetails{Format: "gguf", Family: m.Family, Families: []string{m.Family},
		ParameterSize: parameterSize(m.Parameters), QuantizationLevel: m.Quantization}
}

// parameterSize writes a number of weights as people do: 134.52M, 7.2B.
func parameterSize(n int64) string {
	switch f := float64(n); {
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", f/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", f/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.2fK", f/1e3)
	}
	return fmt.Sprint(n)
}

type ollamaModel struct {
	Name       string        `json:"name"`
	Model      string        `json:"model"`
	ModifiedAt time.Time     `json:"modified_at"`
	Size       int64         `json:"size"`
	Digest     string        `json:"digest"`
	Details    ollamaDetails `json:"details"`
}

// tags serves /api/tags.
func (s *Server) tags(w http.ResponseWriter, r *http.Request) {
	models, err := s.cfg.Library.List(r.Context())
	if err != nil {
		refuseOllama(w, s.explain(w, err))
		return
	}
	out := struct {
		Models []ollamaModel `json:"models"`
	}{make([]ollamaModel, 0, len(models))}
	for _, m := range models {
		out.Models = append(out.Models, ollamaModel{m.Name, m.Name, m.Modified, m.Size, m.Digest, detailsOf(m)})
	}
	writeJSON(w, http.StatusOK, out)
}

type ollamaLoaded struct {
	Name          string        `json:"name"`
	Model         string        `json:"model"`
	Size          int64         `json:"size"`
	Digest        string        `json:"digest"`
	Details       ollamaDetails `json:"details"`
	ExpiresAt     time.Time     `json:"expires_at"`
	SizeVRAM      int64         `json:"size_vram"`
	ContextLength int           `json:"context_length"`
}

// never is when a model expires that stays for ever.
var never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// loaded serves /api/ps.
func (s *Server) loaded(w http.ResponseWriter, _ *http.Request) {
	out := struct {
		Models []ollamaLoaded `json:"models"`
	}{[]ollamaLoaded{}}
	for _, m := range s.cfg.Library.Loaded() {
		expires := m.Expires
		if expires.IsZero() {
			expires = never
		}
		out.Models = append(out.Models, ollamaLoaded{m.Name, m.Name, m.MemoryBytes, m.Digest, detailsOf(m.Model), expires, m.GPUBytes, m.ContextLength})
	}
	writeJSON(w, http.StatusOK, out)
}

type ollamaShown struct {
	License      string         `json:"license"`
	Modelfile    string         `json:"modelfile"`
	Parameters   string         `json:"parameters"`
	Template     string         `json:"template"`
	Details      ollamaDetails  `json:"details"`
	ModelInfo    map[string]any `json:"model_info"`
	Capabilities []string       `json:"capabilities"`
	ModifiedAt   time.Time      `json:"modified_at"`
}

// show serves /api/show.
func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	o, ok := s.readObject(w, r)
	if !ok {
		return
	}
	name := o.ollamaModel()
	o.unsupported("verbose", "large arrays are not shown; leave it out", "false")
	for _, field := range []string{"system", "template"} {
		o.unsupported(field, "is not supported here", `""`)
	}
	o.unsupported("options", "is not supported here", "{}")
	if !s.checked(w, o) {
		return
	}
	m, err := s.cfg.Library.Show(r.Context(), name)
	if err != nil {
		refuseOllama(w, s.explain(w, err))
		return
	}
	writeJSON(w, http.StatusOK, ollamaShown{License: m.License, Modelfile: "FROM " + m.Name + "\n", Template: m.Template,
		Details: detailsOf(m.Model), ModelInfo: modelInfo(m), Capabilities: notNil(m.Capabilities), ModifiedAt: m.Modified})
}

// modelInfo is the file's metadata, with the context length that is enforced: that
// is what clients read it for. The one of the training is kept beside it.
func modelInfo(m ModelDetail) map[string]any {
	info := make(map[string]any, len(m.Metadata)+1)
	maps.Copy(info, m.Metadata)
	if key := m.Family + ".context_length"; m.ContextLength > 0 {
		if trained, ok := info[key]; ok {
			info["tandem.trained_context_length"] = trained
		}
		info[key] = m.ContextLength
	}
	return info
}

// remove serves /api/delete.
func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	o, ok := s.readObject(w, r)
	if !ok {
		return
	}
	name := o.ollamaModel()
	if !s.checked(w, o) {
		return
	}
	s.done(w, s.cfg.Library.Delete(r.Context(), name), http.StatusOK)
}

// duplicate serves /api/copy.
func (s *Server) duplicate(w http.ResponseWriter, r *http.Request) {
	o, ok := s.readObject(w, r)
	if !ok {
		return
	}
	from, to := o.model("source"), o.model("destination")
	if !s.checked(w, o) {
		return
	}
	s.done(w, s.cfg.Library.Copy(r.Context(), from, to), http.StatusOK)
}

// readObject reads the body of one of Ollama's management routes.
func (s *Server) readObject(w http.ResponseWriter, r *http.Request) (*object, bool) {
	body, err := s.readBody(w, r)
	if err != nil {
		refuseOllama(w, s.explain(w, err))
		return nil, false
	}
	return decodeBody(body), true
}

// checked ends the reading of a body: what is unknown is named, a fault refused.
func (s *Server) checked(w http.ResponseWriter, o *object) bool {
	o.rest()
	setWarning(w, o.unknown, nil)
	if o.err != nil {
		refuseOllama(w, s.explain(w, o.err))
		return false
	}
	return true
}

// done answers with a status and no body, or refuses.
func (s *Server) done(w http.ResponseWriter, err error, status int) {
	armWrite(w, s.cfg.WriteTimeout)
	if err != nil {
		refuseOllama(w, s.explain(w, err))
		return
	}
	w.WriteHeader(status)
}
