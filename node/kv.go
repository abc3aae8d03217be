package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"tandem/kvstore"
	"tandem/kvstore/block"
	"tandem/node/engine"
	"tandem/node/models/gguf"
)

// keeper keeps the KV blocks of all models of this node.
type keeper struct {
	store  *kvstore.Store
	key    block.Key
	models kvModels
	check  *kvChecker
	words  *kvWords // nil: they are not remembered, since tenants are to be kept apart

	mu struct {
		sync.Mutex
		shapes map[block.Fingerprint]block.Shape // of models that were loaded since the start
	}
}

// openKeeper opens the store in the data folder. Nil: --kv-ram is 0.
func (n *Node) openKeeper() (*keeper, error) {
	if n.cfg.KVRAM == 0 {
		return nil, nil
	}
	k := &keeper{key: n.identity.BlockKey()}
	k.mu.shapes = map[block.Fingerprint]block.Shape{}
	k.check = newKVChecker(n.cfg.KVCheck)
	if len(n.keys) == 0 {
		k.words = newKVWords()
	}
	var err error
	k.store, err = kvstore.Open(kvstore.Options{Dir: filepath.Join(n.cfg.DataDir, "kv"), RAMBytes: n.cfg.KVRAM, DiskBytes: n.cfg.KVDisk, Busy: n.busy,
		Admission: n.cfg.KVTouches, Shapes: k.shape, Key: k.key, Log: n.log, Events: n.kvEvent})
	if err != nil {
		return nil, fmt.Errorf("--kv-ram, --kv-disk: %w", err)
	}
	return k, nil
}

// busy tells that somebody waits for this node: for an answer, or its start.
func (n *Node) busy() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.running.Load() > 0 || n.mu.notReady != nil
}

// close writes what is only in memory and closes the store.
func (k *keeper) close() error {
	if k == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTime)
	defer cancel()
	return k.store.Close(ctx)
}

// shape is what blocks of a fingerprint look like.
func (k *keeper) shape(f block.Fingerprint) (block.Shape, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, ok := k.mu.shapes[f]
	return s, ok
}

// keptModel is how the blocks of one loaded model are named. A model whose rows
// cannot be kept has a reason instead.
type keptModel struct {
	keeper      *keeper
	fingerprint block.Fingerprint
	shape       block.Shape
	size        int // tokens of a block
	reason      string
	name        string       // of the model; set by learn
	vocab       engine.Vocab // set by learn
}

// engineFormat is the part of a fingerprint that says how this build computes: the
// commit of llama.cpp that go.mod pins, and the version of our way to read rows.
const engineFormat = "llama.cpp ec98e2002, rows 1"

// blockBytesMax bounds one block: above it, blocks have fewer tokens than --block.
const blockBytesMax = 64 << 20

// keep finds out how the blocks of a model are named. digest is the SHA-256 of its
// file, in hexadecimal: everything in the file that shapes KV is thereby said, and
// no setting of this node changes the values that it gives.
func (k *keeper) keep(info engine.Info, file gguf.Summary, metadata map[string]any, digest string, blockTokens int) *keptModel {
	m := &keptModel{keeper: k, shape: info.KV, size: blockTokens}
	raw, err := hex.DecodeString(digest)
	switch {
	case k == nil:
		m.reason = "--kv-ram is 0"
	case info.Pooled:
		m.reason = "models for embeddings keep nothing"
	case info.Recurrent:
		m.reason = "its state after a prefix cannot be taken apart by tokens (recurrent layers)"
	case len(info.KV.Layers) == 0:
		m.reason = "its KV rows cannot be read one by one"
	case err != nil || len(raw) != len(block.Traits{}.Model):
		m.reason = "the digest of its file is not known"
	}
	if m.reason != "" {
		return m
	}
	for m.size > 1 && m.size*info.KV.Bytes() > blockBytesMax {
		m.size /= 2
	}
	traits := block.Traits{Model: [32]byte(raw), Architecture: info.Architecture, Engine: engineFormat, Shape: info.KV, HeadK: file.KeyLength, HeadV: file.ValueLength,
		BlockTokens: m.size, FlashAttention: true, Causal: true, FullWindow: info.SlidingWindow > 0, LongRope: longRope(info, metadata)}
	if err := traits.Validate(); err != nil {
		m.reason = err.Error()
		return m
	}
	m.fingerprint = traits.Fingerprint()
	k.mu.Lock()
	k.mu.shapes[m.fingerprint] = info.KV
	k.mu.Unlock()
	return m
}

// longRope tells which rope factors a model of that kind uses: the context decides.
func longRope(info engine.Info, metadata map[string]any) block.LongRope {
	if s, _ := metadata[info.Architecture+".rope.scaling.type"].(string); s != "longrope" {
		return block.LongRopeNone
	}
	original := info.ContextTrain
	switch v := metadata[info.Architecture+".rope.scaling.original_context_length"].(type) {
	case uint32:
		original = int(v)
	case uint64:
		original = int(min(v, 1<<30))
	}
	if info.Context > original {
		return block.LongRopeLong
	}
	return block.LongRopeShort
}

// fetchTime is how long a request waits for blocks from disk: what has not come by
// then is computed.
const fetchTime = 3 * time.Second

// open connects one sequence with the blocks of its model; nil if nothing is kept.
// spawn runs the goroutine that fetches from disk.
func (m *keptModel) open(tenant string, prompt []engine.Token, spawn func(func())) *sequenceBlocks {
	if m == nil || m.reason != "" {
		return nil
	}
	b := &sequenceBlocks{model: m, tenant: tenant, prompt: prompt, root: m.keeper.key.Root(m.fingerprint, tenant), spawn: spawn}
	b.ids = m.keeper.key.Chain(b.root, prompt, m.size)
	if tenant == "" {
		m.keeper.words.note(m.vocab, b.ids, prompt, m.size)
	}
	b.run = m.keeper.store.Lookup(b.ids)
	return b
}

// sequenceBlocks is one sequence's use of kept blocks: engine.Blocks. But for
// fetching, everything belongs to the caller of open until Submit, and then to the
// engine's owner goroutine.
type sequenceBlocks struct {
	model    *keptModel
	tenant   string
	prompt   []engine.Token // not to be changed
	root     block.ID
	ids      []block.ID   // of the blocks of prompt and answer so far
	run      *kvstore.Run // what is kept of the prompt; its blocks cannot go until it is closed
	used     bool         // run was closed after its blocks were restored
	way      *kvWay       // how other nodes give what is missing; nil: they do not
	writer   *kvstore.Writer
	spawn    func(func())
	fetching atomic.Int32         // goroutines that fetch
	cancels  []context.CancelFunc // of them

	mu     sync.Mutex
	closed bool // what comes now is dropped
}

// found says how much of the prompt is kept, and how many bytes of that only on
// disk.
func (b *sequenceBlocks) found() (tokens int, toLoad int64) {
	if b == nil {
		return 0, 0
	}
	return b.run.Span(b.run.Len())
}

// told says who computes the prompt, if another node does, and how its KV comes here,
// in words.
func (b *sequenceBlocks) told() (prefill, reason string) {
	if tokens, toLoad := b.found(); tokens > 0 {
		reason = fmt.Sprintf("of %d prompt tokens the KV of %d is kept", len(b.prompt), tokens)
		if toLoad > 0 {
			reason += fmt.Sprintf(", %s of it on disk", humanize.IBytes(uint64(toLoad)))
		}
	}
	if b.way == nil {
		return "", reason
	}
	if b.way.fetch.Made {
		prefill = b.way.node.peers.name(b.way.fetch.From)
	}
	if reason != "" {
		reason += "; "
	}
	return prefill, reason + b.way.reason
}

// Start implements engine.Blocks.
func (b *sequenceBlocks) Start(wake func()) {
	var tasks []func(context.Context)
	if _, toLoad := b.found(); toLoad > 0 {
		tasks = append(tasks, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, fetchTime)
			defer cancel()
			_ = b.run.Load(ctx, b.run.Len()) // what came in time is used; the store tells of failures
		})
	}
	if b.way != nil {
		tasks = append(tasks, b.runWay)
	}
	b.fetching.Store(int32(len(tasks)))
	for _, task := range tasks {
		ctx, cancel := context.WithCancel(context.Background()) // ended by Close
		b.cancels = append(b.cancels, cancel)
		b.spawn(func() {
			defer cancel()
			task(ctx)
			b.fetching.Add(-1)
			wake()
		})
	}
}

// runWay gets what other nodes give.
func (b *sequenceBlocks) runWay(ctx context.Context) {
	b.way.run(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.way.sink.Close()
	}
}

// Restorable implements engine.Blocks.
func (b *sequenceBlocks) Restorable() (rows []engine.Rows, tokens, soon int) {
	if b.fetching.Load() > 0 {
		soon, _ = b.found()
		if b.way != nil {
			soon = max(soon, b.way.tokensThen())
		}
		return nil, 0, soon
	}
	if b.used { // the sequence begins once more
		b.run, b.used = b.model.keeper.store.Lookup(b.ids), false
	}
	for _, ref := range b.chain() {
		rows = append(rows, engine.Rows{Tokens: ref.Header.Count, Data: ref.Payload()})
		tokens += ref.Header.Count
	}
	return rows, tokens, 0
}

// chain is what there is of the prompt: kept here, then come from others.
func (b *sequenceBlocks) chain() []*kvstore.Ref {
	chain := b.run.Blocks()
	if b.way == nil {
		return chain
	}
	if from := len(chain) - b.way.fetch.First; from >= 0 && from < len(b.way.sink.refs) {
		chain = append(chain, b.way.sink.refs[from:]...)
	}
	return chain
}

// Restored implements engine.Blocks.
func (b *sequenceBlocks) Restored(tokens int) {
	b.run.Used(0, min(tokens/b.model.size, b.run.Len()))
	b.model.keeper.check.offer(kvSample{model: b.model.name, tenant: b.tenant, prompt: b.prompt})
}

// Size implements engine.Blocks.
func (b *sequenceBlocks) Size() int { return b.model.size }

// Room implements engine.Blocks.
func (b *sequenceBlocks) Room(tokens []engine.Token, from, to int) []byte {
	b.release()
	i := from / b.model.size
	parent := b.root
	if i > 0 {
		parent = b.ids[i-1]
	}
	if i == len(b.ids) {
		b.ids = append(b.ids, b.model.keeper.key.Next(parent, tokens[from:to]))
	}
	w, ok := b.model.keeper.store.Reserve(block.Header{ID: b.ids[i], Parent: parent, Fingerprint: b.model.fingerprint, Start: from, Count: to - from,
		Tokens: tokens[from:to], PayloadBytes: (to - from) * b.model.shape.Bytes()})
	if !ok {
		return nil
	}
	b.writer = w
	return w.Bytes()
}

// Kept implements engine.Blocks.
func (b *sequenceBlocks) Kept(ok bool) {
	if ok {
		b.writer.Commit()
	} else {
		b.writer.Abort()
	}
}

// release lets the blocks go that the sequence began with: they are in the engine
// by now.
func (b *sequenceBlocks) release() {
	if !b.used {
		b.run.Close()
		b.used = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.way != nil && b.fetching.Load() == 0 {
		b.way.sink.Close()
		b.way = nil
	}
}

// Close implements engine.Blocks.
func (b *sequenceBlocks) Close() {
	for _, cancel := range b.cancels {
		cancel()
	}
	b.run.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.way != nil && b.fetching.Load() == 0 {
		b.way.sink.Close()
	}
}

// kvEvent tells of the tiers.
func (n *Node) kvEvent(e kvstore.Event) {
	what := ""
	switch e.(type) {
	case kvstore.BlockDamaged:
		what = "damaged"
	case kvstore.BlocksLost:
		what = "lost"
	case kvstore.DiskFailed:
		what = "disk_failed"
	case kvstore.DiskResumed:
		what = "disk_resumed"
	case kvstore.StoreClosed:
		what = "closed"
	}
	n.events.emit(KVTier{What: what, Detail: e})
}

// kvSample is the state of the tiers, for metrics and status.
func (n *Node) kvSample() kvstore.Stats {
	if n.keeper == nil {
		return kvstore.Stats{}
	}
	return n.keeper.store.Stats()
}

// keeps tells whether blocks of a loaded model are kept, or why they are not.
func (n *Node) keeps(name string) (bool, string) {
	n.mu.Lock()
	m := n.mu.loaded[name]
	n.mu.Unlock()
	if m == nil {
		return false, ""
	}
	kept := m.kept.Load()
	if kept == nil {
		return false, noDigestYet
	}
	return kept.reason == "", kept.reason
}
