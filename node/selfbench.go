package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/node/engine"
	"tandem/node/engine/llama"
	"tandem/node/models"
)

// selfBench measures models on this node while nobody uses them, so that placement and
// planner have figures before the first request, and better ones than the first few
// steps give. A request that comes ends a measurement at once; another is tried later.
//
// Its goroutine is run's. Figures are kept in a file, see selfbench_file.go.
type selfBench struct {
	node *Node

	mu      sync.Mutex
	figures map[string]SelfFigures // by key
	keys    map[string]string      // digest → key
	tried   map[string]time.Time   // by name: the last attempt
	unsaved bool
}

// SelfFigures are what was measured of a model on this node: lower quartiles of rounds.
type SelfFigures struct {
	Prefill []PrefillPoint `json:"prefill"` // by tokens, ascending
	Decode  []DecodePoint  `json:"decode"`  // by streams, short contexts; ascending
	// DecodeLong is one stream behind the longest prompt of Prefill.
	DecodeLong DecodePoint `json:"decode_long"`
	Import     float64     `json:"import,omitempty"` // bytes/s from memory into the engine
	Export     float64     `json:"export,omitempty"` // bytes/s from the engine into memory
	Rounds     int         `json:"rounds"`
	At         time.Time   `json:"at"`
}

// PrefillPoint is how long a prompt of so many tokens takes, from an empty context.
type PrefillPoint struct {
	Tokens int     `json:"tokens"`
	Ms     float64 `json:"ms"`
}

// DecodePoint is how long a token takes each of some streams with so many tokens before
// it.
type DecodePoint struct {
	Streams int     `json:"streams"`
	Context int     `json:"context"`
	Ms      float64 `json:"ms"`
}

const (
	// benchLabel names its sequences; they count for no statistics.
	benchLabel  = "self-bench"
	benchRounds = 5
	benchShort  = 64 // tokens of the short prompts
	// benchLong bounds the long ones, and benchTime what one of them may take.
	benchLong = 1024
	benchTime = 600 * time.Millisecond
	// benchPrompt is that of streams whose tokens are timed, of which there are
	// benchTokens, fewer of a slow model.
	benchPrompt    = 16
	benchTokens    = 16
	benchTokensMin = 6
	benchWidthMax  = 8

	// benchPause is between two looks, benchIdle how long a model must have had nothing
	// to do, and benchAgain how long no request must have come before it is measured
	// anew; benchEvery is between two attempts that failed, or two measurements.
	benchPause = 250 * time.Millisecond
	benchIdle  = 2 * time.Second
	benchAgain = time.Minute
	benchEvery = 10 * time.Minute
	// benchKept is how old figures of the file may be; drivers and coolers change.
	benchKept = 30 * 24 * time.Hour
	// benchOff is by what factor requests must differ from the figures, and benchThin on
	// how many tokens, and on an eighth of it as steps, they must be based to be believed
	// instead.
	benchOff  = 1.5
	benchThin = 2048
)

func newSelfBench(n *Node) *selfBench {
	b := &selfBench{node: n, figures: map[string]SelfFigures{}, keys: map[string]string{}, tried: map[string]time.Time{}}
	b.load()
	return b
}

// run measures what is due until the node stops.
func (b *selfBench) run() {
	if b.node.cfg.SelfBench == "off" {
		return
	}
	ctx := b.node.stopping
	tick := time.NewTicker(benchPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, m := range b.node.pool.Loaded() {
			model, err := b.node.store.Resolve(m.Spec.Model)
			if err == nil && ctx.Err() == nil && !m.Spec.Embeddings && b.due(model, m.Stats) {
				b.measure(ctx, model, m)
			}
		}
		b.save()
	}
}

// quiet tells whether nobody wants anything of this machine.
func (b *selfBench) quiet() bool {
	n := b.node
	if n.running.Load() > 0 || n.pool.Waiting() > 0 {
		return false
	}
	return !slices.ContainsFunc(n.pool.Loaded(), func(m engine.LoadedModel) bool { return m.Running+m.Queued > 0 })
}

// due tells whether a model is to be measured now.
func (b *selfBench) due(m models.Model, st engine.Stats) bool {
	if !b.quiet() {
		return false
	}
	now := time.Now()
	idle := now.Sub(st.Used)
	b.mu.Lock()
	defer b.mu.Unlock()
	f, known := b.figures[b.keyLocked(m)]
	switch {
	case !st.Used.IsZero() && idle < benchIdle:
		return false
	case !known || now.Sub(f.At) > benchKept:
		// One that gave way is tried again at the next idle moment.
		return now.Sub(b.tried[m.Name]) > benchIdle
	case idle < benchAgain || now.Sub(f.At) < benchEvery || now.Sub(b.tried[m.Name]) < benchEvery:
		return false
	}
	return f.doubtful(st)
}

// doubtful tells whether the few requests since say something else.
func (f *SelfFigures) doubtful(st engine.Stats) bool {
	off := func(a, b float64) bool { return a > 0 && b > 0 && (a > b*benchOff || b > a*benchOff) }
	first, _ := f.prefillLine()
	prefill := st.TokensKnown > 0 && st.TokensKnown < benchThin && off(milliseconds(st.TokenTime), first)
	decode := st.StepsKnown > 0 && st.StepsKnown < benchThin/8 && off(milliseconds(st.StepTime), f.paceAt(st.StepWidth))
	return prefill || decode
}

// of gives the figures of a model.
func (b *selfBench) of(m models.Model) (SelfFigures, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.figures[b.keyLocked(m)]
	return f, ok
}

// keyLocked is what figures hold for: the file, the machine and the settings that
// shape speed. Until the digest of the file is known it holds for this process.
func (b *selfBench) keyLocked(m models.Model) string {
	if m.Digest == "" {
		return unnamed + m.Path
	}
	key, ok := b.keys[m.Digest]
	if !ok {
		key = b.node.benchKey(m)
		b.keys[m.Digest] = key
	}
	if f, ok := b.figures[unnamed+m.Path]; ok {
		delete(b.figures, unnamed+m.Path)
		b.figures[key], b.unsaved = f, true
	}
	return key
}

// unnamed begins the keys of models whose digest is not known yet.
const unnamed = "path "

func (n *Node) benchKey(m models.Model) string {
	c := &n.cfg
	var devices []string
	for _, d := range n.devices() {
		devices = append(devices, d.Kind+" "+d.Description)
	}
	threads := c.Threads
	if threads == 0 {
		threads = llama.DefaultThreads()
	}
	return fmt.Sprintf("%s %s/%d [%s] ctx %d parallel %d batch %d kv %s gpu %d threads %d", m.Digest, runtime.GOARCH, runtime.NumCPU(),
		strings.Join(devices, "; "), c.Context, c.Parallel, c.Batch, c.KVType, n.gpuLayers(), threads)
}

// measure measures one model, unless somebody wants something meanwhile. The model
// stays loaded no longer for it.
func (b *selfBench) measure(ctx context.Context, model models.Model, m engine.LoadedModel) {
	b.mu.Lock()
	b.tried[model.Name] = time.Now()
	b.mu.Unlock()
	lease, err := b.node.pool.Acquire(ctx, m.Spec)
	if err != nil {
		return
	}
	keep := time.Duration(-1)
	if !m.Expires.IsZero() {
		keep = max(0, time.Until(m.Expires))
	}
	defer func() { lease.Release(&keep) }()
	if lease.Engine().Info().Pooled {
		return
	}
	ctx, end := b.untilWanted(ctx)
	defer end()
	begin := time.Now()
	one := measurement{node: b.node, model: m.Spec.Name, engine: lease.Engine(), loaded: b.node.loaded(lease.Engine())}
	f, err := one.run(ctx)
	if err != nil {
		b.node.log.Debug("the self-benchmark did not end", "model", m.Spec.Name, "error", err)
		if !errors.Is(err, engine.ErrGaveWay) { // it will fail again
			b.mu.Lock()
			b.tried[model.Name] = time.Now().Add(benchEvery)
			b.mu.Unlock()
		}
		return
	}
	f.At = time.Now()
	lease.Engine().ForgetRates()
	b.mu.Lock()
	b.figures[b.keyLocked(model)], b.unsaved = f, true
	b.mu.Unlock()
	b.node.told.changed()
	first, doubles := f.prefillLine()
	b.node.events.emit(SelfMeasured{Model: m.Spec.Name, Seconds: time.Since(begin).Seconds(), PrefillRate: 1000 / first, PrefillDoubles: doubles,
		DecodeRate: 1000 / f.Decode[0].Ms, ImportRate: f.Import, ExportRate: f.Export})
}

// untilWanted is a context that ends when somebody wants something of this machine.
// Requests of the model itself end a measurement faster, in the engine.
func (b *selfBench) untilWanted(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if !b.quiet() {
					cancel(engine.ErrGaveWay)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// measurement is one under way.
type measurement struct {
	node   *Node
	model  string
	engine *engine.Engine
	loaded *loadedModel
	rounds int
}

// run measures everything. Rounds alternate between what is measured, so that a slow
// moment of the machine hits few rounds of each, and the quartile drops those.
func (m *measurement) run(ctx context.Context) (SelfFigures, error) {
	m.rounds = benchRounds
	info, st := m.engine.Info(), m.engine.Stats()
	if info.Context < 2*benchPrompt+benchTokens {
		return SelfFigures{}, errors.New("the context is too short to measure anything")
	}
	short := min(benchShort, info.Context/4)
	// The first run is not counted: it is slow, and tells how much there is time for.
	if _, err := m.stream(ctx, short, 2, nil); err != nil {
		return SelfFigures{}, err
	}
	first, err := m.stream(ctx, short, benchTokensMin, nil)
	if err != nil {
		return SelfFigures{}, err
	}
	long := min(benchLong, info.Context*3/4, int(float64(short)*float64(benchTime)/float64(max(first.Prefill, time.Microsecond))))
	long = max(long, min(2*short, info.Context*3/4))
	step := first.Decode / time.Duration(max(1, first.Generated-1))
	tokens := min(max(int(benchTime/max(step, time.Microsecond)), benchTokensMin), benchTokens)
	widths := []int{1}
	if st.Resident == 0 { // other streams would take rows that users come back to
		for w := 2; w <= min(st.Slots, benchWidthMax); w *= 2 {
			widths = append(widths, w)
		}
	}
	shorts, longs, behind, steps := []float64{}, []float64{}, []float64{}, make([][]float64, len(widths))
	for range m.rounds {
		s, err := m.stream(ctx, short, 1, nil)
		if err != nil {
			return SelfFigures{}, err
		}
		l, err := m.stream(ctx, long, benchTokensMin, nil)
		if err != nil {
			return SelfFigures{}, err
		}
		shorts, longs, behind = append(shorts, milliseconds(s.Prefill)), append(longs, milliseconds(l.Prefill)), append(behind, tokenMs(l))
		for i, w := range widths {
			ms, err := m.streams(ctx, w, tokens)
			if err != nil {
				return SelfFigures{}, err
			}
			steps[i] = append(steps[i], ms)
		}
	}
	f := SelfFigures{Rounds: m.rounds, Prefill: []PrefillPoint{{short, quartileOf(shorts)}, {long, quartileOf(longs)}},
		DecodeLong: DecodePoint{1, long, quartileOf(behind)}}
	for i, w := range widths {
		f.Decode = append(f.Decode, DecodePoint{w, benchPrompt, quartileOf(steps[i])})
	}
	if err := f.validate(); err != nil {
		return f, err
	}
	f.Import, f.Export, err = m.rows(ctx, long)
	return f, err
}

// stream computes one prompt and some tokens behind it.
func (m *measurement) stream(ctx context.Context, prompt, generate int, blocks engine.Blocks) (engine.Result, error) {
	tokens, err := madeUpTokens(m.engine.Vocab(), prompt)
	if err != nil {
		return engine.Result{}, err
	}
	return m.compute(ctx, engine.Request{Tokens: tokens, MaxTokens: generate, NoReuse: true, Blocks: blocks})
}

func (m *measurement) compute(ctx context.Context, r engine.Request) (engine.Result, error) {
	seq, err := m.submit(ctx, r)
	if err != nil {
		return engine.Result{}, err
	}
	return finishBench(ctx, seq)
}

func (m *measurement) submit(ctx context.Context, r engine.Request) (*engine.Sequence, error) {
	r.Label, r.Background = benchLabel, true
	r.Sampling = engine.Sampling{TopP: 1, TypicalP: 1, RepeatPenalty: 1, TopLogprobs: -1, IgnoreEOS: true}
	if r.Salt == "" {
		r.Salt = benchLabel + " " + rand.Text()
	}
	return m.engine.Submit(ctx, r)
}

func finishBench(ctx context.Context, seq *engine.Sequence) (engine.Result, error) {
	for {
		switch _, err := seq.Next(ctx); {
		case errors.Is(err, io.EOF):
			return seq.Result(), nil
		case err != nil:
			return engine.Result{}, err
		}
	}
}

// streams is the time between tokens, in ms, of streams side by side.
func (m *measurement) streams(ctx context.Context, width, generate int) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	var sequences []*engine.Sequence
	defer func() {
		cancel()
		for _, s := range sequences {
			s.Wait()
		}
	}()
	for range width {
		tokens, err := madeUpTokens(m.engine.Vocab(), benchPrompt)
		if err != nil {
			return 0, err
		}
		seq, err := m.submit(ctx, engine.Request{Tokens: tokens, MaxTokens: generate, NoReuse: true})
		if err != nil {
			return 0, err
		}
		sequences = append(sequences, seq)
	}
	var each []float64
	for _, seq := range sequences {
		r, err := finishBench(ctx, seq)
		if err != nil {
			return 0, err
		}
		each = append(each, tokenMs(r))
	}
	return quartileOf(each), nil
}

// rows has the rows of a prompt taken out and put back; 0: they are not kept. What it
// leaves in the tiers is evicted.
func (m *measurement) rows(ctx context.Context, tokens int) (imported, exported float64, err error) {
	kept := m.loaded.kept.Load()
	if kept == nil || kept.reason != "" {
		return 0, 0, nil
	}
	if tokens = max(tokens, 2*kept.size+1); tokens >= m.engine.Info().Context {
		return 0, 0, nil
	}
	prompt, err := madeUpTokens(m.engine.Vocab(), tokens)
	if err != nil {
		return 0, 0, err
	}
	c := comparison{node: m.node, engine: m.engine, kept: kept, prompt: prompt}
	tenant := benchLabel + " " + rand.Text()
	defer c.evict(kept.keeper.key.Root(kept.fingerprint, tenant))
	if _, err = m.compute(ctx, engine.Request{Tokens: prompt, MaxTokens: 1, NoReuse: true, Blocks: c.blocks(tenant)}); err != nil {
		return 0, 0, err
	}
	if err = c.flush(ctx); err != nil {
		return 0, 0, err
	}
	if _, err = m.compute(ctx, engine.Request{Tokens: prompt, MaxTokens: 1, Blocks: c.blocks(tenant)}); err != nil {
		return 0, 0, err
	}
	st := m.engine.Stats()
	return st.RestoreRate, st.ExportRate, nil
}

func tokenMs(r engine.Result) float64 {
	return milliseconds(r.Decode) / float64(max(1, r.Generated-1))
}

// quartileOf is the value that a quarter is not above. Other programs only add to a
// time, so of a few rounds the better ones tell what the machine can do; the very best
// one may be chance.
func quartileOf(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	return list[(len(list)-1)/4]
}

// madeUpTokens are tokens of English text that nobody has sent before.
func madeUpTokens(vocab engine.Vocab, n int) ([]engine.Token, error) {
	var tokens []engine.Token
	if vocab.AddBOS() {
		tokens = append(tokens, vocab.BOS())
	}
	for len(tokens) < n {
		part, err := vocab.Tokenize(madeUpText(), false)
		if err != nil {
			return nil, err
		}
		if len(part) == 0 {
			return nil, errors.New("the vocabulary makes no tokens of English text")
		}
		tokens = append(tokens, part...)
	}
	return tokens[:n], nil
}

// prefillLine is the time of a prompt's first token, in ms, and the position at which
// one takes twice as long; 0: no slope can be told from noise.
func (f *SelfFigures) prefillLine() (first, doubles float64) {
	a, b := f.Prefill[0], f.Prefill[len(f.Prefill)-1]
	near, far := a.Ms/float64(a.Tokens), b.Ms/float64(b.Tokens)
	if far < near*slopeMin || b.Tokens == a.Tokens {
		return far, 0
	}
	slope := (far - near) / (float64(b.Tokens-a.Tokens) / 2)
	start := max(near-slope*float64(a.Tokens)/2, near/2)
	if start/slope < doublesMin {
		return far, 0
	}
	return start, start / slope
}

// decodeDoubles is the context at which a token takes twice as long as in a short one;
// 0: no slope can be told from noise.
func (f *SelfFigures) decodeDoubles() float64 {
	near, far := f.Decode[0], f.DecodeLong
	if far.Context <= near.Context || far.Ms < near.Ms*slopeMin {
		return 0
	}
	doubles := near.Ms * float64(far.Context-near.Context) / (far.Ms - near.Ms)
	if doubles < doublesMin {
		return 0
	}
	return doubles
}

const (
	// slopeMin is how much longer something must take to say that it grows.
	slopeMin = 1.05
	// doublesMin is the shortest context at which anything takes twice as long: what
	// grows faster is noise, as weights cost more than some hundred tokens of KV.
	doublesMin = 500
)

// paceAt is the time between tokens of some streams, on a line between what was
// measured.
func (f *SelfFigures) paceAt(streams float64) float64 {
	at, _ := slices.BinarySearchFunc(f.Decode, streams, func(p DecodePoint, s float64) int { return cmp.Compare(float64(p.Streams), s) })
	switch {
	case at == 0:
		return f.Decode[0].Ms
	case at == len(f.Decode):
		return f.Decode[at-1].Ms
	}
	a, b := f.Decode[at-1], f.Decode[at]
	return a.Ms + (b.Ms-a.Ms)*(streams-float64(a.Streams))/float64(b.Streams-a.Streams)
}
