package block

import (
	"encoding/binary"
	"math"
)

// What is hashed is a list of fields: a tag, the length of the value, the value.
// So no two lists have the same bytes, whatever their values are. The first field
// has tag 0 and names the purpose, so that hashes for different purposes are never
// equal either. All numbers are little-endian.
const (
	purposeFingerprint = "tandem kv fingerprint 1"
	purposeRoot        = "tandem kv root 1"
	purposeBlock       = "tandem kv block 1"

	tagPurpose = 0
)

// appendFieldHead appends the tag and the length of a value that is to follow.
func appendFieldHead(b []byte, tag byte, length int) []byte {
	return binary.LittleEndian.AppendUint32(append(b, tag), uint32(length))
}

func appendString(b []byte, tag byte, value string) []byte {
	return append(appendFieldHead(b, tag, len(value)), value...)
}

func appendBytes(b []byte, tag byte, value []byte) []byte {
	return append(appendFieldHead(b, tag, len(value)), value...)
}

// appendInts appends a list of whole numbers, 8 bytes each.
func appendInts(b []byte, tag byte, values ...int) []byte {
	b = appendFieldHead(b, tag, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(int64(v)))
	}
	return b
}

// appendFloat appends the bits of an IEEE 754 double.
func appendFloat(b []byte, tag byte, value float64) []byte {
	return binary.LittleEndian.AppendUint64(appendFieldHead(b, tag, 8), math.Float64bits(value))
}

func appendBool(b []byte, tag byte, value bool) []byte {
	b = appendFieldHead(b, tag, 1)
	if value {
		return append(b, 1)
	}
	return append(b, 0)
}
