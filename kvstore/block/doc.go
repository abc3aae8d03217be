// Package block is the vocabulary of KV blocks: what names them, what tells
// whether they fit, how they are encoded, and what must be checked before bytes
// from outside are believed.
//
// A block holds the K and V rows of a short run of tokens at fixed positions. Its
// ID is chained: a keyed hash over the parent's ID and the block's tokens, so
// equal prefixes have equal IDs, and nobody without the Key can tell from an ID
// what was said. The chain starts at a root made of a Fingerprint, which covers
// everything that shapes KV values (Traits), and of the tenant: a block that does
// not fit, or that is somebody else's, is never found. An ID says which tokens; it
// cannot verify rows, so a Header carries a Digest of them, made by their producer.
//
// The payload is the rows alone: layer by layer, K before V, in position order,
// without padding. Shape says how long rows are, and cuts, joins and scatters
// payloads.
//
// Every length that is read meets a limit of limits.go before anything is
// allocated for it, and what a caller gets from DecodeHeader keeps the limits.
// Header.Check then holds the payload against the header: length, digest, and
// that every number is finite, since one NaN row can spoil the answers of other
// sequences. docs/kv-format.md describes all encodings for other implementations.
//
// The package does no I/O, starts no goroutine and keeps nothing but scratch
// memory; all of it may be called from several goroutines at once. Errors about
// bytes match ErrInvalid, ErrVersion, ErrDamaged or io.ErrUnexpectedEOF.
package block
