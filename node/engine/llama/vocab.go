package llama

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"tandem/node/engine"
)

// TextMax is the longest text, in bytes, that Tokenize takes.
const TextMax = 16 << 20

// vocab holds all pieces in Go memory, so that only Tokenize calls C.
type vocab struct {
	mu sync.RWMutex // held while C reads the model; close waits for it
	c  *C.td_model  // nil after close

	arena   []byte
	offsets []uint32 // piece t is arena[offsets[t]:offsets[t+1]]
	flags   []uint8

	bos, eos  engine.Token
	textEnd   engine.Token // -1: none
	addBOS    bool
	usesRegex bool
	control   []string
	infill    [3]engine.Token
	hasInfill bool
}

const (
	flagControl = C.TD_TOKEN_CONTROL
	flagEOG     = C.TD_TOKEN_EOG
	flagUser    = C.TD_TOKEN_USER
)

func newVocab(c *C.td_model) (*vocab, error) {
	var info C.td_vocab_info
	C.td_vocab(c, &info)
	v := &vocab{c: c, bos: engine.Token(info.bos), eos: engine.Token(info.eos), addBOS: bool(info.add_bos), usesRegex: bool(info.uses_regex)}
	switch {
	case bool(info.add_sep) && info.sep >= 0:
		v.textEnd = engine.Token(info.sep)
	case bool(info.add_eos) && info.eos >= 0:
		v.textEnd = engine.Token(info.eos)
	default:
		v.textEnd = -1
	}
	v.infill = [3]engine.Token{engine.Token(info.fim_prefix), engine.Token(info.fim_suffix), engine.Token(info.fim_middle)}
	v.hasInfill = v.infill[0] >= 0 && v.infill[1] >= 0 && v.infill[2] >= 0
	if err := v.readPieces(int(info.size)); err != nil {
		return nil, err
	}
	for t := range v.Size() {
		if v.flags[t]&(flagControl|flagUser) != 0 {
			if p := v.piece(t); len(p) > 0 {
				v.control = append(v.control, string(p))
			}
		}
	}
	return v, nil
}

func (v *vocab) readPieces(size int) error {
	v.offsets = make([]uint32, size+1)
	v.flags = make([]uint8, size)
	v.arena = make([]byte, 0, 8*size)
	buf := make([]byte, 256)
	var err C.td_error
	for t := range size {
		n := v.readPiece(t, buf, &err)
		if n < 0 && n != math.MinInt32 {
			buf = make([]byte, -n)
			n = v.readPiece(t, buf, &err)
		}
		if n < 0 {
			return fmt.Errorf("llama: token %d has no text: %s", t, errorText(&err))
		}
		v.arena = append(v.arena, buf[:n]...)
		if len(v.arena) > math.MaxUint32 {
			return errors.New("llama: the vocabulary's texts are longer than 4 GiB")
		}
		v.offsets[t+1] = uint32(len(v.arena))
	}
	return nil
}

func (v *vocab) readPiece(t int, buf []byte, err *C.td_error) int {
	return int(C.td_piece(v.c, C.int32_t(t), (*C.char)(unsafe.Pointer(&buf[0])), C.int32_t(len(buf)),
		(*C.uint8_t)(unsafe.Pointer(&v.flags[t])), err))
}

func (v *vocab) piece(t int) []byte {
	lo, hi := v.offsets[t], v.offsets[t+1]
	return v.arena[lo:hi:hi]
}

func (v *vocab) has(t engine.Token) bool { return t >= 0 && int(t) < len(v.flags) }

func (v *vocab) Size() int { return len(v.flags) }

func (v *vocab) Piece(t engine.Token, special bool) []byte {
	if !v.has(t) || (!special && v.flags[t]&flagControl != 0) {
		return nil
	}
	return v.piece(int(t))
}

func (v *vocab) IsEOG(t engine.Token) bool { return v.has(t) && v.flags[t]&flagEOG != 0 }

func (v *vocab) IsControl(t engine.Token) bool { return v.has(t) && v.flags[t]&flagControl != 0 }

func (v *vocab) BOS() engine.Token { return v.bos }

func (v *vocab) EOS() engine.Token { return v.eos }

func (v *vocab) AddBOS() bool { return v.addBOS && v.bos >= 0 }

func (v *vocab) TextEnd() (engine.Token, bool) { return v.textEnd, v.textEnd >= 0 }

func (v *vocab) ControlTexts() []string { return v.control }

func (v *vocab) Infill() (prefix, suffix, middle engine.Token, ok bool) {
	return v.infill[0], v.infill[1], v.infill[2], v.hasInfill
}

func (v *vocab) Tokenize(text string, special bool) ([]engine.Token, error) {
	if len(text) > TextMax {
		return nil, fmt.Errorf("llama: the text has %d bytes, at most %d are allowed", len(text), TextMax)
	}
	// llama.cpp throws and catches an exception for every wrong byte.
	text = strings.ToValidUTF8(text, "\uFFFD")
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.c == nil {
		return nil, engine.ErrClosed
	}
	// Most texts have more than two bytes per token; a second pass is rare.
	tokens := make([]engine.Token, 0, len(text)/2+16)
	if !v.usesRegex {
		return v.tokenize(tokens, text, special, 0)
	}
	for text != "" {
		n, run := cutRun(text)
		var err error
		if tokens, err = v.tokenize(tokens, text[:n], special, stackFor(run)); err != nil {
			return nil, err
		}
		text = text[n:]
	}
	return tokens, nil
}

// Runs are characters without a blank between them, or blanks without a
// character. A regular expression of a vocabulary matches at most one run and
// the line ends behind it.
const (
	runMax       = 1 << 14 // bytes; longer ones are cut, wherever it is
	runFree      = 1 << 8  // bytes that fit on any thread's stack
	stackPerByte = 2 << 10 // 0.8 KiB measured, for two runs
	stackBase    = 1 << 20
)

// cutRun is how much of text has no run longer than runMax, with the length of
// its longest run.
func cutRun(text string) (n, longest int) {
	start, blank := 0, false
	for i, r := range text {
		if b := unicode.IsSpace(r); b != blank {
			start, blank = i, b
		}
		end := i + utf8.RuneLen(r)
		if end-start > runMax {
			return i, longest
		}
		longest = max(longest, end-start)
	}
	return len(text), longest
}

// stackFor is the stack to tokenise a text with such a run; 0: any will do.
func stackFor(run int) int {
	if run <= runFree {
		return 0
	}
	return stackBase + run*stackPerByte
}

// tokenize appends the tokens of text.
func (v *vocab) tokenize(tokens []engine.Token, text string, special bool, stack int) ([]engine.Token, error) {
	if text == "" {
		return tokens, nil
	}
	var err C.td_error
	for {
		room := tokens[len(tokens):cap(tokens)]
		n := C.td_tokenize(v.c, (*C.char)(unsafe.Pointer(unsafe.StringData(text))), C.int32_t(len(text)),
			int32Ptr(room), C.int32_t(len(room)), C.bool(special), C.size_t(stack), &err)
		if n == math.MinInt32 {
			return nil, errors.New("llama: tokenize: " + errorText(&err))
		}
		if n >= 0 {
			return tokens[:len(tokens)+int(n)], nil
		}
		tokens = slices.Grow(tokens, int(-n))
	}
}

// close waits for running Tokenize calls and makes later ones fail.
func (v *vocab) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.c = nil
}
