package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tandem/node/api"
)

func TestLoadConfigTakesTheStrongestSource(t *testing.T) {
	s := Sources{
		YAMLName: "t.yaml", YAML: map[string][]string{"ctx": {"1024"}, "parallel": {"2"}, "batch": {"64"}, "model": {"a", "b"}},
		Env:   []string{"NODE_CTX=2048", "NODE_PARALLEL=3", "OTHER=1"},
		Flags: map[string][]string{"ctx": {"4096"}, "keep-alive": {"90s"}},
	}
	c, settings, err := LoadConfig(s)
	if err != nil {
		t.Fatal(err)
	}
	if c.Context != 4096 || c.Parallel != 3 || c.Batch != 64 || c.Block != 64 || c.KeepAlive != 90*time.Second || !slices.Equal(c.Models, []string{"a", "b"}) {
		t.Errorf("%+v", c)
	}
	origin := map[string]string{}
	for _, s := range settings {
		origin[s.Name] = s.Origin
	}
	want := map[string]string{"ctx": "--ctx", "parallel": "NODE_PARALLEL", "batch": "t.yaml", "block": "default"}
	for name, from := range want {
		if origin[name] != from {
			t.Errorf("%s is from %q, want %q", name, origin[name], from)
		}
	}
}

// Every fault is told at once, with the name as the user wrote it, the value and
// what is allowed.
func TestLoadConfigListsAllFaults(t *testing.T) {
	_, _, err := LoadConfig(Sources{
		YAMLName: "t.yaml", YAML: map[string][]string{"kv-type": {"banana"}, "colour": {"red"}},
		Env:   []string{"NODE_CTX=many"},
		Flags: map[string][]string{"parallel": {"0"}, "listen": {"here"}, "kv-ram": {"lots"}, "api-key": {"short"}, "secret": {"abc"}, "role": {"cook"}, "join": {"a b:x"}, "name": {"a b"}, "keep-alive": {"5"}, "backends": {"/does/not/exist"}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`t.yaml: kv-type: "banana": is not known; allowed: f16, q8_0, q4_0`, `t.yaml: colour: there is no such setting`,
		`NODE_CTX: "many": is not a whole number; allowed: a whole number from 16`, `--parallel: "0": is out of range`,
		`--listen: "here": is not host:port`, `--kv-ram: "lots": is not a size; allowed: a size such as 512MiB`,
		`--api-key: (hidden): has 5 characters`, `--secret: (hidden): has 3 characters`, `--role: "cook": is not known; allowed: auto, hybrid, prefill, decode`, `--join: "a b:x"`, `--name: "a b": has the character ' '`,
		`--keep-alive: "5": is not a time`, `--backends: "/does/not/exist": is no folder`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestConfigNeverShowsSecrets(t *testing.T) {
	_, settings, err := LoadConfig(Sources{Flags: map[string][]string{"api-key": {"alice=correct-horse"}, "secret": {"battery-staple-16"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if strings.Contains(s.Value, "horse") || strings.Contains(s.Value, "staple") {
			t.Errorf("%s shows %q", s.Name, s.Value)
		}
	}
}

func TestReadYAML(t *testing.T) {
	got, err := ReadYAML([]byte("ctx: 8192\nmodel:\n  - a\n  - hf.co/x/y:Q8_0\nkv-ram: 2GiB\n"))
	if err != nil || !slices.Equal(got["model"], []string{"a", "hf.co/x/y:Q8_0"}) || got["ctx"][0] != "8192" || got["kv-ram"][0] != "2GiB" {
		t.Errorf("%v, %v", got, err)
	}
	for name, bad := range map[string]string{"a map in a map": "ctx:\n  a: 1\n", "no YAML": "a: [", "too large": strings.Repeat("#", 1<<20+1)} {
		if _, err := ReadYAML([]byte(bad)); err == nil {
			t.Errorf("%s passed", name)
		}
	}
}

func TestSplitKey(t *testing.T) {
	for in, want := range map[string][2]string{
		"alice=sk-12345678": {"alice", "sk-12345678"}, "sk-12345678": {"", "sk-12345678"}, "c2VjcmV0LWtleQ==": {"", "c2VjcmV0LWtleQ=="},
	} {
		if k, _ := api.ParseKey(in); k.Name != want[0] || k.Secret != want[1] {
			t.Errorf("%q: %q, %q", in, k.Name, k.Secret)
		}
	}
}
