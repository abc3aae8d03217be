package quorum

import (
	"cmp"
	"fmt"
)

// verdict is what a node does about another that is in a different realm.
type verdict int

const (
	keep   verdict = iota // it is the other's turn, or there is nothing to decide
	giveUp                // forget this state and wait to be let in
	stuck                 // neither can: people must decide
)

// resolve decides between two realms that meet, from what each node says of itself.
// Both come to decisions that fit, and no two give up for each other: what decides
// only grows (generation, changes) or never changes.
//
//  1. Within one cluster the higher generation holds: somebody has decided that what
//     the others have is lost.
//  2. A cluster of one gives way to a larger one that has a leader.
//  3. Of two clusters of one, that with fewer changes gives way, then the one with the
//     higher id.
//  4. Two larger ones, or a larger one without a leader, stay as they are.
func resolve(self, other card) (verdict, string) {
	if self.waits() || other.waits() || self.realm == other.realm {
		return keep, ""
	}
	if self.Cluster == other.Cluster && self.Generation != other.Generation {
		if self.Generation < other.Generation {
			return giveUp, fmt.Sprintf("generation %d of the cluster was recovered as generation %d", self.Generation, other.Generation)
		}
		return keep, ""
	}
	mine, theirs := len(self.Voters), len(other.Voters)
	switch {
	case mine > 1 && theirs > 1:
		return stuck, fmt.Sprintf("node %s belongs to cluster %s with %d voters and this node to cluster %s with %d: two grown clusters are not merged; stop the nodes of one, empty their raft folders and start them with --join",
			other.ID.Short(), other.Cluster, theirs, self.Cluster, mine)
	case theirs > 1:
		if other.Leader != "" {
			return giveUp, fmt.Sprintf("cluster %s has %d voters and this node's has one", other.Cluster, theirs)
		}
		return stuck, lost(other)
	case mine > 1:
		if self.Leader != "" {
			return keep, ""
		}
		return stuck, lost(self)
	case cmp.Or(cmp.Compare(self.Changes, other.Changes), other.compare(self.realm)) < 0:
		return giveUp, fmt.Sprintf("cluster %s of one node was chosen over this one", other.Cluster)
	}
	return keep, ""
}

func lost(c card) string {
	return fmt.Sprintf("cluster %s has lost the majority of its %d voters; bring them back, or run `node cluster recover` on node %s", c.Cluster, len(c.Voters), c.ID.Short())
}

// founds tells whether this node founds a cluster, among nodes that all wait to be let
// in: it does if it has the lowest id of at least two that were heard.
func founds(self card, others []card) bool {
	if !self.waits() || len(others) == 0 {
		return false
	}
	for _, o := range others {
		if !o.waits() || o.ID < self.ID {
			return false
		}
	}
	return true
}
