package webui

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// get answers one request; header is name and value in turn.
func get(t *testing.T, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result()
}

func read(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// assets are the files that the document refers to.
func assets(t *testing.T) []string {
	t.Helper()
	document := read(t, get(t, "GET", "/").Body)
	var found []string
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(document, -1) {
		found = append(found, m[1])
	}
	if len(found) < 3 {
		t.Fatalf("the document refers to %q; a script, a style sheet and an icon were expected", found)
	}
	return found
}

func TestDocument(t *testing.T) {
	for _, target := range []string{"/", "/ui", "/ui/", "/?x=1"} {
		t.Run(target, func(t *testing.T) {
			res := get(t, "GET", target)
			if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Fatalf("status %d, type %q", res.StatusCode, res.Header.Get("Content-Type"))
			}
			if got := res.Header.Get("Cache-Control"); got != "no-cache" {
				t.Errorf("Cache-Control is %q", got)
			}
			if body := read(t, res.Body); !strings.Contains(body, `<div id="app">`) {
				t.Errorf("no place for the page in %q", body)
			}
		})
	}
}

func TestDocumentHoldsNothingInline(t *testing.T) {
	document := read(t, get(t, "GET", "/").Body)
	inline := regexp.MustCompile(`(?is)<style|<script(?:[^>]*)>\s*[^<\s]|\sstyle=|\son[a-z]+=|javascript:|https?://`)
	if found := inline.FindString(document); found != "" {
		t.Errorf("the document holds %q, which its policy forbids", found)
	}
	if !inline.MatchString(`<p style="x">`) || !inline.MatchString("<script>\nx()</script>") {
		t.Error("this test would not see an inline style or script")
	}
}

func TestAssets(t *testing.T) {
	media := map[string]string{"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
	for _, target := range assets(t) {
		t.Run(target, func(t *testing.T) {
			res := get(t, "GET", target)
			if res.StatusCode != 200 {
				t.Fatalf("status %d", res.StatusCode)
			}
			if want := media[target[strings.LastIndexByte(target, '.')+1:]]; res.Header.Get("Content-Type") != want {
				t.Errorf("type %q, want %q", res.Header.Get("Content-Type"), want)
			}
			if got := res.Header.Get("Cache-Control"); !strings.Contains(got, "immutable") {
				t.Errorf("Cache-Control is %q", got)
			}
		})
	}
}

func TestSecurityHeaders(t *testing.T) {
	want := map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
	for _, target := range append(assets(t), "/", "/ui/nothing") {
		h := get(t, "GET", target).Header
		for name, value := range want {
			if h.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", target, name, h.Get(name), value)
			}
		}
		policy := h.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s: the policy lacks %s: %s", target, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
			t.Errorf("%s: the policy is not strict: %s", target, policy)
		}
	}
}

func TestLicenses(t *testing.T) {
	res := get(t, "GET", licensesPath)
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("status %d, type %q", res.StatusCode, res.Header.Get("Content-Type"))
	}
	text := read(t, res.Body)
	for _, part := range []string{"preact", "marked", "dompurify", "highlight.js", "idb"} {
		if !strings.Contains(text, "## "+part) {
			t.Errorf("the licence of %s is missing", part)
		}
	}
}

func TestNotFound(t *testing.T) {
	for _, target := range []string{
		"/ui/assets/", "/ui/assets", "/ui/assets/none.js", "/ui/chat", "/ui/index.html", "/index.html", "/assets/", "/ui/assets/../index.html",
		"/ui/assets/../../webui.go", "/ui/assets/%2e%2e/index.html", "/ui/assets/..%2f..%2fwebui.go", "/ui//assets/", "/dist/index.html", "/ui/assets/%00",
	} {
		t.Run(target, func(t *testing.T) {
			if res := get(t, "GET", target); res.StatusCode != 404 {
				t.Errorf("status %d, want 404", res.StatusCode)
			}
		})
	}
}

func TestMethods(t *testing.T) {
	head := get(t, "HEAD", "/")
	if head.StatusCode != 200 || read(t, head.Body) != "" || head.Header.Get("Content-Length") == "" || head.Header.Get("ETag") == "" {
		t.Errorf("HEAD: status %d, headers %v", head.StatusCode, head.Header)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
		if res := get(t, method, "/"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: status %d, Allow %q", method, res.StatusCode, res.Header.Get("Allow"))
		}
	}
}

func TestConditional(t *testing.T) {
	for _, encoding := range []string{"", "gzip"} {
		for _, target := range append(assets(t), "/") {
			tag := get(t, "GET", target, "Accept-Encoding", encoding).Header.Get("ETag")
			if tag == "" {
				t.Fatalf("%s has no ETag", target)
			}
			res := get(t, "GET", target, "Accept-Encoding", encoding, "If-None-Match", tag)
			if res.StatusCode != 304 || read(t, res.Body) != "" {
				t.Errorf("%s with its own tag: status %d, want 304 and no body", target, res.StatusCode)
			}
			if res := get(t, "GET", target, "Accept-Encoding", encoding, "If-None-Match", `"other"`); res.StatusCode != 200 {
				t.Errorf("%s with another tag: status %d, want 200", target, res.StatusCode)
			}
		}
	}
}

func TestCompression(t *testing.T) {
	tests := []struct {
		name, accept string
		want         bool
	}{
		{"browser", "gzip, deflate, br, zstd", true},
		{"upper case", "GZIP", true},
		{"weighted", "br;q=1.0, gzip; q=0.8", true},
		{"refused", "gzip;q=0", false},
		{"refused with digits", "gzip; q=0.000", false},
		{"others only", "br", false},
		{"any", "*", false},
		{"none", "", false},
		{"part of a word", "xgzip", false},
	}
	var target string
	for _, asset := range assets(t) {
		if strings.Contains(asset, "/index-") && strings.HasSuffix(asset, ".js") { // others may be too small to be compressed
			target = asset
		}
	}
	plain := read(t, get(t, "GET", target).Body)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			res := get(t, "GET", target, "Accept-Encoding", test.accept)
			if res.Header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("Vary is %q", res.Header.Get("Vary"))
			}
			if got := res.Header.Get("Content-Encoding") == "gzip"; got != test.want {
				t.Fatalf("compressed: %v, want %v", got, test.want)
			}
			var body io.Reader = res.Body
			if test.want {
				var err error
				if body, err = gzip.NewReader(res.Body); err != nil {
					t.Fatal(err)
				}
			}
			if read(t, body) != plain {
				t.Error("the body is another one than without compression")
			}
		})
	}
}

// The page must stay light: this is what a phone loads before it shows anything,
// and what a code block loads later.
func TestWeight(t *testing.T) {
	const limit = 150_000
	files, err := load()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for name, f := range files {
		if strings.HasSuffix(name, ".js") {
			sum += len(compress(f.body))
		}
	}
	if sum == 0 || sum > limit {
		t.Errorf("the scripts have %d bytes compressed, want 1 to %d", sum, limit)
	}
	const firstLimit = 60_000 // decision 8
	first, document := 0, string(files["/index.html"].body)
	for name, f := range files {
		if strings.HasSuffix(name, ".js") && strings.Contains(document, name) {
			first += len(compress(f.body))
		}
	}
	if first == 0 || first > firstLimit {
		t.Errorf("the scripts of the first load have %d bytes compressed, want 1 to %d", first, firstLimit)
	}
	t.Logf("scripts: %d bytes compressed, %d of them at the first load", sum, first)
}
