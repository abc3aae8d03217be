package api

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSoak sends good, bad and abandoned requests side by side. Each must leave one
// record, and nothing else.
func TestSoak(t *testing.T) {
	n := start(t, Config{WriteTimeout: 2 * time.Second, KeepAlive: time.Millisecond})
	n.generator.generate = func(ctx context.Context, r *Request, out Sink) (Result, error) {
		pieces := make([]string, 50)
		for i := range pieces {
			pieces[i] = strings.Repeat("x", 1+i%7)
		}
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		return say(r, out, pieces...)
	}
	bodies := []string{chatBody(""), chatBody(`"stream":true`), chatBody(`"stream":true,"n":3`), chatBody(`"n":0`), `{`}
	transport := &http.Transport{MaxIdleConnsPerHost: 8}
	const clients, each = 8, 50
	before := runtime.NumGoroutine()
	var reached sync.WaitGroup
	for c := range clients {
		reached.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(c)))
			for range each {
				ctx, cancel := context.WithCancel(t.Context())
				req, _ := http.NewRequestWithContext(ctx, "POST", n.url+"/v1/chat/completions", strings.NewReader(bodies[random.IntN(len(bodies))]))
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Error(err)
					cancel()
					continue
				}
				if random.IntN(3) == 0 {
					_, _ = io.CopyN(io.Discard, res.Body, random.Int64N(2000)) // and leaves
				} else {
					_, _ = io.Copy(io.Discard, res.Body)
				}
				cancel()
				res.Body.Close()
			}
		})
	}
	reached.Wait()
	for range clients * each {
		if rec := n.records.next(t); rec.Outcome == OutcomeError {
			t.Errorf("recorded as %+v", rec)
		}
	}
	transport.CloseIdleConnections()
	if n.OpenStreams() != 0 || len(n.records) != 0 {
		t.Errorf("%d streams are open, %d records too many", n.OpenStreams(), len(n.records))
	}
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before+2 {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		runtime.Gosched()
	}
}
