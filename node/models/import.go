package models

import (
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"time"

	"tandem/node/models/gguf"
)

// Import takes a file of this machine into the store under its base name and
// returns the model. The file is linked where the file system allows it, else
// copied; it must then not be changed in place. Import is for paths that the
// operator gives, see IsPath.
func (s *Store) Import(ctx context.Context, path string, progress func(Progress)) (Model, error) {
	if progress == nil {
		progress = func(Progress) {}
	}
	f, err := os.Open(path)
	if err != nil {
		return Model{}, scrub(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Model{}, scrub(err)
	}
	if !info.Mode().IsRegular() {
		return Model{}, &RefError{Field: "file", Value: filepath.Base(path), Allowed: "a GGUF file"}
	}
	if _, err := gguf.Read(f, info.Size()); err != nil {
		return Model{}, scrub(err)
	}
	n := fileName(filepath.Base(path))
	made := &manifest{Name: n.String(), Shown: n.model, parsed: n, Origin: "file " + filepath.Base(path)}
	if err := s.mayPublish(made); err != nil {
		return Model{}, err
	}
	if made.Digest, err = s.takeIn(ctx, f, info.Size(), progress); err != nil {
		return Model{}, err
	}
	if err := s.publish(made); err != nil {
		return Model{}, err
	}
	return s.Resolve(made.Name)
}

// takeIn makes an open file a blob and returns its digest.
func (s *Store) takeIn(ctx context.Context, f *os.File, size int64, progress func(Progress)) (string, error) {
	temp, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "partial"), "import-*")
	if err != nil {
		return "", scrub(err)
	}
	defer discard(temp)
	from := &progressReader{r: &contextReader{ctx, f}, step: Progress{Status: "importing", Total: size}, progress: progress}
	if link := temp.Name() + "-link"; linkFile(f.Name(), link) == nil {
		defer os.Remove(link)
		sum := sha256.New()
		if _, err := io.CopyBuffer(sum, from, make([]byte, copyBuffer)); err != nil {
			return "", scrub(err)
		}
		path := s.blobPath(hexSum(sum))
		if err := os.Rename(link, path); err != nil {
			return "", scrub(err)
		}
		return hexSum(sum), syncDir(filepath.Dir(path))
	}
	if err := s.room(size); err != nil {
		return "", err
	}
	w := &spaceWriter{store: s, f: temp, sum: sha256.New()}
	if _, err := io.CopyBuffer(w, from, make([]byte, copyBuffer)); err != nil {
		return "", w.explain(err)
	}
	return hexSum(w.sum), s.keep(temp, hexSum(w.sum))
}

// linkFile makes a hard link to the file behind path, not to a symbolic link.
func linkFile(path, link string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return os.Link(real, link)
}

// progressReader reports what passes through it, a few times a second.
type progressReader struct {
	r        io.Reader
	step     Progress
	progress func(Progress)
	shown    time.Time
}

func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.step.Completed += int64(n)
	if err != nil || time.Since(p.shown) >= progressInterval {
		p.progress(p.step)
		p.shown = time.Now()
	}
	return n, err
}
