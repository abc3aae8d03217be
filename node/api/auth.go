package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// keyring compares keys by their hashes, so that neither length nor content of a
// key shows in the time a comparison takes.
type keyring []ringKey

type ringKey struct {
	hash        [sha256.Size]byte
	tenant      string
	name        string
	fingerprint string
	scopes      Scope
	limits      KeyLimits
	allowance   *allowance
}

// label is Key.Label.
func (k *ringKey) label() string {
	if k.name != "" {
		return k.name
	}
	return k.fingerprint
}

func newKeyring(keys []Key) keyring {
	ring := make(keyring, 0, len(keys))
	for _, k := range keys {
		ring = append(ring, ringKey{hash: sha256.Sum256([]byte(k.Secret)), tenant: tenantName(k), name: k.Name, fingerprint: k.Fingerprint(),
			scopes: k.scopes(), limits: k.Limits, allowance: newAllowance(k.Limits)})
	}
	return ring
}

// Tenant is the tenant of the requests that carry the key: Request.Tenant.
func (k Key) Tenant() string { return tenantName(k) }

// tenantName is the salt of what is cached for a key. Name and secret are tagged,
// so that a name cannot stand for another key's secret.
func tenantName(k Key) string {
	text := "tandem tenant by name\x00" + k.Name
	if k.Name == "" {
		text = "tandem tenant by secret\x00" + k.Secret
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// find finds the key that a request carries; nil: it carries none that is known.
func (ring keyring) find(r *http.Request) *ringKey {
	secret, given := credential(r.Header)
	hash := sha256.Sum256([]byte(secret))
	var found *ringKey
	for i := range ring { // all of them: how long it takes tells nothing
		if subtle.ConstantTimeCompare(hash[:], ring[i].hash[:]) == 1 {
			found = &ring[i]
		}
	}
	if !given {
		return nil
	}
	return found
}

// admit finds the key of a request and checks what it may be used for.
func (s *Server) admit(r *http.Request) (*ringKey, *Error) {
	k := s.keys.find(r)
	switch need := scopeOf(r.URL.Path); {
	case k == nil:
		return nil, errNoKey
	case s.isRevoked(k):
		return k, errRevoked
	case k.scopes&need == 0:
		return k, errScope(k, need)
	}
	return k, nil
}

// credential is the bearer token, or without an Authorization header the one of
// x-api-key. A header that is there twice is none.
func credential(h http.Header) (string, bool) {
	if values := h.Values("Authorization"); len(values) > 0 {
		scheme, token, _ := strings.Cut(values[0], " ")
		token = strings.TrimSpace(token)
		return token, len(values) == 1 && strings.EqualFold(scheme, "Bearer") && token != ""
	}
	values := h.Values("X-Api-Key")
	if len(values) != 1 {
		return "", false
	}
	return values[0], values[0] != ""
}

type keyOfContext struct{}

func withKey(ctx context.Context, k *ringKey) context.Context {
	return context.WithValue(ctx, keyOfContext{}, k)
}

// keyOf is the key of a request; nil without keys.
func keyOf(ctx context.Context) *ringKey {
	k, _ := ctx.Value(keyOfContext{}).(*ringKey)
	return k
}

// tenantOf is the tenant of a request; "" without keys.
func tenantOf(ctx context.Context) string {
	if k := keyOf(ctx); k != nil {
		return k.tenant
	}
	return ""
}

// allowanceOf is what the key of a request may still ask for; nil without keys.
func allowanceOf(ctx context.Context) *allowance {
	if k := keyOf(ctx); k != nil {
		return k.allowance
	}
	return nil
}

// takeAllowance takes one request of the key's.
func (s *Server) takeAllowance(ctx context.Context) error {
	if a := allowanceOf(ctx); a != nil {
		if err := a.take(s.cfg.Now()); err != nil {
			return err
		}
	}
	return nil
}

var errNoKey = &Error{Status: http.StatusUnauthorized, Type: "invalid_request_error", Code: "invalid_api_key",
	Message: "a valid API key is required: send it as Authorization: Bearer KEY, or as x-api-key"}

// open says whether a request needs no key: health, and the page, which holds no
// data. The path is compared as it was sent, so no other spelling gets through.
func open(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch path := r.URL.EscapedPath(); path {
	case "/", "/ui", "/healthz", "/readyz", "/health", "/livez":
		return true
	default:
		return strings.HasPrefix(path, "/ui/") && cleanPath(path) && !strings.Contains(path, "%")
	}
}

// cleanPath says whether an escaped path is spelled in the one way that routes are:
// without empty or dot segments and without a backslash. Other spellings are not
// redirected, they are not found.
func cleanPath(path string) bool {
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\\") {
		return false
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return false
		}
	}
	return true
}
