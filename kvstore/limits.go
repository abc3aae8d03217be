package kvstore

import "time"

// Limits, each with its reason.
const (
	// lookupStep is how many blocks are looked up under one hold of the lock:
	// the engine waits for that lock.
	lookupStep = 32
	// evictStep is the most blocks that one Reserve evicts: its time is bounded.
	evictStep = 32
	// scanStep is how many nodes of the tree are copied under one hold of the lock.
	scanStep = 128

	// batchBytesMax and batchBlocksMax bound what is written to disk at once. Blocks
	// of the batch cannot be evicted, so it is a small part of the RAM tier; and all
	// are entered under one hold of the lock.
	batchBytesMax  = 8 << 20
	batchBlocksMax = 32

	// readsMax is how many blocks are read from disk at once, for all requests: more
	// does not make an SSD faster, and each takes memory.
	readsMax = 8
	// readTimeout is how long one block may take. Its memory stays taken until the
	// disk lets go of it, but nobody waits longer.
	readTimeout = 30 * time.Second

	// fullRetry is how long nothing is written after the disk was full, failRetry
	// after another error.
	fullRetry = 30 * time.Second
	failRetry = 5 * time.Second

	// pinsEvery: after each such part of the disk's budget was written, pinned blocks
	// are touched, so that they are copied before their generation goes.
	pinsEvery = 32
	// pinsMax bounds the file of pins.
	pinsMax = 4096
	// pathMax is the most blocks of one path that are gone through: 2^20 blocks of
	// the usual 64 tokens are far above any model's context.
	pathMax = 1 << 20

	// queueDefault is how many bytes may wait for the disk unless Options say so.
	queueDefault = 64 << 20
	// halfLife is the time after which a use counts half, in milliseconds.
	halfLife = uint64(time.Hour / time.Millisecond)
)
