package api

import (
	"crypto/rand"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

// Config is what a Server is made of. Generator, Library, Admin, KV,
// Cluster and Calc are required; of the other fields zero is the default.
type Config struct {
	Generator Generator
	Library   Library
	Admin     Admin
	KV        KV
	Cluster   Cluster
	Calc      Calculator
	Nodes     Nodes
	// Page answers browsers at / and below /ui/, for everybody: it must hold no
	// data. nil: there is no page.
	Page http.Handler
	// Keys are the API keys. None: no key is asked for, and Host and Origin are checked
	// instead.
	Keys []Key
	// KeyAdmin revokes keys; nil: none can be.
	KeyAdmin KeyAdmin
	// Requests lists the requests that ended lately; nil: there is no such list.
	Requests func(after uint64, limit int) any
	// Loopback says that only this machine can connect. Without keys the Host of a
	// request must then name this machine.
	Loopback bool
	// AllowedHosts and AllowedOrigins are further ones to accept: "ai.example",
	// "https://chat.example". "*" accepts any, and with it every web page that a
	// browser in reach of the node has open.
	AllowedHosts   []string
	AllowedOrigins []string
	Version        string
	Slots          int // requests that one model answers at once; /props tells
	// WriteTimeout is how long a client may stop reading before its request is
	// cancelled; DefaultWriteTimeout if 0.
	WriteTimeout time.Duration
	// KeepAlive is the longest silence of an event stream; DefaultKeepAlive if 0.
	KeepAlive time.Duration
	// Observe is called once after each generation or embedding request, from the
	// request's goroutine; it must not block.
	Observe func(RequestRecord)
	// Audit is called after each call that changed something, or tried to; nil: nobody
	// is told. It must not block.
	Audit  func(AuditRecord)
	Now    func() time.Time // time.Now if nil
	Logger *slog.Logger     // nil: no log
}

// Server is the HTTP API of a node. It is an http.Handler; HTTPServer wraps it with
// the limits of connections.
type Server struct {
	cfg         Config
	mux         *http.ServeMux
	keys        keyring
	revoked     atomic.Pointer[map[string]bool] // names and fingerprints of keys
	guard       guard
	fingerprint string
	bodyGrace   time.Duration // BodyGrace; less in tests
	panics      atomic.Uint64
	streams     atomic.Int64
}

// New makes a server. It starts nothing.
func New(cfg Config) *Server {
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = DefaultWriteTimeout
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = DefaultKeepAlive
	}
	if cfg.Observe == nil {
		cfg.Observe = func(RequestRecord) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, keys: newKeyring(cfg.Keys), bodyGrace: BodyGrace, fingerprint: "fp_tandem_" + headerText(cfg.Version, MaxIdentifier)}
	s.guard = guard{keyless: len(cfg.Keys) == 0, loopback: cfg.Loopback, hosts: cfg.AllowedHosts, origins: cfg.AllowedOrigins}
	s.mux = s.routes()
	return s
}

// OpenStreams is how many answers are being streamed now.
func (s *Server) OpenStreams() int { return int(s.streams.Load()) }

// Panics is how many requests ended in a panic since the start.
func (s *Server) Panics() uint64 { return s.panics.Load() }

// HTTPServer is a server with s as its handler and limits on what a connection may
// take. The caller sets BaseContext, serves and closes it.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:                      s,
		ReadHeaderTimeout:            HeaderTimeout,
		IdleTimeout:                  IdleTimeout,
		MaxHeaderBytes:               MaxHeaderBytes,
		DisableGeneralOptionsHandler: true, // it would answer OPTIONS * without a key
		ErrorLog:                     slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
}

// Listener limits what the connections of l may take; HTTPServer serves it.
func Listener(l net.Listener) net.Listener {
	return netutil.LimitListener(smallBuffers{l}, MaxConnections)
}

// smallBuffers gives connections a small send buffer.
type smallBuffers struct{ net.Listener }

// Accept implements net.Listener.
func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(SendBuffer) // a larger one is no fault, only late
	}
	return c, err
}

// methods are the handlers of a route.
type methods map[string]http.HandlerFunc

// routes is the one list of what is served.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	get := func(h http.HandlerFunc) methods { return methods{http.MethodGet: h} }
	post := func(h http.HandlerFunc) methods { return methods{http.MethodPost: h} }
	for path, m := range map[string]methods{
		"/v1/chat/completions": post(s.generate(&openAIChat)),
		"/v1/completions":      post(s.generate(&openAICompletions)),
		"/v1/embeddings":       post(s.embed(&openAIEmbeddings)),
		"/v1/responses":        post(s.generate(&openAIResponses)),
		"/v1/models":           get(s.listModels),
		"/v1/models/{id...}":   get(s.getModel),

		"/v1/responses/input_tokens": post(s.count(&openAIResponses, decodeResponseTokens, responseTokens)),

		"/v1/messages":              post(s.generate(&anthropicMessages)),
		"/v1/messages/count_tokens": post(s.count(&anthropicMessages, decodeCountTokens, messageTokens)),

		"/api/chat":           post(s.generate(&ollamaChat)),
		"/api/generate":       post(s.generate(&ollamaGenerate)),
		"/api/embed":          post(s.embed(&ollamaEmbed)),
		"/api/embeddings":     post(s.embed(&ollamaEmbeddings)),
		"/api/tags":           get(s.tags),
		"/api/ps":             get(s.loaded),
		"/api/version":        get(s.version),
		"/api/show":           post(s.show),
		"/api/pull":           post(s.pull),
		"/api/push":           post(s.push),
		"/api/copy":           post(s.duplicate),
		"/api/create":         post(s.create),
		"/api/delete":         {http.MethodDelete: s.remove},
		"/api/blobs/{digest}": {http.MethodHead: s.hasBlob, http.MethodPost: s.putBlob},

		"/tokenize":   post(s.tokenize),
		"/detokenize": post(s.detokenize),
		"/props":      get(s.props),

		"/healthz":      get(s.live),
		"/livez":        get(s.live),
		"/health":       get(s.ready),
		"/readyz":       get(s.ready),
		"/metrics":      get(s.metrics),
		"/admin/status": get(s.adminStatus),
		"/admin/events": get(s.adminEvents),
		"/admin/calc":   get(s.calc),

		"/admin/cluster/drain":    post(s.clusterDrain),
		"/admin/cluster/recover":  post(s.clusterRecover),
		"/admin/cluster/spread":   post(s.clusterSpread),
		"/admin/cluster/settings": {http.MethodGet: s.clusterSettings, http.MethodPost: s.clusterSet},

		"/admin/cluster/events": get(s.clusterEvents),
		"/admin/cluster/join":   {http.MethodGet: s.clusterJoin, http.MethodPost: s.clusterJoin},
		"/admin/cluster/role":   post(s.clusterRole),
		"/admin/cluster/remove": post(s.clusterRemove),
		"/admin/models/load":    post(s.loadModel),
		"/admin/kv/fetch":       post(s.kvFetch),

		"/admin/nodes/{node}/{route...}": {http.MethodGet: s.elsewhere, http.MethodPost: s.elsewhere, http.MethodDelete: s.elsewhere},
		"/admin/keys":                    get(s.listKeys),
		"/admin/keys/revoke":             post(s.revokeKey(true)),
		"/admin/keys/unrevoke":           post(s.revokeKey(false)),
		"/admin/requests":                get(s.recentRequests),

		"/admin/kv":          get(s.kvState),
		"/admin/kv/prefixes": get(s.kvPrefixes),
		"/admin/kv/pin":      post(s.kvPin(true)),
		"/admin/kv/unpin":    post(s.kvPin(false)),
		"/admin/kv/evict":    post(s.kvEvict),
		"/admin/kv/verify":   post(s.kvVerify),
		"/admin/kv/compare":  post(s.kvCompare),
		"/admin/kv/export":   get(s.kvExport),
		"/admin/kv/import":   post(s.kvImport),

		"/{$}": get(s.root),
		"/ui":  get(s.toPage),
		"/ui/": get(s.page),
		"/":    nil,
	} {
		mux.HandleFunc(path, m.serve)
	}
	return mux
}

// serve picks the handler of a request's method. GET answers HEAD, too.
func (m methods) serve(w http.ResponseWriter, r *http.Request) {
	h := m[r.Method]
	if h == nil && r.Method == http.MethodHead {
		h = m[http.MethodGet]
	}
	switch {
	case h != nil:
		h(w, r)
	case len(m) > 0:
		m.refuse(w, r)
	default:
		notFound(w, r)
	}
}

func (m methods) refuse(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for name := range m {
		allowed = append(allowed, name)
	}
	slices.Sort(allowed)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	refusalFor(r.URL.Path)(w, &Error{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Code: "method_not_allowed",
		Message: "this route does not have the method " + headerText(r.Method, 20) + ", only " + strings.Join(allowed, ", ")})
}

func notFound(w http.ResponseWriter, r *http.Request) {
	refusalFor(r.URL.Path)(w, &Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url",
		Message: "there is no such route"})
}

// root answers browsers with the page, and clients of Ollama with what they look
// for.
func (s *Server) root(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	if s.cfg.Page != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
		s.cfg.Page.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("Ollama is running"))
}

func (s *Server) toPage(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, "/ui/", http.StatusPermanentRedirect)
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Page == nil {
		notFound(w, r)
		return
	}
	s.cfg.Page.ServeHTTP(w, r)
}

// ServeHTTP is what every request passes, in this order: the guard against foreign
// hosts and pages, CORS, the key, the one spelling of paths, the route.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tracked := &trackedWriter{ResponseWriter: w}
	defer s.recovered(tracked, r)
	// The deadline of the request before on this connection would still stand.
	armWrite(w, s.cfg.WriteTimeout)
	s.boundBody(w, r)
	dropInner(r.Header)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set(requestID, "req-"+rand.Text()) // generations put their own there
	refuse := refusalFor(r.URL.Path)

	if err := s.guard.check(r); err != nil {
		refuse(tracked, err)
		return
	}
	if s.guard.cors(tracked, r) {
		return
	}
	if !s.guard.keyless && !open(r) {
		k, err := s.admit(r)
		if k != nil {
			defer s.auditLater(tracked, r, k)()
		}
		if err != nil {
			if err.Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
			refuse(tracked, err)
			return
		}
		r = r.WithContext(withKey(r.Context(), k))
	} else {
		defer s.auditLater(tracked, r, nil)()
	}
	if !cleanPath(r.URL.EscapedPath()) {
		notFound(tracked, r)
		return
	}
	s.mux.ServeHTTP(tracked, r)
}

// recovered turns a panic of a handler into a 500, or if the answer has begun, into
// a connection that breaks off.
func (s *Server) recovered(w *trackedWriter, r *http.Request) {
	v := recover()
	if v == nil {
		armWrite(w, s.cfg.WriteTimeout) // net/http has yet to write the end
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.panicked(r.Pattern, w.Header().Get(requestID), v, debug.Stack())
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	armWrite(w, s.cfg.WriteTimeout)
	refusalFor(r.URL.Path)(w, errInternal)
}

// trackedWriter remembers whether an answer has begun.
type trackedWriter struct {
	http.ResponseWriter
	begun  bool
	status int // 0: 200, or nothing was written
}

func (w *trackedWriter) WriteHeader(status int) {
	w.begun, w.status = true, status
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackedWriter) Write(p []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *trackedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
