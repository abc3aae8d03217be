package quorum

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

// snapshot is the newest one; there is no use for older ones, since a new one replaces
// it in one transaction.
type snapshot struct {
	meta raft.SnapshotMeta
	data []byte
}

// encodeSnapshot writes: checksum of what follows, length of the meta data, the meta
// data in JSON, the data.
func encodeSnapshot(s *snapshot) ([]byte, error) {
	meta, err := json.Marshal(s.meta)
	if err != nil {
		return nil, err
	}
	body := binary.BigEndian.AppendUint32(nil, uint32(len(meta)))
	return seal(append(append(body, meta...), s.data...)), nil
}

func decodeSnapshot(sealed []byte) (*snapshot, error) {
	body, err := unseal(sealed)
	if err != nil {
		return nil, err
	}
	if len(body) < 4 || uint64(binary.BigEndian.Uint32(body)) > uint64(len(body)-4) {
		return nil, errors.New("it is shorter than it says")
	}
	size := binary.BigEndian.Uint32(body)
	s := &snapshot{data: append([]byte{}, body[4+size:]...)}
	if err := json.Unmarshal(body[4:4+size], &s.meta); err != nil {
		return nil, err
	}
	if s.meta.Size != int64(len(s.data)) || len(s.data) > snapshotBytesMax {
		return nil, fmt.Errorf("it has %d bytes and says %d; the most is %d", len(s.data), s.meta.Size, snapshotBytesMax)
	}
	if s.meta.Version != raft.SnapshotVersionMax || s.meta.Index == 0 || s.meta.Term == 0 {
		return nil, fmt.Errorf("version %d, index %d, term %d", s.meta.Version, s.meta.Index, s.meta.Term)
	}
	return s, nil
}

// Create begins a snapshot. It is gathered in memory and stored by Close.
func (s *store) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &sink{store: s, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}, nil
}

// List has the one snapshot, if there is one.
func (s *store) List() ([]*raft.SnapshotMeta, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snapshot == nil {
		return nil, nil
	}
	meta := s.snapshot.meta
	return []*raft.SnapshotMeta{&meta}, nil
}

// Open reads the snapshot from memory.
func (s *store) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snapshot == nil || s.snapshot.meta.ID != id {
		return nil, nil, fmt.Errorf("snapshot %.64q: there is none", id)
	}
	meta := s.snapshot.meta
	return &meta, io.NopCloser(bytes.NewReader(s.snapshot.data)), nil
}

func (s *store) putSnapshot(snap *snapshot) error {
	sealed, err := encodeSnapshot(snap)
	if err != nil {
		return err
	}
	return s.write("snapshot", func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keySnapshot, sealed)
	}, func() { s.snapshot = snap })
}

// sink gathers a snapshot. It belongs to one goroutine.
type sink struct {
	store *store
	meta  raft.SnapshotMeta
	data  []byte
	over  bool
}

// ID names the snapshot.
func (k *sink) ID() string { return k.meta.ID }

// Write adds to it, up to the limit.
func (k *sink) Write(p []byte) (int, error) {
	if len(k.data)+len(p) > snapshotBytesMax {
		return 0, fmt.Errorf("snapshot: more than %d bytes", snapshotBytesMax)
	}
	k.data = append(k.data, p...)
	return len(p), nil
}

// Close makes it the newest snapshot; it is on disk when it returns nil.
func (k *sink) Close() error {
	if k.over {
		return nil
	}
	k.over = true
	k.meta.Size = int64(len(k.data))
	return k.store.putSnapshot(&snapshot{meta: k.meta, data: k.data})
}

// Cancel forgets it.
func (k *sink) Cancel() error {
	k.over, k.data = true, nil
	return nil
}
