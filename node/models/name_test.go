package models

import (
	"errors"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"smollm2", "smollm2:latest"},
		{"smollm2:135m", "smollm2:135m"},
		{"library/smollm2", "smollm2:latest"},
		{"registry.ollama.ai/library/smollm2:135m", "smollm2:135m"},
		{"Someone/Model:Q4_K_M", "Someone/Model:Q4_K_M"},
		{"hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0", "hf.co/bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0"},
		{"huggingface.co/org/repo", "hf.co/org/repo:latest"},
		{"HF.co/org/repo", "hf.co/org/repo:latest"},
		{"localhost/ns/m", "localhost/ns/m:latest"},
		{"127.0.0.1:5000/ns/m:t", "127.0.0.1:5000/ns/m:t"},
		{"registry.example/ns/m", "registry.example/ns/m:latest"},
		{"SmolLM2-135M-Instruct.Q4_1", "SmolLM2-135M-Instruct.Q4_1:latest"},
		{"_x", "_x:latest"},
		{"console", "console:latest"},
	} {
		n, err := ParseName(tc.in)
		if err != nil || n.String() != tc.want {
			t.Errorf("%q is %q, %v; want %q", tc.in, n, err, tc.want)
		}
		again, err := ParseName(n.String())
		if err != nil || again != n {
			t.Errorf("%q does not survive a round trip: %v, %v", n, again, err)
		}
	}
}

// hostileNames are names that must never reach a file system.
var hostileNames = []string{
	"../../../../x/y", "..%2f..%2fx", "%2e%2e/%2e%2e/x", `..\..\x`, "/abs/x", "a/../../b", "a//b", "a\x00b", "a\nb", "a b:latest", "./x", "~x", "x:../../y",
	"registry.example/../../x:1", "con", strings.Repeat("a", 5000), "\u202etxt", "<img src=x onerror=alert(1)>", "", ".", " ",
	"..", "a:", ":a", "a/", "/", "a/b/c/d", "NUL", "com1.txt", "a:con", "-a", ".a", "a/.b", "a:b:c", "a@b", "hf.co/repo", "nohost/a/b", "a..b",
	strings.Repeat("a", 97), "ex..ample/a/b", "example:99999999/a/b", "C:\\x", "file:///etc/passwd", "ä", "a\u200bb",
}

func TestHostileNames(t *testing.T) {
	for _, name := range hostileNames {
		_, err := ParseName(name)
		var refused *RefError
		if !errors.Is(err, ErrBadName) || !errors.As(err, &refused) {
			t.Errorf("%q: got %v, want a RefError", clip(name), err)
			continue
		}
		if len(err.Error()) > 500 || strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("%q: message %q", clip(name), err)
		}
	}
}

func clip(s string) string { return s[:min(len(s), 60)] }

var hostileDigests = []string{
	"sha256:../../../../x", "sha256-../../x", "sha256:000000000000000000000000000000000000000000000000000000000000000",
	"sha256:GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG", "md5:00000000000000000000000000000000", "sha256:", "../x",
	"sha256:0000000000000000000000000000000000000000000000000000000000000000/../../x", "", "sha256:" + strings.Repeat("A", 64), "sha256:" + strings.Repeat("0", 64) + "\n",
}

func TestParseDigest(t *testing.T) {
	for _, d := range hostileDigests {
		if _, err := ParseDigest(d); !errors.Is(err, ErrBadName) {
			t.Errorf("%q: got %v, want a RefError", d, err)
		}
	}
	want := strings.Repeat("0123456789abcdef", 4)
	if got, err := ParseDigest("sha256:" + want); err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFileName(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"model.gguf", "model"},
		{"SmolLM2-135M-Instruct-Q4_1.GGUF", "SmolLM2-135M-Instruct-Q4_1"},
		{"My Model (v2).gguf", "My-Model--v2-"},
		{"..x.gguf", "x"},
		{"a..b.gguf", "a.-b"},
		{"CON.gguf", "model_CON"},
		{"中文.gguf", "model_"},
		{".gguf", "gguf"},
		{strings.Repeat("long", 60) + ".gguf", strings.Repeat("long", 24)},
	} {
		n := fileName(tc.in)
		if n.model != tc.want {
			t.Errorf("%q is %q, want %q", tc.in, n.model, tc.want)
		}
		if again, err := ParseName(n.model); err != nil || again != n {
			t.Errorf("%q: name %q is not one: %v", tc.in, n.model, err)
		}
	}
}

func TestIsPath(t *testing.T) {
	for _, tc := range []struct {
		in   string
		path bool
	}{
		{"./m", true}, {"../m", true}, {"/m", true}, {"~/m", true}, {"m.gguf", true}, {"dir/m.GGUF", true},
		{"smollm2", false}, {"smollm2:135m", false}, {"hf.co/org/repo", false}, {"https://host/m.gguf", false}, {".gguf", false}, {"", false},
	} {
		if got := IsPath(tc.in); got != tc.path {
			t.Errorf("IsPath(%q) is %v", tc.in, got)
		}
	}
}

func TestQuantOf(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Q4_K_M"},
		{"model.q8_0.gguf", "Q8_0"},
		{"UD/Qwen3-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
		{"model-IQ2_XXS.gguf", "IQ2_XXS"},
		{"model-f16.gguf", "F16"},
		{"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
		{"Q4_K_M/model-Q4_K_M-00001-of-00003.gguf", "Q4_K_M"},
		{"tiny_q4_0.gguf", "Q4_0"},
		{"BF16/model.gguf", "BF16"},
		{"model.gguf", ""},
		{"qwen2-7b.gguf", ""},
	} {
		if got := quantOf(tc.in); got != tc.want {
			t.Errorf("%q has %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestChoose(t *testing.T) {
	file := func(path string) hubFile { return hubFile{path: path, quant: quantOf(path)} }
	for _, tc := range []struct {
		name  string
		files []string
		want  string
		path  string // "" for none
	}{
		{"the usual one", []string{"m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"}, "latest", "m-Q4_K_M.gguf"},
		{"the nearest", []string{"m-F32.gguf", "m-Q8_0.gguf", "m-Q5_K_M.gguf"}, "latest", "m-Q5_K_M.gguf"},
		{"as asked, whatever the case", []string{"m-Q8_0.gguf", "m-Q4_K_M.gguf"}, "q8_0", "m-Q8_0.gguf"},
		{"not there", []string{"m-Q8_0.gguf"}, "Q4_0", ""},
		{"whole before split", []string{"m-Q4_K_M-00001-of-00002.gguf", "m-Q8_0.gguf"}, "latest", "m-Q8_0.gguf"},
		{"no name at all", []string{"model.gguf"}, "latest", "model.gguf"},
		{"shorter path", []string{"old/m-Q4_K_M.gguf", "m-Q4_K_M.gguf"}, "latest", "m-Q4_K_M.gguf"},
		{"nothing", nil, "latest", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var files []hubFile
			for _, p := range tc.files {
				files = append(files, file(p))
			}
			got, ok := choose(files, tc.want)
			if ok != (tc.path != "") || got.path != tc.path {
				t.Errorf("got %q, %v, want %q", got.path, ok, tc.path)
			}
		})
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range hostileNames {
		f.Add(s)
	}
	f.Add("hf.co/org/repo:Q4_K_M")
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			return
		}
		if again, err := ParseName(n.String()); err != nil || again != n {
			t.Fatalf("%q: %q does not survive: %v, %v", s, n, again, err)
		}
		if strings.Contains(s, "..") || strings.ContainsAny(s, "\\%\x00 ") || strings.HasPrefix(s, "/") {
			t.Fatalf("accepted %q", s)
		}
		if base := fileName(s); !validSegment(base.model) {
			t.Fatalf("file name %q gives %q", s, base.model)
		}
	})
}

func FuzzOllamaManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":1}]}`))
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../x","size":-1}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseOllamaManifest(text)
		if err == nil && (!hexPattern.MatchString(m.model.digest) || m.model.size < 1) {
			t.Fatalf("accepted %+v", m.model)
		}
	})
}

func FuzzTree(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"m-Q4_K_M.gguf","size":5,"lfs":{"oid":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","size":5}}]`))
	f.Add([]byte(`[{"type":"file","path":"../m.gguf","size":5,"lfs":{"oid":"x"}}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, _ := parseTree(text)
		for _, file := range files {
			if strings.Contains("/"+file.path+"/", "/../") || !hexPattern.MatchString(file.digest) || file.size < 1 {
				t.Fatalf("accepted %+v", file)
			}
		}
	})
}
