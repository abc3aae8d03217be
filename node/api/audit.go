package api

import (
	"net"
	"net/http"
)

// AuditRecord is one call that changed something, or tried to, or that took data out
// of the node.
type AuditRecord struct {
	ID     string // of the request
	Key    string // name or fingerprint of the API key; "" if none is asked for
	From   string // address of the client
	Method string
	Route  string // path, without its query
	Status int
}

// audited says whether a request goes into the audit: all that may change something
// and needs an administrator, and what copies kept KV out.
func audited(r *http.Request) bool {
	if scopeOf(r.URL.Path) != ScopeAdmin {
		return false
	}
	switch r.Method {
	case http.MethodGet:
		return r.URL.Path == "/admin/kv/export"
	case http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// auditLater returns what notes the end of a request.
func (s *Server) auditLater(w *trackedWriter, r *http.Request, k *ringKey) func() {
	if s.cfg.Audit == nil || !audited(r) {
		return func() {}
	}
	record := AuditRecord{ID: w.Header().Get(requestID), Method: headerText(r.Method, 20), Route: headerText(r.URL.Path, MaxIdentifier)}
	if k != nil {
		record.Key = k.label()
	}
	if record.From, _, _ = net.SplitHostPort(r.RemoteAddr); record.From == "" {
		record.From = r.RemoteAddr
	}
	return func() {
		if record.Status = w.status; record.Status == 0 {
			record.Status = http.StatusOK
		}
		s.cfg.Audit(record)
	}
}
