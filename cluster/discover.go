package cluster

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/mdns"
)

// Limits of discovery by mDNS.
const (
	mdnsService = "_tandem._tcp"
	mdnsWithin  = time.Second
	foundMax    = 32 // nodes in one search
)

// announcer answers to nodes that look for others.
type announcer struct{ server *mdns.Server }

func (a *announcer) close() { _ = a.server.Shutdown() }

// announce lets others find this node, or says why it cannot.
func (c *Cluster) announce() *announcer {
	known := c.transport.known
	if known.Addr().IsLoopback() {
		c.problems.set("mdns", fmt.Sprintf("this node cannot be found by mDNS: its gossip address, %s, is of this machine only; bind it to an address of the network", known))
		return nil
	}
	// The host is named after the id: names of people's machines need not be unique.
	zone, err := mdns.NewMDNSService(string(c.cfg.Self.ID), mdnsService, "", "tandem-"+c.cfg.Self.ID.Short()+".local.", int(known.Port()),
		[]net.IP{known.Addr().AsSlice()}, []string{"key=" + c.cfg.Identity.ClusterKeyID()})
	if err == nil {
		var server *mdns.Server
		if server, err = mdns.NewServer(&mdns.Config{Zone: zone, Logger: log.New(io.Discard, "", 0)}); err == nil {
			return &announcer{server}
		}
	}
	c.problems.set("mdns", fmt.Sprintf("this node cannot be found by mDNS: %v; others need its address, %s", err, known))
	return nil
}

// discover looks for other nodes on the network and returns their gossip addresses,
// those with this node's secret first.
func (c *Cluster) discover(ctx context.Context) []string {
	entries := make(chan *mdns.ServiceEntry, foundMax)
	quiet := log.New(io.Discard, "", 0)
	err := mdns.QueryContext(ctx, &mdns.QueryParam{Service: mdnsService, Domain: "local", Timeout: mdnsWithin, Entries: entries, Logger: quiet})
	if err != nil {
		c.problems.set("mdns", fmt.Sprintf("no search by mDNS is possible: %v; give the address of another node with --join", err))
		return nil
	}
	var ours, others []string
	for range len(entries) {
		e := <-entries
		at, ok := serviceAddr(e)
		if !ok || slices.Contains(ours, at) || slices.Contains(others, at) {
			continue
		}
		if slices.Contains(e.InfoFields, "key="+c.cfg.Identity.ClusterKeyID()) {
			ours = append(ours, at)
		} else {
			others = append(others, at)
		}
	}
	return append(ours, others...)
}

// serviceAddr is the gossip address in an answer.
func serviceAddr(e *mdns.ServiceEntry) (string, bool) {
	ip := e.AddrV4
	if ip == nil && e.AddrV6IPAddr != nil {
		ip = e.AddrV6IPAddr.IP
	}
	addr, ok := netip.AddrFromSlice(ip)
	addr = addr.Unmap()
	if !ok || e.Port <= 0 || e.Port > 65535 || addr.IsUnspecified() || addr.IsLoopback() {
		return "", false
	}
	return netip.AddrPortFrom(addr, uint16(e.Port)).String(), true
}
