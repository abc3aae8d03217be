// Package kvstore holds the KV blocks of a node outside its engines: in RAM and on
// disk. A prefix that was computed once is found here by the next request that
// begins with it, after its sequence left the engine and after a restart.
//
// A Store is the composition. A block comes in through Reserve and Commit, or
// Import, and is first in RAM; it is written behind to disk when it has been used
// often enough. Lookup gives a Run, the longest beginning of a prompt that is held
// in any tier, protected by a lease; Load brings what is on disk into RAM. What the
// blocks mean is the business of package block, which of them may go that of package
// prefix, and how they lie on disk that of a Disk.
//
// Promises. A block is visible only after its digest was made or checked; one that
// does not verify is deleted, counted and reported, and is a miss. What a Ref shows
// does not change until its Release. A chain is never holed by eviction. RAM stays
// within its budget, which includes blocks that are being written. The store loses
// blocks, for want of room, time or a sound disk, but never mixes them up.
//
// Memory. Payloads lie in an Arena, outside the Go heap and reused for ever.
//
// Goroutines. A Store has one that makes digests and one that writes to disk, and
// one per block that is being read from disk; an Arena has one that faults memory
// in. Close waits for all of them.
//
// Blocking. Reserve, Commit, Abort and Lookup do no I/O and wait for nothing but the
// store's lock, which nobody holds for longer than a few microseconds at a time.
// Load, Flush, Verify, Export, Import and Close take a context.
//
// Errors to match: ErrNotFound, ErrFull, ErrClosed, ErrInUse.
//
// Start reading in store.go, then writer.go, flush.go and run.go.
package kvstore
