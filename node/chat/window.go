package chat

import "strings"

// window is text that grows at the end and is consumed from the start, without
// copying all that is held each time.
type window struct {
	b    strings.Builder
	from int // consumed
}

// rest is what has not been consumed.
func (w *window) rest() string { return w.b.String()[w.from:] }

func (w *window) add(s string) {
	if rest := w.rest(); w.from > len(rest) {
		w.b, w.from = strings.Builder{}, 0
		w.b.WriteString(rest)
	}
	w.b.WriteString(s)
}

func (w *window) drop(n int) { w.from += n }

// keep consumes all but an end of the rest.
func (w *window) keep(end string) { w.from = w.b.Len() - len(end) }
