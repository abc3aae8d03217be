package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encode turns numbers into the elements of a tensor: F32, F16 or Q8_0, of
// which the last takes them in rows of a multiple of 32.
func Encode(t TensorType, values []float32) ([]byte, error) {
	switch t {
	case F32:
		b := make([]byte, 0, 4*len(values))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
		return b, nil
	case F16:
		b := make([]byte, 0, 2*len(values))
		for _, v := range values {
			b = binary.LittleEndian.AppendUint16(b, float16(v))
		}
		return b, nil
	case Q8_0:
		return encodeQ8(values)
	}
	return nil, fmt.Errorf("cannot encode %s, only F32, F16 and Q8_0", t)
}

// encodeQ8 makes blocks of 32: a scale in F16 and 32 signed bytes.
func encodeQ8(values []float32) ([]byte, error) {
	const block = 32
	if len(values)%block != 0 {
		return nil, fmt.Errorf("cannot encode %d values as Q8_0, only multiples of %d", len(values), block)
	}
	b := make([]byte, 0, len(values)/block*(2+block))
	for ; len(values) > 0; values = values[block:] {
		peak := float32(0)
		for _, v := range values[:block] {
			peak = max(peak, max(v, -v))
		}
		scale, inverse := peak/127, float32(0)
		if scale > 0 {
			inverse = 1 / scale
		}
		b = binary.LittleEndian.AppendUint16(b, float16(scale))
		for _, v := range values[:block] {
			b = append(b, byte(int8(math.RoundToEven(float64(v*inverse)))))
		}
	}
	return b, nil
}

// float16 rounds to the nearest half-precision number, ties to even.
func float16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	exponent := int(bits>>23&0xff) - 127 + 15
	mantissa := bits & 0x7fffff
	switch {
	case bits&0x7fffffff > 0x7f800000: // not a number
		return sign | 0x7e00
	case exponent >= 31: // too large, or infinite
		return sign | 0x7c00
	case exponent <= -11: // below half of the smallest
		return sign
	case exponent <= 0: // subnormal
		mantissa |= 0x800000
		return sign | roundShift(mantissa, uint(14-exponent))
	}
	// A carry out of the mantissa raises the exponent, up to infinity: as wanted.
	return sign | (uint16(exponent)<<10 + roundShift(mantissa, 13))
}

// roundShift shifts right and rounds to nearest, ties to even.
func roundShift(m uint32, n uint) uint16 {
	half := uint32(1) << (n - 1)
	rest := m & (1<<n - 1)
	m >>= n
	if rest > half || rest == half && m&1 == 1 {
		m++
	}
	return uint16(m)
}
