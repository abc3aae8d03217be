package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tandem/node"
)

// flagsPage is docs/flags.md, from the commands that the program has.
func flagsPage() string {
	var b strings.Builder
	b.WriteString("<!-- made by `go test ./cli -run Flags -update` -->\n# Settings and commands\n\n" +
		"Every setting is a flag, an environment variable and a key of the YAML file that `--config` names (the flag's name). " +
		"Flags win over the environment, that over the file. `tandem config` shows each value and where it came from. " +
		"A bad value is reported with what is allowed, with exit status 2, and nothing is started.\n\n" +
		"## Settings\n| flag | environment | default | |\n|---|---|---|---|\n")
	for _, f := range node.Flags() {
		def := f.Default
		switch f.Name {
		case "name":
			def = "the host's"
		case "data-dir":
			def = "~/.local/share/tandem"
		}
		usage := f.Usage
		if f.List {
			usage += "; may be repeated, or joined by commas"
		}
		fmt.Fprintf(&b, "| `--%s %s` | `%s` | %s | %s |\n", f.Name, cell(f.Arg), f.Env, code(def), cell(usage))
	}
	b.WriteString("\n## Commands\nWithout a command, `tandem` is `tandem serve`. Exit status: 0, 1 for a failure, 2 for a command line that cannot be used.\n")
	describeCommands(&b, newRoot(Env{}))
	return b.String()
}

func describeCommands(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		fmt.Fprintf(b, "\n### %s\n%s.\n", strings.TrimSuffix(c.UseLine(), " [flags]"), c.Short)
		if c.Long != "" {
			fmt.Fprintf(b, "\n%s\n", c.Long)
		}
		head := "\n| flag | default | |\n|---|---|---|\n"
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name == "help" {
				return
			}
			b.WriteString(head)
			head = ""
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			if f.Value.Type() != "bool" {
				name += " " + strings.ToUpper(f.Value.Type())
			}
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, code(strings.Trim(f.DefValue, "[]")), cell(f.Usage))
		})
		describeCommands(b, c)
	}
}

// cell keeps a text from ending a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

func code(s string) string {
	if s == "" || s == "false" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func TestFlagsPage(t *testing.T) {
	const file = "../docs/flags.md"
	want := flagsPage()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what the program has; run go test ./cli -run Flags -update", file)
	}
}

// What pages and files for containers name exists.
func TestPagesNameSettingsThatExist(t *testing.T) {
	known := map[string]bool{"--config": true, "NODE_CONFIG": true}
	for _, f := range node.Flags() {
		known["--"+f.Name], known[f.Env] = true, true
	}
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) { known["--"+f.Name] = true })
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(Env{}))
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%v: %v", err, pages)
	}
	for _, file := range append(pages, "../README.md", "../Dockerfile", "../compose.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range unknownSettings(string(data), known) {
			t.Errorf("%s names %s, which is no setting and no flag of a command", file, name)
		}
	}
	if got := unknownSettings("`--kv-rum 0` `--kv-ram 0` $NODE_NOTHING NODE_SECRET", known); !slices.Equal(got, []string{"--kv-rum", "NODE_NOTHING"}) {
		t.Errorf("of planted names these were found: %v", got)
	}
}

// settingNames are flags that begin a piece of code, and variables.
var settingNames = regexp.MustCompile("`(--[a-z][a-z-]*)|\\b(NODE_[A-Z_]+)\\b")

func unknownSettings(text string, known map[string]bool) []string {
	var out []string
	for _, m := range settingNames.FindAllStringSubmatch(text, -1) {
		if name := m[1] + m[2]; !known[name] {
			out = append(out, name)
		}
	}
	return out
}
