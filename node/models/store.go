package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/node/models/gguf"
)

// Config says where models are and may come from. Only Dir is required.
type Config struct {
	Dir string // the store's own folder; made if it is not there

	// Folders that are read and never written; those that are not there are
	// skipped. KnownPlaces fills them.
	OllamaDirs []string // Ollama stores, which hold manifests/ and blobs/
	HubDirs    []string // Hugging Face hub caches, which hold models--*/
	FileDirs   []string // folders with *.gguf files

	OllamaRegistry string // base URL; "": https://registry.ollama.ai
	HubEndpoint    string // base URL; "": https://huggingface.co
	HubToken       string // of Hugging Face; sent to HubEndpoint only

	// Client carries requests if it is not nil; it must not follow redirects by
	// itself further than its Transport does. nil is a client with timeouts that
	// refuses to be led to private addresses.
	Client *http.Client

	Builtin     []byte // a GGUF that is always there; nil: none
	BuiltinName string

	Logger *slog.Logger // nil: nothing is logged
}

// KnownPlaces fills the folders and the Hugging Face settings of c that are not
// set with those that Ollama, Hugging Face and llama.cpp use on this machine.
// getenv is os.Getenv, and home the user's home folder, "" if there is none.
func (c *Config) KnownPlaces(getenv func(string) string, home string) {
	in := func(root string, parts ...string) string {
		if root == "" {
			return ""
		}
		return filepath.Join(append([]string{root}, parts...)...)
	}
	cache := getenv("XDG_CACHE_HOME")
	if cache == "" {
		cache = in(home, ".cache")
	}
	hub := getenv("HF_HUB_CACHE")
	if hub == "" {
		hub = in(getenv("HF_HOME"), "hub")
	}
	if c.OllamaDirs == nil {
		c.OllamaDirs = notEmpty(getenv("OLLAMA_MODELS"), in(home, ".ollama", "models"), "/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models")
	}
	if c.HubDirs == nil {
		c.HubDirs = notEmpty(hub, in(cache, "huggingface", "hub"))
	}
	if c.FileDirs == nil {
		c.FileDirs = notEmpty(getenv("LLAMA_CACHE"), in(cache, "llama.cpp"))
	}
	if c.HubEndpoint == "" {
		c.HubEndpoint = getenv("HF_ENDPOINT")
	}
	if c.HubToken == "" {
		c.HubToken = getenv("HF_TOKEN")
	}
}

// notEmpty drops empty paths and repetitions.
func notEmpty(paths ...string) []string {
	all := []string{}
	for _, p := range paths {
		if p != "" && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// Store is the model store.
type Store struct {
	cfg     Config
	log     *slog.Logger
	web     *web
	builtin *entry
	free    func(dir string) (int64, error)
	now     func() time.Time

	edits sync.Mutex // held while manifests or blobs change, so that no blob in use is removed

	scanning sync.Mutex // held by scan, before mu

	mu struct {
		sync.Mutex
		index    map[string]*entry // by Name.key
		scanned  time.Time
		added    []*entry // by AddPath, in order
		checks   map[fileID]*check
		reported map[fileID]struct{}
		digests  map[fileID]string
		used     string    // name that was used last
		saved    time.Time // when that was written
	}
	pulls pulls
	peers peers
}

// usedInterval bounds how often the model in use is written down.
const usedInterval = time.Minute

// rescanAfter bounds how often a request for an unknown name reads the folders.
const rescanAfter = time.Second

// Open opens the store in cfg.Dir, which is made if it is not there. It reads the
// names of models, not the models.
func Open(cfg Config) (*Store, error) {
	if cfg.Dir == "" {
		return nil, errors.New("models: Config.Dir is empty")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	cfg.Dir = dir
	for _, sub := range []string{"", "blobs", "manifests", "partial", "chunks", "heads"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("model folder: %w", err)
		}
	}
	s := &Store{cfg: cfg, log: cfg.Logger, free: freeSpace, now: time.Now}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.web, err = newWeb(&cfg); err != nil {
		return nil, err
	}
	s.mu.checks, s.mu.reported = map[fileID]*check{}, map[fileID]struct{}{}
	s.pulls.init()
	s.peers.init()
	s.loadState()
	if err := s.placeBuiltin(); err != nil {
		s.log.Warn("the built-in model is not available", "err", err)
	}
	s.clean()
	s.scan()
	s.cleanPeers()
	return s, nil
}

// Close ends all downloads, which can be resumed later, and waits for them.
func (s *Store) Close() error {
	s.pulls.close()
	s.saveState()
	return nil
}

// placeBuiltin writes the built-in model to where an engine can open it.
func (s *Store) placeBuiltin() error {
	if s.cfg.Builtin == nil {
		return nil
	}
	n, err := ParseName(s.cfg.BuiltinName)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(s.cfg.Builtin)
	digest := hex.EncodeToString(sum[:])
	e := &entry{name: n, shown: s.cfg.BuiltinName, path: s.blobPath(digest), digest: digest, source: BuiltIn, fixed: "it is part of the program"}
	if info, ok := isFile(e.path); !ok || info.Size() != int64(len(s.cfg.Builtin)) {
		if err := s.PutBlob(context.Background(), "sha256:"+digest, strings.NewReader(string(s.cfg.Builtin))); err != nil {
			return err
		}
	}
	s.builtin = e
	return nil
}

// List is every model that can be used, by name. Files that cannot are left out
// and have been logged once.
func (s *Store) List(ctx context.Context) ([]Model, error) {
	s.scan()
	s.mu.Lock()
	entries := make([]*entry, 0, len(s.mu.index))
	for _, e := range s.mu.index {
		entries = append(entries, e)
	}
	s.mu.Unlock()
	slices.SortFunc(entries, func(a, b *entry) int { return strings.Compare(a.shown, b.shown) })
	models := make([]Model, 0, len(entries))
	for _, e := range entries {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if m, err := s.model(e); err == nil {
			models = append(models, m)
		}
	}
	return models, nil
}

// Resolve finds the model that a client names, on this machine only. The error
// is a *RefError, a *BrokenError or ErrNotFound.
func (s *Store) Resolve(name string) (Model, error) {
	e, err := s.find(name)
	if err != nil {
		return Model{}, err
	}
	m, err := s.model(e)
	if errors.Is(err, os.ErrNotExist) {
		// The file went away since the scan; perhaps another one has the name.
		s.scan()
		if e, err = s.find(name); err == nil {
			m, err = s.model(e)
		}
	}
	return m, err
}

// Inspect reads the whole header of a model's file.
func (s *Store) Inspect(name string) (Model, *gguf.File, error) {
	m, err := s.Resolve(name)
	if err != nil {
		return Model{}, nil, err
	}
	f, err := gguf.Open(m.Path)
	if err != nil {
		return Model{}, nil, &BrokenError{Name: m.Name, Err: scrub(err)}
	}
	return m, f, nil
}

// AddPath offers the file at path under its base name, before all other models,
// and returns it. It is for files that the operator names: the file is read
// wherever it is.
func (s *Store) AddPath(path string) (Model, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return Model{}, err
	}
	n := fileName(filepath.Base(abs))
	e := &entry{name: n, shown: n.model, path: abs, source: File, fixed: "it is a file named with --model"}
	m, err := s.model(e)
	if err != nil {
		return Model{}, err
	}
	s.mu.Lock()
	for _, other := range s.mu.added {
		if other.name.key() == n.key() && other.path != abs {
			s.mu.Unlock()
			return Model{}, &RefError{Field: "file", Value: filepath.Base(abs), Allowed: "another file is already offered under the name " + n.model}
		}
	}
	s.mu.added = append(s.mu.added, e)
	s.mu.Unlock()
	s.scan()
	return m, nil
}

// IsPath says whether an operator's model argument is a path rather than a ref:
// it ends in .gguf without being a URL, or begins like a path.
func IsPath(arg string) bool {
	if strings.Contains(arg, "://") {
		return false
	}
	if filepath.IsAbs(arg) || strings.HasPrefix(arg, "~"+string(filepath.Separator)) {
		return true
	}
	for _, prefix := range []string{"./", "../", `.\`, `..\`} {
		if strings.HasPrefix(arg, prefix) {
			return true
		}
	}
	return len(arg) > len(".gguf") && strings.EqualFold(arg[len(arg)-len(".gguf"):], ".gguf")
}

// Used remembers that a model was used, for Default. It costs next to nothing:
// the name is written at most once in usedInterval, and by Close.
func (s *Store) Used(name string) {
	s.mu.Lock()
	due := s.mu.used != name && s.now().Sub(s.mu.saved) >= usedInterval
	s.mu.used = name
	s.mu.Unlock()
	if due {
		s.saveState()
	}
}

// Default chooses a model for a node that was not told which to serve: of the
// models that can chat and that fits accepts, the one that was used last, else
// the largest file, by name among equals. The built-in model is never chosen.
func (s *Store) Default(ctx context.Context, fits func(Model) bool) (Model, bool) {
	s.mu.Lock()
	used := s.mu.used
	s.mu.Unlock()
	all, err := s.List(ctx)
	if err != nil {
		return Model{}, false
	}
	var best Model
	found := false
	for _, m := range all {
		if m.Source == BuiltIn || !m.Info.CanChat() || !fits(m) {
			continue
		}
		if m.Name == used {
			return m, true
		}
		if !found || m.Size > best.Size {
			best, found = m, true
		}
	}
	return best, found
}
