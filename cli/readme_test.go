package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"tandem/node"
)

var update = flag.Bool("update", false, "rewrite the table of settings in README.md")

const (
	tableBegin = "<!-- settings: made by `go test ./cli -update` -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

// settingsTable is the table of all settings, from the one list that the program
// itself uses.
func settingsTable() string {
	var b strings.Builder
	b.WriteString("| flag | default | |\n|---|---|---|\n")
	for _, f := range node.Flags() {
		def := f.Default
		switch {
		case f.Name == "name":
			def = "the host's"
		case f.Name == "data-dir":
			def = "~/.local/share/tandem"
		}
		if def != "" {
			def = "`" + def + "`"
		}
		usage := f.Usage
		if f.List {
			usage += "; may be repeated"
		}
		fmt.Fprintf(&b, "| `--%s %s` | %s | %s |\n", f.Name, strings.ReplaceAll(f.Arg, "|", "\\|"), def, usage)
	}
	return b.String()
}

func TestREADMEListsAllSettings(t *testing.T) {
	const file = "../README.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(data), tableBegin)
	old, tail, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no table of settings between %q and %q", file, tableBegin, tableEnd)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+tableBegin+settingsTable()+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != settingsTable() {
		t.Errorf("the table of settings in %s is not that of the program; run go test ./cli -update", file)
	}
}
