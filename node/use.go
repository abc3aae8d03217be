package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"tandem/node/api"
	"tandem/node/chat"
	"tandem/node/engine"
	"tandem/node/engine/llama"
	"tandem/node/models"
	"tandem/node/models/gguf"
)

// target is a model that requests may name: on this machine, or on other nodes.
type target struct {
	models.Model
	here bool
}

// reader makes the tokens of prompts for one model, and knows how its answers look.
type reader struct {
	vocab   engine.Vocab
	format  *answerFormat
	context int // tokens of one request
	pooled  bool
}

// template is the one for a request.
func (r *reader) template(q *api.Request) *chat.Template {
	if len(q.Tools) > 0 && q.ToolChoice.Mode != "none" {
		return r.format.tools
	}
	return r.format.plain
}

// use is the hold of a request on its model: on the engine if that is loaded here,
// else on the vocabulary only, until the engine is wanted.
type use struct {
	node   *Node
	model  target
	reader *reader
	vocab  *openVocab // nil: reader is that of the engine

	// keepAlive is how long the model stays loaded afterwards; nil: as configured.
	keepAlive *time.Duration

	mu     sync.Mutex // several choices may want the engine
	lease  *engine.Lease
	loaded *loadedModel
}

// use begins to use a model. Where another node may answer, this one does not load
// the model before it was chosen.
func (n *Node) use(ctx context.Context, m target) (*use, error) {
	u := &use{node: n, model: m}
	if m.here && (n.isLoaded(m.Name) || !n.othersServe(m)) {
		loaded, err := u.engine(ctx)
		if err != nil {
			return nil, err
		}
		u.reader = &loaded.reader
		return u, nil
	}
	var err error
	if u.vocab, err = n.vocabs.open(ctx, m); err != nil {
		return nil, err
	}
	u.reader = &u.vocab.reader
	return u, nil
}

// engine is the engine of this node, loaded if need be and held until release.
func (u *use) engine(ctx context.Context) (*loadedModel, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lease != nil {
		return u.loaded, nil
	}
	lease, err := u.node.pool.Acquire(ctx, generating(u.model.Model))
	if err != nil {
		return nil, err
	}
	u.lease, u.loaded = lease, u.node.loaded(lease.Engine())
	u.node.store.Used(u.model.Name)
	return u.loaded, nil
}

// loadTime is how long the request waited for the model to be loaded.
func (u *use) loadTime() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lease == nil {
		return 0
	}
	return u.lease.LoadTime()
}

// release ends the use; keepAlive is how long an engine of this node stays.
func (u *use) release(keepAlive *time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lease != nil {
		u.lease.Release(keepAlive)
		u.lease = nil
	}
	if u.vocab != nil {
		u.node.vocabs.close(u.vocab)
		u.vocab = nil
	}
}

// loadOnly loads a model without asking it anything; with a keepAlive of 0 it unloads
// it.
func (n *Node) loadOnly(ctx context.Context, m target, keepAlive *time.Duration) error {
	if !m.here {
		return n.loadThere(ctx, m, keepAlive)
	}
	if keepAlive != nil && *keepAlive == 0 {
		return n.unload(ctx, m.Name)
	}
	lease, err := n.pool.Acquire(ctx, generating(m.Model))
	if err != nil {
		return err
	}
	lease.Release(keepAlive)
	return nil
}

// VocabReader is a model of which only the vocabulary is in memory; llama.Reader is
// one.
type VocabReader interface {
	Vocab() engine.Vocab
	ChatTemplate() string
	ContextTrain() int
	Pooled() bool
	Close()
}

func openReader(path string) (VocabReader, error) { return llama.OpenReader(path) }

// vocabsMax is how many vocabularies of models stay in memory that are not loaded:
// some MiB each.
const vocabsMax = 8

// vocabs are the vocabularies of models that this node has not loaded.
type vocabs struct {
	node *Node

	mu struct {
		sync.Mutex
		open  []*openVocab // those used last at the end
		ended bool
	}
}

// openVocab is one vocabulary and who uses it.
type openVocab struct {
	key    string
	uses   int // guarded by vocabs.mu
	ready  chan struct{}
	err    error // set before ready is closed
	reader reader
	source VocabReader
}

// open gives the vocabulary of a model, reading it if need be; close gives it back.
func (v *vocabs) open(ctx context.Context, m target) (*openVocab, error) {
	key := m.Digest + " " + m.Name
	v.mu.Lock()
	var o *openVocab
	for i, have := range v.mu.open {
		if have.key == key {
			o = have
			v.mu.open = append(append(v.mu.open[:i], v.mu.open[i+1:]...), o)
			break
		}
	}
	if o == nil {
		if v.mu.ended {
			v.mu.Unlock()
			return nil, errStopping
		}
		o = &openVocab{key: key, uses: 1, ready: make(chan struct{})} // one use is the reading
		v.mu.open = append(v.mu.open, o)
		v.trimLocked()
		v.node.goFunc(func() { v.read(o, m) })
	}
	o.uses++
	v.mu.Unlock()
	select {
	case <-o.ready:
		if o.err != nil {
			v.close(o)
			return nil, o.err
		}
		return o, nil
	case <-ctx.Done():
		v.close(o)
		return nil, context.Cause(ctx)
	}
}

// read loads one vocabulary, from the model's file or from its head.
func (v *vocabs) read(o *openVocab, m target) {
	defer v.close(o)
	defer close(o.ready)
	o.err = o.load(v.node, m)
	if o.err != nil {
		v.mu.Lock()
		v.forgetLocked(o)
		v.mu.Unlock()
	}
}

func (o *openVocab) load(n *Node, m target) error {
	path := m.Path
	if !m.here {
		var err error
		if path, err = n.headOf(n.stopping, m); err != nil {
			return err
		}
	}
	source, err := n.cfg.OpenReader(path)
	if err != nil {
		return err
	}
	var metadata map[string]any
	if file, err := gguf.Open(path); err == nil {
		metadata = file.Metadata
	}
	format, err := newAnswerFormat(source.Vocab(), source.ChatTemplate(), metadata)
	if err != nil {
		source.Close()
		return err
	}
	context := n.cfg.Context
	if trained := source.ContextTrain(); trained > 0 {
		context = min(context, trained)
	}
	o.source, o.reader = source, reader{vocab: source.Vocab(), format: format, context: context, pooled: source.Pooled()}
	return nil
}

// close ends one use.
func (v *vocabs) close(o *openVocab) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o.uses--
	v.trimLocked()
}

// trimLocked frees the vocabularies that are used by nobody and too many.
func (v *vocabs) trimLocked() {
	limit := vocabsMax
	if v.mu.ended {
		limit = 0
	}
	for i := 0; i < len(v.mu.open) && len(v.mu.open) > limit; {
		if o := v.mu.open[i]; o.uses == 0 {
			v.forgetLocked(o)
		} else {
			i++
		}
	}
}

// forgetLocked takes a vocabulary out of the list, and frees it if nobody uses it.
func (v *vocabs) forgetLocked(o *openVocab) {
	for i, have := range v.mu.open {
		if have == o {
			v.mu.open = append(v.mu.open[:i], v.mu.open[i+1:]...)
			break
		}
	}
	if o.uses == 0 && o.source != nil {
		o.source.Close()
		o.source = nil
	}
}

// end frees all vocabularies as soon as nobody uses them.
func (v *vocabs) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mu.ended = true
	v.trimLocked()
}

// errStopping refuses what comes after the node began to stop.
var errStopping = errors.New("the node is stopping")
