package api

import (
	"context"
	"net/http"
	"strconv"
)

// KeyAdmin has the nodes agree on which keys are revoked.
type KeyAdmin interface {
	// Revoke revokes a key on all nodes, or takes that back. key is a name or a
	// fingerprint. It fails at once, with the reason, while the nodes cannot agree.
	Revoke(ctx context.Context, key string, on bool) error
}

// listKeys serves GET /admin/keys: all about them but the keys.
func (s *Server) listKeys(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"keys": s.Keys()})
}

// revokeKey serves POST /admin/keys/revoke and /admin/keys/unrevoke {"key": ...}.
//
// A key cannot revoke itself, so that one that administers is always left. A name or
// fingerprint that this node does not know is taken all the same: another node may.
func (s *Server) revokeKey(on bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := s.adminBody(w, r)
		key := ""
		if !o.text("key", &key, MaxKeyName) || !keyName(key) {
			o.bad("key", "must be the name or the fingerprint of a key, from /admin/keys")
		}
		err = o.end(w, err)
		k := keyOf(r.Context())
		switch {
		case err != nil:
		case k == nil:
			err = BadRequest("key", "key: this node asks for no API key, so none can be revoked; allowed: start it with --api-key")
		case on && (key == k.name || key == k.fingerprint):
			err = BadRequest("key", "key: %q is the key of this request; allowed: any other, or this one with another administrator's key", key)
		case s.cfg.KeyAdmin == nil:
			err = Busy(http.StatusServiceUnavailable, 0, "this node cannot revoke keys")
		}
		s.adminAnswer(w, r, err, func(ctx context.Context) (any, error) {
			if err := s.cfg.KeyAdmin.Revoke(ctx, key, on); err != nil {
				return nil, err
			}
			return map[string]any{"key": key, "revoked": on}, nil
		})
	}
}

// MaxRecentRequests is the longest list of requests that ended lately.
const MaxRecentRequests = 256

// recentRequests serves GET /admin/requests?after=&limit=: those that ended lately,
// oldest first.
func (s *Server) recentRequests(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err := boundedQuery(query.Get("limit"), "limit", MaxRecentRequests, 1, MaxRecentRequests)
	var after uint64
	if err == nil {
		after, err = boundedQuery(query.Get("after"), "after", 0, 0, 1<<62)
	}
	if err == nil && s.cfg.Requests == nil {
		err = &Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url", Message: "this node keeps no list of requests"}
	}
	s.adminAnswer(w, r, err, func(context.Context) (any, error) { return s.cfg.Requests(after, int(limit)), nil })
}

func boundedQuery(text, name string, def, low, high uint64) (uint64, error) {
	if text == "" {
		return def, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < low || n > high {
		return 0, BadRequest(name, "%s: %q must be a whole number from %d to %d", name, clip(text, 40), low, high)
	}
	return n, nil
}
