package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const (
	maxRedirects   = 5
	connectTimeout = 10 * time.Second
	headerTimeout  = 30 * time.Second
	stallTimeout   = 60 * time.Second // between two pieces of a body
)

// web makes requests and follows redirects under rules: not from https to http,
// not from a public server to a private address, and credentials go to the first
// server only. It never reads a file: there is no other scheme than http(s).
type web struct {
	direct  http.RoundTripper // any address
	guarded http.RoundTripper // public addresses only
	proxied func(*http.Request) bool
	stall   time.Duration

	registry, hub *url.URL
	hubToken      string
}

func newWeb(cfg *Config) (*web, error) {
	w := &web{hubToken: cfg.HubToken, stall: stallTimeout}
	var err error
	if w.registry, err = baseURL("OllamaRegistry", cfg.OllamaRegistry, "https://"+defaultHost); err != nil {
		return nil, err
	}
	if w.hub, err = baseURL("HubEndpoint", cfg.HubEndpoint, "https://huggingface.co"); err != nil {
		return nil, err
	}
	if cfg.Client != nil {
		w.direct = cfg.Client.Transport
		if w.direct == nil {
			w.direct = http.DefaultTransport
		}
		w.guarded, w.proxied = w.direct, func(*http.Request) bool { return false }
		return w, nil
	}
	w.direct, w.guarded = newTransport(nil), newTransport(publicOnly)
	w.proxied = func(r *http.Request) bool {
		proxy, err := http.ProxyFromEnvironment(r)
		return err == nil && proxy != nil
	}
	return w, nil
}

func baseURL(field, value, def string) (*url.URL, error) {
	if value == "" {
		value = def
	}
	u, err := url.Parse(strings.TrimRight(value, "/"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("%s is %s, allowed are http and https addresses", field, quote(value))
	}
	return u, nil
}

func newTransport(control func(network, address string, c syscall.RawConn) error) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, Control: control}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTimeout,
		ResponseHeaderTimeout: headerTimeout, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 2, MaxResponseHeaderBytes: 1 << 20,
	}
}

// errPrivate refuses to be led into the local network.
var errPrivate = errors.New("a redirect leads to a private address")

// publicOnly refuses connections to addresses that a public server has no
// business to send anybody to. It sees the address after name resolution.
func publicOnly(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil || isPrivate(a.Addr()) {
		return errPrivate
	}
	return nil
}

var sharedAddresses = netip.MustParsePrefix("100.64.0.0/10") // carrier-grade NAT

func isPrivate(a netip.Addr) bool {
	a = a.Unmap()
	return !a.IsGlobalUnicast() || a.IsPrivate() || sharedAddresses.Contains(a)
}

// isPrivateHost judges a host by its name alone.
func isPrivateHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && isPrivate(a) || strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// request is one GET.
type request struct {
	url    *url.URL
	header http.Header // for every server on the way
	token  string      // bearer token for the first server; "" for none
}

// get sends r and follows redirects. Any answer that is not a redirect is
// returned, its body limited by the stall timeout.
func (w *web) get(ctx context.Context, r request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	resp, err := w.follow(ctx, r)
	if err != nil {
		err = causeOf(ctx, err)
		cancel(nil)
		return nil, err
	}
	resp.Body = newStallReader(ctx, cancel, resp.Body, w.stall)
	return resp, nil
}

func (w *web) follow(ctx context.Context, r request) (*http.Response, error) {
	at, private := r.url, isPrivateHost(r.url.Hostname())
	for hop := 0; ; hop++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			return nil, err
		}
		req.Header = r.header.Clone()
		if req.Header == nil {
			req.Header = http.Header{}
		}
		req.Header.Set("User-Agent", "tandem")
		req.Header.Set("Accept-Encoding", "identity")
		if r.token != "" && at.Scheme == r.url.Scheme && at.Host == r.url.Host {
			req.Header.Set("Authorization", "Bearer "+r.token)
		}
		resp, err := w.send(req, hop, &private)
		if err != nil {
			return nil, unreachable(ctx, at, err)
		}
		if !isRedirect(resp.StatusCode) {
			return resp, nil
		}
		at, err = nextHop(at, resp, private)
		io.CopyN(io.Discard, resp.Body, 4<<10) // so that the connection can be used again
		resp.Body.Close()
		if err == nil && hop == maxRedirects {
			err = fmt.Errorf("there are more than %d redirects", maxRedirects)
		}
		if err != nil {
			return nil, err
		}
	}
}

// send makes one hop. The first one decides whether private addresses are meant.
func (w *web) send(req *http.Request, hop int, private *bool) (*http.Response, error) {
	proxied := w.proxied(req)
	if hop > 0 && !*private && !proxied {
		return w.guarded.RoundTrip(req)
	}
	if hop == 0 && !proxied {
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if a, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil && isPrivate(a.Addr()) {
				*private = true
			}
		}}
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	}
	return w.direct.RoundTrip(req)
}

func isRedirect(status int) bool {
	return status == 301 || status == 302 || status == 303 || status == 307 || status == 308
}

// nextHop checks where a redirect leads.
func nextHop(from *url.URL, resp *http.Response, private bool) (*url.URL, error) {
	to, err := from.Parse(resp.Header.Get("Location"))
	switch {
	case err != nil || resp.Header.Get("Location") == "" || to.Host == "" && to.Scheme != "file":
		return nil, fmt.Errorf("%s redirects to nowhere", from.Host)
	case to.Scheme != "https" && to.Scheme != "http":
		return nil, fmt.Errorf("%s redirects to a %s address, allowed is https", from.Host, quote(to.Scheme))
	case to.Scheme == "http" && from.Scheme == "https":
		return nil, fmt.Errorf("%s redirects from https to http", from.Host)
	case to.User != nil:
		return nil, fmt.Errorf("%s redirects to an address with a password", from.Host)
	case !private && isPrivateHost(to.Hostname()):
		return nil, errPrivate
	}
	to.Fragment = ""
	return to, nil
}

// unreachable explains a request that got no answer.
func unreachable(ctx context.Context, at *url.URL, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errPrivate) {
		return errPrivate
	}
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		err = errors.New("its name cannot be resolved: " + dns.Err)
	case errors.As(err, &op) && op.Err != nil:
		err = op.Err
	}
	return &UnreachableError{Host: at.Host, Err: scrub(err)}
}

// statusError explains an answer that is not what was asked for.
func statusError(u *url.URL, status int) *StatusError {
	e := &StatusError{Host: u.Host, Status: status}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Hint = "access is restricted; for Hugging Face accept the model's terms there and set HF_TOKEN"
	case http.StatusNotFound, http.StatusGone:
		e.Hint = "there is no such model or file"
	case http.StatusTooManyRequests:
		e.Hint = "too many requests, try again later"
	}
	return e
}

// getSmall reads a whole answer of at most limit bytes.
func (w *web) getSmall(ctx context.Context, r request, limit int64) ([]byte, http.Header, error) {
	resp, err := w.get(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, statusError(r.url, resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, nil, unreachable(ctx, r.url, err)
	}
	if int64(len(b)) > limit {
		return nil, nil, fmt.Errorf("%s answers with more than %s", r.url.Host, bytesText(limit))
	}
	return b, resp.Header, nil
}

// errStalled means that a body brought nothing for the stall timeout.
var errStalled = errors.New("the transfer has stalled")

// stallReader ends a body that brings nothing for a while.
type stallReader struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	body   io.ReadCloser
	timer  *time.Timer
	limit  time.Duration
}

func newStallReader(ctx context.Context, cancel context.CancelCauseFunc, body io.ReadCloser, limit time.Duration) *stallReader {
	return &stallReader{ctx, cancel, body, time.AfterFunc(limit, func() { cancel(errStalled) }), limit}
}

func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	s.timer.Reset(s.limit)
	if err != nil && err != io.EOF {
		err = causeOf(s.ctx, err)
	}
	return n, err
}

func (s *stallReader) Close() error {
	s.timer.Stop()
	s.cancel(nil)
	return s.body.Close()
}
