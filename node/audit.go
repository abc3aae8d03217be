package node

import (
	"log/slog"

	"tandem/node/api"
)

// AdminCalled comes after a call that changed something on the node or tried to, and
// after one that took kept KV out of it.
type AdminCalled struct {
	ID     string `json:"id"`
	Key    string `json:"key"` // name or fingerprint of the API key; "" if none is asked for
	From   string `json:"from"`
	Method string `json:"method"`
	Route  string `json:"route"`
	Status int    `json:"status"`
}

func (AdminCalled) kind() string { return "admin_called" }

// level: a refused call is worth a look.
func (e AdminCalled) level() slog.Level {
	if e.Status == 401 || e.Status == 403 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// audit turns the API's record of a call into an event.
func (n *Node) audit(r api.AuditRecord) {
	n.events.emit(AdminCalled{ID: r.ID, Key: r.Key, From: r.From, Method: r.Method, Route: r.Route, Status: r.Status})
}
