package calc

import (
	"fmt"

	"tandem/node/models/gguf"
)

// Limits of what a config.json and a Question may say. They keep every product below
// 2^63 and every list short.
const (
	MaxConfigBytes = 1 << 20 // a config.json [60 KiB, with quantisation lists]

	maxLayers  = gguf.MaxLayers
	maxHeads   = 8192    // [128]
	maxHeadDim = 1 << 14 // [576]
	maxWidth   = 1 << 18 // of a token between layers [16,384]
	maxFF      = 1 << 24 // [53,248]
	maxExperts = 4096    // [512]
	maxVocab   = 1 << 24 // [262,400]
	maxState   = 1 << 16 // sizes of recurrent state [256]

	// MaxTokens of a prompt or context.
	MaxTokens = 1 << 30
	// MaxSequences that one box answers at once.
	MaxSequences = 1024
	// MaxBoxes that a model may be spread over.
	MaxBoxes = 1024
	// MaxLinks in one question.
	MaxLinks = 32
	// MaxMemory of one box, and MaxWeights of a model, bytes.
	MaxMemory  = 1 << 50
	MaxWeights = 1 << 50
	// MaxGbit of a link.
	MaxGbit = 100_000
	// MaxRate in tokens/s.
	MaxRate = 1e9
	// MaxRTT of a link in milliseconds.
	MaxRTT = 60_000
)

// FieldError is a fault of a field of a config.json or of a Question.
type FieldError struct {
	Field string
	Text  string // what is wrong with it, and what is allowed
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

func refuse(field, format string, args ...any) *FieldError {
	return &FieldError{Field: field, Text: fmt.Sprintf(format, args...)}
}
