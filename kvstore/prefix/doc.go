// Package prefix keeps the tree of KV blocks that a node holds: which blocks are in
// which tier, who needs them, how often they were used, and which may go first.
//
// It holds no bytes of any block and does no I/O. A Tree belongs to one goroutine
// at a time: the caller locks. It has no clock and no random source; time comes in
// as a Tick, and equal calls give equal results.
//
// A node of the tree is a block; its parent is the block before it. The parent of
// first blocks is a root, which stands for a fingerprint and a tenant and is never
// held itself. A block may be known before its parent is: blocks arrive in any
// order, and a block in the middle may be lost. The gap is then a node without
// presence, and Match ends there until somebody fills it.
//
// What is in use, by a lease or by a pin, protects itself and all blocks before it,
// in every tier. Evict goes from the leaves up, so it never leaves a gap: a block
// goes from a tier only after all blocks that follow it in that tier have gone.
//
// The value of a block is its number of uses, each of which counts half as much
// after every half-life. It is kept as a logarithm that is comparable at all times,
// so that nothing has to be updated as time goes by.
//
// Cost: Add, Remove, Lease, Release, Pin and a victim of Evict take O(log n) for n
// blocks, plus a step for each ancestor that is not in the tier, up to the first one
// that is; Match and Touch take O(1) per id. About 145 bytes per block.
//
// Start reading in tree.go, then hold.go and evict.go.
package prefix
