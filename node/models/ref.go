package models

import (
	"net/netip"
	"net/url"
	"path"
	"strings"
)

// ref is something that can be pulled: a name, or the address of a file.
type ref struct {
	name Name
	url  *url.URL // nil for a name
}

func (r ref) String() string {
	if r.url != nil {
		return r.url.String()
	}
	return r.name.String()
}

// parseRef checks what Pull is asked for.
func parseRef(s string) (ref, error) {
	if !strings.Contains(s, "://") {
		n, err := ParseName(s)
		return ref{name: n}, err
	}
	bad := func(allowed string) (ref, error) { return ref{}, &RefError{Field: "ref", Value: s, Allowed: allowed} }
	if len(s) > 2048 {
		return bad("addresses have at most 2048 bytes")
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return bad("this is not an address")
	}
	if u.User != nil {
		return bad("an address holds no user and password")
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())) {
		return bad("addresses begin with https:// (or with http:// on this machine)")
	}
	u.Fragment, u.RawFragment = "", ""
	return fileRef(s, u)
}

// fileRef names the file of an address. The pages of Hugging Face mean what they
// show: a repository or a file.
func fileRef(s string, u *url.URL) (ref, error) {
	if host := strings.ToLower(u.Hostname()); host == "huggingface.co" || host == hubHost {
		parts := strings.Split(strings.Trim(u.Path, "/"), "/")
		if len(parts) == 2 {
			n, err := ParseName(hubHost + "/" + parts[0] + "/" + parts[1])
			return ref{name: n}, err
		}
		if len(parts) > 4 && parts[2] == "blob" {
			parts[2] = "resolve"
			u.Path, u.RawPath = "/"+strings.Join(parts, "/"), ""
		}
	}
	base := path.Base(u.Path)
	if !isGGUF(base) {
		return ref{}, &RefError{Field: "ref", Value: s, Allowed: "the address is that of a .gguf file"}
	}
	if isSplit(base) {
		return ref{}, &RefError{Field: "ref", Value: s, Allowed: "a model that is split over several files must be joined first, with llama-gguf-split --merge"}
	}
	return ref{name: fileName(base), url: u}, nil
}

// isLoopback says whether a host is this machine, going by its name.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
