package block_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tandem/kvstore/block"
)

func TestCheckPassesWhatWasSealed(t *testing.T) {
	for count := 1; count <= 9; count++ {
		h, payload := sealed(uint64(count), mixed, 100, count)
		if err := h.Check(mixed, payload); err != nil {
			t.Errorf("%d tokens: %v", count, err)
		}
	}
}

// The digest covers every field of the header.
func TestDigestCoversTheHeader(t *testing.T) {
	h, payload := sealed(1, mixed, 5, 2)
	for name, change := range map[string]func(*block.Header){
		"id":          func(h *block.Header) { h.ID[0] ^= 1 },
		"parent":      func(h *block.Header) { h.Parent[15] ^= 1 },
		"fingerprint": func(h *block.Header) { h.Fingerprint[31] ^= 1 },
		"start":       func(h *block.Header) { h.Start++ },
		"token":       func(h *block.Header) { h.Tokens[1] ^= 1 },
		"digest":      func(h *block.Header) { h.Digest[7] ^= 1 },
	} {
		bad := h
		bad.Tokens = slices.Clone(h.Tokens)
		change(&bad)
		if err := bad.Check(mixed, payload); !errors.Is(err, block.ErrDamaged) {
			t.Errorf("%s changed: %v", name, err)
		}
	}
	if fields := reflect.TypeFor[block.Header]().NumField(); fields != 8 {
		t.Errorf("the header has %d fields: are they all in this test?", fields)
	}
	other, _ := sealed(2, mixed, 5, 2)
	if err := other.Check(mixed, payload); !errors.Is(err, block.ErrDamaged) {
		t.Errorf("another block's header: %v", err)
	}
}

func TestCheckRefusesOtherLengthsAndShapes(t *testing.T) {
	h, payload := sealed(1, mixed, 0, 4)
	broken := block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.Q8_0, Values: 33}, V: block.Row{Type: block.F16}}}}
	fits, some := sealed(2, uniform(block.F16, 17, 1), 0, 4)
	fits.PayloadBytes = 4 * broken.Bytes()
	some = some[:fits.PayloadBytes]
	fits.Digest = fits.Sum(some)
	longer := h
	longer.PayloadBytes += 4
	for name, tt := range map[string]struct {
		h       block.Header
		shape   block.Shape
		payload []byte
		want    error
	}{
		"a byte missing":       {h, mixed, payload[:len(payload)-1], block.ErrDamaged},
		"a byte more":          {h, mixed, append(bytes.Clone(payload), 0), block.ErrDamaged},
		"nothing":              {h, mixed, nil, block.ErrDamaged},
		"another shape":        {h, uniform(block.F16, 8, 2), payload, block.ErrInvalid},
		"a shape of no bytes":  {h, block.Shape{}, payload, block.ErrInvalid},
		"a shape not allowed":  {fits, broken, some, block.ErrInvalid},
		"a length of no shape": {longer, mixed, payload, block.ErrInvalid},
		"an invalid header":    {block.Header{}, mixed, payload, block.ErrInvalid},
	} {
		if err := tt.h.Check(tt.shape, tt.payload); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// One number that is not finite is found wherever it is, and named.
func TestCheckFindsEveryInfAndNaN(t *testing.T) {
	const count = 3
	h, payload := sealed(9, mixed, 0, count)
	for i, s := range mixed.Segments(count) {
		group, _ := groupBytes(s.Type)
		for at := 0; at < s.Rows*s.RowBytes; at += group {
			for _, bits := range []uint16{0x7c00, 0xfc00, 0x7c01, 0x7fff, 0xffff} {
				bad := bytes.Clone(payload)
				binary.LittleEndian.PutUint16(bad[s.Offset+at:], bits)
				sealedBad := h
				sealedBad.Digest = h.Sum(bad)
				err := sealedBad.Check(mixed, bad)
				where := fmt.Sprintf("%c of token %d in layer %d", "KV"[i%2], at/s.RowBytes, i/2)
				if !errors.Is(err, block.ErrInvalid) || !strings.Contains(err.Error(), where) {
					t.Fatalf("%04x in %s: %v", bits, where, err)
				}
			}
		}
	}
}

// Bytes inside quantised groups are no f16 numbers: any of them may be there.
func TestCheckLetsQuantisedBytesBe(t *testing.T) {
	const count = 2
	h, payload := sealed(10, mixed, 0, count)
	for _, s := range mixed.Segments(count) {
		group, quantised := groupBytes(s.Type)
		for at := 0; quantised && at < s.Rows*s.RowBytes; at++ {
			if at%group >= 2 {
				payload[s.Offset+at] = 0xff
			}
		}
	}
	h.Digest = h.Sum(payload)
	if err := h.Check(mixed, payload); err != nil {
		t.Error(err)
	}
}

// The fast scan against one that looks at every number as a float, over lengths
// around its strides.
func TestFiniteAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	groups := map[block.Type]int{block.F16: 2, block.Q8_0: 34, block.Q4_0: 18}
	verdicts := map[bool]int{}
	for range 20_000 {
		for kind, group := range groups {
			b := make([]byte, group*r.IntN(40))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			// Of random numbers one in 32 is not finite: most long rows would not be.
			for i := 0; i < len(b); i += group {
				if r.IntN(8) != 0 {
					b[i+1] &^= 1 << (2 + r.IntN(5))
				}
			}
			want := specFinite(int(kind), b)
			verdicts[want]++
			if got := block.Finite(kind, b); got != want {
				t.Fatalf("%v %x: finite is %t, want %t", kind, b, got, want)
			}
		}
	}
	if verdicts[true] < 1000 || verdicts[false] < 1000 {
		t.Errorf("verdicts %v: the test proves little", verdicts)
	}
	for bits := range 1 << 16 {
		b := make([]byte, 2*17) // one in the strides, one in the rest
		binary.LittleEndian.PutUint16(b[2*(bits%17):], uint16(bits))
		if got, want := block.Finite(block.F16, b), specFinite(1, b); got != want {
			t.Fatalf("%04x: finite is %t, want %t", bits, got, want)
		}
	}
	if block.Finite(block.Type(3), nil) {
		t.Error("rows of an unknown type pass")
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	h, payload := sealed(12, mixed, 0, 64)
	if n := testing.AllocsPerRun(20, func() {
		if err := h.Check(mixed, payload); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("Check allocates %v times", n)
	}
}
