package api

import (
	"context"
	"net/http"
	"strings"
)

// pull serves /api/pull.
func (s *Server) pull(w http.ResponseWriter, r *http.Request) {
	o, ok := s.readObject(w, r)
	if !ok {
		return
	}
	ref := o.pullRef()
	streamed := true
	o.flag("stream", &streamed)
	o.unsupported("insecure", "is not supported: downloads are always verified", "false")
	o.unsupported("username", "is not supported", `""`)
	o.unsupported("password", "is not supported", `""`)
	if !s.checked(w, o) {
		return
	}
	s.withProgress(w, r, streamed, func(ctx context.Context, report func(any)) error {
		return s.cfg.Library.Pull(ctx, ref, func(p PullProgress) { report(ollamaProgress(p)) })
	})
}

// pullRef reads what to download: a name or an https address. Paths of this
// machine are for its owner, not for clients.
func (o *object) pullRef() string {
	field := "model"
	if o.find(field) == nil {
		field = "name"
	}
	var ref string
	if o.text(field, &ref, MaxPullRef); !strings.HasPrefix(ref, "https://") {
		return o.ollamaModel()
	}
	if strings.ContainsFunc(ref, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) || strings.Contains(ref, "..") {
		o.bad(field, "%q is not an address that a model can be downloaded from", clip(ref, 100))
	}
	return ref
}

type ollamaProgress struct {
	Status    string `json:"status"`
	Digest    string `json:"digest,omitempty"`
	Total     int64  `json:"total,omitempty"`
	Completed int64  `json:"completed,omitempty"`
}

// withProgress runs work that reports what it does. The stream opens with the first
// report, so what fails before that is refused with a status. If the client leaves,
// the work's context ends.
func (s *Server) withProgress(w http.ResponseWriter, r *http.Request, streamed bool, work func(context.Context, func(any)) error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	var out *stream
	report := func(v any) {
		if !streamed {
			return
		}
		if out == nil {
			out = newStream(w, "application/x-ndjson", s.cfg.WriteTimeout, 0, cancel)
		}
		line, _ := marshal(v) // strings and numbers only
		_ = out.append(func(b []byte) []byte { return append(b, line...) })
	}
	defer func() {
		if out != nil {
			out.close()
		}
	}()
	err := work(ctx, report)
	armWrite(w, s.cfg.WriteTimeout)
	if err == nil && streamed {
		report(ollamaProgress{Status: "success"})
		return
	}
	if err == nil {
		writeJSON(w, http.StatusOK, ollamaProgress{Status: "success"})
		return
	}
	switch e := s.explain(w, err); {
	case out != nil:
		report(ollamaError{e.Message})
	case e.Status != statusClientGone:
		refuseOllama(w, e)
	}
}

// create serves /api/create: a model under a new name, from another or from an
// uploaded file.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	o, ok := s.readObject(w, r)
	if !ok {
		return
	}
	c := CreateModel{Name: o.ollamaModel()}
	if o.text("from", &c.From, MaxBody); c.From != "" && !validModelName(c.From) {
		o.bad("from", "%q is not a name that a model can have", clip(c.From, 100))
	}
	o.files(&c)
	if c.From == "" && len(c.Files) == 0 {
		o.bad("from", "one of from and files is required")
	}
	if c.From != "" && len(c.Files) > 0 {
		o.bad("files", "cannot be combined with from")
	}
	streamed := true
	o.flag("stream", &streamed)
	o.refuseModelfile()
	if !s.checked(w, o) {
		return
	}
	s.withProgress(w, r, streamed, func(ctx context.Context, report func(any)) error {
		err := s.cfg.Library.Create(ctx, c)
		if err == nil {
			report(ollamaProgress{Status: "model created"})
		}
		return err
	})
}

// files reads the uploaded files of a model by name and digest.
func (o *object) files(c *CreateModel) {
	files := o.child("files")
	if files == nil {
		return
	}
	if len(files.members) > MaxFiles {
		o.bad("files", "has more than %d files", MaxFiles)
		return
	}
	c.Files = map[string]string{}
	for _, m := range files.members {
		var digest string
		files.text(m.name, &digest, MaxIdentifier)
		if !validNamePart(m.name) || len(m.name) > MaxModelName {
			o.bad("files", "%q is not a file name of letters, digits and . _ + -", clip(m.name, 100))
		}
		if !validDigest(digest) {
			o.bad("files", "the digest of %q must be sha256: and 64 hex digits", clip(m.name, 100))
		}
		c.Files[m.name] = digest
	}
}

// refuseModelfile meets what only a Modelfile of Ollama can change.
func (o *object) refuseModelfile() {
	const why = "is not supported: a model is its GGUF file as it is; send such settings with requests"
	for _, name := range []string{"template", "system", "quantize", "quantization", "modelfile", "path", "renderer", "parser", "requires", "remote_host"} {
		o.unsupported(name, why, `""`)
	}
	for _, name := range []string{"parameters", "adapters", "info"} {
		o.unsupported(name, why, "{}")
	}
	for _, name := range []string{"license", "messages"} {
		o.unsupported(name, why, "[]", `""`)
	}
}

// digestOf is the digest in the path of a blob.
func digestOf(w http.ResponseWriter, r *http.Request) (string, bool) {
	digest := r.PathValue("digest")
	if !validDigest(digest) {
		refuseOllama(w, BadRequest("digest", "digest: %q must be sha256: and 64 hex digits", clip(digest, 100)))
		return "", false
	}
	return digest, true
}

// hasBlob serves HEAD /api/blobs/{digest}.
func (s *Server) hasBlob(w http.ResponseWriter, r *http.Request) {
	digest, ok := digestOf(w, r)
	if !ok {
		return
	}
	if !s.cfg.Library.HasBlob(digest) {
		refuseOllama(w, &Error{Status: http.StatusNotFound, Message: "there is no such blob"})
		return
	}
	w.WriteHeader(http.StatusOK)
}

// putBlob serves POST /api/blobs/{digest}.
func (s *Server) putBlob(w http.ResponseWriter, r *http.Request) {
	digest, ok := digestOf(w, r)
	if !ok {
		return
	}
	if err := checkEncoding(r); err != nil {
		refuseOllama(w, s.explain(w, err))
		return
	}
	if r.ContentLength > MaxBlob {
		refuseOllama(w, errTooLarge(MaxBlob))
		return
	}
	body := s.pace(w, http.MaxBytesReader(w, r.Body, MaxBlob))
	err := s.cfg.Library.PutBlob(r.Context(), digest, body)
	body.done()
	s.done(w, err, http.StatusCreated)
}

// push serves /api/push, which a node cannot do.
func (s *Server) push(w http.ResponseWriter, _ *http.Request) {
	refuseOllama(w, &Error{Status: http.StatusNotImplemented, Message: "models cannot be pushed from this server to a registry"})
}
