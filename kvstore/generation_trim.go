package kvstore

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"tandem/kvstore/block"
)

// The log of keys of a process that was killed ends in room that was reserved,
// perhaps after half a record. It is cut where the last whole one ends. Badger itself
// would do that, but only if it may write, and it believes every length that it reads.
const (
	// logHead is what Badger's logs begin with: a key's number and a vector for
	// encryption, which is not used.
	logHead = 20
	// logVersionBytes is how long Badger's version behind a key is.
	logVersionBytes = 8
	// logKeyMax is the longest key in a log: ours with a version behind it, or
	// Badger's own at the end of a transaction.
	logKeyMax = diskKeyBytes + 64
	// logValueMax is the longest value in a log: where a block is, or the number of a
	// transaction.
	logValueMax = 64
	// logKeysMax is the most bytes of a log that are read.
	logKeysMax = 64 << 20
)

// recordInBatch is a flag in the first byte of a record: more of its batch follows.
// The record that ends a batch does not have it.
const recordInBatch = 1 << 6

// trimKeyLog cuts a log behind the last batch that is there as a whole, with all its
// blocks within the data file of so many bytes: Badger, reading only, refuses a log
// with more in it, and after a power cut the end of the data may be missing. A log
// without a batch is removed.
func trimKeyLog(path string, dataBytes int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < logHead {
		return os.Remove(path)
	}
	// Ours are not encrypted: a log that names a key is damaged.
	var head [logHead]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint64(head[:]); n != 0 {
		return fmt.Errorf("%w: %s names the key %d; allowed: 0", block.ErrDamaged, path, n)
	}
	r := bufio.NewReader(io.NewSectionReader(f, logHead, min(info.Size(), logKeysMax)-logHead))
	end := logHead + wholeBatches(r, dataBytes)
	if end == logHead {
		return os.Remove(path)
	}
	return f.Truncate(end)
}

// wholeBatches is how many bytes of a log's records are batches to be kept.
func wholeBatches(r *bufio.Reader, dataBytes int64) (kept int64) {
	for at := int64(0); ; {
		rec, ok := readRecordHead(r)
		if !ok {
			return kept
		}
		rest := make([]byte, rec.key+rec.value+4)
		if _, err := io.ReadFull(r, rest); err != nil {
			return kept
		}
		text, sum := rest[:len(rest)-4], rest[len(rest)-4:]
		if crc32.Update(crc32.Checksum(rec.head, castagnoli), castagnoli, text) != binary.BigEndian.Uint32(sum) {
			return kept
		}
		key, value := text[:max(rec.key-logVersionBytes, 0)], text[rec.key:]
		if b, ok := parseDiskEntry(key, value); ok && b.end() > dataBytes {
			return kept
		}
		at += rec.bytes()
		if rec.head[0]&recordInBatch == 0 {
			kept = at
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logRecord is the head of a record: two bytes of flags, the lengths of key and
// value, and when it expires, which ours never do. Key, value and four bytes of
// check sum follow.
type logRecord struct {
	head       []byte
	key, value int64
}

func (r logRecord) bytes() int64 { return int64(len(r.head)) + r.key + r.value + 4 }

func readRecordHead(r *bufio.Reader) (rec logRecord, ok bool) {
	rec.head = make([]byte, 2, 2+3*binary.MaxVarintLen64)
	if _, err := io.ReadFull(r, rec.head); err != nil {
		return rec, false
	}
	var fields [3]uint64
	for i := range fields {
		v, err := binary.ReadUvarint(r)
		if err != nil {
			return rec, false
		}
		fields[i] = v
		rec.head = binary.AppendUvarint(rec.head, v)
	}
	key, value, expires := fields[0], fields[1], fields[2]
	rec.key, rec.value = int64(key), int64(value)
	return rec, key >= 1 && key <= logKeyMax && value <= logValueMax && expires == 0
}
