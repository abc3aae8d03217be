package quorum

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
)

var (
	bucketLog    = []byte("log")
	bucketStable = []byte("stable")
	bucketMeta   = []byte("meta")

	keyIdentity = []byte("identity")
	keySnapshot = []byte("snapshot")

	keyCurrentTerm  = "CurrentTerm"  // raft's name
	keyLastVoteTerm = "LastVoteTerm" // raft's name
)

// store is raft's log, its stable store and its snapshots in one file, and what this
// package needs to remember beside them. All of it is in memory as well: it is small,
// nothing but writing touches the disk once the file is open, and damage is found when
// it is opened and never later. Memory changes only after the disk has said yes.
type store struct {
	disk   *disk
	logger *slog.Logger

	mu       sync.RWMutex
	entries  []*raft.Log // consecutive
	stable   map[string][]byte
	snapshot *snapshot // nil: none
	identity identity
	failing  error // of the last write; nil: it went well
}

// openStore opens the file and checks all of it. errDamaged means that it cannot be
// used and may be set aside.
func openStore(path string, logger *slog.Logger, fault func(string) error) (*store, error) {
	d, err := openDisk(path, fault)
	if err != nil {
		return nil, err
	}
	s := &store{disk: d, logger: logger, stable: map[string][]byte{}}
	if err := d.do("open", s.load); err != nil {
		d.release()
		<-d.done
		return nil, err
	}
	return s, nil
}

// load reads the whole file into memory.
func (s *store) load(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketLog, bucketStable, bucketMeta} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	damaged := func(what string, err error) error {
		return fmt.Errorf("%s: %w: %s: %w", s.disk.path, errDamaged, what, err)
	}
	err := tx.Bucket(bucketStable).ForEach(func(k, v []byte) error {
		body, err := unseal(v)
		if err != nil {
			return damaged(string(k), err)
		}
		s.stable[string(k)] = append([]byte{}, body...)
		return nil
	})
	if err != nil {
		return err
	}
	if v := tx.Bucket(bucketMeta).Get(keyIdentity); v != nil {
		body, err := unseal(v)
		if err == nil {
			err = json.Unmarshal(body, &s.identity)
		}
		if err != nil {
			return damaged("identity", err)
		}
	}
	if v := tx.Bucket(bucketMeta).Get(keySnapshot); v != nil {
		if s.snapshot, err = decodeSnapshot(v); err != nil {
			return damaged("snapshot", err)
		}
	}
	err = tx.Bucket(bucketLog).ForEach(func(k, v []byte) error {
		body, err := unseal(v)
		if err != nil {
			return damaged(fmt.Sprintf("entry %x", k), err)
		}
		l, err := decodeEntry(body)
		if err != nil {
			return damaged(fmt.Sprintf("entry %x", k), err)
		}
		if string(k) != string(entryKey(l.Index)) {
			return damaged(fmt.Sprintf("entry %x", k), fmt.Errorf("it is number %d", l.Index))
		}
		s.entries = append(s.entries, l)
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.checkLog(); err != nil {
		return damaged("log", err)
	}
	return nil
}

// checkLog holds the log against what raft needs: no hole in it nor behind the
// snapshot, terms that rise, and no term above the present one.
func (s *store) checkLog() error {
	var base, term uint64
	if s.snapshot != nil {
		base = s.snapshot.meta.Index
	}
	for i, l := range s.entries {
		if i > 0 && l.Index != s.entries[i-1].Index+1 {
			return fmt.Errorf("entry %d follows %d", l.Index, s.entries[i-1].Index)
		}
		if l.Term < term {
			return fmt.Errorf("entry %d has term %d after %d", l.Index, l.Term, term)
		}
		term = l.Term
	}
	if len(s.entries) > 0 && s.entries[0].Index > base+1 {
		return fmt.Errorf("it begins at %d and the snapshot ends at %d", s.entries[0].Index, base)
	}
	if current, _ := s.GetUint64([]byte(keyCurrentTerm)); term > current {
		return fmt.Errorf("it has term %d and the present one is %d", term, current)
	}
	return nil
}

func entryKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

// write does one operation on disk, then in memory.
func (s *store) write(name string, onDisk func(*bolt.Tx) error, inMemory func()) error {
	err := s.disk.do(name, onDisk)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, ErrClosed) {
		s.failing = err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.disk.path, err)
	}
	inMemory()
	return nil
}

// trouble says in words what is wrong with the disk; "": nothing.
func (s *store) trouble(limit time.Duration) string {
	if d := s.disk.stalled(); d > limit {
		return fmt.Sprintf("the disk under %s has not answered for %s", s.disk.path, d.Round(time.Second))
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.failing != nil {
		return fmt.Sprintf("%s cannot be written (%v); changes wait until it can", s.disk.path, s.failing)
	}
	return ""
}

// FirstIndex is that of the oldest entry, 0 if there is none.
func (s *store) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.entries) == 0 {
		return 0, nil
	}
	return s.entries[0].Index, nil
}

// LastIndex is that of the newest entry, 0 if there is none.
func (s *store) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.entries) == 0 {
		return 0, nil
	}
	return s.entries[len(s.entries)-1].Index, nil
}

// GetLog copies an entry; its data is shared and nobody changes it.
func (s *store) GetLog(index uint64, into *raft.Log) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.entries) == 0 || index < s.entries[0].Index || index-s.entries[0].Index >= uint64(len(s.entries)) {
		return raft.ErrLogNotFound
	}
	*into = *s.entries[index-s.entries[0].Index]
	return nil
}

// StoreLog stores one entry.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries. They are on disk when it returns nil.
//
// The store is no raft.MonotonicLogStore, although its log has no holes: of one raft
// deletes the whole log when it installs a snapshot, also entries behind it, and goes on
// to count them. A snapshot that comes twice, as one does whose answer was late, would
// end the process. What a new snapshot leaves behind is dropped here instead.
func (s *store) StoreLogs(logs []*raft.Log) error {
	last, _ := s.LastIndex()
	first, behind := uint64(0), last
	if gap := s.behindSnapshot(); gap != 0 && len(logs) > 0 && logs[0].Index == gap+1 && last < gap {
		first, _ = s.FirstIndex() // what is left is older than the snapshot
		last = gap
	}
	added := make([]*raft.Log, len(logs))
	sealed := make([][]byte, len(logs))
	for i, l := range logs {
		if last != 0 && l.Index != last+1 {
			return fmt.Errorf("log: entry %d would follow %d", l.Index, last)
		}
		if len(l.Data) > entryBytesMax || len(l.Extensions) > entryBytesMax {
			return fmt.Errorf("log: entry %d has %d bytes; the most is %d", l.Index, len(l.Data)+len(l.Extensions), entryBytesMax)
		}
		last = l.Index
		own := *l
		added[i], sealed[i] = &own, seal(appendEntry(nil, l))
	}
	return s.write("append", func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketLog)
		b.FillPercent = 0.9 // keys only rise
		for i := first; first != 0 && i <= behind; i++ {
			if err := b.Delete(entryKey(i)); err != nil {
				return err
			}
		}
		for i, l := range added {
			if err := b.Put(entryKey(l.Index), sealed[i]); err != nil {
				return err
			}
		}
		return nil
	}, func() {
		if first != 0 {
			s.entries = nil
		}
		s.entries = append(s.entries, added...)
	})
}

// behindSnapshot is where the snapshot ends, 0 without one. A crash between storing a
// snapshot that came from the leader and deleting the log leaves entries that end
// before it; raft goes on right behind the snapshot.
func (s *store) behindSnapshot() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snapshot == nil {
		return 0
	}
	return s.snapshot.meta.Index
}

// DeleteRange deletes the entries from low to high, at either end of the log.
func (s *store) DeleteRange(low, high uint64) error {
	first, _ := s.FirstIndex()
	last, _ := s.LastIndex()
	low, high = max(low, first), min(high, last)
	if first == 0 || low > high {
		return nil
	}
	if low != first && high != last {
		return fmt.Errorf("log: deleting %d to %d would leave a hole in %d to %d", low, high, first, last)
	}
	return s.write("delete", func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketLog)
		for i := low; i <= high; i++ {
			if err := b.Delete(entryKey(i)); err != nil {
				return err
			}
		}
		return nil
	}, func() {
		if low == first {
			s.entries = append([]*raft.Log(nil), s.entries[high-first+1:]...)
		} else {
			s.entries = append([]*raft.Log(nil), s.entries[:low-first]...)
		}
	})
}

// Set stores a value of raft's. A vote of a node that may not vote yet is refused
// here, which is where raft makes sure of it before it tells anybody.
func (s *store) Set(key, value []byte) error {
	k, v := string(key), append([]byte{}, value...)
	if k == keyLastVoteTerm && !s.who().MayVote {
		return errors.New("this node was let in anew and may not vote before it has caught up")
	}
	return s.write("set "+k, func(tx *bolt.Tx) error {
		return tx.Bucket(bucketStable).Put([]byte(k), seal(v))
	}, func() { s.stable[k] = v })
}

// Get is nil if there is no such value.
func (s *store) Get(key []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.stable[string(key)], nil
}

// SetUint64 stores a number. The current term is stored before it returns, however
// long that takes: raft ends the process if it is told of a failure. Only when the
// store is being closed does it return without; then votes and entries fail, so
// nothing is ever promised in a term that was not stored.
func (s *store) SetUint64(key []byte, value uint64) error {
	v := binary.BigEndian.AppendUint64(nil, value)
	if string(key) != keyCurrentTerm {
		return s.Set(key, v)
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := s.Set(key, v)
		if err == nil || errors.Is(err, ErrClosed) {
			return nil
		}
		s.logger.Warn("raft waits until it can store its term", "term", value, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.disk.closing:
			timer.Stop()
			return nil
		}
	}
}

// GetUint64 is 0 if there is no such value.
func (s *store) GetUint64(key []byte) (uint64, error) {
	v, _ := s.Get(key)
	if len(v) != 8 {
		return 0, nil
	}
	return binary.BigEndian.Uint64(v), nil
}

// who is the node's identity.
func (s *store) who() identity {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.identity.clone()
}

// become changes the identity.
func (s *store) become(id identity) error {
	id = id.clone()
	sealed, err := encodeIdentity(id)
	if err != nil {
		return err
	}
	return s.write("identity", func(tx *bolt.Tx) error {
		return tx.Bucket(bucketMeta).Put(keyIdentity, sealed)
	}, func() { s.identity = id })
}
