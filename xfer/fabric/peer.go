//go:build fabric && linux && cgo

package fabric

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// sliceTime is how long a Read is in C before it looks at its context.
const sliceTime = 5 * time.Millisecond

// stuckTime is how long a call of the library may take once it is to end. It ends
// within milliseconds unless the provider is broken, or waits for a lock in memory that
// it shares with a process that was stopped, as shm does.
const stuckTime = 3 * time.Second

// Peer reads from the region of another process. Its methods may be called at once;
// reads take turns.
type Peer struct {
	e      *Endpoint
	remote Local
	// turn has room for one: who has put something in owns what stands below.
	turn chan struct{}
	// client is an endpoint of the library for this peer alone, or nil: then the next
	// read opens one. Between reads nothing is in flight on it.
	client *C.fab_client
	// lost is ErrUnfenced with its cause, once client could not be closed.
	lost error

	ctx    context.Context // ends with Close of the peer or of the endpoint
	end    context.CancelCauseFunc
	once   sync.Once
	closed error // of Close, once it has returned
}

// Read fills the Local slices of all ops, or returns an error, after which their bytes
// are undefined. Either way nothing is written to them any more once it has returned,
// except after ErrUnfenced. It waits for its turn, then for the peer, until ctx is done
// or ReadTimeMax is over.
func (p *Peer) Read(ctx context.Context, ops []Op) error {
	pieces, err := p.cut(ops)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.e.readTime, ErrTime)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer context.AfterFunc(p.ctx, func() { end(context.Cause(p.ctx)) })()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("fabric: wait for the read before: %w", context.Cause(ctx))
	}
	return p.inTime(ctx, func() error {
		defer func() { <-p.turn }()
		return p.read(ctx, pieces)
	})
}

// inTime returns what f does, which calls the library. If f has not returned stuckTime
// after ctx was done, it is left behind, and the error is ErrUnfenced.
func (p *Peer) inTime(ctx context.Context, f func() error) error {
	err := inTime(ctx, f)
	if errors.Is(err, errStuck) {
		p.e.log.Error("fabric: memory that was being read to cannot be used again", "err", err)
	}
	return err
}

var errStuck = fmt.Errorf("fabric: %w: libfabric hangs", ErrUnfenced)

func inTime(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(stuckTime)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return errStuck
	}
}

// read runs with the turn.
func (p *Peer) read(ctx context.Context, pieces []C.fab_piece) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(pieces) == 0 {
		return nil
	}
	if err := p.begin(); err != nil {
		return err
	}
	start := time.Now()
	for {
		done, err := p.step(pieces)
		if done {
			return nil
		}
		if err == nil && C.fab_client_posted(p.client) == 0 && time.Since(start) > p.e.connectTime {
			err = ErrUnreachable
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil {
			continue
		}
		arrived := int(C.fab_client_arrived(p.client))
		err = fmt.Errorf("fabric: read over %s: %d of %d pieces: %w", p.remote.Provider, arrived, len(pieces), err)
		return errors.Join(err, p.fence())
	}
}

// begin makes the client ready.
func (p *Peer) begin() error {
	if p.lost != nil {
		return p.lost
	}
	if p.client != nil {
		C.fab_client_begin(p.client)
		return nil
	}
	loader.mu.Lock()
	defer loader.mu.Unlock()
	var fault C.fab_error
	name := unsafe.Pointer(unsafe.SliceData(p.remote.Name))
	if C.fab_client_open(&p.client, p.e.reading.c, name, C.size_t(len(p.remote.Name)), &fault) != 0 {
		return fmt.Errorf("fabric: an endpoint to read over %s: %w", p.remote.Provider, asError(&fault))
	}
	return nil
}

// step lets the client work for a moment. It tells whether all pieces have arrived.
func (p *Peer) step(pieces []C.fab_piece) (done bool, err error) {
	var fault C.fab_error
	rc := C.fab_client_step(p.client, &pieces[0], C.size_t(len(pieces)), C.uint64_t(p.remote.Key), C.int(sliceTime.Microseconds()), &fault)
	if rc < 0 {
		return false, asError(&fault)
	}
	return rc == 1, nil
}

// fence closes the client: what is in flight ends, and nothing arrives any more.
func (p *Peer) fence() error {
	if p.client == nil {
		return p.lost
	}
	var fault C.fab_error
	if C.fab_client_close(p.client, &fault) != 0 {
		p.lost = fmt.Errorf("fabric: %w: %w", ErrUnfenced, asError(&fault))
		p.e.log.Error("fabric: memory that was being read to cannot be used again", "err", p.lost)
	}
	p.client = nil
	return p.lost
}

// cut checks all ops and cuts them into pieces.
func (p *Peer) cut(ops []Op) ([]C.fab_piece, error) {
	if len(ops) > OpsMax {
		return nil, fmt.Errorf("fabric: %w: %d ranges, at most %d are allowed", ErrBounds, len(ops), OpsMax)
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(p.e.region)))
	size := uintptr(len(p.e.region))
	var total uint64
	for i, op := range ops {
		bytes := uint64(len(op.Local))
		if bytes > p.remote.Length || op.Remote > p.remote.Length-bytes {
			return nil, fmt.Errorf("fabric: %w: range %d is %d bytes at %d, the peer's region has %d", ErrBounds, i, bytes, op.Remote, p.remote.Length)
		}
		// Below the start the difference is larger than any size.
		offset := uintptr(unsafe.Pointer(unsafe.SliceData(op.Local))) - start
		if bytes > 0 && (uintptr(bytes) > size || offset > size-uintptr(bytes)) {
			return nil, fmt.Errorf("fabric: %w: the memory for range %d is not within the region", ErrBounds, i)
		}
		if total += bytes; total > ReadBytesMax {
			return nil, fmt.Errorf("fabric: %w: more than %d bytes in one read", ErrBounds, ReadBytesMax)
		}
	}
	pieces := make([]C.fab_piece, 0, len(ops)+int(total/PieceBytes))
	for _, op := range ops {
		local := uintptr(unsafe.Pointer(unsafe.SliceData(op.Local)))
		for done := 0; done < len(op.Local); done += PieceBytes {
			pieces = append(pieces, C.fab_piece{
				remote: C.uint64_t(p.remote.Base + op.Remote + uint64(done)),
				local:  C.uintptr_t(local + uintptr(done)),
				bytes:  C.uint64_t(min(PieceBytes, len(op.Local)-done)),
			})
		}
	}
	return pieces, nil
}

// Close ends a read that runs and waits for it. Calls after the first wait, too, and
// return the same. After ErrUnfenced the endpoint keeps the peer, for its own Close to
// return the same.
func (p *Peer) Close() error {
	err := p.shut()
	if err == nil {
		p.e.forget(p)
	}
	return err
}

func (p *Peer) shut() error {
	p.once.Do(func() {
		p.end(ErrClosed)
		p.closed = p.inTime(p.ctx, func() error {
			p.turn <- struct{}{} // for good
			return p.fence()
		})
	})
	return p.closed
}
