package cluster

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesAsPeopleWriteThem(t *testing.T) {
	for _, tt := range []struct{ text, want, refused string }{
		{"192.0.2.1", "192.0.2.1:9495", ""},
		{"192.0.2.1:7", "192.0.2.1:7", ""},
		{" box.lan ", "box.lan:9495", ""},
		{"box.lan:7", "box.lan:7", ""},
		{"ip6-localhost", "ip6-localhost:9495", ""},
		{":7", ":7", ""},
		{"::1", "[::1]:9495", ""},
		{"[::1]", "[::1]:9495", ""},
		{"[::1]:7", "[::1]:7", ""},
		{"0:0:0:0:0:0:0:1", "[::1]:9495", ""},
		{"::ffff:127.0.0.1", "127.0.0.1:9495", ""},
		{"[::ffff:127.0.0.1]:7", "127.0.0.1:7", ""},
		{"fe80::1%lo", "[fe80::1%lo]:9495", ""},
		{"[fe80::1%lo]:7", "[fe80::1%lo]:7", ""},
		{"[::]", "[::]:9495", ""},
		{"::1:7946:1", "[::1:7946:1]:9495", ""},
		{"[[::1]]:7", "", "double brackets"},
		{"[::1", "", "closing bracket"},
		{"[::1]7", "", "after the bracket"},
		{"[::1]:", "", "no port after the colon"},
		{"[box]:7", "", "no IPv6 address in its brackets"},
		{"box:", "", "no port after the colon"},
		{"box:http", "", `the port "http"`},
		{"box:99999", "", `the port "99999"`},
		{"1:2:3", "", "no IPv6 address"},
		{"http://box:7", "", "not host:port"},
		{"box/7", "", "not host:port"},
		{strings.Repeat("x", 254), "", "more than 253"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			got, err := parseTarget("address to join", tt.text, DefaultPort)
			if tt.refused != "" {
				if _, ok := errors.AsType[*AddressError](err); !ok || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("%v, %v; want a refusal with %q", got, err, tt.refused)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Fatalf("%v, %v; want %s", got, err, tt.want)
			}
			// What is shown can be pasted back.
			if again, err := parseTarget("address to join", got.String(), 1); err != nil || again != got {
				t.Errorf("%s became %s, %v", got, again, err)
			}
		})
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"[::1]:7", "::1", "box:7", "fe80::1%lo", "[[::1]]", "0::%]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget("address", s, DefaultPort)
		if err != nil {
			return
		}
		if again, err := parseTarget("address", got.String(), 1); err != nil || again != got {
			t.Fatalf("%q became %v, that %v, %v", s, got, again, err)
		}
	})
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func TestTheAddressThatOthersAreTold(t *testing.T) {
	up := func(name string, a ...string) iface { return iface{Name: name, Up: true, Addrs: addrs(a...)} }
	lo := iface{Name: "lo", Up: true, Loopback: true, Addrs: addrs("127.0.0.1", "::1")}
	eth := up("enp3s0", "192.168.1.10", "fd00::10", "fe80::10")
	wifi := up("wlan0", "192.168.2.10")
	docker := up("docker0", "172.17.0.1")
	tail := up("tailscale0", "100.64.0.10", "fd7a::10")
	for _, tt := range []struct {
		name   string
		ifaces []iface
		join   string
		routes []string
		only4  bool
		want   string
	}{
		{"one card", []iface{lo, eth}, "", nil, false, "192.168.1.10"},
		{"docker comes first", []iface{docker, up("br-0a1b2c", "172.18.0.1"), up("veth12", "172.19.0.1"), up("virbr0", "192.168.122.1"), lo, eth}, "", nil, false, "192.168.1.10"},
		{"the default route decides between cards", []iface{eth, wifi}, "", []string{"192.168.2.10"}, false, "192.168.2.10"},
		{"docker has the default route", []iface{docker, eth}, "", []string{"172.17.0.1"}, false, "192.168.1.10"},
		{"a VPN has the default route", []iface{tail, eth}, "", []string{"100.64.0.10"}, false, "192.168.1.10"},
		{"the other node is in the VPN", []iface{eth, tail}, "100.64.0.10", []string{"192.168.1.10"}, false, "100.64.0.10"},
		{"the other node is behind the second card", []iface{eth, wifi}, "192.168.2.10", []string{"192.168.1.10"}, false, "192.168.2.10"},
		{"the other node is on this machine", []iface{lo, eth}, "127.0.0.1", nil, false, "192.168.1.10"},
		{"a VPN and nothing else", []iface{lo, tail, docker}, "", nil, false, "100.64.0.10"},
		{"docker and nothing else", []iface{lo, docker}, "", nil, false, "172.17.0.1"},
		{"a bridge of the LAN is a card", []iface{docker, up("br0", "192.168.1.20")}, "", nil, false, "192.168.1.20"},
		{"a card that is down", []iface{{Name: "eth0", Addrs: addrs("192.168.1.10")}, wifi}, "", nil, false, "192.168.2.10"},
		{"IPv6 only", []iface{lo, up("eth0", "fe80::1", "fd00::5")}, "", nil, false, "fd00::5"},
		{"IPv6 only, bound to IPv4", []iface{lo, up("eth0", "fd00::5")}, "", nil, true, "127.0.0.1"},
		{"the other node has IPv6 only", []iface{eth}, "fd00::10", []string{"192.168.1.10"}, false, "fd00::10"},
		{"nothing but itself", []iface{lo}, "", nil, false, "127.0.0.1"},
		{"nothing", nil, "", nil, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var join netip.Addr
			if tt.join != "" {
				join = netip.MustParseAddr(tt.join)
			}
			got, ok := chooseAddr(tt.ifaces, join, addrs(tt.routes...), tt.only4)
			if ok != (tt.want != "") || ok && got.String() != tt.want {
				t.Errorf("%v, want %s", got, tt.want)
			}
		})
	}
}
