package gguf

import (
	"bytes"
	"math"
	"testing"
)

func TestWriterRoundTrip(t *testing.T) {
	values := map[string]any{
		"u8": uint8(200), "i8": int8(-100), "u16": uint16(60000), "i16": int16(-30000), "u32": uint32(4e9), "i32": int32(-2e9), "f32": float32(0.5),
		"bool": true, "string": "text", "u64": uint64(1 << 63), "i64": int64(math.MinInt64), "f64": 1e300,
	}
	arrays := map[string]any{
		"a.u8": []uint8{1, 2}, "a.i8": []int8{-1}, "a.u16": []uint16{3}, "a.i16": []int16{-3}, "a.u32": []uint32{4}, "a.i32": []int32{-4},
		"a.f32": []float32{1.5}, "a.bool": []bool{true, false}, "a.string": []string{"a", ""}, "a.u64": []uint64{5}, "a.i64": []int64{-5}, "a.f64": []float64{2.5},
	}
	var w Writer
	for k, v := range values {
		w.Set(k, v)
	}
	for k, v := range arrays {
		w.Set(k, v)
	}
	w.Floats("t", F32, []uint64{3}, []float32{1, 2, 3})
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := decodeOnly(b)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range values {
		if f.Metadata[k] != want {
			t.Errorf("%s is %v, want %v", k, f.Metadata[k], want)
		}
	}
	for k := range arrays {
		a, ok := f.Metadata[k].(Array)
		if !ok || a.Len == 0 || len(a.Values) != a.Len {
			t.Errorf("%s is %v", k, f.Metadata[k])
		}
	}
	if a := f.Metadata["a.bool"].(Array); a.Elem != Bool || a.Values[0] != true || a.Values[1] != false {
		t.Errorf("booleans are %v", a)
	}
	if f.DataOffset%MinAlignment != 0 || f.Size != int64(len(b)) || f.Tensors[0].Bytes != 12 {
		t.Errorf("data at %d of %d, tensor %+v", f.DataOffset, f.Size, f.Tensors[0])
	}
}

// decodeOnly reads the encoding without asking for a model.
func decodeOnly(b []byte) (*File, error) {
	f, err := Read(bytes.NewReader(b), int64(len(b)))
	if err == nil {
		return f, nil
	}
	d := newDecoder(bytes.NewReader(b), int64(len(b)))
	f = &File{Size: int64(len(b)), Alignment: MinAlignment}
	keys, tensors := d.fixed(f)
	f.Metadata = d.metadata(keys, newVocab())
	f.Tensors = d.directory(tensors)
	if d.err != nil {
		return nil, d.err
	}
	if err := f.place(d.pos); err != nil {
		return nil, err
	}
	return f, nil
}

func TestWriterRefuses(t *testing.T) {
	var w Writer
	w.Set("k", struct{}{})
	if _, err := w.Bytes(); err == nil {
		t.Error("a struct was written")
	}
	w = Writer{}
	w.Floats("t", Q8_0, []uint64{33}, make([]float32, 33))
	if _, err := w.Bytes(); err == nil {
		t.Error("33 values were written as Q8_0")
	}
	w = Writer{}
	w.Floats("t", Q4_K, []uint64{256}, make([]float32, 256))
	if _, err := w.Bytes(); err == nil {
		t.Error("Q4_K was written")
	}
}

func TestFloat16(t *testing.T) {
	for _, tc := range []struct {
		in   float32
		want uint16
	}{
		{0, 0}, {float32(math.Copysign(0, -1)), 0x8000}, {1, 0x3c00}, {-2, 0xc000}, {65504, 0x7bff}, {65519, 0x7bff}, {65520, 0x7c00},
		{1e10, 0x7c00}, {-1e10, 0xfc00}, {0x1p-14, 0x0400}, {0x1p-24, 0x0001}, {0x1p-25, 0x0000}, {0x1.8p-25, 0x0001}, {0x1p-26, 0},
		{0x1.ff8p-15, 0x03ff}, {0x1.ffep-15, 0x0400}, {1.0009765625, 0x3c01}, {1.00048828125, 0x3c00}, {1.00146484375, 0x3c02},
		{float32(math.Inf(1)), 0x7c00}, {float32(math.NaN()), 0x7e00},
	} {
		if got := float16(tc.in); got != tc.want {
			t.Errorf("float16(%v) = %#04x, want %#04x", tc.in, got, tc.want)
		}
	}
}

func TestQ8(t *testing.T) {
	values := make([]float32, 64)
	for i := range 32 {
		values[i] = float32(i-16) / 4
	}
	b, err := Encode(Q8_0, values)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 2*34 {
		t.Fatalf("%d bytes, want 68", len(b))
	}
	if got := float16(4.0 / 127); b[0] != byte(got) || b[1] != byte(got>>8) {
		t.Errorf("scale % x, want %#04x", b[:2], got)
	}
	if int8(b[2]) != -127 || int8(b[2+16]) != 0 || int8(b[2+31]) != 119 {
		t.Errorf("elements %d %d %d", int8(b[2]), int8(b[18]), int8(b[33]))
	}
	for i, v := range b[34:] {
		if v != 0 {
			t.Errorf("byte %d of a block of zeros is %d", i, v)
		}
	}
}
