package block

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/zeebo/blake3"
)

// Traits is everything that shapes KV values. Two engines with equal traits may
// use each other's blocks. Values are the effective ones, after the model's
// defaults and the user's settings are resolved. Left out on purpose, as they do not
// change KV: context length (but see LongRope), batch sizes, threads, number of
// sequences.
type Traits struct {
	Model        [32]byte // SHA-256 of the model file
	Architecture string   // general.architecture of the GGUF
	Engine       string   // commit of llama.cpp and the version of our export
	Backend      string   // class of the backend, such as "cuda"; empty where blocks may cross backends

	Shape       Shape
	KVLayers    []int // the model's own number of each layer in Shape
	HeadK       int   // numbers in one head of K
	HeadV       int   // numbers in one head of V
	BlockTokens int   // tokens in a full block

	FlashAttention bool
	Causal         bool // a token sees only those before it
	FullWindow     bool // sliding-window layers keep all positions

	RopeType        string  // "none", "norm", "neox", "mrope", ...
	RopeDimensions  int     // rotated numbers of a head
	RopeSections    [4]int  // of M-RoPE
	RopeBase        float64 // frequency base
	RopeScale       float64 // frequency scale
	RopeBaseWindow  float64 // frequency base of sliding-window layers
	RopeScaleWindow float64 // frequency scale of sliding-window layers
	RopeScaling     string  // "none", "linear", "yarn", "longrope"

	YarnExtFactor   float64
	YarnAttnFactor  float64
	YarnBetaFast    float64
	YarnBetaSlow    float64
	YarnOrigContext int // tokens the model was trained on before scaling

	LongRope LongRope
	Adapters []Adapter // in the order in which they are applied
}

// LongRope is which of its two sets of rope factors a LongRope model uses: the
// context per sequence decides, and it is the only way in which the context's
// length matters to KV.
type LongRope uint8

// Sides of LongRope.
const (
	LongRopeNone  LongRope = 0 // the model has no such factors
	LongRopeShort LongRope = 1 // context per sequence within the original context
	LongRopeLong  LongRope = 2 // context per sequence above it
)

// Adapter changes what the model computes.
type Adapter struct {
	Kind       string   // "lora" or "control"
	Digest     [32]byte // SHA-256 of the adapter's file
	Scale      float64
	FirstLayer int // of a control vector
	LastLayer  int // of a control vector
}

// Tags of the traits. A tag is never used for anything else later on; a new trait
// gets a new one, at the end.
const (
	tagModel = iota + 1
	tagArchitecture
	tagEngine
	tagBackend
	tagShape
	tagKVLayers
	tagHeadK
	tagHeadV
	tagBlockTokens
	tagFlashAttention
	tagCausal
	tagFullWindow
	tagRopeType
	tagRopeDimensions
	tagRopeSections
	tagRopeBase
	tagRopeScale
	tagRopeBaseWindow
	tagRopeScaleWindow
	tagRopeScaling
	tagYarnExtFactor
	tagYarnAttnFactor
	tagYarnBetaFast
	tagYarnBetaSlow
	tagYarnOrigContext
	tagLongRope
	tagAdapter // once for each
)

// Tags of the fields of an adapter.
const (
	tagAdapterKind = iota + 1
	tagAdapterDigest
	tagAdapterScale
	tagAdapterFirstLayer
	tagAdapterLastLayer
)

// Validate checks what blocks rely on: the shape, the block size, and that no
// number is NaN, which has many encodings. The error matches ErrInvalid.
func (t Traits) Validate() error {
	if err := t.Shape.Validate(); err != nil {
		return err
	}
	if t.BlockTokens < 1 || t.BlockTokens > CountMax {
		return fmt.Errorf("%w: blocks of %d tokens; allowed: 1 to %d", ErrInvalid, t.BlockTokens, CountMax)
	}
	if most := PayloadBytesMax / t.Shape.Bytes(); t.BlockTokens > most {
		return fmt.Errorf("%w: blocks of %d tokens; allowed: at most %d of %d bytes each", ErrInvalid, t.BlockTokens, most, t.Shape.Bytes())
	}
	numbers := []float64{t.RopeBase, t.RopeScale, t.RopeBaseWindow, t.RopeScaleWindow, t.YarnExtFactor, t.YarnAttnFactor, t.YarnBetaFast, t.YarnBetaSlow}
	for _, a := range t.Adapters {
		numbers = append(numbers, a.Scale)
	}
	for _, v := range numbers {
		if math.IsNaN(v) {
			return fmt.Errorf("%w: a rope, YaRN or adapter value is NaN; allowed: numbers", ErrInvalid)
		}
	}
	return nil
}

// Fingerprint is the digest of t: BLAKE3 without a key, so that nodes can compare.
func (t Traits) Fingerprint() Fingerprint {
	return blake3.Sum256(t.appendFields(make([]byte, 0, 2048)))
}

// appendFields appends what the fingerprint is made of.
func (t Traits) appendFields(b []byte) []byte {
	b = appendString(b, tagPurpose, purposeFingerprint)
	b = appendBytes(b, tagModel, t.Model[:])
	b = appendString(b, tagArchitecture, t.Architecture)
	b = appendString(b, tagEngine, t.Engine)
	b = appendString(b, tagBackend, t.Backend)
	b = t.Shape.appendField(b, tagShape)
	b = appendInts(b, tagKVLayers, t.KVLayers...)
	b = appendInts(b, tagHeadK, t.HeadK)
	b = appendInts(b, tagHeadV, t.HeadV)
	b = appendInts(b, tagBlockTokens, t.BlockTokens)
	b = appendBool(b, tagFlashAttention, t.FlashAttention)
	b = appendBool(b, tagCausal, t.Causal)
	b = appendBool(b, tagFullWindow, t.FullWindow)
	b = t.appendRope(b)
	for _, a := range t.Adapters {
		b = appendBytes(b, tagAdapter, a.appendFields(nil))
	}
	return b
}

func (t Traits) appendRope(b []byte) []byte {
	b = appendString(b, tagRopeType, t.RopeType)
	b = appendInts(b, tagRopeDimensions, t.RopeDimensions)
	b = appendInts(b, tagRopeSections, t.RopeSections[:]...)
	b = appendFloat(b, tagRopeBase, t.RopeBase)
	b = appendFloat(b, tagRopeScale, t.RopeScale)
	b = appendFloat(b, tagRopeBaseWindow, t.RopeBaseWindow)
	b = appendFloat(b, tagRopeScaleWindow, t.RopeScaleWindow)
	b = appendString(b, tagRopeScaling, t.RopeScaling)
	b = appendFloat(b, tagYarnExtFactor, t.YarnExtFactor)
	b = appendFloat(b, tagYarnAttnFactor, t.YarnAttnFactor)
	b = appendFloat(b, tagYarnBetaFast, t.YarnBetaFast)
	b = appendFloat(b, tagYarnBetaSlow, t.YarnBetaSlow)
	b = appendInts(b, tagYarnOrigContext, t.YarnOrigContext)
	return appendInts(b, tagLongRope, int(t.LongRope))
}

// appendField appends the layers, 32 bytes each: type and values of K, then of V.
func (s Shape) appendField(b []byte, tag byte) []byte {
	b = appendFieldHead(b, tag, 32*len(s.Layers))
	for _, l := range s.Layers {
		for _, r := range [2]Row{l.K, l.V} {
			b = binary.LittleEndian.AppendUint64(b, uint64(r.Type))
			b = binary.LittleEndian.AppendUint64(b, uint64(int64(r.Values)))
		}
	}
	return b
}

func (a Adapter) appendFields(b []byte) []byte {
	b = appendString(b, tagAdapterKind, a.Kind)
	b = appendBytes(b, tagAdapterDigest, a.Digest[:])
	b = appendFloat(b, tagAdapterScale, a.Scale)
	b = appendInts(b, tagAdapterFirstLayer, a.FirstLayer)
	return appendInts(b, tagAdapterLastLayer, a.LastLayer)
}
