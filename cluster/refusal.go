package cluster

import (
	"fmt"
	"net/netip"
	"time"

	"tandem/cluster/member"
)

// who names a node for people: what it calls itself, its id, where it is.
func who(name string, id member.ID, at string) string {
	if name == "" {
		name = "a node"
	}
	return fmt.Sprintf("%s (%s, at %s)", name, id.Short(), at)
}

// refusedHere is the sentence of the side that refuses: mine is what this node answers,
// theirs what was asked, from where.
func refusedHere(theirs, mine hello, from string) string {
	peer := who(theirs.Name, theirs.ID, from)
	switch mine.Code {
	case codeSecret:
		return fmt.Sprintf("refused %s: it has another cluster secret (key %s, here %s); start it with the secret of this cluster, which is in the file secret of this node's data folder", peer, theirs.Keys[0], mine.Keys[0])
	case codeForged:
		return fmt.Sprintf("refused %s: it named the key of this cluster and could not prove that it has it; something between the nodes changes what they send, or somebody is trying", peer)
	case codeWire:
		return fmt.Sprintf("refused %s: it speaks protocol versions %d to %d, this node %d to %d (program %s there, %s here); update the older one", peer, theirs.WireMin, theirs.WireMax, mine.WireMin, mine.WireMax, unknown(theirs.Version), unknown(mine.Version))
	case codeCluster:
		return fmt.Sprintf("refused %s: it belongs to another cluster with the same secret (%s, here %s); to move it here, stop it, delete the folder raft in its data folder, and start it again", peer, theirs.Cluster, mine.Cluster)
	case codeDuplicate:
		return fmt.Sprintf("refused %s: its node id is in use by %s; a data folder was copied: delete the file node-id in one of the two", peer, mine.Detail)
	case codeUnreachable:
		return fmt.Sprintf("refused %s: the address that it advertises, %s, cannot be used: %s; start it with --advertise and an address that others reach, and open port %d for TCP and UDP there", peer, theirs.Gossip, mine.Detail, theirs.Gossip.Port())
	case codeRotating:
		return fmt.Sprintf("refused %s: the cluster still speaks with a secret that it does not have (key %s); give every node the new secret first", peer, mine.Using)
	case codeBusy:
		return fmt.Sprintf("refused %s for now: too many nodes join at a time", peer)
	}
	return ""
}

// refusedThere is the sentence of the side that was refused: mine was asked at an
// address, theirs is the answer.
func refusedThere(mine, theirs hello, at string) string {
	peer := who(theirs.Name, theirs.ID, at)
	switch theirs.Code {
	case codeSecret:
		return fmt.Sprintf("%s refused this node: it has another cluster secret (key %s, here %s); start this node with the secret of that cluster, which is in the file secret of a member's data folder", peer, theirs.Keys[0], mine.Keys[0])
	case codeForged:
		return fmt.Sprintf("%s refused this node: what it sent was changed on the way", peer)
	case codeWire:
		return fmt.Sprintf("%s refused this node: it speaks protocol versions %d to %d, this node %d to %d (program %s there, %s here); update the older one", peer, theirs.WireMin, theirs.WireMax, mine.WireMin, mine.WireMax, unknown(theirs.Version), unknown(mine.Version))
	case codeCluster:
		return fmt.Sprintf("%s refused this node: it belongs to another cluster with the same secret (%s, here %s); to move this node there, stop it, delete the folder raft in its data folder, and start it again", peer, theirs.Cluster, mine.Cluster)
	case codeDuplicate:
		return fmt.Sprintf("%s refused this node: its id %s is in use by %s; a data folder was copied: delete the file node-id in one of the two", peer, mine.ID.Short(), theirs.Detail)
	case codeWait:
		return fmt.Sprintf("%s knows this node at another address (%s), which has to be given up first; that takes some seconds", peer, theirs.Detail)
	case codeUnreachable:
		return fmt.Sprintf("%s refused this node: the address that this node advertises, %s, cannot be used from there: %s; start this node with --advertise and an address that others reach, and open port %d for TCP and UDP", peer, mine.Gossip, theirs.Detail, mine.Gossip.Port())
	case codeRotating:
		return fmt.Sprintf("%s refused this node: that cluster still speaks with a secret that this node does not have (key %s); give every node the new secret first, or start this node with both", peer, theirs.Using)
	case codeBusy:
		return fmt.Sprintf("%s is busy with others that join", peer)
	}
	return fmt.Sprintf("%s refused this node for a reason that this version does not know (%d); update the older of the two (program %s there, %s here)", peer, theirs.Code, unknown(theirs.Version), unknown(mine.Version))
}

// complained is the sentence of a node that another one tells about itself.
func complained(theirs hello, from string, self netip.AddrPort) string {
	peer := who(theirs.Name, theirs.ID, from)
	switch theirs.Code {
	case codeDuplicate:
		return fmt.Sprintf("another process with this node's id wants to join from %s (%s says so); a data folder was copied: delete the file node-id in one of the two", theirs.Detail, peer)
	case codeUnreachable:
		return fmt.Sprintf("%s cannot use the address that this node advertises, %s: %s; start this node with --advertise and an address that others reach, and open port %d for TCP and UDP", peer, self, theirs.Detail, self.Port())
	}
	return ""
}

func unknown(version string) string {
	if version == "" {
		return "unknown"
	}
	return version
}

// clockSkewMax is from when on a difference of clocks is told. Nothing depends on it but
// certificates, which bear more than a day.
const clockSkewMax = time.Minute

// clockWarning is the sentence for clocks that differ, or "".
func clockWarning(theirs hello, at string, here time.Time) string {
	skew := time.Unix(0, theirs.Clock).Sub(here).Round(time.Second)
	direction := "ahead of"
	if skew < 0 {
		direction = "behind"
	}
	if skew.Abs() < clockSkewMax {
		return ""
	}
	return fmt.Sprintf("the clock of %s is %v %s this node's; it still works, but times in logs do not fit, and from three days on connections fail: set the clocks, best with NTP", who(theirs.Name, theirs.ID, at), skew.Abs(), direction)
}
