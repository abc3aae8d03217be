package models

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Limits of one source of a copy.
const (
	maxStrikes    = 5                // failures in a row until a source is out
	wrongStrikes  = 3                // what wrong bytes weigh; they are never forgiven
	perSource     = 2                // chunks at a time, so that the line is not idle between two
	manifestLimit = 10 * time.Minute // until a source has told its chunk list: it may have to read the file
	peerStall     = 20 * time.Second // between two pieces of a chunk; a disk may have to spin up
	chunkLimit    = 2 * time.Minute  // for one chunk: below 70 kB/s a source is of no use
	slowFactor    = 4                // a source that takes so many times as long as another gets a strike
)

// peerState is what a copy knows of one source. The job's goroutine owns it.
type peerState struct {
	src      PeerSource
	name     string
	made     Manifest // valid and of the wanted file, if answered
	key      [sha256.Size]byte
	answered bool
	asking   bool // a goroutine asks for the chunk list
	busy     int  // goroutines that fetch chunks
	used     int  // number of the fetch that was started last

	strikes, wrong int
	until          time.Time // left alone so long
	out            bool
	err            error         // the last failure
	chunkTime      time.Duration // of recent chunks; 0: none yet
}

// strike leaves a source alone for a term, or for good.
func (p *peerState) strike(err error, now time.Time, term func(attempt int) time.Duration) {
	p.err = err
	p.strikes++
	if errors.Is(err, ErrWrongBytes) {
		p.wrong += wrongStrikes
	}
	if p.strikes+p.wrong >= maxStrikes {
		p.out = true
		return
	}
	p.until = now.Add(term(p.strikes))
}

func (p *peerState) expel(err error) { p.err, p.out = err, true }

// width is how many chunks a source may be busy with: one until it has shown
// that it can.
func (p *peerState) width() int {
	if p.chunkTime == 0 {
		return 1
	}
	return perSource
}

// praise forgets failures other than lies.
func (p *peerState) praise(took time.Duration) {
	p.strikes = 0
	if p.chunkTime == 0 {
		p.chunkTime = took
	}
	p.chunkTime = max((3*p.chunkTime+took)/4, 1)
}

// askManifest gets a source's chunk list of a file and checks that it is one.
func askManifest(ctx context.Context, src PeerSource, want PeerModel) (Manifest, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, manifestLimit, fmt.Errorf("%w: no chunk list after %v", ErrSlow, manifestLimit))
	defer cancel()
	m, err := src.Manifest(ctx, want.Digest)
	if err != nil {
		return Manifest{}, causeOf(ctx, err)
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrWrongBytes, err)
	}
	if m.Digest != want.Digest || m.Size != want.Size {
		return Manifest{}, fmt.Errorf("%w: its chunk list is of a file of %d bytes, wanted are %d", ErrWrongBytes, m.Size, want.Size)
	}
	return m, nil
}

// fetchChunk gets chunk i into buf and checks it. stall bounds the time to the
// first piece and between two. The slice returned is part of buf.
func fetchChunk(ctx context.Context, src PeerSource, m *Manifest, i int, buf []byte, stall time.Duration) ([]byte, error) {
	from, n := m.span(i)
	limited, done := context.WithTimeoutCause(ctx, chunkLimit, fmt.Errorf("%w: a chunk took more than %v", ErrSlow, chunkLimit))
	defer done()
	ctx, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	opening := time.AfterFunc(stall, func() { cancel(errStalled) })
	body, err := src.Range(ctx, m.Digest, from, n)
	opening.Stop()
	if err != nil {
		return nil, causeOf(ctx, err)
	}
	body = &closeOnce{ReadCloser: body}
	stop := context.AfterFunc(ctx, func() { body.Close() })
	defer stop()
	r := newStallReader(ctx, cancel, body, stall)
	defer r.Close()
	got, err := io.ReadFull(r, buf[:n])
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w, at byte %d of %d of a chunk", errShort, got, n)
	case err != nil:
		return nil, err
	case sha256.Sum256(buf[:n]) != m.Chunks[i]:
		return nil, fmt.Errorf("%w: chunk %d has another digest than its chunk list says", ErrWrongBytes, i)
	}
	return buf[:n], nil
}

// closeOnce may be closed by the reader and, when time is up, by a timer.
type closeOnce struct {
	io.ReadCloser
	once sync.Once
	err  error
}

func (c *closeOnce) Close() error {
	c.once.Do(func() { c.err = c.ReadCloser.Close() })
	return c.err
}
