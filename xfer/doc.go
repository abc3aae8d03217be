// Package xfer is the peer link: streams of bytes between the nodes of a cluster,
// which are named by id. A stream is ordered, has an end of its own in each
// direction, waits for a slow reader without holding up others, and is cancelled
// with a reason that overtakes its data. What goes through it is the business of
// services, which register a Handler by name.
//
// A Link listens on one port, in UDP and TCP. Between two nodes there is one
// connection, made by whoever needs it first and kept: QUIC, or TLS over TCP with
// yamux where QUIC does not connect; that is said, and QUIC is tried again. Two that
// dial each other at once get two connections: both work, both ends prefer the same
// one, and the other is retired. A node's streams to itself take a pipe in memory and
// behave alike. Data that is not to delay tokens has connections of its own, one for
// each transport and lane (OpenBulk); only who dialled them opens streams on them. The
// format is in docs/wire.md.
//
// Goroutines. A Link has two that accept and one that tends the pool; a connection
// has four (conn), each attempt to connect one and one more for each address, each
// stream that a peer opened one, for its handler. Close ends and awaits them all.
//
// Blocking. Open may wait for a connection and for a free place; Read and Write for
// the peer; Close for handlers. CloseWrite waits for a Write in progress. Cancel and
// Stream.Close do not wait for the network, nor do Peers and Handle.
//
// Invariants: io.EOF is returned only after the peer said how many bytes it wrote and
// all of them were read; no goroutine of a connection waits for a handler or for a
// reader of a stream; every byte of a peer meets a limit of limits.go before memory is
// taken for it. A silent peer ends its connection, and with it all its streams, within
// 5 s, and within 15 s on a connection for data, whose pings share a queue with it.
//
// Errors to match: *RemoteError, *PeerLostError, *UnreachableError, *RefusedError,
// *CancelledError, *MessageTooLongError, ErrPeerDone, ErrClosed, net.ErrClosed.
//
// Start reading in link.go, then conn.go and stream.go.
package xfer
