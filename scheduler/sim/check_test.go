package sim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// Each check fires when what it checks is broken.
func TestChecksFire(t *testing.T) {
	for _, c := range []struct {
		plant fault
		want  string
	}{
		{noFault, ""},
		{endsTwice, "ended 2 times"},
		{losesRequest, "never ended"},
		{tokenEarly, "wrote a token"},
		{overfills, "it has room for"},
		{timeRunsBack, "time ran back"},
	} {
		o := Options{Seed: 1, plant: c.plant, BytesPerToken: 1000, Nodes: []NodeSpec{
			{Name: "n", Engine: Engine{ComputeRate: 1000, WeightsMs: 5}, Slots: 4, KVTokens: 2048, HostBps: 1e9, LinkBps: 1e9}}}
		for i := range 8 {
			o.Arrivals = append(o.Arrivals, Arrival{At: time.Duration(i) * 100 * time.Millisecond, Input: 700, Output: 50})
		}
		_, err := Run(context.Background(), o)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("without a fault: %v", err)
		case c.want != "" && (!errors.Is(err, ErrChecks) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("fault %d: %v, want one with %q", c.plant, err, c.want)
		}
	}
}
