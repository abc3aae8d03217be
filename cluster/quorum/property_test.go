package quorum

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seedFlag = flag.Uint64("quorum.seed", 0, "repeat the random run with this seed")
	runsFlag = flag.Int("quorum.runs", 4, "how many random runs")
)

// Random changes, cuts, freezes, kills, restarts and a damaged folder: at the end all state machines are equal and nothing that was
// acknowledged is missing.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	for run := range *runsFlag {
		seed := *seedFlag
		if seed == 0 {
			seed = uint64(time.Now().UnixNano()) + uint64(run)
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomRun(t, seed) })
			if t.Failed() {
				t.Logf("repeat with: go test ./cluster/quorum -run TestNothingAcknowledgedIsLost -quorum.seed %d -quorum.runs 1", seed)
			}
		})
	}
}

func randomRun(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	size := 3 + rng.IntN(3)
	nodes := w.cluster(size, nil)
	defer w.stopAll()
	t.Logf("seed %d: %d nodes", seed, size)
	var acknowledged []string
	damaged := false
	uncertain := map[string]bool{}
	for i := range 60 {
		n := nodes[rng.IntN(size)]
		switch rng.IntN(10) {
		case 0:
			if n.q != nil {
				n.kill()
				if !damaged && rng.IntN(3) == 0 {
					damaged = true // a second one could be the majority
					flipAll(t, filepath.Join(n.dir, storeFile))
				}
			} else {
				n.start()
			}
		case 1:
			w.split(randomGroups(rng, size)...)
		case 2:
			w.heal()
		case 3:
			w.freeze(1 + rng.IntN(size))
		default:
			if n.q == nil {
				continue
			}
			pin := fmt.Sprintf("%04d", i)
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(5000))*time.Millisecond)
			switch err := n.q.Change(ctx, Change{Pin: pin}); {
			case err == nil:
				acknowledged = append(acknowledged, pin)
			case errors.Is(err, ErrUncertain):
				uncertain[pin] = true
			default:
				uncertain[pin] = false
			}
			cancel()
		}
		wait(time.Duration(rng.IntN(1500)) * time.Millisecond)
	}
	w.heal()
	for _, n := range nodes {
		if n.q == nil {
			n.start()
		}
	}
	w.until(2*time.Minute, "all are equal", func() bool { return w.settled(nodes, size) && w.equal(nodes) })
	pins := nodes[0].q.State().Pins
	for _, p := range acknowledged {
		if !slices.Contains(pins, p) {
			t.Errorf("%s was acknowledged and is lost", p)
		}
	}
	for p, doubt := range uncertain {
		if !doubt && slices.Contains(pins, p) {
			t.Errorf("%s was refused and is there", p)
		}
	}
	t.Logf("%d acknowledged, %d not", len(acknowledged), len(uncertain))
}

func randomGroups(rng *rand.Rand, size int) [][]int {
	groups := make([][]int, 2)
	for i := 1; i <= size; i++ {
		g := rng.IntN(2)
		groups[g] = append(groups[g], i)
	}
	return groups
}
