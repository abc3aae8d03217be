package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Limits on what a Local holds.
const (
	providerBytesMax = 63
	protocolBytesMax = 31
	nameBytesMax     = 256
	addressBytesMax  = 63 // of an IP address with its zone
	// LocalBytesMax is the longest encoding of a Local.
	LocalBytesMax = 1 + 1 + providerBytesMax + 1 + protocolBytesMax + 4 + 2 + nameBytesMax + 3*8
)

// localVersion is the first byte of an encoding.
const localVersion = 1

// Local is what a peer needs to read the region of an endpoint. The key is a secret:
// it goes over an authenticated, encrypted stream and into no log.
type Local struct {
	Provider string
	Protocol string
	Format   uint32 // of Name, a number of libfabric
	Name     []byte // of the endpoint, as its provider writes addresses
	Key      uint64
	Base     uint64 // what the provider adds to offsets
	Length   uint64 // bytes of the region
}

var errLocal = errors.New("fabric: not the description of an endpoint")

// validate holds for all that is sent or was received.
func (l Local) validate() error {
	switch {
	case !isName(l.Provider, providerBytesMax):
		return fmt.Errorf("%w: the name of its provider", errLocal)
	case !isName(l.Protocol, protocolBytesMax):
		return fmt.Errorf("%w: the name of its protocol", errLocal)
	case len(l.Name) == 0 || len(l.Name) > nameBytesMax:
		return fmt.Errorf("%w: an address of %d bytes, allowed are 1 to %d", errLocal, len(l.Name), nameBytesMax)
	case l.Length == 0 || l.Length > math.MaxInt64 || l.Base > math.MaxUint64-l.Length:
		return fmt.Errorf("%w: a region of %d bytes from %#x", errLocal, l.Length, l.Base)
	}
	return nil
}

// isName allows what a log and a comparison can bear.
func isName(s string, bytesMax int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return 0 < len(s) && len(s) <= bytesMax
}

// AppendBinary appends the encoding: the version in one byte; provider and protocol,
// each behind its length in one byte; the format in four bytes; the name behind its
// length in two; key, base and length in eight bytes each. Numbers are big-endian.
func (l Local) AppendBinary(b []byte) ([]byte, error) {
	if err := l.validate(); err != nil {
		return b, err
	}
	b = append(b, localVersion)
	b = append(append(b, byte(len(l.Provider))), l.Provider...)
	b = append(append(b, byte(len(l.Protocol))), l.Protocol...)
	b = binary.BigEndian.AppendUint32(b, l.Format)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(l.Name))), l.Name...)
	b = binary.BigEndian.AppendUint64(b, l.Key)
	b = binary.BigEndian.AppendUint64(b, l.Base)
	return binary.BigEndian.AppendUint64(b, l.Length), nil
}

// ParseLocal reads exactly one encoding and keeps nothing of b.
func ParseLocal(b []byte) (Local, error) {
	if len(b) > LocalBytesMax {
		return Local{}, fmt.Errorf("%w: %d bytes, at most %d are allowed", errLocal, len(b), LocalBytesMax)
	}
	r := reader{rest: b}
	if version := r.take(1); r.short || version[0] != localVersion {
		return Local{}, fmt.Errorf("%w of version %d", errLocal, localVersion)
	}
	var l Local
	l.Provider = string(r.take(r.number(1)))
	l.Protocol = string(r.take(r.number(1)))
	l.Format = uint32(r.number(4))
	l.Name = bytes.Clone(r.take(r.number(2)))
	l.Key, l.Base, l.Length = r.number(8), r.number(8), r.number(8)
	if r.short || len(r.rest) > 0 {
		return Local{}, fmt.Errorf("%w: its length is wrong", errLocal)
	}
	if err := l.validate(); err != nil {
		return Local{}, err
	}
	return l, nil
}

// reader cuts pieces off rest. Once one was missing it is short and gives none.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n uint64) []byte {
	if r.short = r.short || n > uint64(len(r.rest)); r.short {
		return nil
	}
	piece := r.rest[:n]
	r.rest = r.rest[n:]
	return piece
}

// number reads one of at most 8 bytes.
func (r *reader) number(n uint64) uint64 {
	var v uint64
	for _, b := range r.take(n) {
		v = v<<8 | uint64(b)
	}
	return v
}
