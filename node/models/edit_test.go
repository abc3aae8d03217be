package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tandem/node/models/gguf"
)

func TestPutBlob(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t, nil)
	digest := put(t, s, tiny())
	if !s.HasBlob(digest) {
		t.Error("the blob is not there")
	}
	if err := s.PutBlob(ctx, digest, strings.NewReader("what is there is not read")); err != nil {
		t.Errorf("again: %v", err)
	}
	missing := "sha256:" + sum([]byte("abc"))
	err := s.PutBlob(ctx, missing, strings.NewReader("abd"))
	var wrong *DigestError
	if !errors.As(err, &wrong) || wrong.Got != sum([]byte("abd")) {
		t.Errorf("other bytes: got %v, want a DigestError", err)
	}
	broken := errors.New("connection reset")
	if err := s.PutBlob(ctx, missing, io.MultiReader(strings.NewReader("ab"), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a broken upload: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.PutBlob(cancelled, missing, strings.NewReader("abc")); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled upload: %v", err)
	}
	s.free = func(string) (int64, error) { return reserveBytes, nil }
	err = s.PutBlob(ctx, missing, strings.NewReader("abc"))
	var full *SpaceError
	if !errors.As(err, &full) {
		t.Errorf("a full disk: got %v, want a SpaceError", err)
	}
	noPath(t, err)
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 || s.HasBlob(missing) {
		t.Errorf("left behind: %v", left)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestCreateCopyDelete(t *testing.T) {
	s, _ := newStore(t, nil)
	digest := put(t, s, tiny())
	m, err := s.Create("team/first:v1", "", map[string]string{"model.gguf": digest})
	if err != nil || m.Name != "team/first:v1" || m.Digest != sum(tiny()) || m.Source != Own {
		t.Fatalf("created %+v, %v", m, err)
	}
	if err := s.Copy("team/first:v1", "second"); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Create("third", "second", nil); err != nil || m.Name != "third:latest" {
		t.Fatalf("created %+v, %v", m, err)
	}
	write(t, filepath.Join(s.cfg.Dir, "dropped.gguf"), other())
	names(t, s)
	if err := s.Copy("dropped", "mine"); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Resolve("mine"); err != nil || m.Source != Own || m.Info.Architecture != "qwen3" {
		t.Errorf("copy of a file: %+v, %v", m, err)
	}
	if got, want := names(t, s), "dropped mine:latest second:latest team/first:v1 third:latest"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i, name := range []string{"team/first:v1", "second", "mine", "third"} {
		if err := s.Delete(name); err != nil {
			t.Errorf("deleting %s: %v", name, err)
		}
		if last := i == 3; s.HasBlob(digest) == last {
			t.Errorf("after deleting %s the blob is there: %v", name, !last)
		}
	}
	if got := names(t, s); got != "dropped" {
		t.Errorf("left: %s", got)
	}
	if err := s.Delete("third"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleting again: %v", err)
	}
}

func TestReplacedBlobIsRemoved(t *testing.T) {
	s, _ := newStore(t, nil)
	first, second := put(t, s, tiny()), put(t, s, other())
	for _, d := range []string{first, second} {
		if _, err := s.Create("m", "", map[string]string{"m.gguf": d}); err != nil {
			t.Fatal(err)
		}
	}
	if s.HasBlob(first) || !s.HasBlob(second) {
		t.Errorf("first %v, second %v", s.HasBlob(first), s.HasBlob(second))
	}
}

func TestCreateRefuses(t *testing.T) {
	s, _ := newStore(t, nil)
	digest := put(t, s, tiny())
	write(t, filepath.Join(s.cfg.Dir, "dropped.gguf"), tiny())
	names(t, s)
	for _, tc := range []struct {
		name  string
		model string
		from  string
		files map[string]string
		want  error
	}{
		{"no source", "p", "", nil, ErrBadName},
		{"both sources", "p", "dropped", map[string]string{"m.gguf": digest}, ErrBadName},
		{"two files", "p", "", map[string]string{"a.gguf": digest, "b.gguf": digest}, ErrBadName},
		{"not a GGUF by name", "p", "", map[string]string{"m.txt": digest}, ErrBadName},
		{"folder above", "p", "", map[string]string{"../m.gguf": digest}, ErrBadName},
		{"absolute", "p", "", map[string]string{"/m.gguf": digest}, ErrBadName},
		{"folders", "p", "", map[string]string{"a/b/../../../m.gguf": digest}, ErrBadName},
		{"no file name", "p", "", map[string]string{"": ""}, ErrBadName},
		{"no digest", "p", "", map[string]string{"m.gguf": ""}, ErrBadName},
		{"digest that is not here", "p", "", map[string]string{"m.gguf": "sha256:" + strings.Repeat("0", 64)}, ErrNotFound},
		{"source that is not here", "p", "nothing", nil, ErrNotFound},
		{"source with a bad name", "p", "../x", nil, ErrBadName},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := s.Create(tc.model, tc.from, tc.files)
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			noPath(t, err)
		})
	}
	var fixed *ReadOnlyError
	if _, err := s.Create("dropped", "", map[string]string{"m.gguf": digest}); !errors.As(err, &fixed) {
		t.Errorf("in place of a file: %v", err)
	}
	for _, d := range hostileDigests {
		if _, err := s.Create("p", "", map[string]string{"m.gguf": d}); !errors.Is(err, ErrBadName) {
			t.Errorf("digest %q: %v", d, err)
		}
	}
	if got := names(t, s); got != "dropped" {
		t.Errorf("left: %s", got)
	}
}

// TestHostileUploads uploads headers that lie and tries to make models of them.
func TestHostileUploads(t *testing.T) {
	s, _ := newStore(t, nil)
	text, err := os.ReadFile("gguf/testdata/hostile.json")
	if err != nil {
		t.Fatal(err)
	}
	var files map[string][]byte
	if err := json.Unmarshal(text, &files); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		digest := put(t, s, b)
		_, err := s.Create("p-"+name, "", map[string]string{"m.gguf": digest})
		var refused *gguf.FormatError
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want a FormatError", name, err)
		}
		noPath(t, err)
	}
	if got := names(t, s); got != "" {
		t.Errorf("left: %s", got)
	}
}

// TestNothingOutside uses hostile names and digests everywhere and looks whether
// anything outside of the store's folder was made, changed or removed.
func TestNothingOutside(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	s, _ := newStore(t, func(c *Config) { c.Dir = filepath.Join(deep, "models") })
	for _, dir := range []string{deep, filepath.Join(root, "a", "b"), filepath.Join(root, "a"), root} {
		write(t, filepath.Join(dir, "x.gguf"), tiny())
		write(t, filepath.Join(dir, "x"), tiny())
	}
	put(t, s, tiny())
	if _, err := s.Create("m", "", map[string]string{"m.gguf": "sha256:" + sum(tiny())}); err != nil {
		t.Fatal(err)
	}
	before := tree(t, root)
	ctx := context.Background()
	for _, name := range hostileNames {
		_, created := s.Create(name, "m", nil)
		_, pulled := s.Pull(ctx, name, nil)
		_, resolved := s.Resolve(name)
		for what, err := range map[string]error{"copy to": s.Copy("m", name), "copy from": s.Copy(name, "n"), "delete": s.Delete(name), "create": created, "pull": pulled, "resolve": resolved} {
			if !errors.Is(err, ErrBadName) {
				t.Errorf("%s %q: got %v, want ErrBadName", what, clip(name), err)
			}
			noPath(t, err)
		}
	}
	for _, d := range hostileDigests {
		if s.HasBlob(d) {
			t.Errorf("has blob %q", d)
		}
		if err := s.PutBlob(ctx, d, bytes.NewReader(tiny())); !errors.Is(err, ErrBadName) {
			t.Errorf("put blob %q: %v", d, err)
		}
	}
	if after := tree(t, root); after != before {
		t.Errorf("files were changed:\n%s\nbefore:\n%s", after, before)
	}
}

func TestImport(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t, nil)
	dir := t.TempDir()
	path := filepath.Join(dir, "My Model.gguf")
	write(t, path, tiny())
	link(t, path, filepath.Join(dir, "link.gguf"))
	var steps []Progress
	m, err := s.Import(ctx, path, func(p Progress) { steps = append(steps, p) })
	if err != nil || m.Name != "My-Model" || m.Digest != sum(tiny()) || m.Source != Own {
		t.Fatalf("got %+v, %v", m, err)
	}
	if last := steps[len(steps)-1]; last.Completed != int64(len(tiny())) || last.Total != last.Completed {
		t.Errorf("progress ends with %+v", last)
	}
	if m, err := s.Import(ctx, filepath.Join(dir, "link.gguf"), nil); err != nil || m.Digest != sum(tiny()) {
		t.Errorf("by a link: %+v, %v", m, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"My-Model", "link"} {
		if _, err := s.Resolve(name); err != nil {
			t.Errorf("after the file was removed: %v", err)
		}
	}
	write(t, filepath.Join(dir, "bad.gguf"), []byte("no model"))
	for _, bad := range []string{"bad.gguf", "missing.gguf", "."} {
		_, err := s.Import(ctx, filepath.Join(dir, bad), nil)
		if err == nil {
			t.Errorf("%s was taken", bad)
		}
		noPath(t, err)
	}
	if left := dirNames(filepath.Join(s.cfg.Dir, "partial"), 10); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
