package models

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	manifestVersion  = 1
	maxManifestBytes = 64 << 10
	maxManifests     = 10_000
)

// manifest says what a name of the store means: a blob, or a file elsewhere.
type manifest struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Shown   string    `json:"shown,omitempty"` // how it is listed, if not as Name
	Digest  string    `json:"digest,omitempty"`
	Path    string    `json:"path,omitempty"`
	Origin  string    `json:"origin"` // where it came from, for people
	License string    `json:"license,omitempty"`
	Created time.Time `json:"created"`

	parsed Name
}

func (m *manifest) shown() string {
	if m.Shown != "" {
		return m.Shown
	}
	return m.Name
}

// manifestPath is where the manifest of a name is. A hash keeps apart what a
// file system may think the same; the readable part is for people.
func (s *Store) manifestPath(n Name) string {
	sum := sha256.Sum256([]byte(n.key()))
	readable := []byte(n.key())
	for i, c := range readable {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			readable[i] = '_'
		}
	}
	return filepath.Join(s.cfg.Dir, "manifests", string(readable[:min(len(readable), 80)])+"-"+hex.EncodeToString(sum[:8])+".json")
}

// readManifest reads the manifest at path and checks every field of it.
func (s *Store) readManifest(path string) (*manifest, error) {
	text, err := readLimited(path, maxManifestBytes)
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("manifest version is %d, allowed is %d", m.Version, manifestVersion)
	}
	if m.parsed, err = ParseName(m.Name); err != nil {
		return nil, err
	}
	shown, err := ParseName(m.shown())
	if err != nil || shown != m.parsed {
		return nil, fmt.Errorf("manifest shows %s as %s", quote(m.Name), quote(m.shown()))
	}
	if s.manifestPath(m.parsed) != path {
		return nil, fmt.Errorf("manifest of %s has another name's file name", quote(m.Name))
	}
	if (m.Path == "") == (m.Digest == "") || m.Digest != "" && !hexPattern.MatchString(m.Digest) || m.Path != "" && !filepath.IsAbs(m.Path) {
		return nil, errors.New("manifest names neither a blob nor a file")
	}
	return m, nil
}

// writeManifest makes m's name mean what m says, at once and durably.
func (s *Store) writeManifest(m *manifest) error {
	m.Version = manifestVersion
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	path := s.manifestPath(m.parsed)
	f, err := os.CreateTemp(filepath.Join(s.cfg.Dir, "partial"), "manifest-*")
	if err != nil {
		return scrub(err)
	}
	defer discard(f)
	if _, err := f.Write(append(text, '\n')); err != nil {
		return scrub(err)
	}
	if err := f.Sync(); err != nil {
		return scrub(err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return scrub(err)
	}
	return syncDir(filepath.Dir(path))
}

// manifests are all readable manifests; report is called for the others.
func (s *Store) manifests(report func(path string, err error)) []*manifest {
	dir := filepath.Join(s.cfg.Dir, "manifests")
	var all []*manifest
	for _, name := range dirNames(dir, maxManifests) {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		path := filepath.Join(dir, name)
		m, err := s.readManifest(path)
		if err != nil {
			report(path, err)
			continue
		}
		all = append(all, m)
	}
	return all
}

// usedBlobs are the blobs that names refer to. It is not ok if a manifest cannot
// be read: nobody knows then which blobs are not used.
func (s *Store) usedBlobs() (used map[string]bool, ok bool) {
	used, ok = map[string]bool{}, true
	for _, m := range s.manifests(func(string, error) { ok = false }) {
		used[m.Digest] = true
	}
	if s.builtin != nil {
		used[s.builtin.digest] = true
	}
	return used, ok
}

// readLimited reads a regular file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, scrub(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, scrub(err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("has more than %d bytes", limit)
	}
	return b, nil
}

// dirNames are the names in a folder, at most limit, sorted. A folder that is not
// there or may not be read has none.
func dirNames(dir string, limit int) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	names := make([]string, 0, min(len(entries), limit))
	for _, e := range entries[:min(len(entries), limit)] {
		names = append(names, e.Name())
	}
	return names
}

// isFile says whether path is a regular file, behind links or not.
func isFile(path string) (fs.FileInfo, bool) {
	info, err := os.Stat(path)
	return info, err == nil && info.Mode().IsRegular()
}
