package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"tandem/node/models/gguf"
)

// Limits of what nodes give each other.
const (
	MaxRangeBytes = 64 << 20 // of one OpenRange
	MaxHeadBytes  = 64 << 20 // of one header; published ones have up to 16 MiB

	maxOpenRanges  = 64  // ranges that may be read at once: each holds a file open
	maxOriginBytes = 512 // of PeerModel.Origin and PeerModel.License
)

// ErrBusy means that too many ranges are being read; a little later there is room.
var ErrBusy = errors.New("too many pieces of models are being read at once; try again in a moment")

// The kinds of models, as nodes tell them each other.
const (
	KindChat       = "chat"
	KindCompletion = "completion" // generates, but has no chat template
	KindEmbedding  = "embedding"
)

// PeerModel is what a node tells others of a model that it has, and what it takes
// to copy it.
type PeerModel struct {
	Name    string `json:"name"`
	Digest  string `json:"digest,omitempty"` // hex SHA-256 of the file; "" while it is not known: such a model cannot be copied yet
	Size    int64  `json:"size"`             // bytes
	Kind    string `json:"kind"`
	License string `json:"license,omitempty"`
	Origin  string `json:"origin,omitempty"` // where it came from, so that a later pull of it is an update
}

// Validate checks what another node says, before anything is done with it. The
// error is a *RefError.
func (p PeerModel) Validate() error {
	bad := func(field, value, allowed string) error {
		return &RefError{Field: field, Value: value, Allowed: allowed}
	}
	if _, err := ParseName(p.Name); err != nil {
		return err
	}
	switch {
	case p.Digest != "" && !hexPattern.MatchString(p.Digest):
		return bad("digest", p.Digest, digestAllowed)
	case p.Size < 1 || p.Size > maxBlob:
		return bad("size", fmt.Sprint(p.Size), fmt.Sprintf("files have 1 to %d bytes", int64(maxBlob)))
	case p.Kind != KindChat && p.Kind != KindCompletion && p.Kind != KindEmbedding:
		return bad("kind", p.Kind, "kinds are chat, completion and embedding")
	case !isLine(p.License):
		return bad("license", p.License, lineAllowed)
	case !isLine(p.Origin):
		return bad("origin", p.Origin, lineAllowed)
	}
	return nil
}

const (
	digestAllowed = "digests are 64 digits 0-9 a-f"
	lineAllowed   = "this is one line of at most 512 bytes"
)

func isLine(s string) bool {
	return len(s) <= maxOriginBytes && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// PeerSource is another node that may have a model. Its methods are called by
// several goroutines. They must return once ctx has ended, and reads of a Range
// once it has been closed, which may happen during a read. A Range holds n bytes
// from byte from on.
type PeerSource interface {
	Name() string // of the node, for messages
	Manifest(ctx context.Context, digest string) (Manifest, error)
	Range(ctx context.Context, digest string, from, n int64) (io.ReadCloser, error)
}

// peers is what the store needs to give models to other nodes and to copy theirs.
type peers struct {
	chunkBytes int64
	stall      time.Duration // peerStall
	open       chan struct{} // one token for each range that is being read
	hashing    chan struct{} // one for each chunk list that somebody waits for
	hurry      atomic.Int32  // callers that wait for a chunk list
	poke       chan struct{} // there may be new models

	mu      sync.Mutex
	damaged map[fileID]error // versions of files that are not what their digest says
}

func (p *peers) init() {
	p.chunkBytes, p.stall = ChunkBytes, peerStall
	p.open, p.hashing, p.poke = make(chan struct{}, maxOpenRanges), make(chan struct{}, concurrentHashes), make(chan struct{}, 1)
	p.damaged = map[fileID]error{}
}

func (p *peers) wake() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

func (p *peers) damage(id fileID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.damaged[id]
}

// version is the version of the file that was checked.
func (m *Model) version() fileID { return fileID{m.Path, m.Size, m.Modified.UnixNano()} }

// Offers is what this node can tell others of its models: all that can be used,
// but those whose bytes are known to be damaged.
func (s *Store) Offers(ctx context.Context) ([]PeerModel, error) {
	all, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	offers := make([]PeerModel, 0, len(all))
	for _, m := range all {
		if s.peers.damage(m.version()) != nil {
			continue
		}
		p := PeerModel{Name: m.Name, Digest: m.Digest, Size: m.Size, Kind: kindOf(m.Info), License: m.License, Origin: s.originOf(m.Name)}
		if !isLine(p.License) {
			p.License = ""
		}
		if !isLine(p.Origin) {
			p.Origin = ""
		}
		offers = append(offers, p)
	}
	return offers, nil
}

func kindOf(info gguf.Summary) string {
	switch {
	case info.IsEmbedding:
		return KindEmbedding
	case info.CanChat():
		return KindChat
	}
	return KindCompletion
}

// originOf is where a model came from if other nodes may say so, too: what an
// operator did with a file of this machine means nothing elsewhere.
func (s *Store) originOf(shown string) string {
	n, err := ParseName(shown)
	if err != nil {
		return ""
	}
	e := s.lookup(n)
	if e == nil || e.origin == "upload" || strings.HasPrefix(e.origin, "file ") || strings.HasPrefix(e.origin, "copy of ") {
		return ""
	}
	return e.origin
}

// byDigest finds a listed model by the digest of its file. Nothing else than
// what the store lists is ever opened for another node. The error is a *RefError
// or ErrNotFound.
func (s *Store) byDigest(digest string) (Model, error) {
	if !hexPattern.MatchString(digest) {
		return Model{}, &RefError{Field: "digest", Value: digest, Allowed: digestAllowed}
	}
	if m, ok := s.listed(digest); ok {
		return m, nil
	}
	s.mu.Lock()
	stale := s.now().Sub(s.mu.scanned) >= rescanAfter
	s.mu.Unlock()
	if stale {
		s.scan()
		if m, ok := s.listed(digest); ok {
			return m, nil
		}
	}
	return Model{}, fmt.Errorf("%w: no file here has the digest %s", ErrNotFound, digest)
}

func (s *Store) listed(digest string) (Model, bool) {
	s.mu.Lock()
	paths := map[string]bool{}
	for id, known := range s.mu.digests {
		if known == digest {
			paths[id.path] = true
		}
	}
	var candidates []*entry
	for _, e := range s.mu.index {
		if e.digest == digest || e.digest == "" && paths[e.path] {
			candidates = append(candidates, e)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(candidates, func(a, b *entry) int { return strings.Compare(a.shown, b.shown) })
	for _, e := range candidates {
		if m, err := s.model(e); err == nil && m.Digest == digest && s.peers.damage(m.version()) == nil {
			return m, true
		}
	}
	return Model{}, false
}

// openModel opens the version of a model's file that was checked, no other.
func openModel(m Model) (*os.File, error) {
	f, err := os.Open(m.Path)
	if err != nil {
		return nil, scrub(err)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != m.Size || !info.ModTime().Equal(m.Modified)) {
		err = &BrokenError{Name: m.Name, Err: errors.New("its file has just changed")}
	}
	if err != nil {
		f.Close()
		return nil, scrub(err)
	}
	return f, nil
}

// RangeError refuses to read a part of a file.
type RangeError struct{ From, N, Size int64 }

func (e *RangeError) Error() string {
	return fmt.Sprintf("the range of %d bytes from byte %d is not allowed: ranges have 1 to %d bytes and end within the file, which has %d", e.N, e.From, MaxRangeBytes, e.Size)
}

// OpenRange opens n bytes, from byte from on, of the listed model file with a
// digest (hex SHA-256), and returns them with the size of the whole. They come as
// they are on the disk: whoever gets them checks them. The error is a *RefError,
// ErrNotFound, a *RangeError, ErrBusy or a *BrokenError. The caller closes what it
// gets, of which there are at most 64 at a time.
func (s *Store) OpenRange(digest string, from, n int64) (io.ReadCloser, int64, error) {
	m, err := s.byDigest(digest)
	if err != nil {
		return nil, 0, err
	}
	if from < 0 || n < 1 || n > MaxRangeBytes || from > m.Size-n {
		return nil, 0, &RangeError{From: from, N: n, Size: m.Size}
	}
	r, err := s.openPiece(m, from, n)
	return r, m.Size, err
}

func (s *Store) openPiece(m Model, from, n int64) (io.ReadCloser, error) {
	select {
	case s.peers.open <- struct{}{}:
	default:
		return nil, ErrBusy
	}
	release := func() { <-s.peers.open }
	f, err := openModel(m)
	if err != nil {
		release()
		return nil, err
	}
	return &piece{Reader: io.NewSectionReader(f, from, n), close: sync.OnceValue(func() error {
		defer release()
		return f.Close()
	})}, nil
}

// piece is a part of an open file.
type piece struct {
	io.Reader
	close func() error
}

func (p *piece) Close() error { return p.close() }

// Head opens the header of a listed model file: everything before its first
// tensor, that is metadata, tokenizer and tensor list. It returns the number of
// bytes, too, and fails as OpenRange does; more than MaxHeadBytes are refused.
func (s *Store) Head(ctx context.Context, digest string) (io.ReadCloser, int64, error) {
	m, err := s.byDigest(digest)
	if err != nil {
		return nil, 0, err
	}
	c := s.check(m.version())
	if c.err != nil {
		return nil, 0, &BrokenError{Name: m.Name, Err: c.err}
	}
	if c.head > MaxHeadBytes {
		return nil, 0, &BrokenError{Name: m.Name, Err: errHeadTooLong}
	}
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	r, err := s.openPiece(m, 0, c.head)
	return r, c.head, err
}

// errHeadTooLong refuses a header that no published model comes near.
var errHeadTooLong = fmt.Errorf("its header has more than the %s that are allowed between nodes", bytesText(MaxHeadBytes))

// How long what is made for other nodes, and what was got from them, is kept.
const (
	chunksKept = 7 * 24 * time.Hour  // the chunk list of a file that is not here any more
	headKept   = 30 * 24 * time.Hour // a header since it was asked for the last time
)

// cleanPeers removes old chunk lists and headers. The index must be there.
func (s *Store) cleanPeers() {
	used := map[string]bool{}
	s.mu.Lock()
	for _, e := range s.mu.index {
		used[e.digest] = true
	}
	for _, digest := range s.mu.digests {
		used[digest] = true
	}
	s.mu.Unlock()
	s.removeOld("chunks", chunksKept, used)
	s.removeOld("heads", headKept, nil)
}

func (s *Store) headPath(digest string) string {
	return filepath.Join(s.cfg.Dir, "heads", digest+".gguf")
}
