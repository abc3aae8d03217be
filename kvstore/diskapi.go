package kvstore

import (
	"context"
	"errors"

	"tandem/kvstore/block"
)

var (
	// ErrNotFound says that the disk tier does not hold the block: a miss.
	ErrNotFound = errors.New("the block is not held on disk")
	// ErrFull says that the file system has no room, or the tier no budget: storing
	// stops, reading goes on.
	ErrFull = errors.New("no room for more KV blocks on disk")
)

// Record is one block to be written: its header, with tokens, and its payload of
// Header.PayloadBytes bytes. Both belong to the caller again when Put returns.
type Record struct {
	Header  block.Header
	Payload []byte
}

// DiskStats is the state of a disk tier.
type DiskStats struct {
	Bytes       int64 // on the file system, by st_blocks
	Budget      int64 // most bytes that Bytes may reach
	Blocks      int   // that Get would find
	Generations int   // directories in the ring
	Dropped     int64 // blocks that went with their generation since Open
	SetAside    int64 // generations that were found damaged since Open
	Full        bool  // the last Put ended in ErrFull
}

// Disk keeps encoded blocks. It is safe for concurrent use.
//
// What it gives back is not trusted: the caller checks every payload against its
// header, and the header against what it asked for.
type Disk interface {
	// Put writes one batch. On an error each of its blocks is either stored or
	// not; none is stored in part. ErrFull: no room, try again much later.
	Put(ctx context.Context, batch []Record) error
	// Get reads a block. It calls dst at most once, with the length of the payload,
	// bounded by named limits, and fills the memory it is given; nil from dst ends
	// the read with an error. ErrNotFound is a miss; after any other error the
	// caller treats the block as damaged.
	Get(ctx context.Context, id block.ID, dst func(n int) []byte) (block.Header, error)
	// Walk calls fn for every block held, parents and children in any order, with a
	// header without tokens and the bytes that the block takes on disk, until fn
	// returns false. It is meant for the start: it reads keys only.
	Walk(fn func(h block.Header, bytes int64) bool) error
	// Forget makes a block not found. Its space comes back with its generation.
	Forget(id block.ID)
	// Touch says that blocks were used: they are worth copying forward.
	Touch(ids []block.ID)
	// Stats never blocks on I/O.
	Stats() DiskStats
	// Close waits for what runs and releases the directory.
	Close() error
}
