package block

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"
)

// Version is the one of the header that AppendHeader writes and DecodeHeader reads.
const Version = 1

// magic begins every header.
const magic = "TKVB"

// Header is what is known of a block without its rows.
//
// Invariants, kept by Validate: 1 <= Count <= CountMax; Start >= 0 and
// Start+Count-1 <= PositionMax; len(Tokens) == Count, none negative; PayloadBytes is
// a positive multiple of Count, at most Count*TokenBytesMax and PayloadBytesMax.
type Header struct {
	ID          ID
	Parent      ID // the block before, or the root
	Fingerprint Fingerprint
	Start       int     // position of the first token
	Count       int     // tokens in the block
	Tokens      []Token // with them the holder of the Key can verify ID
	// PayloadBytes is Count times the bytes of all rows of a token.
	PayloadBytes int
	Digest       Digest // see Sum
}

// Offsets in an encoded header. After the fixed part come the tokens, the digest
// and the check sum of all bytes before it.
const (
	offsetVersion     = 4
	offsetReserved    = 6
	offsetLength      = 8
	offsetCount       = 12
	offsetStart       = 16
	offsetPayload     = 24
	offsetID          = 32
	offsetParent      = 48
	offsetFingerprint = 64
	offsetTokens      = 96

	digestBytes = len(Digest{})
	sumBytes    = 8
)

// HeaderPrefixBytes is how much of a header HeaderLength needs to see.
const HeaderPrefixBytes = offsetCount

// HeaderBytes is the length of the encoded header of a block of count tokens.
func HeaderBytes(count int) int { return offsetTokens + 4*count + digestBytes + sumBytes }

// Validate checks the invariants. The error matches ErrInvalid.
func (h Header) Validate() error {
	switch {
	case h.Count < 1 || h.Count > CountMax:
		return fmt.Errorf("%w: count is %d; allowed: 1 to %d", ErrInvalid, h.Count, CountMax)
	case h.Start < 0 || h.Start > PositionMax-(h.Count-1):
		return fmt.Errorf("%w: start is %d; allowed: 0 to %d for %d tokens", ErrInvalid, h.Start, PositionMax-(h.Count-1), h.Count)
	case len(h.Tokens) != h.Count:
		return fmt.Errorf("%w: %d tokens are listed; allowed: as many as count, %d", ErrInvalid, len(h.Tokens), h.Count)
	case h.ID.IsZero():
		return fmt.Errorf("%w: id is zero; allowed: any other", ErrInvalid)
	}
	if err := validatePayloadBytes(h.PayloadBytes, h.Count); err != nil {
		return err
	}
	for i, t := range h.Tokens {
		if t < 0 {
			return fmt.Errorf("%w: token %d is %d; allowed: 0 to %d", ErrInvalid, i, t, PositionMax)
		}
	}
	return nil
}

// validatePayloadBytes expects a count within its limits.
func validatePayloadBytes(n, count int) error {
	most := min(count, PayloadBytesMax/TokenBytesMax) * TokenBytesMax
	if n < 1 || n > most || n%count != 0 {
		return fmt.Errorf("%w: payload bytes are %d; allowed: multiples of count, %d, up to %d", ErrInvalid, n, count, most)
	}
	return nil
}

// AppendHeader appends the encoding of h to dst. It expects that h.Validate gave
// no error; what is written of another header is refused by DecodeHeader.
func AppendHeader(dst []byte, h Header) []byte {
	dst = slices.Grow(dst, HeaderBytes(len(h.Tokens)))
	start := len(dst)
	dst = appendDigested(dst, h)
	dst = append(dst, h.Digest[:]...)
	return binary.LittleEndian.AppendUint64(dst, xxh3.Hash(dst[start:]))
}

// appendDigested appends the part of the header that the digest covers: everything
// before the digest.
func appendDigested(dst []byte, h Header) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, Version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(HeaderBytes(len(h.Tokens))))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Count))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.PayloadBytes))
	dst = append(dst, h.ID[:]...)
	dst = append(dst, h.Parent[:]...)
	dst = append(dst, h.Fingerprint[:]...)
	for _, t := range h.Tokens {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	}
	return dst
}

// HeaderLength tells from the first HeaderPrefixBytes of a header how long it is,
// for those who read from a stream. The length is at most HeaderBytesMax. Errors
// match io.ErrUnexpectedEOF, ErrVersion or ErrInvalid.
func HeaderLength(b []byte) (int, error) {
	if len(b) < HeaderPrefixBytes {
		return 0, short(len(b), HeaderPrefixBytes)
	}
	if string(b[:offsetVersion]) != magic {
		return 0, fmt.Errorf("%w: it begins with %q; allowed: %q", ErrInvalid, b[:offsetVersion], magic)
	}
	if v := binary.LittleEndian.Uint16(b[offsetVersion:]); v != Version {
		return 0, fmt.Errorf("%w: version is %d; allowed: %d", ErrVersion, v, Version)
	}
	if r := binary.LittleEndian.Uint16(b[offsetReserved:]); r != 0 {
		return 0, fmt.Errorf("%w: reserved field is %d; allowed: 0", ErrInvalid, r)
	}
	n := binary.LittleEndian.Uint32(b[offsetLength:])
	if n < uint32(HeaderBytes(1)) || n > HeaderBytesMax {
		return 0, fmt.Errorf("%w: header length is %d; allowed: %d to %d", ErrInvalid, n, HeaderBytes(1), HeaderBytesMax)
	}
	return int(n), nil
}

func short(have, want int) error {
	return fmt.Errorf("KV block header: %w: %d bytes are here, %d are needed", io.ErrUnexpectedEOF, have, want)
}

// DecodeHeader reads the header that b begins with and its length n. The payload
// is not looked at: see Check. Nothing of b is kept. The header passes Validate.
//
// Errors match io.ErrUnexpectedEOF (b is too short), ErrVersion, ErrDamaged (the
// header's check sum is wrong) or ErrInvalid (it is outside of a limit).
func DecodeHeader(b []byte) (h Header, n int, err error) {
	n, err = h.Decode(b)
	return h, n, err
}

// Decode is DecodeHeader into h, whose Tokens are overwritten and used again, so
// that a loop over many headers need not allocate. After an error h is undefined.
func (h *Header) Decode(b []byte) (n int, err error) {
	if n, err = HeaderLength(b); err != nil {
		return 0, err
	}
	if len(b) < n {
		return 0, short(len(b), n)
	}
	b = b[:n]
	body := b[:n-sumBytes]
	if got, want := xxh3.Hash(body), binary.LittleEndian.Uint64(b[n-sumBytes:]); got != want {
		return 0, fmt.Errorf("%w: check sum of the header is %016x; its bytes make %016x", ErrDamaged, want, got)
	}
	if err := h.decodeNumbers(b); err != nil {
		return 0, err
	}
	copy(h.ID[:], b[offsetID:])
	copy(h.Parent[:], b[offsetParent:])
	copy(h.Fingerprint[:], b[offsetFingerprint:])
	copy(h.Digest[:], body[len(body)-digestBytes:])
	h.Tokens = slices.Grow(h.Tokens[:0], h.Count)[:h.Count]
	for i := range h.Tokens {
		h.Tokens[i] = Token(binary.LittleEndian.Uint32(b[offsetTokens+4*i:]))
	}
	if err := h.Validate(); err != nil {
		return 0, err
	}
	return n, nil
}

// decodeNumbers reads the sizes. They are compared as they are in b, where they
// have more bits than an int may have.
func (h *Header) decodeNumbers(b []byte) error {
	count := binary.LittleEndian.Uint32(b[offsetCount:])
	start := binary.LittleEndian.Uint64(b[offsetStart:])
	payload := binary.LittleEndian.Uint64(b[offsetPayload:])
	switch {
	case count > CountMax || HeaderBytes(int(count)) != len(b):
		return fmt.Errorf("%w: count is %d; allowed: 1 to %d, and as the header length %d says", ErrInvalid, count, CountMax, len(b))
	case start > PositionMax:
		return fmt.Errorf("%w: start is %d; allowed: 0 to %d", ErrInvalid, start, PositionMax)
	case payload > PayloadBytesMax:
		return fmt.Errorf("%w: payload bytes are %d; allowed: at most %d", ErrInvalid, payload, PayloadBytesMax)
	}
	h.Count, h.Start, h.PayloadBytes = int(count), int(start), int(payload)
	return nil
}
