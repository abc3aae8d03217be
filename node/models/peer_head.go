package models

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tandem/node/models/gguf"
)

// CopyHead gets the header of a model that is not here from other nodes, enough to
// tokenise for it, and returns the path of a GGUF: header and tensor list are those
// of the model, the tensors are a hole, so the file has the model's size and takes
// the header's room. It must be loaded for its vocabulary only. It is in heads/,
// is never listed, and goes when nobody has asked for it for a month. If the model
// itself is here its own path is returned.
//
// The header comes in whole chunks which fit the source's chunk list, and most of
// the nodes that answer must tell the same list: its owner checked it against the
// whole file. It passes package gguf before and after it is written. Callers that
// want the same header get it one after the other, all but the first without a
// transfer. The error is one of those of CopyFromPeers.
func (s *Store) CopyHead(ctx context.Context, want PeerModel, sources []PeerSource) (path string, err error) {
	if err := want.copyable(); err != nil {
		return "", err
	}
	if m, err := s.byDigest(want.Digest); err == nil {
		return m.Path, nil
	}
	release, err := s.pulls.claim(ctx, "head of "+want.Digest)
	if err != nil {
		return "", err
	}
	defer release()
	path = s.headPath(want.Digest)
	if info, ok := isFile(path); ok && info.Size() == want.Size {
		if _, err := gguf.Open(path); err == nil {
			now := s.now()
			os.Chtimes(path, now, now) // in use: see headKept
			return path, nil
		}
	}
	r, err := s.openRemote(ctx, want, sources[:min(len(sources), maxSources)])
	if err != nil {
		return "", err
	}
	head, err := r.head()
	if err != nil {
		return "", err
	}
	if err := s.writeHead(path, head, want.Size); err != nil {
		return "", s.explain(err)
	}
	return path, nil
}

// writeHead makes the file of a header.
func (s *Store) writeHead(path string, head []byte, size int64) error {
	if err := s.room(int64(len(head))); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "partial"), "head-*")
	if err != nil {
		return err
	}
	defer discard(f)
	if _, err := f.Write(head); err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if _, err := gguf.Read(f, size); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// askAll asks all sources for their chunk lists, at the same time. It returns
// when all have answered or failed, or gatherTime after the first answer.
func askAll(ctx context.Context, want PeerModel, sources []PeerSource) ([]*peerState, error) {
	type answer struct {
		i    int
		made Manifest
		err  error
	}
	asking, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	answers := make(chan answer, len(sources))
	states := make([]*peerState, len(sources))
	for i, src := range sources {
		states[i] = &peerState{src: src, name: src.Name(), err: fmt.Errorf("%w: others told their chunk lists before", ErrSlow)}
		wg.Go(func() {
			made, err := askManifest(asking, src, want)
			answers <- answer{i, made, err}
		})
	}
	var enough <-chan time.Time
	for range sources {
		select {
		case a := <-answers:
			p := states[a.i]
			if p.err = a.err; a.err == nil {
				p.made, p.key, p.answered = a.made, a.made.key(), true
				if enough == nil {
					timer := time.NewTimer(gatherTime)
					defer timer.Stop()
					enough = timer.C
				}
			}
		case <-enough:
			return states, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return states, nil
}

// remote is the beginning of a file that other nodes have. One goroutine reads
// it; chunks are fetched as they are needed and stay.
type remote struct {
	ctx     context.Context
	stall   time.Duration
	want    PeerModel
	sources []*peerState
	made    Manifest
	key     [sha256.Size]byte
	data    []byte // whole chunks, from the first on
}

// openRemote takes the chunk list that most of the sources that answer tell. Here
// no check of a whole file will find a wrong list, so half of them is not enough.
func (s *Store) openRemote(ctx context.Context, want PeerModel, sources []PeerSource) (*remote, error) {
	states, err := askAll(ctx, want, sources)
	if err != nil {
		return nil, err
	}
	r := &remote{ctx: ctx, stall: s.peers.stall, want: want, sources: states}
	votes, answered := map[[sha256.Size]byte]int{}, 0
	for _, p := range states {
		if !p.answered {
			continue
		}
		answered++
		if votes[p.key]++; votes[p.key] > votes[r.key] || r.made.Size == 0 {
			r.made, r.key = p.made, p.key
		}
	}
	agree := 2*votes[r.key] > answered
	for _, p := range states {
		if p.answered && (!agree || p.key != r.key) {
			p.err = fmt.Errorf("%w: its chunk list differs from that of other nodes", ErrWrongBytes)
		}
		p.out = !agree || p.key != r.key || !p.answered
	}
	if !agree {
		return nil, r.failure()
	}
	return r, nil
}

func (r *remote) failure() error { return peersFailure(r.want.Name, r.sources) }

// head is everything before the first tensor.
func (r *remote) head() ([]byte, error) {
	f, err := gguf.Read(r, r.want.Size)
	if err != nil {
		return nil, err
	}
	if f.DataOffset > int64(len(r.data)) { // the padding may reach into the next chunk
		return append(r.data, make([]byte, f.DataOffset-int64(len(r.data)))...), nil
	}
	return r.data[:f.DataOffset], nil
}

// ReadAt reads from the chunks that are here, and fetches those that are not.
func (r *remote) ReadAt(b []byte, from int64) (int, error) {
	end := min(from+int64(len(b)), r.want.Size)
	if end > MaxHeadBytes {
		end = MaxHeadBytes
	}
	for int64(len(r.data)) < end {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	if from >= end {
		if from >= r.want.Size {
			return 0, io.EOF
		}
		return 0, errHeadTooLong
	}
	n := copy(b, r.data[from:end])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// more fetches the next chunk from the first source that has it right.
func (r *remote) more() error {
	buf := make([]byte, r.made.ChunkBytes)
	for _, p := range r.sources {
		if p.out {
			continue
		}
		b, err := fetchChunk(r.ctx, p.src, &r.made, int(int64(len(r.data))/r.made.ChunkBytes), buf, r.stall)
		if r.ctx.Err() != nil {
			return context.Cause(r.ctx)
		}
		if err == nil {
			r.data = append(r.data, b...)
			return nil
		}
		p.expel(err)
	}
	return r.failure()
}
