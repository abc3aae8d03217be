package kvstore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// exported is a file with blocks from RAM and from disk.
func exported(t testing.TB, hs []block.Header) []byte {
	t.Helper()
	d := newFakeDisk()
	preload(d, hs[:len(hs)/2])
	s := open(t, kvstore.Options{Disk: d})
	mustPut(t, s, hs[len(hs)/2:])
	var file bytes.Buffer
	out, err := s.Export(context.Background(), &file, block.ID{})
	if err != nil || out.Blocks != len(hs) || out.Bytes != int64(len(hs)*blockBytes()) || out.Skipped != 0 {
		t.Fatalf("export: %+v, %v", out, err)
	}
	return file.Bytes()
}

func importAll(s *kvstore.Store, file []byte) (kvstore.Imported, error) {
	return s.Import(context.Background(), bytes.NewReader(file))
}

func TestExportAndImport(t *testing.T) {
	hs := headers(1, 10)
	file := exported(t, hs)
	for name, d := range map[string]*fakeDisk{"to disk": newFakeDisk(), "to RAM": nil} {
		t.Run(name, func(t *testing.T) {
			o := kvstore.Options{}
			if d != nil {
				o.Disk = d
			}
			s := open(t, o)
			in, err := importAll(s, file)
			if in.Blocks != 10 || in.Bytes != int64(10*blockBytes()) || err != nil {
				t.Errorf("got %+v, %v", in, err)
			}
			wantRun(t, s, hs, 10, 10)
			in, err = importAll(s, file)
			if in.Blocks != 0 || in.Held != 10 || err != nil {
				t.Errorf("again: got %+v, %v", in, err)
			}
			if err := s.Idle(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExportOfOnePath(t *testing.T) {
	s := open(t, kvstore.Options{})
	start, ends := branches(4, 3)
	for _, hs := range [][]block.Header{start, ends[0], ends[1], headers(7, 3)} {
		mustPut(t, s, hs)
	}
	var file bytes.Buffer
	if out, err := s.Export(context.Background(), &file, ends[0][1].ID); out.Blocks != 7 || err != nil {
		t.Errorf("got %+v, %v", out, err)
	}
	other := open(t, kvstore.Options{})
	if in, err := importAll(other, file.Bytes()); in.Blocks != 7 || err != nil {
		t.Errorf("got %+v, %v", in, err)
	}
	wantRun(t, other, append(slices.Clone(start), ends[0]...), 7, 7)
	if _, err := s.Export(context.Background(), &file, block.ID{5}); !errors.Is(err, kvstore.ErrNotFound) {
		t.Errorf("unknown block: %v", err)
	}
	broken := errors.New("no more room")
	if _, err := s.Export(context.Background(), failingWriter{broken}, block.ID{}); !errors.Is(err, broken) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// A file that was cut gives the blocks before the cut, and says so.
func TestImportOfACutFile(t *testing.T) {
	hs := headers(1, 3)
	file := exported(t, hs)
	for cut := 0; cut < len(file); cut += 7 {
		s := open(t, kvstore.Options{})
		in, err := importAll(s, file[:cut])
		if !errors.Is(err, io.ErrUnexpectedEOF) && (cut > 12 || !errors.Is(err, block.ErrInvalid)) {
			t.Errorf("cut at %d: %v", cut, err)
		}
		wantRun(t, s, hs, in.Blocks, in.Blocks)
		closeStore(t, s)
	}
}

// Whatever byte of a file changes, no wrong block is visible.
func TestImportOfADamagedFile(t *testing.T) {
	hs := headers(1, 3)
	file := exported(t, hs)
	for at := 0; at < len(file); at += 5 {
		damaged := slices.Clone(file)
		damaged[at] ^= 0x10
		s := open(t, kvstore.Options{})
		in, err := importAll(s, damaged)
		if err == nil && in.Damaged+in.Unknown == 0 {
			t.Errorf("byte %d changed, and nobody noticed: %+v", at, in)
		}
		wantRun(t, s, hs, in.Blocks, in.Blocks)
		closeStore(t, s)
	}
}

func TestImportRefuses(t *testing.T) {
	hs := headers(1, 3)
	good := exported(t, hs)
	magic := good[:12]
	file := func(records ...kvstore.Record) []byte {
		out := slices.Clone(magic)
		for _, r := range records {
			out = append(block.AppendHeader(append(out, 'B'), r.Header), r.Payload...)
		}
		return binary.LittleEndian.AppendUint64(append(out, 'E'), uint64(len(records)))
	}
	forged := sealed(hs[0])
	forged.Header.Tokens = []block.Token{1, 2, 3, 4}
	foreign := sealed(hs[0])
	foreign.Header.Fingerprint[0]++
	nan := sealed(hs[0])
	nan.Payload[1] = 0x7e
	huge := sealed(hs[0])
	huge.Header.PayloadBytes = testCount << 20 // what it claims; no such bytes follow
	tests := []struct {
		name string
		file []byte
		want kvstore.Imported
		err  error
	}{
		{"nothing", nil, kvstore.Imported{}, block.ErrInvalid},
		{"another file", []byte("GGUF, and more bytes than that"), kvstore.Imported{}, block.ErrInvalid},
		{"an orphan", file(sealed(hs[1])), kvstore.Imported{Orphans: 1}, nil},
		{"tokens of another prompt", file(resealed(forged)), kvstore.Imported{Damaged: 1}, nil},
		{"a shape that nobody knows", file(resealed(foreign)), kvstore.Imported{Unknown: 1}, nil},
		{"not a number", file(resealed(nan)), kvstore.Imported{Damaged: 1}, nil},
		{"a length that is not the shape's", file(huge), kvstore.Imported{Damaged: 1}, io.ErrUnexpectedEOF},
		{"a wrong count", append(file(sealed(hs[0]))[:len(file(sealed(hs[0])))-8], 2, 0, 0, 0, 0, 0, 0, 0),
			kvstore.Imported{Blocks: 1, Bytes: int64(blockBytes())}, block.ErrDamaged},
		{"rubbish where a block begins", append(slices.Clone(magic), 'X'), kvstore.Imported{}, block.ErrDamaged},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := open(t, kvstore.Options{})
			in, err := importAll(s, tt.file)
			if in != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %+v, %v; want %+v, %v", in, err, tt.want, tt.err)
			}
			if err := s.Idle(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestImportIntoTooLittleRAM(t *testing.T) {
	hs := headers(1, 10)
	s := open(t, kvstore.Options{RAMBytes: ramFor(4)})
	in, err := importAll(s, exported(t, hs))
	if in.Blocks != 4 || in.NoRoom != 1 || in.Orphans != 5 || err != nil {
		t.Errorf("got %+v, %v", in, err)
	}
	wantRun(t, s, hs, 4, 4)
}

func TestImportStopsWhenTheDiskIsFull(t *testing.T) {
	hs := headers(1, 4)
	file := exported(t, hs)
	d := newFakeDisk()
	left := 2
	d.onPut = func(_ context.Context, b []kvstore.Record) ([]kvstore.Record, error) {
		if left--; left < 0 {
			return nil, kvstore.ErrFull
		}
		return b, nil
	}
	s := open(t, kvstore.Options{Disk: d})
	if in, err := importAll(s, file); in.Blocks != 2 || !errors.Is(err, kvstore.ErrFull) {
		t.Errorf("got %+v, %v", in, err)
	}
	wantRun(t, s, hs, 2, 2)
}

// Import never panics, never shows a wrong block, and gives everything back.
func FuzzImport(f *testing.F) {
	hs := headers(1, 2)
	good := exported(f, hs)
	f.Add(good)
	f.Add(good[:40])
	f.Add(binary.LittleEndian.AppendUint64(append(slices.Clone(good[:12]), 'E'), math.MaxUint64))
	s := open(f, kvstore.Options{RAMBytes: ramFor(8)})
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) > 1<<20 {
			return
		}
		_, _ = importAll(s, file)
		wantRun(t, s, hs, s.Stats().RAM.Blocks, s.Stats().RAM.Blocks)
		if err := s.Idle(); err != nil {
			t.Error(err)
		}
		if _, err := s.Evict(context.Background(), block.ID{}); err != nil {
			t.Error(err)
		}
		if n := s.Stats().Arena.Bufs; n > 0 {
			t.Errorf("%d buffers are in use", n)
		}
	})
}
