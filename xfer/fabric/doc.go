// Package fabric reads memory of another process without its help: one-sided READs of
// a registered region through libfabric, whose providers drive RDMA hardware (verbs,
// efa, cxi, opx, psm3). Providers in software (tcp, net, tcp;ofi_rxm, shm) run the same
// code; they are for tests, or for those who choose them, and never chosen by themselves.
//
// The library is opened at run time: a binary does not need it to start. The real code
// is built with the tag fabric on Linux with cgo, where the headers of libfabric-dev
// are; elsewhere Open returns ErrNotBuilt.
//
// What is left to others: who may read (there is neither encryption nor authentication
// here: whoever reaches the network and knows or guesses the key can read the region),
// how a Local gets to the peer (over an authenticated stream), what lies where in the
// region, for how long, and whether what was read is what was meant (a digest).
//
// Nouns. An Endpoint owns the registered region and lets peers read it. A Local is what
// a peer must know for that. A Peer reads from one Local; each has an endpoint of the
// library to itself, and where the provider registers nothing for our own reads a domain,
// so that a peer that fails costs no other anything.
//
// Goroutines. An Endpoint has one, which answers peers and is in C until Close or Rotate:
// without it the reads of peers hang with most providers. Read has one while it runs; a
// Peer does one Read at a time.
//
// Blocking. Open and Rotate register memory, which may take seconds with hardware. Read
// waits for the peer until its context ends or ReadTimeMax is over, and notices either
// within a few milliseconds. Peer.Close and Endpoint.Close wait for reads, which they end.
// If a call of the library hangs nonetheless, Read and Close return ErrUnfenced.
//
// Invariants. After Read has returned, whatever it returns, nothing is written to the
// memory it was given, however late a peer answers: unless everything arrived, its
// endpoint is closed first, and the next Read opens another. The one exception has an
// error of its own, ErrUnfenced. Every range is checked against the peer's length and
// the own region before the first byte moves. A provider is used only under exactly the
// name that was asked for. Handlers of signals stay as they were.
//
// Errors to match: ErrNotBuilt, ErrNoLibrary, ErrNoProvider, ErrMismatch, ErrBounds,
// ErrTooManyPeers, ErrUnreachable, ErrClosed, ErrUnfenced, *Error.
//
// Start reading in fabric.go, then peer.go and shim.h.
package fabric
