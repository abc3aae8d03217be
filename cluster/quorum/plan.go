package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

// planInput is all that a leader's decision about membership depends on.
type planInput struct {
	self    member.ID
	realm   realm
	servers []raft.Server
	nodes   map[member.ID]string // incarnations that were let in
	members map[member.ID]member.Member
	cards   map[member.ID]card
	gone    map[member.ID]time.Duration // how long a node has not been here
	leaving map[member.ID]time.Time
	commit  uint64

	deadAfter, replaceAfter time.Duration
}

type action string

const (
	actRemove  action = "remove"
	actLetIn   action = "let in"
	actAdd     action = "add"
	actPromote action = "give a vote to"
	actDemote  action = "take the vote of"
)

// step is one change of membership.
type step struct {
	action      action
	id          member.ID
	incarnation string // of actLetIn
	why         string
}

// lagMax is how many entries a node may be behind when it gets its vote: one that
// votes and lacks the log would hold up every change.
const lagMax = 64

// plan is the next change of membership that a leader should make, one at a time, or
// nil. What frees a majority from a node that is gone comes before what adds one.
func plan(in planInput) *step {
	for _, next := range []func(planInput) *step{planRemovals, planAdditions, planVotes} {
		if s := next(in); s != nil {
			return s
		}
	}
	return nil
}

func planRemovals(in planInput) *step {
	for _, s := range in.servers {
		id := member.ID(s.ID)
		if id == in.self {
			continue
		}
		m, known := in.members[id]
		c, heard := in.cards[id]
		switch {
		case known && m.State == member.Left:
			return &step{action: actRemove, id: id, why: "it left"}
		case in.gone[id] >= in.deadAfter:
			return &step{action: actRemove, id: id, why: fmt.Sprintf("it has been gone for %s", in.gone[id].Round(time.Second))}
		case in.nodes[id] == "":
			return &step{action: actRemove, id: id, why: "it is not known which folder it has"}
		case heard && here(in.members, id) && c.Incarnation != in.nodes[id]:
			return &step{action: actRemove, id: id, why: "it lost its folder and is let in anew"}
		}
	}
	return nil
}

func planAdditions(in planInput) *step {
	if len(in.servers) >= nodesMax {
		return nil
	}
	for _, id := range sortedIDs(in.members) {
		m, c := in.members[id], in.cards[id]
		started, left := in.leaving[id]
		listed := slices.ContainsFunc(in.servers, func(s raft.Server) bool { return s.ID == raft.ServerID(id) })
		if id == in.self || listed || !here(in.members, id) || left && started.Equal(m.Started) {
			continue
		}
		if c.ID == "" || !c.waits() && c.realm != in.realm {
			continue // nothing was heard of it, or it has yet to give up what it has
		}
		if in.nodes[id] != c.Incarnation {
			return &step{action: actLetIn, id: id, incarnation: c.Incarnation, why: "it joined"}
		}
		return &step{action: actAdd, id: id, why: "it joined"}
	}
	return nil
}

func planVotes(in planInput) *step {
	voters, lost := 0, member.ID("")
	for _, s := range in.servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if id := member.ID(s.ID); in.gone[id] >= in.replaceAfter && in.gone[id] > 0 && id != in.self {
			lost = id
		}
	}
	ready := slices.DeleteFunc(slices.Clone(in.servers), func(s raft.Server) bool {
		id := member.ID(s.ID)
		c := in.cards[id]
		return s.Suffrage == raft.Voter || !here(in.members, id) || !c.MayVote || c.realm != in.realm || c.Incarnation != in.nodes[id] || c.Applied+lagMax < in.commit
	})
	if len(ready) == 0 {
		return nil
	}
	slices.SortFunc(ready, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	switch {
	case voters < VotersMax:
		return &step{action: actPromote, id: member.ID(ready[0].ID), why: fmt.Sprintf("there are %d voters", voters)}
	case lost != "":
		return &step{action: actDemote, id: lost, why: "it has been gone for " + in.gone[lost].Round(time.Second).String() + " and another can vote"}
	}
	return nil
}

func sortedIDs[V any](m map[member.ID]V) []member.ID {
	out := make([]member.ID, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
