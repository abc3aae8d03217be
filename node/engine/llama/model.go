package llama

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"tandem/node/engine"
)

// model is the engine.Backend. Its C side is used by the owner's thread only,
// except for the vocabulary, which is read-only and guarded by vocab.mu against
// Close.
type model struct {
	c     *C.td_model
	info  engine.Info
	vocab *vocab

	// The C arrays that the next Decode reads, each of info.Batch entries.
	token, pos, seq []int32
	logits          []int8
	decoded         int // entries of the last Decode; 0 after a failed one

	grammars grammars
	pace     *pace // nil: threads wait for a GPU, so nothing can be told

	done *bell // rung by the C thread that computes

	// Results of the owner's C calls.
	err    C.td_error
	timing C.td_timing
}

func newModel(c *C.td_model, info *C.td_info, o Options, done *bell) (*model, error) {
	v, err := newVocab(c)
	if err != nil {
		return nil, err
	}
	m := &model{c: c, vocab: v, done: done}
	m.info = engine.Info{
		Architecture:  C.GoString(&info.architecture[0]),
		Description:   C.GoString(&info.description[0]),
		Parameters:    int64(info.parameters),
		SizeBytes:     int64(info.size_bytes),
		ContextTrain:  int(info.context_train),
		Context:       int(info.context),
		Batch:         int(info.batch),
		MicroBatch:    int(info.micro_batch),
		Sequences:     int(info.sequences),
		Layers:        int(info.layers),
		Embedding:     int(info.embedding),
		Pooled:        bool(info.embeds),
		CanCut:        bool(info.has_memory) && !bool(info.recurrent),
		Recurrent:     bool(info.recurrent),
		SlidingWindow: int(info.sliding_window),
		KVType:        o.KVType,
		Threads:       o.Threads,
		Devices:       Devices(),
	}
	m.info.Context = sequenceContext(info, o)
	m.info.KV = kvShape(c)
	if m.info.Pooled {
		// A text to embed may fill a batch, in however many pieces.
		m.info.MicroBatch = m.info.Batch
	}
	if info.chat_template != nil {
		m.info.ChatTemplate = C.GoString(info.chat_template)
	}
	if !slices.ContainsFunc(m.info.Devices, func(d engine.Device) bool { return d.Kind != "cpu" }) {
		m.pace = newPace(o.Threads)
	}
	b, n := C.td_get_batch(c), int(info.batch)
	m.token = unsafe.Slice((*int32)(b.token), n)
	m.pos = unsafe.Slice((*int32)(b.pos), n)
	m.seq = unsafe.Slice((*int32)(b.seq), n)
	m.logits = unsafe.Slice((*int8)(b.logits), n)
	return m, nil
}

// sequenceContext is how long one sequence may be. What llama.cpp reports is
// rounded up.
func sequenceContext(info *C.td_info, o Options) int {
	n := int(info.context)
	if o.Context > 0 {
		n = min(n, o.Context)
	}
	if info.context_train > 0 && (o.Context == 0 || bool(info.fixed_positions)) {
		n = min(n, int(info.context_train))
	}
	if info.whole_batch {
		n = min(n, int(info.batch))
	}
	return n
}

func (m *model) Vocab() engine.Vocab { return m.vocab }

func (m *model) Info() engine.Info { return m.info }

func (m *model) Decode(b *engine.Batch) error {
	n := b.Len()
	if n == 0 || n > len(m.token) {
		return fmt.Errorf("llama: a batch has 1 to %d tokens, this one %d", len(m.token), n)
	}
	for i, s := range b.Seq {
		if s < 0 || int(s) >= m.info.Sequences {
			return fmt.Errorf("llama: sequence id %d is not in 0 to %d", s, m.info.Sequences-1)
		}
		if b.Pos[i] < 0 || int(b.Pos[i]) >= m.info.Context {
			return fmt.Errorf("llama: position %d is not in 0 to %d", b.Pos[i], m.info.Context-1)
		}
	}
	copy(m.token, b.Tokens)
	copy(m.pos, b.Pos)
	copy(m.seq, b.Seq)
	for i, l := range b.Logits {
		m.logits[i] = 0
		if l {
			m.logits[i] = 1
		}
	}
	m.decoded = 0
	C.td_decode(m.c, C.int32_t(n))
	m.done.wait()
	switch C.td_decoded(m.c, &m.timing, &m.err) {
	case C.TD_OK:
		m.decoded = n
		m.keepPace()
		return nil
	case C.TD_NO_ROOM:
		return errors.New("llama: decode: no room in the KV cache")
	}
	return errors.New("llama: decode: " + cause(errorText(&m.err)))
}

// keepPace adapts the compute threads to what the last Decode met.
func (m *model) keepPace() {
	if m.pace != nil && m.pace.observe(time.Duration(m.timing.wall_ns), time.Duration(m.timing.cpu_ns)) {
		C.td_set_threads(m.c, C.int32_t(m.pace.now))
	}
}

func (m *model) Embedding(seq engine.SeqID) ([]float32, error) {
	if !m.info.Pooled {
		return nil, errors.New("llama: the model was not loaded for embeddings")
	}
	last := -1
	for i := range m.decoded {
		if m.seq[i] == seq && m.logits[i] != 0 {
			last = i
		}
	}
	if last < 0 {
		return nil, fmt.Errorf("llama: sequence %d had no output in the last batch", seq)
	}
	p := C.td_embedding(m.c, C.int32_t(seq), C.int32_t(last))
	if p == nil {
		return nil, fmt.Errorf("llama: no embedding of sequence %d", seq)
	}
	return unsafe.Slice((*float32)(p), m.info.Embedding), nil
}

func (m *model) Remove(seq engine.SeqID, from int) bool {
	m.mustBeSeq(seq)
	return bool(C.td_seq_remove(m.c, C.int32_t(seq), C.int32_t(max(0, min(from, math.MaxInt32)))))
}

// mustBeSeq stops a caller's bug before llama.cpp aborts the process for it.
func (m *model) mustBeSeq(seq engine.SeqID) {
	if seq < 0 || int(seq) >= m.info.Sequences {
		panic(fmt.Sprintf("llama: sequence id %d is not in 0 to %d", seq, m.info.Sequences-1))
	}
}

func (m *model) Close() {
	m.vocab.close()
	if m.c != nil {
		C.td_free(m.c)
		m.done.close()
		m.c = nil
	}
}
