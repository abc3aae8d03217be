package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Calculator works out what a model takes: KV, transfers, memory, ways to spread it.
type Calculator interface {
	// Calc answers a question about a model of this node. The value is encoded as JSON.
	Calc(ctx context.Context, q CalcQuery) (any, error)
}

// CalcQuery asks about a model. Zero stands for what the node itself uses or has
// measured.
type CalcQuery struct {
	Model       string // "": the node's default
	KVType      string
	Tokens      int // of a prompt
	Context     int
	Parallel    int
	Boxes       int
	PrefillRate float64   // tokens/s
	DecodeRate  float64   // tokens/s
	Gbit        []float64 // rates of links
	Memory      []int64   // of each box, bytes
}

// Limits of a query. The calculator has narrower ones for what they mean.
const (
	maxCalcTokens = 1 << 30
	maxCalcList   = 32
)

// calc serves GET /admin/calc.
func (s *Server) calc(w http.ResponseWriter, r *http.Request) {
	q, err := decodeCalc(r.URL.RawQuery)
	s.adminAnswer(w, r, err, func(ctx context.Context) (any, error) { return s.cfg.Calc.Calc(ctx, q) })
}

// decodeCalc reads a query. Parameters that nobody knows are refused: there is no other
// way to tell the one who wrote them.
func decodeCalc(raw string) (CalcQuery, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return CalcQuery{}, BadRequest("", "the query is not valid: %s", clip(err.Error(), 80))
	}
	d := calcQuery{values: values}
	q := CalcQuery{Model: d.text("model", MaxModelName), KVType: d.text("kv_type", MaxIdentifier), Tokens: d.whole("tokens"), Context: d.whole("ctx"),
		Parallel: d.whole("parallel"), Boxes: d.whole("boxes"), PrefillRate: d.number("prefill_rate"), DecodeRate: d.number("decode_rate")}
	for _, text := range d.list("link") {
		q.Gbit = append(q.Gbit, d.parse("link", text))
	}
	for _, text := range d.list("memory") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			d.fail("memory", text, "a whole number of bytes")
		}
		q.Memory = append(q.Memory, n)
	}
	for name := range values {
		if !slices.Contains(d.known, name) && d.err == nil {
			d.err = BadRequest(clip(name, 64), "%s: is not known; allowed: %s", clip(name, 64), strings.Join(d.known, ", "))
		}
	}
	if d.err != nil {
		return CalcQuery{}, d.err
	}
	return q, nil
}

// calcQuery reads the parameters of a query; the first fault sticks.
type calcQuery struct {
	values url.Values
	known  []string
	err    error
}

func (d *calcQuery) fail(name, text, want string) {
	if d.err == nil {
		d.err = BadRequest(name, "%s: %q must be %s", name, clip(text, 40), want)
	}
}

// list is all values of a parameter that is not empty.
func (d *calcQuery) list(name string) []string {
	d.known = append(d.known, name)
	all := slices.DeleteFunc(slices.Clone(d.values[name]), func(s string) bool { return s == "" })
	if len(all) > maxCalcList {
		d.fail(name, strconv.Itoa(len(all))+" times", "there at most "+strconv.Itoa(maxCalcList)+" times")
		return nil
	}
	return all
}

// text is the value of a parameter that may be there once.
func (d *calcQuery) text(name string, limit int) string {
	all := d.list(name)
	switch {
	case len(all) == 0:
		return ""
	case len(all) > 1:
		d.fail(name, all[1], "there once")
	case len(all[0]) > limit:
		d.fail(name, all[0], "at most "+strconv.Itoa(limit)+" bytes long")
	}
	return all[0]
}

func (d *calcQuery) whole(name string) int {
	text := d.text(name, MaxIdentifier)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxCalcTokens {
		d.fail(name, text, "a whole number from 1 to "+strconv.Itoa(maxCalcTokens))
	}
	return n
}

func (d *calcQuery) number(name string) float64 {
	text := d.text(name, MaxIdentifier)
	if text == "" {
		return 0
	}
	return d.parse(name, text)
}

func (d *calcQuery) parse(name, text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1e12) {
		d.fail(name, text, "a number above 0")
	}
	return v
}
