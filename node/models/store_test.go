package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tandem/node/models/gguf"
	"tandem/node/models/gguf/gguftest"
)

func TestSourcesAndPrecedence(t *testing.T) {
	root := t.TempDir()
	ollama, hub, cache := filepath.Join(root, "ollama"), filepath.Join(root, "hub"), filepath.Join(root, "cache")
	digest := sum(other())
	write(t, filepath.Join(ollama, "blobs", "sha256-"+digest), other())
	license := []byte("\n  MIT License\nmore\n")
	write(t, filepath.Join(ollama, "blobs", "sha256-"+sum(license)), license)
	manifest := ollamaJSON(layer(mediaModel, digest, len(other())), layer(mediaLicense, sum(license), len(license)), layer("application/vnd.ollama.image.template", digest, 5))
	write(t, filepath.Join(ollama, "manifests", "registry.ollama.ai", "library", "qwen", "tiny"), manifest)
	write(t, filepath.Join(ollama, "manifests", "registry.ollama.ai", "someone", "thing", "latest"), manifest)
	write(t, filepath.Join(ollama, "manifests", "hf.co", "org", "repo-GGUF", "Q4_0"), manifest)
	write(t, filepath.Join(hub, "models--org--repo", "blobs", sum(tiny())), tiny())
	link(t, filepath.Join("..", "..", "blobs", sum(tiny())), filepath.Join(hub, "models--org--repo", "snapshots", "abc", "tiny-Q8_0.gguf"))
	write(t, filepath.Join(cache, "org_repo_tiny.gguf"), tiny())
	write(t, filepath.Join(cache, "dropped.gguf"), other())

	s, log := newStore(t, func(c *Config) {
		c.OllamaDirs, c.HubDirs, c.FileDirs = []string{ollama, filepath.Join(root, "none")}, []string{hub}, []string{cache}
		c.Builtin, c.BuiltinName = tiny(), "tandem"
	})
	write(t, filepath.Join(s.cfg.Dir, "dropped.gguf"), tiny())
	before := tree(t, root)
	if got, want := names(t, s), "dropped hf.co/org/repo-GGUF:Q4_0 hf.co/org/repo:Q8_0 org_repo_tiny qwen:tiny someone/thing:latest tandem"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, tc := range []struct {
		name, shown string
		source      Source
		digest      string
		arch        string
		license     string
	}{
		{"dropped", "dropped", File, "", "llama", ""}, // the store's folder comes before caches
		{"dropped:latest", "dropped", File, "", "llama", ""},
		{"QWEN:tiny", "qwen:tiny", Ollama, digest, "qwen3", "MIT License"},
		{"someone/thing", "someone/thing:latest", Ollama, digest, "qwen3", "MIT License"},
		{"hf.co/org/repo", "hf.co/org/repo:Q8_0", HuggingFace, sum(tiny()), "llama", ""},
		{"huggingface.co/org/repo:Q8_0", "hf.co/org/repo:Q8_0", HuggingFace, sum(tiny()), "llama", ""},
		{"org_repo_tiny", "org_repo_tiny", File, "", "llama", ""},
		{"tandem", "tandem", BuiltIn, sum(tiny()), "llama", ""},
	} {
		m, err := s.Resolve(tc.name)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if m.Name != tc.shown || m.Source != tc.source || m.Digest != tc.digest || m.Info.Architecture != tc.arch || m.License != tc.license {
			t.Errorf("%s is %s from %s, digest %q, %s, license %q", tc.name, m.Name, m.Source, m.Digest, m.Info.Architecture, m.License)
		}
		if tc.source != Own {
			var fixed *ReadOnlyError
			if err := s.Delete(tc.shown); !errors.As(err, &fixed) {
				t.Errorf("deleting %s: got %v, want a ReadOnlyError", tc.name, err)
			}
		}
	}
	if after := tree(t, root); !strings.Contains(after, before[:40]) || countLines(after) < countLines(before) {
		t.Error("a foreign file was changed")
	}
	if n := log.count("level=WARN"); n != 0 {
		t.Errorf("%d warnings", n)
	}
}

func countLines(s string) int { return strings.Count(s, "\n") }

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

type rawLayer = map[string]any

func layer(media, hex string, size int) rawLayer {
	return rawLayer{"mediaType": media, "digest": "sha256:" + hex, "size": size}
}

func ollamaJSON(layers ...rawLayer) []byte {
	b, err := json.Marshal(map[string]any{"schemaVersion": 2, "layers": layers})
	if err != nil {
		panic(err)
	}
	return b
}

func TestBrokenModelsAreSkipped(t *testing.T) {
	root := t.TempDir()
	ollama, hub := filepath.Join(root, "ollama"), filepath.Join(root, "hub")
	at := func(tag string) string {
		return filepath.Join(ollama, "manifests", "registry.ollama.ai", "library", "m", tag)
	}
	write(t, at("json"), []byte("{"))
	write(t, at("empty"), ollamaJSON())
	write(t, at("path"), ollamaJSON(rawLayer{"mediaType": mediaModel, "digest": "sha256:../../../secret", "size": 5}))
	write(t, at("adapter"), ollamaJSON(layer(mediaModel, sum(tiny()), 5), layer(mediaAdapter, sum(tiny()), 5)))
	write(t, at("twice"), ollamaJSON(layer(mediaModel, sum(tiny()), 5), layer(mediaModel, sum(other()), 5)))
	write(t, at("gone"), ollamaJSON(layer(mediaModel, sum(tiny()), 5)))
	write(t, filepath.Join(ollama, "manifests", "a b", "library", "m", "x"), ollamaJSON())
	write(t, filepath.Join(root, "secret.gguf"), tiny())
	link(t, filepath.Join(root, "secret.gguf"), filepath.Join(hub, "models--org--repo", "snapshots", "abc", "m-Q8_0.gguf"))

	s, log := newStore(t, func(c *Config) { c.OllamaDirs, c.HubDirs = []string{ollama}, []string{hub} })
	var files map[string][]byte
	text, err := os.ReadFile("gguf/testdata/hostile.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &files); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		write(t, filepath.Join(s.cfg.Dir, name+".gguf"), b)
	}
	write(t, filepath.Join(s.cfg.Dir, "manifests", "x.json"), []byte(`{"version":1}`))
	if got := names(t, s); got != "" {
		t.Errorf("offered %s", got)
	}
	warned := log.count("level=WARN")
	if want := len(files) + 6 + 1; warned != want {
		t.Errorf("%d warnings, want %d", warned, want)
	}
	names(t, s)
	if again := log.count("level=WARN"); again != warned {
		t.Errorf("%d more warnings at the second look", again-warned)
	}
	for name := range files {
		_, err := s.Resolve(name)
		var broken *BrokenError
		var refused *gguf.FormatError
		if !errors.As(err, &broken) || !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want a BrokenError with a FormatError", name, err)
		}
		noPath(t, err)
		_, err = s.AddPath(filepath.Join(s.cfg.Dir, name+".gguf"))
		if !errors.As(err, &refused) {
			t.Errorf("%s by path: got %v, want a FormatError", name, err)
		}
		noPath(t, err)
	}
	_, err = s.Resolve("m:gone")
	var broken *BrokenError
	if !errors.As(err, &broken) {
		t.Errorf("a model whose file is gone: %v", err)
	}
	noPath(t, err)
}

func TestResolveNotFound(t *testing.T) {
	s, _ := newStore(t, nil)
	if _, err := s.Resolve("nothing"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	for _, name := range hostileNames {
		if _, err := s.Resolve(name); !errors.Is(err, ErrBadName) {
			t.Errorf("%q: got %v, want ErrBadName", clip(name), err)
		}
	}
}

func TestResolveSeesChanges(t *testing.T) {
	s, _ := newStore(t, nil)
	clock := time.Now()
	s.now = func() time.Time { return clock }
	s.scan()
	path := filepath.Join(s.cfg.Dir, "m.gguf")
	write(t, path, tiny())
	if _, err := s.Resolve("m"); !errors.Is(err, ErrNotFound) {
		t.Errorf("within the rescan interval: %v", err)
	}
	clock = clock.Add(rescanAfter)
	if m, err := s.Resolve("m"); err != nil || m.Info.Architecture != "llama" {
		t.Fatalf("a new file: %+v, %v", m.Info, err)
	}
	write(t, path, other())
	if m, err := s.Resolve("m"); err != nil || m.Info.Architecture != "qwen3" {
		t.Errorf("a replaced file: %+v, %v", m.Info, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve("m"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a removed file: %v", err)
	}
}

func TestAddPath(t *testing.T) {
	s, _ := newStore(t, nil)
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a", "m.gguf"), filepath.Join(dir, "b", "m.gguf")
	write(t, first, tiny())
	write(t, second, other())
	write(t, filepath.Join(s.cfg.Dir, "m.gguf"), other())
	m, err := s.AddPath(first)
	if err != nil || m.Name != "m" || m.Path != first || m.Source != File {
		t.Fatalf("got %+v, %v", m, err)
	}
	if got, err := s.Resolve("m"); err != nil || got.Path != first {
		t.Errorf("the file in the folder hides it: %s, %v", got.Path, err)
	}
	if _, err := s.AddPath(second); !errors.Is(err, ErrBadName) {
		t.Errorf("a second file of that name: %v", err)
	}
	if _, err := s.AddPath(first); err != nil {
		t.Errorf("the same file again: %v", err)
	}
	_, err = s.AddPath(filepath.Join(dir, "missing.gguf"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	noPath(t, err)
}

func TestDefault(t *testing.T) {
	ctx := context.Background()
	any := func(Model) bool { return true }
	s, _ := newStore(t, func(c *Config) { c.Builtin, c.BuiltinName = tiny(), "tandem" })
	if m, ok := s.Default(ctx, any); ok {
		t.Errorf("chose %s of nothing", m.Name)
	}
	plain, large := gguftest.Llama(), gguftest.Llama()
	plain.Template, plain.FF = "", 2048
	large.FF = 256
	embedder, err := gguftest.Qwen3().Embedder().Bytes()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.cfg.Dir, "no-template.gguf"), plain.Bytes())
	write(t, filepath.Join(s.cfg.Dir, "embedder.gguf"), embedder)
	write(t, filepath.Join(s.cfg.Dir, "large.gguf"), large.Bytes())
	write(t, filepath.Join(s.cfg.Dir, "small.gguf"), tiny())
	if m, ok := s.Default(ctx, any); !ok || m.Name != "large" {
		t.Errorf("chose %q, want the largest that can chat", m.Name)
	}
	if m, ok := s.Default(ctx, func(m Model) bool { return m.Name != "large" }); !ok || m.Name != "small" {
		t.Errorf("chose %q, want what fits", m.Name)
	}
	s.Used("large")
	s.Used("small")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if m, ok := again.Default(ctx, any); !ok || m.Name != "small" {
		t.Errorf("chose %q, want what was used last", m.Name)
	}
}

func TestDigest(t *testing.T) {
	ctx := context.Background()
	s, _ := newStore(t, nil)
	path := filepath.Join(s.cfg.Dir, "m.gguf")
	write(t, path, tiny())
	s.scan()
	if m, err := s.Resolve("m"); err != nil || m.Digest != "" {
		t.Fatalf("digest %q before it was asked for, %v", m.Digest, err)
	}
	if d, err := s.Digest(ctx, "m"); err != nil || d != sum(tiny()) {
		t.Fatalf("got %q, %v", d, err)
	}
	again, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if m, err := again.Resolve("m"); err != nil || m.Digest != sum(tiny()) {
		t.Errorf("digest %q after a restart, %v", m.Digest, err)
	}
	write(t, path, other())
	if m, err := again.Resolve("m"); err != nil || m.Digest != "" {
		t.Errorf("digest %q of another file, %v", m.Digest, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := again.Digest(ctx, "m"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestInspect(t *testing.T) {
	s, _ := newStore(t, nil)
	write(t, filepath.Join(s.cfg.Dir, "m.gguf"), tiny())
	s.scan()
	m, f, err := s.Inspect("m")
	if err != nil || m.Name != "m" || f.Text("general.name") != "tiny llama" || len(f.Tensors) == 0 {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestBuiltinIsRestored(t *testing.T) {
	s, _ := newStore(t, func(c *Config) { c.Builtin, c.BuiltinName = tiny(), "tandem" })
	m, err := s.Resolve("tandem")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(m.Path); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if m, err := again.Resolve("tandem"); err != nil || m.Source != BuiltIn {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestKnownPlaces(t *testing.T) {
	env := map[string]string{"OLLAMA_MODELS": "/o", "HF_HOME": "/h", "LLAMA_CACHE": "/l", "HF_TOKEN": "t"}
	var c Config
	c.KnownPlaces(func(k string) string { return env[k] }, "/home/x")
	want := Config{OllamaDirs: []string{"/o", "/home/x/.ollama/models", "/usr/share/ollama/.ollama/models", "/var/lib/ollama/.ollama/models"},
		HubDirs: []string{"/h/hub", "/home/x/.cache/huggingface/hub"}, FileDirs: []string{"/l", "/home/x/.cache/llama.cpp"}, HubToken: "t"}
	if a, b := strings.Join(append(append(c.OllamaDirs, c.HubDirs...), c.FileDirs...), " "), strings.Join(append(append(want.OllamaDirs, want.HubDirs...), want.FileDirs...), " "); a != b || c.HubToken != "t" {
		t.Errorf("got  %s\nwant %s", a, b)
	}
	c = Config{}
	c.KnownPlaces(func(string) string { return "" }, "")
	if len(c.HubDirs) != 0 || len(c.FileDirs) != 0 {
		t.Errorf("without a home: %v %v", c.HubDirs, c.FileDirs)
	}
}

func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	write(t, file, nil)
	if _, err := Open(Config{Dir: file}); err == nil {
		t.Error("a file is no folder")
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("no folder at all")
	}
	if _, err := Open(Config{Dir: t.TempDir(), OllamaRegistry: "ftp://x"}); err == nil {
		t.Error("a registry that is no web server")
	}
}

func TestClean(t *testing.T) {
	s, _ := newStore(t, func(c *Config) { c.Builtin, c.BuiltinName = tiny(), "tandem" })
	digest := put(t, s, other())
	if _, err := s.Create("kept", "", map[string]string{"m.gguf": digest}); err != nil {
		t.Fatal(err)
	}
	junk := []byte("junk")
	orphan := put(t, s, junk)
	old := filepath.Join(s.cfg.Dir, "partial", "old")
	write(t, old, junk)
	s.now = func() time.Time { return time.Now().Add(2 * partialKept) }
	s.clean()
	if s.HasBlob(orphan) || !s.HasBlob(digest) || !s.HasBlob("sha256:"+sum(tiny())) {
		t.Errorf("orphan %v, model %v, built-in %v", s.HasBlob(orphan), s.HasBlob(digest), s.HasBlob("sha256:"+sum(tiny())))
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an old partial file is still there: %v", err)
	}
	// While a manifest cannot be read, nobody knows what is in use.
	orphan = put(t, s, junk)
	write(t, filepath.Join(s.cfg.Dir, "manifests", "from-the-future.json"), []byte(`{"version":2}`))
	s.clean()
	if !s.HasBlob(orphan) {
		t.Error("a blob was removed although a manifest cannot be read")
	}
}

func TestManifestsAreChecked(t *testing.T) {
	s, _ := newStore(t, nil)
	outside := filepath.Join(t.TempDir(), "outside.gguf")
	write(t, outside, tiny())
	n, err := ParseName("m")
	if err != nil {
		t.Fatal(err)
	}
	path := s.manifestPath(n)
	good := manifest{Version: 1, Name: "m:latest", Digest: sum(tiny())}
	for _, tc := range []struct {
		name   string
		change func(*manifest)
		ok     bool
	}{
		{"as it should be", func(*manifest) {}, true},
		{"a file elsewhere", func(m *manifest) { m.Digest, m.Path = "", outside }, true},
		{"version", func(m *manifest) { m.Version = 2 }, false},
		{"name", func(m *manifest) { m.Name = "../m" }, false},
		{"another name", func(m *manifest) { m.Name = "other:latest" }, false},
		{"shown as another", func(m *manifest) { m.Shown = "other" }, false},
		{"digest", func(m *manifest) { m.Digest = "../../x" }, false},
		{"neither", func(m *manifest) { m.Digest = "" }, false},
		{"both", func(m *manifest) { m.Path = outside }, false},
		{"relative path", func(m *manifest) { m.Digest, m.Path = "", "../x.gguf" }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := good
			tc.change(&m)
			text, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			write(t, path, text)
			if _, err := s.readManifest(path); (err == nil) != tc.ok {
				t.Errorf("got %v", err)
			}
		})
	}
	write(t, path, bytes.Repeat([]byte(" "), maxManifestBytes+1))
	if _, err := s.readManifest(path); err == nil {
		t.Error("a manifest over the limit was read")
	}
}
