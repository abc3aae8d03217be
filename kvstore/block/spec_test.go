package block_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"

	"github.com/zeebo/blake3"
	"github.com/zeebo/xxh3"
)

// This file is a second implementation of docs/kv-format.md, written from that page
// alone and for clarity, not speed. It uses nothing of the package: where the two
// differ, one of them or the page is wrong.

// specField is a field: "1 tag, 4 length n of the value, n value".
func specField(tag byte, value []byte) []byte {
	out := []byte{tag}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(value)))
	return append(out, value...)
}

func specFields(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func specI64(values ...int) []byte {
	var out bytes.Buffer
	for _, v := range values {
		binary.Write(&out, binary.LittleEndian, int64(v))
	}
	return out.Bytes()
}

func specF64(v float64) []byte {
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
}

func specBool(v bool) []byte {
	if v {
		return []byte{1}
	}
	return []byte{0}
}

// specTraits are the inputs of the fingerprint as vectors.json has them.
type specTraits struct {
	Model                         hexBytes
	Architecture, Engine, Backend string
	Shape                         struct{ Layers []specLayer }
	KVLayers                      []int
	HeadK, HeadV, BlockTokens     int
	FlashAttention, Causal        bool
	FullWindow                    bool
	RopeType                      string
	RopeDimensions                int
	RopeSections                  []int
	RopeBase, RopeScale           float64
	RopeBaseWindow                float64
	RopeScaleWindow               float64
	RopeScaling                   string
	YarnExtFactor, YarnAttnFactor float64
	YarnBetaFast, YarnBetaSlow    float64
	YarnOrigContext, LongRope     int
	Adapters                      []struct {
		Kind                  string
		Digest                hexBytes
		Scale                 float64
		FirstLayer, LastLayer int
	}
}

type specRow struct{ Type, Values int }
type specLayer struct{ K, V specRow }

func specFingerprint(t specTraits) (message, fingerprint []byte) {
	var shape []byte
	for _, l := range t.Shape.Layers {
		shape = append(shape, specI64(l.K.Type, l.K.Values, l.V.Type, l.V.Values)...)
	}
	message = specFields(
		specField(0, []byte("tandem kv fingerprint 1")),
		specField(1, t.Model),
		specField(2, []byte(t.Architecture)),
		specField(3, []byte(t.Engine)),
		specField(4, []byte(t.Backend)),
		specField(5, shape),
		specField(6, specI64(t.KVLayers...)),
		specField(7, specI64(t.HeadK)),
		specField(8, specI64(t.HeadV)),
		specField(9, specI64(t.BlockTokens)),
		specField(10, specBool(t.FlashAttention)),
		specField(11, specBool(t.Causal)),
		specField(12, specBool(t.FullWindow)),
		specField(13, []byte(t.RopeType)),
		specField(14, specI64(t.RopeDimensions)),
		specField(15, specI64(t.RopeSections...)),
		specField(16, specF64(t.RopeBase)),
		specField(17, specF64(t.RopeScale)),
		specField(18, specF64(t.RopeBaseWindow)),
		specField(19, specF64(t.RopeScaleWindow)),
		specField(20, []byte(t.RopeScaling)),
		specField(21, specF64(t.YarnExtFactor)),
		specField(22, specF64(t.YarnAttnFactor)),
		specField(23, specF64(t.YarnBetaFast)),
		specField(24, specF64(t.YarnBetaSlow)),
		specField(25, specI64(t.YarnOrigContext)),
		specField(26, specI64(t.LongRope)),
	)
	for _, a := range t.Adapters {
		message = append(message, specField(27, specFields(
			specField(1, []byte(a.Kind)),
			specField(2, a.Digest),
			specField(3, specF64(a.Scale)),
			specField(4, specI64(a.FirstLayer)),
			specField(5, specI64(a.LastLayer)),
		))...)
	}
	sum := blake3.Sum256(message)
	return message, sum[:]
}

// specID is "the first 16 of the 32 bytes of BLAKE3 in its keyed mode".
func specID(key, message []byte) []byte {
	h, err := blake3.NewKeyed(key)
	if err != nil {
		panic(err)
	}
	h.Write(message)
	return h.Sum(nil)[:16]
}

func specRoot(key, fingerprint []byte, tenant string) []byte {
	return specID(key, specFields(specField(0, []byte("tandem kv root 1")), specField(1, fingerprint), specField(2, []byte(tenant))))
}

func specNext(key, parent []byte, tokens []int32) []byte {
	var ids bytes.Buffer
	binary.Write(&ids, binary.LittleEndian, tokens)
	return specID(key, specFields(specField(0, []byte("tandem kv block 1")), specField(1, parent), specField(2, ids.Bytes())))
}

// specBlock is what a reader has of a block.
type specBlock struct {
	count, start, payloadBytes        int
	id, parent, fingerprint, digested []byte
	tokens                            []int32
	digest                            []byte
	length                            int
}

var (
	errSpecShort   = errors.New("more bytes are needed")
	errSpecRefused = errors.New("refused")
)

// specRead takes steps 1 to 4 of "What a reader does".
func specRead(b []byte) (out specBlock, err error) {
	u := binary.LittleEndian
	if len(b) < 12 {
		return out, errSpecShort
	}
	length := int64(u.Uint32(b[8:]))
	if string(b[:4]) != "TKVB" || u.Uint16(b[4:]) != 1 || u.Uint16(b[6:]) != 0 || length < 124 || length > 65536 {
		return out, errSpecRefused
	}
	if int64(len(b)) < length {
		return out, errSpecShort
	}
	b = b[:length]
	if u.Uint64(b[length-8:]) != xxh3.Hash(b[:length-8]) {
		return out, errSpecRefused
	}
	count, start, payload := int64(u.Uint32(b[12:])), u.Uint64(b[16:]), u.Uint64(b[24:])
	if count < 1 || count > 1024 || length != 120+4*count || start > 2147483647 || start+uint64(count)-1 > 2147483647 {
		return out, errSpecRefused
	}
	if payload < uint64(count) || payload%uint64(count) != 0 || payload > 1073741824 || payload > uint64(count)*16777216 {
		return out, errSpecRefused
	}
	out = specBlock{
		count: int(count), start: int(start), payloadBytes: int(payload), length: int(length),
		id: b[32:48], parent: b[48:64], fingerprint: b[64:96],
		digested: b[:96+4*count], digest: b[96+4*count:][:16],
	}
	if bytes.Equal(out.id, make([]byte, 16)) {
		return out, errSpecRefused
	}
	for i := range out.count {
		token := int32(u.Uint32(b[96+4*i:]))
		if token < 0 {
			return out, errSpecRefused
		}
		out.tokens = append(out.tokens, token)
	}
	return out, nil
}

// specCheck takes steps 6 to 8.
func (b specBlock) specCheck(layers []specLayer, payload []byte) error {
	total := 0
	for _, l := range layers {
		total += specRowBytes(l.K) + specRowBytes(l.V)
	}
	if b.payloadBytes != b.count*total || len(payload) != b.payloadBytes {
		return errSpecRefused
	}
	rows := specDigest(payload)
	if !bytes.Equal(b.digest, specDigest(append(bytes.Clone(b.digested), rows...))) {
		return errSpecRefused
	}
	for _, l := range layers {
		for _, r := range []specRow{l.K, l.V} {
			for range b.count {
				if !specFinite(r.Type, payload[:specRowBytes(r)]) {
					return errSpecRefused
				}
				payload = payload[specRowBytes(r):]
			}
		}
	}
	return nil
}

// specDigest is XXH3-128, "the higher 64 bits first, each big-endian".
func specDigest(b []byte) []byte {
	sum := xxh3.Hash128(b)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, sum.Hi), sum.Lo)
}

// specGroups is the table of types: values in a group, bytes of a group.
var specGroups = map[int][2]int{1: {1, 2}, 2: {32, 18}, 8: {32, 34}}

func specRowBytes(r specRow) int {
	g := specGroups[r.Type]
	return r.Values / g[0] * g[1]
}

// specFinite turns the f16 number at the start of each group into a float.
func specFinite(numberType int, row []byte) bool {
	for group := specGroups[numberType][1]; len(row) >= group; row = row[group:] {
		if v := specHalf(binary.LittleEndian.Uint16(row)); math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

// specHalf is the value of an IEEE 754 half.
func specHalf(bits uint16) float64 {
	sign, exponent, fraction := 1-2*float64(bits>>15), int(bits>>10&31), float64(bits&1023)
	switch {
	case exponent == 31 && fraction == 0:
		return math.Inf(int(sign))
	case exponent == 31:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestSecondImplementationReadsVectors(t *testing.T) {
	text, err := os.ReadFile(vectorsPath)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name                            string
		Key                             hexBytes
		Traits                          specTraits
		Tenant                          string
		Tokens                          []int32
		BlockSize, Encoded              int
		Payload                         hexBytes
		FingerprintMessage, Fingerprint hexBytes
		Root                            hexBytes
		IDs                             []hexBytes
		Header                          hexBytes
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		message, fingerprint := specFingerprint(v.Traits)
		same(t, v.Name+": fingerprint message", message, v.FingerprintMessage)
		same(t, v.Name+": fingerprint", fingerprint, v.Fingerprint)
		parents := [][]byte{specRoot(v.Key, fingerprint, v.Tenant)}
		same(t, v.Name+": root", parents[0], v.Root)
		for i, id := range v.IDs {
			next := specNext(v.Key, parents[i], v.Tokens[i*v.BlockSize:][:v.BlockSize])
			same(t, v.Name+": id", next, id)
			parents = append(parents, next)
		}
		b, err := specRead(v.Header)
		if err != nil {
			t.Fatalf("%s: header: %v", v.Name, err)
		}
		same(t, v.Name+": id in the header", b.id, v.IDs[v.Encoded])
		same(t, v.Name+": parent", b.parent, parents[v.Encoded])
		same(t, v.Name+": fingerprint in the header", b.fingerprint, v.Fingerprint)
		same(t, v.Name+": id of its tokens", specNext(v.Key, b.parent, b.tokens), b.id)
		if b.start != v.Encoded*v.BlockSize || b.count != v.BlockSize || b.length != len(v.Header) {
			t.Errorf("%s: start %d, count %d, length %d", v.Name, b.start, b.count, b.length)
		}
		if err := b.specCheck(v.Traits.Shape.Layers, v.Payload); err != nil {
			t.Errorf("%s: payload: %v", v.Name, err)
		}
	}
}

func same(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %x, want %x", what, got, want)
	}
}
