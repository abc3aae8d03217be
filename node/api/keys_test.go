package api

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// as sends with a key.
type asKey struct {
	*testNode
	key string
}

func (n *testNode) as(key string) asKey { return asKey{n, key} }

func (k asKey) do(method, path, body string) reply {
	return k.testNode.do(method, path, body, "Authorization", "Bearer "+k.key)
}

func TestParseKey(t *testing.T) {
	for text, want := range map[string]Key{
		"sk-12345678":       {Secret: "sk-12345678"},
		"c2VjcmV0LWtleQ==":  {Secret: "c2VjcmV0LWtleQ=="},
		"a:b-c:d-12345":     {Secret: "a:b-c:d-12345"},
		"ann=sk-12345678":   {Name: "ann", Secret: "sk-12345678"},
		"ann=sk=12345678==": {Name: "ann", Secret: "sk=12345678=="},
		"ci:infer=sk-12345": {Name: "ci", Secret: "sk-12345", Scopes: ScopeInfer},
		"ci:infer+metrics:60rpm:20000tpm=sk-12345": {Name: "ci", Secret: "sk-12345", Scopes: ScopeInfer | ScopeMetrics, Limits: KeyLimits{60, 20000}},
		"root:admin=sk-12345":                      {Name: "root", Secret: "sk-12345", Scopes: ScopeAdmin | ScopeMetrics},
		"slow:5rpm=sk-12345":                       {Name: "slow", Secret: "sk-12345", Limits: KeyLimits{Requests: 5}},
	} {
		if got, err := ParseKey(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		"ci:inferr=sk-12345": "inferr", "ci:0rpm=sk-12345": "0", "ci:1e9tpm=sk-12345": "1e9", "ci:=sk-12345": "no scope",
		"short": "5 characters", "ann=short": "5 characters", "with a blank": "blank", "ci:rpm=sk-12345": "rpm",
	} {
		if _, err := ParseKey(text); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "sk-12345") {
			t.Errorf("%q: %v; want it to say %q, and not the key", text, err, says)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{"sk-12345678", "ann=sk-12345678", "ci:infer+metrics:60rpm:2tpm=sk-12345", "::==", "a:b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := ParseKey(text)
		if err != nil {
			return
		}
		if len(k.Secret) < MinKey || k.Name != "" && !keyName(k.Name) || !strings.HasSuffix(text, k.Secret) {
			t.Errorf("%q became %+v", text, k)
		}
		// What is printed of a key is read as the same.
		if k.Scopes != 0 && k.Name != "" {
			again, err := ParseKey(k.Name + ":" + k.Scopes.String() + "=" + k.Secret)
			if err != nil || again.Scopes != k.Scopes || again.Secret != k.Secret {
				t.Errorf("%q: %+v, then %+v, %v", text, k, again, err)
			}
		}
	})
}

// Every route that exists is closed to a key without its scope.
func TestScopes(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "app", Secret: "key-of-app", Scopes: ScopeInfer}, {Name: "prom", Secret: "key-of-prom", Scopes: ScopeMetrics},
		{Name: "root", Secret: "key-of-root", Scopes: ScopeAdmin | ScopeMetrics}, {Name: "old", Secret: "key-of-old"}}})
	const denied, passed = http.StatusForbidden, 0
	for _, tt := range []struct {
		method, path            string
		app, prom, root, oldKey int
	}{
		{"GET", "/v1/models", passed, denied, denied, passed},
		{"POST", "/v1/chat/completions", passed, denied, denied, passed},
		{"POST", "/api/chat", passed, denied, denied, passed},
		{"POST", "/tokenize", passed, denied, denied, passed},
		{"GET", "/metrics", denied, passed, passed, passed},
		{"GET", "/admin/status", denied, denied, passed, passed},
		{"GET", "/admin/keys", denied, denied, passed, passed},
		{"POST", "/admin/kv/evict", denied, denied, passed, passed},
		{"POST", "/api/pull", denied, denied, passed, passed},
		{"DELETE", "/api/delete", denied, denied, passed, passed},
		{"GET", "/a-route-of-tomorrow", denied, denied, passed, passed},
	} {
		for key, want := range map[string]int{"key-of-app": tt.app, "key-of-prom": tt.prom, "key-of-root": tt.root, "key-of-old": tt.oldKey} {
			status := n.as(key).do(tt.method, tt.path, "{}").status
			if (status == denied) != (want == denied) {
				t.Errorf("%s %s with %s: status %d", tt.method, tt.path, key, status)
			}
		}
	}
}

// A refusal for want of a scope says which one the key has, and which one is needed.
func TestScopeMissing(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "app", Secret: "key-of-app", Scopes: ScopeInfer}, {Name: "root", Secret: "key-of-root", Scopes: ScopeAdmin | ScopeMetrics}}})
	for _, tt := range []struct{ key, path, says string }{
		{"key-of-app", "/admin/status", "is for infer; this route needs a key for admin"},
		{"key-of-app", "/metrics", "is for infer; this route needs a key for metrics"},
		{"key-of-root", "/v1/models", "is for admin; this route needs a key for infer"},
	} {
		if got := n.as(tt.key).do("GET", tt.path, ""); got.status != http.StatusForbidden || !strings.Contains(got.body, tt.says) {
			t.Errorf("%s %s: %d, %s", tt.key, tt.path, got.status, got.body)
		}
	}
}

func TestAllowance(t *testing.T) {
	now := time.Unix(1000, 0)
	a := newAllowance(KeyLimits{Requests: 2, Tokens: 100})
	take := func() int {
		err := a.take(now)
		if err == nil {
			return 0
		}
		if err.Status != http.StatusTooManyRequests || err.Code != "rate_limit_exceeded" {
			t.Fatalf("%+v", err)
		}
		return int(err.RetryAfter.Seconds())
	}
	if a, b := take(), take(); a != 0 || b != 0 {
		t.Fatalf("two requests a minute were refused: %d, %d", a, b)
	}
	if wait := take(); wait != 30 {
		t.Errorf("the third has to wait %d s, want 30", wait)
	}
	now = now.Add(30 * time.Second)
	if wait := take(); wait != 0 {
		t.Errorf("after 30 s it has to wait %d s", wait)
	}
	a.charge(now, 160) // 60 too many
	now = now.Add(30 * time.Second)
	if wait := take(); wait != 7 {
		t.Errorf("11 tokens are missing, of 100 a minute: wait %d s, want 7", wait)
	}
	now = now.Add(time.Hour)
	if wait := take(); wait != 0 || a.mu.tokens > 100 || a.mu.requests > 2 {
		t.Errorf("after an hour: wait %d s, %v tokens, %v requests", wait, a.mu.tokens, a.mu.requests)
	}
	var none *allowance
	none.charge(now, 1)
}

func TestLimitsOfAKey(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Name: "slow", Secret: "key-of-slow", Limits: KeyLimits{Requests: 1}}, {Name: "wordy", Secret: "key-of-wordy", Limits: KeyLimits{Tokens: 3}}, {Name: "free", Secret: "key-of-free"}}})
	ask := func(key string) reply {
		return n.as(key).do("POST", "/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
	}
	for _, key := range []string{"key-of-slow", "key-of-wordy"} {
		if status := ask(key).status; status != 200 {
			t.Fatalf("%s: the first request got %d", key, status)
		}
		resp := ask(key)
		if resp.status != http.StatusTooManyRequests || resp.header.Get("Retry-After") == "" {
			t.Errorf("%s: the second request got %d, Retry-After %q", key, resp.status, resp.header.Get("Retry-After"))
		}
		if status := n.as(key).do("GET", "/v1/models", "").status; status != 200 {
			t.Errorf("%s: a list of models got %d: only generating is limited", key, status)
		}
	}
	for range 5 {
		if status := ask("key-of-free").status; status != 200 {
			t.Errorf("a key without limits got %d", status)
		}
	}
}

func TestRevokedKeys(t *testing.T) {
	ann, bare := Key{Name: "ann", Secret: "key-of-ann"}, Key{Secret: "key-without-name"}
	n := start(t, Config{Keys: []Key{ann, bare, {Name: "root", Secret: "key-of-root"}}})
	n.Server.SetRevoked([]string{"ann", bare.Fingerprint()})
	for key, want := range map[string]int{"key-of-ann": 401, "key-without-name": 401, "key-of-root": 200} {
		if status := n.as(key).do("GET", "/v1/models", "").status; status != want {
			t.Errorf("%s: %d, want %d", key, status, want)
		}
	}
	for _, k := range n.Server.Keys() {
		if k.Revoked != (k.Name != "root") {
			t.Errorf("%+v", k)
		}
	}
	if resp := n.as("key-of-root").do("POST", "/admin/keys/revoke", `{"key":"root"}`); resp.status != 400 {
		t.Errorf("a key could revoke itself: %d", resp.status)
	}
	n.Server.SetRevoked(nil)
	if status := n.as("key-of-ann").do("GET", "/v1/models", "").status; status != 200 {
		t.Errorf("a key that is no longer revoked got %d", status)
	}
}

func TestAudit(t *testing.T) {
	got := make(chan AuditRecord, 10)
	n := start(t, Config{Keys: []Key{{Name: "root", Secret: "key-of-root"}, {Name: "app", Secret: "key-of-app", Scopes: ScopeInfer}}, Audit: func(r AuditRecord) { got <- r }})
	for _, r := range []struct{ method, path, key string }{
		{"GET", "/admin/status", "key-of-root"}, {"POST", "/v1/chat/completions", "key-of-app"}, {"POST", "/admin/kv/evict", "no-such-key"},
		{"POST", "/admin/kv/verify", "key-of-root"}, {"POST", "/admin/kv/evict", "key-of-app"},
	} {
		n.as(r.key).do(r.method, r.path, "{}")
	}
	byKey := map[string]AuditRecord{}
	for range 2 { // they may come in any order, after the answers
		r := <-got
		byKey[r.Key] = r
	}
	if r := byKey["root"]; r.Route != "/admin/kv/verify" || r.From == "" || r.Status != 200 || r.ID == "" {
		t.Errorf("%+v", r)
	}
	if r := byKey["app"]; r.Route != "/admin/kv/evict" || r.Status != 403 {
		t.Errorf("%+v", r)
	}
}
