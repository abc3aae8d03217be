package api

import (
	"net/http"
	"time"
)

// openAIModel is a model in OpenAI's list, and with the next three fields in
// Anthropic's, which has the same path; what follows is ours.
type openAIModel struct {
	ID            string   `json:"id"`
	Object        string   `json:"object"`
	Created       int64    `json:"created"`
	OwnedBy       string   `json:"owned_by"`
	Type          string   `json:"type"`
	DisplayName   string   `json:"display_name"`
	CreatedAt     string   `json:"created_at"`
	ContextLength int      `json:"context_length"`
	MaxModelLen   int      `json:"max_model_len"`
	Parameters    int64    `json:"parameters"`
	Quantization  string   `json:"quantization"`
	Family        string   `json:"family"`
	Size          int64    `json:"size"`
	Capabilities  []string `json:"capabilities"`
	Loaded        bool     `json:"loaded"`
	MemoryBytes   int64    `json:"memory_bytes,omitempty"` // when loaded, as estimated
	Source        string   `json:"source"`
}

func openAIModelOf(m Model) openAIModel {
	return openAIModel{ID: m.Name, Object: "model", Created: m.Modified.Unix(), OwnedBy: m.Source,
		Type: "model", DisplayName: m.Name, CreatedAt: m.Modified.UTC().Format(time.RFC3339),
		ContextLength: m.ContextLength, MaxModelLen: m.ContextLength, Parameters: m.Parameters, Quantization: m.Quantization,
		Family: m.Family, Size: m.Size, Capabilities: notNil(m.Capabilities), Loaded: m.Loaded, MemoryBytes: m.Memory, Source: m.Source}
}

// notNil makes an empty list of none, which JSON would write as null.
func notNil(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func (s *Server) listModels(w http.ResponseWriter, r *http.Request) {
	models, err := s.cfg.Library.List(r.Context())
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	out := struct {
		Object  string        `json:"object"`
		Data    []openAIModel `json:"data"`
		HasMore bool          `json:"has_more"`
		FirstID *string       `json:"first_id"`
		LastID  *string       `json:"last_id"`
	}{Object: "list", Data: make([]openAIModel, 0, len(models))}
	for _, m := range models {
		out.Data = append(out.Data, openAIModelOf(m))
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	}
	writeJSON(w, http.StatusOK, out)
}

// getModel serves /v1/models/{id}. Ids hold slashes and colons, escaped or not.
func (s *Server) getModel(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if !validModelName(id) { // not repeated: unescaped it may read as a path
		refuseOpenAI(w, &Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Param: "model",
			Message: "the id in the address is not a name that a model can have"})
		return
	}
	m, err := s.cfg.Library.Show(r.Context(), id)
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	writeJSON(w, http.StatusOK, openAIModelOf(m.Model))
}
