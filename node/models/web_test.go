package models

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestNextHop(t *testing.T) {
	for _, tc := range []struct {
		name, from, to string
		private        bool // the first server was in the local network
		want           string
	}{
		{"another server", "https://a.example/x", "https://cdn.example/y?sig=1", false, ""},
		{"relative", "https://a.example/x/y", "../z", false, ""},
		{"up to https", "http://127.0.0.1/x", "https://a.example/y", true, ""},
		{"down to http", "https://a.example/x", "http://a.example/x", false, "from https to http"},
		{"a file", "https://a.example/x", "file:///etc/passwd", false, `"file"`},
		{"another scheme", "https://a.example/x", "gopher://a.example/", false, `"gopher"`},
		{"nowhere", "https://a.example/x", "", false, "nowhere"},
		{"no host", "https://a.example/x", "https:///y", false, "nowhere"},
		{"with a password", "https://a.example/x", "https://u:p@b.example/", false, "password"},
		{"loopback", "https://a.example/x", "https://127.0.0.1/", false, "private"},
		{"loopback by name", "https://a.example/x", "https://localhost/", false, "private"},
		{"loopback in IPv6", "https://a.example/x", "https://[::1]/", false, "private"},
		{"loopback in IPv6 clothes", "https://a.example/x", "https://[::ffff:127.0.0.1]/", false, "private"},
		{"metadata service", "https://a.example/x", "https://169.254.169.254/latest", false, "private"},
		{"home network", "https://a.example/x", "https://192.168.1.1/", false, "private"},
		{"home network from there", "https://192.168.1.2/x", "https://192.168.1.1/", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from, err := url.Parse(tc.from)
			if err != nil {
				t.Fatal(err)
			}
			resp := &http.Response{Header: http.Header{}}
			if tc.to != "" {
				resp.Header.Set("Location", tc.to)
			}
			_, err = nextHop(from, resp, tc.private)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestPublicOnly(t *testing.T) {
	for _, tc := range []struct {
		address string
		public  bool
	}{
		{"93.184.216.34:443", true}, {"[2606:2800:220:1::1]:443", true},
		{"127.0.0.1:80", false}, {"10.0.0.1:80", false}, {"172.16.9.9:80", false}, {"192.168.0.1:80", false}, {"169.254.169.254:80", false},
		{"100.64.0.1:80", false}, {"0.0.0.0:80", false}, {"[::1]:80", false}, {"[fe80::1]:80", false}, {"[fd00::1]:80", false},
		{"[::ffff:10.0.0.1]:80", false}, {"224.0.0.1:80", false}, {"nonsense", false},
	} {
		if err := publicOnly("tcp", tc.address, nil); (err == nil) != tc.public {
			t.Errorf("%s: %v", tc.address, err)
		}
	}
	if !isPrivate(netip.Addr{}) {
		t.Error("no address at all is public")
	}
}

// TestGuardedTransport follows a redirect with the store's own client, from a
// server that it is told to take for a public one.
func TestGuardedTransport(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("the private server was asked") }))
	defer target.Close()
	w, err := newWeb(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	private := false
	req, err := http.NewRequest(http.MethodGet, target.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.send(req, 1, &private); !errors.Is(err, errPrivate) {
		t.Errorf("got %v, want errPrivate", err)
	}
	// The first hop may go there, and says that it is private.
	ok := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer ok.Close()
	if req, err = http.NewRequest(http.MethodGet, ok.URL, nil); err != nil {
		t.Fatal(err)
	}
	resp, err := w.send(req, 0, &private)
	if err != nil || !private {
		t.Fatalf("first hop: private %v, %v", private, err)
	}
	resp.Body.Close()
}

func TestRedirectsAndToken(t *testing.T) {
	var second *httptest.Server
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("the first server got the token %q", r.Header.Get("Authorization"))
		}
		switch r.URL.Path {
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/end":
			io.WriteString(w, "end")
		default:
			http.Redirect(w, r, second.URL, http.StatusTemporaryRedirect)
		}
	}))
	defer first.Close()
	second = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a := r.Header.Get("Authorization"); a != "" {
			t.Errorf("the second server got the token %q", a)
		}
		io.WriteString(w, "end")
	}))
	defer second.Close()
	w, err := newWeb(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	base, err := url.Parse(first.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"other", "same"} {
		text, _, err := w.getSmall(context.Background(), request{url: base.JoinPath(path), token: "secret"}, 100)
		if err != nil || string(text) != "end" {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
	if _, _, err := w.getSmall(context.Background(), request{url: base.JoinPath("loop"), token: "secret"}, 100); err == nil || !strings.Contains(err.Error(), "more than 5 redirects") {
		t.Errorf("a loop: %v", err)
	}
	if _, _, err := w.getSmall(context.Background(), request{url: base.JoinPath("end"), token: "secret"}, 2); err == nil || !strings.Contains(err.Error(), "more than 2 B") {
		t.Errorf("over the limit: %v", err)
	}
}

func TestStalledBody(t *testing.T) {
	hang := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "some")
		w.(http.Flusher).Flush()
		<-hang
	}))
	defer srv.Close()
	defer close(hang)
	w, err := newWeb(&Config{})
	if err != nil {
		t.Fatal(err)
	}
	w.stall = 50 * time.Millisecond
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := w.get(context.Background(), request{url: u})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, errStalled) {
		t.Errorf("got %v, want errStalled", err)
	}
}

func TestUnreachable(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	s, _ := newStore(t, func(c *Config) { c.OllamaRegistry = srv.URL })
	_, err := s.Pull(context.Background(), "m", nil)
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "tandem pull ./model.gguf") || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v", err)
	}
}
