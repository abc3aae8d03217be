package models

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"
)

const (
	concurrentPulls  = 2 // downloads at once; more only share the line
	progressInterval = 100 * time.Millisecond
)

// Pull gets a model from the network and returns it: "name:tag" or
// "host/namespace/name:tag" from an Ollama registry, "hf.co/org/repo[:quant]" from
// Hugging Face, or the https address of a GGUF file. It blocks; progress is called
// on the caller's goroutine and may be nil. Callers that ask for the same ref at
// the same time share one download. What was downloaded stays for the next Pull
// if ctx ends; other callers' download goes on.
func (s *Store) Pull(ctx context.Context, what string, progress func(Progress)) (Model, error) {
	r, err := parseRef(what)
	if err != nil {
		return Model{}, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	for {
		t, err := s.pulls.join(r.String(), func(ctx context.Context, steps func(Progress)) (Model, error) { return s.pull(ctx, r, steps) })
		if err != nil {
			return Model{}, err
		}
		m, err := t.wait(ctx, progress)
		if !errors.Is(err, errAbandoned) {
			return m, err
		}
	}
}

// pull is one download from beginning to end.
func (s *Store) pull(ctx context.Context, r ref, steps func(Progress)) (Model, error) {
	release, err := s.pulls.acquire(ctx, steps)
	if err != nil {
		return Model{}, err
	}
	defer release()
	steps(Progress{Status: "pulling manifest"})
	plan, err := s.plan(ctx, r)
	if err != nil {
		return Model{}, err
	}
	if err := s.mayPublish(plan.made); err != nil {
		return Model{}, err
	}
	digest, err := s.fetch(ctx, plan.file, steps)
	if err != nil {
		return Model{}, err
	}
	if plan.license != nil {
		if text, _, err := s.web.getSmall(ctx, *plan.license, maxLicense); err == nil {
			plan.made.License = licenseLine(text)
		}
	}
	steps(Progress{Status: "writing manifest"})
	plan.made.Digest = digest
	if err := s.publish(plan.made); err != nil {
		return Model{}, err
	}
	m, err := s.Resolve(plan.made.Name)
	if err == nil {
		steps(Progress{Status: "success"})
	}
	return m, err
}

// plan is what a ref turned out to mean.
type plan struct {
	file    source
	made    *manifest
	license *request // of a text; may be nil
}

func (s *Store) plan(ctx context.Context, r ref) (*plan, error) {
	switch {
	case r.url != nil:
		return s.planURL(r), nil
	case r.name.isHub():
		return s.planHub(ctx, r.name)
	}
	return s.planRegistry(ctx, r.name)
}

func (s *Store) planURL(r ref) *plan {
	origin := url.URL{Scheme: r.url.Scheme, Host: r.url.Host, Path: r.url.Path} // without what may be secret
	made := &manifest{Name: r.name.String(), Shown: r.name.model, parsed: r.name, Origin: origin.String()}
	return &plan{file: source{request: request{url: r.url}}, made: made}
}

// mayPublish refuses early what publish would refuse, and keeps a download from
// replacing a model of another origin that happens to have its name.
func (s *Store) mayPublish(m *manifest) error {
	e := s.lookup(m.parsed)
	if e == nil || e.name.key() != m.parsed.key() {
		return nil
	}
	if e.source == File || e.source == BuiltIn {
		return &ReadOnlyError{Name: e.shown, Reason: e.fixed}
	}
	previous, err := s.readManifest(s.manifestPath(m.parsed))
	if err == nil && previous.Origin != m.Origin {
		return fmt.Errorf("model %s is here already, from %s; delete it first", e.shown, previous.Origin)
	}
	return nil
}

// errAbandoned means that a download was ended because nobody waited for it.
var errAbandoned = errors.New("the download was abandoned")

// errClosed means that the store is being closed.
var errClosed = errors.New("the model store is being closed")

// pulls are the downloads in progress.
type pulls struct {
	slots chan struct{}
	delay func(attempt int) time.Duration
	wg    sync.WaitGroup

	mu      sync.Mutex
	running map[string]*transfer
	claims  map[string]chan struct{} // partial files in use; closed when free
	closed  bool
}

func (p *pulls) init() {
	p.slots, p.delay = make(chan struct{}, concurrentPulls), backoff
	p.running, p.claims = map[string]*transfer{}, map[string]chan struct{}{}
}

// claim waits until no other download of this process writes the partial file
// id: two names may mean the same file.
func (p *pulls) claim(ctx context.Context, id string) (release func(), err error) {
	mine := make(chan struct{})
	for {
		p.mu.Lock()
		other := p.claims[id]
		if other == nil {
			p.claims[id] = mine
		}
		p.mu.Unlock()
		if other == nil {
			break
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return func() {
		p.mu.Lock()
		delete(p.claims, id)
		p.mu.Unlock()
		close(mine)
	}, nil
}

// acquire waits for one of the slots.
func (p *pulls) acquire(ctx context.Context, steps func(Progress)) (release func(), err error) {
	release = func() { <-p.slots }
	select {
	case p.slots <- struct{}{}:
		return release, nil
	default:
	}
	steps(Progress{Status: "waiting for other downloads"})
	select {
	case p.slots <- struct{}{}:
		return release, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// pause waits before another attempt.
func (p *pulls) pause(ctx context.Context, attempt int) error {
	timer := time.NewTimer(p.delay(attempt))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join finds the download of key or starts it with run, in a goroutine that ends
// when run does.
func (p *pulls) join(key string, run func(context.Context, func(Progress)) (Model, error)) (*transfer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if t := p.running[key]; t != nil {
		t.enter()
		return t, nil
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	t := &transfer{cancel: cancel, done: make(chan struct{})}
	t.enter()
	p.running[key] = t
	p.wg.Go(func() {
		t.model, t.err = run(ctx, t.step)
		cancel(nil)
		p.mu.Lock()
		delete(p.running, key)
		p.mu.Unlock()
		close(t.done)
	})
	return t, nil
}

func (p *pulls) close() {
	p.mu.Lock()
	p.closed = true
	for _, t := range p.running {
		t.cancel(errClosed)
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// transfer is one download with those who wait for it.
type transfer struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	model  Model // set before done is closed
	err    error

	mu      sync.Mutex
	waiters int
	steps   []Progress // one for each status, the last one growing
}

func (t *transfer) enter() {
	t.mu.Lock()
	t.waiters++
	t.mu.Unlock()
}

// leave ends the download if nobody else waits for it.
func (t *transfer) leave() {
	t.mu.Lock()
	t.waiters--
	last := t.waiters == 0
	t.mu.Unlock()
	if last {
		t.cancel(errAbandoned)
	}
}

// step notes progress.
func (t *transfer) step(p Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.steps); n > 0 && t.steps[n-1].Status == p.Status {
		t.steps[n-1] = p
		return
	}
	t.steps = append(t.steps, p)
}

// since returns the steps from number n on.
func (t *transfer) since(n int) []Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Progress(nil), t.steps[n:]...)
}

// wait shows progress until the download is done or ctx ends.
func (t *transfer) wait(ctx context.Context, progress func(Progress)) (Model, error) {
	defer t.leave()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	shown, last := 0, Progress{}
	show := func() {
		steps := t.since(shown)
		for _, p := range steps {
			if p != last {
				progress(p)
				last = p
			}
		}
		shown += max(len(steps)-1, 0) // the last one may grow
	}
	for {
		select {
		case <-t.done:
			show()
			return t.model, t.err
		case <-ctx.Done():
			return Model{}, context.Cause(ctx)
		case <-tick.C:
			show()
		}
	}
}
