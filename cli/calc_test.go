package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"tandem/node/calc"
)

const (
	llama8b  = "../node/calc/testdata/llama-3.1-8b.json"
	gemma27b = "../node/calc/testdata/gemma-3-27b.json"
)

// The whole table of a model whose figures are published; -update rewrites it.
func TestCalcPrintsATable(t *testing.T) {
	for file, args := range map[string][]string{
		"testdata/calc-llama.txt": {"calc", llama8b, "--ctx", "8192", "--parallel", "1", "--memory", "24GiB", "--memory", "8GiB", "--prefill-rate", "900", "--decode-rate", "12", "--link", "1,10"},
		"testdata/calc-gemma.txt": {"calc", gemma27b, "--tokens", "8000", "--kv-type", "q8_0", "--weight-bits", "4.5", "--memory", "16GiB", "--boxes", "4", "--goodput", "280MB", "--rtt-ms", "0.5"},
	} {
		code, out, errs := run(t, nil, args...)
		if code != 0 || errs != "" {
			t.Fatalf("status %d, %s", code, errs)
		}
		if *update {
			if err := os.WriteFile(file, []byte(out), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != out {
			t.Errorf("%s (%v) differs from:\n%s", file, err, out)
		}
	}
}

func TestCalcPrintsJSON(t *testing.T) {
	code, out, errs := run(t, nil, "calc", llama8b, "--json", "--tokens", "1000", "--kv-type", "q8_0")
	if code != 0 {
		t.Fatal(errs)
	}
	var r calc.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.KV.Bytes != 131_072*1000*8.5/16 || r.KV.Type != "q8_0" || len(r.Links) != 6 || len(r.Splits) != 6 || r.Memory.Context != 4096 || r.Memory.Sequences != 4 {
		t.Errorf("%+v", r)
	}
}

// Without a name: the model that a node would serve; here there is only the built-in one.
func TestCalcOfAModelOnThisMachine(t *testing.T) {
	home := []string{"HOME=" + t.TempDir()}
	t.Setenv("HOME", t.TempDir())
	code, out, errs := run(t, home, "calc")
	if code != 0 || !strings.Contains(out, "tandem-tiny") || !strings.Contains(out, "2,048 bytes of f16") {
		t.Errorf("status %d, %s, %s", code, out, errs)
	}
	code, _, errs = run(t, home, "calc", "no-such-model")
	if code != 1 || !strings.Contains(errs, "tandem pull no-such-model") {
		t.Errorf("status %d, %s", code, errs)
	}
}

func TestCalcRefusesBadInput(t *testing.T) {
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--memory", "big"}, []string{"--memory", `"big"`, "512MiB"}},
		{[]string{"--goodput", "0"}, []string{"--goodput", `"0"`}},
		{[]string{"--weights", "-1"}, []string{"--weights", `"-1"`}},
		{[]string{"--link", "-1"}, []string{"--link", "-1", "100000"}},
		{[]string{"--tokens", "-1"}, []string{"--tokens", "-1", "1 to "}},
		{[]string{"--prefill-rate", "-1"}, []string{"--prefill-rate", "-1"}},
		{[]string{"--weight-bits", "65"}, []string{"--weight-bits", "65", "0 to 64"}},
		{[]string{"--boxes", "3", "--memory", "1GiB", "--memory", "2GiB"}, []string{"--memory", "2 boxes", "all 3"}},
	} {
		code, out, errs := run(t, nil, append([]string{"calc", llama8b}, tt.args...)...)
		if code != 2 || out != "" {
			t.Errorf("%v: status %d, output %q", tt.args, code, out)
		}
		for _, word := range tt.says {
			if !strings.Contains(errs, word) {
				t.Errorf("%v: %q does not say %q", tt.args, errs, word)
			}
		}
	}
}
