package llama

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"tandem/kvstore/block"
	"tandem/node/engine"
)

// rowTypes are the formats of KV rows that blocks know; TestABI holds the numbers.
var rowTypes = map[C.int32_t]block.Type{1: block.F16, 2: block.Q4_0, 8: block.Q8_0}

// kvShape describes the KV rows of one token. It has no layers if the rows of the
// model cannot be moved.
func kvShape(c *C.td_model) block.Shape {
	var p *C.td_kv_row
	n := int(C.td_kv_layout(c, &p))
	var shape block.Shape
	for i := 0; i+1 < n; i += 2 {
		rows := unsafe.Slice(p, n)
		k, okK := kvRow(rows[i])
		v, okV := kvRow(rows[i+1])
		if !okK || !okV {
			return block.Shape{}
		}
		shape.Layers = append(shape.Layers, block.Layer{K: k, V: v})
	}
	if shape.Validate() != nil {
		return block.Shape{}
	}
	return shape
}

// kvRow translates ggml's bytes of a row to values.
func kvRow(r C.td_kv_row) (block.Row, bool) {
	t, ok := rowTypes[r._type]
	row := block.Row{Type: t, Values: 32}
	if !ok || int(r.bytes)*32%row.Bytes() != 0 {
		return block.Row{}, false
	}
	row.Values = int(r.bytes) * 32 / row.Bytes()
	return row, true
}

var errNoRows = errors.New("llama: the KV rows of this model cannot be moved")

func (m *model) Export(seq engine.SeqID, from, to int, dst []byte) error {
	m.mustBeSeq(seq)
	switch size := m.info.KV.Bytes(); {
	case size == 0:
		return errNoRows
	case from < 0 || from >= to || to > m.info.Context || len(dst) != (to-from)*size:
		return fmt.Errorf("llama: export of positions %d to %d into %d bytes, want %d", from, to, len(dst), (to-from)*size)
	}
	rc := C.td_kv_export(m.c, C.int32_t(seq), C.int32_t(from), C.int32_t(to), (*C.uint8_t)(unsafe.SliceData(dst)), &m.err)
	if rc != C.TD_OK {
		return errors.New("llama: export: " + errorText(&m.err))
	}
	return nil
}

func (m *model) Import(seq engine.SeqID, from int, blocks []engine.Rows) error {
	m.mustBeSeq(seq)
	size, total := m.info.KV.Bytes(), from
	if size == 0 {
		return errNoRows
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	list := make([]C.td_kv_block, len(blocks))
	for i, b := range blocks {
		if b.Tokens < 1 || b.Tokens > m.info.Context || len(b.Data) != b.Tokens*size {
			return fmt.Errorf("llama: import of %d bytes for %d tokens, want %d", len(b.Data), b.Tokens, b.Tokens*size)
		}
		total += b.Tokens
		pins.Pin(unsafe.SliceData(b.Data))
		list[i] = C.td_kv_block{rows: (*C.uint8_t)(unsafe.SliceData(b.Data)), tokens: C.int32_t(b.Tokens)}
	}
	if from < 0 || total <= from || total > m.info.Context {
		return fmt.Errorf("llama: import of positions %d to %d, allowed are 0 to %d", from, total, m.info.Context)
	}
	rc := C.td_kv_import(m.c, C.int32_t(seq), C.int32_t(from), unsafe.SliceData(list), C.size_t(len(list)), &m.err)
	if rc != C.TD_OK {
		return errors.New("llama: import: " + cause(errorText(&m.err)))
	}
	return nil
}

func (m *model) Copy(src, dst engine.SeqID, n int) error {
	m.mustBeSeq(src)
	m.mustBeSeq(dst)
	if len(m.info.KV.Layers) == 0 {
		return errNoRows
	}
	if src == dst || n < 1 || n > m.info.Context {
		return fmt.Errorf("llama: copy of %d tokens from sequence %d to %d", n, src, dst)
	}
	if C.td_kv_copy(m.c, C.int32_t(src), C.int32_t(dst), C.int32_t(n), &m.err) != C.TD_OK {
		return errors.New("llama: copy: " + cause(errorText(&m.err)))
	}
	return nil
}
