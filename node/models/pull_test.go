package models

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/node/models/gguf/gguftest"
)

// server is an Ollama registry and a Hugging Face endpoint in one. Handlers are
// by path; files are served with ranges.
type server struct {
	*httptest.Server
	mux   paths
	mu    sync.Mutex
	asked []string // method, path and range of each request
}

// paths maps a path, or the beginning of one that ends in /, to its handler.
type paths map[string]http.Handler

func (p paths) Handle(path string, h http.Handler)         { p[path] = h }
func (p paths) HandleFunc(path string, h http.HandlerFunc) { p[path] = h }

func (p paths) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := p[r.URL.Path]
	if h == nil {
		h = p[r.URL.Path[:strings.LastIndexByte(r.URL.Path, '/')+1]]
	}
	if h == nil {
		h = http.NotFoundHandler()
	}
	h.ServeHTTP(w, r)
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{mux: paths{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, strings.TrimSpace(r.URL.Path+" "+r.Header.Get("Range")))
		s.mu.Unlock()
		s.mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) requests(part string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, a := range s.asked {
		if strings.Contains(a, part) {
			n++
		}
	}
	return n
}

// text answers path with a fixed body.
func (s *server) text(path string, body []byte) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { w.Write(body) })
}

// file serves data with ranges and an ETag.
func (s *server) file(path string, data []byte) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"`+sum(data)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
}

// model offers library/NAME:latest with one layer of weights.
func (s *server) model(name string, data []byte) {
	s.text("/v2/library/"+name+"/manifests/latest", ollamaJSON(layer(mediaModel, sum(data), len(data))))
	s.file("/v2/library/"+name+"/blobs/sha256:"+sum(data), data)
}

func (s *server) store(t *testing.T) *Store {
	t.Helper()
	st, _ := newStore(t, func(c *Config) { c.OllamaRegistry, c.HubEndpoint, c.HubToken = s.URL, s.URL, "secret" })
	return st
}

func TestPullFromRegistry(t *testing.T) {
	srv := newServer(t)
	license := []byte("Apache License\nVersion 2.0\n")
	srv.text("/v2/library/smol/manifests/135m", ollamaJSON(layer(mediaModel, sum(tiny()), len(tiny())), layer(mediaLicense, sum(license), len(license))))
	srv.text("/v2/library/smol/blobs/sha256:"+sum(license), license)
	cdn := newServer(t)
	cdn.file("/data", tiny())
	srv.mux.Handle("/v2/library/smol/blobs/sha256:"+sum(tiny()), http.RedirectHandler(cdn.URL+"/data?signature=x", http.StatusTemporaryRedirect))
	s := srv.store(t)

	var steps []Progress
	m, err := s.Pull(context.Background(), "smol:135m", func(p Progress) { steps = append(steps, p) })
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "smol:135m" || m.Source != Own || m.Digest != sum(tiny()) || m.License != "Apache License" || m.Size != int64(len(tiny())) {
		t.Errorf("got %+v", m)
	}
	if got, err := s.Resolve("smol:135m"); err != nil || got.Path != m.Path {
		t.Errorf("resolves to %+v, %v", got, err)
	}
	var statuses []string
	for _, p := range steps {
		if n := len(statuses); n == 0 || statuses[n-1] != p.Status {
			statuses = append(statuses, p.Status)
		}
	}
	want := "pulling manifest, pulling " + sum(tiny())[:12] + ", verifying sha256 digest, writing manifest, success"
	if got := strings.Join(statuses, ", "); got != want {
		t.Errorf("progress %s, want %s", got, want)
	}
	if _, err := s.Pull(context.Background(), "library/smol:135m", nil); err != nil {
		t.Errorf("again: %v", err)
	}
	if n := cdn.requests("/data"); n != 1 {
		t.Errorf("the file was asked for %d times", n)
	}
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPullFromHub(t *testing.T) {
	srv := newServer(t)
	entry := func(path string, data []byte) string {
		return fmt.Sprintf(`{"type":"file","path":%q,"size":%d,"lfs":{"oid":%q,"size":%d}}`, path, len(data), sum(data), len(data))
	}
	srv.mux.HandleFunc("/api/models/org/repo/tree/main", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		if r.URL.Query().Get("cursor") == "" {
			w.Header().Set("Link", `<`+srv.URL+`/api/models/org/repo/tree/main?recursive=true&cursor=2>; rel="next"`)
			io.WriteString(w, "["+entry("m-Q8_0.gguf", other())+`,{"type":"file","path":"README.md","size":5}]`)
			return
		}
		io.WriteString(w, "["+entry("sub dir/m-Q4_K_M.gguf", tiny())+","+entry("mmproj-F16.gguf", tiny())+","+entry("m-Q2_K-00001-of-00002.gguf", tiny())+"]")
	})
	srv.file("/org/repo/resolve/main/m-Q8_0.gguf", other())
	srv.file("/org/repo/resolve/main/sub dir/m-Q4_K_M.gguf", tiny())
	s := srv.store(t)
	ctx := context.Background()
	if m, err := s.Pull(ctx, "hf.co/org/repo", nil); err != nil || m.Name != "hf.co/org/repo:Q4_K_M" || m.Digest != sum(tiny()) {
		t.Errorf("without a quantisation: %+v, %v", m, err)
	}
	if m, err := s.Pull(ctx, "https://huggingface.co/org/repo:q8_0", nil); err != nil || m.Name != "hf.co/org/repo:Q8_0" || m.Info.Architecture != "qwen3" {
		t.Errorf("Q8_0: %+v, %v", m, err)
	}
	if m, err := s.Resolve("hf.co/org/repo"); err != nil || m.Name != "hf.co/org/repo:Q4_K_M" {
		t.Errorf("resolves to %+v, %v", m, err)
	}
	if err := s.Delete("hf.co/org/repo"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting without saying which: %v", err)
	}
	if _, err := s.Pull(ctx, "hf.co/org/repo:Q2_K", nil); err == nil || !strings.Contains(err.Error(), "split") || !strings.Contains(err.Error(), "Q4_K_M, Q8_0") {
		t.Errorf("split files: %v", err)
	}
	if _, err := s.Pull(ctx, "hf.co/org/repo:Q6_K", nil); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "Q4_K_M, Q8_0") {
		t.Errorf("a quantisation that is not there: %v", err)
	}
	if _, err := s.Pull(ctx, "hf.co/org/none", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("a repository that is not there: %v", err)
	}
}

func TestPullURL(t *testing.T) {
	srv := newServer(t)
	srv.file("/dir/My Model.gguf", tiny())
	s := srv.store(t)
	ctx := context.Background()
	m, err := s.Pull(ctx, srv.URL+"/dir/My%20Model.gguf?token=secret#x", nil)
	if err != nil || m.Name != "My-Model" || m.Digest != sum(tiny()) {
		t.Fatalf("got %+v, %v", m, err)
	}
	text, err := os.ReadFile(s.manifestPath(fileName("My Model.gguf")))
	if err != nil || bytes.Contains(text, []byte("secret")) {
		t.Errorf("manifest %s, %v", text, err)
	}
	srv.file("/other/My Model.gguf", other())
	if _, err := s.Pull(ctx, srv.URL+"/other/My%20Model.gguf", nil); err == nil || !strings.Contains(err.Error(), "here already") {
		t.Errorf("another file of that name: %v", err)
	}
	for _, bad := range []string{
		"http://example.com/m.gguf", "ftp://example.com/m.gguf", "file:///etc/passwd", "https://u:p@example.com/m.gguf", "https://example.com/m.txt",
		"https://example.com/", "https:///m.gguf", "https://example.com/m-00001-of-00002.gguf", "https://" + strings.Repeat("a", 3000), "http://127.0.0.1.example.com/m.gguf",
	} {
		if _, err := s.Pull(ctx, bad, nil); !errors.Is(err, ErrBadName) {
			t.Errorf("%s: got %v, want ErrBadName", clip(bad), err)
		}
	}
}

// cutAfter serves data but ends the connection after n bytes of each answer.
func cutAfter(data []byte, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := 0
		status := http.StatusOK
		if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &start); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, len(data)-1, len(data)))
			status = http.StatusPartialContent
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)-start))
		w.WriteHeader(status)
		end := min(start+n, len(data))
		w.Write(data[start:end])
		if end < len(data) {
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

func TestPullResumesAfterCuts(t *testing.T) {
	srv := newServer(t)
	srv.text("/v2/library/m/manifests/latest", ollamaJSON(layer(mediaModel, sum(tiny()), len(tiny()))))
	srv.mux.HandleFunc("/v2/library/m/blobs/", cutAfter(tiny(), 50_000))
	s := srv.store(t)
	m, err := s.Pull(context.Background(), "m", nil)
	if err != nil || m.Digest != sum(tiny()) {
		t.Fatalf("got %+v, %v", m, err)
	}
	if n := srv.requests("/blobs/"); n != (len(tiny())+49_999)/50_000 {
		t.Errorf("%d requests", n)
	}
}

// TestPullResumesLater cancels a download and goes on with another store on the
// same folder.
func TestPullResumesLater(t *testing.T) {
	srv := newServer(t)
	part := make(chan struct{})
	first := true
	serve := func(w http.ResponseWriter, r *http.Request) {
		if !first {
			w.Header().Set("ETag", `"v1"`)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(tiny()))
			return
		}
		first = false
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(tiny())))
		w.Write(tiny()[:100_000])
		w.(http.Flusher).Flush()
		close(part)
		<-r.Context().Done()
	}
	srv.mux.HandleFunc("/f.gguf", serve)
	s := srv.store(t)
	ctx, cancel := context.WithCancel(context.Background())
	stop := errors.New("the user has left")
	cancelled := make(chan error, 1)
	withCause, cause := context.WithCancelCause(ctx)
	defer cancel()
	go func() {
		_, err := s.Pull(withCause, srv.URL+"/f.gguf", nil)
		cancelled <- err
	}()
	<-part
	path := filepath.Join(s.cfg.Dir, "partial", source{request: request{url: mustURL(t, srv.URL+"/f.gguf")}}.id())
	waitFor(t, func() bool { info, err := os.Stat(path); return err == nil && info.Size() == 100_000 })
	cause(stop)
	if err := <-cancelled; !errors.Is(err, stop) {
		t.Fatalf("got %v, want the cause", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	m, err := again.Pull(context.Background(), srv.URL+"/f.gguf", nil)
	if err != nil || m.Digest != sum(tiny()) {
		t.Fatalf("got %+v, %v", m, err)
	}
	if srv.requests("/f.gguf bytes=100000-") != 1 {
		t.Errorf("asked for %v", srv.asked)
	}
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	r, err := parseRef(s)
	if err != nil {
		t.Fatal(err)
	}
	return r.url
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, holds func() bool) {
	t.Helper()
	const patience = 30 * time.Second
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("this has not come about in %v", patience)
		}
	}
}

// TestPullOfChangedFile has a part of another version of the file, or one that
// does not fit, and must not mix them.
func TestPullOfChangedFile(t *testing.T) {
	for _, tc := range []struct{ name, etag, state string }{
		{"another version", `"v1"`, `{"etag":"\"old\"","size":372640}`},
		{"no version", `"v1"`, ``},
		{"a weak version", `W/"v1"`, `{"etag":"W/\"v1\"","size":372640}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := newServer(t)
			srv.mux.HandleFunc("/f.gguf", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", tc.etag)
				http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(tiny()))
			})
			s := srv.store(t)
			path := filepath.Join(s.cfg.Dir, "partial", source{request: request{url: mustURL(t, srv.URL+"/f.gguf")}}.id())
			write(t, path, bytes.Repeat([]byte("old "), 1000))
			if tc.state != "" {
				write(t, path+".json", []byte(tc.state))
			}
			m, err := s.Pull(context.Background(), srv.URL+"/f.gguf", nil)
			if err != nil || m.Digest != sum(tiny()) {
				t.Errorf("got %+v, %v", m, err)
			}
		})
	}
}

func TestPullWithoutRoom(t *testing.T) {
	srv := newServer(t)
	srv.model("m", tiny())
	s := srv.store(t)
	s.free = func(string) (int64, error) { return reserveBytes + int64(len(tiny())) - 1, nil }
	_, err := s.Pull(context.Background(), "m", nil)
	var full *SpaceError
	if !errors.As(err, &full) || full.Need != reserveBytes+int64(len(tiny())) {
		t.Errorf("got %v, want a SpaceError with the need", err)
	}
	s.free = func(string) (int64, error) { return reserveBytes + int64(len(tiny())), nil }
	if _, err := s.Pull(context.Background(), "m", nil); err != nil {
		t.Errorf("with just enough room: %v", err)
	}
}

func TestPullIsShared(t *testing.T) {
	srv := newServer(t)
	srv.text("/v2/library/m/manifests/latest", ollamaJSON(layer(mediaModel, sum(tiny()), len(tiny()))))
	release := make(chan struct{})
	var files atomic.Int32
	srv.mux.HandleFunc("/v2/library/m/blobs/", func(w http.ResponseWriter, r *http.Request) {
		files.Add(1)
		<-release
		w.Write(tiny())
	})
	s := srv.store(t)
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	results := make(chan error, 4)
	for range cap(results) {
		go func() {
			m, err := s.Pull(context.Background(), "m", nil)
			if err == nil && m.Name != "m:latest" {
				err = fmt.Errorf("got %+v", m)
			}
			results <- err
		}()
	}
	left, leave := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() {
		_, err := s.Pull(left, "m", nil)
		gone <- err
	}()
	waitFor(t, func() bool { return s.waiting("m:latest") == 5 && files.Load() == 1 })
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the one who left got %v", err)
	}
	free()
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := files.Load(); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

// waiting is how many callers wait for a download.
func (s *Store) waiting(key string) int {
	s.pulls.mu.Lock()
	defer s.pulls.mu.Unlock()
	t := s.pulls.running[key]
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.waiters
}

func TestPullAfterAbandoned(t *testing.T) {
	srv := newServer(t)
	srv.text("/v2/library/m/manifests/latest", ollamaJSON(layer(mediaModel, sum(tiny()), len(tiny()))))
	started := make(chan struct{}, 10)
	srv.mux.HandleFunc("/v2/library/m/blobs/", func(w http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		if len(started) == 1 {
			<-r.Context().Done()
			return
		}
		w.Write(tiny())
	})
	s := srv.store(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := s.Pull(ctx, "m", nil)
		done <- err
	}()
	waitFor(t, func() bool { return len(started) == 1 })
	cancel()
	<-done
	// This one may find the abandoned download on its way out.
	if m, err := s.Pull(context.Background(), "m", nil); err != nil || m.Digest != sum(tiny()) {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestPullsTakeTurns(t *testing.T) {
	srv := newServer(t)
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	var now, most atomic.Int32
	for i := range 5 {
		m := gguftest.Llama()
		m.Seed = uint64(100 + i)
		data, name := m.Bytes(), fmt.Sprintf("m%d", i)
		srv.text("/v2/library/"+name+"/manifests/latest", ollamaJSON(layer(mediaModel, sum(data), len(data))))
		srv.mux.HandleFunc("/v2/library/"+name+"/blobs/", func(w http.ResponseWriter, r *http.Request) {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-release
			now.Add(-1)
			w.Write(data)
		})
	}
	s := srv.store(t)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			if _, err := s.Pull(context.Background(), fmt.Sprintf("m%d", i), nil); err != nil {
				t.Error(err)
			}
		})
	}
	waitFor(t, func() bool { return now.Load() == concurrentPulls })
	free()
	wg.Wait()
	if n := most.Load(); n != concurrentPulls {
		t.Errorf("%d downloads at once, want %d", n, concurrentPulls)
	}
}

// TestPullSameFileTwice pulls two names of one file at the same time.
func TestPullSameFileTwice(t *testing.T) {
	srv := newServer(t)
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	var files atomic.Int32
	for _, name := range []string{"a", "b"} {
		srv.text("/v2/library/"+name+"/manifests/latest", ollamaJSON(layer(mediaModel, sum(tiny()), len(tiny()))))
		srv.mux.HandleFunc("/v2/library/"+name+"/blobs/", func(w http.ResponseWriter, r *http.Request) {
			files.Add(1)
			<-release
			w.Write(tiny())
		})
	}
	s := srv.store(t)
	results := make(chan error, 2)
	for _, name := range []string{"a", "b"} {
		go func() {
			_, err := s.Pull(context.Background(), name, nil)
			results <- err
		}()
	}
	waitFor(t, func() bool { return files.Load() == 1 && srv.requests("/manifests/") == 2 })
	free()
	for range cap(results) {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := files.Load(); n != 1 {
		t.Errorf("downloaded %d times", n)
	}
}

// TestPullLocked finds the part in the hands of another process.
func TestPullLocked(t *testing.T) {
	srv := newServer(t)
	srv.model("m", tiny())
	s := srv.store(t)
	f, err := os.Create(filepath.Join(s.cfg.Dir, "partial", sum(tiny())))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if ok, err := lockFile(f); !ok || err != nil {
		t.Fatalf("lock: %v, %v", ok, err)
	}
	if _, err := s.Pull(context.Background(), "m", nil); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsPulls(t *testing.T) {
	srv := newServer(t)
	srv.text("/v2/library/m/manifests/latest", ollamaJSON(layer(mediaModel, sum(tiny()), len(tiny()))))
	started := make(chan struct{})
	srv.mux.HandleFunc("/v2/library/m/blobs/", func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	})
	s := srv.store(t)
	done := make(chan error, 1)
	go func() {
		_, err := s.Pull(context.Background(), "m", nil)
		done <- err
	}()
	<-started
	s.Close()
	if err := <-done; !errors.Is(err, errClosed) {
		t.Errorf("got %v, want errClosed", err)
	}
	if _, err := s.Pull(context.Background(), "m", nil); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestContentRange(t *testing.T) {
	for _, tc := range []struct {
		in           string
		start, whole int64
		ok           bool
	}{
		{"bytes 5-9/10", 5, 10, true}, {"bytes 5-9/*", 5, -1, true}, {"bytes 0-0/1", 0, 1, true},
		{"", 0, 0, false}, {"bytes */10", 0, 0, false}, {"bytes -5-9/10", 0, 0, false}, {"bytes 5-9/x", 0, 0, false}, {"items 5-9/10", 0, 0, false},
		{"bytes 5-9/3", 0, 0, false}, {"bytes 99999999999999999999-9/10", 0, 0, false},
	} {
		start, whole, ok := contentRange(tc.in)
		if ok != tc.ok || ok && (start != tc.start || whole != tc.whole) {
			t.Errorf("%q: %d, %d, %v", tc.in, start, whole, ok)
		}
	}
}
