package quorum

import (
	"fmt"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

// Status is how agreement stands, as seen from this node.
type Status struct {
	ClusterID  string // "": this node belongs to none yet
	Generation uint64
	Leader     member.ID   // "": nobody, as far as this node knows
	Voters     []member.ID // sorted
	Others     []member.ID // that follow without a vote; sorted
	HasQuorum  bool        // changes can be made
	Why        string      // a sentence with cause and remedy, if they cannot
	Term       uint64
	Problems   []string // sentences about other clusters that were met, and the disk
}

// Status waits for no disk, no peer and no leader.
func (q *Quorum) Status() Status {
	q.mu.RLock()
	k, broken, problems := q.mu.core, q.mu.broken, q.mu.problems
	q.mu.RUnlock()
	out := Status{Problems: append([]string(nil), problems...)}
	if k == nil {
		out.Why = fmt.Sprintf("the cluster's state cannot be opened: %v", broken)
		return out
	}
	id := k.store.who()
	out.ClusterID, out.Generation, out.Term = id.Cluster, id.Generation, k.raft.CurrentTerm()
	out.Leader = k.leader()
	for _, s := range k.servers() {
		if s.Suffrage == raft.Voter {
			out.Voters = append(out.Voters, member.ID(s.ID))
		} else {
			out.Others = append(out.Others, member.ID(s.ID))
		}
	}
	out.Voters, out.Others = sortedSet(out.Voters), sortedSet(out.Others)
	trouble := k.store.trouble(q.cfg.StallLimit)
	if trouble != "" {
		out.Problems = append(out.Problems, trouble)
	}
	switch {
	case trouble != "" && (out.Leader == "" || out.Leader == q.cfg.Self):
		out.Why = trouble
	case out.Leader != "":
		out.HasQuorum = true
	default:
		out.Why = q.leaderless(out).Why
	}
	return out
}

// noQuorum is why there is no leader. Without patience it is nil as long as the
// voters may still be electing one.
func (q *Quorum) noQuorum(impatient bool) error {
	s := q.Status()
	if s.HasQuorum {
		return nil
	}
	e := q.leaderless(s)
	if s.Why != "" {
		e.Why = s.Why
	}
	if known := e.Voters == 0 || e.Alive <= e.Voters/2; known || impatient {
		return e
	}
	return nil
}

// leaderless counts who is there.
func (q *Quorum) leaderless(s Status) *NoQuorumError {
	members := map[member.ID]member.Member{}
	for _, m := range q.cfg.Members() {
		members[m.ID] = m
	}
	e := &NoQuorumError{Voters: len(s.Voters)}
	for _, id := range s.Voters {
		if id == q.cfg.Self || here(members, id) {
			e.Alive++
		} else {
			e.Missing = append(e.Missing, id)
		}
	}
	switch {
	case s.ClusterID == "" || e.Voters == 0:
		e.Why = "this node has not been let into a cluster yet; it waits for a node of it that can be reached, and if there is none any more `node cluster recover` makes this node a cluster of one"
	case e.Alive <= e.Voters/2:
		e.Why = fmt.Sprintf("no quorum: %d of %d voters, missing %s; serving goes on, changes wait until they are back, and if they are gone for good `node cluster recover` makes this node a cluster of one",
			e.Alive, e.Voters, names(e.Missing, members))
	default:
		e.Why = fmt.Sprintf("no leader at the moment: %d of %d voters are there and elect one", e.Alive, e.Voters)
	}
	return e
}

// here tells whether a node is seen to answer.
func here(members map[member.ID]member.Member, id member.ID) bool {
	m, ok := members[id]
	return ok && (m.State == member.Alive || m.State == member.Draining)
}
