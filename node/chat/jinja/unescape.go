package jinja

import (
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// isSpace is what Python's strip and split take for whitespace.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

var errEscape = errors.New("a string has a malformed escape")

// unescape resolves Python's escapes; unknown ones stay as they are.
func unescape(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 >= len(s) {
			out.WriteString(s)
			return out.String(), nil
		}
		out.WriteString(s[:i])
		text, n, err := escape(s[i+1:])
		if err != nil {
			return "", err
		}
		out.WriteString(text)
		s = s[i+1+n:]
	}
}

// escape resolves what follows a backslash; n is how many bytes that were.
func escape(s string) (text string, n int, err error) {
	switch c := s[0]; c {
	case '\n':
		return "", 1, nil // the line goes on
	case '\\', '\'', '"':
		return s[:1], 1, nil
	case 'a', 'b', 'f', 'n', 'r', 't', 'v':
		i := strings.IndexByte("abfnrtv", c)
		return "\a\b\f\n\r\t\v"[i : i+1], 1, nil
	case 'x':
		return hexEscape(s, 2)
	case 'u':
		return hexEscape(s, 4)
	case 'U':
		return hexEscape(s, 8)
	case '0', '1', '2', '3', '4', '5', '6', '7':
		n := 1
		for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
			n++
		}
		return codePoint(s[:n], 8, n)
	}
	_, size := utf8.DecodeRuneInString(s)
	return `\` + s[:size], size, nil
}

func hexEscape(s string, width int) (string, int, error) {
	if len(s) < 1+width {
		return "", 0, errEscape
	}
	return codePoint(s[1:1+width], 16, 1+width)
}

func codePoint(digits string, base, n int) (string, int, error) {
	v, err := strconv.ParseUint(digits, base, 32)
	if err != nil || v > unicode.MaxRune {
		return "", 0, errEscape
	}
	return string(rune(v)), n, nil
}
