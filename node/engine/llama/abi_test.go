package llama

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestABI compiles abi.h against llama.cpp's own headers: every struct must have
// the same size and the same fields at the same offsets, every enumerator the
// same value, and every function must be declared with a compatible type.
func TestABI(t *testing.T) {
	header, err := os.ReadFile("abi.h")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := compileABI(t, string(header)); err != nil {
		t.Errorf("abi.h does not fit llama.h: %v\n%s", err, out)
	}
	// The check must be able to fail.
	broken := map[string][2]string{
		"order of fields":    {"    bool use_mmap;\n    bool use_mlock;\n", "    bool use_mlock;\n    bool use_mmap;\n"},
		"missing field":      {"    float yarn_beta_slow;\n", ""},
		"missing last field": {"    int8_t * logits;\n", ""},
		"enumerator":         {"GGML_TYPE_Q8_0  = 8", "GGML_TYPE_Q8_0  = 9"},
		"type of argument":   {"llama_set_warmup(struct llama_context * ctx, bool warmup)", "llama_set_warmup(struct llama_context * ctx, int warmup)"},
		"type of result":     {"uint32_t llama_n_ctx(", "int64_t llama_n_ctx("},
	}
	for name, edit := range broken {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(header), edit[0]) {
				t.Fatalf("abi.h has no %q", edit[0])
			}
			if _, err := compileABI(t, strings.Replace(string(header), edit[0], edit[1], 1)); err == nil {
				t.Error("the wrong header was accepted")
			}
		})
	}
}

func compileABI(t *testing.T, header string) (output []byte, err error) {
	t.Helper()
	dir := t.TempDir()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ollama/ollama").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	cc := goEnv(t, "CC")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("abi.h", header)
	write("types.c", typeAssertions(header))
	write("functions.c", "#include \"llama.h\"\n#define TANDEM_ABI_WITHOUT_TYPES\n#include \"abi.h\"\n")
	root := strings.TrimSpace(string(module))
	for _, file := range []string{"types.c", "functions.c"} {
		cmd := exec.Command(cc, "-std=c11", "-Werror", "-fsyntax-only",
			"-I", dir, "-I", root+"/llama/llama.cpp/include", "-I", root+"/ml/backend/ggml/ggml/include", filepath.Join(dir, file))
		if out, err := cmd.CombinedOutput(); err != nil {
			return out, err
		}
	}
	return nil, nil
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	return strings.TrimSpace(string(out))
}

var (
	structBody   = regexp.MustCompile(`(?s)struct (\w+) \{\n(.*?)\n\}`)
	enumBody     = regexp.MustCompile(`(?s)enum (\w+) \{\n(.*?)\n\}`)
	fieldName    = regexp.MustCompile(`(\w+)(\[\d+\])?;`)
	enumerator   = regexp.MustCompile(`(\w+)\s*=`)
	callbackType = regexp.MustCompile(`typedef \w+ \(\*(\w+)\)`)
)

// typeAssertions includes both headers, ours with all names changed, and compares
// everything that ours declares.
func typeAssertions(header string) string {
	var names, asserts []string
	equal := func(format string, args ...any) {
		ours, theirs := fmt.Sprintf(format, "our_"+args[0].(string), args[1]), fmt.Sprintf(format, args...)
		asserts = append(asserts, fmt.Sprintf("_Static_assert(%s == %s, \"%s\");", ours, theirs, theirs))
	}
	for _, s := range structBody.FindAllStringSubmatch(header, -1) {
		names = append(names, s[1])
		equal("sizeof(struct %s)%.0s", s[1], "")
		for _, f := range fieldName.FindAllStringSubmatch(s[2], -1) {
			equal("offsetof(struct %s, %s)", s[1], f[1])
			equal("sizeof(((struct %s *) 0)->%s)", s[1], f[1])
		}
	}
	for _, e := range enumBody.FindAllStringSubmatch(header, -1) {
		names = append(names, e[1])
		equal("sizeof(enum %s)%.0s", e[1], "")
		for _, v := range enumerator.FindAllStringSubmatch(e[2], -1) {
			names = append(names, v[1])
			equal("(int) %s%.0s", v[1], "")
		}
	}
	for _, c := range callbackType.FindAllStringSubmatch(header, -1) {
		names = append(names, c[1])
	}
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include \"llama.h\"\n#define TANDEM_ABI_WITHOUT_FUNCTIONS\n")
	for _, n := range names {
		fmt.Fprintf(&b, "#define %s our_%s\n", n, n)
	}
	b.WriteString("#include \"abi.h\"\n")
	for _, n := range names {
		fmt.Fprintf(&b, "#undef %s\n", n)
	}
	b.WriteString(strings.Join(asserts, "\n"))
	b.WriteString("\n")
	return b.String()
}
