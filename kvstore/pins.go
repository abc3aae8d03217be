package kvstore

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tandem/kvstore/block"
)

// Pin keeps a block, and all blocks before it, from eviction until Unpin, also after
// a restart. A block that the disk tier loses regardless is pinned again when it
// comes back. ErrNotFound: no tier holds it.
func (s *Store) Pin(id block.ID) error {
	s.mu.Lock()
	_, known := s.mu.pins[id]
	switch {
	case s.mu.closed:
		s.mu.Unlock()
		return ErrClosed
	case !known && len(s.mu.pins) >= pinsMax:
		s.mu.Unlock()
		return fmt.Errorf("pin block %v: %d blocks are pinned, which is the most", id, pinsMax)
	case !s.mu.tree.Pin(id):
		s.mu.Unlock()
		return fmt.Errorf("pin block %v: %w", id, ErrNotFound)
	}
	s.mu.pins[id] = struct{}{}
	path := s.mu.tree.Path(id, pathMax, nil)
	s.mu.Unlock()
	if s.disk != nil {
		s.disk.Touch(path)
	}
	return s.writePins()
}

// Unpin ends a pin. ErrNotFound: it was not pinned.
func (s *Store) Unpin(id block.ID) error {
	s.mu.Lock()
	_, known := s.mu.pins[id]
	delete(s.mu.pins, id)
	s.mu.tree.Unpin(id)
	s.mu.Unlock()
	if !known {
		return fmt.Errorf("unpin block %v, which is not pinned: %w", id, ErrNotFound)
	}
	return s.writePins()
}

// pinned are the pinned blocks, in no order.
func (s *Store) pinned() []block.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]block.ID, 0, len(s.mu.pins))
	for id := range s.mu.pins {
		ids = append(ids, id)
	}
	return ids
}

func (s *Store) pinsPath() string { return filepath.Join(s.opts.Dir, "pins") }

// writePins writes the file of pins, one id a line. It is replaced as a whole, so
// that a crash leaves the old one or the new one.
func (s *Store) writePins() error {
	if s.opts.Dir == "" {
		return nil
	}
	s.pinsFile.Lock()
	defer s.pinsFile.Unlock()
	var lines []string
	for _, id := range s.pinned() {
		lines = append(lines, id.String()+"\n")
	}
	slices.Sort(lines)
	next := s.pinsPath() + ".new"
	if err := os.WriteFile(next, []byte(strings.Join(lines, "")), 0o600); err != nil {
		return fmt.Errorf("keep the pins: %w", err)
	}
	if err := os.Rename(next, s.pinsPath()); err != nil {
		return fmt.Errorf("keep the pins: %w", err)
	}
	return nil
}

// readPins reads the file of pins. What is no id is passed over: a damaged file must
// not keep the node from starting.
func (s *Store) readPins() error {
	f, err := os.Open(s.pinsPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	bad := 0
	lines := bufio.NewScanner(io.LimitReader(f, pinsMax*(2*int64(len(block.ID{}))+1)))
	for lines.Scan() {
		if id, err := block.ParseID(lines.Text()); err == nil {
			s.mu.pins[id] = struct{}{}
		} else {
			bad++
		}
	}
	if bad > 0 || lines.Err() != nil {
		s.opts.Log.Warn("the file of pinned KV blocks is damaged", "file", s.pinsPath(), "lines", bad, "error", lines.Err())
	}
	return nil
}
