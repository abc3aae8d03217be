package block_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"tandem/kvstore/block"
)

// uniform is n layers of equal rows.
func uniform(t block.Type, values, n int) block.Shape {
	r := block.Row{Type: t, Values: values}
	return block.Shape{Layers: slices.Repeat([]block.Layer{{K: r, V: r}}, n)}
}

func TestShapeBytesOfKnownModels(t *testing.T) {
	for _, tt := range []struct {
		name  string
		shape block.Shape
		want  int
	}{
		{"SmolLM2-135M, f16", uniform(block.F16, 3*64, 30), 23_040},
		{"Qwen3-1.7B, f16", uniform(block.F16, 8*128, 28), 114_688},
		{"Qwen3-1.7B, q8_0", uniform(block.Q8_0, 8*128, 28), 114_688 * 17 / 32},
		{"Qwen3-1.7B, q4_0", uniform(block.Q4_0, 8*128, 28), 114_688 * 9 / 32},
		{"mixed", mixed, 5*2 + 3*2 + 2*34 + 18 + 3*18},
	} {
		if err := tt.shape.Validate(); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if got := tt.shape.Bytes(); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, tt.want)
		}
	}
}

func TestShapeLimits(t *testing.T) {
	row := func(k block.Type, values int) block.Shape {
		return block.Shape{Layers: []block.Layer{{K: block.Row{Type: k, Values: values}, V: block.Row{Type: block.F16}}}}
	}
	most := row(block.F16, block.RowBytesMax/2)
	most.Layers = slices.Repeat(most.Layers, 16)
	over := block.Shape{Layers: append(slices.Clone(most.Layers), row(block.F16, 1).Layers...)}
	noV := block.Shape{Layers: []block.Layer{{V: block.Row{Type: block.F16, Values: 1}, K: block.Row{Type: block.F16}}}}
	badV := block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: 1}, V: block.Row{Type: block.F16, Values: -1}}}}
	for _, tt := range []struct {
		name  string
		shape block.Shape
		ok    bool
	}{
		{"one value", row(block.F16, 1), true},
		{"the most layers", uniform(block.F16, 1, block.LayersMax), true},
		{"the longest f16 row", row(block.F16, block.RowBytesMax/2), true},
		{"the longest q8_0 row", row(block.Q8_0, block.RowBytesMax/34*32), true},
		{"the longest token", most, true},
		{"no layers", block.Shape{}, false},
		{"too many layers", uniform(block.F16, 1, block.LayersMax+1), false},
		{"no values in K", noV, false},
		{"negative values in V", badV, false},
		{"negative values in K", row(block.Q8_0, -32), false},
		{"an f16 row too long", row(block.F16, block.RowBytesMax/2+1), false},
		{"a q8_0 row too long", row(block.Q8_0, block.RowBytesMax/34*32+32), false},
		{"the longest int", row(block.F16, 1<<62), false},
		{"a broken group", row(block.Q4_0, 33), false},
		{"f32", row(0, 32), false},
		{"unknown type", row(1<<31, 32), false},
		{"the longest token and one more", over, false},
	} {
		err := tt.shape.Validate()
		if ok := err == nil; ok != tt.ok || !ok && !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestSegmentsCoverThePayload(t *testing.T) {
	const count = 7
	offset := 0
	segments := mixed.Segments(count)
	for i, s := range segments {
		l := mixed.Layers[i/2]
		want := []block.Row{l.K, l.V}[i%2]
		if s.Offset != offset || s.RowBytes != want.Bytes() || s.Type != want.Type || s.Rows != count {
			t.Errorf("segment %d is %+v; want offset %d, rows of %d bytes", i, s, offset, want.Bytes())
		}
		offset += s.Rows * s.RowBytes
	}
	if len(segments) != 2*len(mixed.Layers) || offset != count*mixed.Bytes() {
		t.Errorf("%d segments end at %d", len(segments), offset)
	}
}

// rowOf is where the naive reference finds the row of one token.
func rowOf(payload []byte, s block.Segment, token int) []byte {
	return payload[s.Offset+token*s.RowBytes:][:s.RowBytes]
}

func TestCopyRowsAgainstOneRowAtATime(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 300 {
		into, have := r.IntN(9), r.IntN(9)
		n := r.IntN(min(into, have) + 1)
		to, from := r.IntN(into-n+1), r.IntN(have-n+1)
		src, got := rows(r.Uint64(), mixed, have), rows(r.Uint64(), mixed, into)
		want := bytes.Clone(got)
		source, target := mixed.Segments(have), mixed.Segments(into)
		for i := range source {
			for token := range n {
				copy(rowOf(want, target[i], to+token), rowOf(src, source[i], from+token))
			}
		}
		if err := mixed.CopyRows(got, to, src, from, n); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d of %d tokens from %d to %d of %d: wrong rows, or %v", n, have, from, to, into, err)
		}
	}
}

func TestCopyRowsRefusesWhatDoesNotFit(t *testing.T) {
	const most = int(^uint(0) >> 1)
	size := mixed.Bytes()
	for _, tt := range []struct{ dst, to, src, from, n int }{
		{2 * size, 0, 2 * size, 0, 3}, {2 * size, 1, 2 * size, 0, 2}, {2 * size, 0, 2 * size, 1, 2},
		{2 * size, -1, 2 * size, 0, 1}, {2 * size, 0, 2 * size, -1, 1}, {2 * size, 0, 2 * size, 0, -1},
		{2*size + 1, 0, 2 * size, 0, 1}, {2 * size, 0, 2*size - 1, 0, 1},
		{2 * size, most, 2 * size, 0, 1}, {2 * size, 0, 2 * size, most, 1}, {2 * size, 0, 2 * size, 0, most},
	} {
		dst := make([]byte, tt.dst)
		err := mixed.CopyRows(dst, tt.to, bytes.Repeat([]byte{1}, tt.src), tt.from, tt.n)
		if !errors.Is(err, block.ErrInvalid) || bytes.Count(dst, []byte{0}) != len(dst) {
			t.Errorf("%+v: %v, or something was copied", tt, err)
		}
	}
	if err := (block.Shape{}).CopyRows(nil, 0, nil, 0, 0); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("no shape: %v", err)
	}
}

// The payload of a span, cut at any tokens, is that of its parts, and back.
func TestSplitAndMergeAreInverse(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 100 {
		var blocks [][]byte
		total := 0
		for range 1 + r.IntN(5) {
			n := r.IntN(4)
			blocks = append(blocks, rows(r.Uint64(), mixed, n))
			total += n
		}
		span := make([]byte, total*mixed.Bytes())
		if err := mixed.Merge(span, blocks); err != nil {
			t.Fatal(err)
		}
		again := make([][]byte, len(blocks))
		for i := range blocks {
			again[i] = make([]byte, len(blocks[i]))
		}
		if err := mixed.Split(again, span); err != nil || !slices.EqualFunc(again, blocks, bytes.Equal) {
			t.Fatalf("%d blocks, %d tokens: parts differ, or %v", len(blocks), total, err)
		}
	}
}

func TestSplitLeavesTheRestOut(t *testing.T) {
	span := rows(1, mixed, 10)
	size := mixed.Bytes()
	parts := [][]byte{make([]byte, 4*size), make([]byte, 4*size)}
	if err := mixed.Split(parts, span); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 4*size)
	if err := mixed.CopyRows(want, 0, span, 4, 4); err != nil || !bytes.Equal(parts[1], want) {
		t.Errorf("the second block is not tokens 4 to 7, or %v", err)
	}
	parts = append(parts, make([]byte, 4*size))
	if err := mixed.Split(parts, span); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("12 tokens out of 10: %v", err)
	}
	if err := mixed.Split([][]byte{make([]byte, size-1)}, span); !errors.Is(err, block.ErrInvalid) {
		t.Errorf("a broken block: %v", err)
	}
}

func TestMergeRefusesOtherLengths(t *testing.T) {
	size := mixed.Bytes()
	whole, broken := make([]byte, size), make([]byte, size-1)
	for name, err := range map[string]error{
		"too short":         mixed.Merge(whole, [][]byte{whole, whole}),
		"too long":          mixed.Merge(make([]byte, 3*size), [][]byte{whole, whole}),
		"two broken blocks": mixed.Merge(make([]byte, 2*size), [][]byte{broken, append(slices.Clone(whole), 0)}),
	} {
		if !errors.Is(err, block.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
