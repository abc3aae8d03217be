package api

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// KV is the store of kept KV blocks as the operator's routes see it. Ids are 32
// lower-case hexadecimal digits, which the routes have checked; "" stands for all
// blocks where a method says so. Values are encoded as JSON. Work ends soon after
// its context, with the cause.
type KV interface {
	// State tells what the tiers hold, what that spared, and of each model whether
	// its blocks are kept.
	State(ctx context.Context) any
	// Prefixes lists up to limit prefixes, those used last first.
	Prefixes(ctx context.Context, limit int) (any, error)
	// Pin protects a block and what leads to it from eviction, or ends that.
	Pin(ctx context.Context, id string, pinned bool) error
	// Evict deletes a block and what follows it; "": everything.
	Evict(ctx context.Context, id string) (any, error)
	// Verify reads and checks every block.
	Verify(ctx context.Context) (any, error)
	// Export writes a block, what leads to it and what follows it; "": everything.
	// An error before the first write is a refusal.
	Export(ctx context.Context, w io.Writer, id string) (any, error)
	// Import takes the blocks of a file that Export wrote. It reads r in pieces and
	// keeps none of it but the blocks.
	Import(ctx context.Context, r io.Reader) (any, error)
	// Compare computes a prompt cold and from blocks, and compares what follows.
	Compare(ctx context.Context, c CompareKV) (any, error)
}

// CompareKV asks for a comparison.
type CompareKV struct {
	Model    string // "": the node's default
	Tokens   int    // of the prompt; 0: the node's choice
	Generate int    // tokens to compare; 0: the node's choice
}

// kvResultTrailer carries the JSON of what an export wrote: it is known only after
// the blocks.
const kvResultTrailer = "X-Tandem-KV-Result"

// kvState serves GET /admin/kv.
func (s *Server) kvState(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, http.StatusOK, s.cfg.KV.State(r.Context()))
}

// kvPrefixes serves GET /admin/kv/prefixes?limit=.
func (s *Server) kvPrefixes(w http.ResponseWriter, r *http.Request) {
	limit, err := kvLimit(r.URL.Query().Get("limit"))
	s.adminAnswer(w, r, err, func(ctx context.Context) (any, error) { return s.cfg.KV.Prefixes(ctx, limit) })
}

func kvLimit(text string) (int, error) {
	if text == "" {
		return defaultKVPrefixes, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxKVPrefixes {
		return 0, BadRequest("limit", "limit: %q must be a whole number from 1 to %d", clip(text, 40), MaxKVPrefixes)
	}
	return n, nil
}

// kvPin serves POST /admin/kv/pin and /admin/kv/unpin.
func (s *Server) kvPin(pinned bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		o, err := s.adminBody(w, r)
		id := o.blockID("id")
		s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) {
			return map[string]any{"id": id, "pinned": pinned}, s.cfg.KV.Pin(ctx, id, pinned)
		})
	}
}

// kvEvict serves POST /admin/kv/evict. Everything has to be asked for in words, so
// that no id that got lost empties the store.
func (s *Server) kvEvict(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	var all bool
	id := ""
	if o.flag("all", &all); !all {
		id = o.blockID("id")
	} else if o.find("id") != nil {
		o.bad("id", "cannot be combined with all")
	}
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) { return s.cfg.KV.Evict(ctx, id) })
}

// kvVerify serves POST /admin/kv/verify.
func (s *Server) kvVerify(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	s.adminAnswer(w, r, o.end(w, err), s.cfg.KV.Verify)
}

// kvCompare serves POST /admin/kv/compare.
func (s *Server) kvCompare(w http.ResponseWriter, r *http.Request) {
	o, err := s.adminBody(w, r)
	var c CompareKV
	if raw := o.take("model"); raw != nil {
		c.Model = o.model("model")
	}
	o.integer("tokens", &c.Tokens, 2, MaxPromptTokens)
	o.integer("generate", &c.Generate, 1, MaxKVCompared)
	s.adminAnswer(w, r, o.end(w, err), func(ctx context.Context) (any, error) { return s.cfg.KV.Compare(ctx, c) })
}

// kvExport serves GET /admin/kv/export?id=. The answer is the file. What it holds
// comes as a trailer; if the export fails midway, the connection breaks off.
func (s *Server) kvExport(w http.ResponseWriter, r *http.Request) {
	id, err := "", error(nil)
	if query := r.URL.Query(); query.Has("id") {
		id, err = parseBlockID("id", query.Get("id"))
	}
	if err != nil {
		refuseOpenAI(w, s.explain(w, err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="tandem-`+fileWord(id)+`.kv"`)
	h.Set("Cache-Control", "no-store")
	h.Set("Trailer", kvResultTrailer)
	if r.Method == http.MethodHead {
		return
	}
	out := &pieceWriter{w: w, timeout: s.cfg.WriteTimeout}
	result, err := s.cfg.KV.Export(r.Context(), out, id)
	switch {
	case err != nil && out.begun:
		s.cfg.Logger.Warn("an export of KV blocks broke off", "id", h.Get(requestID), "error", err)
		panic(http.ErrAbortHandler)
	case err != nil:
		for _, name := range []string{"Content-Disposition", "Cache-Control", "Trailer"} {
			h.Del(name)
		}
		armWrite(w, s.cfg.WriteTimeout)
		refuseOpenAI(w, s.explain(w, err))
	default:
		line, _ := marshal(result) // strings and numbers only
		h.Set(kvResultTrailer, string(bytes.TrimSpace(line)))
	}
}

// fileWord is the part of a file's name that says what was exported.
func fileWord(id string) string {
	if id == "" {
		return "all"
	}
	return id[:12]
}

// pieceWriter writes in pieces, each of which the client must take within the write
// timeout: a block may be larger than what a slow line carries in that time.
type pieceWriter struct {
	w       http.ResponseWriter
	timeout time.Duration
	begun   bool
}

func (p *pieceWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var wrote int
		p.begun = true
		armWrite(p.w, p.timeout)
		wrote, err = p.w.Write(b[:min(len(b), maxPending)])
		n, b = n+wrote, b[wrote:]
	}
	return n, err
}

// kvImport serves POST /admin/kv/import. The body is a file that an export wrote.
func (s *Server) kvImport(w http.ResponseWriter, r *http.Request) {
	err := checkEncoding(r)
	if err == nil && r.ContentLength > MaxKVImport {
		err = errTooLarge(MaxKVImport)
	}
	s.adminAnswer(w, r, err, func(ctx context.Context) (any, error) {
		body := s.pace(w, http.MaxBytesReader(w, r.Body, MaxKVImport))
		defer body.done()
		result, err := s.cfg.KV.Import(ctx, body)
		if err == nil {
			_, _ = body.Read(make([]byte, 1)) // the end of the body, which the file's own end comes before
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return result, err
	})
}

// adminAnswer runs work unless there is a fault already, and answers with its value.
func (s *Server) adminAnswer(w http.ResponseWriter, r *http.Request, fault error, work func(context.Context) (any, error)) {
	var value any
	if fault == nil {
		value, fault = work(r.Context())
	}
	armWrite(w, s.cfg.WriteTimeout)
	if fault != nil {
		refuseOpenAI(w, s.explain(w, fault))
		return
	}
	writeJSON(w, http.StatusOK, value)
}

// adminBody opens the JSON object of a body; an empty body is an empty object. The
// object is never nil.
func (s *Server) adminBody(w http.ResponseWriter, r *http.Request) (*object, error) {
	body, err := s.readBody(w, r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		body = []byte("{}")
	}
	return decodeBody(body), err
}

// end ends the reading of a body that could be read unless err says otherwise: what
// is unknown is named, and the first fault returned.
func (o *object) end(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	o.rest()
	setWarning(w, o.unknown, nil)
	return o.err
}

// blockID reads the required id of a block.
func (o *object) blockID(name string) string {
	var text string
	if !o.text(name, &text, MaxBody) {
		o.bad(name, "is required: 32 hexadecimal digits, as /admin/kv/prefixes lists them")
		return ""
	}
	id, err := parseBlockID(o.param(name), text)
	if err != nil && o.err == nil {
		o.err = err
	}
	return id
}

// parseBlockID checks an id. The one of only zeros stands for no block.
func parseBlockID(param, text string) (string, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != blockIDBytes || bytes.Count(raw, []byte{0}) == blockIDBytes {
		return "", BadRequest(param, "%s: %q is not the id of a block; allowed: 32 hexadecimal digits, as /admin/kv/prefixes lists them", param, clip(text, 40))
	}
	return strings.ToLower(text), nil
}
