package node

import (
	"bytes"
	"unicode/utf8"
)

// textAssembler turns the pieces of tokens into text that may be shown: whole
// UTF-8 characters only, and nothing that is or may become part of a stop
// string. What it holds back is never longer than the longest stop string plus
// one character.
//
// Invariant: held has no complete stop string and is a suffix of all bytes
// pushed so far; everything before it was returned.
type textAssembler struct {
	stops   [][]byte
	held    []byte
	done    bool
	stopped string // the stop string that was reached
}

func newTextAssembler(stops []string) *textAssembler {
	a := &textAssembler{}
	for _, s := range stops {
		if s != "" {
			a.stops = append(a.stops, []byte(s))
		}
	}
	return a
}

// push adds the bytes of one token and returns the text that is now certain.
// stopped tells that a stop string was reached; the text ends before it and
// further pushes return nothing.
func (a *textAssembler) push(piece []byte) (text string, stopped bool) {
	if a.done {
		return "", true
	}
	a.held = append(a.held, piece...)
	if at, stop := a.firstStop(); at >= 0 {
		a.done, a.stopped = true, string(stop)
		text = validText(a.held[:at])
		a.held = nil
		return text, true
	}
	keep := max(a.stopPrefix(), incompleteTail(a.held))
	text = validText(a.held[:len(a.held)-keep])
	a.held = append(a.held[:0], a.held[len(a.held)-keep:]...)
	return text, false
}

// flush returns what was held back, at the end of a generation. The start of a
// character that never came is dropped.
func (a *textAssembler) flush() string {
	text := validText(a.held[:len(a.held)-incompleteTail(a.held)])
	a.held, a.done = nil, true
	return text
}

// firstStop is the earliest stop string and where it begins, or -1.
func (a *textAssembler) firstStop() (first int, stop []byte) {
	first = -1
	for _, s := range a.stops {
		if at := bytes.Index(a.held, s); at >= 0 && (first < 0 || at < first) {
			first, stop = at, s
		}
	}
	return first, stop
}

// stopPrefix is the length of the longest end of held that a stop string begins
// with.
func (a *textAssembler) stopPrefix() int {
	longest := 0
	for _, s := range a.stops {
		for n := min(len(s)-1, len(a.held)); n > longest; n-- {
			if bytes.HasPrefix(s, a.held[len(a.held)-n:]) {
				longest = n
			}
		}
	}
	return longest
}

// incompleteTail is how many bytes at the end of b are the start of a UTF-8
// character whose rest is missing.
func incompleteTail(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// validText drops bytes that are no UTF-8: a model may draw byte tokens that
// make none, and a client must never see them.
func validText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r != utf8.RuneError || n > 1 {
			out = append(out, b[:n]...)
		}
		b = b[n:]
	}
	return string(out)
}
