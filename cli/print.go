package cli

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// table prints aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(out io.Writer, head ...string) *table {
	t := &table{tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)}
	t.row(head...)
	return t
}

func (t *table) row(cells ...string) {
	io.WriteString(t.w, strings.Join(cells, "\t")+"\n")
}

func (t *table) flush() error { return t.w.Flush() }

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// orNone is a limit in words.
func orNone(limit int) string {
	if limit == 0 {
		return "no limit"
	}
	return strconv.Itoa(limit)
}
