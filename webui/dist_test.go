package webui

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// single are the sources outside of src; the same list is in scripts/stamp.mjs.
var single = []string{"index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts"}

func sumFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// sums are the hashes of the sources and of the built files as they are.
func sums(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range single {
		out[name] = sumFile(t, name)
	}
	for _, dir := range []string{"src", "dist"} {
		err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() {
				out[filepath.ToSlash(name)] = sumFile(t, name)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// readSums parses dist.sum.
func readSums(t *testing.T, text string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(text) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("dist.sum holds the line %q", line)
		}
		out[name] = sum
	}
	return out
}

// differences names the files that are in one of the maps only, or unlike.
func differences(built, now map[string]string) []string {
	var out []string
	for name, sum := range now {
		if built[name] != sum {
			out = append(out, name)
		}
	}
	for name := range built {
		if _, ok := now[name]; !ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// dist is committed. It must be what the committed sources build.
func TestDistIsBuiltFromTheseSources(t *testing.T) {
	text, err := os.ReadFile("dist.sum")
	if err != nil {
		t.Fatal(err)
	}
	if diff := differences(readSums(t, string(text)), sums(t)); len(diff) > 0 {
		t.Errorf("dist was not built from these sources; run `make webui`. Changed since: %s", strings.Join(diff, ", "))
	}
}

func TestDifferencesAreSeen(t *testing.T) {
	built := map[string]string{"src/a": "1", "src/b": "2"}
	tests := []struct {
		name   string
		change func(map[string]string)
		want   string
	}{
		{"nothing", func(map[string]string) {}, ""},
		{"changed", func(m map[string]string) { m["src/a"] = "9" }, "src/a"},
		{"added", func(m map[string]string) { m["src/c"] = "3" }, "src/c"},
		{"deleted", func(m map[string]string) { delete(m, "src/b") }, "src/b"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			now := maps.Clone(built)
			test.change(now)
			if got := strings.Join(differences(built, now), ","); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// The lock file must not tie the build to one registry.
func TestLockFileNamesNoRegistry(t *testing.T) {
	text, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), `"resolved"`) {
		t.Error(`package-lock.json holds "resolved" fields; .npmrc leaves them out`)
	}
}
