package block

import "errors"

// Limits on what is read, and on what Validate lets through.
const (
	// LayersMax is the most KV layers. The deepest known models have about 130.
	LayersMax = 1024
	// RowBytesMax is the most bytes of one row: 524,288 f16 values.
	RowBytesMax = 1 << 20
	// TokenBytesMax is the most bytes of all rows of one token. Known models need
	// up to 4 MiB.
	TokenBytesMax = 16 << 20
	// CountMax is the most tokens in one block. Blocks of 32 or 64 are usual.
	CountMax = 1024
	// PositionMax is the highest position that an engine takes.
	PositionMax = 1<<31 - 1
	// PayloadBytesMax is the most bytes of one payload: 64 tokens at TokenBytesMax.
	// Those who allocate for a payload have tighter budgets of their own.
	PayloadBytesMax = 64 * TokenBytesMax
	// HeaderBytesMax is the longest header of any version.
	HeaderBytesMax = 64 << 10
)

// Kinds of errors; errors.Is finds them. Bytes that end too early give
// io.ErrUnexpectedEOF instead.
var (
	// ErrInvalid: something is outside of what is allowed. The text names it.
	ErrInvalid = errors.New("invalid KV block")
	// ErrVersion: a header of a version that this program does not read.
	ErrVersion = errors.New("unknown version of the KV block format")
	// ErrDamaged: bytes are not those that were written.
	ErrDamaged = errors.New("damaged KV block")
)
