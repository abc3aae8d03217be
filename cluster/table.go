package cluster

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"tandem/cluster/identity"
	"tandem/cluster/member"
)

// membersMax bounds the table. memberlist's own would grow without bound; a home has
// dozens.
const membersMax = 1024

// entry is a node as this one sees it.
type entry struct {
	m       member.Member
	gossip  netip.AddrPort
	process process
	keys    []identity.KeyID
	heard   uint64 // how often gossip said that it is there
}

// present tells whether gossip reaches the node.
func (e entry) present() bool { return e.m.State == member.Alive || e.m.State == member.Draining }

// table holds what is known of the other nodes; this node is not in it. Its methods are
// called by memberlist under memberlist's lock: they take only the table's own and call
// nothing.
//
// Invariant: changed is told the id of each entry whose member differs from before,
// after the table shows it.
type table struct {
	changed func(member.Member)
	now     func() time.Time

	mu   sync.Mutex
	byID map[member.ID]entry
}

func newTable(now func() time.Time, changed func(member.Member)) *table {
	return &table{changed: changed, now: now, byID: map[member.ID]entry{}}
}

// seen notes what a node says of itself while gossip reaches it.
func (t *table) seen(id member.ID, gossip netip.AddrPort, m meta) {
	t.mu.Lock()
	old, known := t.byID[id]
	if known && old.m.State == member.Left && old.process == m.Process {
		t.mu.Unlock() // what is still under way of one that said it leaves
		return
	}
	if !known && len(t.byID) >= membersMax {
		t.mu.Unlock()
		return
	}
	e := entry{gossip: gossip, process: m.Process, keys: m.Keys, heard: old.heard + 1, m: member.Member{
		ID: id, Name: m.Name, Version: m.Version, Role: m.Role, Peer: m.Peer, API: m.API, Started: m.Started, State: member.Alive,
	}}
	switch {
	case m.Leaving:
		e.m.State = member.Left
	case m.Draining:
		e.m.State = member.Draining
	}
	t.putLocked(e)
}

// gone notes that a node has failed, as of an entry that was seen before: if gossip has
// said since that it is there, it is.
func (t *table) gone(seen entry) {
	t.mu.Lock()
	e, known := t.byID[seen.m.ID]
	if !known || e.heard != seen.heard || !e.present() {
		t.mu.Unlock()
		return
	}
	e.m.State = member.Failed
	t.putLocked(e)
}

// left notes that a run of a node said goodbye. It stays with that, whatever old gossip
// of that run says.
func (t *table) left(id member.ID, p process) {
	t.mu.Lock()
	e, known := t.byID[id]
	if !known || e.process != p || e.m.State == member.Left {
		t.mu.Unlock()
		return
	}
	e.m.State = member.Left
	t.putLocked(e)
}

// putLocked stores an entry, unlocks, and tells of the change if there is one.
func (t *table) putLocked(e entry) {
	old, known := t.byID[e.m.ID]
	e.m.Since = old.m.Since
	if !known || old.m.State != e.m.State || old.process != e.process {
		e.m.Since = t.now()
	}
	t.byID[e.m.ID] = e
	t.mu.Unlock()
	if !known || !same(old.m, e.m) {
		t.changed(e.m)
	}
}

func same(a, b member.Member) bool {
	return a.ID == b.ID && a.Name == b.Name && a.Version == b.Version && a.Role == b.Role && a.State == b.State &&
		a.API == b.API && a.Started.Equal(b.Started) && a.Since.Equal(b.Since) && slices.Equal(a.Peer, b.Peer)
}

// forget drops nodes that have failed or left for longer than a time, and returns them.
func (t *table) forget(after time.Duration) []member.Member {
	now := t.now()
	t.mu.Lock()
	var out []member.Member
	for id, e := range t.byID {
		if !e.present() && now.Sub(e.m.Since) >= after {
			delete(t.byID, id)
			out = append(out, e.m)
		}
	}
	t.mu.Unlock()
	for _, m := range out {
		t.changed(m)
	}
	return out
}

func (t *table) get(id member.ID) (entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.byID[id]
	e.m.Peer = slices.Clone(e.m.Peer)
	return e, ok
}

// all is every node, by name and then id.
func (t *table) all() []entry {
	t.mu.Lock()
	out := make([]entry, 0, len(t.byID))
	for _, e := range t.byID {
		e.m.Peer = slices.Clone(e.m.Peer)
		out = append(out, e)
	}
	t.mu.Unlock()
	slices.SortFunc(out, func(a, b entry) int { return byName(a.m, b.m) })
	return out
}

// present is every node that gossip reaches.
func (t *table) present() []entry {
	return slices.DeleteFunc(t.all(), func(e entry) bool { return !e.present() })
}

func byName(a, b member.Member) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}
