package quorum

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"

	"tandem/cluster/member"
)

// openFolder opens a node's store and makes sure that it has an identity: the one that
// it had, or a new one. A new one founds a cluster of this node alone, or waits for
// others if there are any who may have the state.
func openFolder(c Config, logger *slog.Logger) (*store, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	m, err := readMemo(c.Dir)
	if err != nil {
		logger.Warn("cannot read the second record of the cluster's state", "dir", c.Dir, "error", err)
	}
	path := filepath.Join(c.Dir, storeFile)
	s, err := openStore(path, logger, c.fault)
	if errors.Is(err, errDamaged) {
		where, asideErr := setAside(c.Dir, storeFile)
		if asideErr != nil {
			return nil, errors.Join(err, asideErr)
		}
		logger.Error("the store of the cluster's state was damaged and has been set aside; this node forgets its part and is let in anew", "error", err, "where", where)
		s, err = openStore(path, logger, c.fault)
	}
	if err != nil {
		return nil, err
	}
	if err := s.settle(c, m, logger); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// settle gives an empty store an identity.
func (s *store) settle(c Config, m memo, logger *slog.Logger) error {
	id := s.who()
	if id.Self != "" && id.Self != c.Self {
		return fmt.Errorf("%s belongs to node %s and this is node %s; give each node a data folder of its own", c.Dir, id.Self, c.Self)
	}
	if id.Self != "" && (id.Cluster != "" || id.Lost || c.Join) {
		return nil
	}
	id = newIdentity(c.Self)
	switch others := m.others(c.Self); {
	case others:
		id.Lost = true
		logger.Warn("this node lost its part of the cluster's state and waits until the others let it in", "cluster", m.Cluster)
		return s.become(id)
	case c.Join && m.Cluster == "":
		return s.become(id)
	default:
		// A new cluster, also with an old state: should there be others after all, it gives
		// way to them.
		return s.found(id.found(realm{}), m.Machine)
	}
}

// others tells whether somebody else holds the state of which this is the memo.
func (m memo) others(self member.ID) bool {
	if m.Cluster == "" {
		return false
	}
	for id := range m.Machine.Nodes {
		if id != self {
			return true
		}
	}
	return len(m.Voters) != 1 || m.Voters[0] != self
}

// found makes the store that of a cluster of one with the state of m; nil: an empty
// one. What was in the log must be in m. It happens in one transaction.
//
// The log begins behind a snapshot, never at entry 1: whoever joins then gets a
// snapshot with the present voters, and no node replays a time in which it was the
// only voter.
func (s *store) found(id identity, m *machine) error {
	if m == nil {
		m = newMachine()
	}
	m.State.ClusterID, m.State.Generation = id.Cluster, id.Generation
	m.Nodes, id.Changes = cloneMap(id.Nodes), m.State.Changes
	data, err := encodeMachine(m)
	if err != nil {
		return err
	}
	index, term := s.end()
	server := raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id.Self), Address: raft.ServerAddress(id.Self)}
	snap := &snapshot{data: data, meta: raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term,
		Configuration: raft.Configuration{Servers: []raft.Server{server}}, ConfigurationIndex: index, Size: int64(len(data)),
	}}
	current, _ := s.GetUint64([]byte(keyCurrentTerm))
	current = max(current, term)
	return s.replace(id, snap, current)
}

// end is where the store ends, at least 1 and 1.
func (s *store) end() (index, term uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	index, term = 1, 1
	if s.snapshot != nil {
		index, term = s.snapshot.meta.Index, s.snapshot.meta.Term
	}
	if n := len(s.entries); n > 0 && s.entries[n-1].Index >= index {
		index, term = s.entries[n-1].Index, s.entries[n-1].Term
	}
	return index, term
}

// replace empties the log and sets all else, at once.
func (s *store) replace(id identity, snap *snapshot, term uint64) error {
	identityBytes, err := encodeIdentity(id)
	if err != nil {
		return err
	}
	snapshotBytes, err := encodeSnapshot(snap)
	if err != nil {
		return err
	}
	termBytes := entryKey(term)
	return s.write("found", func(tx *bolt.Tx) error {
		if err := tx.DeleteBucket(bucketLog); err != nil {
			return err
		}
		if _, err := tx.CreateBucket(bucketLog); err != nil {
			return err
		}
		meta := tx.Bucket(bucketMeta)
		return errors.Join(
			meta.Put(keyIdentity, identityBytes),
			meta.Put(keySnapshot, snapshotBytes),
			tx.Bucket(bucketStable).Put([]byte(keyCurrentTerm), seal(termBytes)))
	}, func() {
		s.entries, s.snapshot, s.identity = nil, snap, id.clone()
		s.stable[keyCurrentTerm] = termBytes
	})
}

// replay is the machine after everything that the store holds, also what may not have
// been agreed on.
func (s *store) replay(logger *slog.Logger) (*machine, error) {
	f := newFSM(logger, func() {})
	snaps, _ := s.List()
	for _, meta := range snaps {
		_, r, err := s.Open(meta.ID)
		if err != nil {
			return nil, err
		}
		if err := f.Restore(r); err != nil {
			return nil, err
		}
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.entries {
		if l.Type == raft.LogCommand && (s.snapshot == nil || l.Index > s.snapshot.meta.Index) {
			f.Apply(l)
		}
	}
	return f.machine, nil
}

// close gives the file back; nobody may use the store any more.
func (s *store) close() {
	s.disk.release()
	<-s.disk.done
}
