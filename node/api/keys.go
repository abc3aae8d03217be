package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Limits on API keys.
const (
	// MaxKeys of one node; each request is compared with all of them.
	MaxKeys = 256
	// MinKey and MaxKey are the lengths of a key.
	MinKey = 8
	MaxKey = 512
	// MaxKeyName is the longest name of a key.
	MaxKeyName = 63
	// MaxKeyRate is the largest number of requests or tokens a minute that a key may be
	// limited to; a larger one limits nothing.
	MaxKeyRate = 1_000_000_000
)

// Scope is a set of what a key may be used for.
type Scope uint8

// The scopes. ScopeAdmin has ScopeMetrics in it.
const (
	ScopeInfer   Scope = 1 << iota // generate, embed, tokenise, list models
	ScopeMetrics                   // read /metrics
	ScopeAdmin                     // everything else: state, events, KV, models on disk, the cluster

	scopeAll = ScopeInfer | ScopeMetrics | ScopeAdmin
)

var scopeNames = []struct {
	name  string
	scope Scope
}{{"infer", ScopeInfer}, {"metrics", ScopeMetrics}, {"admin", ScopeAdmin}}

// String is the scopes by name, as ParseKey reads them: without metrics beside admin.
func (s Scope) String() string {
	var out []string
	for _, n := range scopeNames {
		if s&n.scope != 0 && !(n.scope == ScopeMetrics && s&ScopeAdmin != 0) {
			out = append(out, n.name)
		}
	}
	return strings.Join(out, "+")
}

// scopeOf is what a request needs. A route that is not named here needs ScopeAdmin, so
// a new one is closed until somebody opens it.
func scopeOf(path string) Scope {
	switch path {
	case "/metrics":
		return ScopeMetrics
	case "/tokenize", "/detokenize", "/props", "/api/chat", "/api/generate", "/api/embed", "/api/embeddings",
		"/api/tags", "/api/ps", "/api/show", "/api/version":
		return ScopeInfer
	}
	if strings.HasPrefix(path, "/v1/") {
		return ScopeInfer
	}
	return ScopeAdmin
}

// KeyLimits bounds what a key may ask of one node in a minute; 0 is no bound.
type KeyLimits struct {
	Requests int // generations and embeddings
	Tokens   int // of their prompts, cached ones included, and answers
}

// Key is an API key. Keys with the same name belong to one tenant, so a key can be
// replaced without losing what was cached for it.
type Key struct {
	Name   string // "": the tenant is made from the secret
	Secret string
	Scopes Scope // 0: all
	Limits KeyLimits
}

// ParseKey reads KEY, NAME=KEY or NAME:WHAT[:WHAT...]=KEY, where WHAT is a list of
// scopes (infer+metrics), requests a minute (60rpm) or tokens a minute (20000tpm).
// Errors do not hold the key.
func ParseKey(text string) (Key, error) {
	k := Key{Secret: text}
	// Base64 padding at the end of a bare key is not taken for a name.
	if head, secret, found := strings.Cut(text, "="); found && strings.Trim(secret, "=") != "" {
		name, what, more := strings.Cut(head, ":")
		if keyName(name) {
			k.Name, k.Secret = name, secret
			if more {
				if err := k.parseTerms(what); err != nil {
					return Key{}, fmt.Errorf("key %s: %w", name, err)
				}
			}
		}
	}
	if len(k.Secret) < MinKey || len(k.Secret) > MaxKey {
		return Key{}, fmt.Errorf("has %d characters", len(k.Secret))
	}
	for _, r := range k.Secret {
		if r <= ' ' || r >= 0x7f {
			return Key{}, errors.New("has a blank or an unprintable character")
		}
	}
	return k, nil
}

func (k *Key) parseTerms(what string) error {
	for term := range strings.SplitSeq(what, ":") {
		if digits, ok := strings.CutSuffix(term, "rpm"); ok {
			if err := rate(digits, "rpm", &k.Limits.Requests); err != nil {
				return err
			}
			continue
		}
		if digits, ok := strings.CutSuffix(term, "tpm"); ok {
			if err := rate(digits, "tpm", &k.Limits.Tokens); err != nil {
				return err
			}
			continue
		}
		for name := range strings.SplitSeq(term, "+") {
			i := slices.IndexFunc(scopeNames, func(n struct {
				name  string
				scope Scope
			}) bool {
				return n.name == name
			})
			if i < 0 {
				return fmt.Errorf("%q is no scope and no limit", clip(name, 40))
			}
			if k.Scopes |= scopeNames[i].scope; k.Scopes&ScopeAdmin != 0 {
				k.Scopes |= ScopeMetrics
			}
		}
	}
	return nil
}

func rate(digits, unit string, into *int) error {
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 || n > MaxKeyRate {
		return fmt.Errorf("%s%s is not 1 to %d%s", strconv.Quote(clip(digits, 20)), unit, MaxKeyRate, unit)
	}
	*into = n
	return nil
}

func keyName(name string) bool {
	if name == "" || len(name) > MaxKeyName {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
	})
}

// Fingerprint names a key without telling it: 16 hexadecimal digits.
func (k Key) Fingerprint() string {
	sum := sha256.Sum256([]byte("tandem key fingerprint\x00" + k.Secret))
	return hex.EncodeToString(sum[:8])
}

// scopes are those that the key has.
func (k Key) scopes() Scope {
	if k.Scopes == 0 {
		return scopeAll
	}
	return k.Scopes
}

// Label is what logs call the key: its name, or its fingerprint if it has none.
func (k Key) Label() string {
	if k.Name != "" {
		return k.Name
	}
	return k.Fingerprint()
}

func errScope(k *ringKey, need Scope) *Error {
	return &Error{Status: http.StatusForbidden, Type: "permission_error", Code: "scope_missing",
		Message: "this API key is for " + k.scopes.String() + "; this route needs a key for " + need.String()}
}

var errRevoked = &Error{Status: http.StatusUnauthorized, Type: "invalid_request_error", Code: "invalid_api_key",
	Message: "this API key was revoked; ask the owner of the cluster for another one"}

// KeyInfo is what administrators see of a key.
type KeyInfo struct {
	Name           string `json:"name"` // "" if it has none
	Fingerprint    string `json:"fingerprint"`
	Scopes         string `json:"scopes"`
	RequestsMinute int    `json:"requests_per_minute,omitempty"`
	TokensMinute   int    `json:"tokens_per_minute,omitempty"`
	Revoked        bool   `json:"revoked"`
}

// Keys lists the keys of the node.
func (s *Server) Keys() []KeyInfo {
	out := []KeyInfo{}
	for i := range s.keys {
		k := &s.keys[i]
		out = append(out, KeyInfo{Name: k.name, Fingerprint: k.fingerprint, Scopes: k.scopes.String(), RequestsMinute: k.limits.Requests,
			TokensMinute: k.limits.Tokens, Revoked: s.isRevoked(k)})
	}
	return out
}

// SetRevoked replaces the list of revoked keys: names and fingerprints. It holds for
// requests that come in from then on; those that run go on.
func (s *Server) SetRevoked(keys []string) {
	revoked := map[string]bool{}
	for _, k := range keys {
		revoked[k] = true
	}
	s.revoked.Store(&revoked)
}

func (s *Server) isRevoked(k *ringKey) bool {
	revoked := s.revoked.Load()
	return revoked != nil && ((*revoked)[k.fingerprint] || k.name != "" && (*revoked)[k.name])
}
