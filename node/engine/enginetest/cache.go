package enginetest

import (
	"errors"
	"fmt"

	"tandem/node/engine"
)

// row is the KV of one token. Sequences that share it point to the same row.
type row struct {
	token engine.Token
	pos   int
	value uint64 // hash of token, position and of all rows before it
	refs  int
}

// kv is the simulated cache: per sequence its rows by position. Rows of a
// sequence are always the positions 0 ... len-1.
type kv struct {
	cells     int
	used      int // distinct rows
	sequences [][]*row
	added     []int  // scratch of check
	spare     []*row // free rows, so that steps do not allocate
}

func newKV(cells, sequences int) kv {
	return kv{cells: cells, sequences: make([][]*row, sequences), added: make([]int, sequences)}
}

// mix is a 64-bit finaliser: every bit of x changes half of the result.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// fold adds one row's value to the hash of the rows before it.
func fold(state, value uint64) uint64 { return mix(state*31 + value) }

// rowValue is what a row of token at pos holds after rows that fold to state.
func rowValue(t engine.Token, pos int, state uint64) uint64 {
	return mix(uint64(uint32(t))<<32 ^ uint64(pos) ^ mix(state))
}

// state folds every row that the sequence holds.
func (c *kv) state(seq engine.SeqID) uint64 {
	var s uint64
	for _, r := range c.sequences[seq] {
		s = fold(s, r.value)
	}
	return s
}

// check finds what a real cache would refuse or, worse, accept.
func (c *kv) check(b *engine.Batch) error {
	for i := range c.added {
		c.added[i] = 0
	}
	for i, seq := range b.Seq {
		if seq < 0 || int(seq) >= len(c.sequences) {
			return fmt.Errorf("sequence %d of %d", seq, len(c.sequences))
		}
		if next := len(c.sequences[seq]) + c.added[seq]; int(b.Pos[i]) != next {
			return fmt.Errorf("sequence %d goes on at position %d, not %d", seq, next, b.Pos[i])
		}
		c.added[seq]++
	}
	return nil
}

// add appends the rows of a checked batch and calls each with the hash after each
// row, which stands for the logits there.
func (c *kv) add(b *engine.Batch, each func(state uint64)) {
	var seq engine.SeqID = -1
	var state uint64
	for i, t := range b.Tokens {
		if b.Seq[i] != seq {
			seq = b.Seq[i]
			state = c.state(seq)
		}
		r := c.newRow()
		*r = row{token: t, pos: int(b.Pos[i]), value: rowValue(t, int(b.Pos[i]), state), refs: 1}
		c.sequences[seq] = append(c.sequences[seq], r)
		state = fold(state, r.value)
		each(state)
	}
}

// newRow takes a cell.
func (c *kv) newRow() *row {
	c.used++
	if n := len(c.spare); n > 0 {
		r := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return r
	}
	return new(row)
}

// scramble spoils the rows of every sequence of a batch, as a failed Decode may.
func (c *kv) scramble(b *engine.Batch) {
	for _, seq := range b.Seq {
		if rows := c.sequences[seq]; len(rows) > 0 {
			last := rows[len(rows)-1]
			c.truncate(seq, len(rows)-1)
			r := c.newRow()
			*r = row{token: last.token, pos: last.pos, value: mix(last.value + 1), refs: 1}
			c.sequences[seq] = append(c.sequences[seq], r)
		}
	}
}

// truncate leaves the first n rows of seq.
func (c *kv) truncate(seq engine.SeqID, n int) {
	rows := c.sequences[seq]
	for _, r := range rows[min(n, len(rows)):] {
		if r.refs--; r.refs == 0 {
			c.used--
			c.spare = append(c.spare, r)
		}
	}
	c.sequences[seq] = rows[:min(n, len(rows))]
}

// copy lets dst share rows of src. Only what continues dst can be copied.
func (c *kv) copy(src, dst engine.SeqID, from, to int) error {
	rows := c.sequences[src]
	if to < 0 {
		to = len(rows)
	}
	if src == dst || from != len(c.sequences[dst]) || from > to || to > len(rows) {
		return errors.New("copy that leaves a hole, overlaps or goes beyond the end")
	}
	for _, r := range rows[from:to] {
		r.refs++
		c.sequences[dst] = append(c.sequences[dst], r)
	}
	return nil
}
