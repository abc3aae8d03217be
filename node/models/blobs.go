package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits of what is stored.
const (
	maxBlob       = 4 << 40   // bytes of one file; the largest published models have 1.4 TB
	reserveBytes  = 256 << 20 // kept free on the disk, for everybody else
	spaceInterval = 64 << 20  // bytes between two looks at the free space
	copyBuffer    = 256 << 10

	partialKept = 7 * 24 * time.Hour // an interrupted download is kept for so long
	orphanKept  = 24 * time.Hour     // an uploaded blob that no name refers to
)

func (s *Store) blobPath(hex string) string {
	return filepath.Join(s.cfg.Dir, "blobs", "sha256-"+hex)
}

// HasBlob says whether the store has the blob "sha256:HEX".
func (s *Store) HasBlob(digest string) bool {
	hex, err := ParseDigest(digest)
	if err != nil {
		return false
	}
	info, err := os.Stat(s.blobPath(hex))
	return err == nil && info.Mode().IsRegular()
}

// PutBlob stores r as the blob digest. It is verified while it is written;
// nothing is left of one that fails. The error is a *RefError, *DigestError or
// *SpaceError, or that of r.
func (s *Store) PutBlob(ctx context.Context, digest string, r io.Reader) error {
	want, err := ParseDigest(digest)
	if err != nil {
		return err
	}
	if s.HasBlob(digest) {
		return nil
	}
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "partial"), "upload-*")
	if err != nil {
		return scrub(err)
	}
	defer discard(f)
	sum := sha256.New()
	w := &spaceWriter{store: s, f: f, sum: sum}
	if _, err := io.CopyBuffer(w, &contextReader{ctx, r}, make([]byte, copyBuffer)); err != nil {
		return w.explain(err)
	}
	if got := hexSum(sum); got != want {
		return &DigestError{Want: want, Got: got}
	}
	return s.keep(f, want)
}

// keep makes a complete file of partial/ the blob hex.
func (s *Store) keep(f *os.File, hex string) error {
	if err := f.Sync(); err != nil {
		return scrub(err)
	}
	if err := f.Chmod(0o644); err != nil {
		return scrub(err)
	}
	path := s.blobPath(hex)
	if err := os.Rename(f.Name(), path); err != nil {
		return scrub(err)
	}
	return syncDir(filepath.Dir(path))
}

// discard closes a temporary file and removes it, if it still has its name.
func discard(f *os.File) {
	f.Close()
	os.Remove(f.Name())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return scrub(err)
	}
	defer d.Close()
	return scrub(d.Sync())
}

func hexSum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

// room fails if n more bytes would go into the reserve.
func (s *Store) room(n int64) error {
	free, err := s.free(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("free disk space: %w", scrub(err))
	}
	if n > free-reserveBytes {
		return &SpaceError{Need: n + reserveBytes, Free: free}
	}
	return nil
}

// spaceWriter writes and hashes; it stops before the disk is full.
type spaceWriter struct {
	store   *Store
	f       *os.File
	sum     hash.Hash
	n       int64 // bytes in the file
	checked int64 // n at the last look at the free space
}

func (w *spaceWriter) Write(p []byte) (int, error) {
	if w.n+int64(len(p)) > maxBlob {
		return 0, fmt.Errorf("the file has more than %s", bytesText(maxBlob))
	}
	if w.checked == 0 || w.n-w.checked >= spaceInterval {
		if err := w.store.room(int64(len(p))); err != nil {
			return 0, err
		}
		w.checked = max(w.n, 1)
	}
	n, err := w.f.Write(p)
	w.sum.Write(p[:n])
	w.n += int64(n)
	return n, err
}

// explain turns the errors of a full disk into one with the free space.
func (w *spaceWriter) explain(err error) error { return w.store.explain(err) }

func (s *Store) explain(err error) error {
	err = scrub(err)
	var full *SpaceError
	if errors.As(err, &full) && full.Need == 0 {
		free, _ := s.free(s.cfg.Dir)
		return &SpaceError{Free: free}
	}
	return err
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}

// clean removes what crashes and abandoned transfers have left: partial files
// and blobs without a name, once they are old.
func (s *Store) clean() {
	s.removeOld("partial", partialKept, nil)
	if used, ok := s.usedBlobs(); ok {
		s.removeOld("blobs", orphanKept, used)
	}
}

func (s *Store) removeOld(dir string, kept time.Duration, used map[string]bool) {
	dir = filepath.Join(s.cfg.Dir, dir)
	for _, name := range dirNames(dir, maxManifests) {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && !used[strings.TrimPrefix(name, "sha256-")] && s.now().Sub(info.ModTime()) > kept {
			os.Remove(path)
		}
	}
}
