package enginetest

import (
	"encoding/binary"
	"errors"
	"fmt"

	"tandem/kvstore/block"
	"tandem/node/engine"
)

// row is the KV of one token.
type row struct {
	token engine.Token
	pos   int
	value uint64 // hash of token, position and of all rows before it
}

// kv is the simulated cache: per sequence its rows by position. Rows of a
// sequence are always the positions 0 ... len-1.
type kv struct {
	context   int
	sequences [][]row
	added     []int // scratch of check
}

func newKV(context, sequences int) kv {
	return kv{context: context, sequences: make([][]row, sequences), added: make([]int, sequences)}
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
		if next := len(c.sequences[seq]) + c.added[seq]; int(b.Pos[i]) != next || next >= c.context {
			return fmt.Errorf("sequence %d goes on at position %d, not %d", seq, next, b.Pos[i])
		}
		if i > 0 && seq < b.Seq[i-1] {
			return fmt.Errorf("sequence %d stands behind %d", seq, b.Seq[i-1])
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
		r := row{token: t, pos: int(b.Pos[i]), value: rowValue(t, int(b.Pos[i]), state)}
		c.sequences[seq] = append(c.sequences[seq], r)
		state = fold(state, r.value)
		each(state)
	}
}

// scramble spoils the rows of every sequence of a batch, as a failed Decode may.
func (c *kv) scramble(b *engine.Batch) {
	for _, seq := range b.Seq {
		if rows := c.sequences[seq]; len(rows) > 0 {
			rows[len(rows)-1].value = mix(rows[len(rows)-1].value + 1)
		}
	}
}

// truncate leaves the first n rows of seq.
func (c *kv) truncate(seq engine.SeqID, n int) {
	rows := c.sequences[seq]
	c.sequences[seq] = rows[:min(n, len(rows))]
}

var errRows = errors.New("rows that are not there, or too many")

// copy makes dst hold the first n rows of src.
func (c *kv) copy(src, dst engine.SeqID, n int) error {
	if src == dst || n < 1 || n > len(c.sequences[src]) {
		return errRows
	}
	c.sequences[dst] = append(c.sequences[dst][:0], c.sequences[src][:n]...)
	return nil
}

// Exported rows carry one byte of a row in each f16 value, so that none is
// infinite: token and position in K, the value in V.
const rowValues = 8

var rowShape = block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: rowValues}, V: block.Row{Type: block.F16, Values: rowValues}}}}

func putRow(dst []byte, v uint64) {
	for i := range rowValues {
		binary.LittleEndian.PutUint16(dst[2*i:], 0x3c00|uint16(byte(v>>(8*i))))
	}
}

func getRow(src []byte) (v uint64) {
	for i := range rowValues {
		v |= uint64(byte(binary.LittleEndian.Uint16(src[2*i:]))) << (8 * i)
	}
	return v
}

// export writes rows [from, to) in the layout of a block.
func (c *kv) export(seq engine.SeqID, from, to int, dst []byte) error {
	if from < 0 || from >= to || to > len(c.sequences[seq]) || len(dst) != (to-from)*rowShape.Bytes() {
		return errRows
	}
	v := dst[len(dst)/2:]
	for i, r := range c.sequences[seq][from:to] {
		putRow(dst[2*rowValues*i:], uint64(uint32(r.token))<<32|uint64(r.pos))
		putRow(v[2*rowValues*i:], r.value)
	}
	return nil
}

// restore makes seq hold the rows of blocks.
func (c *kv) restore(seq engine.SeqID, from int, blocks []engine.Rows) error {
	rows := c.sequences[seq]
	if from != 0 && from != len(rows) {
		c.sequences[seq] = rows[:0]
		return errRows
	}
	rows = rows[:from]
	for _, b := range blocks {
		if b.Tokens < 1 || len(b.Data) != b.Tokens*rowShape.Bytes() || len(rows)+b.Tokens > c.context {
			c.sequences[seq] = rows[:0]
			return errRows
		}
		v := b.Data[len(b.Data)/2:]
		for i := range b.Tokens {
			k := getRow(b.Data[2*rowValues*i:])
			rows = append(rows, row{token: engine.Token(k >> 32), pos: int(uint32(k)), value: getRow(v[2*rowValues*i:])})
		}
	}
	c.sequences[seq] = rows
	return nil
}
