//go:build fabric && linux && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
	"unsafe"
)

// Endpoint owns a registered region: peers read it, and Read writes to it.
type Endpoint struct {
	options Options // with the provider that was chosen
	region  []byte
	info    Info
	log     *slog.Logger
	reading *domain         // of the clients of all peers
	ctx     context.Context // ends with Close; reads end at their next look
	end     context.CancelCauseFunc
	// readTime and connectTime are ReadTimeMax and ConnectTimeMax; tests shorten them.
	readTime, connectTime time.Duration

	mu struct {
		sync.Mutex
		serving *domain // what peers read from; nil while they may read nothing
		local   Local   // Length 0 while serving is nil
		lost    error   // ErrUnfenced, once serving could not be closed
		peers   map[*Peer]struct{}
		closed  bool
	}

	once   sync.Once
	closed error // of Close, once it has returned
}

// Open registers the region with a provider and lets peers read it under a key of its
// own.
func Open(o Options) (*Endpoint, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	reading, err := openDomain(o, false)
	if err != nil {
		return nil, err
	}
	e := &Endpoint{options: o, region: o.Region, log: o.Log, reading: reading, readTime: ReadTimeMax, connectTime: ConnectTimeMax}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	e.mu.peers = make(map[*Peer]struct{})
	var info C.fab_info
	C.fab_domain_info(reading.c, &info)
	e.info = asInfo(&info)
	e.options.Provider = e.info.Provider
	e.mu.local = Local{Provider: e.info.Provider, Protocol: e.info.Protocol, Format: uint32(info.format)}
	if _, err := e.Rotate(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// Info describes the provider.
func (e *Endpoint) Info() Info { return e.info }

// Local is what a peer needs to read the region now. Its Length is 0 if Rotate failed.
func (e *Endpoint) Local() Local {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.local
}

// Rotate cuts all peers off, and lets them read the region at another address under
// another key. Once it has returned, reads with the Local before get nothing more of the
// region (over shm, which does not check keys, they may): they fail, after
// ConnectTimeMax at the latest. It is also the remedy if peers report that their reads
// hang. If it fails, nobody can read the region until it succeeds.
func (e *Endpoint) Rotate() (Local, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return Local{}, ErrClosed
	}
	if err := e.stopServingLocked(); err != nil {
		return Local{}, err
	}
	serving, err := openDomain(e.options, true)
	if err != nil {
		return Local{}, err
	}
	e.mu.serving = serving
	grant, local := serving.grant, &e.mu.local
	local.Name = C.GoBytes(unsafe.Pointer(&grant.name[0]), C.int(min(grant.name_bytes, C.FAB_NAME_MAX)))
	local.Key, local.Base, local.Length = uint64(grant.key), uint64(grant.base), uint64(len(e.region))
	return *local, nil
}

// stopServingLocked returns when nobody reads the region any more, or with ErrUnfenced,
// then and at every call after.
func (e *Endpoint) stopServingLocked() error {
	serving, local := e.mu.serving, &e.mu.local
	e.mu.serving = nil
	local.Name, local.Key, local.Base, local.Length = nil, 0, 0, 0
	if serving == nil {
		return e.mu.lost
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	e.mu.lost = inTime(now, serving.close)
	return e.mu.lost
}

// Connect makes a Peer for what another endpoint's Local returned. It does not wait for
// the peer: the first Read does.
func (e *Endpoint) Connect(l Local) (*Peer, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch own := e.mu.local; {
	case e.mu.closed:
		return nil, ErrClosed
	case !speaks(own, l):
		return nil, fmt.Errorf("%w: the peer has %q (%s, addresses of format %d), we have %q (%s, %d): choose the same provider and the same family of addresses at both ends",
			ErrMismatch, l.Provider, l.Protocol, l.Format, own.Provider, own.Protocol, own.Format)
	case len(e.mu.peers) >= PeersMax:
		return nil, fmt.Errorf("%w: %d", ErrTooManyPeers, PeersMax)
	}
	p := &Peer{e: e, remote: l, turn: make(chan struct{}, 1)}
	p.ctx, p.end = context.WithCancelCause(e.ctx)
	e.mu.peers[p] = struct{}{}
	return p, nil
}

// Close ends reads, closes all peers, and returns when libfabric has let go of the
// region. Calls after the first wait for it and return the same.
func (e *Endpoint) Close() error {
	e.once.Do(func() { e.closed = e.close() })
	return e.closed
}

func (e *Endpoint) close() error {
	e.mu.Lock()
	e.mu.closed = true
	e.end(ErrClosed)
	failed := e.stopServingLocked()
	peers := e.mu.peers
	e.mu.peers = nil
	e.mu.Unlock()
	var lost error
	for p := range peers {
		if err := p.shut(); err != nil {
			lost = err
		}
	}
	if lost == nil {
		lost = inTime(e.ctx, e.reading.close)
	}
	return errors.Join(failed, lost)
}

// forget makes the place of a peer free.
func (e *Endpoint) forget(p *Peer) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.mu.peers, p)
}
