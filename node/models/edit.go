package models

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Delete removes a name of the store's own, and its file if no other name means
// it. Models that are read in place give a *ReadOnlyError.
func (s *Store) Delete(name string) error {
	n, err := ParseName(name)
	if err != nil {
		return err
	}
	e, err := s.find(name)
	if err != nil {
		return err
	}
	if e.name.key() != n.key() {
		return fmt.Errorf("%w: %s; %s is here", ErrNotFound, quote(name), e.shown)
	}
	if e.fixed != "" {
		return &ReadOnlyError{Name: e.shown, Reason: e.fixed}
	}
	s.edits.Lock()
	defer s.edits.Unlock()
	if err := os.Remove(s.manifestPath(e.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return scrub(err)
	}
	defer s.scan()
	if e.path != s.blobPath(e.digest) {
		return nil
	}
	if used, ok := s.usedBlobs(); ok && !used[e.digest] {
		if err := os.Remove(e.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return scrub(err)
		}
	}
	return nil
}

// Copy gives a model a second name. The file is shared; one that is read in place
// stays where it is.
func (s *Store) Copy(from, to string) error {
	n, err := ParseName(to)
	if err != nil {
		return err
	}
	m, err := s.Resolve(from)
	if err != nil {
		return err
	}
	made := &manifest{Name: n.String(), parsed: n, Origin: "copy of " + m.Name, License: m.License}
	if m.Digest != "" && m.Path == s.blobPath(m.Digest) {
		made.Digest = m.Digest
	} else {
		made.Path = m.Path
	}
	return s.publish(made)
}

// Create makes a model: of another one, if from is set, or of an uploaded GGUF;
// files then holds one file name and the digest of its blob.
func (s *Store) Create(name, from string, files map[string]string) (Model, error) {
	n, err := ParseName(name)
	if err != nil {
		return Model{}, err
	}
	switch {
	case from != "" && len(files) > 0:
		return Model{}, &RefError{Field: "files", Value: name, Allowed: "a model is made from another model or from files, not from both"}
	case from != "":
		if err := s.Copy(from, name); err != nil {
			return Model{}, err
		}
		return s.Resolve(name)
	}
	digest, err := onlyGGUF(files)
	if err != nil {
		return Model{}, err
	}
	path := s.blobPath(digest)
	if _, ok := isFile(path); !ok {
		return Model{}, fmt.Errorf("blob sha256:%s: %w", digest, ErrNotFound)
	}
	made := &manifest{Name: n.String(), parsed: n, Digest: digest, Origin: "upload"}
	if _, err := s.model(s.ownEntry(made)); err != nil {
		return Model{}, err
	}
	if err := s.publish(made); err != nil {
		return Model{}, err
	}
	return s.Resolve(name)
}

// onlyGGUF checks the files of a Create and returns the one digest.
func onlyGGUF(files map[string]string) (digest string, err error) {
	if len(files) != 1 {
		return "", &RefError{Field: "files", Value: fmt.Sprint(len(files)), Allowed: "exactly one GGUF file makes a model"}
	}
	for file, value := range files {
		if !isGGUF(file) || strings.ContainsAny(file, `/\`) || strings.ContainsRune(file, 0) || len(file) > 255 {
			return "", &RefError{Field: "file", Value: file, Allowed: "a file name without folders that ends in .gguf"}
		}
		digest, err = ParseDigest(value)
	}
	return digest, err
}

// publish makes a name mean a file, unless it is one that cannot be changed.
func (s *Store) publish(m *manifest) error {
	s.edits.Lock()
	defer s.edits.Unlock()
	if e := s.lookup(m.parsed); e != nil && e.fixed != "" && (e.source == File || e.source == BuiltIn) {
		return &ReadOnlyError{Name: e.shown, Reason: e.fixed}
	}
	if m.Digest != "" {
		if _, ok := isFile(s.blobPath(m.Digest)); !ok {
			return fmt.Errorf("blob sha256:%s: %w", m.Digest, ErrNotFound)
		}
	}
	m.Created = s.now().UTC()
	previous, _ := s.readManifest(s.manifestPath(m.parsed))
	if err := s.writeManifest(m); err != nil {
		return err
	}
	s.scan()
	s.peers.wake()
	if previous != nil && previous.Digest != "" && previous.Digest != m.Digest {
		if used, ok := s.usedBlobs(); ok && !used[previous.Digest] {
			os.Remove(filepath.Clean(s.blobPath(previous.Digest)))
		}
	}
	return nil
}
