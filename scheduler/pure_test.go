package scheduler_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mayUse are the packages that decisions are made of. None of them does I/O or keeps
// a source of randomness; of time only its types are used.
var mayUse = []string{
	"cmp", "encoding/binary", "errors", "fmt", "io", "iter", "maps", "math", "math/bits", "slices", "strconv", "strings", "time",
	"tandem/cluster/member", "tandem/kvstore/block",
}

// impure are functions of these packages that look at the world or wait for it.
var impure = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
	"fmt":  {"Print", "Println", "Printf", "Scan", "Scanln", "Scanf"},
}

// impurities are the places in a file that make decisions depend on more than what
// goes in.
func impurities(name, text string) (out []error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		return []error{err}
	}
	fault := func(n ast.Node, format string, args ...any) {
		out = append(out, fmt.Errorf("%s: %s", set.Position(n.Pos()), fmt.Sprintf(format, args...)))
	}
	for _, imported := range file.Imports {
		path, _ := strconv.Unquote(imported.Path.Value)
		if !slices.Contains(mayUse, path) || imported.Name != nil {
			fault(imported, "import of %s", path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			fault(n, "a goroutine")
		case *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
			fault(n, "a channel")
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && slices.Contains(impure[of.Name], n.Sel.Name) {
				fault(n, "%s.%s", of.Name, n.Sel.Name)
			}
		}
		return true
	})
	return out
}

func TestDecisionsArePure(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range impurities(name, string(text)) {
			t.Error(fault)
		}
	}
	if seen < 10 {
		t.Errorf("%d files seen", seen)
	}
}

func TestPurityRefusesPlantedFaults(t *testing.T) {
	for what, text := range map[string]string{
		"the clock":       "package p\nimport \"time\"\nvar now = time.Now()\n",
		"an age":          "package p\nimport \"time\"\nvar age = time.Since(time.Time{})\n",
		"random numbers":  "package p\nimport \"math/rand/v2\"\nvar n = rand.Int()\n",
		"a file":          "package p\nimport \"os\"\nvar f, _ = os.Open(\"x\")\n",
		"the network":     "package p\nimport \"net\"\nvar c, _ = net.Dial(\"tcp\", \"x\")\n",
		"a lock":          "package p\nimport \"sync\"\nvar mu sync.Mutex\n",
		"a goroutine":     "package p\nfunc f() { go f() }\n",
		"a channel":       "package p\nvar c chan int\n",
		"output":          "package p\nimport \"fmt\"\nfunc f() { fmt.Println() }\n",
		"a renamed clock": "package p\nimport t \"time\"\nvar now = t.Now()\n",
	} {
		if len(impurities("p.go", text)) == 0 {
			t.Errorf("%s passed", what)
		}
	}
}
