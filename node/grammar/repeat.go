package grammar

import (
	"fmt"
	"strings"
)

// A counted repetition of any size becomes few short rules. llama.cpp makes one
// rule for each optional repetition and none of more than MaxRepetition; so a long
// one is cut into blocks, and blocks into larger blocks.
//
// The cut keeps parsing cheap. A text of unknown length is read as full blocks
// followed by a part of one, so that at each moment at most two ways are open for
// each level of blocks: this block will be full, or it is the last.

// repetition says what is repeated and how it is cut.
type repetition struct {
	item   string        // one symbol
	per    int64         // items in a block
	block  func() string // makes the rule for a block; nil: per times item
	native int64         // longest repetition that is not cut
}

// counted is lo to hi items; hi may be unbounded, when items follow for ever. It
// is a sequence, "" if it matches nothing but the empty text.
func (b *Builder) counted(r repetition, lo, hi int64) string {
	if hi == unbounded {
		return join(b.exactly(r, lo), r.item+"*")
	}
	return join(b.exactly(r, lo), b.atMost(r, hi-lo))
}

func (b *Builder) exactly(r repetition, n int64) string {
	if n <= r.native {
		return times(r.item, n, n)
	}
	// The odd ones come first, as in atMost.
	return join(times(r.item, n%r.per, n%r.per), b.exactly(b.blocks(r), n/r.per))
}

func (b *Builder) atMost(r repetition, n int64) string {
	if n <= r.native {
		return times(r.item, 0, n)
	}
	// n+1 = full*per + odd. Up to odd-1 items, or exactly odd items and after them
	// up to full*per-1: at most full-1 blocks and part of one.
	full, odd := (n+1)/r.per, (n+1)%r.per
	long := join(times(r.item, odd, odd), b.atMost(b.blocks(r), full-1), times(r.item, 0, r.per-1))
	if odd == 0 {
		return long
	}
	short := times(r.item, 0, odd-1)
	if short == "" {
		return "(" + long + ")?"
	}
	return b.define("upto", short+" | "+long)
}

// blocks is the repetition of blocks of r.
func (b *Builder) blocks(r repetition) repetition {
	next := repetition{per: blockRepeat, native: nativeRepeat}
	if r.block != nil {
		next.item = r.block()
	} else {
		next.item = b.define("block", times(r.item, r.per, r.per))
	}
	return next
}

// times is item{lo,hi}, "" if that is nothing.
func times(item string, lo, hi int64) string {
	switch {
	case hi == 0:
		return ""
	case lo == 1 && hi == 1:
		return item
	case lo == 0 && hi == 1:
		return item + "?"
	case lo == hi:
		return fmt.Sprintf("%s{%d}", item, lo)
	}
	return fmt.Sprintf("%s{%d,%d}", item, lo, hi)
}

// join puts the parts of a sequence together; empty ones vanish.
func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, " ")
}
