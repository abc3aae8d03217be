package kvstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unique"

	"tandem/kvstore/block"
)

// Limits of the disk tier. What is read from disk meets them before it is
// allocated for.
const (
	// diskPayloadMax is the longest payload that is stored or read. Blocks of known
	// models have up to 8 MiB.
	diskPayloadMax = 64 << 20
	// diskBatchBytes is how much of a Put is encoded and written in one go, unless
	// one block alone has more. It bounds the memory that writing holds.
	diskBatchBytes = 16 << 20
	// diskStateMax is the longest state file of a generation.
	diskStateMax = 64 << 10
	// diskTableMax is the most bytes of a Badger table or manifest that are hashed.
	diskTableMax = 64 << 20
	// diskEntriesMax is how many names are read from a folder of the tier.
	diskEntriesMax = 4096
	// diskForgottenMax is how many forgotten blocks a generation remembers on disk.
	diskForgottenMax = 64 << 10
)

// Badger's cost of an entry: the head of a log record, the version after the key,
// and the check sum behind it.
const diskRecordHead = 22 + 8 + 4

var (
	errRingClosed = errors.New("the disk tier is closed")
	errNoMemory   = errors.New("no memory was given for the payload")
)

// diskMeta is what the index knows of a block: all of its header but the tokens
// and the digest.
type diskMeta struct {
	parent      block.ID
	fingerprint unique.Handle[block.Fingerprint] // nodes hold few, blocks hold many
	start       uint32
	count       uint32
	payload     uint32 // bytes
}

func diskMetaOf(h block.Header) diskMeta {
	return diskMeta{
		parent: h.Parent, fingerprint: unique.Make(h.Fingerprint),
		start: uint32(h.Start), count: uint32(h.Count), payload: uint32(h.PayloadBytes),
	}
}

// header is the block's header without tokens and digest.
func (m diskMeta) header(id block.ID) block.Header {
	return block.Header{
		ID: id, Parent: m.parent, Fingerprint: m.fingerprint.Value(),
		Start: int(m.start), Count: int(m.count), PayloadBytes: int(m.payload),
	}
}

// bytes is what the block takes in a value log, at most.
func (m diskMeta) bytes() int64 {
	return int64(diskRecordHead+diskKeyBytes+block.HeaderBytes(int(m.count))) + int64(m.payload)
}

// A key carries the whole diskMeta, so that the index is rebuilt without reading a
// value: tag, id, parent, fingerprint, start, count, payload bytes.
const (
	diskKeyTag   = 'b'
	diskKeyBytes = 1 + 16 + 16 + 32 + 3*4
)

func appendDiskKey(b []byte, id block.ID, m diskMeta) []byte {
	fingerprint := m.fingerprint.Value()
	b = append(b, diskKeyTag)
	b = append(b, id[:]...)
	b = append(b, m.parent[:]...)
	b = append(b, fingerprint[:]...)
	b = binary.LittleEndian.AppendUint32(b, m.start)
	b = binary.LittleEndian.AppendUint32(b, m.count)
	return binary.LittleEndian.AppendUint32(b, m.payload)
}

// parseDiskKey is false for whatever is no key of a block within the limits.
func parseDiskKey(b []byte) (id block.ID, m diskMeta, ok bool) {
	if len(b) != diskKeyBytes || b[0] != diskKeyTag {
		return id, m, false
	}
	var fingerprint block.Fingerprint
	copy(id[:], b[1:])
	copy(m.parent[:], b[17:])
	copy(fingerprint[:], b[33:])
	m.fingerprint = unique.Make(fingerprint)
	m.start = binary.LittleEndian.Uint32(b[65:])
	m.count = binary.LittleEndian.Uint32(b[69:])
	m.payload = binary.LittleEndian.Uint32(b[73:])
	ok = !id.IsZero() && m.start <= block.PositionMax && m.count >= 1 && m.count <= block.CountMax &&
		m.payload >= 1 && m.payload <= diskPayloadMax
	return id, m, ok
}

// checkRecord refuses what must not be written.
func checkRecord(r Record) error {
	if err := r.Header.Validate(); err != nil {
		return err
	}
	if len(r.Payload) != r.Header.PayloadBytes {
		return fmt.Errorf("block %s: the payload has %d bytes; its header says %d", r.Header.ID, len(r.Payload), r.Header.PayloadBytes)
	}
	if len(r.Payload) > diskPayloadMax {
		return fmt.Errorf("block %s: the payload has %d bytes; allowed: at most %d", r.Header.ID, len(r.Payload), diskPayloadMax)
	}
	return nil
}

// readDiskValue decodes what a value log gave for a block and copies the payload
// to what dst returns. Badger answers damage with an empty value and no error, so
// everything is compared with what the index says. Errors match block.ErrDamaged,
// or are errNoMemory.
func readDiskValue(value []byte, id block.ID, m diskMeta, dst func(n int) []byte) (block.Header, error) {
	if len(value) == 0 {
		return block.Header{}, fmt.Errorf("%w: %s: its value is empty", block.ErrDamaged, id)
	}
	h, n, err := block.DecodeHeader(value[:min(len(value), block.HeaderBytesMax)])
	if err != nil {
		return block.Header{}, fmt.Errorf("%w: %s: %w", block.ErrDamaged, id, err)
	}
	if h.ID != id || diskMetaOf(h) != m {
		return block.Header{}, fmt.Errorf("%w: %s: its header is that of block %s, start %d, count %d", block.ErrDamaged, id, h.ID, h.Start, h.Count)
	}
	if len(value)-n != h.PayloadBytes {
		return block.Header{}, fmt.Errorf("%w: %s: the payload has %d bytes; its header says %d", block.ErrDamaged, id, len(value)-n, h.PayloadBytes)
	}
	buf := dst(h.PayloadBytes)
	if len(buf) < h.PayloadBytes {
		return block.Header{}, errNoMemory
	}
	copy(buf, value[n:])
	return h, nil
}
