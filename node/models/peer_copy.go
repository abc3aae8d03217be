package models

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"tandem/node/models/gguf"
)

// maxSources is how many other nodes take part in one copy; the rest is left out.
const maxSources = 32

// PeersError means that none of the other nodes could give a model.
type PeersError struct {
	Name     string
	Failures []PeerFailure // one for each node that was asked, in the order given
}

// PeerFailure is why one node could not give a model.
type PeerFailure struct {
	Source string
	Err    error
}

func (e *PeersError) Error() string {
	if len(e.Failures) == 0 {
		return fmt.Sprintf("model %s cannot be copied: no other node has it; tandem pull %s gets it from the internet", e.Name, e.Name)
	}
	why := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		why[i] = fmt.Sprintf("%s: %v", f.Source, f.Err)
	}
	return fmt.Sprintf("model %s cannot be copied from other nodes (%s); try again later, or tandem pull %s gets it from the internet", e.Name, strings.Join(why, "; "), e.Name)
}

func peersFailure(name string, sources []*peerState) error {
	e := &PeersError{Name: name}
	for _, p := range sources {
		e.Failures = append(e.Failures, PeerFailure{Source: p.name, Err: p.err})
	}
	return e
}

// Unwrap gives the causes, so that errors.Is and As find them.
func (e *PeersError) Unwrap() []error {
	all := make([]error, len(e.Failures))
	for i, f := range e.Failures {
		all[i] = f.Err
	}
	return all
}

// ErrWrongBytes means that a node gave bytes, or a chunk list, that do not belong
// to the file: its disk is damaged, or worse.
var ErrWrongBytes = errors.New("what it sends does not belong to the file")

// ErrSlow means that a node took longer for a chunk than is of any use.
var ErrSlow = errors.New("it is too slow")

// CopyFromPeers gets a model from other nodes, in chunks from all of them at the
// same time, and returns it under want.Name. It blocks; progress is called on the
// caller's goroutine and may be nil. Callers that want the same at the same time
// share one copy, whose sources are those of the first. If ctx ends, or the
// process, the next copy goes on with the chunks that are here.
//
// A chunk is written once it fits the chunk list, and the model is there once the
// whole file fits want.Digest and has passed package gguf. A file of this digest
// that is here already gets the name, without any transfer. A node that fails, is
// slow or sends wrong bytes is left alone for a term that doubles, and after the
// fifth time for good.
//
// The error is a *RefError, a *PeersError (with ErrWrongBytes, ErrSlow or what a
// source returned in it), a *SpaceError, a *ReadOnlyError, a *gguf.FormatError, or
// the reason why ctx ended.
func (s *Store) CopyFromPeers(ctx context.Context, want PeerModel, sources []PeerSource, progress func(Progress)) (Model, error) {
	if err := want.copyable(); err != nil {
		return Model{}, err
	}
	n, err := ParseName(want.Name)
	if err != nil {
		return Model{}, err
	}
	if progress == nil {
		progress = func(Progress) {}
	}
	for {
		var mine atomic.Bool
		t, err := s.pulls.join("copy "+want.Digest+" "+n.key(), func(ctx context.Context, steps func(Progress)) (Model, error) {
			mine.Store(true)
			return s.copyModel(ctx, want, n, sources, steps)
		})
		if err != nil {
			return Model{}, err
		}
		m, err := t.wait(ctx, progress)
		var peers *PeersError
		// The nodes that another caller knew have failed; ours may be others.
		again := !mine.Load() && errors.As(err, &peers) && ctx.Err() == nil
		if !again && !errors.Is(err, errAbandoned) {
			return m, err
		}
	}
}

// copyable checks what is to be copied.
func (p PeerModel) copyable() error {
	if err := p.Validate(); err != nil {
		return err
	}
	if p.Digest == "" {
		return &RefError{Field: "digest", Value: "", Allowed: digestAllowed + "; the node that has the model must compute it first"}
	}
	return nil
}

// copyModel is one copy from beginning to end.
func (s *Store) copyModel(ctx context.Context, want PeerModel, n Name, sources []PeerSource, steps func(Progress)) (Model, error) {
	if m, err := s.Resolve(want.Name); err == nil && m.Digest == want.Digest {
		return m, nil
	}
	release, err := s.pulls.acquire(ctx, steps)
	if err != nil {
		return Model{}, err
	}
	defer release()
	made := &manifest{Name: n.String(), Shown: want.Name, parsed: n, Origin: want.Origin, License: want.License}
	if made.Origin == "" {
		made.Origin = "another node, sha256:" + want.Digest[:12] // unlike any other version's
	}
	if err := s.mayPublish(made); err != nil {
		return Model{}, err
	}
	if m, err := s.byDigest(want.Digest); err == nil && m.Path != s.blobPath(want.Digest) {
		made.Path = m.Path
	} else {
		made.Digest = want.Digest
		if err := s.copyBlob(ctx, want, sources, steps); err != nil {
			return Model{}, err
		}
	}
	steps(Progress{Status: "writing manifest"})
	if err := s.publish(made); err != nil {
		return Model{}, err
	}
	m, err := s.Resolve(made.Name)
	if err == nil {
		steps(Progress{Status: "success"})
	}
	return m, err
}

// copyBlob makes the blob want.Digest out of what other nodes give. As with a
// download, the partial file stays if the copy fails on the way, and goes if it
// turns out to be wrong.
func (s *Store) copyBlob(ctx context.Context, want PeerModel, sources []PeerSource, steps func(Progress)) error {
	release, err := s.pulls.claim(ctx, want.Digest) // as downloads do: there is one writer of a blob
	if err != nil {
		return err
	}
	defer release()
	if s.HasBlob("sha256:" + want.Digest) {
		return nil
	}
	f, err := s.openCopy(want)
	if err != nil {
		return err
	}
	defer f.Close()
	j := newCopyJob(s, want, f, sources, steps)
	if err := j.run(ctx); err != nil {
		if info, statErr := f.Stat(); j.disproved || statErr == nil && info.Size() == 0 {
			os.Remove(f.Name())
		}
		return s.explain(err)
	}
	if _, err := gguf.Read(f, want.Size); err != nil {
		os.Remove(f.Name())
		return scrub(err)
	}
	if err := s.keepManifest(&j.made); err != nil {
		s.log.Info("a chunk list is not kept and will be made again", "model", want.Name, "err", err)
	}
	return s.keep(f, want.Digest)
}

// openCopy opens or makes the partial file of a copy. Unlike that of a download
// it may have holes, so the two have different names.
func (s *Store) openCopy(want PeerModel) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.cfg.Dir, "partial", "copy-"+want.Digest), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, scrub(err)
	}
	locked, err := lockFile(f)
	if err == nil && !locked {
		err = errors.New("another process is copying the same file")
	}
	var info os.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && info.Size() > want.Size {
		err = f.Truncate(want.Size)
	}
	if err != nil {
		f.Close()
		return nil, scrub(err)
	}
	return f, nil
}

// adopt begins to copy by a chunk list: what is in the partial file is compared
// with it, chunk by chunk. So nothing needs to be written down about a copy, and
// whatever a crash has left is either right or fetched again.
func (j *copyJob) adopt(ctx context.Context, made Manifest, key [sha256.Size]byte) error {
	j.made, j.key, j.chosen, j.disproved = made, key, true, false
	j.state, j.next, j.missing, j.completed = make([]chunkState, len(made.Chunks)), 0, len(made.Chunks), 0
	info, err := j.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 {
		j.report("checking the part that is here")
	}
	buf := make([]byte, made.ChunkBytes)
	for i := range made.Chunks {
		from, n := made.span(i)
		if from+n > info.Size() {
			break
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := j.f.ReadAt(buf[:n], from); err != nil {
			continue // a sector that cannot be read may well be written again
		}
		if sha256.Sum256(buf[:n]) == made.Chunks[i] {
			j.finish(i)
		}
	}
	return j.store.room(made.Size - j.completed)
}

// conclude checks the whole. If it is not what was wanted although every chunk
// fits, the chunk list was a lie, and so was everybody who told it.
func (j *copyJob) conclude(ctx context.Context) error {
	j.report("verifying sha256 digest")
	sum := sha256.New()
	n, err := io.CopyBuffer(sum, &contextReader{ctx, io.NewSectionReader(j.f, 0, j.want.Size+1)}, make([]byte, copyBuffer))
	if err != nil {
		return err
	}
	if n == j.want.Size && hexSum(sum) == j.want.Digest {
		j.done = true
		return nil
	}
	j.wrong[j.key], j.chosen, j.disproved = true, false, true
	for _, p := range j.sources {
		if p.answered && p.key == j.key {
			p.expel(fmt.Errorf("%w: its chunk list is that of another file", ErrWrongBytes))
		}
	}
	return nil
}
