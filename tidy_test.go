package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Ratchets: the largest there are. Lowering is free; raising needs a reason in
// the commit.
const (
	functionLinesMax = 120
	fileLinesMax     = 700
)

// sourceFault is something a file must not hold.
type sourceFault struct {
	pattern *regexp.Regexp
	files   func(name string) bool
	why     string
}

func isTest(name string) bool    { return strings.HasSuffix(name, "_test.go") }
func isProduct(name string) bool { return strings.HasSuffix(name, ".go") && !isTest(name) }
func anyFile(string) bool        { return true }

var sourceFaults = []sourceFault{
	{regexp.MustCompile(`\btime\.Sleep\(`), isTest, "tests wait for a condition or use virtual time"},
	{regexp.MustCompile(`\btime\.Sleep\(`), isProduct, "a wait needs a context: use a timer in a select"},
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`), anyFile, "unfinished work belongs in an issue"},
	{regexp.MustCompile(`\bslog\.(Info|Warn|Error|Debug|Default)\(`), isProduct, "a node has its own logger"},
	{regexp.MustCompile(`\bprometheus\.(MustRegister|Register|DefaultRegisterer)\b`), isProduct, "a node owns its registry"},
	{regexp.MustCompile(`\bioutil\.`), anyFile, "deprecated"},
}

// excused tells where a rule does not hold, and why.
func excused(name, text, line string) bool {
	switch {
	case strings.Contains(line, "time.Sleep"):
		// Sleeping is how virtual time passes; the fake engine plays a slow one.
		return strings.Contains(text, `"testing/synctest"`) || strings.HasPrefix(name, "node/engine/enginetest/")
	case strings.Contains(line, "slog."):
		return name == "node/engine/llama/log.go" // llama.cpp has one log a process
	}
	return false
}

// faults checks the text of one Go file.
func faults(name, text string) []error {
	var out []error
	for i, line := range strings.Split(text, "\n") {
		for _, f := range sourceFaults {
			if f.files(name) && f.pattern.MatchString(line) && !excused(name, text, line) {
				out = append(out, fmt.Errorf("%s:%d: %s: %s", name, i+1, strings.TrimSpace(line), f.why))
			}
		}
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return append(out, err)
	}
	if lines := strings.Count(text, "\n"); lines > fileLinesMax && !isTest(name) {
		out = append(out, fmt.Errorf("%s has %d lines; the most is %d", name, lines, fileLinesMax))
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || isTest(name) {
			continue
		}
		if lines := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line + 1; lines > functionLinesMax {
			out = append(out, fmt.Errorf("%s: %s has %d lines; the most is %d", name, fn.Name.Name, lines, functionLinesMax))
		}
	}
	return out
}

// goFiles are the Go files of the work tree that git does not ignore.
func goFiles(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.go").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	return strings.Fields(string(out))
}

func TestSourcesAreTidy(t *testing.T) {
	for _, name := range goFiles(t) {
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range faults(name, string(text)) {
			t.Error(f)
		}
	}
}

func TestTidyRefusesPlantedFaults(t *testing.T) {
	long := "package p\nfunc f() {\n" + strings.Repeat("\t_ = 1\n", functionLinesMax) + "}\n"
	planted := map[string][2]string{
		"a sleep in a test":    {"p_test.go", "package p\nfunc f() { time.Sl" + "eep(1) }\n"},
		"a sleep in a product": {"p.go", "package p\nfunc f() { time.Sl" + "eep(1) }\n"},
		"a reminder":           {"p.go", "package p\n// TO" + "DO later\n"},
		"a global logger":      {"p.go", "package p\nfunc f() { slog.Info(\"x\") }\n"},
		"a long function":      {"p.go", long},
		"a long file":          {"p.go", "package p\n" + strings.Repeat("\n", fileLinesMax)},
		"no Go":                {"p.go", "package"},
	}
	for name, file := range planted {
		t.Run(name, func(t *testing.T) {
			if len(faults(file[0], file[1])) == 0 {
				t.Error("it passed")
			}
		})
	}
}

// Every package says what it is for.
func TestPackagesHaveDocs(t *testing.T) {
	docs := map[string]bool{}
	for _, name := range goFiles(t) {
		dir := filepath.Dir(name)
		if isTest(name) || strings.Contains(dir, "testdata") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		docs[dir] = docs[dir] || file.Doc != nil
	}
	for dir, has := range docs {
		if !has {
			t.Errorf("%s has no package comment", dir)
		}
	}
}

// Model files are not committed, but for the built-in one, and nothing large is.
func TestNoLargeFiles(t *testing.T) {
	const limit = 4 << 20
	out, err := exec.Command("git", "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	for _, name := range bytes.Split(bytes.TrimRight(out, "\x00"), []byte{0}) {
		if info, err := os.Stat(string(name)); err == nil && info.Size() > limit {
			t.Errorf("%s has %d bytes; the most is %d", name, info.Size(), limit)
		}
	}
}
