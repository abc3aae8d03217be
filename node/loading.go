package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tandem/node/chat"
	"tandem/node/engine"
	"tandem/node/engine/llama"
	"tandem/node/models"
	"tandem/node/models/builtin"
)

// defaultRef is pulled when there is neither --model nor a model on the machine.
const defaultRef = "smollm2:135m"

// MicroBatch is the most tokens that one pass over the layers takes, however large
// --batch is.
const MicroBatch = 512

// backendOptions are what a model file is opened with.
func (c *Config) backendOptions(path string) llama.Options {
	return llama.Options{Path: path, Context: c.Context, Sequences: c.Parallel,
		Batch: c.Batch, MicroBatch: min(c.Batch, MicroBatch), KVType: c.KVType, GPULayers: c.GPULayers, Threads: c.Threads}
}

// prepareDefault makes the models of --model available, or chooses one, and loads
// the first, so that the first request finds it warm.
func (n *Node) prepareDefault(ctx context.Context) {
	defer close(n.defaultTried)
	name, err := n.chooseDefault(ctx)
	n.told.changed()
	if err == nil {
		n.mu.Lock()
		n.mu.defaultModel = name
		n.mu.Unlock()
		n.setReady(fmt.Errorf("model %s is loading", name))
		err = n.warm(ctx, name)
	}
	if ctx.Err() == nil {
		n.setReady(err)
	}
}

// chooseDefault is the choice of the default model: --model, else one that is on
// the machine, else a small one that is pulled, else the one in the program.
func (n *Node) chooseDefault(ctx context.Context) (string, error) {
	for i := len(n.cfg.Models) - 1; i > 0; i-- {
		if _, err := n.provide(ctx, n.cfg.Models[i]); err != nil {
			n.log.Error("model", "ref", n.cfg.Models[i], "error", err)
		}
	}
	if len(n.cfg.Models) > 0 {
		return n.provide(ctx, n.cfg.Models[0])
	}
	if m, ok := n.store.Default(ctx, n.fits); ok {
		n.log.Info("no --model: serving one that is on this machine", "model", m.Name)
		return m.Name, nil
	}
	name, err := n.provide(ctx, defaultRef)
	if err == nil {
		return name, nil
	}
	n.log.Warn("no model on this machine and none could be pulled: the small built-in one answers; `tandem pull` gets others", "tried", defaultRef, "error", err)
	return builtin.Name, nil
}

// provide makes a reference available: a path or a name that is here as it is,
// anything else by pulling it.
func (n *Node) provide(ctx context.Context, ref string) (string, error) {
	if IsPath(ref) {
		m, err := n.store.AddPath(ref)
		return m.Name, err
	}
	if m, err := n.store.Resolve(ref); err == nil || !errors.Is(err, models.ErrNotFound) {
		return m.Name, err
	}
	n.setReady(fmt.Errorf("model %s is being pulled", ref))
	shown := time.Time{}
	m, err := n.pull(ctx, ref, func(p models.Progress) {
		if time.Since(shown) > 5*time.Second {
			shown = time.Now()
			n.log.Info("pulling", "ref", ref, "status", p.Status, "bytes", p.Completed, "of", p.Total)
		}
	})
	return m.Name, err
}

// warm loads a model and lets it go again; it stays resident.
func (n *Node) warm(ctx context.Context, name string) error {
	m, err := n.store.Resolve(name)
	if err != nil {
		return err
	}
	lease, err := n.pool.Acquire(ctx, generating(m))
	if err != nil {
		return err
	}
	lease.Release(nil)
	return nil
}

// embeddingSuffix tells the two engines of one model apart: one generates, one
// makes embeddings. llama.cpp pools embeddings per context, so they need one each.
const embeddingSuffix = " (embeddings)"

// generating is how the pool knows a model that generates; embedding models have
// one engine only.
func generating(m models.Model) engine.Spec {
	return engine.Spec{Name: m.Name, Model: m.Name, Path: m.Path, Embeddings: m.Info.IsEmbedding}
}

// embedding is how the pool knows a model that makes embeddings.
func embedding(m models.Model) engine.Spec {
	if m.Info.IsEmbedding {
		return generating(m)
	}
	return engine.Spec{Name: m.Name + embeddingSuffix, Model: m.Name, Path: m.Path, Embeddings: true}
}

// poolConfig wires the pool to this node.
func (n *Node) poolConfig() engine.PoolConfig {
	return engine.PoolConfig{
		MaxLoaded: n.cfg.MaxModels,
		KeepAlive: n.cfg.KeepAlive,
		Load:      n.load,
		Estimate:  n.estimate,
		Unloaded:  n.unloaded,
	}
}

// load opens a model for the pool.
func (n *Node) load(ctx context.Context, spec engine.Spec) (*engine.Engine, error) {
	start := time.Now()
	memory, err := n.estimate(spec)
	if err != nil {
		return nil, err
	}
	n.events.emit(ModelLoading{Model: spec.Name, MemoryBytes: memory.Total()})
	e, err := n.openEngine(ctx, spec)
	if err != nil {
		err = fmt.Errorf("model %s cannot be loaded: %w", spec.Name, err)
		n.events.emit(ModelFailed{Model: spec.Name, Error: err.Error()})
		return nil, err
	}
	info := e.Info()
	n.events.emit(ModelLoaded{Model: spec.Name, Seconds: time.Since(start).Seconds(), Device: deviceName(info), Context: info.Context, Slots: e.Stats().Slots})
	return e, nil
}

// openEngine opens the file, and starts an engine with the template of its chats.
func (n *Node) openEngine(ctx context.Context, spec engine.Spec) (*engine.Engine, error) {
	backend, err := n.cfg.LoadBackend(ctx, n.engineOptions(spec))
	if err != nil {
		return nil, err
	}
	var metadata map[string]any
	if _, file, err := n.store.Inspect(spec.Model); err == nil {
		metadata = file.Metadata
	}
	info := backend.Info()
	format, err := newAnswerFormat(backend.Vocab(), info.ChatTemplate, metadata)
	if err != nil {
		backend.Close()
		return nil, err
	}
	e := engine.New(backend, engine.Config{Parallel: n.cfg.Parallel, QueueLimit: queueLimit(n.cfg.Queue), Hooks: n.engineHooks(spec.Name)})
	m := &loadedModel{engine: e, reader: reader{vocab: e.Vocab(), format: format, context: e.Info().Context, pooled: info.Pooled}}
	n.mu.Lock()
	n.mu.loaded[spec.Name] = m
	n.mu.Unlock()
	n.goFunc(func() { n.keepModel(spec, m) })
	return e, nil
}

// keepModel lets the blocks of a model be kept. The digest of a large file that was
// never seen takes a while; until then the model answers without.
func (n *Node) keepModel(spec engine.Spec, m *loadedModel) {
	digest, err := n.store.Digest(n.stopping, spec.Model)
	if err != nil && n.stopping.Err() == nil {
		n.log.Warn("the digest of a model file cannot be made", "model", spec.Name, "error", err)
	}
	model, file, err := n.store.Inspect(spec.Model)
	if err != nil {
		return
	}
	kept := n.keeper.keep(m.engine.Info(), model.Info, file.Metadata, digest, n.cfg.Block)
	n.keeper.learn(spec.Name, kept, m.engine.Vocab())
	m.kept.Store(kept)
	n.told.changed() // others may know now which file it is
	n.events.emit(KVReady{Model: spec.Name, BlockTokens: kept.size, BlockBytes: kept.size * kept.shape.Bytes(), Reason: kept.reason})
}

// engineHooks turns what engines tell into events.
func (n *Node) engineHooks(model string) engine.Hooks {
	return engine.Hooks{
		Finished: func(id string, r engine.Result, _ error) {
			if id != compareLabel && id != benchLabel && r.Generated > 0 {
				n.metrics.served(model)
			}
			n.keeper.finished(model, id, r)
		},
		Parked:   func(id string, tokens int) { n.events.emit(RequestParked{ID: id, Model: model, Tokens: tokens}) },
		Retried:  func(id string, err error) { n.events.emit(EngineRetried{ID: id, Model: model, Error: err.Error()}) },
		KVFailed: func(id string, err error) { n.events.emit(KVFailed{ID: id, Model: model, Error: err.Error()}) },
	}
}

// engineOptions are what the file of a spec is opened with. An engine for
// embeddings sees a whole text at once and keeps nothing.
func (n *Node) engineOptions(spec engine.Spec) llama.Options {
	o := n.cfg.backendOptions(spec.Path)
	if spec.Embeddings {
		o.Embeddings = true
		o.Batch, o.MicroBatch = o.Context, o.Context
	}
	return o
}

// unloaded keeps the counters of an engine that is gone.
func (n *Node) unloaded(spec engine.Spec, last engine.Stats) {
	n.mu.Lock()
	sample := n.mu.past[spec.Name].plus(spec.Name, last)
	sample.running, sample.queued, sample.kvUsed, sample.resident = 0, 0, 0, 0
	n.mu.past[spec.Name] = sample
	delete(n.mu.loaded, spec.Name)
	n.mu.Unlock()
	n.events.emit(ModelUnloaded{Model: spec.Name})
}

// unload frees the engines of a model once its running requests have ended.
func (n *Node) unload(ctx context.Context, model string) error { return n.pool.Unload(ctx, model) }

// answerFormat is how conversations become prompts of one model, and its answers
// become messages.
type answerFormat struct {
	plain, tools *chat.Template          // tools is plain unless the file has a template of its own for them
	markers      map[engine.Token][]byte // control tokens that answers show as text
}

// toolTemplateKey is where some files (those of Hermes) keep a second template,
// for conversations with tools.
const toolTemplateKey = "tokenizer.chat_template.tool_use"

// newAnswerFormat parses the templates of a model: the one of its chats, and the one
// in the metadata of its file, if any.
func newAnswerFormat(v engine.Vocab, source string, metadata map[string]any) (*answerFormat, error) {
	text := func(t engine.Token) string {
		if t < 0 {
			return ""
		}
		return string(v.Piece(t, true))
	}
	options := chat.Options{BOS: text(v.BOS()), EOS: text(v.EOS()), ControlTexts: v.ControlTexts()}
	plain, err := chat.Parse(source, options)
	if err != nil {
		return nil, err
	}
	f := &answerFormat{plain: plain, tools: plain, markers: map[engine.Token][]byte{}}
	if source, ok := metadata[toolTemplateKey].(string); ok {
		if f.tools, err = chat.Parse(source, options); err != nil {
			return nil, err
		}
	}
	for _, marker := range append(f.plain.Markers(), f.tools.Markers()...) {
		tokens, err := v.Tokenize(marker, true)
		if err == nil && len(tokens) == 1 {
			f.markers[tokens[0]] = []byte(marker)
		}
	}
	return f, nil
}

// loaded is what the node keeps beside an engine that the caller has leased.
func (n *Node) loaded(e *engine.Engine) *loadedModel {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.mu.loaded {
		if m.engine == e {
			return m
		}
	}
	return &loadedModel{engine: e}
}

// isLoaded tells whether a model can answer at once.
func (n *Node) isLoaded(model string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.mu.loaded[model]
	return ok
}

// isDefault tells whether a model is the one that the node prefers.
func (n *Node) isDefault(model string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return model == n.mu.defaultModel
}

// queueLimit maps 0, "none may wait", to what the engine calls it.
func queueLimit(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// deviceName is where most of a model runs.
func deviceName(i engine.Info) string {
	for _, d := range i.Devices {
		if d.Kind != "cpu" {
			return d.Description
		}
	}
	return fmt.Sprintf("CPU, %d threads", i.Threads)
}

// devices are the compute devices of this machine.
func (n *Node) devices() []engine.Device { return llama.Devices() }

// estimate is the memory that a spec would take.
func (n *Node) estimate(spec engine.Spec) (engine.Memory, error) {
	m, err := n.store.Resolve(spec.Model)
	if err != nil {
		return engine.Memory{}, err
	}
	return n.memory(m, n.engineOptions(spec))
}

func (n *Node) memory(m models.Model, o llama.Options) (engine.Memory, error) {
	g := engine.Geometry{WeightBytes: m.Info.WeightBytes, Layers: m.Info.Layers, Embedding: m.Info.Embedding, Vocab: m.Info.VocabSize,
		KVHeads: m.Info.KVHeads, KeyLength: m.Info.KeyLength, ValueLength: m.Info.ValueLength}
	shape := engine.Shape{Context: o.Context, Sequences: o.Sequences, MicroBatch: o.MicroBatch, KVType: o.KVType, GPULayers: n.gpuLayers()}
	if o.Embeddings {
		shape.Sequences = 1 // all texts of a batch share it
	}
	return engine.EstimateMemory(g, shape)
}

// gpuLayers is --gpu-layers where there is a GPU with memory of its own, and 0
// elsewhere.
func (n *Node) gpuLayers() int {
	for _, d := range n.devices() {
		if d.Kind == "gpu" {
			return n.cfg.GPULayers
		}
	}
	return 0
}

// wouldTake is the memory that a model would take on this machine, in bytes, as
// estimated; 0: nothing is known of that.
func (n *Node) wouldTake(m models.Model) int64 {
	memory, err := n.memory(m, n.engineOptions(generating(m)))
	if err != nil {
		return 0
	}
	return memory.Total()
}

// fits tells whether a model could be loaded on this machine at all.
func (n *Node) fits(m models.Model) bool {
	memory, err := n.memory(m, n.engineOptions(generating(m)))
	return err == nil && memory.Total() <= n.pool.Capacity()
}
