package xfer

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// Transport is what carries a connection.
type Transport string

// The transports, best first; loop is a node's way to itself.
const (
	QUIC Transport = "quic"
	TCP  Transport = "tcp"
	Loop Transport = "loop"
)

// Ways of blocks beside connections: they carry bytes of blocks and nothing else.
const (
	Shared Transport = "shm"  // memory that two processes of one machine have mapped
	RDMA   Transport = "rdma" // one-sided reads of the holder's memory
)

// session is a connection that carries streams. What ends it ends its streams; a
// session notices that its peer says goodbye, not that it fell silent.
type session interface {
	// open makes a stream. Calls are made one at a time, so ids ascend.
	open(ctx context.Context) (rawStream, error)
	// accept returns the peer's streams in the order of their ids, and an error
	// once the session is over.
	accept() (rawStream, error)
	// ours tells whether a stream with this id would have been opened here.
	ours(id uint64) bool
	// close ends the session. goodbye, if any, is told to the peer where that is
	// possible without waiting long; bye is the control stream.
	close(goodbye *frame, bye rawStream)
	// heard is when something came last, as far as that is known: at most the time
	// between two calls later.
	heard() time.Time
	remote() net.Addr
}

// rawStream is a stream of a session, without any of the rules of Stream.
type rawStream interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	id() uint64
	// closeWrite tells the peer that nothing follows. It may wait for the network;
	// nobody writes at that time.
	closeWrite() error
	// stopRead gives up what comes.
	stopRead()
	// reset gives up both directions. It may wait for the network.
	reset()
}

// long past: a deadline that wakes whoever waits.
var long = time.Unix(1, 0)

// isTimeout tells whether an error of a raw stream is its deadline.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() && !errors.Is(err, net.ErrClosed)
}
