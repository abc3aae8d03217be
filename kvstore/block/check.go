package block

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// Sum is the digest that h has with the given payload: XXH128 over the encoded
// header up to its digest, followed by the XXH128 of the payload. h.Digest itself
// does not matter. The producer of a block puts it into the header when
// PayloadBytes and all other fields are final.
func (h Header) Sum(payload []byte) Digest {
	rows := xxh3.Hash128(payload).Bytes()
	var onStack [offsetTokens + 4*CountMax + len(rows)]byte
	return xxh3.Hash128(append(appendDigested(onStack[:0], h), rows[:]...)).Bytes()
}

// Check holds the payload against its header and the shape that belongs to the
// header's fingerprint: limits, length, digest, and that every f16 number and every
// scale is finite. A payload that passed may be given to an engine of that shape.
// It allocates nothing unless it fails. Errors match ErrInvalid or ErrDamaged.
func (h Header) Check(shape Shape, payload []byte) error {
	if err := h.Validate(); err != nil {
		return err
	}
	if err := shape.Validate(); err != nil {
		return err
	}
	if want := shape.Bytes(); h.PayloadBytes/h.Count != want {
		return fmt.Errorf("%w: payload bytes are %d for %d tokens; allowed: %d for each", ErrInvalid, h.PayloadBytes, h.Count, want)
	}
	if len(payload) != h.PayloadBytes {
		return fmt.Errorf("%w: payload has %d bytes; the header says %d", ErrDamaged, len(payload), h.PayloadBytes)
	}
	if sum := h.Sum(payload); sum != h.Digest {
		return fmt.Errorf("%w: digest is %v; header and payload make %v", ErrDamaged, h.Digest, sum)
	}
	return shape.checkFinite(payload, h.Count)
}
