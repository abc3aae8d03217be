package api

import (
	"bytes"
	"context"
	"net/http"
)

// live serves /healthz: the process reacts, whatever its engine does.
func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready serves /readyz: 503 and the reason until a model can answer.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if err := s.cfg.Admin.Ready(); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "unavailable", "reason": err.Error()})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	if err := s.cfg.Admin.Metrics(&b); err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

func (s *Server) adminStatus(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, s.cfg.Admin.Status(r.Context()))
}

// adminEvents serves /admin/events until the client leaves or the node stops.
func (s *Server) adminEvents(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	// Who has the head of the answer misses nothing of what happens from then on.
	var out *stream
	defer func() {
		if out != nil {
			out.close()
		}
	}()
	open := func() { out = newStream(w, "text/event-stream", s.cfg.WriteTimeout, s.cfg.KeepAlive, cancel) }
	// The error says that the client or the node is going; nobody is left to tell.
	_ = s.cfg.Admin.Events(ctx, open, func(name string, data []byte) error {
		return out.append(func(b []byte) []byte { return appendEvent(b, name, data) })
	})
}

// appendEvent appends a named event; each line of its data is one of its own, as
// event streams want it.
func appendEvent(b []byte, name string, data []byte) []byte {
	b = append(append(b, "event: "...), headerText(name, MaxIdentifier)...)
	for line := range bytes.Lines(data) {
		b = append(append(b, "\ndata: "...), bytes.TrimRight(line, "\r\n")...)
	}
	return append(b, endOfEvent...)
}

// version serves /api/version: the version of Ollama's API that these routes
// follow, which clients compare with what they need, and the server's own.
func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": ollamaVersion, "server": "tandem", "server_version": s.cfg.Version})
}

const ollamaVersion = "0.24.0"
