package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// DefaultPort is the gossip port, TCP and UDP.
const DefaultPort = 9495

// resolveWithin bounds a look-up of a name.
const resolveWithin = 2 * time.Second

// resolvedMax is how many addresses of one name are tried.
const resolvedMax = 8

// AddressError says which address cannot be used, and why.
type AddressError struct {
	What string // "bind address", "advertised address", "address to join"
	Text string
	Why  string
}

func (e *AddressError) Error() string { return fmt.Sprintf("%s %.100q: %s", e.What, e.Text, e.Why) }

// target is an address as people write it.
type target struct {
	Host string // a name, or an IP address without brackets; "" is any
	Port uint16
}

func (t target) String() string { return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) }

// parseTarget reads host, host:port, and IPv6 addresses with or without brackets.
func parseTarget(what, text string, port uint16) (target, error) {
	fail := func(why string) (target, error) {
		return target{}, &AddressError{What: what, Text: text, Why: why}
	}
	s := strings.TrimSpace(text)
	if strings.Contains(s, "[[") || strings.Contains(s, "]]") {
		return fail("has double brackets; write [::1]:9495")
	}
	if strings.Contains(s, "://") || strings.ContainsAny(s, "/ ") {
		return fail("is not host:port")
	}
	host, portText := s, ""
	switch {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return fail("has no closing bracket; write [::1]:9495")
		}
		rest, ok := strings.CutPrefix(s[end+1:], ":")
		if !ok && s[end+1:] != "" {
			return fail("has something after the bracket that is no port; write [::1]:9495")
		}
		host, portText = s[1:end], rest
		if ok && rest == "" {
			return fail("has no port after the colon")
		}
		if _, err := netip.ParseAddr(host); err != nil || !strings.Contains(host, ":") {
			return fail("has no IPv6 address in its brackets")
		}
	case strings.Count(s, ":") == 1:
		host, portText, _ = strings.Cut(s, ":")
		if portText == "" {
			return fail("has no port after the colon")
		}
	case strings.Count(s, ":") > 1:
		if _, err := netip.ParseAddr(s); err != nil {
			return fail("is no IPv6 address; with a port, write [::1]:9495")
		}
	}
	if strings.ContainsAny(host, "[]") { // netip takes anything for a zone
		return fail("has a bracket within the host")
	}
	t := target{Host: host, Port: port}
	if portText != "" {
		n, err := strconv.ParseUint(portText, 10, 16)
		if err != nil {
			return fail("has the port " + strconv.Quote(portText) + "; allowed are 0 to 65535")
		}
		t.Port = uint16(n)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		t.Host = addr.Unmap().String()
	} else if len(host) > 253 {
		return fail("has a name of more than 253 characters")
	}
	return t, nil
}

// resolve looks a target up, anew each time: addresses of names change.
func (t target) resolve(ctx context.Context, r *net.Resolver) ([]netip.AddrPort, error) {
	if addr, err := netip.ParseAddr(t.Host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(addr.Unmap(), t.Port)}, nil
	}
	if t.Host == "" {
		return nil, errors.New("it has no host")
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	addrs, err := r.LookupNetIP(ctx, "ip", t.Host)
	if err != nil {
		var dns *net.DNSError
		if errors.As(err, &dns) && dns.IsNotFound {
			return nil, fmt.Errorf("the name %q is unknown", t.Host)
		}
		return nil, fmt.Errorf("the name %q could not be looked up: %w", t.Host, err)
	}
	var out []netip.AddrPort
	for _, a := range addrs[:min(len(addrs), resolvedMax)] {
		out = append(out, netip.AddrPortFrom(a.Unmap(), t.Port))
	}
	return out, nil
}

// fixed resolves an address that this node itself binds or advertises: it must be one
// that gossip can carry, which leaves no room for zones.
func (t target) fixed(ctx context.Context, what string) (netip.AddrPort, error) {
	fail := func(why string) (netip.AddrPort, error) {
		return netip.AddrPort{}, &AddressError{What: what, Text: t.String(), Why: why}
	}
	addrs, err := t.resolve(ctx, net.DefaultResolver)
	if err != nil {
		return fail(err.Error())
	}
	if len(addrs) == 0 {
		return fail("the name has no address")
	}
	// Where a name has both, what is older in the network is understood by more.
	best := addrs[0]
	for _, a := range addrs {
		if a.Addr().Is4() {
			best = a
			break
		}
	}
	switch a := best.Addr(); {
	case a.Zone() != "":
		return fail("has a zone, which other nodes cannot use; give an address of this node without one")
	case a.IsMulticast():
		return fail("is a multicast address")
	}
	return best, nil
}
