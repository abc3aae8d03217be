package jinja

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"
)

var testNow = time.Date(2026, 3, 9, 14, 5, 7, 0, time.UTC)

// snippet is one line of testdata/snippets.jsonl, made by testdata/reference.py.
type snippet struct {
	Vars json.RawMessage
	Src  string
	Want string
	Err  string
}

func readSnippets(t testing.TB) (vars json.RawMessage, cases []snippet) {
	t.Helper()
	file, err := os.Open("testdata/snippets.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var s snippet
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.Vars != nil {
			vars = s.Vars
			continue
		}
		cases = append(cases, s)
	}
	return vars, cases
}

func testVars(t testing.TB, raw []byte) map[string]Value {
	t.Helper()
	v, err := FromJSON(raw)
	if err != nil {
		t.Fatal(err)
	}
	return Vars(v.(*Dict))
}

func renderSource(src string, vars map[string]Value, l Limits) (Text, error) {
	tpl, err := Parse(src)
	if err != nil {
		return Text{}, err
	}
	return tpl.Render(context.Background(), vars, Options{Now: testNow, Limits: l})
}

// TestAgainstJinja2 compares with what the original renders.
func TestAgainstJinja2(t *testing.T) {
	vars, cases := readSnippets(t)
	if len(cases) < 100 {
		t.Fatalf("only %d snippets were read", len(cases))
	}
	for i, c := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			got, err := renderSource(c.Src, testVars(t, vars), Limits{})
			switch {
			case c.Err != "" && err == nil:
				t.Errorf("%s\nrenders %q, but Jinja2 fails: %s", c.Src, got, c.Err)
			case c.Err == "" && err != nil:
				t.Errorf("%s\nfails: %v, but Jinja2 renders %q", c.Src, err, c.Want)
			case c.Err == "" && got.String() != c.Want:
				t.Errorf("%s\n got %q\nwant %q", c.Src, got, c.Want)
			}
		})
	}
}
