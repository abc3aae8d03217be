package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"tandem/kvstore"
	"tandem/xfer/fabric"
)

// rdma is the memory of KV blocks as other nodes read it, and this node's way to read
// theirs. It has neither encryption nor authentication: it is there only where the
// operator trusts the network (--rdma).
type rdma struct {
	endpoint *fabric.Endpoint
	store    *kvstore.Store
	info     fabric.Info
	log      *slog.Logger

	mu         sync.Mutex
	complained map[string]string // of each node, what was logged last
}

// openRDMA makes the memory of the store readable. Without an error n.rdma is set, or
// n.rdmaOff says why not.
func (n *Node) openRDMA() error {
	n.rdmaOff = "RDMA is off there: --rdma auto says that the network is trusted"
	if n.cfg.RDMA == "off" {
		return nil
	}
	err := n.tryRDMA()
	if err == nil {
		return nil
	}
	n.rdmaOff = "RDMA cannot be used there: " + err.Error()
	if n.cfg.RDMA == "require" {
		return fmt.Errorf("--rdma require: %w", err)
	}
	n.log.Warn("RDMA cannot be used; KV goes over QUIC and TCP", "error", err)
	return nil
}

func (n *Node) tryRDMA() error {
	if n.keeper == nil {
		return errors.New("no KV blocks are kept: --kv-ram is 0")
	}
	region := n.keeper.store.Region()
	if region == nil {
		return errors.New("the memory for KV blocks is part of the Go heap in this build")
	}
	e, err := fabric.Open(fabric.Options{Provider: n.cfg.RDMAProvider, Address: rdmaAddress(n.cfg), Region: region, Log: n.log})
	if err != nil {
		return err
	}
	n.rdma = &rdma{endpoint: e, store: n.keeper.store, info: e.Info(), log: n.log, complained: map[string]string{}}
	if !n.rdma.info.RDMA {
		n.log.Warn("KV goes through a provider in software: that is for tests, and slower than TCP", "provider", n.rdma.info.Provider)
	}
	n.log.Info("KV can be read by RDMA, without encryption", "provider", n.rdma.info.Provider, "libfabric", n.rdma.info.Library)
	return nil
}

// rdmaAddress is where the device listens, if the operator said so.
func rdmaAddress(c Config) string {
	host := strings.Trim(c.Advertise, "[]")
	if net.ParseIP(host) == nil {
		return ""
	}
	return host
}

func (r *rdma) close() error {
	if r == nil {
		return nil
	}
	return r.endpoint.Close()
}

// rotate cuts off all who read this node's memory; they ask for the new key.
func (r *rdma) rotate() {
	if _, err := r.endpoint.Rotate(); err != nil {
		r.log.Warn("the memory for KV blocks cannot be read by RDMA any more", "error", err)
	}
}

// measure reads some bytes of another node's memory, whatever they are, and returns
// bytes/s.
func (r *rdma) measure(ctx context.Context, p *fabric.Peer, length uint64) (float64, error) {
	bytes := int(min(probeBytes, length))
	spare := r.store.Spare(bytes)
	if spare == nil {
		return 0, errors.New("there is no free memory to measure the way now")
	}
	read := func() error { return p.Read(ctx, []fabric.Op{{Local: spare.Bytes()}}) }
	err := read() // connects
	start := time.Now()
	if err == nil {
		err = read()
	}
	took := time.Since(start)
	if errors.Is(err, fabric.ErrUnfenced) {
		return 0, err // that memory is lost
	}
	spare.Release()
	return float64(bytes) / max(took, time.Microsecond).Seconds(), err
}

// complain logs why a node cannot be read, once for each reason.
func (r *rdma) complain(node string, err error) {
	r.mu.Lock()
	again := r.complained[node] == err.Error()
	r.complained[node] = err.Error()
	r.mu.Unlock()
	if !again {
		r.log.Warn("KV of a node cannot be read by RDMA; it goes over QUIC and TCP", "node", node, "provider", r.info.Provider, "error", err)
	}
}

// slow warns of a provider that is there and does not do what it is for.
func (r *rdma) slow(node string, rate, other float64) {
	r.log.Warn("RDMA is slower than TCP and not used: check that the provider drives a device, and its link", "node", node, "provider", r.info.Provider,
		"megabytes_per_second", rate/1e6, "over_tcp", other/1e6)
}

// RDMAStatus tells of RDMA for people.
type RDMAStatus struct {
	Provider string `json:"provider,omitempty"`
	Hardware bool   `json:"hardware,omitempty"`
	Library  string `json:"libfabric,omitempty"`
	Off      string `json:"off,omitempty"` // why it cannot be used
}

func (n *Node) rdmaStatus() *RDMAStatus {
	switch {
	case n.cfg.RDMA == "off":
		return nil
	case n.rdma == nil:
		return &RDMAStatus{Off: n.rdmaOff}
	}
	return &RDMAStatus{Provider: n.rdma.info.Provider, Hardware: n.rdma.info.RDMA, Library: n.rdma.info.Library}
}
