package models

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// Limits of one copy.
const (
	maxFetches    = 8                      // chunks on the way at once; each has ChunkBytes of memory
	gatherTime    = 2 * time.Second        // after the first chunk list, for others to agree or not
	hedgeAtLeast  = 500 * time.Millisecond // until another source fetches the same chunk, too
	copyTickEvery = 50 * time.Millisecond
)

type chunkState uint8

const (
	chunkMissing chunkState = iota
	chunkFetching
	chunkHere
)

// copyJob is one copy. The goroutine in run owns everything; others ask sources
// and fetch chunks, each for one result, and run waits for them all.
//
// Invariant: missing counts the chunks that are not chunkHere, completed the bytes
// of those that are; each chunkHere chunk of f fits made; every chunkFetching chunk
// is in fetches, where also slower fetches of chunkHere ones linger. No chunk is
// written by a list that is not made.
type copyJob struct {
	store   *Store
	want    PeerModel
	f       *os.File
	steps   func(Progress)
	sources []*peerState
	buffers chan []byte
	results chan peerResult

	running     int                        // goroutines that will send a result
	number      int                        // of fetches started
	firstAnswer time.Time                  // of a chunk list
	wrong       map[[sha256.Size]byte]bool // chunk lists that were disproved

	chosen    bool // made is the list to copy by
	disproved bool // f was made by a list that was wrong
	made      Manifest
	key       [sha256.Size]byte
	state     []chunkState
	next      int // no chunk before it is missing
	missing   int
	completed int64
	fetches   map[int][]*peerFetch
	done      bool
}

// peerFetch is one chunk on its way from one source.
type peerFetch struct {
	source  *peerState
	chunk   int
	started time.Time
	cancel  context.CancelCauseFunc
	beaten  time.Duration // what the faster one took; 0: nobody was faster
}

// peerResult is what a goroutine has brought: of a fetch, or a chunk list.
type peerResult struct {
	source *peerState
	fetch  *peerFetch // nil: made is the chunk list
	made   Manifest
	err    error
	local  bool // err is not the source's fault
}

// errBeaten ends the slower one of two fetches of the same chunk.
var errBeaten = errors.New("another node was faster")

func newCopyJob(s *Store, want PeerModel, f *os.File, sources []PeerSource, steps func(Progress)) *copyJob {
	j := &copyJob{store: s, want: want, f: f, steps: steps, results: make(chan peerResult), wrong: map[[sha256.Size]byte]bool{},
		fetches: map[int][]*peerFetch{}, buffers: make(chan []byte, maxFetches)}
	for _, src := range sources[:min(len(sources), maxSources)] {
		j.sources = append(j.sources, &peerState{src: src, name: src.Name()})
	}
	for range maxFetches {
		j.buffers <- nil
	}
	return j
}

func (j *copyJob) report(status string) {
	j.steps(Progress{Status: status, Digest: "sha256:" + j.want.Digest, Total: j.want.Size, Completed: j.completed})
}

// run copies until the file is whole and right, or nobody is left to ask.
func (j *copyJob) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer j.drain()
	defer cancel(nil)
	tick := time.NewTicker(copyTickEvery)
	defer tick.Stop()
	j.report("asking other nodes")
	for {
		if err := j.advance(ctx); err != nil || j.done {
			return causeOf(ctx, err)
		}
		select {
		case r := <-j.results:
			if err := j.handle(r); err != nil {
				return causeOf(ctx, err)
			}
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain waits for the goroutines that are left.
func (j *copyJob) drain() {
	for ; j.running > 0; j.running-- {
		<-j.results
	}
}

// advance does everything that can be done without waiting.
func (j *copyJob) advance(ctx context.Context) error {
	now := time.Now()
	j.ask(ctx, now)
	if len(j.fetches) == 0 && !(j.chosen && j.served()) {
		best, wait := j.choose(now)
		switch {
		case best != nil:
			if err := j.adopt(ctx, best.made, best.key); err != nil {
				return err
			}
			j.copying()
		case !wait:
			return j.failure()
		default:
			return nil
		}
	}
	if !j.chosen {
		return nil
	}
	if j.missing == 0 && len(j.fetches) == 0 {
		return j.conclude(ctx)
	}
	return j.assign(ctx, now)
}

// ask asks sources for their chunk lists.
func (j *copyJob) ask(ctx context.Context, now time.Time) {
	for _, p := range j.sources {
		if p.out || p.answered || p.asking || now.Before(p.until) {
			continue
		}
		p.asking = true
		j.running++
		go func() {
			made, err := askManifest(ctx, p.src, j.want)
			j.results <- peerResult{source: p, made: made, err: err}
		}()
	}
}

// served says whether anybody is left who has the list that is copied by, or
// whether nobody is needed.
func (j *copyJob) served() bool {
	if j.missing == 0 {
		return true
	}
	for _, p := range j.sources {
		if !p.out && p.answered && p.key == j.key {
			return true
		}
	}
	return false
}

// choose finds the source whose chunk list most others share. Without one, wait
// says whether there may be one later.
func (j *copyJob) choose(now time.Time) (best *peerState, wait bool) {
	votes := map[[sha256.Size]byte]int{}
	asking := false
	for _, p := range j.sources {
		asking = asking || p.asking
		if p.out {
			continue
		}
		wait = true
		if p.answered {
			votes[p.key]++
		}
	}
	if asking && (j.firstAnswer.IsZero() || now.Sub(j.firstAnswer) < gatherTime) {
		return nil, true
	}
	for _, p := range j.sources {
		if !p.out && p.answered && (best == nil || votes[p.key] > votes[best.key]) {
			best = p
		}
	}
	return best, wait
}

func (j *copyJob) failure() error { return peersFailure(j.want.Name, j.sources) }

func (j *copyJob) copying() { j.report("copying " + j.want.Digest[:12] + " from other nodes") }

// assign gives chunks to sources that have nothing to do.
func (j *copyJob) assign(ctx context.Context, now time.Time) error {
	for {
		p, i, ok := j.pair(now)
		if !ok {
			return nil
		}
		if err := j.store.room(j.made.ChunkBytes); err != nil {
			return err
		}
		select {
		case buf := <-j.buffers:
			j.start(ctx, p, i, buf, now)
		default:
			return nil
		}
	}
}

// pair finds a source and a chunk for it: the first that is missing, for the
// source with the least to do; if none is missing, one that another source has
// been fetching for longer than this one would take.
func (j *copyJob) pair(now time.Time) (p *peerState, chunk int, ok bool) {
	for j.next < len(j.state) && j.state[j.next] != chunkMissing {
		j.next++
	}
	for _, q := range j.sources {
		if q.out || !q.answered || q.key != j.key || q.busy >= q.width() || now.Before(q.until) {
			continue
		}
		at := j.next
		if at == len(j.state) {
			if at = j.overdue(q, now); at < 0 {
				continue
			}
		}
		if p == nil || q.busy < p.busy || q.busy == p.busy && q.used < p.used {
			p, chunk = q, at
		}
	}
	return p, chunk, p != nil
}

// overdue is a chunk that p should fetch, too; -1 if there is none. All who fetch
// it already have had the time that p would take.
func (j *copyJob) overdue(p *peerState, now time.Time) int {
	best, longest := -1, max(2*p.chunkTime, hedgeAtLeast)
	for i, running := range j.fetches {
		took := now.Sub(running[len(running)-1].started)
		if j.state[i] == chunkFetching && took > longest && !slices.ContainsFunc(running, func(f *peerFetch) bool { return f.source == p }) {
			best, longest = i, took
		}
	}
	return best
}

// start fetches chunk i from p, in a goroutine that writes it if it is right.
func (j *copyJob) start(ctx context.Context, p *peerState, i int, buf []byte, now time.Time) {
	j.number++
	j.running++
	p.busy, p.used = p.busy+1, j.number
	ctx, cancel := context.WithCancelCause(ctx)
	f := &peerFetch{source: p, chunk: i, started: now, cancel: cancel}
	j.state[i] = chunkFetching
	j.fetches[i] = append(j.fetches[i], f)
	made := j.made
	go func() {
		defer cancel(nil)
		if int64(len(buf)) < made.ChunkBytes {
			buf = make([]byte, made.ChunkBytes)
		}
		b, err := fetchChunk(ctx, p.src, &made, i, buf, j.store.peers.stall)
		r := peerResult{source: p, fetch: f, err: err}
		if err == nil {
			from, _ := made.span(i)
			_, r.err = j.f.WriteAt(b, from)
			r.local = true
		}
		j.buffers <- buf
		j.results <- r
	}()
}

// handle takes in a result. The error ends the copy.
func (j *copyJob) handle(r peerResult) error {
	j.running--
	if r.fetch != nil {
		return j.handleChunk(r)
	}
	p, now := r.source, time.Now()
	p.asking = false
	if r.err != nil {
		j.strike(p, r.err)
		return nil
	}
	p.made, p.key, p.answered = r.made, r.made.key(), true
	if j.wrong[p.key] {
		p.expel(fmt.Errorf("%w: its chunk list is that of another file", ErrWrongBytes))
	} else if j.firstAnswer.IsZero() {
		j.firstAnswer = now
	}
	return nil
}

func (j *copyJob) handleChunk(r peerResult) error {
	p, f, took := r.source, r.fetch, time.Since(r.fetch.started)
	p.busy--
	j.forget(f)
	switch {
	case r.err != nil && r.local:
		return r.err
	case r.err == nil:
		p.praise(took)
		for _, other := range j.fetches[f.chunk] {
			other.beaten = max(took, 1)
			other.cancel(errBeaten)
		}
		if j.state[f.chunk] != chunkHere {
			j.finish(f.chunk)
		}
		j.copying()
		return nil
	case f.beaten == 0:
		j.strike(p, r.err)
	case took > slowFactor*f.beaten:
		j.strike(p, fmt.Errorf("%w: a chunk took it %v, another node %v", ErrSlow, took.Round(time.Millisecond), f.beaten.Round(time.Millisecond)))
	}
	if j.state[f.chunk] != chunkHere && len(j.fetches[f.chunk]) == 0 {
		j.state[f.chunk] = chunkMissing
		j.next = min(j.next, f.chunk)
	}
	return nil
}

// forget takes a fetch that has ended off the list.
func (j *copyJob) forget(f *peerFetch) {
	var left []*peerFetch
	for _, other := range j.fetches[f.chunk] {
		if other != f {
			left = append(left, other)
		}
	}
	if j.fetches[f.chunk] = left; left == nil {
		delete(j.fetches, f.chunk)
	}
}

// finish notes that a chunk is here.
func (j *copyJob) finish(i int) {
	_, n := j.made.span(i)
	j.state[i] = chunkHere
	j.missing--
	j.completed += n
}

func (j *copyJob) strike(p *peerState, err error) {
	p.strike(err, time.Now(), j.store.pulls.delay)
	j.store.log.Info("a node is left alone in a copy", "node", p.name, "model", j.want.Name, "for_good", p.out, "err", err)
}
