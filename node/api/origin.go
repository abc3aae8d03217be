package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guard decides which hosts and web pages may speak to a node. Without a key a
// browser on the owner's machine is the way in: a page may send requests to
// localhost (its Origin tells), or have its own name resolve to 127.0.0.1 (the
// Host tells).
type guard struct {
	keyless  bool
	loopback bool     // only this machine can connect
	hosts    []string // further names of this node; "*" allows any
	origins  []string // further pages; "*" allows any
}

var (
	errForeignHost = &Error{Status: http.StatusForbidden, Type: "permission_error", Code: "host_not_allowed",
		Message: "requests for this Host are not accepted without an API key; set one, or allow the host"}
	errForeignOrigin = &Error{Status: http.StatusForbidden, Type: "permission_error", Code: "origin_not_allowed",
		Message: "requests of pages from other sites are not accepted without an API key; set one, or allow the origin"}
)

// check refuses what must not reach a node without keys. With keys it is the key
// that protects: a foreign page does not have it.
func (g *guard) check(r *http.Request) *Error {
	if !g.keyless {
		return nil
	}
	if !g.hostAllowed(r.Host) {
		return errForeignHost
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if !g.originAllowed(origin, r.Host) {
			return errForeignOrigin
		}
		return nil
	}
	// Without an Origin a browser says where a request comes from in Sec-Fetch-Site.
	// Following a link is fine, being embedded in a foreign page is not.
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
		return errForeignOrigin
	}
	return nil
}

// hostAllowed: on loopback only names of this machine itself. Elsewhere also
// addresses and names that no attacker can have the public DNS resolve.
func (g *guard) hostAllowed(hostport string) bool {
	host := hostOf(hostport)
	if host == "" || isLoopbackHost(host) || listed(g.hosts, host) || listed(g.hosts, hostport) {
		return true // no Host at all is no browser
	}
	if g.loopback {
		return false
	}
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc([]string{".local", ".lan", ".internal", ".home.arpa"}, func(suffix string) bool { return strings.HasSuffix(host, suffix) })
}

// originAllowed: the page of this node, pages of this machine, and those listed.
func (g *guard) originAllowed(origin, hostport string) bool {
	if listed(g.origins, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, hostport) || isLoopbackHost(hostOf(u.Host))
}

func listed(list []string, value string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return s == "*" || strings.EqualFold(s, value) })
}

// hostOf strips the port, the brackets of an IPv6 address and a final dot.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isLoopbackHost(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// exposed are the response headers that pages of other origins may read.
const exposed = "Retry-After, X-Tandem-Node, X-Tandem-Prefill, X-Tandem-Reason, X-Tandem-Request-Id, X-Tandem-Truncated, X-Tandem-Warning"

// cors lets allowed pages read answers, and answers preflights. It reports whether
// the request was one.
func (g *guard) cors(w http.ResponseWriter, r *http.Request) (done bool) {
	h := w.Header()
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if origin == "" || !g.originAllowed(origin, r.Host) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE")
	h.Set("Access-Control-Max-Age", "600")
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		h.Set("Access-Control-Allow-Headers", headerText(names, MaxWarning))
	}
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}
