package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// Writer collects keys and tensors and writes them as a GGUF of version 3. It
// checks that what it writes is well-formed, not that it makes a model: tests
// use it for files that Read must refuse. The zero value is ready to use.
type Writer struct {
	keys    []keyValue
	tensors []tensorData
	err     error
}

type keyValue struct {
	key   string
	value any
}

type tensorData struct {
	Tensor
	data []byte
}

// Set sets a key, replacing an earlier value. The value is a number or boolean
// of the Go type that belongs to a GGUF type, a string, or a slice of such.
func (w *Writer) Set(key string, value any) {
	for i := range w.keys {
		if w.keys[i].key == key {
			w.keys[i].value = value
			return
		}
	}
	w.keys = append(w.keys, keyValue{key, value})
}

// Unset removes a key.
func (w *Writer) Unset(key string) {
	w.keys = slices.DeleteFunc(w.keys, func(kv keyValue) bool { return kv.key == key })
}

// Tensor adds a tensor of which data holds the encoded elements. It keeps data.
func (w *Writer) Tensor(name string, t TensorType, shape []uint64, data []byte) {
	w.tensors = append(w.tensors, tensorData{Tensor{Name: name, Type: t, Shape: slices.Clone(shape)}, data})
}

// Floats adds a tensor and encodes its elements as F32, F16 or Q8_0.
func (w *Writer) Floats(name string, t TensorType, shape []uint64, values []float32) {
	data, err := Encode(t, values)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("tensor %s: %w", name, err)
	}
	w.Tensor(name, t, shape, data)
}

// Edit calls change with each tensor added so far, so that a test can damage
// one; the data is written as it was given.
func (w *Writer) Edit(change func(t *Tensor)) {
	for i := range w.tensors {
		change(&w.tensors[i].Tensor)
	}
}

// Remove removes a tensor.
func (w *Writer) Remove(name string) {
	w.tensors = slices.DeleteFunc(w.tensors, func(t tensorData) bool { return t.Name == name })
}

// WriteTo writes the file.
func (w *Writer) WriteTo(dst io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	head, err := w.header()
	if err != nil {
		return 0, err
	}
	align := w.alignment()
	out := &countingWriter{w: dst}
	out.pad(head, align)
	for i := range w.tensors {
		out.pad(w.tensors[i].data, align)
	}
	return out.n, out.err
}

// Bytes is the whole file in memory.
func (w *Writer) Bytes() ([]byte, error) {
	var b bytes.Buffer
	_, err := w.WriteTo(&b)
	return b.Bytes(), err
}

// alignment is that of general.alignment, or the usual one where that is unfit.
func (w *Writer) alignment() int64 {
	for _, kv := range w.keys {
		if a, ok := kv.value.(uint32); ok && kv.key == "general.alignment" && a >= MinAlignment && a <= MaxAlignment {
			return int64(a)
		}
	}
	return MinAlignment
}

func (w *Writer) header() ([]byte, error) {
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(w.keys)))
	for _, kv := range w.keys {
		b = appendText(b, kv.key)
		var ok bool
		if b, ok = appendValue(b, kv.value); !ok {
			return nil, fmt.Errorf("key %s: a %T cannot be a GGUF value", kv.key, kv.value)
		}
	}
	offset := int64(0)
	for i := range w.tensors {
		t := &w.tensors[i]
		b = appendText(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for _, dim := range t.Shape {
			b = binary.LittleEndian.AppendUint64(b, dim)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(t.Type))
		b = binary.LittleEndian.AppendUint64(b, uint64(offset+t.Offset))
		offset = padded(offset+int64(len(t.data)), w.alignment())
	}
	return b, nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

func appendType(b []byte, t ValueType) []byte {
	return binary.LittleEndian.AppendUint32(b, uint32(t))
}

// appendValue appends the type and the value.
func appendValue(b []byte, v any) ([]byte, bool) {
	if t, ok := scalarType(v); ok {
		return appendScalar(appendType(b, t), v), true
	}
	switch v := v.(type) {
	case []string:
		return appendArray(b, String, v), true
	case []uint8:
		return appendArray(b, Uint8, v), true
	case []int8:
		return appendArray(b, Int8, v), true
	case []uint16:
		return appendArray(b, Uint16, v), true
	case []int16:
		return appendArray(b, Int16, v), true
	case []uint32:
		return appendArray(b, Uint32, v), true
	case []int32:
		return appendArray(b, Int32, v), true
	case []uint64:
		return appendArray(b, Uint64, v), true
	case []int64:
		return appendArray(b, Int64, v), true
	case []float32:
		return appendArray(b, Float32, v), true
	case []float64:
		return appendArray(b, Float64, v), true
	case []bool:
		return appendArray(b, Bool, v), true
	}
	return b, false
}

func appendArray[T any](b []byte, t ValueType, values []T) []byte {
	b = appendType(appendType(b, ArrayType), t)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(values)))
	for _, v := range values {
		b = appendScalar(b, v)
	}
	return b
}

func scalarType(v any) (ValueType, bool) {
	switch v.(type) {
	case uint8:
		return Uint8, true
	case int8:
		return Int8, true
	case uint16:
		return Uint16, true
	case int16:
		return Int16, true
	case uint32:
		return Uint32, true
	case int32:
		return Int32, true
	case float32:
		return Float32, true
	case bool:
		return Bool, true
	case string:
		return String, true
	case uint64:
		return Uint64, true
	case int64:
		return Int64, true
	case float64:
		return Float64, true
	}
	return 0, false
}

func appendScalar(b []byte, v any) []byte {
	le := binary.LittleEndian
	switch v := v.(type) {
	case string:
		return appendText(b, v)
	case uint8:
		return append(b, v)
	case int8:
		return append(b, byte(v))
	case bool:
		if v {
			return append(b, 1)
		}
		return append(b, 0)
	case uint16:
		return le.AppendUint16(b, v)
	case int16:
		return le.AppendUint16(b, uint16(v))
	case uint32:
		return le.AppendUint32(b, v)
	case int32:
		return le.AppendUint32(b, uint32(v))
	case float32:
		return le.AppendUint32(b, math.Float32bits(v))
	case uint64:
		return le.AppendUint64(b, v)
	case int64:
		return le.AppendUint64(b, uint64(v))
	case float64:
		return le.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// countingWriter keeps the first error and the number of bytes written.
type countingWriter struct {
	w   io.Writer
	n   int64
	err error
}

// pad writes p and then zeros up to a multiple of align.
func (c *countingWriter) pad(p []byte, align int64) {
	c.write(p)
	c.write(make([]byte, padded(c.n, align)-c.n))
}

func (c *countingWriter) write(p []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
}
