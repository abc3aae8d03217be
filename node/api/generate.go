package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// dialect is how one endpoint reads requests and writes answers.
type dialect struct {
	endpoint string // label of metrics
	idPrefix string
	// decode reads a body. The call is never nil, so that a refused request can be
	// recorded with what was read.
	decode func(body []byte) (*call, error)
	refuse refusal

	media    string // of a stream
	comments bool   // a stream may hold comments
	stream   func(c *call, a Accepted) encoder
	whole    func(c *call, a Accepted, choices []choice, res Result) any
}

// encoder appends the events of one stream.
type encoder interface {
	delta(b []byte, choice int, d *Delta) []byte
	finish(b []byte, choice int, f Finish) []byte
	end(b []byte, res Result) []byte
	fail(b []byte, e *Error) []byte
}

// generate serves one generation request, from its body to its record.
func (s *Server) generate(d *dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		g := &generation{server: s, dialect: d, w: w, cancel: cancel, meter: newMeter(s.cfg.Now), call: &call{}}
		var res Result
		end := error(errInternal) // stands if what follows panics
		defer func() { g.record(ctx, res, end) }()

		err := g.read(r)
		if err == nil {
			err = s.takeAllowance(r.Context())
		}
		if err == nil {
			res, err = g.run(ctx)
		}
		end = g.answer(res, err)
	}
}

// generation is one request on its way. It is the sink of its own output.
type generation struct {
	server  *Server
	dialect *dialect
	w       http.ResponseWriter
	cancel  context.CancelCauseFunc
	meter   *meter
	call    *call

	accepted *Accepted // nil: it can still be refused
	stream   *stream   // nil: not asked for, or not accepted
	encoder  encoder   // of the stream
	choices  []choice  // without a stream
	status   int       // of the HTTP answer
}

// read decodes the request and completes it with what the server knows.
func (g *generation) read(r *http.Request) error {
	body, err := g.server.readBody(g.w, r)
	if err == nil {
		g.call, err = g.dialect.decode(body)
	}
	g.call.ID = g.dialect.idPrefix + rand.Text()
	g.call.Endpoint = g.dialect.endpoint
	g.call.Tenant = tenantOf(r.Context())
	g.call.fingerprint = g.server.fingerprint
	g.w.Header().Set(requestID, g.call.ID)
	setWarning(g.w, g.call.warnings, g.call.notes)
	return err
}

// run hands the request to the node. A panic behind the interface ends this
// request only.
func (g *generation) run(ctx context.Context) (res Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			g.server.panicked(g.call.Endpoint, g.call.ID, v, debug.Stack())
			err = errInternal
		}
	}()
	if err := g.server.fillEcho(ctx, g.call); err != nil {
		return Result{}, err
	}
	return g.server.cfg.Generator.Generate(ctx, &g.call.Request, g)
}

// fillEcho turns prompts of token ids into text if they are to be repeated.
func (s *Server) fillEcho(ctx context.Context, c *call) error {
	for i := range c.echo {
		if c.Prompts[i].Tokens == nil {
			continue
		}
		text, err := s.cfg.Generator.Detokenize(ctx, c.Model, c.Prompts[i].Tokens)
		if err != nil {
			return err
		}
		c.echo[i] = text
	}
	return nil
}

// Accepted implements Sink. A stream opens here, so that the client knows that its
// request was taken while the prompt is still being computed.
func (g *generation) Accepted(a Accepted) {
	if g.accepted != nil {
		return // the request was moved to another node; the client has its head
	}
	if a.Model == "" {
		a.Model = g.call.Model
	}
	g.accepted = &a
	g.headers(a)
	if !g.call.stream {
		g.choices = make([]choice, max(len(g.call.Prompts), 1)*g.call.N)
		return
	}
	interval := time.Duration(0)
	if g.dialect.comments {
		interval = g.server.cfg.KeepAlive
	}
	g.server.streams.Add(1)
	g.status = http.StatusOK
	g.encoder = g.dialect.stream(g.call, a)
	g.stream = newStream(g.w, g.dialect.media, g.server.cfg.WriteTimeout, interval, g.cancel)
}

func (g *generation) headers(a Accepted) {
	h := g.w.Header()
	set := func(name, value string) {
		if value != "" {
			h.Set(name, headerText(value, MaxWarning))
		}
	}
	set("X-Tandem-Node", a.Node)
	set("X-Tandem-Prefill", a.Prefill)
	set("X-Tandem-Reason", a.Reason)
	if a.Truncated > 0 {
		set("X-Tandem-Truncated", strconv.Itoa(a.Truncated))
	}
	setWarning(g.w, g.call.warnings, append(g.call.notes, a.Warnings...))
}

// Delta implements Sink.
func (g *generation) Delta(choice int, d Delta) error {
	g.meter.output(choice)
	if g.stream == nil {
		g.choices[choice].add(&d)
		return nil
	}
	return g.stream.append(func(b []byte) []byte { return g.encoder.delta(b, choice, &d) })
}

// Finish implements Sink.
func (g *generation) Finish(choice int, f Finish) error {
	g.meter.finish(f)
	if g.stream == nil {
		g.choices[choice].finish = f
		return nil
	}
	return g.stream.append(func(b []byte) []byte { return g.encoder.finish(b, choice, f) })
}

// answer writes what is left to be written, and returns how the request ended.
func (g *generation) answer(res Result, err error) error {
	if g.stream != nil {
		return g.closeStream(res, err)
	}
	armWrite(g.w, g.server.cfg.WriteTimeout)
	if err != nil {
		e := g.server.explain(g.w, err)
		if g.status = e.Status; e.Status != statusClientGone {
			g.dialect.refuse(g.w, e)
		}
		return err
	}
	a := Accepted{Model: g.call.Model, Created: g.meter.start}
	if g.accepted != nil {
		a = *g.accepted
	}
	g.status = http.StatusOK
	writeJSON(g.w, http.StatusOK, g.dialect.whole(g.call, a, g.choices, res))
	return nil
}

func (g *generation) closeStream(res Result, err error) error {
	defer g.server.streams.Add(-1)
	defer g.stream.close()
	last := func(b []byte) []byte { return g.encoder.end(b, res) }
	if err != nil {
		e := g.server.explain(g.w, err)
		last = func(b []byte) []byte { return g.encoder.fail(b, e) }
	}
	_ = g.stream.append(last)
	if lost := g.stream.close(); lost != nil && err == nil {
		err = lost
	}
	return err
}

func (g *generation) record(ctx context.Context, res Result, err error) {
	c := g.call
	r := RequestRecord{ID: c.ID, Endpoint: g.dialect.endpoint, Tenant: c.Tenant, Status: g.status, Stream: c.stream,
		Outcome:      g.meter.outcome(ctx, g.accepted != nil, err),
		PromptTokens: res.PromptTokens, CachedTokens: res.CachedTokens, CompletionTokens: res.CompletionTokens,
		Load: res.Load, Queue: res.Queue, Prefill: res.Prefill, Decode: res.Decode}
	if g.accepted != nil {
		r.Model = g.accepted.Model
	}
	allowanceOf(ctx).charge(g.server.cfg.Now(), res.PromptTokens+res.CompletionTokens)
	g.meter.record(&r)
	g.server.cfg.Observe(r)
}

// explain is asError, which keeps from the client what the log then has.
func (s *Server) explain(w http.ResponseWriter, err error) *Error {
	e := asError(err)
	if e == errInternal && !errors.Is(err, errInternal) {
		s.cfg.Logger.Error("request failed", "id", w.Header().Get(requestID), "error", err)
	}
	return e
}

// panicked counts and logs a panic.
func (s *Server) panicked(where, id string, v any, stack []byte) {
	s.panics.Add(1)
	s.cfg.Logger.Error("panic in a request", "where", where, "id", id, "panic", fmt.Sprint(v), "stack", string(stack))
}
