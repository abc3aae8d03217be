package gguf

import "fmt"

// ValueType is the type of a metadata value.
type ValueType uint32

// The value types. Array is never the element type of an array here.
const (
	Uint8 ValueType = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	ArrayType
	Uint64
	Int64
	Float64
)

var valueTypes = [...]struct {
	name  string
	bytes uint64 // 0: of no fixed size
}{
	{"uint8", 1}, {"int8", 1}, {"uint16", 2}, {"int16", 2}, {"uint32", 4}, {"int32", 4}, {"float32", 4},
	{"bool", 1}, {"string", 0}, {"array", 0}, {"uint64", 8}, {"int64", 8}, {"float64", 8},
}

func (t ValueType) String() string {
	if int(t) < len(valueTypes) {
		return valueTypes[t].name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// TensorType is the type of a tensor's elements, numbered as ggml does.
type TensorType uint32

// The types that weights may have. Types that ggml uses only inside of a
// computation, and types it has dropped, are not among them.
const (
	F32    TensorType = 0
	F16    TensorType = 1
	Q4_0   TensorType = 2
	Q4_1   TensorType = 3
	Q5_0   TensorType = 6
	Q5_1   TensorType = 7
	Q8_0   TensorType = 8
	Q2_K   TensorType = 10
	Q3_K   TensorType = 11
	Q4_K   TensorType = 12
	Q5_K   TensorType = 13
	Q6_K   TensorType = 14
	IQ2XXS TensorType = 16
	IQ2XS  TensorType = 17
	IQ3XXS TensorType = 18
	IQ1S   TensorType = 19
	IQ4NL  TensorType = 20
	IQ3S   TensorType = 21
	IQ2S   TensorType = 22
	IQ4XS  TensorType = 23
	IQ1M   TensorType = 29
	BF16   TensorType = 30
	TQ1_0  TensorType = 34
	TQ2_0  TensorType = 35
	MXFP4  TensorType = 39
)

// layout says how a type is stored: blocks of so many elements in so many bytes.
type layout struct {
	name  string
	block uint64
	bytes uint64
}

var layouts = map[TensorType]layout{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q5_0: {"Q5_0", 32, 22}, Q5_1: {"Q5_1", 32, 24}, Q8_0: {"Q8_0", 32, 34},
	Q2_K: {"Q2_K", 256, 84}, Q3_K: {"Q3_K", 256, 110}, Q4_K: {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
	IQ2XXS: {"IQ2_XXS", 256, 66}, IQ2XS: {"IQ2_XS", 256, 74}, IQ2S: {"IQ2_S", 256, 82}, IQ3XXS: {"IQ3_XXS", 256, 98}, IQ3S: {"IQ3_S", 256, 110},
	IQ1S: {"IQ1_S", 256, 50}, IQ1M: {"IQ1_M", 256, 56}, IQ4NL: {"IQ4_NL", 32, 18}, IQ4XS: {"IQ4_XS", 256, 136},
	TQ1_0: {"TQ1_0", 256, 54}, TQ2_0: {"TQ2_0", 256, 66}, MXFP4: {"MXFP4", 32, 17},
}

func (t TensorType) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// fileTypes names general.file_type: the mix of types that a quantiser chose.
var fileTypes = map[uint32]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
	14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
	23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M",
	32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}
