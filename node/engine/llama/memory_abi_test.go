package llama

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// memoryABI compares places in the tables of virtual functions: a pointer to a
// virtual member is that place in the ABI of all platforms with llama.cpp's
// compilers but Windows' own.
const memoryABI = `
#include <cstring>
#include <cstdio>
#include <type_traits>
#include "llama-memory.h"
#include "llama-io.h"
#define TANDEM_ABI_WITHOUT_TYPES
#define TANDEM_ABI_WITHOUT_FUNCTIONS
#include "memory_abi.h"

template <typename F> long place(F f) { long v; std::memcpy(&v, &f, sizeof v); return v; }

#define SAME(ours, theirs, name) if (place(&ours::name) != place(&theirs::name)) { std::printf("%s\n", #theirs "::" #name); bad = 1; }

int main() {
    int bad = 0;
    SAME(memory_view, llama_memory_i, state_write)
    SAME(memory_view, llama_memory_i, state_read)
    SAME(state_writer, llama_io_write_i, write)
    SAME(state_writer, llama_io_write_i, write_tensor)
    SAME(state_writer, llama_io_write_i, n_bytes)
    SAME(state_reader, llama_io_read_i, read)
    SAME(state_reader, llama_io_read_i, read_to)
    SAME(state_reader, llama_io_read_i, n_bytes)
    static_assert(sizeof(state_writer) == sizeof(llama_io_write_i) && sizeof(state_reader) == sizeof(llama_io_read_i), "fields");
    static_assert(state_window_only == LLAMA_STATE_SEQ_FLAGS_SWA_ONLY && state_window_only == LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY, "flag");
    static_assert(std::is_same<llama_state_seq_flags, uint32_t>::value, "flags");
    void (llama_memory_i::*write)(llama_io_write_i &, llama_seq_id, uint32_t) const = &llama_memory_i::state_write;
    void (llama_memory_i::*read)(llama_io_read_i &, llama_seq_id, uint32_t) = &llama_memory_i::state_read;
    (void) write; (void) read;
    return bad;
}
`

// TestMemoryABI compiles memory_abi.h beside llama.cpp's own headers and compares
// the places of the functions.
func TestMemoryABI(t *testing.T) {
	header, err := os.ReadFile("memory_abi.h")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := compareMemoryABI(t, string(header)); err != nil {
		t.Errorf("memory_abi.h does not fit: %v\n%s", err, out)
	}
	// The check must be able to fail.
	for name, edit := range map[string][2]string{
		"a function is missing": {"    virtual void seq_div() = 0;\n", ""},
		"order":                 {"    virtual void write(const void * src, size_t size) = 0;\n    virtual void write_tensor(const ggml_tensor * tensor, size_t offset, size_t size) = 0;\n", "    virtual void write_tensor(const ggml_tensor * tensor, size_t offset, size_t size) = 0;\n    virtual void write(const void * src, size_t size) = 0;\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(header), edit[0]) {
				t.Fatalf("memory_abi.h has no %q", edit[0])
			}
			if _, err := compareMemoryABI(t, strings.Replace(string(header), edit[0], edit[1], 1)); err == nil {
				t.Error("the wrong header was accepted")
			}
		})
	}
}

func compareMemoryABI(t *testing.T, header string) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/ollama/ollama").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root := strings.TrimSpace(string(module))
	abi, err := os.ReadFile("abi.h")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"abi.h": string(abi), "memory_abi.h": header, "main.cpp": memoryABI} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "compare")
	build := exec.Command(goEnv(t, "CXX"), "-std=c++17", "-o", program, "-I", dir, "-I", root+"/llama/llama.cpp/src", "-I", root+"/llama/llama.cpp/include",
		"-I", root+"/ml/backend/ggml/ggml/include", filepath.Join(dir, "main.cpp"))
	if out, err := build.CombinedOutput(); err != nil {
		return out, err
	}
	return exec.Command(program).CombinedOutput()
}
