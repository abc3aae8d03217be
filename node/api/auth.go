package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// Key is an API key. Keys with the same name belong to one tenant, so a key can be
// replaced without losing what was cached for it.
type Key struct {
	Name   string // "": the tenant is made from the secret
	Secret string
}

// keyring compares keys by their hashes, so that neither length nor content of a
// key shows in the time a comparison takes.
type keyring []ringKey

type ringKey struct {
	hash   [sha256.Size]byte
	tenant string
}

func newKeyring(keys []Key) keyring {
	ring := make(keyring, 0, len(keys))
	for _, k := range keys {
		ring = append(ring, ringKey{sha256.Sum256([]byte(k.Secret)), tenantName(k)})
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

// tenant finds the key that a request carries.
func (ring keyring) tenant(r *http.Request) (string, bool) {
	secret, given := credential(r.Header)
	hash := sha256.Sum256([]byte(secret))
	tenant, found := "", false
	for _, k := range ring { // all of them: how long it takes tells nothing
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
			tenant, found = k.tenant, true
		}
	}
	return tenant, found && given
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

type tenantKey struct{}

func withTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// tenantOf is the tenant of a request; "" without keys.
func tenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
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
