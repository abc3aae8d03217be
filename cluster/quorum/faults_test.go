package quorum

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tandem/cluster/member"
)

// stall is a disk that stops, or fails, on demand.
type stall struct {
	mu   sync.Mutex
	gate chan struct{} // not nil: operations wait until it is closed
	err  error
}

func (s *stall) fault(string) error {
	s.mu.Lock()
	gate, err := s.gate, s.err
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return err
}

func (s *stall) set(gate chan struct{}, err error) {
	s.mu.Lock()
	s.gate, s.err = gate, err
	s.mu.Unlock()
}

func TestStalledDiskOfALeaderBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disks := map[member.ID]*stall{}
		nodes := w.cluster(3, func(c *Config) {
			disks[c.Self] = &stall{}
			c.fault = disks[c.Self].fault
		})
		defer w.stopAll()
		old := w.leader(nodes)
		gate := make(chan struct{})
		disks[old.id].set(gate, nil)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		if err := old.q.Change(ctx, Change{Pin: "stuck"}); err == nil {
			t.Error("a change went through a disk that stalls")
		}
		if took := time.Since(begin); took > 2100*time.Millisecond {
			t.Errorf("Change came back after %s", took)
		}
		begin = time.Now()
		_, _ = old.q.Status(), old.q.State()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Status and State waited %s", took)
		}
		var rest []*node
		for _, n := range nodes {
			if n != old {
				rest = append(rest, n)
			}
		}
		took := w.until(20*time.Second, "others elect a leader", func() bool {
			l := rest[0].q.Status().Leader
			return l != "" && l != old.id
		})
		t.Logf("another leader after %s", took)
		if why := old.q.Status().Why; !strings.Contains(why, "has not answered") {
			t.Errorf("why %q", why)
		}
		rest[0].change(Change{Pin: "goes on"})
		disks[old.id].set(nil, nil)
		close(gate)
		w.until(20*time.Second, "healed", func() bool { return w.settled(nodes, 3) && w.equal(nodes) })
	})
}

func TestFullDiskEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		disk := &stall{}
		n := w.node(1, func(c *Config) { c.fault = disk.fault }).start()
		defer w.stopAll()
		n.change(Change{Pin: "before"})
		disk.set(nil, errors.New("no space left on device"))
		err := n.q.Change(context.Background(), Change{Pin: "full"})
		if err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("error %v", err)
		}
		if s := n.q.Status(); s.HasQuorum || !strings.Contains(s.Why, "no space left") {
			t.Errorf("status %+v", s)
		}
		disk.set(nil, nil)
		w.until(20*time.Second, "resumes", func() bool { return n.q.Status().HasQuorum })
		n.change(Change{Pin: "after"})
	})
}

func TestKillAndRestartKeepsWhatWasAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.cluster(3, nil)
		defer w.stopAll()
		for i := range 30 {
			nodes[i%3].change(Change{Pin: strings.Repeat("x", i+1)})
		}
		for _, n := range nodes {
			n.kill()
		}
		for _, n := range nodes {
			n.start()
		}
		w.until(20*time.Second, "back", func() bool { return w.settled(nodes, 3) && w.equal(nodes) })
		if got := len(nodes[0].q.State().Pins); got != 30 {
			t.Errorf("%d pins", got)
		}
	})
}

func TestDamagedStoreComesBackAsFollower(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"garbage":   func(t *testing.T, p string) { write(t, p, []byte(strings.Repeat("garbage ", 4096))) },
		"truncated": func(t *testing.T, p string) { truncate(t, p, 9000) },
		"half page": func(t *testing.T, p string) { truncate(t, p, 100) },
		"flipped":   flipAll,
		"empty":     func(t *testing.T, p string) { write(t, p, nil) },
		"gone":      func(t *testing.T, p string) { _ = os.Remove(p) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				nodes := w.cluster(3, nil)
				defer w.stopAll()
				for i := range 10 {
					nodes[0].change(Change{Pin: strings.Repeat("x", i+1)})
				}
				before := nodes[1].q.card().Incarnation
				nodes[1].kill()
				damage(t, filepath.Join(nodes[1].dir, storeFile))
				nodes[1].start()
				if c := nodes[1].q.card(); c.Incarnation == before || c.MayVote || !c.waits() {
					t.Errorf("card %+v", c)
				}
				w.until(20*time.Second, "let in anew", func() bool { return w.settled(nodes, 3) && w.equal(nodes) && nodes[1].q.card().MayVote })
				nodes[1].change(Change{Pin: "after"})
			})
		})
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Error(err)
	}
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Error(err)
	}
}

// flipAll damages a byte in every 512.
func flipAll(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	for i := 200; i < len(data); i += 512 {
		data[i] ^= 0x40
	}
	write(t, path, data)
}

func TestDamagedStoreOfASingleBoxKeepsTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.node(1, nil).start()
		defer w.stopAll()
		n.change(Change{Revoke: "key-1", Set: map[string]string{"disagg": "never"}})
		w.until(5*time.Second, "the second record", func() bool {
			m, err := readMemo(n.dir)
			return err == nil && m.Machine != nil && len(m.Machine.State.Revocations) == 1
		})
		n.kill()
		write(t, filepath.Join(n.dir, storeFile), []byte(strings.Repeat("garbage ", 4096)))
		n.start()
		w.until(5*time.Second, "leads itself", func() bool { return n.q.Status().HasQuorum })
		if s := n.q.State(); !slices.Contains(s.Revocations, "key-1") || s.Value("disagg") != "never" {
			t.Errorf("state %+v", s)
		}
		if aside, _ := filepath.Glob(filepath.Join(n.dir, asideDir, "*", storeFile)); len(aside) != 1 {
			t.Errorf("set aside: %v", aside)
		}
	})
}

func TestClustersThatMeet(t *testing.T) {
	t.Run("two of one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.node(1, nil).start(), w.node(2, nil)
			defer w.stopAll()
			a.change(Change{Pin: "a"})
			w.change(func() { w.cut[[2]member.ID{a.id, b.id}], w.cut[[2]member.ID{b.id, a.id}] = true, true })
			b.start()
			b.change(Change{Pin: "b1"})
			b.change(Change{Pin: "b2"})
			w.heal()
			w.until(20*time.Second, "one cluster", func() bool { return w.settled([]*node{a, b}, 2) && w.equal([]*node{a, b}) })
			if pins := a.q.State().Pins; !slices.Equal(pins, []string{"b1", "b2"}) {
				t.Errorf("pins %v: the cluster with more changes should have held", pins)
			}
		})
	})
	t.Run("one and two", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			nodes := w.cluster(2, nil)
			defer w.stopAll()
			w.change(func() {
				for _, n := range nodes {
					w.cut[[2]member.ID{n.id, nodeID(3)}], w.cut[[2]member.ID{nodeID(3), n.id}] = true, true
				}
			})
			alone := w.node(3, nil).start()
			alone.change(Change{Pin: "lost"})
			w.heal()
			all := append(nodes, alone)
			w.until(20*time.Second, "one cluster", func() bool { return w.settled(all, 3) && w.equal(all) })
		})
	})
	t.Run("two and two", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			nodes := w.cluster(2, nil)
			defer w.stopAll()
			w.change(func() {
				for _, a := range []int{1, 2} {
					for _, b := range []int{3, 4} {
						w.cut[[2]member.ID{nodeID(a), nodeID(b)}], w.cut[[2]member.ID{nodeID(b), nodeID(a)}] = true, true
					}
				}
			})
			others := []*node{w.node(3, nil).start(), w.node(4, func(c *Config) { c.Join = true }).start()}
			w.until(20*time.Second, "the others are two", func() bool { return w.settled(others, 2) })
			w.heal()
			w.until(20*time.Second, "both say so", func() bool {
				for _, n := range append(slices.Clone(nodes), others...) {
					if p := n.q.Status().Problems; len(p) == 0 || !strings.Contains(p[0], "not merged") {
						return false
					}
				}
				return true
			})
			if !w.settledApart(nodes, others) {
				t.Error("a cluster was disturbed")
			}
		})
	})
}

func (w *world) settledApart(groups ...[]*node) bool {
	for _, g := range groups {
		if !w.settled(g, len(g)) {
			return false
		}
	}
	return true
}

func TestNodesThatAllJoinFoundOneCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var nodes []*node
		for i := 1; i <= 3; i++ {
			nodes = append(nodes, w.node(i, func(c *Config) { c.Join = true }).start())
		}
		defer w.stopAll()
		took := w.until(40*time.Second, "one cluster", func() bool { return w.settled(nodes, 3) })
		t.Logf("after %s", took)
		if took < 10*time.Second {
			t.Error("nobody waited for a cluster that may be there")
		}
	})
}

func TestLeaveAndDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.cluster(3, nil)
		defer w.stopAll()
		gone := w.leader(nodes) // the hardest one
		rest := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n == gone })
		gone.leave()
		took := w.until(10*time.Second, "gone from the voters", func() bool { return w.settled(rest, 2) })
		t.Logf("removed %s after it left", took)
		rest[0].change(Change{Pin: "x"})
		gone.start()
		w.until(15*time.Second, "back", func() bool { return w.settled(nodes, 3) && w.equal(nodes) })
		begin := time.Now()
		gone.kill()
		w.until(11*time.Minute, "removed", func() bool { return w.settled(rest, 2) })
		if took := time.Since(begin); took < 10*time.Minute {
			t.Errorf("removed after %s", took)
		}
		gone.start()
		w.until(15*time.Second, "back", func() bool { return w.settled(nodes, 3) })
		rest[0].leave()
		rest[1].leave()
		w.until(10*time.Second, "alone", func() bool { return w.settled([]*node{gone}, 1) })
		gone.change(Change{Pin: "y"})
	})
}

func TestVoterThatIsGoneIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.cluster(6, nil)
		defer w.stopAll()
		leader := w.leader(nodes)
		voters := leader.q.Status().Voters
		at := slices.IndexFunc(nodes, func(n *node) bool { return n != leader && slices.Contains(voters, n.id) })
		nodes[at].kill()
		w.until(2*time.Minute, "another votes", func() bool {
			v := w.leader(nodes).q.Status().Voters
			return len(v) == 5 && !slices.Contains(v, nodes[at].id)
		})
	})
}

func TestHelloKeepsStrangersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.cluster(2, nil)
		waits := w.node(3, func(c *Config) { c.Join = true }).start()
		w.split([]int{1, 2}, []int{3})
		defer w.stopAll()
		k, err := nodes[0].q.current()
		if err != nil {
			t.Fatal(err)
		}
		good, err := k.greeting(nodes[1].id)
		if err != nil {
			t.Fatal(err)
		}
		newcomer := hello{Version: helloVersion, From: nodes[0].id, To: waits.q.card().Incarnation, realm: good.realm}
		change := func(h hello, do func(*hello)) hello { do(&h); return h }
		for _, tt := range []struct {
			name string
			to   *node
			h    hello
			want string
		}{
			{"of the same realm", nodes[1], good, ""},
			{"an incarnation that is gone", nodes[1], change(good, func(h *hello) { h.To = "0000" }), "lost the folder"},
			{"another cluster", nodes[1], change(good, func(h *hello) { h.Cluster = "x" }), "another cluster"},
			{"another generation", nodes[1], change(good, func(h *hello) { h.Generation++ }), "another generation"},
			{"another version", nodes[1], change(good, func(h *hello) { h.Version = 2 }), "same version"},
			{"a candidate that knows the old folder", waits, change(newcomer, func(h *hello) { h.To = good.To }), "lost the folder"},
			{"no cluster", waits, change(newcomer, func(h *hello) { h.realm = realm{} }), "lost the folder"},
			{"who was told to let it in", waits, newcomer, ""},
		} {
			if _, got := tt.to.q.welcome(nil, tt.h); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("%s: %q", tt.name, got)
			}
		}
		if c := waits.q.card(); c.realm != good.realm || c.MayVote {
			t.Errorf("card %+v", c)
		}
		w.heal()
	})
}
