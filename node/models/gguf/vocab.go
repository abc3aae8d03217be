package gguf

import (
	"bytes"
	"hash/maphash"
	"math"
	"strconv"
)

// Keys of the vocabulary.
const (
	keyTokenizer = "tokenizer.ggml.model"
	keyTokens    = "tokenizer.ggml.tokens"
	keyScores    = "tokenizer.ggml.scores"
	keyTypes     = "tokenizer.ggml.token_type"
	keyMerges    = "tokenizer.ggml.merges"
	keyCharsmap  = "tokenizer.ggml.precompiled_charsmap"
	keyTemplate  = "tokenizer.chat_template"
)

// noToken is what converters write for a special token that does not exist.
const noToken = math.MaxUint32

// defaultIDs are the special tokens that llama.cpp assumes of a tokenizer when
// the file names none. A tokenizer that is not listed is refused.
var defaultIDs = map[string]map[string]uint32{
	"llama":  {"bos": 1, "eos": 2, "unknown": 0},
	"gpt2":   {"bos": 11, "eos": 11},
	"bert":   {"bos": 101, "unknown": 100, "seperator": 102, "padding": 0, "mask": 103},
	"t5":     {"eos": 1, "unknown": 2, "padding": 0},
	"rwkv":   {},
	"plamo2": {"bos": 1, "eos": 2, "unknown": 0, "padding": 3},
}

// vocab checks the arrays of the vocabulary while they are read.
type vocab struct {
	tokens int  // distinct ones seen so far
	bytes  bool // there are tokens that stand for one byte
	seeds  [2]maphash.Seed
	seen   map[[2]uint64]struct{}
}

func newVocab() *vocab {
	return &vocab{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, seen: map[[2]uint64]struct{}{}}
}

func (v *vocab) stringCheck(key string) func(i int, s []byte) *FormatError {
	if key != keyTokens {
		return nil
	}
	return v.token
}

// token checks one token. llama.cpp asserts that tokens are distinct, as C
// strings and with a text of its own for empty ones; two keyed 64-bit hashes
// stand for the text, so that nothing is kept and nobody can make them collide.
func (v *vocab) token(i int, s []byte) *FormatError {
	if i >= MaxTokens {
		return refuse(keyTokens, "has more than %d tokens, allowed are so many", MaxTokens)
	}
	if len(s) > MaxTokenBytes {
		return refuse(keyTokens, "element %d has %d bytes, allowed are %d", i, len(s), MaxTokenBytes)
	}
	if end := bytes.IndexByte(s, 0); end >= 0 {
		s = s[:end]
	}
	if len(s) == 0 {
		s = append(strconv.AppendInt([]byte("[EMPTY_"), int64(i), 10), ']')
	}
	h := [2]uint64{maphash.Bytes(v.seeds[0], s), maphash.Bytes(v.seeds[1], s)}
	if _, twice := v.seen[h]; twice {
		return refuse(keyTokens, "holds %s twice (element %d is the second), allowed are distinct tokens", quote(string(s)), i)
	}
	v.seen[h] = struct{}{}
	v.tokens = i + 1
	return nil
}

func (v *vocab) numberCheck(key string) func(i int, value any) *FormatError {
	if key != keyTypes {
		return nil
	}
	return v.tokenType
}

func (v *vocab) tokenType(i int, value any) *FormatError {
	t := int64(-1)
	switch n := value.(type) {
	case int32:
		t = int64(n)
	case uint32:
		t = int64(n)
	}
	if t < 0 || t > 6 {
		return refuse(keyTypes, "element %d is %v, allowed are 0 to 6", i, value)
	}
	v.bytes = v.bytes || t == 6
	return nil
}

// vocabulary checks the tokenizer's keys against each other.
func (f *File) vocabulary(v *vocab) *FormatError {
	v.seen = nil
	model, err := f.text(keyTokenizer)
	if err != nil {
		return err
	}
	ids, known := defaultIDs[model]
	if !known {
		return refuse(keyTokenizer, "is %s, allowed are llama, gpt2, bert, t5, rwkv and plamo2", quote(model))
	}
	if err := f.arrays(model, v.tokens); err != nil {
		return err
	}
	if v.tokens == 0 {
		return refuse(keyTokens, "is empty")
	}
	if v.bytes && model == "bert" { // llama.cpp asserts it
		return refuse(keyTypes, "holds 6 (a byte), allowed are 0 to 5 with the tokenizer bert")
	}
	for _, name := range [...]string{"bos", "eos", "unknown", "seperator", "padding", "mask"} {
		def, assumed := ids[name]
		if !assumed {
			def = noToken
		}
		if err := f.specialToken(name, def, v.tokens); err != nil {
			return err
		}
	}
	return nil
}

// arrays checks the types and lengths of the vocabulary's arrays, which C reads
// at the length of the tokens and by the type it expects.
func (f *File) arrays(model string, tokens int) *FormatError {
	rules := []struct {
		key      string
		required bool
		length   int // 0: any
		elem     []ValueType
	}{
		{keyTokens, true, 0, []ValueType{String}},
		{keyScores, false, tokens, []ValueType{Float32}},
		{keyTypes, false, tokens, []ValueType{Int32, Uint32}},
		{keyMerges, model == "gpt2", 0, []ValueType{String}},
		{keyCharsmap, false, 0, []ValueType{Uint8, Int8}},
	}
	for _, r := range rules {
		a, there, err := f.arrayOf(r.key, r.elem...)
		if err != nil {
			return err
		}
		if !there && r.required {
			return refuse(r.key, "is missing")
		}
		if there && r.length > 0 && a.Len != r.length {
			return refuse(r.key, "has %d elements, allowed are %d, one for each token", a.Len, r.length)
		}
	}
	return nil
}

// specialToken checks the id that llama.cpp will take: the file's, if it is in
// range, else the one it assumes of the tokenizer, which it does not check.
func (f *File) specialToken(name string, id uint32, tokens int) *FormatError {
	key := "tokenizer.ggml." + name + "_token_id"
	if raw, there := f.Metadata[key]; there {
		own, ok := raw.(uint32)
		if !ok {
			return refuse(key, "is of type %s, allowed is uint32", typeName(raw))
		}
		if int64(own) < int64(tokens) {
			return nil
		}
		if own != noToken && (name == "bos" || name == "eos") {
			return refuse(key, "is %d, allowed are 0 to %d", own, tokens-1)
		}
	}
	if id != noToken && int64(id) >= int64(tokens) {
		return refuse(key, "is missing, and the %d which is assumed of this tokenizer is not below the %d tokens", id, tokens)
	}
	return nil
}
