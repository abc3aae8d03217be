package models

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/node/models/gguf/gguftest"
)

// logs collects log lines.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

// newStore opens a store in a folder of its own. Pauses between attempts are
// left out.
func newStore(t *testing.T, change func(*Config)) (*Store, *logs) {
	t.Helper()
	l := &logs{}
	cfg := Config{Dir: filepath.Join(t.TempDir(), "models"), Logger: slog.New(slog.NewTextHandler(l, nil))}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.pulls.delay = func(int) time.Duration { return 0 }
	t.Cleanup(func() { s.Close() })
	return s, l
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func sum(data []byte) string {
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

func put(t *testing.T, s *Store, data []byte) (digest string) {
	t.Helper()
	digest = "sha256:" + sum(data)
	if err := s.PutBlob(context.Background(), digest, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return digest
}

// names are the models that List shows.
func names(t *testing.T, s *Store) string {
	t.Helper()
	all, err := s.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
	}
	return strings.Join(names, " ")
}

// tree describes every file below dir, to see whether any was touched.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// noPath fails if a message shows a path of this machine.
func noPath(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), os.TempDir()) || strings.Contains(err.Error(), "/home") || strings.Contains(err.Error(), "blobs/")) {
		t.Errorf("the message holds a path: %v", err)
	}
}

var tiny = sync.OnceValue(func() []byte { return gguftest.Llama().Bytes() })

// other is a second model.
var other = sync.OnceValue(func() []byte { return gguftest.Qwen3().Bytes() })
