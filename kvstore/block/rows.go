package block

import "fmt"

// Segment is where a payload keeps the rows of K, or of V, of one layer: Rows rows
// of RowBytes bytes each, from Offset on, without gaps.
type Segment struct {
	Type     Type
	Offset   int // bytes from the start of the payload
	RowBytes int
	Rows     int
}

// Segments describes a payload of count rows: K of the first layer, V of the first
// layer, K of the second, and so on. Each begins where the one before ends, and the
// last ends with the payload.
func (s Shape) Segments(count int) []Segment {
	out := make([]Segment, 0, 2*len(s.Layers))
	offset := 0
	for _, l := range s.Layers {
		for _, r := range [2]Row{l.K, l.V} {
			out = append(out, Segment{Type: r.Type, Offset: offset, RowBytes: r.Bytes(), Rows: count})
			offset += r.Bytes() * count
		}
	}
	return out
}

// CopyRows copies n tokens' rows from the payload src, beginning with its token
// from, into the payload dst, beginning with its token to. How many tokens a payload
// has follows from its length. They must not overlap. Nothing is copied if they do not
// fit; the error matches ErrInvalid.
func (s Shape) CopyRows(dst []byte, to int, src []byte, from, n int) error {
	into, err := s.count("destination", dst)
	if err != nil {
		return err
	}
	have, err := s.count("source", src)
	if err != nil {
		return err
	}
	if n < 0 || to < 0 || to > into-n {
		return fmt.Errorf("%w: %d tokens to token %d of a destination of %d", ErrInvalid, n, to, into)
	}
	if from < 0 || from > have-n {
		return fmt.Errorf("%w: %d tokens from token %d of a source of %d", ErrInvalid, n, from, have)
	}
	for _, l := range s.Layers {
		for _, r := range [2]Row{l.K, l.V} {
			size := r.Bytes()
			copy(dst[to*size:][:n*size], src[from*size:])
			dst, src = dst[into*size:], src[have*size:]
		}
	}
	return nil
}

// count is how many tokens a payload has.
func (s Shape) count(what string, payload []byte) (int, error) {
	size := s.Bytes()
	if size == 0 || len(payload)%size != 0 {
		return 0, fmt.Errorf("%w: %s has %d bytes; allowed: multiples of %d", ErrInvalid, what, len(payload), size)
	}
	return len(payload) / size, nil
}

// Split cuts the payload of a span into those of consecutive blocks: each of dst is
// filled with as many tokens as its length has room for, the first from the span's
// beginning. Tokens of src that are left over are left out. The caller owns all
// memory. The error matches ErrInvalid; then some of dst may be filled.
func (s Shape) Split(dst [][]byte, src []byte) error {
	from := 0
	for _, d := range dst {
		n, err := s.count("block", d)
		if err != nil {
			return err
		}
		if err := s.CopyRows(d, 0, src, from, n); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// Merge joins the payloads of consecutive spans into that of the whole, the first
// one first. dst must have exactly the length of all src together. The caller owns
// all memory. The error matches ErrInvalid; then dst may be filled in part.
func (s Shape) Merge(dst []byte, src [][]byte) error {
	want := 0
	for _, b := range src {
		want += len(b)
	}
	if len(dst) != want {
		return fmt.Errorf("%w: destination has %d bytes; allowed: %d, as the sources have", ErrInvalid, len(dst), want)
	}
	to := 0
	for _, b := range src {
		n, err := s.count("block", b)
		if err != nil {
			return err
		}
		if err := s.CopyRows(dst, to, b, 0, n); err != nil {
			return err
		}
		to += n
	}
	return nil
}
