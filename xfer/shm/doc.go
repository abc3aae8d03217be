// Package shm moves bytes between two processes of one machine through memory that
// both have mapped.
//
// Nouns. A Window is such memory. The side that wants to read makes it (Offer) and
// gives it, over a Unix socket, to the side that writes, which has a Listener. What
// lies where in a Window is the writer's business: it takes places with Alloc, writes,
// tells the reader over some other way, and gives them back with Free.
//
// Who may: the socket takes only processes of the same user that show a token, which
// they got over an authenticated way from the listener's node and which holds for one
// window and some seconds. The memory is sealed: nobody can make it smaller, so
// neither side can be killed by the other's file. What the reader sees may change
// while it looks: it copies first, and checks the copy.
//
// A Window ends when either side closes it or ends: its socket tells. Use keeps the
// memory mapped for as long as somebody works in it.
//
// Goroutines. A Listener has one, and one for each connection that has not shown its
// token yet, for HelloTime at most. A Window has one, which waits for the other side's
// end. Close waits for all of them.
//
// Linux only; elsewhere Listen and Offer return errors.ErrUnsupported.
package shm

import (
	"errors"
	"time"
)

// Limits.
const (
	// BytesMax is the largest window: some blocks of a large model.
	BytesMax = 256 << 20
	// HelloTime is the longest that a connection takes to become a window, and that a
	// token holds.
	HelloTime = 5 * time.Second
	// hellosMax is how many connections may be without a window at once, and how many
	// tokens are out.
	hellosMax = 64
	// NameBytesMax is the longest name of a socket.
	NameBytesMax = 100
	// align is what places are multiples of: a cache line.
	align = 64
)

// TokenBytes is the length of a Token.
const TokenBytes = 16

// Token lets one process give one window to a listener.
type Token [TokenBytes]byte

var (
	// ErrClosed says that a window was closed, by either side.
	ErrClosed = errors.New("the shared memory was closed")
	// ErrTooLarge says that something can never fit into a window.
	ErrTooLarge = errors.New("larger than the shared memory")
	// ErrBounds says that a range is not within the window.
	ErrBounds = errors.New("out of the shared memory")
	// ErrRefused says that the other side did not take a window.
	ErrRefused = errors.New("the other side does not take shared memory")
)
