//go:build linux || darwin

package models

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"tandem/node/models/gguf"
)

func TestHead(t *testing.T) {
	s := withModel(t)
	f, err := gguf.Read(bytes.NewReader(tiny()), int64(len(tiny())))
	if err != nil {
		t.Fatal(err)
	}
	r, n, err := s.Head(context.Background(), sum(tiny()))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || n != f.DataOffset || !bytes.Equal(b, tiny()[:n]) {
		t.Errorf("%d bytes, %v; the first tensor is at %d", n, err, f.DataOffset)
	}
	if _, _, err := s.Head(context.Background(), sum(other())); !errors.Is(err, ErrNotFound) {
		t.Errorf("a model that is not here: %v", err)
	}
	if _, _, err := s.Head(context.Background(), "../x"); !errors.Is(err, ErrBadName) {
		t.Errorf("a path: %v", err)
	}
}

// TestCopyHead: the file passes the validator with the same outcome as the whole
// model, holds its header, takes little room and is not a model.
func TestCopyHead(t *testing.T) {
	whole := append(bytes.Clone(tiny()), make([]byte, 64<<20)...) // as a large model
	want := offer("m", whole)
	f, err := gguf.Read(bytes.NewReader(whole), want.Size)
	if err != nil {
		t.Fatal(err)
	}
	s := peerStore(t)
	n := honest(t, "a", whole)
	path, err := s.CopyHead(context.Background(), want, []PeerSource{n})
	if err != nil {
		t.Fatal(err)
	}
	got, err := gguf.Open(path)
	if err != nil || got.DataOffset != f.DataOffset || got.VocabSize != f.VocabSize || got.WeightBytes != f.WeightBytes || got.Size != want.Size {
		t.Errorf("got %+v, %v", got, err)
	}
	b := make([]byte, f.DataOffset+1000)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.ReadFull(file, b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b[:f.DataOffset], whole[:f.DataOffset]) || !bytes.Equal(b[f.DataOffset:], make([]byte, 1000)) {
		t.Error("the file is not the header and a hole")
	}
	if info, err := file.Stat(); err != nil || info.Size() != want.Size {
		t.Error(info, err)
	} else if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Blocks*512 > f.DataOffset+1<<20 {
		t.Errorf("it takes %d bytes of the disk", st.Blocks*512)
	}
	if most := int(f.DataOffset/testChunk) + 6; n.asked() > most {
		t.Errorf("%d chunks were fetched, at most %d are needed", n.asked(), most)
	}
	if got := names(t, s); got != "" {
		t.Errorf("offered %s", got)
	}
	if _, _, err := s.OpenRange(want.Digest, 0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("range: %v", err)
	}
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	// The second time nobody is asked; a damaged one is fetched again.
	if again, err := s.CopyHead(context.Background(), want, nil); err != nil || again != path {
		t.Errorf("again: %s, %v", again, err)
	}
	write(t, path, []byte("GGUF"))
	if _, err := s.CopyHead(context.Background(), want, []PeerSource{n}); err != nil {
		t.Error(err)
	}
	if _, err := gguf.Open(path); err != nil {
		t.Error(err)
	}
}

func TestCopyHeadOfModelThatIsHere(t *testing.T) {
	s := withModel(t)
	path, err := s.CopyHead(context.Background(), offer("m", tiny()), nil)
	if m, _ := s.Resolve("m"); err != nil || path != m.Path {
		t.Errorf("got %s, %v", path, err)
	}
}

func TestCopyHeadFromBadPeers(t *testing.T) {
	for name, vice := range vices {
		t.Run(name, func(t *testing.T) {
			bad := func() *node { return honest(t, "bad", tiny()).with(func(n *node) { vice.spoil(n, tiny()) }) }
			good := func() *node { return honest(t, "good", tiny()) }
			s := peerStore(t)
			_, err := s.CopyHead(context.Background(), offer("m", tiny()), []PeerSource{bad()})
			if name == "liar" {
				// Nobody can tell that the list of a single node is wrong; the byte
				// that is wrong here is not in the header.
				if err != nil {
					t.Fatal(err)
				}
			} else if !errors.Is(err, vice.want) {
				t.Errorf("alone: %v, want %v", err, vice.want)
			}
			noPath(t, err)
			if name != "liar" && len(dirNames(filepath.Join(s.cfg.Dir, "heads"), 10)) != 0 {
				t.Error("a header is there")
			}
			s = peerStore(t)
			if _, err := s.CopyHead(context.Background(), offer("m", tiny()), []PeerSource{bad(), good(), good()}); err != nil {
				t.Errorf("with two good ones: %v", err)
			}
		})
	}
}

// TestCopyHeadDisagreement: one word against another is not enough.
func TestCopyHeadDisagreement(t *testing.T) {
	s := peerStore(t)
	liar := honest(t, "liar", tiny()).with(func(n *node) { vices["liar"].spoil(n, tiny()) })
	_, err := s.CopyHead(context.Background(), offer("m", tiny()), []PeerSource{liar, honest(t, "good", tiny())})
	if !errors.Is(err, ErrWrongBytes) {
		t.Errorf("got %v", err)
	}
}

// TestCopyHeadTooLong: a header that says it is endless is not fetched to its end.
func TestCopyHeadTooLong(t *testing.T) {
	s := peerStore(t)
	r := &remote{ctx: context.Background(), want: PeerModel{Name: "m", Size: 1 << 40}, data: make([]byte, MaxHeadBytes)}
	if _, err := r.ReadAt(make([]byte, 10), MaxHeadBytes); !errors.Is(err, errHeadTooLong) {
		t.Errorf("got %v", err)
	}
	if n, err := r.ReadAt(make([]byte, 10), MaxHeadBytes-4); n != 4 || err == nil {
		t.Errorf("at the limit: %d, %v", n, err)
	}
	if _, err := s.CopyHead(context.Background(), PeerModel{Name: "m", Size: 1, Kind: KindChat}, nil); !errors.Is(err, ErrBadName) {
		t.Errorf("without a digest: %v", err)
	}
}
