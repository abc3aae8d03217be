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
	// diskOffsetMax is the largest offset in a data file, far above what a generation
	// holds: with a length added it does not overflow.
	diskOffsetMax = 1 << 40
	// diskBatchBytes is how much of a Put is written in one go, unless one block
	// alone has more: room is made for all of it beforehand.
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

// bytes is what the block takes in a data file: its encoded header, then its payload.
func (m diskMeta) bytes() int64 {
	return int64(block.HeaderBytes(int(m.count))) + int64(m.payload)
}

// diskBlock is a block and where it begins in the data file of its generation.
type diskBlock struct {
	id block.ID
	diskMeta
	offset int64 // bytes
}

func (b diskBlock) end() int64 { return b.offset + b.bytes() }

// A key carries the whole diskMeta: tag, id, parent, fingerprint, start, count,
// payload bytes. Its value is a pointer into the data file: offset, then length of
// the encoded block. So the index is rebuilt without looking at a block.
const (
	diskKeyTag       = 'b'
	diskKeyBytes     = 1 + 16 + 16 + 32 + 3*4
	diskPointerBytes = 8 + 4
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

func appendDiskPointer(b []byte, at diskBlock) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(at.offset))
	return binary.LittleEndian.AppendUint32(b, uint32(at.bytes()))
}

// parseDiskEntry is false for whatever is no key and pointer of a block within the
// limits. That the block lies within its data file is for checkPlaces to say.
func parseDiskEntry(key, pointer []byte) (b diskBlock, ok bool) {
	if b.id, b.diskMeta, ok = parseDiskKey(key); !ok || len(pointer) != diskPointerBytes {
		return b, false
	}
	offset := binary.LittleEndian.Uint64(pointer)
	b.offset = int64(offset)
	return b, offset <= diskOffsetMax && int64(binary.LittleEndian.Uint32(pointer[8:])) == b.bytes()
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
