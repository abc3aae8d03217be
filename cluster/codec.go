package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

var errShort = errors.New("it ends too early")

// reader takes apart bytes from outside. After the first error it returns zeros; what
// it returns is never longer than what it was given.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) take(n int) []byte {
	if r.err == nil && len(r.rest) < n {
		r.err = errShort
	}
	if r.err != nil {
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) i64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// count reads a number of things that may not be more than most.
func (r *reader) count(what string, most int) int {
	n := int(r.u8())
	if r.err == nil && n > most {
		r.err = fmt.Errorf("%d %s, %d at most", n, what, most)
	}
	if r.err != nil {
		return 0
	}
	return n
}

// text reads a length and as many bytes, which people will see.
func (r *reader) text(what string, most int) string {
	b := r.take(r.count("bytes of "+what, most))
	if r.err == nil && !printable(string(b)) {
		r.err = fmt.Errorf("the %s is not printable text", what)
	}
	if r.err != nil {
		return ""
	}
	return string(b)
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}

// appendText is the counterpart of reader.text.
func appendText(to []byte, what, s string, most int) ([]byte, error) {
	if len(s) > most || !printable(s) {
		return nil, fmt.Errorf("the %s %.100q: allowed are %d bytes of printable text", what, s, most)
	}
	return append(append(to, byte(len(s))), s...), nil
}
