package block

import (
	"encoding/hex"
	"fmt"
)

// ID names a block by the tokens that led to it; see Key. The zero ID is no
// block's. It is no secret.
type ID [16]byte

// Fingerprint is the digest of Traits: blocks of equal fingerprints fit each
// other's engines. It is no secret.
type Fingerprint [32]byte

// Digest is the check sum of a header and its payload, in XXH128's canonical byte
// order; see Header.Sum. It finds accidents: whoever can write a payload can also
// write its digest.
type Digest [16]byte

// ParseID reads the 32 hexadecimal digits that String writes.
func ParseID(s string) (ID, error) {
	var id ID
	err := id.UnmarshalText([]byte(s))
	return id, err
}

// ParseFingerprint reads the 64 hexadecimal digits that String writes.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	err := f.UnmarshalText([]byte(s))
	return f, err
}

// IsZero tells whether id is that of no block.
func (id ID) IsZero() bool { return id == ID{} }

// String is 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// String is 64 hexadecimal digits.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// String is 32 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes what String does.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// MarshalText writes what String does.
func (f Fingerprint) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, f[:]), nil }

// UnmarshalText reads what String writes. After an error id is unchanged.
func (id *ID) UnmarshalText(text []byte) error { return unhex(id[:], text, "block id") }

// UnmarshalText reads what String writes. After an error f is unchanged.
func (f *Fingerprint) UnmarshalText(text []byte) error { return unhex(f[:], text, "fingerprint") }

// unhex fills dst with exactly the bytes that text spells, or leaves it alone.
func unhex(dst, text []byte, what string) error {
	if len(text) != hex.EncodedLen(len(dst)) {
		return fmt.Errorf("%s: %d characters; allowed: %d hexadecimal digits", what, len(text), hex.EncodedLen(len(dst)))
	}
	var spelled [len(Fingerprint{})]byte
	if _, err := hex.Decode(spelled[:], text); err != nil {
		return fmt.Errorf("%s %q: allowed: %d hexadecimal digits", what, text, hex.EncodedLen(len(dst)))
	}
	copy(dst, spelled[:])
	return nil
}
