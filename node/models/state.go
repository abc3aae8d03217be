package models

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// state is what the store remembers in its folder besides models. It may be lost.
type state struct {
	Used    string        `json:"used,omitempty"`
	Digests []knownDigest `json:"digests,omitempty"`
}

// knownDigest is the digest of a version of a file that is named otherwise.
type knownDigest struct {
	Path     string `json:"path"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // ns since 1970
	Digest   string `json:"digest"`
}

const maxStateBytes = 4 << 20

func (s *Store) statePath() string { return filepath.Join(s.cfg.Dir, "state.json") }

func (s *Store) loadState() {
	s.mu.digests = map[fileID]string{}
	text, err := readLimited(s.statePath(), maxStateBytes)
	if err != nil {
		return
	}
	var st state
	if json.Unmarshal(text, &st) != nil {
		return
	}
	s.mu.used = st.Used
	for _, d := range st.Digests {
		if hexPattern.MatchString(d.Digest) {
			s.mu.digests[fileID{d.Path, d.Size, d.Modified}] = d.Digest
		}
	}
}

// saveState writes what is remembered. A failure costs a computation later.
func (s *Store) saveState() {
	s.mu.Lock()
	st := state{Used: s.mu.used}
	s.mu.saved = s.now()
	for id, digest := range s.mu.digests {
		if info, err := os.Stat(id.path); err == nil && info.Size() == id.size && info.ModTime().UnixNano() == id.modified {
			st.Digests = append(st.Digests, knownDigest{id.path, id.size, id.modified, digest})
		}
	}
	s.mu.Unlock()
	text, err := json.Marshal(st)
	if err != nil || len(text) > maxStateBytes {
		return
	}
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "partial"), "state-*")
	if err != nil {
		return
	}
	defer discard(f)
	if _, err := f.Write(text); err == nil {
		os.Rename(f.Name(), s.statePath())
	}
}

// Digest is the hex SHA-256 of a model's file. Where it is not known the file is
// read, which takes a second for some hundred megabytes, and it is remembered.
func (s *Store) Digest(ctx context.Context, name string) (string, error) {
	m, err := s.Resolve(name)
	if err != nil || m.Digest != "" {
		return m.Digest, err
	}
	f, err := os.Open(m.Path)
	if err != nil {
		return "", scrub(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyBuffer(sum, &contextReader{ctx, f}, make([]byte, copyBuffer)); err != nil {
		return "", scrub(err)
	}
	id := fileID{m.Path, m.Size, m.Modified.UnixNano()}
	s.mu.Lock()
	s.mu.digests[id] = hexSum(sum)
	s.mu.Unlock()
	s.saveState()
	return hexSum(sum), nil
}
