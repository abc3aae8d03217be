package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tandem/node/engine"
)

// Options describes a fake model. The zero value is a chat model with 4 full
// contexts of 4,096 tokens that computes in no time.
type Options struct {
	Context    int // tokens of one sequence; 0: 4096
	Batch      int // 0: 512
	MicroBatch int // 0: Batch
	Sequences  int // 0: 16

	// Script answers a prompt, given as text with its control tokens. If it is nil
	// or returns false the model babbles.
	Script func(prompt string) (answer string, ok bool)
	// EndOdds makes babbling end after EndOdds tokens on average; 0: never.
	EndOdds int
	// Grammar refuses grammars; its error becomes a *engine.GrammarError. Nil
	// accepts all.
	Grammar func(gbnf string) error

	// StepTime and TokenTime are slept in every Decode: once, and per token.
	StepTime, TokenTime time.Duration
	// FailDecode is asked before step n = 1, 2, ... with its batch; what it returns
	// is returned. The KV of the batch's sequences is spoilt then.
	FailDecode func(n int, b *engine.Batch) error
	// FailSample is asked before the draw for position pos of a sequence whose
	// prompt is given.
	FailSample func(prompt []engine.Token, pos int) error

	// FailImport is asked before import n = 1, 2, ...
	FailImport func(n int) error

	Recurrent bool // Remove only works on whole sequences, rows cannot be moved
	Pooled    bool // an embedding model; vectors have 8 numbers

	ChatTemplate string // "": ChatML
}

// chatML is the template that a fake model has by default.
const chatML = `{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// embeddingWidth is the length of a fake vector.
const embeddingWidth = 8

// maxFaults bounds the list of faults: the first ones tell what went wrong.
const maxFaults = 20

// Backend is a fake model. Make one with New.
type Backend struct {
	options  Options
	info     engine.Info
	pieces   [vocabSize][]byte
	samplers atomic.Int64
	busy     atomic.Bool // a call that only the owner may make is in progress

	mu struct {
		sync.Mutex
		kv             kv
		states         []uint64 // hash after each entry of the last batch
		logits         []bool   // of the last batch
		steps, imports int
		closed         bool
		faults         []error
	}
}

// New makes a fake model.
func New(o Options) *Backend {
	setDefault(&o.Context, 4096)
	setDefault(&o.Batch, 512)
	setDefault(&o.MicroBatch, o.Batch)
	setDefault(&o.Sequences, 16)
	if o.ChatTemplate == "" {
		o.ChatTemplate = chatML
	}
	b := &Backend{options: o}
	b.info = engine.Info{
		Architecture: "fake", Description: "fake 1K F16", Parameters: 1000, SizeBytes: 2000,
		ContextTrain: o.Context, Context: o.Context, Batch: o.Batch, MicroBatch: o.MicroBatch, Sequences: o.Sequences,
		Layers: 1, Embedding: embeddingWidth, Pooled: o.Pooled, CanCut: !o.Recurrent, Recurrent: o.Recurrent,
		KVType: "f16", Threads: 1, ChatTemplate: o.ChatTemplate,
	}
	if !o.Recurrent && !o.Pooled {
		b.info.KV = rowShape
	}
	for t := range vocabSize {
		b.pieces[t] = Vocab{}.Piece(t, false)
	}
	b.mu.kv = newKV(o.Context, o.Sequences)
	return b
}

func setDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// Vocab is the byte-level vocabulary.
func (b *Backend) Vocab() engine.Vocab { return Vocab{} }

// Info describes the fake.
func (b *Backend) Info() engine.Info { return b.info }

// own locks the state for a call that only the owner may make; release ends it.
func (b *Backend) own(call string) {
	alone := b.busy.CompareAndSwap(false, true)
	b.mu.Lock()
	if !alone {
		b.faultLocked("%s while another call ran", call)
	}
	if b.mu.closed {
		b.faultLocked("%s after Close", call)
	}
}

func (b *Backend) release() {
	b.mu.Unlock()
	b.busy.Store(false)
}

// faultLocked records a misuse and returns it as an error.
func (b *Backend) faultLocked(format string, args ...any) error {
	err := fmt.Errorf("enginetest: "+format, args...)
	if len(b.mu.faults) < maxFaults {
		b.mu.faults = append(b.mu.faults, err)
	}
	return err
}

// Decode adds the batch's rows. Positions that do not continue their sequence are
// a fault and an error.
func (b *Backend) Decode(batch *engine.Batch) error {
	b.own("Decode")
	defer b.release()
	b.mu.steps++
	if n := batch.Len(); n == 0 || n > b.info.Batch {
		return b.faultLocked("batch of %d tokens, allowed 1 ... %d", n, b.info.Batch)
	}
	if d := b.options.StepTime + time.Duration(batch.Len())*b.options.TokenTime; d > 0 {
		b.mu.Unlock() // inspecting a step in progress must not block
		time.Sleep(d)
		b.mu.Lock()
	}
	if err := b.failure(batch); err != nil {
		return err
	}
	if err := b.mu.kv.check(batch); err != nil {
		return b.faultLocked("Decode: %w", err)
	}
	b.mu.states = b.mu.states[:0]
	b.mu.logits = append(b.mu.logits[:0], batch.Logits...)
	b.mu.kv.add(batch, func(state uint64) { b.mu.states = append(b.mu.states, state) })
	return nil
}

// failure asks the test whether this step fails.
func (b *Backend) failure(batch *engine.Batch) error {
	if b.options.FailDecode == nil {
		return nil
	}
	err := b.options.FailDecode(b.mu.steps, batch)
	if err != nil {
		b.mu.kv.scramble(batch)
	}
	return err
}

// Embedding hashes the rows of seq into a vector.
func (b *Backend) Embedding(seq engine.SeqID) ([]float32, error) {
	b.own("Embedding")
	defer b.release()
	if !b.info.Pooled {
		return nil, b.faultLocked("Embedding of a model that is not pooled")
	}
	state := b.mu.kv.state(seq)
	v := make([]float32, embeddingWidth)
	for i := range v {
		state = mix(state + 1)
		v[i] = float32(int64(state)>>40) / (1 << 20)
	}
	return v, nil
}

// Remove drops positions; a recurrent model only drops whole sequences.
func (b *Backend) Remove(seq engine.SeqID, from int) bool {
	b.own("Remove")
	defer b.release()
	if b.info.Recurrent && from > 0 && from < len(b.mu.kv.sequences[seq]) {
		return false
	}
	b.mu.kv.truncate(seq, from)
	return true
}

// Copy copies rows. What a real cache could not do is a fault.
func (b *Backend) Copy(src, dst engine.SeqID, n int) error {
	b.own("Copy")
	defer b.release()
	if len(b.info.KV.Layers) == 0 {
		return b.faultLocked("Copy of rows that cannot be moved")
	}
	if err := b.mu.kv.copy(src, dst, n); err != nil {
		return b.faultLocked("Copy(%d, %d, %d): %w", src, dst, n, err)
	}
	return nil
}

// Export writes rows.
func (b *Backend) Export(seq engine.SeqID, from, to int, dst []byte) error {
	b.own("Export")
	defer b.release()
	if err := b.mu.kv.export(seq, from, to, dst); err != nil || len(b.info.KV.Layers) == 0 {
		return b.faultLocked("Export(%d, %d, %d, %d bytes): %w", seq, from, to, len(dst), errRows)
	}
	return nil
}

// Import adds to the rows of a sequence, or replaces them.
func (b *Backend) Import(seq engine.SeqID, from int, blocks []engine.Rows) error {
	b.own("Import")
	defer b.release()
	b.mu.imports++
	if b.options.FailImport != nil {
		if err := b.options.FailImport(b.mu.imports); err != nil {
			b.mu.kv.truncate(seq, 0)
			return err
		}
	}
	if err := b.mu.kv.restore(seq, from, blocks); err != nil || len(b.info.KV.Layers) == 0 {
		return b.faultLocked("Import(%d, %d, %d blocks): %w", seq, from, len(blocks), errRows)
	}
	return nil
}

// Close ends the model. Samplers that are still open are a fault.
func (b *Backend) Close() {
	b.own("Close")
	defer b.release()
	if n := b.samplers.Load(); n != 0 {
		b.faultLocked("%d samplers open at Close", n)
	}
	b.mu.closed = true
}

// Held returns the tokens whose rows a sequence holds.
func (b *Backend) Held(seq engine.SeqID) []engine.Token {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := b.mu.kv.sequences[seq]
	tokens := make([]engine.Token, len(rows))
	for i, r := range rows {
		tokens[i] = r.token
	}
	return tokens
}

// Steps counts the calls of Decode.
func (b *Backend) Steps() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.steps
}

// Samplers is the number of samplers that are open.
func (b *Backend) Samplers() int { return int(b.samplers.Load()) }

// Closed tells whether Close was called.
func (b *Backend) Closed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.closed
}

// Faults joins what the engine did wrong, or returns nil.
func (b *Backend) Faults() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(slices.Clone(b.mu.faults)...)
}
