package scheduler

import "tandem/cluster/member"

// OwnRole is the role that a node takes by itself: its owner's word, else what the last
// plan says, unless nobody is left to do the other part, or this node cannot do its own.
// It needs no leader.
//
// others are the other nodes as members see them, with the roles that plan gives them;
// measured says that this node knows its own rates.
func OwnRole(self member.ID, fixed member.Role, plan map[member.ID]member.Role, others []member.Member, measured bool) (role member.Role, why string) {
	if fixed != "" {
		return fixed, "--role says so"
	}
	role, planned := plan[self]
	if !planned || role == member.Hybrid {
		return member.Hybrid, "the plan gives it no other role"
	}
	if !measured {
		return member.Hybrid, "it has yet to measure how fast it is"
	}
	partner := member.Decode
	if role == member.Decode {
		partner = member.Prefill
	}
	for _, m := range others {
		if m.ID != self && m.State == member.Alive && (plan[m.ID] == partner || m.Role == partner && plan[m.ID] == "") {
			return role, "the plan says so"
		}
	}
	return member.Hybrid, "no node is left that the plan gives the other part"
}
