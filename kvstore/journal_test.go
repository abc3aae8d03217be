package kvstore

import (
	"maps"
	"testing"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

// presence is what a reader of the journal knows.
type presence map[Change]bool

func (p presence) apply(changes []Change) {
	for _, c := range changes {
		key := Change{ID: c.ID, Tier: c.Tier}
		if c.Present {
			p[key] = true
		} else {
			delete(p, key)
		}
	}
}

// TestJournal: who reads all changes, in whatever portions, knows what is held; who
// was too slow is told so, and begins anew with Held.
func TestJournal(t *testing.T) {
	var s Store
	s.journal.wake = make(chan struct{})
	tree := prefix.New(1)
	tree.Changed = s.journal.note
	s.mu.tree = tree
	id := func(n int) (id block.ID) {
		id[0], id[1], id[2], id[3] = 1, byte(n), byte(n>>8), byte(n>>16)
		return id
	}
	follower, at := presence{}, uint64(0)
	follow := func(limit int) {
		t.Helper()
		changes, last, ok := s.Changes(at, limit)
		if !ok || last-at != uint64(len(changes)) {
			t.Fatalf("after %d: %d changes up to %d, %v", at, len(changes), last, ok)
		}
		follower.apply(changes)
		at = last
	}
	check := func() {
		t.Helper()
		held, last, err := s.Held(t.Context())
		now := presence{}
		now.apply(held)
		if err != nil || last != at || !maps.Equal(now, follower) {
			t.Fatalf("%v; number %d, read up to %d; %d are held, the follower knows %d", err, last, at, len(now), len(follower))
		}
	}
	woken := s.Changed()
	for n := range 5000 {
		tier := prefix.Tier(n % 2)
		if err := tree.Add(tier, prefix.Block{ID: id(n / 3), Parent: block.ID{9}, Count: 1, Bytes: 1}); err != nil {
			t.Fatal(err)
		}
		if n%5 == 0 {
			tree.Remove(tier, id(n/6))
		}
		if n%7 == 0 {
			tree.Evict(tier, 1, 1, nil)
		}
		if n%11 == 0 {
			follow(1 + n%13)
		}
	}
	select {
	case <-woken:
	default:
		t.Error("nobody was woken")
	}
	follow(1 << 20)
	check()
	select {
	case <-s.Changed():
		t.Error("woken without a change")
	default:
	}

	begin := at
	for n := range journalMax {
		if n%2 == 0 {
			err := tree.Add(prefix.RAM, prefix.Block{ID: id(9999), Parent: block.ID{9}, Count: 1, Bytes: 1})
			if err != nil {
				t.Fatal(err)
			}
		} else {
			tree.Remove(prefix.RAM, id(9999))
		}
	}
	if _, _, ok := s.Changes(begin, 10); ok {
		t.Error("changes are told that are not remembered")
	}
	if _, last, ok := s.Changes(begin+1, 1<<20); !ok || last != begin+journalMax {
		t.Errorf("what is remembered is not told: up to %d of %d, %v", last, begin+journalMax, ok)
	}
	if _, _, ok := s.Changes(begin+2*journalMax, 1); ok {
		t.Error("changes after a number that was never given")
	}
	at = begin + journalMax
	check()
}
