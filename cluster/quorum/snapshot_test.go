package quorum

import (
	"bytes"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A leader whose snapshot is answered late sends it again, perhaps when entries have
// followed the first one: the node keeps those, and applies what is committed.
func TestSnapshotThatComesTwice(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	s, err := openStore(filepath.Join(t.TempDir(), storeFile), logger, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	f := newFSM(logger, func() {})
	_, follower := raft.NewInmemTransport("follower")
	_, leader := raft.NewInmemTransport("leader")
	leader.Connect("follower", follower)
	conf := raft.DefaultConfig()
	conf.LocalID, conf.Logger = "follower", hclog.NewNullLogger()
	conf.HeartbeatTimeout, conf.ElectionTimeout, conf.LeaderLeaseTimeout = time.Minute, time.Minute, time.Minute
	r, err := raft.NewRaft(conf, f, s, s, s, follower)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		s.disk.release()
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	}()
	head := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("leader"), Addr: []byte("leader")}
	m := newMachine()
	m.State.ClusterID = "cluster"
	state, err := encodeMachine(m)
	if err != nil {
		t.Fatal(err)
	}
	members := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "leader", Address: "leader"}, {ID: "follower", Address: "follower"}}})
	install := func() {
		t.Helper()
		var resp raft.InstallSnapshotResponse
		err := leader.InstallSnapshot("follower", "follower", &raft.InstallSnapshotRequest{RPCHeader: head, SnapshotVersion: raft.SnapshotVersionMax, Term: 1,
			LastLogIndex: 1, LastLogTerm: 1, Configuration: members, ConfigurationIndex: 1, Size: int64(len(state))}, &resp, bytes.NewReader(state))
		if err != nil || !resp.Success {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	appended := func(prev, commit uint64, logs ...*raft.Log) {
		t.Helper()
		var resp raft.AppendEntriesResponse
		err := leader.AppendEntries("follower", "follower", &raft.AppendEntriesRequest{RPCHeader: head, Term: 1,
			PrevLogEntry: prev, PrevLogTerm: 1, Entries: logs, LeaderCommitIndex: commit}, &resp)
		if err != nil || !resp.Success {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	install()
	var logs []*raft.Log
	for i := uint64(2); i <= 5; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Type: raft.LogNoop, Data: fmt.Append(nil, i)})
	}
	appended(1, 3, logs...)
	install()
	appended(5, 5) // of these the second snapshot says nothing
	appended(5, 6, &raft.Log{Index: 6, Term: 1, Type: raft.LogNoop})
	if got := r.AppliedIndex(); got != 6 {
		t.Errorf("%d entries were applied, 6 are committed", got)
	}
}
