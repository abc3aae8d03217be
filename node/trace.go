package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Bounds of the export of traces.
const (
	traceExportTime = 5 * time.Second // of one batch
	traceCloseTime  = 3 * time.Second // of what is left at the end
	traceQuiet      = time.Minute     // between two lines in the log about a collector that does not answer
)

// tracer sends what was measured of each request to an OpenTelemetry collector. Spans
// are made when a request has ended, from its timeline, so requests wait for nothing;
// those that do not fit into the queue are dropped.
//
// The ids of a trace and of its root follow from the id of the request: what several
// nodes tell of one request becomes one trace, without a word between them.
type tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// tracesWanted says whether the environment asks for traces, by the variables that
// OpenTelemetry defines, and why not if it asks for what tandem does not have.
func tracesWanted(getenv func(string) string) (wanted bool, why string) {
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, ""
	}
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return false, ""
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return false, ""
	default:
		return false, "OTEL_TRACES_EXPORTER is " + exporter + "; allowed: otlp, none"
	}
	protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, "the protocol of OTEL_EXPORTER_OTLP_PROTOCOL is " + protocol + "; allowed: http/protobuf"
	}
	return true, ""
}

// newTracer makes a tracer if the environment asks for one, else nil. Where the
// collector is, what it is told beside and how much is sampled the SDK reads from the
// environment. A collector that does not answer does not keep a node from serving.
func newTracer(node, name string, log *slog.Logger) *tracer {
	wanted, why := tracesWanted(os.Getenv)
	if !wanted {
		if why != "" {
			log.Warn("no traces are sent: " + why)
		}
		return nil
	}
	exporter, err := otlptracehttp.New(context.Background()) // it connects later
	if err != nil {
		log.Warn("no traces are sent", "error", err)
		return nil
	}
	return traceTo(&quietExporter{SpanExporter: exporter, log: log}, node, name, log)
}

func traceTo(exporter sdktrace.SpanExporter, node, name string, log *slog.Logger) *tracer {
	// What the environment says comes last, so that it wins.
	res, err := resource.New(context.Background(), resource.WithAttributes(attribute.String("service.name", "tandem"), attribute.String("service.version", Version),
		attribute.String("service.instance.id", node), attribute.String("host.name", name)), resource.WithFromEnv())
	if err != nil {
		log.Warn("a part of OTEL_RESOURCE_ATTRIBUTES is not used", "error", err)
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithIDGenerator(requestIDs{}),
		sdktrace.WithBatcher(exporter, sdktrace.WithExportTimeout(traceExportTime)))
	return &tracer{provider: p, tracer: p.Tracer("tandem")}
}

// quietExporter tells the log, not too often, that a collector does not answer.
type quietExporter struct {
	sdktrace.SpanExporter
	log  *slog.Logger
	told atomic.Int64 // Unix nanoseconds
}

// ExportSpans implements sdktrace.SpanExporter. The error is told here: the SDK would
// print it past the node's log.
func (e *quietExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	now, told := time.Now().UnixNano(), e.told.Load()
	if err != nil && now-told > int64(traceQuiet) && e.told.CompareAndSwap(told, now) {
		e.log.Warn("traces could not be sent to the collector; the node goes on without", "spans", len(spans), "error", err)
	}
	return nil
}

// traceOf is the trace and the root span of a request.
func traceOf(id string) (t trace.TraceID, root trace.SpanID) {
	sum := sha256.Sum256([]byte("tandem trace\x00" + id))
	copy(t[:], sum[:])
	copy(root[:], sum[len(t):])
	return t, root
}

// requestIDs makes ids of spans: those of roots follow from the request in the context.
type requestIDs struct{}

type tracedRequest struct{}

func (requestIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := ctx.Value(tracedRequest{}).(string)
	return traceOf(id)
}

func (requestIDs) NewSpanID(context.Context, trace.TraceID) (id trace.SpanID) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// ended makes the spans of a request.
func (t *tracer) ended(r *RequestTimeline) {
	end := r.Began.Add(seconds(r.Seconds))
	ctx := context.WithValue(context.Background(), tracedRequest{}, r.ID)
	ctx, root := t.tracer.Start(ctx, r.Endpoint, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.Began))
	defer root.End(trace.WithTimestamp(end))
	if !root.IsRecording() {
		return
	}
	root.SetAttributes(attribute.String("tandem.request.id", r.ID), attribute.String("gen_ai.request.model", r.Model), attribute.String("tandem.outcome", r.Outcome),
		attribute.Int("http.response.status_code", r.Status), attribute.Int("gen_ai.usage.input_tokens", r.PromptTokens), attribute.Int("gen_ai.usage.output_tokens", r.CompletionTokens),
		attribute.Int("tandem.cached_tokens", r.CachedTokens), attribute.Float64("tandem.ttft_seconds", r.TTFTSeconds),
		attribute.String("tandem.node", r.Node), attribute.String("tandem.prefill_node", r.Prefill), attribute.String("tandem.reason", r.Reason))
	if r.Outcome == "error" {
		root.SetStatus(codes.Error, "the node failed")
	}
	for _, m := range r.Moves {
		root.AddEvent("moved", trace.WithAttributes(attribute.String("tandem.from", m.From), attribute.String("tandem.to", m.To), attribute.Int("tandem.tokens", m.Tokens), attribute.String("tandem.reason", m.Reason)))
	}
	// The parts follow each other. What they leave at the beginning was spent on
	// reading the request, its template and the choice of a node.
	at := end.Add(-seconds(r.LoadSeconds + r.QueueSeconds + r.PrefillSeconds + r.DecodeSeconds))
	if at.Before(r.Began) {
		at = r.Began
	}
	for _, part := range []struct {
		name    string
		seconds float64
	}{{"load", r.LoadSeconds}, {"queue", r.QueueSeconds}, {"prefill", r.PrefillSeconds}, {"decode", r.DecodeSeconds}} {
		if part.seconds <= 0 {
			continue
		}
		_, s := t.tracer.Start(ctx, part.name, trace.WithTimestamp(at))
		at = at.Add(seconds(part.seconds))
		s.End(trace.WithTimestamp(at))
	}
}

// moved makes the span of a transfer of KV, on the node that got the blocks: that may
// be another one than the client is connected to.
func (t *tracer) moved(f KVFetch) {
	if f.ID == "" {
		return
	}
	id, root := traceOf(f.ID)
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: root, TraceFlags: trace.FlagsSampled, Remote: true}))
	_, s := t.tracer.Start(ctx, "fetch", trace.WithTimestamp(f.Ended.Add(-seconds(f.Seconds))), trace.WithAttributes(
		attribute.String("tandem.from", f.From), attribute.String("tandem.transport", f.Transport), attribute.Int("tandem.blocks", f.Blocks),
		attribute.Int64("tandem.bytes", f.Bytes), attribute.Bool("tandem.computed_there", f.Made), attribute.Float64("tandem.estimate_seconds", f.Estimate), attribute.String("tandem.outcome", f.Outcome)))
	if f.Error != "" {
		s.SetStatus(codes.Error, f.Error)
	}
	s.End(trace.WithTimestamp(f.Ended))
}

// close sends what is left, for a bounded time. A nil tracer has nothing.
func (t *tracer) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceCloseTime)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // a collector that does not answer was told of already
}
