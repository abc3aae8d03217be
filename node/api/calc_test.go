package api

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

type fakeCalc struct{ asked CalcQuery }

func (f *fakeCalc) Calc(_ context.Context, q CalcQuery) (any, error) {
	f.asked = q
	return map[string]string{"model": q.Model}, nil
}

func TestCalcQuery(t *testing.T) {
	n := start(t, Config{})
	r := n.do("GET", "/admin/calc?model=m:1&tokens=8000&ctx=4096&parallel=2&kv_type=q8_0&link=1&link=2.5&prefill_rate=900.5&decode_rate=12&memory=1024&boxes=3", "")
	want := `{m:1 q8_0 8000 4096 2 3 900.5 12 [1 2.5] [1024]}`
	if got := fmt.Sprint(n.calc.asked); r.status != 200 || got != want {
		t.Errorf("%d, %s; want %s", r.status, got, want)
	}
	if r = n.do("GET", "/admin/calc", ""); r.status != 200 || fmt.Sprint(n.calc.asked) != `{  0 0 0 0 0 0 [] []}` {
		t.Errorf("%d, %v", r.status, n.calc.asked)
	}
	for query, param := range map[string]string{
		"tokens=0": "tokens", "tokens=x": "tokens", "tokens=1&tokens=2": "tokens", "link=0": "link", "link=NaN": "link", "prefill_rate=-1": "prefill_rate",
		"memory=1.5": "memory", "boxes=99999999999999999999": "boxes", "colour=red": "colour", "%zz": "", "link=1" + strings.Repeat("&link=1", maxCalcList): "link",
		"model=" + strings.Repeat("m", MaxModelName+1): "model",
	} {
		_, err := decodeCalc(query)
		wantFault(t, err, param, "")
	}
}

// FuzzCalc: no query panics, and what is accepted is within the limits.
func FuzzCalc(f *testing.F) {
	f.Add("model=m&tokens=1&link=1&link=2.5&memory=1&prefill_rate=1e3")
	f.Add("%zz&&=&link=")
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := decodeCalc(raw)
		if err != nil {
			if e := asError(err); e.Status != 400 || len(e.Message) > 2000 {
				t.Errorf("%+v", e)
			}
			return
		}
		if _, err := url.ParseQuery(raw); err != nil {
			t.Errorf("accepted what is no query: %q", raw)
		}
		if q.Tokens < 0 || q.Tokens > maxCalcTokens || len(q.Gbit) > maxCalcList || len(q.Memory) > maxCalcList || len(q.Model) > MaxModelName || !(q.PrefillRate >= 0) {
			t.Errorf("accepted %+v", q)
		}
	})
}
