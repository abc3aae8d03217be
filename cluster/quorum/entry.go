package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal puts a checksum before what goes to disk, and unseal checks it. bbolt has none
// of its own for data.
func seal(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)), body...)
}

func unseal(sealed []byte) ([]byte, error) {
	if len(sealed) < 4 || binary.BigEndian.Uint32(sealed) != crc32.Checksum(sealed[4:], castagnoli) {
		return nil, errors.New("checksum does not fit")
	}
	return sealed[4:], nil
}

const (
	entryVersion   = 1
	entryHeadBytes = 1 + 1 + 8 + 8 + 8 + 4
)

// appendEntry writes: version, type, index, term, time of appending (Unix
// nanoseconds, 0: none), length of the data, the data, the extensions.
func appendEntry(dst []byte, l *raft.Log) []byte {
	dst = append(dst, entryVersion, byte(l.Type))
	dst = binary.BigEndian.AppendUint64(dst, l.Index)
	dst = binary.BigEndian.AppendUint64(dst, l.Term)
	var at int64
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(at))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(l.Data)))
	return append(append(dst, l.Data...), l.Extensions...)
}

func decodeEntry(data []byte) (*raft.Log, error) {
	if len(data) < entryHeadBytes || len(data) > entryHeadBytes+2*entryBytesMax {
		return nil, fmt.Errorf("entry of %d bytes", len(data))
	}
	if data[0] != entryVersion || data[1] > byte(raft.LogConfiguration) {
		return nil, fmt.Errorf("entry of version %d, type %d", data[0], data[1])
	}
	l := &raft.Log{Type: raft.LogType(data[1]), Index: binary.BigEndian.Uint64(data[2:]), Term: binary.BigEndian.Uint64(data[10:])}
	if at := int64(binary.BigEndian.Uint64(data[18:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	size, rest := binary.BigEndian.Uint32(data[26:]), data[entryHeadBytes:]
	if uint64(size) > uint64(len(rest)) {
		return nil, fmt.Errorf("entry says %d bytes of data and has %d", size, len(rest))
	}
	if size > 0 {
		l.Data = append([]byte(nil), rest[:size]...)
	}
	if len(rest) > int(size) {
		l.Extensions = append([]byte(nil), rest[size:]...)
	}
	return l, nil
}
