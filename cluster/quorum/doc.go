// Package quorum holds what the nodes of a cluster must agree on: the cluster's id,
// settings, the role plan, where models are assigned, pins and revocations. It is
// hashicorp/raft over streams that others provide, a durable log of its own, and a
// membership that follows gossip with care. Loads, indexes and liveness are not
// agreed on; they have no place here.
//
// A Quorum is a node's part in it. State and Status are snapshots; Change asks the
// leader, from any node; Watch tells of new states. The nouns below that: an identity
// says which cluster, which generation of it and which incarnation of this node's
// folder; a core is one running raft over one store, replaced as a whole when the
// node gives up a state or is recovered; a card is what nodes tell each other.
//
// Three rules keep strangers apart. Raft's streams begin with a hello and exist only
// between nodes of the same identity. A node whose folder was lost has a new
// incarnation, and neither votes nor is asked until the leader has removed the old
// one and its own state machine has seen the new one. Of two clusters that meet, one
// gives up in one deterministic way, or both say why they cannot (resolve.go).
//
// Goroutines. A Quorum has one that reconciles membership and identity, one that
// accepts streams, one that calls watchers, one that owns the file, one per question
// to a peer and those of raft. Close waits for them, within its context.
//
// Blocking. State, Status, MembersChanged and Watch wait for no disk, peer or leader.
// Change, Leave, Recover, HandleForward and Close take a context, and Change has a
// limit of its own. The callbacks Members and Streams may be called at any time until
// Close returns; Members must not block.
//
// Invariants: what is acknowledged is on the disks of a majority of the voters; a term
// or vote is on disk before it is told; there are at most VotersMax voters; the state
// machine does the same on every node, whatever its version, so it checks only what
// will never change, and the leader checks the rest before it appends.
//
// Errors to match: *NoQuorumError, *InvalidError, *StaleError, ErrUncertain, ErrBusy,
// ErrClosed, ErrInUse.
//
// Start reading in quorum.go, then reconcile.go, resolve.go and store.go; the reasons
// are in docs/decisions/0016-agreement.md.
package quorum
