package api

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// appendString appends s as a JSON string. Bytes that are no UTF-8 become U+FFFD,
// as encoding/json does it; the node sends none.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(append(b, s[start:i]...), `\ufffd`...)
				start = i + n
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		b = appendEscape(append(b, s[start:i]...), c)
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// appendKey appends a member's name, after a comma if it is not the first.
func appendKey(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), '"', ':')
}

// lowestLogprob stands for "impossible": JSON has no infinity. OpenAI uses it too.
const lowestLogprob = -9999

func appendLogprob(b []byte, v float64) []byte {
	return strconv.AppendFloat(b, finiteLogprob(v), 'g', -1, 64)
}

// finiteLogprob also mends what rounding makes of a certainty: a logarithm of a
// probability is never above 0.
func finiteLogprob(v float64) float64 {
	switch {
	case math.IsNaN(v) || v < lowestLogprob:
		return lowestLogprob
	case v > 0:
		return 0
	}
	return v
}

// appendBytes appends p as an array of numbers.
func appendBytes(b, p []byte) []byte {
	b = append(b, '[')
	for i, c := range p {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(c), 10)
	}
	return append(b, ']')
}

// tokenText is the text of a token. Tokens that are only part of a character are
// written as their bytes, which no replacement mark could tell.
func tokenText(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	text := []byte("bytes:")
	for _, c := range p {
		const hex = "0123456789abcdef"
		text = append(text, '\\', 'x', hex[c>>4], hex[c&15])
	}
	return string(text)
}

// appendTokens appends logprobs in the form that OpenAI's chat and Ollama share.
func appendTokens(b []byte, tokens []TokenLogprob) []byte {
	b = append(b, '[')
	for i := range tokens {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendToken(b, &tokens[i])
		b = append(b, `,"top_logprobs":[`...)
		for k := range tokens[i].Top {
			if k > 0 {
				b = append(b, ',')
			}
			b = append(appendToken(b, &tokens[i].Top[k]), '}')
		}
		b = append(b, ']', '}')
	}
	return append(b, ']')
}

// appendToken appends one token and leaves the object open.
func appendToken(b []byte, t *TokenLogprob) []byte {
	b = appendString(append(b, `{"token":`...), tokenText(t.Bytes))
	b = appendLogprob(append(b, `,"logprob":`...), t.Logprob)
	return appendBytes(append(b, `,"bytes":`...), t.Bytes)
}
