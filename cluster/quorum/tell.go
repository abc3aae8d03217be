package quorum

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// tell calls watchers and keeps the records that follow the state, until Close. It may
// wait for a disk that stalls; nothing waits for it.
func (q *Quorum) tell() {
	var written memoKey
	ticker := time.NewTicker(q.cfg.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-q.ctx.Done():
			return
		case <-ticker.C: // a record that could not be written is tried again
		case <-q.news:
			q.callWatchers()
		}
		k, err := q.current()
		if err != nil {
			continue
		}
		shown := k.fsm.shown.Load()
		q.remember(k, shown)
		key := memoKey{k.store.who().realm, shown.state.Changes, fmt.Sprint(k.voters())}
		if key != written && shown.state.ClusterID != "" && q.writeMemo(k, shown) == nil {
			written = key
		}
	}
}

// memoKey tells memos apart.
type memoKey struct {
	realm
	changes uint64
	voters  string
}

// remember keeps in the identity what the machine has just made true.
func (q *Quorum) remember(k *core, shown *published) {
	id := k.store.who()
	let := shown.nodes[id.Self] == id.Incarnation && shown.state.ClusterID == id.Cluster && shown.state.Generation == id.Generation
	if shown.state.ClusterID == "" || shown.state.Changes < id.Changes || maps.Equal(id.Nodes, shown.nodes) && (id.MayVote || !let) {
		return
	}
	id.Nodes, id.Changes = shown.nodes, shown.state.Changes
	id.MayVote = id.MayVote || let
	if err := k.store.become(id); err != nil && q.ctx.Err() == nil {
		q.logger.Warn("cannot store who is in the cluster", "error", err)
	}
	q.MembersChanged()
}

// writeMemo writes the second record.
func (q *Quorum) writeMemo(k *core, shown *published) error {
	m := memo{realm: k.store.who().realm, Voters: k.voters(), Machine: &machine{State: shown.state, Nodes: shown.nodes}}
	err := m.write(q.cfg.Dir)
	if err != nil {
		q.logger.Warn("cannot write the second record of the cluster's state", "dir", q.cfg.Dir, "error", err)
	}
	return err
}

// callWatchers gives each watcher the state, if it has not seen it.
func (q *Quorum) callWatchers() {
	q.watch.Lock()
	calls := slices.Collect(maps.Values(q.watch.calls))
	q.watch.Unlock()
	k, err := q.current()
	var shown *published
	if err == nil {
		shown = k.fsm.shown.Load()
	}
	for _, w := range calls {
		if shown == nil && w.seen != nil || w.seen != nil && w.seen == shown {
			continue
		}
		w.seen = shown
		w.call(q.State())
	}
}
