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

// Logs of a process that was killed end in room that was reserved, perhaps after
// half a record. They are cut where the last whole one ends. Badger itself would do
// that, but only if it may write, and it believes every length that it reads.
const (
	// logHead is what Badger's logs begin with: a key's number and a vector for
	// encryption, which is not used.
	logHead = 20
	// logTail is what Badger clears behind a record, rounded up.
	logTail = 64
	// logKeyMax is the longest key in a log: ours with a version behind it, or
	// Badger's own at the end of a transaction.
	logKeyMax = diskKeyBytes + 64
	// logPointerMax is the longest value in a log of keys: where a value is, or the
	// number of a transaction.
	logPointerMax = 64
	// logKeysMax is the most bytes of a log of keys that are read.
	logKeysMax = 64 << 20
	// logRecordsMax is how many records of a value log are looked at.
	logRecordsMax = 1 << 24
)

// recordInBatch is a flag in the first byte of a record: more of its batch follows.
// The record that ends a batch does not have it.
const recordInBatch = 1 << 6

// trimLog opens a log and cuts it where endOf says. A log without a record is
// removed.
func trimLog(path string, endOf func(f *os.File, size int64) int64) error {
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
	end := endOf(f, info.Size())
	if end == logHead {
		return os.Remove(path)
	}
	return f.Truncate(end)
}

// trimValueLog goes by the lengths of records alone: what they hold has check sums.
func trimValueLog(path string) error {
	return trimLog(path, func(f *os.File, size int64) int64 {
		end := int64(logHead)
		r := bufio.NewReaderSize(nil, 64)
		for range logRecordsMax {
			r.Reset(io.NewSectionReader(f, end, size-end))
			rec, ok := readRecordHead(r, diskPayloadMax+block.HeaderBytesMax)
			if !ok || end+rec.bytes() > size {
				break
			}
			end += rec.bytes()
		}
		return end
	})
}

// trimKeyLog cuts behind the last batch that is there as a whole: Badger, reading
// only, refuses a log with more in it.
func trimKeyLog(path string) error {
	return trimLog(path, func(f *os.File, size int64) int64 {
		r := bufio.NewReader(io.NewSectionReader(f, logHead, min(size, logKeysMax)-logHead))
		end, at := int64(logHead), int64(logHead)
		for {
			rec, ok := readRecordHead(r, logPointerMax)
			if !ok {
				return end
			}
			rest := make([]byte, rec.key+rec.value+4)
			if _, err := io.ReadFull(r, rest); err != nil {
				return end
			}
			text := rest[:len(rest)-4]
			if crc32.Update(crc32.Checksum(rec.head, castagnoli), castagnoli, text) != binary.BigEndian.Uint32(rest[len(text):]) {
				return end
			}
			at += rec.bytes()
			if rec.head[0]&recordInBatch == 0 {
				end = at
			}
		}
	})
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

func readRecordHead(r *bufio.Reader, valueMax uint64) (rec logRecord, ok bool) {
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
	return rec, key >= 1 && key <= logKeyMax && value <= valueMax && expires == 0
}
