package block

import (
	"encoding/binary"
	"fmt"
)

// Infinity and NaN are the f16 numbers whose exponent has all bits set.
const (
	exponent16 = 0x7c00
	// exponents is exponent16 in each of the four numbers of a word. Adding carry
	// to a word masked with it sets the highest bit of exactly those numbers
	// that are not finite; nothing runs over into the next number.
	exponents = 0x7c00_7c00_7c00_7c00
	carry     = 0x0400_0400_0400_0400
	highest   = 0x8000_8000_8000_8000
)

// checkFinite expects a payload of count rows of each kind.
func (s Shape) checkFinite(payload []byte, count int) error {
	for i, l := range s.Layers {
		for j, r := range [2]Row{l.K, l.V} {
			n := r.Bytes()
			region := payload[:n*count]
			payload = payload[n*count:]
			if finite(r.Type, region) {
				continue
			}
			row := 0
			for finite(r.Type, region[row*n:][:n]) {
				row++
			}
			return fmt.Errorf("%w: %c of token %d in layer %d is Inf or NaN; allowed: finite numbers", ErrInvalid, "KV"[j], row, i)
		}
	}
	return nil
}

// finite tells whether whole rows of a type hold no Inf or NaN. Only the scales of
// quantised groups can.
func finite(t Type, rows []byte) bool {
	switch t {
	case F16:
		return finite16(rows)
	case Q8_0:
		return finiteScales(rows, 34)
	case Q4_0:
		return finiteScales(rows, 18)
	}
	return false
}

// finite16 reads 8 bytes at a time. Whether the loop may stop early does not
// matter: nearly all rows are finite.
func finite16(b []byte) bool {
	var bad uint64
	for len(b) >= 32 {
		x := binary.LittleEndian.Uint64(b) & exponents
		y := binary.LittleEndian.Uint64(b[8:]) & exponents
		z := binary.LittleEndian.Uint64(b[16:]) & exponents
		w := binary.LittleEndian.Uint64(b[24:]) & exponents
		bad |= (x + carry) | (y + carry) | (z + carry) | (w + carry)
		b = b[32:]
	}
	for ; len(b) >= 2; b = b[2:] {
		bad |= uint64(binary.LittleEndian.Uint16(b)&exponent16) + 0x0400
	}
	return bad&highest == 0
}

// finiteScales looks at the f16 number that each group begins with.
func finiteScales(b []byte, group int) bool {
	for ; len(b) >= group; b = b[group:] {
		if binary.LittleEndian.Uint16(b)&exponent16 == exponent16 {
			return false
		}
	}
	return true
}
