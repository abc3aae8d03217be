package block

import "fmt"

// Type is how numbers are kept; the values are those of ggml_type.
type Type uint32

// Types that KV rows may have. The quantised ones keep groups of 32 numbers with
// one f16 scale in front.
const (
	F16  Type = 1
	Q4_0 Type = 2
	Q8_0 Type = 8
)

// group tells how many numbers share a scale and how many bytes they take; zeros if
// the type is unknown.
func (t Type) group() (values, bytes int) {
	switch t {
	case F16:
		return 1, 2
	case Q4_0:
		return 32, 18
	case Q8_0:
		return 32, 34
	}
	return 0, 0
}

// String is the name that ggml gives the type.
func (t Type) String() string {
	switch t {
	case F16:
		return "f16"
	case Q4_0:
		return "q4_0"
	case Q8_0:
		return "q8_0"
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Row is how one layer keeps K or V of one token.
type Row struct {
	Type   Type
	Values int // numbers in the row: KV heads x head size; a multiple of 32 if quantised
}

// Bytes is the length of the row; 0 if the type is unknown.
func (r Row) Bytes() int {
	values, bytes := r.Type.group()
	if values == 0 {
		return 0
	}
	return r.Values / values * bytes
}

// validate checks the row of K or V, named by kind, against the limits.
func (r Row) validate(kind string, layer, least int) error {
	values, bytes := r.Type.group()
	if values == 0 {
		return fmt.Errorf("%w: type of %s in layer %d is %d; allowed: 1 (f16), 2 (q4_0), 8 (q8_0)", ErrInvalid, kind, layer, uint32(r.Type))
	}
	if most := RowBytesMax / bytes * values; r.Values < least || r.Values > most || r.Values%values != 0 {
		return fmt.Errorf("%w: %s in layer %d has %d values; allowed for %v: multiples of %d from %d to %d", ErrInvalid, kind, layer, r.Values, r.Type, values, least*values, most)
	}
	return nil
}

// Layer is one layer that keeps KV. V has no values where a model keeps only
// K (latent attention).
type Layer struct{ K, V Row }

// Shape is what the rows of a token look like: the layers that keep KV, in order.
// It is not changed after it was made; it may be shared.
type Shape struct{ Layers []Layer }

// Validate checks the shape against LayersMax, RowBytesMax and TokenBytesMax. All
// other methods expect a shape that passed. The error matches ErrInvalid.
func (s Shape) Validate() error {
	if n := len(s.Layers); n < 1 || n > LayersMax {
		return fmt.Errorf("%w: %d KV layers; allowed: 1 to %d", ErrInvalid, n, LayersMax)
	}
	size := 0
	for i, l := range s.Layers {
		if err := l.K.validate("K", i, 1); err != nil {
			return err
		}
		if err := l.V.validate("V", i, 0); err != nil {
			return err
		}
		if size += l.K.Bytes() + l.V.Bytes(); size > TokenBytesMax {
			return fmt.Errorf("%w: the rows of a token have %d bytes up to layer %d; allowed in all: %d", ErrInvalid, size, i, TokenBytesMax)
		}
	}
	return nil
}

// Bytes is the length of all rows of one token.
func (s Shape) Bytes() int {
	n := 0
	for _, l := range s.Layers {
		n += l.K.Bytes() + l.V.Bytes()
	}
	return n
}
