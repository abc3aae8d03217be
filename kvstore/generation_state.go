package kvstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"tandem/kvstore/block"
)

// generationFormat is that of everything in a generation's folder. Folders of
// another one are set aside.
const generationFormat = 2

const stateName = "state"

// generationState is what the state file of a generation says. Badger trusts much
// of what it reads at open, and ends the process where that is wrong; so all small
// files have digests here, which are compared before Badger sees them. The data file
// has its length only: its blocks are checked one by one when they are read.
type generationState struct {
	Format int         `json:"format"`
	Open   bool        `json:"open"` // it was open for writing
	Files  []stateFile `json:"files"`
}

type stateFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
}

func (s generationState) find(name string) (stateFile, bool) {
	i := slices.IndexFunc(s.Files, func(f stateFile) bool { return f.Name == name })
	if i < 0 {
		return stateFile{}, false
	}
	return s.Files[i], true
}

// badgerSmall tells the files of Badger's that are kept. They get digests.
func badgerSmall(name string) bool {
	ext := filepath.Ext(name)
	return name == badger.ManifestFilename || name == badger.KeyRegistryFileName || ext == ".sst" || ext == ".mem"
}

// writeState lists what is in a folder. In an open one the data file and the log of
// keys change and are left out.
func writeState(dir string, open bool) error {
	state := generationState{Format: generationFormat, Open: open, Files: []stateFile{}}
	for _, name := range fileNames(dir) {
		written := name == dataName || filepath.Ext(name) == ".mem"
		if open && written || !badgerSmall(name) && !written {
			continue
		}
		f, err := describeFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		state.Files = append(state.Files, f)
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	// A power cut may take the state of an open one with it: it is set aside then.
	return replaceFile(filepath.Join(dir, stateName), stateText(text), !open)
}

// stateText puts the digest of a state before it.
func stateText(state []byte) []byte {
	return fmt.Appendf(nil, "%x\n%s\n", sha256.Sum256(state), state)
}

func describeFile(path string) (stateFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return stateFile{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return stateFile{}, err
	}
	out := stateFile{Name: filepath.Base(path), Bytes: info.Size()}
	if !badgerSmall(out.Name) {
		return out, nil
	}
	if out.Bytes > diskTableMax {
		return out, fmt.Errorf("%s has %d bytes; allowed: at most %d", out.Name, out.Bytes, diskTableMax)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, diskTableMax)); err != nil {
		return out, err
	}
	out.SHA256 = hex.EncodeToString(h.Sum(nil))
	return out, nil
}

// replaceFile writes a file such that it is there as a whole or not at all.
func replaceFile(path string, text []byte, sync bool) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && sync {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		os.Remove(path + ".new")
	}
	return err
}

// readState reads the state file of a folder. The error matches block.ErrVersion
// if another version wrote it, and block.ErrDamaged else.
func readState(dir string) (generationState, error) {
	var state generationState
	text, err := readLimited(filepath.Join(dir, stateName), diskStateMax)
	if err != nil {
		return state, fmt.Errorf("%w: %w", block.ErrDamaged, err)
	}
	sum, rest, _ := bytes.Cut(text, []byte("\n"))
	rest = bytes.TrimSuffix(rest, []byte("\n"))
	if want := sha256.Sum256(rest); string(sum) != hex.EncodeToString(want[:]) {
		return state, fmt.Errorf("%w: the state file's check sum is wrong", block.ErrDamaged)
	}
	if err := json.Unmarshal(rest, &state); err != nil {
		return state, fmt.Errorf("%w: state file: %w", block.ErrDamaged, err)
	}
	if state.Format != generationFormat {
		return state, fmt.Errorf("%w: format is %d; allowed: %d", block.ErrVersion, state.Format, generationFormat)
	}
	return state, nil
}

// check compares the folder with its state. Only what changes in an open one may be
// there without being listed.
func (s generationState) check(dir string) error {
	for _, want := range s.Files {
		if filepath.Base(want.Name) != want.Name {
			return fmt.Errorf("%w: %q is no file name", block.ErrDamaged, want.Name)
		}
		got, err := describeFile(filepath.Join(dir, want.Name))
		if err != nil {
			return fmt.Errorf("%w: %w", block.ErrDamaged, err)
		}
		if got != want {
			return fmt.Errorf("%w: %s is not what it was: %d bytes, and had %d", block.ErrDamaged, want.Name, got.Bytes, want.Bytes)
		}
	}
	for _, name := range fileNames(dir) {
		ext := filepath.Ext(name)
		if _, listed := s.find(name); !listed && (ext == ".sst" || !s.Open && (name == dataName || ext == ".mem" || ext == ".vlog")) {
			return fmt.Errorf("%w: %s is not in its list", block.ErrDamaged, name)
		}
	}
	return nil
}

// fileNames are the files in a folder, in order; none if it cannot be read.
func fileNames(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, err := f.Readdirnames(diskEntriesMax)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	slices.Sort(names)
	return names
}

// newest is the path of the last file in a folder with such an ending. Badger
// numbers its files.
func newest(dir, ending string) (string, error) {
	names := fileNames(dir)
	for i := len(names) - 1; i >= 0; i-- {
		if strings.HasSuffix(names[i], ending) {
			return filepath.Join(dir, names[i]), nil
		}
	}
	return "", fmt.Errorf("%s: no file ends in %s", dir, ending)
}

// readLimited reads a file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return text, err
}

// readForgotten reads which blocks of a generation are gone, and how many ids its
// file has, see remember.
func readForgotten(path string) (gone map[block.ID]bool, changes int) {
	text, err := readLimited(path, diskForgottenMax*int64(len(block.ID{})))
	if err != nil {
		return nil, 0
	}
	gone = map[block.ID]bool{}
	for n := len(block.ID{}); len(text) >= n; text = text[n:] {
		id := block.ID(text[:n])
		changes++
		if gone[id] {
			delete(gone, id)
		} else {
			gone[id] = true
		}
	}
	return gone, changes
}
