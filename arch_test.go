package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

// mayImport is the import table: which packages of ours each package may use.
// Arrows are never reversed, and siblings see at most each other's leaves. "..."
// after a name takes in everything below it.
var mayImport = map[string][]string{
	"tandem":                           {"tandem/cli"},
	"tandem/cli":                       {"tandem/node", "tandem/node/api", "tandem/node/calc", "tandem/scheduler", "tandem/scheduler/sim"},
	"tandem/node":                      {"tandem/cluster", "tandem/cluster/...", "tandem/kvstore", "tandem/kvstore/block", "tandem/kvstore/prefix", "tandem/node/...", "tandem/scheduler", "tandem/webui", "tandem/xfer", "tandem/xfer/..."},
	"tandem/node/api":                  {"tandem/node/chat"},
	"tandem/node/calc":                 {"tandem/node/engine", "tandem/node/models/gguf"},
	"tandem/node/chat":                 {"tandem/node/chat/jinja", "tandem/node/grammar"},
	"tandem/node/chat/jinja":           {},
	"tandem/node/grammar":              {},
	"tandem/node/engine":               {"tandem/kvstore/block"},
	"tandem/node/engine/llama":         {"tandem/kvstore/block", "tandem/node/engine", "tandem/node/engine/llama/gbnf"},
	"tandem/node/engine/llama/gbnf":    {},
	"tandem/node/engine/modeltest":     {},
	"tandem/node/nodetest":             {"tandem/node", "tandem/node/engine", "tandem/node/engine/enginetest", "tandem/node/engine/llama", "tandem/node/models/gguf/gguftest"},
	"tandem/node/engine/enginetest":    {"tandem/kvstore/block", "tandem/node/engine"},
	"tandem/node/models":               {"tandem/node/models/gguf"},
	"tandem/node/models/gguf":          {},
	"tandem/node/models/builtin":       {},
	"tandem/node/models/gguf/gguftest": {"tandem/node/models/gguf"},
	"tandem/scheduler":                 {"tandem/cluster/member", "tandem/kvstore/block"},
	"tandem/scheduler/sim":             {"tandem/cluster/member", "tandem/kvstore/block", "tandem/scheduler"},
	"tandem/webui":                     {},
	"tandem/cluster":                   {"tandem/cluster/identity", "tandem/cluster/member"},
	"tandem/cluster/member":            {},
	"tandem/cluster/quorum":            {"tandem/cluster/member"},
	"tandem/cluster/identity":          {"tandem/cluster/member"},
	"tandem/kvstore":                   {"tandem/kvstore/..."},
	"tandem/kvstore/block":             {},
	"tandem/kvstore/prefix":            {"tandem/kvstore/block"},
	"tandem/xfer":                      {"tandem/cluster/member", "tandem/kvstore/block"},
	"tandem/xfer/fabric":               {},
	"tandem/xfer/shm":                  {},
}

// onlyIn names the packages that alone may import something heavy or dangerous,
// with the reason.
var onlyIn = []struct {
	prefix string
	in     []string
	why    string
}{
	{"C", []string{"tandem/node/engine/llama", "tandem/xfer/fabric"}, "cgo lives where a library of C is used"},
	{"github.com/ollama/ollama", []string{"tandem/node/engine/llama"}, "the engine is replaceable"},
	{"github.com/dgraph-io", []string{"tandem/kvstore"}, "the disk tier is replaceable"},
	{"github.com/quic-go", []string{"tandem/xfer"}, "there is one way to call a peer"},
	{"github.com/hashicorp/yamux", []string{"tandem/xfer"}, "there is one way to call a peer"},
	{"github.com/zeebo", []string{"tandem/kvstore/block"}, "names and digests of blocks are made in one place"},
	{"github.com/hashicorp/memberlist", []string{"tandem/cluster"}, "others see members, not gossip"},
	{"github.com/hashicorp/mdns", []string{"tandem/cluster"}, "others see members, not how they are found"},
	{"unsafe", []string{"tandem/kvstore", "tandem/node/engine/llama", "tandem/xfer/fabric"}, "only where memory is not Go's"},
	{"github.com/hashicorp/raft", []string{"tandem/cluster/quorum"}, "agreement is replaceable, and nothing else waits for it"},
	{"go.etcd.io/bbolt", []string{"tandem/cluster/quorum"}, "one package owns raft's file"},
	{"github.com/prometheus", []string{"tandem/node"}, "metrics are a listener of the node's events"},
	{"go.opentelemetry.io", []string{"tandem/node"}, "traces are made from the node's events"},
	{"google.golang.org/grpc", nil, "traces go over HTTP"},
	{"github.com/spf13", []string{"tandem/cli"}, "only the command line parses flags"},
	{"go.yaml.in/yaml", []string{"tandem/node"}, "settings are merged in one place"},
	{"expvar", nil, "a node owns its metrics"},
	{"net/http/pprof", nil, "it registers itself on a global mux"},
}

// goPackage is what `go list -json` tells of a package.
type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// violations checks one package against the tables.
func violations(p goPackage) []error {
	allowed, known := mayImport[p.ImportPath]
	if !known {
		return []error{fmt.Errorf("%s is not in the import table: add it to mayImport with what it may use", p.ImportPath)}
	}
	var out []error
	for _, imported := range p.Imports {
		if strings.HasPrefix(imported+"/", "tandem/") && !slices.ContainsFunc(allowed, func(a string) bool { return matches(a, imported) }) {
			out = append(out, fmt.Errorf("%s may not import %s; allowed: %v", p.ImportPath, imported, allowed))
		}
		for _, rule := range onlyIn {
			if (imported == rule.prefix || strings.HasPrefix(imported, rule.prefix+"/")) && !slices.Contains(rule.in, p.ImportPath) {
				out = append(out, fmt.Errorf("%s may not import %s: %s", p.ImportPath, imported, rule.why))
			}
		}
	}
	return out
}

func matches(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(name, prefix+"/")
	}
	return path.Clean(name) == pattern
}

func TestImportTable(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(strings.NewReader(string(out)))
	seen := 0
	for {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		for _, v := range violations(p) {
			t.Error(v)
		}
	}
	if seen < len(mayImport)/2 {
		t.Errorf("go list showed %d packages; the table has %d", seen, len(mayImport))
	}
}

// The table would be worth nothing if a forbidden import passed.
func TestImportTableRefusesPlantedViolations(t *testing.T) {
	planted := []struct {
		name string
		p    goPackage
	}{
		{"a sibling", goPackage{ImportPath: "tandem/node/api", Imports: []string{"tandem/node/engine"}}},
		{"the way back up", goPackage{ImportPath: "tandem/node/engine", Imports: []string{"tandem/node"}}},
		{"cgo outside its package", goPackage{ImportPath: "tandem/node", Imports: []string{"C"}}},
		{"the engine's module elsewhere", goPackage{ImportPath: "tandem/node/models", Imports: []string{"github.com/ollama/ollama/fs/gguf"}}},
		{"a package nobody listed", goPackage{ImportPath: "tandem/util"}},
		{"a global registry", goPackage{ImportPath: "tandem/node", Imports: []string{"expvar"}}},
	}
	for _, tt := range planted {
		t.Run(tt.name, func(t *testing.T) {
			if len(violations(tt.p)) == 0 {
				t.Errorf("%+v passed", tt.p)
			}
		})
	}
}
