package models

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tandem/node/models/gguf"
)

// entry is a name and the file that it means, which may not have been looked at.
type entry struct {
	name    Name
	shown   string
	path    string
	digest  string // hex; "" if nobody has computed it
	source  Source
	license string
	origin  string // as its manifest has it; "" of models that are read in place
	fixed   string // why it cannot be changed or deleted; "" if it can
}

// fileID is a version of a file.
type fileID struct {
	path     string
	size     int64
	modified int64 // ns
}

// check is the outcome of reading a version's header.
type check struct {
	info gguf.Summary
	head int64 // bytes before the first tensor
	err  error
}

// scan reads the names of all models and replaces the index. Where two places
// have a name, the first in the package's order wins.
func (s *Store) scan() {
	s.scanning.Lock() // one that began earlier must not overwrite what a later one found
	defer s.scanning.Unlock()
	index := map[string]*entry{}
	add := func(e *entry) {
		if _, taken := index[e.name.key()]; !taken {
			index[e.name.key()] = e
		}
	}
	s.mu.Lock()
	added := slices.Clone(s.mu.added)
	s.mu.Unlock()
	for _, e := range added {
		add(e)
	}
	for _, m := range s.manifests(s.reportManifest) {
		add(s.ownEntry(m))
	}
	s.scanFiles(s.cfg.Dir, "it is a file in the models folder; delete the file itself", add)
	if s.builtin != nil {
		add(s.builtin)
	}
	for _, dir := range s.cfg.OllamaDirs {
		s.scanOllama(dir, add)
	}
	for _, dir := range s.cfg.HubDirs {
		s.scanHub(dir, add)
	}
	for _, dir := range s.cfg.FileDirs {
		s.scanFiles(dir, "it is in a cache of another program", add)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.index, s.mu.scanned = index, s.now()
	s.forgetLocked()
}

func (s *Store) ownEntry(m *manifest) *entry {
	e := &entry{name: m.parsed, shown: m.shown(), path: m.Path, digest: m.Digest, source: Own, license: m.License, origin: m.Origin}
	if m.Digest != "" {
		e.path = s.blobPath(m.Digest)
	}
	return e
}

// scanFiles adds the GGUF files in a folder under their base names.
func (s *Store) scanFiles(dir, fixed string, add func(*entry)) {
	for _, base := range dirNames(dir, maxManifests) {
		if !isGGUF(base) {
			continue
		}
		path := filepath.Join(dir, base)
		if _, ok := isFile(path); ok {
			n := fileName(base)
			add(&entry{name: n, shown: n.model, path: path, source: File, fixed: fixed})
		}
	}
}

func isGGUF(name string) bool {
	return strings.EqualFold(filepath.Ext(name), ".gguf") && !strings.HasPrefix(name, ".")
}

// find looks a name up, and reads the folders again if it is not there.
func (s *Store) find(name string) (*entry, error) {
	n, err := ParseName(name)
	if err != nil {
		return nil, err
	}
	if e := s.lookup(n); e != nil {
		return e, nil
	}
	s.mu.Lock()
	stale := s.now().Sub(s.mu.scanned) >= rescanAfter
	s.mu.Unlock()
	if stale {
		s.scan()
		if e := s.lookup(n); e != nil {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNotFound, quote(name))
}

// lookup finds a name in the index. A repository of Hugging Face without a
// quantisation means the one that Pull would prefer of those that are here.
func (s *Store) lookup(n Name) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.mu.index[n.key()]; e != nil || !n.isHub() || n.tag != defaultTag {
		return e
	}
	var best *entry
	for _, e := range s.mu.index {
		same := e.name
		same.tag = defaultTag
		if same.key() == n.key() && (best == nil || preferred(e.name.tag, best.name.tag)) {
			best = e
		}
	}
	return best
}

// model checks the file of an entry, unless this version has been checked before.
func (s *Store) model(e *entry) (Model, error) {
	info, err := os.Stat(e.path)
	if err != nil {
		err = scrub(err)
		s.report(fileID{path: e.path}, "model", e.shown, err)
		return Model{}, &BrokenError{Name: e.shown, Err: err}
	}
	id := fileID{e.path, info.Size(), info.ModTime().UnixNano()}
	c := s.check(id)
	if c.err != nil {
		s.report(id, "model", e.shown, c.err)
		return Model{}, &BrokenError{Name: e.shown, Err: c.err}
	}
	m := Model{Name: e.shown, Path: e.path, Digest: e.digest, Size: id.size, Modified: info.ModTime(), Source: e.source, License: e.license, Info: c.info}
	if m.License == "" {
		m.License = c.info.License
	}
	if m.Digest == "" {
		s.mu.Lock()
		m.Digest = s.mu.digests[id]
		s.mu.Unlock()
	}
	return m, nil
}

func (s *Store) check(id fileID) *check {
	s.mu.Lock()
	c := s.mu.checks[id]
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c = &check{}
	f, err := gguf.Open(id.path)
	if err == nil {
		c.info, c.head = f.Summary, f.DataOffset
	}
	c.err = scrub(err)
	var refused *gguf.FormatError
	if err == nil || errors.As(err, &refused) { // other errors may pass
		s.mu.Lock()
		s.mu.checks[id] = c
		s.mu.Unlock()
	}
	return c
}

// report logs what is wrong with a version of a file, once.
func (s *Store) report(id fileID, kind, name string, err error) {
	s.mu.Lock()
	_, known := s.mu.reported[id]
	if !known {
		s.mu.reported[id] = struct{}{}
	}
	s.mu.Unlock()
	if !known {
		s.log.Warn("a "+kind+" is skipped", "name", name, "err", err)
	}
}

func (s *Store) reportManifest(path string, err error) {
	id := fileID{path: path}
	if info, statErr := os.Stat(path); statErr == nil {
		id.size, id.modified = info.Size(), info.ModTime().UnixNano()
	}
	s.report(id, "model manifest", filepath.Base(path), err)
}

// checksKept bounds the memory of checks; a scan forgets the files that no entry
// has when there are more.
const checksKept = 4 * maxManifests

func (s *Store) forgetLocked() {
	if len(s.mu.reported) > checksKept {
		clear(s.mu.reported)
	}
	if len(s.mu.checks) <= checksKept {
		return
	}
	here := map[string]bool{}
	for _, e := range s.mu.index {
		here[e.path] = true
	}
	for id := range s.mu.checks {
		if !here[id.path] {
			delete(s.mu.checks, id)
		}
	}
}
