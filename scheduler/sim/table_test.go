package sim_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"tandem/scheduler"
	"tandem/scheduler/sim"
)

var (
	traceFile = flag.String("requests", "", "a trace in Mooncake's format for TestTable")
	speed     = flag.Float64("speed", 0, "only this speed of arrivals")
	cluster   = flag.String("cluster", "", "only homelab or equal")
	only      = flag.String("policy", "", "only these policies, by comma")
)

// TestTable prints how policies compare on a whole trace:
//
//	go test ./scheduler/sim -run TestTable -v -args -requests FILE
//
// Not -trace: that is a flag of go test itself, which overwrites the file.
func TestTable(t *testing.T) {
	if *traceFile == "" {
		t.Skip("no -requests FILE")
	}
	f, err := os.Open(*traceFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	arrivals, err := sim.ReadMooncake(f)
	if err != nil {
		t.Fatal(err)
	}
	names := scheduler.PolicyNames()
	if *only != "" {
		names = strings.Split(*only, ",")
	}
	speeds := []float64{0.3, 0.45}
	if *speed > 0 {
		speeds = []float64{*speed}
	}
	for _, c := range []struct {
		name  string
		nodes []sim.NodeSpec
	}{{"homelab", sim.Homelab()}, {"equal", sim.Equal(8)}} {
		if *cluster != "" && c.name != *cluster {
			continue
		}
		for _, speed := range speeds {
			for _, entries := range []int{1, len(c.nodes)} {
				o := sim.Options{Nodes: c.nodes, Arrivals: arrivals, Speed: speed, Seed: 1, Entries: entries, Spread: true}
				results, err := sim.Policies(o, names)
				if err != nil {
					t.Fatal(err)
				}
				var text strings.Builder
				if err := sim.Table(&text, results); err != nil {
					t.Fatal(err)
				}
				t.Logf("%s, speed %g, requests come in at %d nodes\n%s", c.name, speed, entries, text.String())
			}
		}
	}
}
