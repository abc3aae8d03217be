// Package cluster knows who is there: the nodes of one cluster, found by gossip.
//
// A node is its id, never an address: one that comes back under another address is the
// same node, and two processes with one id are told so, both of them. Members come from
// hashicorp/memberlist, whose names are ids; what a node says of itself (name, version,
// role, addresses) is at most 512 bytes and fits any packet. Loads, models and KV do not
// belong here.
//
// Before two nodes gossip, they say hello on the gossip port (hello.go): one frame each
// way, in the clear but with a proof of the secret. All refusals are made there, where
// both sides can be told the cause in a sentence: another secret, wire version or
// cluster, an id that is used twice, an advertised address that leads nowhere.
// Everything after that is encrypted with the key of the secret.
//
// Joining never ends: the addresses given, those found by mDNS and those that the node
// remembers are tried for ever with backoff, names resolved anew each time. That is also
// what heals a partition. Start does not fail because nobody answers.
//
// What is not used: the clocks of others. A clock that is off is told and changes
// nothing.
//
// Goroutines: memberlist's own, and those of Cluster.start: two that read the sockets,
// one for each stream that has not been recognised yet, one that joins and some that it
// waits for, one that watches (dead nodes, conflicts, the file of addresses), one that
// asks nodes which memberlist gave up, one that looks for blocked UDP, one that spreads
// what this node says of itself, one that calls Config.Changed. Close ends them and
// waits; those of memberlist and of mDNS end soon after.
//
// Blocking: Start resolves the names of its own addresses, which it gives two seconds.
// Members, Member, Problems and Update do not wait. Leave and Close do.
//
// Invariants: Members holds each id once, this node always; what Changed was told last
// of an id is what Members shows or will show at once. No lock of this package is held
// while memberlist is called, because memberlist calls back under its own.
//
// Errors to match: *AddressError from Start and Probe.
//
// Start reading in cluster.go, then join.go and hello.go.
package cluster
