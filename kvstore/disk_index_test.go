package kvstore

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"hash/crc32"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"unique"

	"tandem/kvstore/block"
)

// Whatever the limit, no survivor lacks an ancestor that was in its generation.
func TestSurvivorsLeaveNoHoles(t *testing.T) {
	rnd := mrand.New(mrand.NewPCG(1, 1))
	for round := range 300 {
		x := diskIndex{blocks: map[block.ID]diskEntry{}}
		gens := []*generation{{seq: 0}, {seq: 1}, {seq: 2}}
		var ids []block.ID
		for i := range 60 {
			id := block.ID{byte(i), 1}
			m := diskMeta{fingerprint: unique.Make(block.Fingerprint{}), count: 1, payload: uint32(1 + rnd.IntN(5000))}
			gen := 0
			if len(ids) > 0 && rnd.IntN(5) > 0 {
				parent := ids[rnd.IntN(len(ids))]
				m.parent, m.start = parent, x.blocks[parent].start+1
				gen = int(x.blocks[parent].gen.seq)
			}
			gen = min(gen+rnd.IntN(5)/4, 2) // children are as young or younger
			x.add(diskBlock{id, m, 0}, gens[gen])
			ids = append(ids, id)
			if rnd.IntN(6) == 0 {
				x.touch(ids[i:])
			}
		}
		limit := int64(rnd.IntN(200_000))
		got := map[block.ID]bool{}
		var sum int64
		for _, s := range x.survivors(gens[0], gens[1:], limit) {
			if parent, here := x.blocks[s.parent]; here && parent.gen == gens[0] && !got[s.parent] {
				t.Fatalf("round %d: block %s comes before its parent", round, s.id)
			}
			got[s.id] = true
			sum += s.bytes()
		}
		if sum > limit {
			t.Fatalf("round %d: %d bytes survive; the limit is %d", round, sum, limit)
		}
		for _, s := range x.survivors(gens[0], gens[1:], 1<<40) {
			got[s.id] = true
		}
		for id, e := range x.blocks {
			if e.touched && e.gen == gens[0] && !got[id] {
				t.Fatalf("round %d: without a limit block %s, which was touched, should survive", round, id)
			}
			if p, here := x.blocks[e.parent]; here && p.gen == gens[0] && e.gen != gens[0] && !got[e.parent] {
				t.Fatalf("round %d: without a limit block %s, which has a younger child, should survive", round, e.parent)
			}
		}
	}
}

func TestDiskKeys(t *testing.T) {
	h := newRingMaker(1, 32).chain(3, 2)[1].Header
	m := diskMetaOf(h)
	key := appendDiskKey(nil, h.ID, m)
	if id, got, ok := parseDiskKey(key); !ok || id != h.ID || got != m {
		t.Errorf("%x becomes %v, %+v, %t", key, id, got, ok)
	}
	pointer := appendDiskPointer(nil, diskBlock{h.ID, m, 12345})
	if b, ok := parseDiskEntry(key, pointer); !ok || b != (diskBlock{h.ID, m, 12345}) {
		t.Errorf("%x points to %+v, %t", pointer, b, ok)
	}
	for name, spoil := range map[string]func([]byte) []byte{
		"short pointer": func(b []byte) []byte { return b[1:] },
		"long pointer":  func(b []byte) []byte { return append(b, 0) },
		"far":           func(b []byte) []byte { b[7] = 1; return b },
		"length":        func(b []byte) []byte { b[8]++; return b },
	} {
		if _, ok := parseDiskEntry(key, spoil(bytes.Clone(pointer))); ok {
			t.Errorf("%s: it passes", name)
		}
	}
	bad := map[string]func([]byte) []byte{
		"short":       func(b []byte) []byte { return b[1:] },
		"long":        func(b []byte) []byte { return append(b, 0) },
		"tag":         func(b []byte) []byte { b[0]++; return b },
		"no id":       func(b []byte) []byte { clear(b[1:17]); return b },
		"no count":    func(b []byte) []byte { clear(b[69:73]); return b },
		"count":       func(b []byte) []byte { b[71] = 1; return b },
		"start":       func(b []byte) []byte { b[68] = 0x80; return b },
		"no payload":  func(b []byte) []byte { clear(b[73:]); return b },
		"big payload": func(b []byte) []byte { b[76] = 0xff; return b },
	}
	for name, spoil := range bad {
		if _, _, ok := parseDiskKey(spoil(bytes.Clone(key))); ok {
			t.Errorf("%s: it passes", name)
		}
	}
}

// appendLogRecord appends a record as Badger writes it.
func appendLogRecord(b []byte, flags byte, key, value []byte) []byte {
	from := len(b)
	b = append(b, flags, 0)
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = binary.AppendUvarint(b, uint64(len(value)))
	b = append(append(append(b, 0), key...), value...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[from:], castagnoli))
}

// appendLogBatch appends the records of some blocks and the one that ends a batch.
func appendLogBatch(b []byte, batch ...diskBlock) []byte {
	for _, one := range batch {
		key := append(appendDiskKey(nil, one.id, one.diskMeta), make([]byte, logVersionBytes)...)
		b = appendLogRecord(b, recordInBatch, key, appendDiskPointer(nil, one))
	}
	return appendLogRecord(b, 0, []byte("!badger!txn 1234567"), []byte("1"))
}

// placedBlocks are blocks that lie one behind the other in a data file.
func placedBlocks(n int) (blocks []diskBlock) {
	at := int64(0)
	for _, rec := range newRingMaker(1, 32).chain(3, n) {
		blocks = append(blocks, diskBlock{rec.Header.ID, diskMetaOf(rec.Header), at})
		at = blocks[len(blocks)-1].end()
	}
	return blocks
}

// trimmed is what trimKeyLog leaves of a log: nothing if it removes it.
func trimmed(t *testing.T, log []byte, dataBytes int64) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := trimKeyLog(path, dataBytes); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return text
}

// A batch that is not there as a whole, or of which a block is not in the data file,
// is cut off with all that follows it.
func TestKeyLogEndsWithItsData(t *testing.T) {
	b := placedBlocks(6)
	log := make([]byte, logHead)
	var ends []int // of the log, with each batch
	for i := 0; i < len(b); i += 2 {
		log = appendLogBatch(log, b[i+1], b[i]) // Badger writes a batch in any order
		ends = append(ends, len(log))
	}
	flipped := bytes.Clone(log)
	flipped[ends[0]+40] ^= 1
	for name, test := range map[string]struct {
		log       []byte
		dataBytes int64
		want      int // bytes that are left
	}{
		"all data":                {log, b[5].end(), ends[2]},
		"more data":               {log, b[5].end() + 1<<20, ends[2]},
		"a byte is missing":       {log, b[5].end() - 1, ends[1]},
		"a block is missing":      {log, b[4].end(), ends[1]},
		"a batch is missing":      {log, b[3].end(), ends[1]},
		"the first block is here": {log, b[0].end(), 0},
		"no data":                 {log, 0, 0},
		"a flipped bit":           {flipped, b[5].end(), ends[0]},
		"cut in its head":         {log[:logHead-1], b[5].end(), 0},
		"zeros behind it":         {append(bytes.Clone(log), make([]byte, 4096)...), b[5].end(), ends[2]},
	} {
		if got := trimmed(t, test.log, test.dataBytes); len(got) != test.want || !bytes.HasPrefix(test.log, got) {
			t.Errorf("%s: %d bytes are left; wanted %d", name, len(got), test.want)
		}
	}
	for cut := ends[1]; cut < ends[2]; cut++ {
		if got := logHead + keptOf(log[logHead:cut], b[5].end()); got != int64(ends[1]) {
			t.Fatalf("of a log that was cut at %d, %d bytes are left; wanted %d", cut, got, ends[1])
		}
	}
}

// Of any records whole batches are kept, without large allocations.
func FuzzWholeBatches(f *testing.F) {
	b := placedBlocks(3)
	f.Add(appendLogBatch(appendLogBatch(nil, b[0]), b[1:]...), b[1].end())
	f.Add(appendLogRecord(nil, recordInBatch, []byte("key"), []byte("v")), int64(0))
	f.Add([]byte{0, 0, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1}, int64(0))
	f.Fuzz(func(t *testing.T, records []byte, dataBytes int64) {
		kept := keptOf(records, dataBytes)
		if kept < 0 || kept > int64(len(records)) {
			t.Fatalf("%d bytes are kept of %x", kept, records)
		}
		if again := keptOf(records[:kept], dataBytes); again != kept {
			t.Errorf("cut to %d bytes, and then to %d", kept, again)
		}
	})
}

func keptOf(records []byte, dataBytes int64) int64 {
	return wholeBatches(bufio.NewReader(bytes.NewReader(records)), dataBytes)
}

// FuzzDiskEntry: what passes is written again as it was, and stays within limits.
func FuzzDiskEntry(f *testing.F) {
	h := newRingMaker(1, 32).chain(3, 2)[1].Header
	m := diskMetaOf(h)
	f.Add(appendDiskKey(nil, h.ID, m), appendDiskPointer(nil, diskBlock{h.ID, m, 4096}))
	f.Fuzz(func(t *testing.T, key, pointer []byte) {
		b, ok := parseDiskEntry(key, pointer)
		if !ok {
			return
		}
		if !bytes.Equal(appendDiskKey(nil, b.id, b.diskMeta), key) || !bytes.Equal(appendDiskPointer(nil, b), pointer) {
			t.Fatalf("%x, %x became %+v", key, pointer, b)
		}
		if b.offset < 0 || b.end() <= b.offset || b.payload > diskPayloadMax {
			t.Fatalf("beyond a limit: %+v", b)
		}
	})
}

func TestRecordHeads(t *testing.T) {
	noise := make([]byte, 4096)
	rand.Read(noise)
	for i := range noise {
		rec, ok := readRecordHead(bufio.NewReader(bytes.NewReader(noise[i:])))
		if ok && (rec.key < 1 || rec.key > logKeyMax || rec.value > logValueMax) {
			t.Fatalf("%+v passes", rec)
		}
	}
}
