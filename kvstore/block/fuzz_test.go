package block_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"tandem/kvstore/block"
)

// sameHeader holds what the package reads against what the second implementation does.
func sameHeader(t *testing.T, b []byte) {
	t.Helper()
	want, wantErr := specRead(b)
	h, n, err := block.DecodeHeader(b)
	if (err == nil) != (wantErr == nil) || errors.Is(err, io.ErrUnexpectedEOF) != errors.Is(wantErr, errSpecShort) {
		t.Fatalf("%x: %v; the second implementation: %v", b, err, wantErr)
	}
	if err != nil {
		if n != 0 {
			t.Fatalf("%d bytes read with the error %v", n, err)
		}
		return
	}
	if err := h.Validate(); err != nil {
		t.Fatalf("what was read is not valid: %v", err)
	}
	if again := block.AppendHeader(nil, h); n != want.length || !bytes.Equal(again, b[:n]) {
		t.Fatalf("%x is written again as %x", b[:n], again)
	}
	if h.Count != want.count || h.Start != want.start || h.PayloadBytes != want.payloadBytes || !slices.Equal(h.Tokens, want.tokens) ||
		!bytes.Equal(h.ID[:], want.id) || !bytes.Equal(h.Parent[:], want.parent) || !bytes.Equal(h.Fingerprint[:], want.fingerprint) || !bytes.Equal(h.Digest[:], want.digest) {
		t.Fatalf("read %+v; the second implementation read %+v", h, want)
	}
}

// Any bytes are read as docs/kv-format.md says, as they are and with a check sum
// made right, which lets changes through to what comes after it.
func FuzzDecodeHeader(f *testing.F) {
	for _, count := range []int{1, 2, 5, 64} {
		h, payload := sealed(uint64(count), mixed, 3, count)
		f.Add(append(block.AppendHeader(nil, h), payload...))
	}
	f.Add([]byte(nil))
	f.Add([]byte("TKVB\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("TKVB\x02\x00\x00\x00\x80\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		sameHeader(t, b)
		sameHeader(t, resum(bytes.Clone(b)))
	})
}

// Any header with any payload gets the verdict of docs/kv-format.md; with the digest
// made right the verdict depends on the rows alone.
func FuzzCheck(f *testing.F) {
	shapes := []block.Shape{
		mixed,
		uniform(block.F16, 3, 1),
		uniform(block.Q8_0, 32, 2),
		uniform(block.Q4_0, 32, 1),
		{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: 1}, V: block.Row{Type: block.F16}}}},
	}
	for i, shape := range shapes {
		h, payload := sealed(uint64(i), shape, 7, 2)
		f.Add(block.AppendHeader(nil, h), payload, uint8(i), true)
		binary.LittleEndian.PutUint16(payload, 0xfc00)
		f.Add(block.AppendHeader(nil, h), payload, uint8(i), true)
		f.Add(block.AppendHeader(nil, h), payload, uint8(i), false)
	}
	f.Fuzz(func(t *testing.T, header, payload []byte, shape uint8, reseal bool) {
		chosen := shapes[int(shape)%len(shapes)]
		h, _, err := block.DecodeHeader(resum(bytes.Clone(header)))
		if err != nil {
			return
		}
		if reseal {
			h.Digest = h.Sum(payload)
		}
		want := specVerdict(t, h, chosen, payload)
		if got := h.Check(chosen, payload); (got == nil) != (want == nil) {
			t.Fatalf("%+v, shape %d: %v; the second implementation: %v", h, shape, got, want)
		}
	})
}

// specVerdict is what the second implementation says of the block.
func specVerdict(t *testing.T, h block.Header, shape block.Shape, payload []byte) error {
	t.Helper()
	b, err := specRead(block.AppendHeader(nil, h))
	if err != nil {
		t.Fatal(err)
	}
	var layers []specLayer
	for _, l := range shape.Layers {
		layers = append(layers, specLayer{specRow{int(l.K.Type), l.K.Values}, specRow{int(l.V.Type), l.V.Values}})
	}
	return b.specCheck(layers, payload)
}
