package node

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func TestTracesAreOffUnlessAskedFor(t *testing.T) {
	for _, tt := range []struct {
		env    map[string]string
		wanted bool
		why    bool
	}{
		{map[string]string{}, false, false},
		{map[string]string{"OTEL_SERVICE_NAME": "x"}, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, true, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, false, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "jaeger"}, false, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, false, true},
	} {
		if wanted, why := tracesWanted(func(name string) string { return tt.env[name] }); wanted != tt.wanted || (why != "") != tt.why {
			t.Errorf("%v: %v, %q", tt.env, wanted, why)
		}
	}
}

// What two nodes tell of one request is one trace with the times that were measured.
func TestSpansOfARequest(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	log := slog.New(slog.DiscardHandler)
	entry, other := traceTo(spans, "id-1", "n1", log), traceTo(spans, "id-2", "n2", log)
	now := time.Unix(1_700_000_100, 0)
	here, there := newTimelines(func() time.Time { return now }), newTimelines(func() time.Time { return now })
	here.ended, here.moved, there.moved = entry.ended, entry.moved, other.moved

	here.listen(RequestPlaced{ID: "r1", Model: "m", Decode: "n2", Prefill: "n3", Reason: "because"})
	there.listen(KVMoved{ID: "r1", From: "n3", Blocks: 4, Seconds: 2, Outcome: "complete"})
	now = now.Add(10 * time.Second)
	here.listen(RequestFinished{ID: "r1", Endpoint: "chat", Model: "m", Outcome: "stop", Status: 200, Seconds: 15, Queue: 3, Prefill: 4, Decode: 7})
	for _, tr := range []*tracer{entry, other} {
		if err := tr.provider.ForceFlush(context.Background()); err != nil {
			t.Fatal(err)
		}
	}

	byName := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		byName[s.Name] = s
	}
	entry.close()
	other.close()
	root := byName["chat"]
	id, span := traceOf("r1")
	if root.SpanContext.TraceID() != id || root.SpanContext.SpanID() != span || root.Parent.IsValid() || root.SpanKind != trace.SpanKindServer {
		t.Fatalf("the root is %+v", root)
	}
	ends := time.Unix(1_700_000_110, 0)
	for name, want := range map[string][2]time.Time{
		"chat": {ends.Add(-15 * time.Second), ends}, "queue": {ends.Add(-14 * time.Second), ends.Add(-11 * time.Second)},
		"prefill": {ends.Add(-11 * time.Second), ends.Add(-7 * time.Second)}, "decode": {ends.Add(-7 * time.Second), ends},
		"fetch": {time.Unix(1_700_000_098, 0), time.Unix(1_700_000_100, 0)},
	} {
		s, ok := byName[name]
		if !ok || !s.StartTime.Equal(want[0]) || !s.EndTime.Equal(want[1]) || s.SpanContext.TraceID() != id {
			t.Errorf("%s: %v to %v in trace %v; want %v", name, s.StartTime, s.EndTime, s.SpanContext.TraceID(), want)
		}
		if name != "chat" && s.Parent.SpanID() != span {
			t.Errorf("%s hangs on %v, not on the root", name, s.Parent.SpanID())
		}
	}
	if len(byName) != 5 {
		t.Errorf("%d kinds of spans", len(byName))
	}
}

// The real exporter, as the environment sets it up, reaches a collector; one that
// refuses costs a line in the log and nothing else.
func TestTracesReachACollector(t *testing.T) {
	got := make(chan int, 10)
	status := http.StatusOK
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := io.Reader(r.Body)
		if r.Header.Get("Content-Encoding") == "gzip" {
			body, _ = gzip.NewReader(r.Body)
		}
		data, _ := io.ReadAll(body)
		if r.URL.Path == "/v1/traces" {
			got <- len(data)
		}
		w.WriteHeader(status)
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	for _, status = range []int{http.StatusOK, http.StatusBadRequest} {
		warned := &byteCount{}
		tr := newTracer("id-1", "n1", slog.New(slog.NewTextHandler(warned, nil)))
		if tr == nil {
			t.Fatal("no tracer")
		}
		tr.ended(&RequestTimeline{ID: "r1", Endpoint: "chat", Began: time.Now(), Seconds: 1, DecodeSeconds: 1})
		tr.close()
		if n := <-got; n == 0 {
			t.Error("an empty batch came")
		}
		if (warned.n > 0) != (status != http.StatusOK) {
			t.Errorf("status %d: %d bytes of log", status, warned.n)
		}
	}
}

// byteCount counts what is written to it.
type byteCount struct{ n int }

func (c *byteCount) Write(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

var _ sdktrace.IDGenerator = requestIDs{}
