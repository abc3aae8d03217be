package cluster

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/hashicorp/mdns"
)

// multicastWorks tells whether this machine hears its own multicast packets, as it does
// unless a container or a firewall keeps it from that.
func multicastWorks(t *testing.T) bool {
	t.Helper()
	group := &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: int(netip.MustParseAddrPort(closedPort(t, "127.0.0.1")).Port())}
	hear, err := net.ListenMulticastUDP("udp4", nil, group)
	if err != nil {
		return false
	}
	defer func() { _ = hear.Close() }()
	say, err := net.DialUDP("udp4", nil, group)
	if err != nil {
		return false
	}
	defer func() { _ = say.Close() }()
	if _, err := say.Write([]byte("?")); err != nil {
		return false
	}
	_ = hear.SetReadDeadline(time.Now().Add(time.Second))
	_, err = hear.Read(make([]byte, 8))
	return err == nil
}

func TestNodesFindEachOtherByMDNS(t *testing.T) {
	if !multicastWorks(t) {
		t.Skip("this machine does not hear its own multicast")
	}
	auto := func(c *Config) { c.Join = []string{Auto}; c.Bind = "0.0.0.0:0" }
	n1 := run(t, 1, auto)
	if n1.Addr().Addr().IsLoopback() {
		t.Skip("this machine has no address but its own")
	}
	n2 := run(t, 2, auto)
	t.Logf("found after %v", all(t, 2, n1, n2))
	if on := run(t, 3, func(c *Config) { c.Announce = true }); len(on.Problems()) != 1 {
		t.Errorf("a node that only its machine can reach says %q", on.Problems())
	}
}

func TestAnswersOfMDNS(t *testing.T) {
	for _, tt := range []struct {
		name  string
		entry mdns.ServiceEntry
		want  string
	}{
		{"IPv4", mdns.ServiceEntry{AddrV4: net.IPv4(192, 0, 2, 1), Port: 7}, "192.0.2.1:7"},
		{"IPv6", mdns.ServiceEntry{AddrV6IPAddr: &net.IPAddr{IP: net.ParseIP("fd00::1")}, Port: 7}, "[fd00::1]:7"},
		{"no address", mdns.ServiceEntry{Port: 7}, ""},
		{"no port", mdns.ServiceEntry{AddrV4: net.IPv4(192, 0, 2, 1)}, ""},
		{"loopback", mdns.ServiceEntry{AddrV4: net.IPv4(127, 0, 0, 1), Port: 7}, ""},
		{"any", mdns.ServiceEntry{AddrV4: net.IPv4zero, Port: 7}, ""},
		{"port too high", mdns.ServiceEntry{AddrV4: net.IPv4(192, 0, 2, 1), Port: 70000}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := serviceAddr(&tt.entry); got != tt.want || ok != (tt.want != "") {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
