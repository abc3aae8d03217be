// Package identity turns the secret of a cluster into what nodes need to trust each
// other: the key of gossip, the key of block ids, and certificates for TLS.
//
// Who has the secret is a member; there is nothing else to hand out. Every key comes
// from it by HKDF-SHA256 without salt, each with its own info text, so that none
// tells anything of another. The certificate authority is such a key too: every holder
// derives the same one and mints certificates for itself, which last a week and are
// made anew while connections come in. A certificate names the node's id, never an
// address.
//
// Clocks are not trusted. A certificate begins two days before it was made and is
// replaced when half of its week is over, so nodes whose clocks are off by more than a
// day still agree; beyond that the error says that it is the clock.
//
// A secret is changed by giving [new, old] to each node in turn. A node with both
// shows whichever certificate the other side can check: the client says in the server
// name which secrets it knows, the server in the list of authorities.
//
// Goroutines: none. Nothing blocks. All methods are safe for concurrent use.
//
// Errors to match: ErrWrongSecret, ErrClock, ErrWrongNode, and *SecretError from New.
// When a handshake fails because the other side refused this node, Explain makes a
// sentence of the alert.
//
// Start reading in identity.go, then tls.go.
package identity
