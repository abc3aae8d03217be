package cluster

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// iface is a network interface as a value, so that the choice among them can be tested.
type iface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Addr
}

// What interfaces are for, best first. Names are all that tells.
const (
	rankLAN     = iota // cards and what is built of them
	rankTunnel         // VPNs: reach further, but slower, and not everybody is in them
	rankInside         // bridges of containers and machines: their addresses mean nothing elsewhere
	rankNowhere        // this machine only
)

var (
	insidePrefixes = []string{"docker", "br-", "veth", "virbr", "vnet", "cni", "flannel", "cali", "podman", "lxcbr", "lxdbr", "vmnet", "vboxnet", "kube", "ifb", "dummy", "tap", "fwbr", "fwpr", "fwln"}
	tunnelPrefixes = []string{"tun", "tailscale", "wg", "zt", "utun", "ppp", "nebula", "ipsec", "gre", "sit"}
)

func (i iface) rank() int {
	hasPrefix := func(p string) bool { return strings.HasPrefix(i.Name, p) }
	switch {
	case i.Loopback:
		return rankNowhere
	case slices.ContainsFunc(insidePrefixes, hasPrefix):
		return rankInside
	case slices.ContainsFunc(tunnelPrefixes, hasPrefix):
		return rankTunnel
	}
	return rankLAN
}

// chooseAddr picks the address that others are told. Routes are the addresses from which
// this machine would reach what matters (a node to join, then the internet), best first:
// within a rank they win, and one that reaches a node to join wins over all ranks but the
// machine itself. Only4 leaves out IPv6, which a socket bound to 0.0.0.0 does not hear.
func chooseAddr(ifaces []iface, join netip.Addr, routes []netip.Addr, only4 bool) (netip.Addr, bool) {
	type candidate struct {
		addr              netip.Addr
		rank, route, kind int
	}
	var all []candidate
	for _, i := range ifaces {
		for _, a := range i.Addrs {
			a = a.Unmap()
			if !i.Up || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() || only4 && !a.Is4() {
				continue
			}
			c := candidate{addr: a, rank: i.rank(), route: slices.Index(routes, a)}
			if c.route < 0 {
				c.route = len(routes)
			}
			if a == join && c.rank != rankNowhere {
				c.rank = -1
			}
			if a.Is6() {
				c.kind = 1
			}
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return netip.Addr{}, false
	}
	best := slices.MinFunc(all, func(a, b candidate) int {
		return cmp.Or(a.rank-b.rank, a.route-b.route, a.kind-b.kind)
	})
	return best.addr, true
}

// interfaces lists those of this machine.
func interfaces() []iface {
	list, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var out []iface
	for _, i := range list {
		v := iface{Name: i.Name, Up: i.Flags&net.FlagUp != 0, Loopback: i.Flags&net.FlagLoopback != 0}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					v.Addrs = append(v.Addrs, ip.Unmap())
				}
			}
		}
		out = append(out, v)
	}
	return out
}

// sourceTo is the address from which this machine would send to another. Nothing is
// sent.
func sourceTo(to netip.AddrPort) (netip.Addr, bool) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.Addr{}, false
	}
	defer func() { _ = conn.Close() }()
	local, ok := netip.AddrFromSlice(conn.LocalAddr().(*net.UDPAddr).IP)
	return local.Unmap(), ok
}

// Addresses of documentation: they follow the default route and belong to nobody.
var beyond = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.255:9"), netip.MustParseAddrPort("[2001:db8::1]:9")}

// advertised is the address that others are told: what was given, or where the node is
// bound, or the best of its interfaces.
func advertised(ctx context.Context, given string, bound netip.AddrPort, join []target) (netip.AddrPort, error) {
	if given != "" {
		t, err := parseTarget("advertised address", given, bound.Port())
		if err != nil {
			return netip.AddrPort{}, err
		}
		if t.Port == 0 {
			t.Port = bound.Port()
		}
		addr, err := t.fixed(ctx, "advertised address")
		if err == nil && addr.Addr().IsUnspecified() {
			err = &AddressError{What: "advertised address", Text: given, Why: "means any address; others need one"}
		}
		return addr, err
	}
	if !bound.Addr().IsUnspecified() {
		return bound, nil
	}
	var toJoin netip.Addr
	var routes []netip.Addr
	for _, t := range join {
		addrs, _ := t.resolve(ctx, net.DefaultResolver)
		for _, a := range addrs {
			if source, ok := sourceTo(a); ok && !toJoin.IsValid() {
				toJoin = source
			}
		}
		if toJoin.IsValid() {
			break
		}
	}
	for _, b := range beyond {
		if source, ok := sourceTo(b); ok {
			routes = append(routes, source)
		}
	}
	addr, ok := chooseAddr(interfaces(), toJoin, routes, bound.Addr().Is4())
	if !ok {
		return netip.AddrPort{}, errors.New("no address of this machine can be told to others; give one with --advertise")
	}
	return netip.AddrPortFrom(addr, bound.Port()), nil
}
