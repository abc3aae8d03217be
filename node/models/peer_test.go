package models

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"tandem/node/models/gguf/gguftest"
)

// withModel is a store that has tiny() as "m".
func withModel(t *testing.T) *Store {
	t.Helper()
	s := peerStore(t)
	put(t, s, tiny())
	if _, err := s.Create("m", "", map[string]string{"m.gguf": "sha256:" + sum(tiny())}); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOffers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file.gguf"), other())
	pooled, err := gguftest.Qwen3().Embedder().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "vectors.gguf"), pooled)
	write(t, filepath.Join(dir, "broken.gguf"), []byte("GGUF"))
	srv := newServer(t)
	srv.model("smol", tiny())
	s, _ := newStore(t, func(c *Config) { c.FileDirs, c.OllamaRegistry = []string{dir}, srv.URL })
	if _, err := s.Pull(context.Background(), "smol", nil); err != nil {
		t.Fatal(err)
	}
	got, err := s.Offers(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	size := func(b []byte) int64 { return int64(len(b)) }
	want := []PeerModel{
		{Name: "file", Size: size(other()), Kind: KindChat},
		{Name: "smol:latest", Digest: sum(tiny()), Size: size(tiny()), Kind: KindChat, Origin: s.web.registry.Host + "/library/smol:latest"},
		{Name: "vectors", Size: size(pooled), Kind: KindEmbedding},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, p := range got {
		if err := p.Validate(); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestOpenRange(t *testing.T) {
	s := withModel(t)
	digest, size := sum(tiny()), int64(len(tiny()))
	for _, tc := range []struct{ from, n int64 }{{0, 1}, {0, size}, {100, 1000}, {size - 1, 1}} {
		r, whole, err := s.OpenRange(digest, tc.from, tc.n)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil || whole != size || !bytes.Equal(b, tiny()[tc.from:tc.from+tc.n]) {
			t.Errorf("%+v: %d bytes of %d, %v", tc, len(b), whole, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		r.Close()
	}
	var refused *RangeError
	for _, tc := range []struct{ from, n int64 }{{-1, 1}, {0, 0}, {0, -1}, {0, size + 1}, {size, 1}, {1, size}, {1 << 62, 1 << 62}, {1<<63 - 1, 1}, {0, MaxRangeBytes + 1}, {-1 << 63, 1<<63 - 1}} {
		if _, _, err := s.OpenRange(digest, tc.from, tc.n); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	for _, name := range []string{"", "m", "../blobs/sha256-" + digest, "sha256:" + digest, "/etc/passwd", digest[:63], digest + "\x00"} {
		if _, _, err := s.OpenRange(name, 0, 1); !errors.Is(err, ErrBadName) {
			t.Errorf("%q: %v", name, err)
		}
	}
	// A blob that no name means is nobody's business.
	put(t, s, other())
	if _, _, err := s.OpenRange(sum(other()), 0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file that is not listed: %v", err)
	}
	if err := s.Delete("m"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.OpenRange(digest, 0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a deleted model: %v", err)
	}
}

func TestOpenRangeBusy(t *testing.T) {
	s := withModel(t)
	var open []io.Closer
	for range maxOpenRanges {
		r, _, err := s.OpenRange(sum(tiny()), 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, r)
	}
	if _, _, err := s.OpenRange(sum(tiny()), 0, 1); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v", err)
	}
	for _, r := range open {
		r.Close()
		r.Close() // gives nothing back twice
	}
	if len(s.peers.open) != 0 {
		t.Errorf("%d ranges count as open", len(s.peers.open))
	}
}

func TestManifestOfModel(t *testing.T) {
	s := withModel(t)
	want := listOf(tiny())
	for range 2 { // made, then kept
		got, err := s.Manifest(context.Background(), sum(tiny()))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %d chunks of %d bytes, %v", len(got.Chunks), got.Size, err)
		}
	}
	// A kept list that is damaged is made again.
	path := s.chunksPath(sum(tiny()))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, flipped(text, len(text)/2))
	if got, err := s.Manifest(context.Background(), sum(tiny())); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("after damage: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	os.Remove(path)
	if _, err := s.Manifest(ctx, sum(tiny())); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestManifestOfDamagedModel: a file that is not what its name says is not given
// to anybody.
func TestManifestOfDamagedModel(t *testing.T) {
	s := withModel(t)
	write(t, s.blobPath(sum(tiny())), flipped(tiny(), len(tiny())-1))
	_, err := s.Manifest(context.Background(), sum(tiny()))
	var broken *BrokenError
	var wrong *DigestError
	if !errors.As(err, &broken) || !errors.As(err, &wrong) {
		t.Fatalf("got %v", err)
	}
	noPath(t, err)
	if offers, err := s.Offers(context.Background()); err != nil || len(offers) != 0 {
		t.Errorf("offers %v, %v", offers, err)
	}
	if _, _, err := s.OpenRange(sum(tiny()), 0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("range: %v", err)
	}
}

// TestPrepareSharing: digests and chunk lists of all models, also of those that
// come later, are made in the background.
func TestPrepareSharing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file.gguf"), other())
	s, _ := newStore(t, func(c *Config) { c.FileDirs = []string{dir} })
	s.peers.chunkBytes = testChunk
	s.peers.hurry.Add(1) // leaves out pauses
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.PrepareSharing(ctx) }()
	has := func(data []byte) func() bool {
		return func() bool {
			m, err := s.keptManifest(sum(data))
			return err == nil && reflect.DeepEqual(m, listOf(data))
		}
	}
	until(t, "the list of a file", has(other()))
	put(t, s, tiny())
	if _, err := s.Create("m", "", map[string]string{"m.gguf": "sha256:" + sum(tiny())}); err != nil {
		t.Fatal(err)
	}
	until(t, "the list of a new model", has(tiny()))
	cancel()
	<-ended
	if r, _, err := s.OpenRange(sum(other()), 0, 1); err != nil {
		t.Error(err)
	} else {
		r.Close()
	}
	// A file that changes is another one.
	write(t, filepath.Join(dir, "file.gguf"), append(bytes.Clone(other()), 0))
	if _, _, err := s.OpenRange(sum(other()), 0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("a changed file: %v", err)
	}
}

// TestPrepareSharingIsInterrupted ends it in one of its pauses.
func TestPrepareSharingIsInterrupted(t *testing.T) {
	s := withModel(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errGone)
	if err := s.hashPause(ctx, time.Hour); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
	s.PrepareSharing(ctx)
	if _, err := s.keptManifest(sum(tiny())); err == nil {
		t.Error("a chunk list was made after the end")
	}
}

func TestCleanPeers(t *testing.T) {
	s := withModel(t)
	old := time.Now().Add(-365 * 24 * time.Hour)
	gone := sum(other())
	for _, path := range []string{s.chunksPath(gone), s.chunksPath(sum(tiny())), s.headPath(gone)} {
		write(t, path, []byte("x"))
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	s.cleanPeers()
	if got := dirNames(filepath.Join(s.cfg.Dir, "chunks"), 10); !reflect.DeepEqual(got, []string{sum(tiny())}) {
		t.Errorf("chunk lists %v", got)
	}
	if got := dirNames(filepath.Join(s.cfg.Dir, "heads"), 10); len(got) != 0 {
		t.Errorf("headers %v", got)
	}
}

func FuzzParseManifest(f *testing.F) {
	for _, data := range [][]byte{{1}, tiny(), tiny()[:testChunk], tiny()[:testChunk+1]} {
		m := listOf(data)
		f.Add(m.Encode())
	}
	long := listOf(tiny())
	f.Add(long.Encode()[:100])
	huge := Manifest{Digest: sum(nil), Size: maxBlob, ChunkBytes: ChunkBytes, Chunks: long.Chunks}
	f.Add(huge.Encode())
	f.Add([]byte(manifestMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseManifest(b)
		if err != nil {
			var refused *ManifestError
			if !errors.As(err, &refused) || refused.Field == "" {
				t.Fatalf("refused with %v", err)
			}
			// Without a fitting check sum nothing behind it would ever be reached.
			if len(b) < 32 {
				return
			}
			if m, err = ParseManifest(resealed(b)); err != nil {
				return
			}
			b = resealed(b)
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(m.Encode(), b) {
			t.Fatal("it is encoded otherwise")
		}
		total := int64(0)
		for i := range m.Chunks {
			from, n := m.span(i)
			if from != total || n < 1 {
				t.Fatalf("chunk %d lies at %d and has %d bytes", i, from, n)
			}
			total += n
		}
		if total != m.Size {
			t.Fatalf("the chunks have %d bytes, the file %d", total, m.Size)
		}
	})
}

// resealed gives b a check sum that fits.
func resealed(b []byte) []byte {
	m := sha256.Sum256(b[:len(b)-32])
	return append(bytes.Clone(b[:len(b)-32]), m[:]...)
}

func TestParseManifestRefuses(t *testing.T) {
	m := listOf(tiny())
	good := m.Encode()
	for _, tc := range []struct {
		name  string
		edit  func([]byte) []byte
		field string
	}{
		{"empty", func([]byte) []byte { return nil }, "length"},
		{"another magic", func(b []byte) []byte { b[0] = 'x'; return resealed(b) }, "magic"},
		{"a flipped bit", func(b []byte) []byte { return flipped(b, 60) }, "check sum"},
		{"no bytes", func(b []byte) []byte { copy(b[40:], make([]byte, 8)); return resealed(b) }, "size"},
		{"a negative size", func(b []byte) []byte { b[47] = 0x80; return resealed(b) }, "size"},
		{"an absurd size", func(b []byte) []byte { b[46] = 0x80; return resealed(b) }, "size"},
		{"a crooked chunk size", func(b []byte) []byte { b[48]++; return resealed(b) }, "chunk size"},
		{"no chunk size", func(b []byte) []byte { copy(b[48:], make([]byte, 4)); return resealed(b) }, "chunk size"},
		{"too large chunks", func(b []byte) []byte { b[51] = 1; b[49] = 0; return resealed(b) }, "chunk size"},
		{"a chunk too few", func(b []byte) []byte { return resealed(b[:len(b)-32]) }, "length"},
		{"a chunk too many", func(b []byte) []byte { return resealed(append(b, make([]byte, 32)...)) }, "length"},
		{"too many chunks", func(b []byte) []byte { b[45] = 1; return resealed(b) }, "chunk size"},
	} {
		_, err := ParseManifest(tc.edit(bytes.Clone(good)))
		var refused *ManifestError
		if !errors.As(err, &refused) || refused.Field != tc.field {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.field)
		}
	}
}
