package block_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"tandem/kvstore/block"
)

func TestHeaderRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, count := range []int{1, 2, 64, block.CountMax} {
		h, _ := sealed(r.Uint64(), mixed, block.PositionMax-count+1, count)
		b := block.AppendHeader([]byte("before"), h)
		b = append(b, "after"...)
		got, n, err := block.DecodeHeader(b[6:])
		if err != nil {
			t.Fatal(err)
		}
		if n != block.HeaderBytes(count) || n != len(b)-11 || !reflect.DeepEqual(got, h) {
			t.Errorf("%d tokens: read %d bytes, %+v; wrote %d, %+v", count, n, got, len(b)-11, h)
		}
		if length, err := block.HeaderLength(b[6:][:block.HeaderPrefixBytes]); err != nil || length != n {
			t.Errorf("length %d, %v; want %d", length, err, n)
		}
		clear(b)
		if !reflect.DeepEqual(got, h) {
			t.Error("the header keeps bytes of its encoding")
		}
	}
	if most := block.HeaderBytes(block.CountMax); most > block.HeaderBytesMax {
		t.Errorf("the longest header has %d bytes, above the limit", most)
	}
}

func TestShortHeadersAskForMore(t *testing.T) {
	h, _ := sealed(1, mixed, 0, 3)
	b := block.AppendHeader(nil, h)
	for n := range b {
		if _, _, err := block.DecodeHeader(b[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

// edit changes bytes of an encoded header and makes its check sum right again.
func edit(b []byte, change func([]byte)) []byte {
	b = bytes.Clone(b)
	change(b)
	return resum(b)
}

// resum makes the check sum right where the header says that it is.
func resum(b []byte) []byte {
	if len(b) < block.HeaderPrefixBytes {
		return b
	}
	if n := binary.LittleEndian.Uint32(b[8:]); n >= 8 && int64(n) <= int64(len(b)) {
		binary.LittleEndian.PutUint64(b[n-8:], xxh3.Hash(b[:n-8]))
	}
	return b
}

func TestHostileHeadersAreRefusedWithoutAllocating(t *testing.T) {
	const count = 4
	h, _ := sealed(2, mixed, 10, count)
	good := block.AppendHeader(nil, h)
	u := binary.LittleEndian
	room := make([]byte, block.HeaderBytesMax+8)
	copy(room, good)
	for _, tt := range []struct {
		name   string
		change func([]byte)
		want   error
	}{
		{"magic", func(b []byte) { b[3] = 'C' }, block.ErrInvalid},
		{"version 0", func(b []byte) { u.PutUint16(b[4:], 0) }, block.ErrVersion},
		{"version 2", func(b []byte) { u.PutUint16(b[4:], 2) }, block.ErrVersion},
		{"reserved", func(b []byte) { b[7] = 1 }, block.ErrInvalid},
		{"length 0", func(b []byte) { u.PutUint32(b[8:], 0) }, block.ErrInvalid},
		{"length of no tokens", func(b []byte) { u.PutUint32(b[8:], 120) }, block.ErrInvalid},
		{"length above the limit", func(b []byte) { u.PutUint32(b[8:], block.HeaderBytesMax+1) }, block.ErrInvalid},
		{"longest length", func(b []byte) { u.PutUint32(b[8:], 1<<32-1) }, block.ErrInvalid},
		{"length not that of the count", func(b []byte) { u.PutUint32(b[8:], 120+4*count+4) }, block.ErrInvalid},
		{"length of one byte more", func(b []byte) { u.PutUint32(b[8:], 120+4*count+1) }, block.ErrInvalid},
		{"count above the limit, with its length", func(b []byte) {
			u.PutUint32(b[8:], 120+4*(block.CountMax+1))
			u.PutUint32(b[12:], block.CountMax+1)
		}, block.ErrInvalid},
		{"the count of the longest header", func(b []byte) {
			u.PutUint32(b[8:], block.HeaderBytesMax)
			u.PutUint32(b[12:], (block.HeaderBytesMax-120)/4)
			u.PutUint64(b[24:], (block.HeaderBytesMax-120)/4)
		}, block.ErrInvalid},
		{"count 0", func(b []byte) { u.PutUint32(b[12:], 0) }, block.ErrInvalid},
		{"count one less", func(b []byte) { u.PutUint32(b[12:], count-1) }, block.ErrInvalid},
		{"longest count", func(b []byte) { u.PutUint32(b[12:], 1<<32-1) }, block.ErrInvalid},
		{"count whose length overflows", func(b []byte) { u.PutUint32(b[12:], count+1<<30) }, block.ErrInvalid},
		{"start negative", func(b []byte) { u.PutUint64(b[16:], 1<<64-1) }, block.ErrInvalid},
		{"start above 32 bits", func(b []byte) { u.PutUint64(b[16:], 1<<32) }, block.ErrInvalid},
		{"end above the highest position", func(b []byte) { u.PutUint64(b[16:], block.PositionMax-count+2) }, block.ErrInvalid},
		{"payload of 0", func(b []byte) { u.PutUint64(b[24:], 0) }, block.ErrInvalid},
		{"payload not of equal tokens", func(b []byte) { u.PutUint64(b[24:], count+1) }, block.ErrInvalid},
		{"payload above a token's limit", func(b []byte) { u.PutUint64(b[24:], count*block.TokenBytesMax+count) }, block.ErrInvalid},
		{"payload above the limit", func(b []byte) { u.PutUint64(b[24:], block.PayloadBytesMax+count) }, block.ErrInvalid},
		{"longest payload", func(b []byte) { u.PutUint64(b[24:], 1<<64-count) }, block.ErrInvalid},
		{"id zero", func(b []byte) { clear(b[32:48]) }, block.ErrInvalid},
		{"token negative", func(b []byte) { u.PutUint32(b[96+4*2:], 1<<31) }, block.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := edit(room, tt.change)
			before := allocated()
			_, n, err := block.DecodeHeader(b)
			if used := allocated() - before; used > 16<<10 {
				t.Errorf("%d bytes were allocated", used)
			}
			if n != 0 || !errors.Is(err, tt.want) {
				t.Errorf("read %d bytes, %v; want %v", n, err, tt.want)
			}
		})
	}
	if _, _, err := block.DecodeHeader(edit(room, func([]byte) {})); err != nil {
		t.Errorf("unchanged: %v", err)
	}
}

// allocated is how many bytes were ever allocated.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// A header that does not pass Validate cannot be turned into one that does by
// writing and reading it: numbers must not wrap.
func TestInvalidHeadersAreRefusedAfterTheirEncoding(t *testing.T) {
	good, _ := sealed(3, mixed, 0, 2)
	changes := map[string]func(*block.Header){
		"start negative":        func(h *block.Header) { h.Start = -1 },
		"start too high":        func(h *block.Header) { h.Start = block.PositionMax },
		"start above 32 bits":   func(h *block.Header) { h.Start = 1<<32 + 1 },
		"count 0":               func(h *block.Header) { h.Count = 0 },
		"count negative":        func(h *block.Header) { h.Count = -2 },
		"count above 32 bits":   func(h *block.Header) { h.Count = 1<<32 + 3 },
		"a token missing":       func(h *block.Header) { h.Tokens = h.Tokens[:1] },
		"a token too many":      func(h *block.Header) { h.Tokens = append(slices.Clone(h.Tokens), 1) },
		"no tokens":             func(h *block.Header) { h.Tokens = nil },
		"token negative":        func(h *block.Header) { h.Tokens = []block.Token{1, -1} },
		"payload negative":      func(h *block.Header) { h.PayloadBytes = -2 },
		"payload 0":             func(h *block.Header) { h.PayloadBytes = 0 },
		"payload odd":           func(h *block.Header) { h.PayloadBytes++ },
		"payload above 32 bits": func(h *block.Header) { h.PayloadBytes = 1<<32 + 2 },
		"id zero":               func(h *block.Header) { h.ID = block.ID{} },
	}
	for name, change := range changes {
		h := good
		change(&h)
		if err := h.Validate(); !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%s: Validate says %v", name, err)
		}
		if got, _, err := block.DecodeHeader(block.AppendHeader(nil, h)); err == nil {
			t.Errorf("%s: it is read as %+v", name, got)
		}
	}
	many := good
	many.Count, many.Tokens, many.PayloadBytes = block.CountMax+1, make([]block.Token, block.CountMax+1), block.CountMax+1
	if _, _, err := block.DecodeHeader(block.AppendHeader(nil, many)); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("too many tokens: %v", err)
	}
}

// Every single bit of an encoded block matters, and damage to the header shows
// without the payload.
func TestEveryFlippedBitIsCaught(t *testing.T) {
	h, payload := sealed(4, mixed, 128, 3)
	b := block.AppendHeader(nil, h)
	headerBytes := len(b)
	b = append(b, payload...)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			got, n, err := block.DecodeHeader(b)
			if i < headerBytes && err == nil {
				t.Errorf("byte %d, bit %d of the header: nobody minds", i, bit)
			}
			if i >= headerBytes {
				if err != nil {
					t.Fatalf("byte %d of the payload: the header fails with %v", i-headerBytes, err)
				}
				if err := got.Check(mixed, b[n:]); !errors.Is(err, block.ErrDamaged) {
					t.Errorf("byte %d, bit %d of the payload: %v", i-headerBytes, bit, err)
				}
			}
			b[i] ^= 1 << bit
		}
	}
}

func TestDecodeUsesTokensAgain(t *testing.T) {
	one, _ := sealed(5, mixed, 0, 64)
	two, _ := sealed(6, mixed, 64, 32)
	first, second := block.AppendHeader(nil, one), block.AppendHeader(nil, two)
	var h block.Header
	if n := testing.AllocsPerRun(50, func() {
		for _, b := range [][]byte{first, second} {
			if _, err := h.Decode(b); err != nil {
				t.Fatal(err)
			}
		}
	}); n > 0 {
		t.Errorf("Decode allocates %v times", n)
	}
	if !reflect.DeepEqual(h, two) {
		t.Errorf("read %+v, wrote %+v", h, two)
	}
}

func ExampleDecodeHeader() {
	shape := block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: 2}, V: block.Row{Type: block.F16, Values: 2}}}}
	key := block.Key{1} // 32 random bytes in earnest
	root := key.Root(block.Traits{Shape: shape, BlockTokens: 2}.Fingerprint(), "")

	payload := make([]byte, 2*shape.Bytes())
	h := block.Header{Parent: root, Start: 0, Count: 2, Tokens: []block.Token{17, 4}, PayloadBytes: len(payload)}
	h.ID = key.Next(h.Parent, h.Tokens)
	h.Digest = h.Sum(payload)
	encoded := append(block.AppendHeader(nil, h), payload...)

	got, n, err := block.DecodeHeader(encoded)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(got.Tokens, got.Check(shape, encoded[n:]), key.Verify(got))
	// Output: [17 4] <nil> <nil>
}
