package kvstore

import (
	"bufio"
	"bytes"
	"crypto/rand"
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

// A log with any bytes in it is cut to whole batches, without large allocations.
func FuzzTrimKeyLog(f *testing.F) {
	record := []byte{1 << 6, 0, 3, 2, 0, 'k', 'e', 'y', 'v', 'v', 0, 0, 0, 0}
	f.Add(append(make([]byte, logHead), record...))
	f.Add(append(make([]byte, logHead), 0, 0, 3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if trimKeyLog(path, 1<<20) != nil {
			return
		}
		once, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return
		}
		if err != nil || !bytes.HasPrefix(text, once) {
			t.Fatalf("%x became %x, %v", text, once, err)
		}
		if err := trimKeyLog(path, 1<<20); err != nil {
			t.Fatal(err)
		}
		if twice, _ := os.ReadFile(path); !bytes.Equal(once, twice) {
			t.Errorf("cut to %d bytes, and then to %d", len(once), len(twice))
		}
	})
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
