package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// BareWork is what Bare measures.
type BareWork struct {
	Prompt    int // tokens of each sequence, at least 1
	Generate  int // greedy tokens of each sequence
	Sequences int // decoded together
}

// BareResult is in tokens per second, over all sequences.
type BareResult struct{ Prefill, Decode float64 }

// Bare loads a model and measures how fast a plain C program would be: one call
// of C prefills all sequences and decodes them together, with the threads, batch
// sizes, cache and flash attention of Load(o). It is the yardstick for what an
// engine around Load costs.
func Bare(ctx context.Context, o Options, w BareWork) (BareResult, error) {
	m, err := load(ctx, o)
	if err != nil {
		return BareResult{}, err
	}
	defer m.Close()
	return m.bare(ctx, w)
}

func (m *model) bare(ctx context.Context, w BareWork) (BareResult, error) {
	if m.info.Pooled {
		return BareResult{}, errors.New("llama: the model only makes embeddings")
	}
	if w.Prompt < 1 || w.Generate < 0 || w.Sequences < 1 || w.Sequences > min(m.info.Sequences, m.info.Batch) ||
		w.Prompt+w.Generate > m.info.Context {
		return BareResult{}, fmt.Errorf("llama: %d sequences of %d+%d tokens do not fit into %d sequences of %d tokens",
			w.Sequences, w.Prompt, w.Generate, m.info.Sequences, m.info.Context)
	}
	flag := (*int32)(C.calloc(1, C.sizeof_int32_t))
	defer C.free(unsafe.Pointer(flag))
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		atomic.StoreInt32(flag, 1)
		close(stopped)
	})
	var out C.td_bare_result
	m.decoded = 0
	rc := C.td_bare(m.c, C.int32_t(w.Prompt), C.int32_t(w.Generate), C.int32_t(w.Sequences), (*C.int32_t)(unsafe.Pointer(flag)), &out, &m.err)
	if !stop() {
		<-stopped // flag is still C's until then
		return BareResult{}, context.Cause(ctx)
	}
	if rc != C.TD_OK {
		return BareResult{}, errors.New("llama: benchmark: " + errorText(&m.err))
	}
	return BareResult{
		Prefill: float64(w.Prompt*w.Sequences) / float64(out.prefill_seconds),
		Decode:  float64(w.Generate*w.Sequences) / float64(out.decode_seconds),
	}, nil
}
