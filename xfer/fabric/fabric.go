package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Limits.
const (
	// PieceBytes is the most that one READ of the library moves: large enough that
	// the cost of a READ does not matter, small enough to keep a window full.
	PieceBytes = 1 << 20
	// Window is how many pieces of a Read are in flight.
	Window = 16
	// ReadTimeMax is the longest that a Read takes, whatever its context allows.
	ReadTimeMax = 30 * time.Second
	// ConnectTimeMax is the longest that a Read waits for a connection: providers try
	// for ever, also where nobody listens any more.
	ConnectTimeMax = 3 * time.Second
	// PeersMax is how many peers an Endpoint has: each costs descriptors, and with
	// hardware a queue pair.
	PeersMax = 64
	// OpsMax and ReadBytesMax bound one Read.
	OpsMax       = 1 << 16
	ReadBytesMax = 16 << 30
)

var (
	// ErrNotBuilt says that this binary cannot use libfabric at all.
	ErrNotBuilt = errors.New("this binary is built without libfabric: install libfabric-dev and build on Linux with -tags fabric and cgo")
	// ErrNoLibrary says that libfabric is not on this machine, or too old.
	ErrNoLibrary = errors.New("libfabric cannot be loaded: install libfabric1, 1.9 or later")
	// ErrNoProvider says that libfabric has no such provider here.
	ErrNoProvider = errors.New("no such provider of libfabric")
	// ErrMismatch says that two ends speak different protocols: reads would hang.
	ErrMismatch = errors.New("the peer's provider is not ours")
	// ErrBounds says that a read goes beyond the peer's region or our own.
	ErrBounds = errors.New("out of bounds")
	// ErrTooManyPeers says that PeersMax are there already.
	ErrTooManyPeers = errors.New("too many peers to read from")
	// ErrClosed says that the endpoint or the peer was closed here.
	ErrClosed = errors.New("the fabric endpoint is closed")
	// ErrUnreachable says that there was no connection to the peer in ConnectTimeMax: it
	// is gone, has rotated, or its address does not lead to it from here.
	ErrUnreachable = errors.New("no connection to the peer")
	// ErrUnfenced says that an endpoint could not be closed: data may still be
	// written to the memory that was given to Read. That memory, and the region
	// after Close, must not be used again or unmapped while the process lives.
	ErrUnfenced = errors.New("what is in flight could not be ended")
	// ErrTime is the cause when ReadTimeMax was over before the context. It is a
	// context.DeadlineExceeded, too.
	ErrTime = fmt.Errorf("the longest time for a read is over: %w", context.DeadlineExceeded)
)

// Error is what libfabric answered.
type Error struct {
	Call string // of libfabric
	Code int    // of rdma/fi_errno.h, positive
	Text string // libfabric's own
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Call, e.Text) }

// Options says what to open. The zero of a field is what it names.
type Options struct {
	// Provider is the full name, such as "verbs;ofi_rxm", "tcp", "net",
	// "tcp;ofi_rxm" or "shm". "": the best RDMA provider there is, never software.
	Provider string
	// Address is the IP address of the interface to listen and dial on; peers get it
	// with Local. "": the provider's choice, usually its first interface. Providers
	// without IP addresses ignore it.
	Address string
	// Region is the memory that peers may read and that Read writes to: mapped, not
	// of the Go heap, there until Close has returned. Peers see all of it at all
	// times.
	Region []byte
	// Log gets warnings; nil: nobody.
	Log *slog.Logger
}

// Info describes a provider.
type Info struct {
	Provider string
	Protocol string // on the wire; both ends need the same
	Library  string // the version of libfabric's API, such as "1.17"
	RDMA     bool   // hardware reads; else a program at the other end copies
}

// Op is one range to read.
type Op struct {
	Remote uint64 // offset into the peer's region
	Local  []byte // within our own region
}

// speaks tells whether an endpoint can read from a peer. The provider net of 1.17 is
// tcp of the versions after it.
func speaks(own, peer Local) bool {
	same := own.Provider == peer.Provider || own.Protocol == "xnet" && isXnet(own.Provider) && isXnet(peer.Provider)
	return same && own.Protocol == peer.Protocol && own.Format == peer.Format
}

func isXnet(provider string) bool { return provider == "net" || provider == "tcp" }
