package quorum

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tandem/cluster/member"
)

func TestClusterOfOneWorksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.node(1, nil).start()
		defer w.stopAll()
		if n.q.State().ClusterID == "" {
			t.Error("no cluster id right after the start")
		}
		n.change(Change{Set: map[string]string{"slo_ttft_ms": "250"}, Pin: "b"})
		n.change(Change{Pin: "a", Assign: &Assignment{Model: "m", Nodes: []member.ID{n.id}}})
		got := n.q.State()
		if got.Value("slo_ttft_ms") != "250" || got.Value("disagg") != "auto" || !reflect.DeepEqual(got.Pins, []string{"a", "b"}) || len(got.Assignments["m"]) != 1 {
			t.Errorf("state %+v", got)
		}
		if s := n.q.Status(); !s.HasQuorum || s.Leader != n.id || len(s.Voters) != 1 || s.ClusterID != got.ClusterID || s.Why != "" {
			t.Errorf("status %+v", s)
		}
	})
}

func TestClustersOfMany(t *testing.T) {
	for _, size := range []int{2, 3, 5, 7} {
		t.Run(string(rune('0'+size)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				nodes := w.cluster(size, nil)
				defer w.stopAll()
				for i, n := range nodes {
					n.change(Change{Pin: "from " + string(n.id[31]), Set: map[string]string{"slo_itl_ms": string(rune('1' + i))}})
				}
				w.until(10*time.Second, "all have all changes", func() bool { return w.equal(nodes) && len(nodes[0].q.State().Pins) == size })
				if s := nodes[0].q.Status(); len(s.Voters) != min(size, VotersMax) || len(s.Others) != max(0, size-VotersMax) {
					t.Errorf("status %+v", s)
				}
			})
		})
	}
}

// equal tells whether all nodes that run have one state.
func (w *world) equal(nodes []*node) bool {
	var first *State
	for _, n := range nodes {
		if n.q == nil {
			continue
		}
		s := n.q.State()
		if first == nil {
			first = &s
		} else if !reflect.DeepEqual(*first, s) {
			return false
		}
	}
	return true
}

func TestTwoNodesOneDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.cluster(2, nil)
		defer w.stopAll()
		nodes[0].change(Change{Pin: "before"})
		nodes[1].kill()
		w.until(5*time.Second, "no quorum is noticed", func() bool { return !nodes[0].q.Status().HasQuorum })
		s := nodes[0].q.Status()
		if s.Leader != "" || !strings.Contains(s.Why, "1 of 2 voters") || !strings.Contains(s.Why, "n02") || !strings.Contains(s.Why, "node cluster recover") {
			t.Errorf("status %+v", s)
		}
		begin := time.Now()
		err := nodes[0].q.Change(context.Background(), Change{Pin: "now"})
		var none *NoQuorumError
		if !errors.As(err, &none) || none.Voters != 2 || none.Alive != 1 || len(none.Missing) != 1 || none.Missing[0] != nodes[1].id {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("refused after %s", took)
		}
		nodes[1].start()
		took := w.until(15*time.Second, "healed", func() bool { return w.settled(nodes, 2) })
		t.Logf("healed after %s", took)
		nodes[1].change(Change{Pin: "after"})
		w.until(5*time.Second, "equal", func() bool { return w.equal(nodes) && len(nodes[0].q.State().Pins) == 2 })
	})
}

func TestRecoverMakesAClusterOfOneAndTheLostNodeJoins(t *testing.T) {
	for _, offline := range []bool{false, true} {
		t.Run(map[bool]string{false: "running", true: "offline"}[offline], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				nodes := w.cluster(2, nil)
				defer w.stopAll()
				nodes[0].change(Change{Pin: "before"})
				w.until(5*time.Second, "equal", func() bool { return w.equal(nodes) })
				if err := nodes[0].q.Recover(context.Background()); err == nil || !strings.Contains(err.Error(), "nothing to recover") {
					t.Errorf("recover with a quorum: %v", err)
				}
				nodes[1].kill()
				w.until(5*time.Second, "no quorum", func() bool { return !nodes[0].q.Status().HasQuorum })
				if offline {
					if err := Recover(nodes[0].dir, nodes[0].id); !errors.Is(err, ErrInUse) {
						t.Errorf("recover of a running node: %v", err)
					}
					nodes[0].stop()
					if err := Recover(nodes[0].dir, nodes[0].id); err != nil {
						t.Fatal(err)
					}
					nodes[0].start()
				} else if err := nodes[0].q.Recover(context.Background()); err != nil {
					t.Fatal(err)
				}
				nodes[0].change(Change{Pin: "alone"})
				s := nodes[0].q.Status()
				if len(s.Voters) != 1 || s.Generation != 2 || nodes[0].q.State().Generation != 2 {
					t.Errorf("status %+v", s)
				}
				nodes[1].start()
				w.until(15*time.Second, "the lost one joins", func() bool { return w.settled(nodes, 2) && w.equal(nodes) })
				if pins := nodes[1].q.State().Pins; len(pins) != 2 {
					t.Errorf("pins %v", pins)
				}
			})
		})
	}
}

func TestLeaderLossIsNoticed(t *testing.T) {
	for _, how := range []string{"kill", "freeze", "cut"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				nodes := w.cluster(3, nil)
				defer w.stopAll()
				old := w.leader(nodes)
				rest := []*node{}
				for _, n := range nodes {
					if n != old {
						rest = append(rest, n)
					}
				}
				number := func(n *node) int { return int(n.id[31] - '0') }
				switch how {
				case "kill":
					old.kill()
				case "freeze":
					w.freeze(number(old))
				case "cut":
					w.split([]int{number(rest[0]), number(rest[1])}, []int{number(old)})
				}
				took := w.until(6*time.Second, "another leader", func() bool {
					l := rest[0].q.Status().Leader
					return l != "" && l != old.id && rest[1].q.Status().Leader == l
				})
				t.Logf("another leader after %s", took)
				rest[0].change(Change{Pin: "x"})
				if how == "cut" {
					var none *NoQuorumError
					if err := old.q.Change(context.Background(), Change{Pin: "y"}); !errors.As(err, &none) {
						t.Errorf("the cut-off leader: %v", err)
					}
				}
				if how == "kill" {
					old.start()
				} else {
					w.heal()
				}
				w.until(10*time.Second, "healed", func() bool { return w.settled(nodes, 3) && w.equal(nodes) })
			})
		})
	}
}
