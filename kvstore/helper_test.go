package kvstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

var (
	testKey   = block.Key{1, 2, 3}
	testShape = block.Shape{Layers: []block.Layer{
		{K: block.Row{Type: block.F16, Values: 32}, V: block.Row{Type: block.F16, Values: 32}},
		{K: block.Row{Type: block.Q8_0, Values: 32}, V: block.Row{Type: block.F16, Values: 16}},
	}}
	testPrint = block.Fingerprint{7}
)

const testCount = 4 // tokens in a block

func blockBytes() int { return testCount * testShape.Bytes() }

// ramFor is the RAM that n blocks take, with alignment.
func ramFor(n int) int64 { return int64(n) * int64((blockBytes()+63)/64*64) }

func testShapes(f block.Fingerprint) (block.Shape, bool) { return testShape, f == testPrint }

// payloadOf is what the block of an id holds: it follows from the id, so a test can
// tell whether what it sees is the right block.
func payloadOf(id block.ID) []byte {
	rnd := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(id[:8]), binary.LittleEndian.Uint64(id[8:])))
	b := make([]byte, blockBytes())
	for i := 0; i+8 <= len(b); i += 8 {
		// No f16 exponent of all ones, at whatever even offset it is looked for.
		binary.LittleEndian.PutUint64(b[i:], rnd.Uint64()&^0x4000400040004000)
	}
	return b
}

// headers are those of the blocks of one prompt, whose tokens begin with the prompt's
// number and then go on as those of any other.
func headers(prompt, n int) []block.Header {
	parent := testKey.Root(testPrint, "")
	var out []block.Header
	for i := range n {
		tokens := []block.Token{block.Token(prompt), block.Token(i), 5, 6}
		id := testKey.Next(parent, tokens)
		out = append(out, block.Header{
			ID: id, Parent: parent, Fingerprint: testPrint, Start: i * testCount, Count: testCount,
			Tokens: tokens, PayloadBytes: blockBytes(),
		})
		parent = id
	}
	return out
}

func idsOf(hs []block.Header) []block.ID {
	var ids []block.ID
	for _, h := range hs {
		ids = append(ids, h.ID)
	}
	return ids
}

// sealed is a block as a disk or a file has it.
func sealed(h block.Header) kvstore.Record {
	payload := payloadOf(h.ID)
	h.Digest = h.Sum(payload)
	return kvstore.Record{Header: h, Payload: payload}
}

// preload puts blocks on a disk.
func preload(d *fakeDisk, hs []block.Header) {
	for _, h := range hs {
		d.mu.held[h.ID] = sealed(h)
	}
}

// open opens a store that must, at the end of the test, have given back everything.
func open(t testing.TB, o kvstore.Options) *kvstore.Store {
	t.Helper()
	if o.RAMBytes == 0 {
		o.RAMBytes = ramFor(100)
	}
	o.Shapes, o.Key = testShapes, testKey
	s, err := kvstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, bench := t.(*testing.B); !bench {
		s.Poison()
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

func closeStore(t testing.TB, s *kvstore.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
	if a := s.Stats().Arena; a.UsedBytes != 0 || a.Bufs != 0 {
		t.Errorf("after the end %d bytes in %d buffers are in use", a.UsedBytes, a.Bufs)
	}
}

func checkStore(t testing.TB, s *kvstore.Store) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// put writes blocks and tells how many were accepted.
func put(s *kvstore.Store, hs []block.Header) int {
	n := 0
	for _, h := range hs {
		if w, ok := s.Reserve(h); ok {
			copy(w.Bytes(), payloadOf(h.ID))
			w.Commit()
			n++
		}
	}
	return n
}

// mustPut writes blocks, all of them, and waits until they are visible and the disk
// has had its turn.
func mustPut(t testing.TB, s *kvstore.Store, hs []block.Header) {
	t.Helper()
	if n := put(s, hs); n != len(hs) {
		t.Fatalf("%d of %d blocks were accepted", n, len(hs))
	}
	flush(t, s)
}

func flush(t testing.TB, s *kvstore.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	checkStore(t, s)
}

// right tells whether a reference shows the block that it should.
func right(ref *kvstore.Ref, want block.Header) error {
	h := ref.Header
	if h.ID != want.ID || h.Parent != want.Parent || h.Start != want.Start || h.Count != want.Count {
		return fmt.Errorf("got the header of block %v, want that of %v", h.ID, want.ID)
	}
	if !bytes.Equal(ref.Payload(), payloadOf(want.ID)) {
		return fmt.Errorf("block %v has wrong bytes", want.ID)
	}
	if h.Sum(ref.Payload()) != h.Digest {
		return fmt.Errorf("block %v has a wrong digest", want.ID)
	}
	return nil
}

// wantRun looks blocks up, loads them and holds what it gets against what it should.
func wantRun(t testing.TB, s *kvstore.Store, hs []block.Header, found, loaded int) {
	t.Helper()
	run := s.Lookup(idsOf(hs))
	defer run.Close()
	if run.Len() != found {
		t.Errorf("%d of %d blocks were found, want %d", run.Len(), len(hs), found)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := run.Load(ctx, len(hs)); err != nil {
		t.Error(err)
	}
	refs := run.Blocks()
	if len(refs) != loaded || run.Len() != loaded {
		t.Errorf("%d blocks are in RAM, the run has %d, want %d", len(refs), run.Len(), loaded)
	}
	for i, ref := range refs {
		if err := right(ref, hs[i]); err != nil {
			t.Error(err)
		}
	}
	checkStore(t, s)
}
