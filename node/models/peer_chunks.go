package models

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Limits of chunk lists.
const (
	ChunkBytes = 8 << 20 // of one chunk; other nodes may cut smaller, never larger
	MaxChunks  = maxBlob / ChunkBytes

	// MaxManifestBytes is the length of the longest encoded Manifest: 16 MiB for
	// a file of 4 TiB, 172 kB for one of 42 GB.
	MaxManifestBytes = manifestHead + MaxChunks*sha256.Size + sha256.Size

	minChunkBytes    = 4 << 10
	concurrentHashes = 2               // chunk lists made at once because somebody waits
	shareInterval    = time.Minute     // between two looks for new models
	hashDuty         = 4               // in the background one part in so many of the time is worked
	hashPauseMax     = 5 * time.Second // of one pause; a slow disk should still get through
)

// Manifest is the chunk list of a model file: what another node needs to check
// each chunk of it as it comes. (What the store keeps for each name in its folder
// manifests/ is another thing.) It is bound to Digest only by the whole file:
// chunks that are all right and do not add up to Digest prove it wrong.
type Manifest struct {
	Digest     string // hex SHA-256 of the file
	Size       int64  // bytes of the file
	ChunkBytes int64  // a power of two from 4 KiB to ChunkBytes
	Chunks     [][sha256.Size]byte
}

// ManifestError refuses a chunk list.
type ManifestError struct {
	Field  string
	Reason string // goes on from the field's name
}

func (e *ManifestError) Error() string { return "chunk list: " + e.Field + " " + e.Reason }

func badManifest(field, format string, args ...any) error {
	return &ManifestError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Validate checks that the fields fit each other. The error is a *ManifestError.
func (m *Manifest) Validate() error {
	if !hexPattern.MatchString(m.Digest) {
		return badManifest("digest", "is %s: %s", quote(m.Digest), digestAllowed)
	}
	n, err := chunkCount(m.Size, m.ChunkBytes)
	if err != nil {
		return err
	}
	if n != len(m.Chunks) {
		return badManifest("chunks", "are %d, allowed are %d for %d bytes", len(m.Chunks), n, m.Size)
	}
	return nil
}

// chunkCount is the number of chunks of a file.
func chunkCount(size, chunk int64) (int, error) {
	if size < 1 || size > maxBlob {
		return 0, badManifest("size", "is %d, allowed are 1 to %d bytes", size, int64(maxBlob))
	}
	if chunk < minChunkBytes || chunk > ChunkBytes || chunk&(chunk-1) != 0 {
		return 0, badManifest("chunk size", "is %d, allowed are powers of two from %d to %d", chunk, minChunkBytes, ChunkBytes)
	}
	n := (size + chunk - 1) / chunk
	if n > MaxChunks {
		return 0, badManifest("chunk size", "is %d, which makes %d chunks, allowed are %d", chunk, n, MaxChunks)
	}
	return int(n), nil
}

// span is where chunk i lies.
func (m *Manifest) span(i int) (from, n int64) {
	from = int64(i) * m.ChunkBytes
	return from, min(m.ChunkBytes, m.Size-from)
}

// The encoding, little-endian: magic, digest, size (8 bytes), bytes of a chunk
// (4), one SHA-256 for each chunk, and the SHA-256 of all this.
const (
	manifestMagic = "tandmf01"
	manifestHead  = len(manifestMagic) + sha256.Size + 8 + 4
)

// Encode is the valid Manifest as ParseManifest takes it.
func (m *Manifest) Encode() []byte {
	digest, _ := hex.DecodeString(m.Digest)
	b := make([]byte, 0, manifestHead+(len(m.Chunks)+1)*sha256.Size)
	b = append(b, manifestMagic...)
	b = append(b, digest...)
	b = binary.LittleEndian.AppendUint64(b, uint64(m.Size))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.ChunkBytes))
	for i := range m.Chunks {
		b = append(b, m.Chunks[i][:]...)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// ParseManifest reads what Encode made. It keeps nothing of b and allocates no
// more than b is long. The error is a *ManifestError.
func ParseManifest(b []byte) (Manifest, error) {
	if len(b) < manifestHead+2*sha256.Size || len(b) > MaxManifestBytes {
		return Manifest{}, badManifest("length", "is %d, allowed are %d to %d bytes", len(b), manifestHead+2*sha256.Size, MaxManifestBytes)
	}
	if !bytes.HasPrefix(b, []byte(manifestMagic)) {
		return Manifest{}, badManifest("magic", "is %s, allowed is %q", quote(string(b[:len(manifestMagic)])), manifestMagic)
	}
	body, end := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if sum := sha256.Sum256(body); !bytes.Equal(sum[:], end) {
		return Manifest{}, badManifest("check sum", "does not fit, the list is damaged")
	}
	rest := body[len(manifestMagic):]
	m := Manifest{Digest: hex.EncodeToString(rest[:sha256.Size])}
	rest = rest[sha256.Size:]
	m.Size, m.ChunkBytes = int64(binary.LittleEndian.Uint64(rest)), int64(binary.LittleEndian.Uint32(rest[8:]))
	rest = rest[12:]
	n, err := chunkCount(m.Size, m.ChunkBytes)
	if err != nil {
		return Manifest{}, err
	}
	if len(rest) != n*sha256.Size {
		return Manifest{}, badManifest("length", "is %d, allowed are %d bytes for %d chunks", len(b), len(b)-len(rest)+n*sha256.Size, n)
	}
	m.Chunks = make([][sha256.Size]byte, n)
	for i := range m.Chunks {
		copy(m.Chunks[i][:], rest[i*sha256.Size:])
	}
	return m, nil
}

// key is equal for equal chunk lists.
func (m *Manifest) key() [sha256.Size]byte { return sha256.Sum256(m.Encode()) }

func (s *Store) chunksPath(digest string) string { return filepath.Join(s.cfg.Dir, "chunks", digest) }

// keptManifest is a chunk list that was made before.
func (s *Store) keptManifest(digest string) (Manifest, error) {
	b, err := readLimited(s.chunksPath(digest), int64(MaxManifestBytes))
	if err != nil {
		return Manifest{}, err
	}
	m, err := ParseManifest(b)
	if err == nil && m.Digest != digest {
		err = badManifest("digest", "is that of another file")
	}
	return m, err
}

// keepManifest writes a chunk list down. It has a check sum: if it is lost or
// damaged it costs a computation.
func (s *Store) keepManifest(m *Manifest) error {
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "partial"), "chunks-*")
	if err != nil {
		return scrub(err)
	}
	defer discard(f)
	if _, err := f.Write(m.Encode()); err != nil {
		return scrub(err)
	}
	return scrub(os.Rename(f.Name(), s.chunksPath(m.Digest)))
}

// Manifest is the chunk list of the listed model file with a digest. One that has
// not been made is made now: the file is read and its digest is checked, which takes
// some seconds for each gigabyte. The error is a *RefError, ErrNotFound, a *BrokenError
// whose cause is a *DigestError if the file is damaged, or the reason why ctx ended.
func (s *Store) Manifest(ctx context.Context, digest string) (Manifest, error) {
	m, err := s.byDigest(digest)
	if err != nil {
		return Manifest{}, err
	}
	if made, err := s.keptManifest(digest); err == nil && made.Size == m.Size {
		return made, nil
	}
	s.peers.hurry.Add(1)
	defer s.peers.hurry.Add(-1)
	select {
	case s.peers.hashing <- struct{}{}:
		defer func() { <-s.peers.hashing }()
	case <-ctx.Done():
		return Manifest{}, context.Cause(ctx)
	}
	return s.makeManifest(ctx, m)
}

// PrepareSharing makes the chunk lists, and with them the digests that are not
// known, of all models that are here or come, one file after the other, three
// quarters of the time idle. It returns when ctx ends.
func (s *Store) PrepareSharing(ctx context.Context) {
	tick := time.NewTicker(shareInterval)
	defer tick.Stop()
	for {
		s.prepareAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-s.peers.poke:
		case <-tick.C:
		}
	}
}

func (s *Store) prepareAll(ctx context.Context) {
	all, err := s.List(ctx)
	if err != nil {
		return
	}
	for _, m := range all {
		if _, ok := isFile(s.chunksPath(m.Digest)); m.Digest != "" && ok || s.peers.damage(m.version()) != nil {
			continue
		}
		if _, err := s.makeManifest(ctx, m); ctx.Err() != nil {
			return
		} else if err != nil {
			s.report(m.version(), "model that other nodes might want", m.Name, err)
		}
	}
}

// makeManifest makes the chunk list of a model, unless somebody has done so in
// the meantime, and notes the digest.
func (s *Store) makeManifest(ctx context.Context, m Model) (Manifest, error) {
	release, err := s.pulls.claim(ctx, "chunks of "+m.Path)
	if err != nil {
		return Manifest{}, err
	}
	defer release()
	if m.Digest == "" {
		s.mu.Lock()
		m.Digest = s.mu.digests[m.version()]
		s.mu.Unlock()
	}
	if m.Digest != "" {
		if made, err := s.keptManifest(m.Digest); err == nil && made.Size == m.Size {
			return made, nil
		}
	}
	f, err := openModel(m)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	made, err := hashChunks(ctx, f, m.Size, s.peers.chunkBytes, s.hashPause)
	if err != nil {
		return Manifest{}, causeOf(ctx, scrub(err))
	}
	if info, err := f.Stat(); err != nil || info.Size() != m.Size || !info.ModTime().Equal(m.Modified) {
		return Manifest{}, &BrokenError{Name: m.Name, Err: errors.New("its file has changed while it was read")}
	}
	if m.Digest != "" && made.Digest != m.Digest {
		err := &BrokenError{Name: m.Name, Err: &DigestError{Want: m.Digest, Got: made.Digest}}
		s.peers.mu.Lock()
		s.peers.damaged[m.version()] = err
		s.peers.mu.Unlock()
		return Manifest{}, err
	}
	if m.Digest == "" {
		s.mu.Lock()
		s.mu.digests[m.version()] = made.Digest
		s.mu.Unlock()
		s.saveState()
	}
	if err := s.keepManifest(&made); err != nil {
		s.log.Info("a chunk list is not kept and will be made again", "model", m.Name, "err", err)
	}
	return made, nil
}

// hashPause leaves the machine to others after some work, unless somebody waits.
func (s *Store) hashPause(ctx context.Context, worked time.Duration) error {
	if s.peers.hurry.Load() > 0 {
		return nil
	}
	timer := time.NewTimer(min(worked*(hashDuty-1), hashPauseMax))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hashChunks reads size bytes and makes their chunk list. pause is called after
// each chunk.
func hashChunks(ctx context.Context, r io.Reader, size, chunk int64, pause func(context.Context, time.Duration) error) (Manifest, error) {
	n, err := chunkCount(size, chunk)
	if err != nil {
		return Manifest{}, err
	}
	m := Manifest{Size: size, ChunkBytes: chunk, Chunks: make([][sha256.Size]byte, n)}
	whole, buf := sha256.New(), make([]byte, copyBuffer)
	for i := range m.Chunks {
		start := time.Now()
		_, length := m.span(i)
		one := sha256.New()
		got, err := io.CopyBuffer(io.MultiWriter(whole, one), io.LimitReader(&contextReader{ctx, r}, length), buf)
		if err == nil && got < length {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Manifest{}, err
		}
		one.Sum(m.Chunks[i][:0])
		if err := pause(ctx, time.Since(start)); err != nil {
			return Manifest{}, err
		}
	}
	m.Digest = hexSum(whole)
	return m, nil
}
