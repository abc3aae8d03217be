package quorum

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

func TestChangesAreValidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		nodes := w.cluster(2, func(c *Config) {
			c.ValidSetting = func(name, value string) error {
				if value == "777" {
					return &InvalidError{Field: name, Value: value, Allowed: "another number"}
				}
				return nil
			}
		})
		defer w.stopAll()
		follower := nodes[0]
		if follower == w.leader(nodes) {
			follower = nodes[1]
		}
		long := strings.Repeat("x", nameBytesMax+1)
		for name, c := range map[string]Change{
			"an unknown setting":      {Set: map[string]string{"colour": "red"}},
			"a word for a number":     {Set: map[string]string{"slo_ttft_ms": "fast"}},
			"a number out of range":   {Set: map[string]string{"slo_itl_ms": "0"}},
			"one of few":              {Set: map[string]string{"disagg": "sometimes"}},
			"what the leader refuses": {Set: map[string]string{"slo_ttft_ms": "777"}},
			"a long pin":              {Pin: long},
			"a line break":            {Revoke: "a\nb"},
			"an unknown role":         {RolePlan: &RolePlan{Epoch: 1, Roles: map[member.ID]member.Role{nodeID(1): "king"}}},
			"no model":                {Assign: &Assignment{Nodes: []member.ID{nodeID(1)}}},
		} {
			var invalid *InvalidError
			if err := follower.q.Change(context.Background(), c); !errors.As(err, &invalid) || invalid.Field == "" || invalid.Allowed == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
		follower.change(Change{RolePlan: &RolePlan{Epoch: 1, Roles: map[member.ID]member.Role{nodeID(1): member.Decode}, Reason: "r"}})
		var stale *StaleError
		if err := follower.q.Change(context.Background(), Change{RolePlan: &RolePlan{Epoch: 1}}); !errors.As(err, &stale) || stale.Have != 1 {
			t.Errorf("an old plan: %v", err)
		}
	})
}

func TestCommandsOfNewerVersions(t *testing.T) {
	newer := []byte(`{"v":2,"id":"x","dance":true}`)
	if _, err := decodeCommand(newer); !errors.Is(err, errCommandVersion) {
		t.Errorf("error %v", err)
	}
	var log bytes.Buffer
	f := newFSM(slog.New(slog.NewTextHandler(&log, nil)), func() { t.Error("the state changed") })
	if err, _ := f.Apply(&raft.Log{Index: 7, Data: newer}).(error); err == nil {
		t.Error("a follower took it")
	}
	if !strings.Contains(log.String(), "does not understand") {
		t.Errorf("log %q", log.String())
	}
}

func TestACommandIsAppliedOnce(t *testing.T) {
	m := newMachine()
	plan := command{Version: 1, ID: "1", Change: &Change{RolePlan: &RolePlan{Epoch: 1}}}
	for range 2 {
		if err := m.apply(plan); err != nil {
			t.Error(err)
		}
	}
	if m.State.Changes != 1 || m.State.RolePlan.Epoch != 1 {
		t.Errorf("state %+v", m.State)
	}
}

func TestLimitsOfTheMachine(t *testing.T) {
	m := newMachine()
	for i := range pinsMax {
		if err := m.apply(command{ID: token(), Change: &Change{Pin: token()}}); err != nil {
			t.Fatal(i, err)
		}
	}
	var invalid *InvalidError
	if err := m.apply(command{ID: "x", Change: &Change{Pin: "more", Revoke: "r"}}); !errors.As(err, &invalid) {
		t.Errorf("error %v", err)
	}
	if len(m.State.Revocations) != 0 {
		t.Error("half of a refused change was made")
	}
	if err := m.apply(command{ID: "y", Change: &Change{Pin: m.State.Pins[0]}}); err != nil {
		t.Errorf("a pin that is there: %v", err)
	}
}

func TestWatchersSeeTheLastState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.node(1, nil).start()
		defer w.stopAll()
		seen := make(chan int, 100)
		stop := n.q.Watch(func(s State) { seen <- len(s.Pins) })
		for i := range 5 {
			n.change(Change{Pin: strings.Repeat("p", i+1)})
		}
		last, calls := -1, 0
		for last != 5 {
			now := <-seen
			if now < last {
				t.Errorf("%d after %d", now, last)
			}
			last, calls = now, calls+1
		}
		stop()
		n.change(Change{Pin: "unseen"})
		synctest.Wait()
		if len(seen) != 0 {
			t.Error("called after it was stopped")
		}
	})
}

func TestStoreSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), storeFile)
	logger := slog.New(slog.DiscardHandler)
	s, err := openStore(path, logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetUint64([]byte(keyCurrentTerm), 5); err != nil {
		t.Fatal(err)
	}
	var logs []*raft.Log
	for i := uint64(1); i <= 20; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1 + i/10, Data: []byte{byte(i)}, AppendedAt: time.Unix(3, 4)})
	}
	for _, step := range []error{
		s.StoreLogs(logs[:10]), s.StoreLogs(logs[10:]), s.DeleteRange(15, 20), s.StoreLog(logs[14]),
		s.Set([]byte("k"), []byte("v")), s.become(newIdentity(nodeID(1))),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	if err := s.StoreLog(logs[19]); err == nil {
		t.Error("a hole was stored")
	}
	if err := s.DeleteRange(3, 4); err == nil {
		t.Error("a hole was made")
	}
	if err := s.SetUint64([]byte(keyLastVoteTerm), 5); err == nil {
		t.Error("a node that may not vote stored a vote")
	}
	if _, err := openStore(path, logger, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("opened twice: %v", err)
	}
	before := s.who()
	s.close()
	if s, err = openStore(path, logger, nil); err != nil {
		t.Fatal(err)
	}
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	term, _ := s.GetUint64([]byte(keyCurrentTerm))
	value, _ := s.Get([]byte("k"))
	var l raft.Log
	if err := s.GetLog(15, &l); err != nil || l.Data[0] != 15 || !l.AppendedAt.Equal(time.Unix(3, 4)) {
		t.Errorf("entry %+v: %v", l, err)
	}
	if first != 1 || last != 15 || term != 5 || string(value) != "v" || s.who().Incarnation != before.Incarnation {
		t.Errorf("first %d last %d term %d value %q who %+v", first, last, term, value, s.who())
	}
	k, _ := s.Create(1, 30, 4, raft.Configuration{}, 1, nil)
	_, _ = k.Write([]byte("state"))
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLog(&raft.Log{Index: 31, Term: 4}); err != nil {
		t.Errorf("behind a snapshot that came from the leader: %v", err)
	}
	s.close()
	if s, err = openStore(path, logger, nil); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if first, _ := s.FirstIndex(); first != 31 {
		t.Errorf("first %d", first)
	}
	meta, _ := s.List()
	_, r, err := s.Open(meta[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if data, _ := io.ReadAll(r); string(data) != "state" || meta[0].Index != 30 {
		t.Errorf("snapshot %q %+v", data, meta[0])
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestFolderOfAnotherNodeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		n := w.node(1, nil).start()
		n.stop()
		_, err := Start(Config{Self: nodeID(2), Dir: n.dir, Streams: &ends{w: w, closed: make(chan struct{})}, Members: func() []member.Member { return nil }, Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "belongs to node") || !strings.Contains(err.Error(), n.dir) {
			t.Errorf("error %v", err)
		}
	})
	if err := (Config{}).Validate(); err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("faults %v", err)
	}
}

func TestResolve(t *testing.T) {
	one := card{ID: nodeID(1), realm: realm{"a", 1, "t"}, Voters: []member.ID{nodeID(1)}, Leader: nodeID(1), Incarnation: "x"}
	with := func(do func(*card)) card {
		c := one
		c.ID, c.Cluster = nodeID(2), "b"
		do(&c)
		return c
	}
	big := with(func(c *card) { c.Voters = []member.ID{nodeID(2), nodeID(3)} })
	for _, tt := range []struct {
		name string
		a, b card
		want [2]verdict
	}{
		{"the same realm", one, with(func(c *card) { c.realm = one.realm }), [2]verdict{keep, keep}},
		{"one that waits", one, with(func(c *card) { c.realm = realm{} }), [2]verdict{keep, keep}},
		{"higher generation", one, with(func(c *card) { c.realm = realm{"a", 2, "u"}; c.Leader = "" }), [2]verdict{giveUp, keep}},
		{"higher id", one, with(func(*card) {}), [2]verdict{keep, giveUp}},
		{"more changes", one, with(func(c *card) { c.Changes = 3 }), [2]verdict{giveUp, keep}},
		{"larger", one, big, [2]verdict{giveUp, keep}},
		{"larger without a leader", one, with(func(c *card) { c.Voters = big.Voters; c.Leader = "" }), [2]verdict{stuck, stuck}},
		{"both recovered", one, with(func(c *card) { c.realm = realm{"a", 1, "u"} }), [2]verdict{keep, giveUp}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, _ := resolve(tt.a, tt.b)
			b, _ := resolve(tt.b, tt.a)
			if a != tt.want[0] || b != tt.want[1] {
				t.Errorf("%d and %d, want %v", a, b, tt.want)
			}
		})
	}
}

func TestLogIsCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := raftLogger(slog.New(slog.NewTextHandler(&out, nil)))
		for range 600 {
			l.Error("failed to heartbeat to", "peer", "x", "error", "gone")
			l.Warn("something")
			wait(100 * time.Millisecond)
		}
		l.Error("failed to heartbeat to", "peer", "x", "error", "gone")
		if lines := strings.Count(out.String(), "\n"); lines != 2 || !strings.Contains(out.String(), "held_back=599") {
			t.Errorf("%d lines: %s", lines, out.String())
		}
	})
}

func TestPlanIsBoundedAndOrdered(t *testing.T) {
	in := planInput{
		self: nodeID(1), realm: realm{"c", 1, "t"}, nodes: map[member.ID]string{}, members: map[member.ID]member.Member{}, cards: map[member.ID]card{},
		gone: map[member.ID]time.Duration{}, deadAfter: time.Minute, replaceAfter: time.Second,
	}
	for i := 1; i <= 7; i++ {
		id := nodeID(i)
		in.nodes[id] = "i"
		in.members[id] = member.Member{ID: id, State: member.Alive}
		in.cards[id] = card{ID: id, realm: in.realm, Incarnation: "i", MayVote: true}
		in.servers = append(in.servers, raft.Server{ID: raft.ServerID(id), Suffrage: map[bool]raft.ServerSuffrage{true: raft.Voter, false: raft.Nonvoter}[i <= 5]})
	}
	if s := plan(in); s != nil {
		t.Errorf("all is well: %+v", s)
	}
	in.gone[nodeID(2)] = 30 * time.Second
	if s := plan(in); s == nil || s.action != actDemote || s.id != nodeID(2) {
		t.Errorf("a voter that is gone: %+v", s)
	}
	in.gone[nodeID(3)] = time.Hour
	if s := plan(in); s == nil || s.action != actRemove || s.id != nodeID(3) {
		t.Errorf("a dead one comes first: %+v", s)
	}
	clear(in.gone)
	in.servers = slices.Delete(in.servers, 1, 2)
	if s := plan(in); s == nil || s.action != actAdd || s.id != nodeID(2) {
		t.Errorf("one that is not in: %+v", s)
	}
	delete(in.members, nodeID(2))
	c := in.cards[nodeID(6)]
	in.commit = 1000
	c.Applied = 990
	in.cards[nodeID(6)] = c
	if s := plan(in); s == nil || s.action != actPromote || s.id != nodeID(6) {
		t.Errorf("the one that has caught up: %+v", s)
	}
	delete(in.cards, nodeID(6))
	if s := plan(in); s != nil {
		t.Errorf("nobody has caught up: %+v", s)
	}
}
