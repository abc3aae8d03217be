package enginetest

import (
	"fmt"
	"strings"

	"tandem/node/engine"
)

// The control tokens. Tokens below 256 are bytes.
const (
	BOS engine.Token = 256 + iota
	EOS
	ImStart
	ImEnd
	FimPrefix
	FimSuffix
	FimMiddle
	vocabSize
)

// Vocab is a byte-level vocabulary with the control tokens of ChatML. Its zero
// value is ready to use.
type Vocab struct{}

// controlText is the text of the control token 256+i. It is an array that nobody
// writes to.
func controlText(t engine.Token) string {
	return [...]string{"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}[t-BOS]
}

// Size is the number of tokens.
func (Vocab) Size() int { return int(vocabSize) }

// Tokenize makes one token of each byte and, with special, of each control text.
func (v Vocab) Tokenize(text string, special bool) ([]engine.Token, error) {
	tokens := make([]engine.Token, 0, len(text))
	for len(text) > 0 {
		if t, ok := v.control(text); special && ok {
			tokens, text = append(tokens, t), text[len(controlText(t)):]
			continue
		}
		tokens, text = append(tokens, engine.Token(text[0])), text[1:]
	}
	return tokens, nil
}

// control finds the control token that text begins with.
func (Vocab) control(text string) (engine.Token, bool) {
	if text[0] != '<' {
		return 0, false
	}
	for t := BOS; t < vocabSize; t++ {
		if strings.HasPrefix(text, controlText(t)) {
			return t, true
		}
	}
	return 0, false
}

// Piece is the text of one token.
func (v Vocab) Piece(t engine.Token, special bool) []byte {
	switch {
	case t < 0 || t >= vocabSize:
		panic(fmt.Sprintf("enginetest: no token %d", t))
	case t < 256:
		return []byte{byte(t)}
	case special:
		return []byte(controlText(t))
	}
	return nil
}

// Text is the text of all tokens, control tokens included.
func (v Vocab) Text(tokens []engine.Token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.Write(v.Piece(t, true))
	}
	return b.String()
}

// IsEOG reports the two tokens that end an answer.
func (Vocab) IsEOG(t engine.Token) bool { return t == EOS || t == ImEnd }

// IsControl reports the tokens that are not bytes.
func (Vocab) IsControl(t engine.Token) bool { return t >= BOS }

// BOS is the token <s>.
func (Vocab) BOS() engine.Token { return BOS }

// EOS is the token </s>.
func (Vocab) EOS() engine.Token { return EOS }

// AddBOS is false: ChatML prompts have none.
func (Vocab) AddBOS() bool { return false }

// ControlTexts are the texts of the control tokens.
func (Vocab) ControlTexts() []string {
	texts := make([]string, 0, vocabSize-BOS)
	for t := BOS; t < vocabSize; t++ {
		texts = append(texts, controlText(t))
	}
	return texts
}

// Infill are the fill-in-the-middle tokens.
func (Vocab) Infill() (prefix, suffix, middle engine.Token, ok bool) {
	return FimPrefix, FimSuffix, FimMiddle, true
}

// TextEnd says that texts to embed need no end.
func (Vocab) TextEnd() (engine.Token, bool) { return -1, false }
