package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// run executes a command line in a data folder of its own.
func run(t *testing.T, environ []string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	environ = append([]string{"NODE_DATA_DIR=" + t.TempDir(), "NODE_LISTEN=127.0.0.1:1"}, environ...)
	code = Run(context.Background(), Env{Args: args, Environ: environ, In: strings.NewReader(""), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// What a user wrote wrong ends with status 2, names what is allowed, and starts
// nothing.
func TestBadCommandLines(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		says []string
	}{
		{"a value", []string{"--ctx", "banana"}, []string{"--ctx", `"banana"`, "whole number"}},
		{"two values", []string{"--ctx", "1", "--kv-type", "banana"}, []string{"--ctx", "--kv-type", "f16, q8_0, q4_0"}},
		{"an unknown flag", []string{"--colour", "red"}, []string{"--colour"}},
		{"an unknown command", []string{"dance"}, []string{"dance", "--help"}},
		{"a missing argument", []string{"pull"}, []string{"pull", "one model reference"}},
		{"a config that is not there", []string{"--config", "/does/not/exist"}, []string{"--config"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := run(t, nil, tt.args...)
			if code != 2 || out != "" {
				t.Errorf("status %d, output %q", code, out)
			}
			for _, word := range tt.says {
				if !strings.Contains(errs, word) {
					t.Errorf("%q does not say %q", errs, word)
				}
			}
		})
	}
}

func TestConfigShowsWhereValuesComeFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("ctx: 8192\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := run(t, []string{"NODE_PARALLEL=2"}, "config", "--config", file, "--batch", "64")
	if code != 0 {
		t.Fatal(errs)
	}
	for _, want := range [][]string{{"ctx", "8192", file}, {"parallel", "2", "NODE_PARALLEL"}, {"batch", "64", "--batch"}, {"block", "64", "default"}} {
		found := false
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			found = found || len(f) == 3 && f[0] == want[0] && f[1] == want[1] && f[2] == want[2]
		}
		if !found {
			t.Errorf("no line %v in:\n%s", want, out)
		}
	}
}

func TestModelsListsTheBuiltInOne(t *testing.T) {
	code, out, errs := run(t, []string{"HOME=/nonexistent"}, "models", "--quiet")
	if code != 0 || !strings.Contains(out, "tandem-tiny") {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
}

func TestWithoutANodeStatusSaysHowToStartOne(t *testing.T) {
	code, _, errs := run(t, nil, "status")
	if code != 1 || !strings.Contains(errs, "no node answers at http://127.0.0.1:1") || !strings.Contains(errs, "start one") {
		t.Errorf("status %d, %q", code, errs)
	}
}

// A question on the command line is answered by a node that lives for it, with
// the real engine and the built-in model.
func TestRunAnswersWithoutANode(t *testing.T) {
	code, out, errs := run(t, nil, "run", "--model", "tandem-tiny", "--ctx", "256", "tandem-tiny", "What is a KV block?")
	if code != 0 || len(strings.TrimSpace(out)) < 10 || !strings.Contains(out, "tokens/s") {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
}
