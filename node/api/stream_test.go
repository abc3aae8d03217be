package api

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// open sends a streamed chat request on a connection of its own.
func (n *testNode) open(ctx context.Context) *http.Response {
	n.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", n.url+"/v1/chat/completions", strings.NewReader(chatBody(`"stream":true`)))
	if err != nil {
		n.t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { res.Body.Close() })
	return res
}

func TestHeadersComeWhenAccepted(t *testing.T) {
	n := start(t, Config{KeepAlive: 20 * time.Millisecond})
	var prefilled atomic.Bool
	release := make(chan struct{})
	n.generator.generate = func(_ context.Context, r *Request, out Sink) (Result, error) {
		out.Accepted(accepted())
		<-release // the prompt is being computed
		prefilled.Store(true)
		return Result{}, errors.Join(out.Delta(0, Delta{Content: "x"}), out.Finish(0, Finish{Reason: "stop"}))
	}
	res := n.open(t.Context())
	if res.StatusCode != 200 || prefilled.Load() {
		t.Fatalf("status %d, prefilled %v", res.StatusCode, prefilled.Load())
	}
	in := bufio.NewReader(res.Body)
	for range 3 {
		line, err := in.ReadString('\n')
		if err != nil || line != ": keep-alive\n" {
			t.Fatalf("got %q, %v, want a comment", line, err)
		}
		_, _ = in.ReadString('\n')
	}
	close(release)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("got %q, %v", rest, err)
	}
}

func TestClientThatLeavesIsCancelled(t *testing.T) {
	for _, when := range []string{"queued", "prefill", "decode"} {
		t.Run(when, func(t *testing.T) {
			n := start(t, Config{})
			reached, cause := make(chan struct{}), make(chan error, 1)
			n.generator.generate = func(ctx context.Context, r *Request, out Sink) (Result, error) {
				if when != "queued" {
					out.Accepted(accepted())
				}
				if when == "decode" {
					_ = out.Delta(0, Delta{Content: "x"})
				}
				close(reached)
				<-ctx.Done()
				cause <- context.Cause(ctx)
				return Result{Usage: Usage{PromptTokens: 5, CompletionTokens: 1}}, context.Cause(ctx)
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			body := chatBody(`"stream":true`)
			_, _ = io.WriteString(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "+string(appendInt(nil, len(body)))+"\r\n\r\n"+body)
			<-reached
			conn.Close()
			if err := <-cause; !errors.Is(err, context.Canceled) && !errors.Is(err, errStalled) {
				t.Errorf("cause: %v", err)
			}
			rec := n.records.next(t)
			if rec.Outcome != OutcomeCancelled || rec.PromptTokens != 5 || rec.CompletionTokens != 1 {
				t.Errorf("recorded as %+v", rec)
			}
		})
	}
}

// TestClientThatStopsReading also shows that what waits for it is bounded and that
// its request ends although the generator never looks at its context.
func TestClientThatStopsReading(t *testing.T) {
	n := start(t, Config{WriteTimeout: 200 * time.Millisecond})
	var written atomic.Int64
	n.generator.generate = func(_ context.Context, _ *Request, out Sink) (Result, error) {
		out.Accepted(accepted())
		text := strings.Repeat("token ", 200)
		for {
			if err := out.Delta(0, Delta{Content: text}); err != nil {
				return Result{}, err
			}
			if written.Add(int64(len(text))) > 256<<20 {
				return Result{}, errors.New("a client that does not read was sent 256 MiB")
			}
		}
	}
	res := n.open(t.Context())
	if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	rec := n.records.next(t) // nobody reads
	if rec.Outcome != OutcomeCancelled {
		t.Errorf("recorded as %+v", rec)
	}
	// The kernel's buffers of both sides and ours.
	if got, most := written.Load(), int64(16<<20); got > most {
		t.Errorf("%d bytes were taken for it, want at most %d", got, most)
	}
	if n.OpenStreams() != 0 {
		t.Errorf("%d streams are open", n.OpenStreams())
	}
}

func TestStalledWaitForThePromptIsCancelled(t *testing.T) {
	// Only the writer notices; the generator waits for its context.
	n := start(t, Config{WriteTimeout: 100 * time.Millisecond, KeepAlive: time.Millisecond})
	n.generator.generate = func(ctx context.Context, _ *Request, out Sink) (Result, error) {
		out.Accepted(accepted())
		_ = out.Delta(0, Delta{Content: strings.Repeat("x", 32<<20)}) // fills what the kernel takes
		<-ctx.Done()
		return Result{}, context.Cause(ctx)
	}
	n.open(t.Context())
	if rec := n.records.next(t); rec.Outcome != OutcomeCancelled {
		t.Errorf("recorded as %+v", rec)
	}
}

func TestDeadlineOfOneRequestDoesNotReachTheNext(t *testing.T) {
	n := start(t, Config{WriteTimeout: 50 * time.Millisecond})
	n.generator.generate = func(ctx context.Context, r *Request, out Sink) (Result, error) {
		timer := time.NewTimer(150 * time.Millisecond) // longer than the write timeout: not a write
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
		return say(r, out, "late")
	}
	var client http.Client
	for _, fields := range []string{"", `"stream":true`, "", `"stream":true`} {
		res, err := client.Post(n.url+"/v1/chat/completions", "application/json", strings.NewReader(chatBody(fields)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != 200 || !bytes.Contains(body, []byte("late")) {
			t.Fatalf("%d %s %v", res.StatusCode, body, err)
		}
	}
}

// slowWriter lets a test decide when a write ends.
type slowWriter struct {
	header http.Header
	writes chan string
	permit chan error
}

func (w *slowWriter) Header() http.Header { return w.header }
func (w *slowWriter) WriteHeader(int)     {}
func (w *slowWriter) Flush()              {}
func (w *slowWriter) Write(p []byte) (int, error) {
	w.writes <- string(p)
	return len(p), <-w.permit
}

func TestStreamGathersWhileTheWriterIsBusy(t *testing.T) {
	w := &slowWriter{http.Header{}, make(chan string, 10), make(chan error)}
	s := newStream(w, "text/plain", time.Second, 0, func(error) { t.Error("lost") })
	event := func(text string) {
		t.Helper()
		if err := s.append(func(b []byte) []byte { return append(b, text...) }); err != nil {
			t.Error(err)
		}
	}
	event("a")
	if got := <-w.writes; got != "a" {
		t.Errorf("first write: %q", got)
	}
	event("b")
	event("c")
	w.permit <- nil
	if got := <-w.writes; got != "bc" {
		t.Errorf("second write: %q", got)
	}
	w.permit <- nil
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestStreamBlocksItsProducer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &slowWriter{http.Header{}, make(chan string, 10), make(chan error)}
		lost := make(chan error, 1)
		s := newStream(w, "text/plain", time.Second, 0, func(err error) { lost <- err })
		fill := func(b []byte) []byte { return append(b, make([]byte, maxPending)...) }
		if err := s.append(fill); err != nil {
			t.Fatal(err)
		}
		<-w.writes // the writer has it
		if err := s.append(fill); err != nil {
			t.Fatal(err)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- s.append(fill) }()
		synctest.Wait()
		if len(blocked) > 0 {
			t.Error("a third was taken although two wait")
		}
		w.permit <- errors.New("broken pipe")
		if err := <-blocked; !errors.Is(err, errStalled) {
			t.Errorf("the producer got %v", err)
		}
		if err := <-lost; !errors.Is(err, errStalled) {
			t.Errorf("lost with %v", err)
		}
		if err := s.append(fill); !errors.Is(err, errStalled) {
			t.Errorf("afterwards: %v", err)
		}
		if err := s.close(); !errors.Is(err, errStalled) {
			t.Errorf("close: %v", err)
		}
	})
}

func TestKeepAliveComesInSilenceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		begin := time.Now()
		w := &recordingWriter{header: http.Header{}, wrote: func(p string) {
			if p == keepAliveComment {
				at = append(at, time.Since(begin))
			}
		}}
		s := newStream(w, "text/event-stream", time.Second, 10*time.Second, func(error) {})
		time.Sleep(25 * time.Second) // virtual: comments at 10 and 20
		for range 8 {                // a token every 4 s, at 25 to 53
			_ = s.append(func(b []byte) []byte { return append(b, 'x') })
			time.Sleep(4 * time.Second)
		}
		time.Sleep(10 * time.Second) // 57 to 67: one at 63
		if err := s.close(); err != nil {
			t.Error(err)
		}
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 63 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("comments at %v, want %v", at, want)
		}
	})
}

type recordingWriter struct {
	header http.Header
	wrote  func(string)
}

func (w *recordingWriter) Header() http.Header { return w.header }
func (w *recordingWriter) WriteHeader(int)     {}
func (w *recordingWriter) Flush()              {}
func (w *recordingWriter) Write(p []byte) (int, error) {
	w.wrote(string(p))
	return len(p), nil
}

func TestPullEndsWithTheClient(t *testing.T) {
	n := start(t, Config{})
	ended := make(chan error, 1)
	n.library.pull = func(ctx context.Context, _ string, progress func(PullProgress)) error {
		progress(PullProgress{Status: "pulling"})
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, "POST", n.url+"/api/pull", strings.NewReader(`{"model":"m"}`))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	res.Body.Close()
	if err := <-ended; err == nil {
		t.Error("no cause")
	}
}

func TestBodyEarnsTime(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	w := &deadlineRecorder{}
	p := New(Config{}).pace(w, server)
	go func() {
		_, _ = client.Write(make([]byte, 2*BodyRate))
		client.Close()
	}()
	if _, err := io.ReadFull(p, make([]byte, 2*BodyRate)); err != nil {
		t.Fatal(err)
	}
	if got := w.deadline.Sub(p.start); got < BodyGrace || got > BodyGrace+2*time.Second {
		t.Errorf("after %d bytes the deadline is %v after the start", 2*BodyRate, got)
	}
	p.done()
	if w.deadline.After(time.Now()) || w.deadline.IsZero() {
		t.Errorf("after a part of the body the deadline is %v", w.deadline)
	}
	_, _ = io.ReadAll(p)
	p.done()
	if !w.deadline.IsZero() {
		t.Errorf("after the whole body the deadline is %v", w.deadline)
	}
}

// TestTricklersAreCutOff: none of these may hold a connection for good.
func TestTricklersAreCutOff(t *testing.T) {
	n := start(t, Config{Keys: []Key{{Secret: "k"}}})
	n.bodyGrace = 50 * time.Millisecond
	post := func(path, key string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + key + "\r\nContent-Length: 100\r\n\r\n{"
	}
	for name, tc := range map[string]struct {
		request string
		status  int
	}{
		"body":               {post("/v1/chat/completions", "k"), 408},
		"body of a blob":     {post("/api/blobs/sha256:"+strings.Repeat("0", 64), "k"), 408},
		"body without a key": {post("/v1/chat/completions", "wrong"), 401},
		"body of no route":   {post("/nope", "k"), 404},
		"chunks":             {"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{", 408},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, tc.request)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err = io.Copy(io.Discard, in) // until the server closes
		if res.StatusCode != tc.status || err != nil {
			t.Errorf("%s: %d, want %d; then %v", name, res.StatusCode, tc.status, err)
		}
		conn.Close()
	}
}

type deadlineRecorder struct {
	http.ResponseWriter
	deadline time.Time
}

func (w *deadlineRecorder) SetReadDeadline(t time.Time) error {
	w.deadline = t
	return nil
}

func BenchmarkStreamedToken(b *testing.B) {
	s := newChatStream(&call{Request: Request{ID: "chatcmpl-ABCDEFGHIJKLMNOPQRSTUVWXYZ", N: 1}, fingerprint: "fp_tandem_1"}, accepted())
	d := Delta{Content: " token"}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = s.delta(buf[:0], 0, &d)
	}
}

// BenchmarkStreamOverHTTP is one token from Delta to the client's side of a socket.
func BenchmarkStreamOverHTTP(b *testing.B) {
	generator := &fakeGenerator{}
	s := New(Config{Generator: generator, Library: &fakeLibrary{}, Admin: &fakeAdmin{}, Loopback: true})
	generator.generate = func(_ context.Context, _ *Request, out Sink) (Result, error) {
		out.Accepted(accepted())
		for b.Loop() {
			if err := out.Delta(0, Delta{Content: " token"}); err != nil {
				return Result{}, err
			}
		}
		return Result{}, out.Finish(0, Finish{Reason: "stop"})
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := s.HTTPServer()
	go func() { _ = server.Serve(Listener(listener)) }()
	defer server.Close()
	b.ReportAllocs()
	res, err := http.Post("http://"+listener.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(chatBody(`"stream":true`)))
	if err != nil {
		b.Fatal(err)
	}
	n, err := io.Copy(io.Discard, res.Body)
	if err != nil || res.StatusCode != 200 || n == 0 {
		b.Fatal(res.Status, n, err)
	}
	res.Body.Close()
}
