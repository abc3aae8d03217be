//go:build !fabric || !linux || !cgo

package fabric

import "context"

// Endpoint registers a region and lets peers read it.
type Endpoint struct{}

// Peer reads from the region of another process.
type Peer struct{}

// Open returns ErrNotBuilt.
func Open(Options) (*Endpoint, error) { return nil, ErrNotBuilt }

// Providers returns ErrNotBuilt.
func Providers() ([]Info, error) { return nil, ErrNotBuilt }

// Info returns nothing: there is no Endpoint.
func (e *Endpoint) Info() Info { return Info{} }

// Local returns nothing: there is no Endpoint.
func (e *Endpoint) Local() Local { return Local{} }

// Connect returns ErrNotBuilt.
func (e *Endpoint) Connect(Local) (*Peer, error) { return nil, ErrNotBuilt }

// Rotate returns ErrNotBuilt.
func (e *Endpoint) Rotate() (Local, error) { return Local{}, ErrNotBuilt }

// Close returns nil: there is nothing to close.
func (e *Endpoint) Close() error { return nil }

// Read returns ErrNotBuilt.
func (p *Peer) Read(context.Context, []Op) error { return ErrNotBuilt }

// Close returns nil: there is nothing to close.
func (p *Peer) Close() error { return nil }
