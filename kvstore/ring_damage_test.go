package kvstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tandem/kvstore/block"
)

// rollRing ends the active generation and waits until it is sealed.
func rollRing(t testing.TB, r *Ring) {
	t.Helper()
	<-r.pen
	if r.active != nil {
		r.retire()
	}
	r.pen <- struct{}{}
	until(t, r, "all is sealed", func() bool { return len(r.inCondition(isFull)) == 0 })
}

// copyFolder copies the files of a ring, holes as holes, also those of one that is
// open: that is what a killed process leaves.
func copyFolder(t testing.TB, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		return copySparse(target, path)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copySparse(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	zero, buf := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; at += int64(len(buf)) {
		n, err := in.ReadAt(buf, at)
		if n > 0 && !bytes.Equal(buf[:n], zero[:n]) {
			if _, err := out.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		if at > 4<<20 && bytes.Equal(buf[:n], zero[:n]) || err == io.EOF {
			return out.Truncate(info.Size()) // the rest is a hole
		}
		if err != nil {
			return err
		}
	}
}

// ringFiles are all files of a ring, as paths relative to it.
func ringFiles(t testing.TB, dir string) (files []string) {
	t.Helper()
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, dir))
		}
		return nil
	})
	return files
}

var damages = []struct {
	name string
	do   func(f *os.File, used int64, rnd *rand.Rand) error
}{
	{"a flipped bit", func(f *os.File, used int64, rnd *rand.Rand) error {
		at, b := rnd.Int64N(used), []byte{0}
		if _, err := f.ReadAt(b, at); err != nil {
			return err
		}
		b[0] ^= 1 << rnd.IntN(8)
		_, err := f.WriteAt(b, at)
		return err
	}},
	{"64 random bytes", func(f *os.File, used int64, rnd *rand.Rand) error {
		b := make([]byte, min(64, used))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		_, err := f.WriteAt(b, rnd.Int64N(used-int64(len(b))+1))
		return err
	}},
	{"a cleared page", func(f *os.File, used int64, rnd *rand.Rand) error {
		b := make([]byte, min(4096, used))
		_, err := f.WriteAt(b, rnd.Int64N(used-int64(len(b))+1))
		return err
	}},
	{"a lost end", func(f *os.File, used int64, rnd *rand.Rand) error { return f.Truncate(rnd.Int64N(used)) }},
	{"no file", func(f *os.File, _ int64, _ *rand.Rand) error { return os.Remove(f.Name()) }},
}

// TestRingWithDamagedFiles damages every kind of file, of a ring that was closed
// and of one that was killed, and finds what is left: nothing wrong, no failed
// start, and at most one generation less. KV_DAMAGE=all does everything to each.
func TestRingWithDamagedFiles(t *testing.T) {
	t.Parallel()
	const budget = 32 << 20
	seed := rand.Uint64()
	if s := os.Getenv("KV_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("repeat with KV_SEED=%d KV_DAMAGE=%s", seed, os.Getenv("KV_DAMAGE"))
	rnd := rand.New(rand.NewPCG(seed, 3))
	m := newRingMaker(2, 32) // 16 KiB
	open := ringDir(t)
	r := openTestRing(t, open, RingOptions{Bytes: budget, Log: slog.New(slog.DiscardHandler)})
	chains := [][]Record{m.chain(1, 20), m.chain(2, 20), m.chain(3, 20)}
	for i, chain := range chains {
		put(t, r, chain...)
		r.Forget(chain[19].Header.ID)
		if i < 2 {
			rollRing(t, r)
		}
	}
	killed, closed := ringDir(t)+"-killed", ringDir(t)+"-closed" // names for messages
	copyFolder(t, killed, open)
	closeRing(t, r)
	copyFolder(t, closed, open)

	for _, from := range []string{killed, closed} {
		for _, name := range ringFiles(t, from) {
			for i, damage := range damages {
				if i > 0 && rnd.IntN(4) > 0 && os.Getenv("KV_DAMAGE") != "all" {
					continue
				}
				what := fmt.Sprintf("%s, %s: %s", filepath.Base(from), name, damage.name)
				dir := ringDir(t)
				copyFolder(t, dir, from)
				f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				used := usedLength(t, f)
				if used == 0 {
					f.Close()
					continue
				}
				if err := damage.do(f, used, rnd); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				f.Close()
				found := openDamaged(t, what, dir, m, chains)
				if found < 38 {
					t.Errorf("%s: only %d blocks of 57 are found", what, found)
				}
				os.RemoveAll(filepath.Dir(dir))
			}
		}
	}
}

// usedLength is the length of a file without zeros at its end.
func usedLength(t testing.TB, f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, min(info.Size(), 4<<20))
	f.ReadAt(b, 0)
	return int64(len(bytes.TrimRight(b, "\x00")))
}

// openDamaged opens a ring, reads all, writes, reads that, closes, and opens again.
func openDamaged(t *testing.T, what, dir string, m ringMaker, chains [][]Record) (found int) {
	t.Helper()
	for range 2 {
		r, err := OpenRing(dir, RingOptions{Bytes: 32 << 20})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		found = 0
		for _, rec := range slices.Concat(chains...) {
			if m.verify(t, r, rec.Header.ID) {
				found++
			}
		}
		fresh := m.chain(rand.Int32N(1<<30), 2)
		put(t, r, fresh...)
		if !m.verify(t, r, fresh[1].Header.ID) {
			t.Errorf("%s: it does not store", what)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
	}
	return found
}

// A generation of which many blocks are damaged is not read any more.
func TestRingDropsGenerationWithManyFaults(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(2, 32)
	lost := make(chan []block.ID, 16)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20, Lost: func(ids []block.ID) { lost <- ids }})
	chain := m.chain(1, 40)
	put(t, r, chain...)
	rollRing(t, r)
	data := r.generations()[0].path(dataName)
	text, err := os.ReadFile(data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(text) {
		text[i] ^= 0xff
	}
	f, err := os.OpenFile(data, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt(text, 0)
	f.Close()
	for _, rec := range chain[:faultsMax] {
		_, err := r.Get(t.Context(), rec.Header.ID, func(n int) []byte { return make([]byte, n) })
		if !errors.Is(err, block.ErrDamaged) {
			t.Fatalf("a damaged block: %v", err)
		}
		_, err = r.Get(t.Context(), rec.Header.ID, func(n int) []byte { return make([]byte, n) })
		if !errors.Is(err, ErrNotFound) {
			t.Fatalf("the second time: %v", err)
		}
	}
	if ids := <-lost; len(ids) != len(chain)-faultsMax {
		t.Errorf("%d blocks are reported lost; wanted %d", len(ids), len(chain)-faultsMax)
	}
	until(t, r, "the generation is set aside", func() bool { return r.Stats().SetAside == 1 })
	if n := len(r.asides()); n != 1 {
		t.Errorf("%d folders are kept for a look; wanted 1", n)
	}
}

// A data file that is cut while it is in use gives misses, and is set aside.
func TestRingReadsWhereFileWasCut(t *testing.T) {
	t.Parallel()
	dir := ringDir(t)
	m := newRingMaker(2, 32)
	r := openTestRing(t, dir, RingOptions{Bytes: 32 << 20})
	chain := m.chain(1, 40)
	put(t, r, chain...)
	rollRing(t, r)
	if err := os.Truncate(r.generations()[0].path(dataName), 100<<10); err != nil {
		t.Fatal(err)
	}
	for _, rec := range chain {
		m.verify(t, r, rec.Header.ID)
	}
	until(t, r, "the generation is gone", func() bool { return r.Stats().SetAside == 1 })
	put(t, r, chain...)
	for _, rec := range chain {
		if !m.verify(t, r, rec.Header.ID) {
			t.Fatal("a block that was stored anew is not found")
		}
	}
}

// Pointers that cannot be right make a generation damaged: whoever believed one would
// read another block's bytes.
func TestPlacesInDataFile(t *testing.T) {
	m := diskMetaOf(newRingMaker(1, 32).chain(3, 1)[0].Header)
	size := m.bytes()
	at := func(offsets ...int64) (out []diskBlock) {
		for i, o := range offsets {
			out = append(out, diskBlock{block.ID{byte(i + 1)}, m, o})
		}
		return out
	}
	for name, test := range map[string]struct {
		blocks []diskBlock
		bytes  int64
		end    int64
		ok     bool
	}{
		"none":              {nil, 0, 0, true},
		"in a row":          {at(0, size, 2*size), 3 * size, 3 * size, true},
		"in any order":      {at(2*size, 0, size), 3 * size, 3 * size, true},
		"with a hole":       {at(0, 5*size), 9 * size, 6 * size, true},
		"beyond the file":   {at(0, size), 2*size - 1, 0, false},
		"within another":    {at(0, size-1), 3 * size, 0, false},
		"two at one offset": {at(size, size), 3 * size, 0, false},
	} {
		end, err := checkPlaces(test.blocks, test.bytes)
		if (err == nil) != test.ok || err == nil && end != test.end || err != nil && !errors.Is(err, block.ErrDamaged) {
			t.Errorf("%s: %d, %v", name, end, err)
		}
	}
}

// shortWriter fails after some bytes, as a full disk does.
type shortWriter struct {
	*os.File
	left int
}

func (w *shortWriter) WriteAt(p []byte, off int64) (int, error) {
	n := min(w.left, len(p))
	w.left -= n
	n, _ = w.File.WriteAt(p[:n], off)
	if n < len(p) {
		return n, errNoSpace
	}
	return n, nil
}

// What is written only in part is never pointed to, and is written over.
func TestBlocksWrittenInPart(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), dataName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chain := newRingMaker(1, 32).chain(3, 3)
	for _, left := range []int{0, 10, int(diskMetaOf(chain[0].Header).bytes()) + 5} {
		if blocks, err := writeBlocks(&shortWriter{f, left}, 0, chain); !isNoSpace(err) || blocks != nil {
			t.Errorf("with room for %d bytes: %v, %v", left, blocks, err)
		}
	}
	blocks, err := writeBlocks(f, 0, chain)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range blocks {
		var payload []byte
		h, err := readBlock(f, b, func(n int) []byte { payload = make([]byte, n); return payload })
		if err != nil || h.ID != chain[i].Header.ID || !bytes.Equal(payload, chain[i].Payload) {
			t.Errorf("block %d: %v", i, err)
		}
	}
	// The header of another block, where one should be.
	wrong := blocks[0]
	wrong.offset = blocks[1].offset
	asked := false
	if _, err := readBlock(f, wrong, func(n int) []byte { asked = true; return make([]byte, n) }); !errors.Is(err, block.ErrDamaged) || asked {
		t.Errorf("another block's header: %v, memory was asked for: %t", err, asked)
	}
}
