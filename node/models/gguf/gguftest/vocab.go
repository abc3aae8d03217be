package gguftest

import (
	"fmt"

	"tandem/node/models/gguf"
)

// Token types of GGUF.
const (
	normalToken      = 1
	unknownToken     = 2
	controlToken     = 3
	userDefinedToken = 4
	byteToken        = 6
)

// control and userDefined are the texts that both vocabularies have besides
// their pieces.
var (
	control     = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
	userDefined = []string{"<think>", "</think>", "<tool_call>", "</tool_call>"}
)

type vocab struct {
	model    string
	pre      string
	tokens   []string
	types    []int32
	scores   []float32
	merges   []string
	bos, eos uint32
}

func (v *vocab) add(text string, kind int32, score float32) {
	v.tokens = append(v.tokens, text)
	v.types = append(v.types, kind)
	v.scores = append(v.scores, score)
}

func (v *vocab) addSpecial() {
	for _, s := range control {
		v.add(s, controlToken, 0)
	}
	for _, s := range userDefined {
		v.add(s, userDefinedToken, 0)
	}
}

func (v *vocab) set(w *gguf.Writer) {
	w.Set("tokenizer.ggml.model", v.model)
	w.Set("tokenizer.ggml.pre", v.pre)
	w.Set("tokenizer.ggml.tokens", v.tokens)
	w.Set("tokenizer.ggml.token_type", v.types)
	if v.merges != nil {
		w.Set("tokenizer.ggml.merges", v.merges)
	} else {
		w.Set("tokenizer.ggml.scores", v.scores)
	}
	w.Set("tokenizer.ggml.bos_token_id", v.bos)
	w.Set("tokenizer.ggml.eos_token_id", v.eos)
	w.Set("tokenizer.ggml.add_bos_token", v.model == "llama")
}

// merged are the pieces that bpe joins, each out of two that come before it.
var merged = [][2]string{{"t", "h"}, {"th", "e"}, {"i", "n"}, {"e", "r"}, {"a", "n"}, {"an", "d"}, {"o", "u"}, {"l", "l"}, {"r", "e"}, {"o", "n"}}

// bpe is a vocabulary of all bytes, some merges and the special tokens.
func bpe() *vocab {
	v := &vocab{model: "gpt2", pre: "gpt-2", merges: []string{}}
	for b := range 256 {
		v.add(string(byteRune(b)), normalToken, 0)
	}
	join := func(a, b string) {
		v.merges = append(v.merges, a+" "+b)
		v.add(a+b, normalToken, 0)
	}
	for _, m := range merged {
		join(m[0], m[1])
	}
	join(string(byteRune(' ')), "the")
	v.bos = uint32(len(v.tokens))
	v.eos = v.bos + 2
	v.addSpecial()
	return v
}

// byteRune is the character that stands for a byte in a byte-level vocabulary:
// itself if it is printable, else one from 256 on, in order.
func byteRune(b int) rune {
	printable := func(b int) bool { return b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae }
	if printable(b) {
		return rune(b)
	}
	next := rune(256)
	for i := range b {
		if !printable(i) {
			next++
		}
	}
	return next
}

// spm is a vocabulary of byte tokens, letters, some pieces and the special tokens.
func spm() *vocab {
	v := &vocab{model: "llama", pre: "default", bos: 1, eos: 2}
	v.add("<unk>", unknownToken, 0)
	v.add("<s>", controlToken, 0)
	v.add("</s>", controlToken, 0)
	for b := range 256 {
		v.add(fmt.Sprintf("<0x%02X>", b), byteToken, 0)
	}
	const space = "\u2581"
	pieces := []string{space + "the", space + "t", "th", "he", "in", "er", "an", "nd", "and", "ou", "ll", space}
	for c := '!'; c <= '~'; c++ {
		pieces = append(pieces, string(c))
	}
	for i, p := range pieces {
		v.add(p, normalToken, -float32(i))
	}
	v.eos = uint32(len(v.tokens)) + 2
	v.addSpecial()
	return v
}
