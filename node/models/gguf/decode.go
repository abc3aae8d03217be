package gguf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unicode"
	"unicode/utf8"
)

const (
	magic          = "GGUF"
	fixedBytes     = 24 // magic, version, two counts
	leastKeyBytes  = 8 + 4 + 1
	leastInfoBytes = 8 + 4 + 8 + 4 + 8
)

// Array is an array in Metadata. Values holds its elements, of the Go type that
// belongs to Elem, if it is small; of a large one only type and length are kept.
type Array struct {
	Elem   ValueType
	Len    int
	Values []any
}

// Open reads and checks the header of the file at path.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, refuse("file", "is not a regular file")
	}
	return Read(f, info.Size())
}

// Read reads and checks the header of a file of size bytes. The error is a
// *FormatError if the file is refused, else what r returned.
func Read(r io.ReaderAt, size int64) (*File, error) {
	d := newDecoder(r, size)
	f := &File{Size: size}
	keys, tensors := d.fixed(f)
	v := newVocab()
	f.Metadata = d.metadata(keys, v)
	if d.err == nil {
		f.Alignment, d.err = alignment(f.Metadata)
	}
	f.Tensors = d.directory(tensors)
	if d.err != nil {
		return nil, d.err
	}
	if err := f.place(d.pos); err != nil {
		return nil, err
	}
	if err := f.check(v); err != nil {
		return nil, err
	}
	return f, nil
}

// Sniff refuses the start of a file that cannot become a GGUF, so that a
// download of something else can stop early. It needs 24 bytes to say anything.
func Sniff(head []byte) error {
	if len(head) < fixedBytes {
		return nil
	}
	d := &decoder{r: bufio.NewReader(bytes.NewReader(head)), size: math.MaxInt64}
	d.fixed(new(File))
	return d.err
}

// decoder reads the header front to back. The first error sticks: later reads
// return zeros, and loops end because of it.
type decoder struct {
	r        *bufio.Reader
	size     uint64 // of the file
	pos      uint64 // bytes read
	elements uint64 // array elements read
	scratch  []byte
	err      error
}

func newDecoder(r io.ReaderAt, size int64) *decoder {
	return &decoder{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 64<<10), size: uint64(max(size, 0))}
}

func (d *decoder) fail(field, format string, args ...any) {
	if d.err == nil {
		d.err = refuse(field, format, args...)
	}
}

// need says whether n more bytes are in the file and within the header's limit.
func (d *decoder) need(n uint64, field string) bool {
	switch {
	case d.err != nil:
		return false
	case n > d.size-d.pos:
		d.fail(field, "needs %d bytes, but only %d are left in the file", n, d.size-d.pos)
	case n > MaxHeaderBytes-min(d.pos, MaxHeaderBytes):
		d.fail(field, "ends after byte %d, allowed are headers of %d bytes", d.pos+n, MaxHeaderBytes)
	}
	return d.err == nil
}

// bytes returns the next n bytes, which are valid until the next call.
func (d *decoder) bytes(n uint64, field string) []byte {
	if !d.need(n, field) {
		return nil
	}
	if uint64(cap(d.scratch)) < n {
		d.scratch = make([]byte, max(n, 512))
	}
	b := d.scratch[:n]
	_, err := io.ReadFull(d.r, b)
	d.read(n, err)
	if d.err != nil {
		return nil
	}
	return b
}

func (d *decoder) skip(n uint64, field string) {
	if !d.need(n, field) {
		return
	}
	_, err := d.r.Discard(int(n)) // need keeps n below MaxHeaderBytes
	d.read(n, err)
}

func (d *decoder) read(n uint64, err error) {
	if err == nil {
		d.pos += n
	} else if d.err == nil {
		d.err = fmt.Errorf("reading a GGUF header at byte %d: %w", d.pos, err)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			d.err = refuse("file", "is shorter than its %d bytes", d.size)
		}
	}
}

func (d *decoder) u32(field string) uint32 {
	if b := d.bytes(4, field); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64(field string) uint64 {
	if b := d.bytes(8, field); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// text reads a length and so many bytes, at most limit.
func (d *decoder) text(field string, limit uint64) []byte {
	n := d.u64(field)
	if n > limit && d.need(n, field) {
		d.fail(field, "has %d bytes, allowed are %d", n, limit)
	}
	if n == 0 {
		return nil
	}
	return d.bytes(n, field)
}

// fixed reads the fixed part and returns the counts of keys and tensors.
func (d *decoder) fixed(f *File) (keys, tensors uint64) {
	if d.size < fixedBytes {
		d.fail("file", "has %d bytes, a GGUF has at least %d", d.size, fixedBytes)
	}
	if m := d.bytes(4, "magic"); d.err == nil && string(m) != magic {
		d.fail("magic", "is %s, allowed is %q", quote(string(m)), magic)
	}
	f.Version = d.u32("version")
	if d.err == nil && f.Version != 2 && f.Version != 3 {
		d.fail("version", "is %d, allowed are 2 and 3 (little-endian)", f.Version)
	}
	tensors = d.count("tensor count", MaxTensors, leastInfoBytes)
	keys = d.count("metadata count", MaxKeys, leastKeyBytes)
	return keys, tensors
}

// count reads the number of things of which each takes at least least bytes.
func (d *decoder) count(field string, limit, least uint64) uint64 {
	n := d.u64(field)
	if n > limit {
		d.fail(field, "is %d, allowed are %d", n, limit)
	} else {
		d.need(n*least, field)
	}
	if d.err != nil {
		return 0
	}
	return n
}

func (d *decoder) metadata(count uint64, v *vocab) map[string]any {
	m := make(map[string]any, count)
	for i := uint64(0); i < count && d.err == nil; i++ {
		key := string(d.text(fmt.Sprintf("key %d", i), MaxKeyBytes))
		if d.err == nil && !printable(key) {
			d.fail(fmt.Sprintf("key %d", i), "is %s, allowed is text without control characters", quote(key))
		}
		if _, twice := m[key]; twice {
			d.fail(key, "is there twice, allowed is once")
		}
		t := ValueType(d.u32(key))
		if t == ArrayType {
			m[key] = d.array(key, v)
		} else {
			m[key] = d.scalar(key, t)
		}
	}
	return m
}

// printable keeps the zero byte out above all: C would see another name.
func printable(s string) bool {
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return s != "" && utf8.ValidString(s)
}

func (d *decoder) scalar(key string, t ValueType) any {
	if t == String {
		return string(d.text(key, MaxStringBytes))
	}
	n := d.width(key, t)
	b := d.bytes(n, key)
	if b == nil {
		return nil
	}
	v, err := decodeNumber(key, t, b)
	if err != nil && d.err == nil {
		d.err = err
	}
	return v
}

// width is the size of a number or boolean; other types are refused.
func (d *decoder) width(key string, t ValueType) uint64 {
	if int(t) >= len(valueTypes) || valueTypes[t].bytes == 0 {
		if t == ArrayType {
			d.fail(key, "is an array of arrays, allowed are arrays of numbers, booleans and strings")
		} else {
			d.fail(key, "has value type %d, allowed are 0 to %d", uint32(t), len(valueTypes)-1)
		}
		return 0
	}
	return valueTypes[t].bytes
}

func decodeNumber(key string, t ValueType, b []byte) (any, error) {
	le := binary.LittleEndian
	switch t {
	case Uint8:
		return b[0], nil
	case Int8:
		return int8(b[0]), nil
	case Uint16:
		return le.Uint16(b), nil
	case Int16:
		return int16(le.Uint16(b)), nil
	case Uint32:
		return le.Uint32(b), nil
	case Int32:
		return int32(le.Uint32(b)), nil
	case Float32:
		v := math.Float32frombits(le.Uint32(b))
		return v, finite(key, float64(v))
	case Uint64:
		return le.Uint64(b), nil
	case Int64:
		return int64(le.Uint64(b)), nil
	case Float64:
		v := math.Float64frombits(le.Uint64(b))
		return v, finite(key, v)
	case Bool:
		if b[0] > 1 {
			return nil, refuse(key, "is the boolean %d, allowed are 0 and 1", b[0])
		}
		return b[0] == 1, nil
	}
	return nil, refuse(key, "has value type %d", uint32(t))
}

func finite(key string, v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return refuse(key, "is %v, allowed are finite numbers", v)
	}
	return nil
}

// array reads an array. Its elements pass the vocabulary's checks one by one;
// only those of a small array are kept.
func (d *decoder) array(key string, v *vocab) Array {
	t := ValueType(d.u32(key))
	least := uint64(8)
	if t != String {
		least = d.width(key, t)
	}
	n := d.u64(key)
	switch {
	case d.err != nil:
		return Array{}
	case n > MaxElements-d.elements:
		d.fail(key, "brings the array elements of the file to more than %d, allowed are so many (it has %d)", MaxElements, n)
	case !d.need(n*least, key):
	case t == String:
		return Array{t, int(n), d.strings(key, n, v)}
	default:
		return Array{t, int(n), d.numbers(key, t, n, v)}
	}
	return Array{}
}

func (d *decoder) strings(key string, n uint64, v *vocab) []any {
	d.elements += n
	check := v.stringCheck(key)
	keep, kept := n <= keptElements, 0
	var values []any
	for i := uint64(0); i < n && d.err == nil; i++ {
		length := d.u64(key)
		if !keep && check == nil {
			d.skip(length, key)
			continue
		}
		if length > MaxStringBytes {
			d.fail(key, "element %d has %d bytes, allowed are %d", i, length, MaxStringBytes)
		}
		s := d.bytes(length, key)
		if d.err == nil && check != nil {
			d.err = asError(check(int(i), s))
		}
		if kept += len(s); kept > keptBytes {
			keep, values = false, nil
		}
		if keep {
			values = append(values, string(s))
		}
	}
	return values
}

func (d *decoder) numbers(key string, t ValueType, n uint64, v *vocab) []any {
	d.elements += n
	width, check := valueTypes[t].bytes, v.numberCheck(key)
	if n > keptElements && check == nil {
		d.skip(n*width, key)
		return nil
	}
	var values []any
	for i := uint64(0); i < n && d.err == nil; i++ {
		b := d.bytes(width, key)
		if b == nil {
			break
		}
		value, err := decodeNumber(key, t, b)
		if err == nil && check != nil {
			err = asError(check(int(i), value))
		}
		if d.err = err; err == nil && n <= keptElements {
			values = append(values, value)
		}
	}
	return values
}

// asError keeps a nil *FormatError from becoming an error that is not nil.
func asError(e *FormatError) error {
	if e == nil {
		return nil
	}
	return e
}

func alignment(m map[string]any) (int64, error) {
	const key = "general.alignment"
	v, ok := m[key]
	if !ok {
		return MinAlignment, nil
	}
	a, ok := v.(uint32)
	if !ok {
		return 0, refuse(key, "is of type %s, allowed is uint32", typeName(v))
	}
	if a < MinAlignment || a > MaxAlignment || a&(a-1) != 0 {
		return 0, refuse(key, "is %d, allowed are powers of two from %d to %d", a, MinAlignment, MaxAlignment)
	}
	return int64(a), nil
}

func typeName(v any) string {
	if a, ok := v.(Array); ok {
		return "array of " + a.Elem.String()
	}
	return fmt.Sprintf("%T", v)
}
