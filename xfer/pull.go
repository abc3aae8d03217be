package xfer

import (
	"encoding/binary"
	"fmt"
	"time"

	"tandem/kvstore/block"
)

// ServicePull is where a node gives KV blocks to others: docs/kv-pull.md.
const ServicePull = "kv/pull"

// Limits of a pull.
const (
	// PullBlocksMax is the most blocks of one pull: a prompt of a million tokens in
	// blocks of 64.
	PullBlocksMax = 1 << 14
	// PullWaitMax is the longest that a holder waits for blocks that are being made.
	PullWaitMax = 10 * time.Minute
	// PullsMax is how many pulls a holder serves at once; each has one block at a time.
	PullsMax = 64
	// pullLease is how long a holder keeps a block for a puller that takes nothing.
	pullLease = 30 * time.Second
	// pullStall is how long a puller waits for the next byte of a block that was begun.
	pullStall = 5 * time.Second

	// pullRenew is how often a puller that reads memory itself says that it does.
	pullRenew = 5 * time.Second
	// pullLent is how many blocks are lent at once to a puller that reads memory.
	pullLent = 32
	// pullBatch is how many of them, and pullBatchBytes how much, it reads at once.
	pullBatch      = 16
	pullBatchBytes = 64 << 20

	pullVersion    = 1
	pullHeadBytes  = 1 + 1 + 2 + 4 + 4
	pullRequestMax = pullHeadBytes + PullBlocksMax*len(block.ID{})
	pullTextMax    = 512
	pullFrameBlock = 'B'
	pullFramePlace = 'R'
	pullFrameEnd   = 'E'
	pullWordRead   = 'A' // of the puller: the first block that is lent was read
	pullWordRenew  = 'K' // of the puller: it is still reading
	pullLanesMax   = 16
)

// PullWay says how a puller gets the bytes of blocks.
type PullWay uint8

// The ways. A holder may give bytes whatever way was asked for.
const (
	PullBytes  PullWay = iota // in frames, behind the header
	PullWindow                // from memory that both processes have mapped
	PullRegion                // from the holder's memory, by one-sided reads
	pullWays
)

// Outcome says how a pull ended.
type Outcome uint8

// The outcomes. Whatever comes before the end can be used; what is missing is
// computed.
const (
	// PullComplete: every block came.
	PullComplete Outcome = iota
	// PullMissing: the holder does not hold the next block, or did not get it in time.
	PullMissing
	// PullBusy: the holder serves as many pulls as it can.
	PullBusy
	// PullNoRoom: the puller has no memory for the next block.
	PullNoRoom
	// PullDamaged: a block did not verify, or was not the one that was asked for.
	PullDamaged
	// PullUnknown: the puller does not know the shape of such blocks.
	PullUnknown
	// PullLost: the holder, or the way to it, is gone, or stood still.
	PullLost
	// PullCancelled: the puller wants no more, or its time is over.
	PullCancelled
	outcomes
)

func (o Outcome) String() string {
	if o >= outcomes {
		return fmt.Sprintf("outcome(%d)", uint8(o))
	}
	return [...]string{"complete", "missing", "busy", "no_room", "damaged", "unknown_shape", "lost", "cancelled"}[o]
}

// PullError says why a pull ended early.
type PullError struct {
	Outcome Outcome
	Err     error // may be nil
}

func (e *PullError) Error() string {
	text := map[Outcome]string{
		PullMissing: "the holder has no more of the blocks", PullBusy: "the holder serves too many others", PullNoRoom: "there is no memory for more blocks",
		PullDamaged: "a block did not verify", PullUnknown: "blocks of that shape are not known here", PullLost: "the holder is gone", PullCancelled: "it was cancelled",
	}[e.Outcome]
	if e.Err != nil {
		return text + ": " + e.Err.Error()
	}
	return text
}

func (e *PullError) Unwrap() error { return e.Err }

// encodePull is the request for blocks, each of which the holder may wait for.
func encodePull(way PullWay, wait time.Duration, ids []block.ID) []byte {
	b := make([]byte, 4, pullHeadBytes+len(ids)*len(block.ID{}))
	b[0], b[1] = pullVersion, byte(way)
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(wait, 0), PullWaitMax).Milliseconds()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func decodePull(b []byte) (way PullWay, wait time.Duration, ids []block.ID, err error) {
	if len(b) < pullHeadBytes {
		return 0, 0, nil, fmt.Errorf("a pull of %d bytes; at least %d", len(b), pullHeadBytes)
	}
	if b[0] != pullVersion {
		return 0, 0, nil, fmt.Errorf("pull version %d; allowed: %d: update the older program", b[0], pullVersion)
	}
	way = PullWay(b[1])
	wait = time.Duration(binary.BigEndian.Uint32(b[4:])) * time.Millisecond
	n := binary.BigEndian.Uint32(b[8:])
	rest := b[pullHeadBytes:]
	switch {
	case way >= pullWays:
		return 0, 0, nil, fmt.Errorf("a pull by way %d; the ways are 0 to %d: update the older program", way, pullWays-1)
	case wait > PullWaitMax:
		return 0, 0, nil, fmt.Errorf("a pull that waits %v; at most %v", wait, PullWaitMax)
	case n < 1 || n > PullBlocksMax:
		return 0, 0, nil, fmt.Errorf("a pull of %d blocks; 1 to %d are allowed", n, PullBlocksMax)
	case len(rest) != int(n)*len(block.ID{}):
		return 0, 0, nil, fmt.Errorf("a pull of %d blocks with %d bytes of ids", n, len(rest))
	}
	ids = make([]block.ID, n)
	for i := range ids {
		copy(ids[i][:], rest[i*len(ids[i]):])
	}
	return way, wait, ids, nil
}
