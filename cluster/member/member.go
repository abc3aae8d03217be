// Package member says what nodes know of each other: names, addresses, states. It
// is a leaf that the packages around the cluster share.
package member

import (
	"encoding/hex"
	"fmt"
	"time"
)

// ID is the identity of a node for ever: 16 random bytes in hexadecimal, made once
// and kept in its data folder. A node that comes back under another address or name
// is the same node.
type ID string

// ParseID reads an ID and refuses everything else.
func ParseID(s string) (ID, error) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != 16 || hex.EncodeToString(raw) != s {
		return "", fmt.Errorf("node id %.64q: it must have 32 lower-case hexadecimal digits", s)
	}
	return ID(s), nil
}

// Short is enough of an ID to tell nodes apart in a log.
func (id ID) Short() string { return string(id[:min(8, len(id))]) }

// Role is what a node does with requests.
type Role string

// The roles. A hybrid node does both; roles are preferences of placement, any node
// can do everything.
const (
	Hybrid  Role = "hybrid"
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

// State is how a node is seen from here.
type State string

// The states. Draining nodes finish what they have and get nothing new; a node that
// left said so, a failed one was found not to answer.
const (
	Alive    State = "alive"
	Draining State = "draining"
	Failed   State = "failed"
	Left     State = "left"
)

// Member is one node of the cluster.
type Member struct {
	ID      ID
	Name    string
	Version string    // of the program
	Role    Role      // the one that it has taken
	State   State     // as seen from here
	Peer    []string  // host:port of its peer link, best first; never empty
	API     string    // URL that people can open; "": only on the machine itself
	Started time.Time // of its process, by its own clock: tells restarts apart, orders nothing
	Since   time.Time // of State, by this node's clock
}

// Serves tells whether new work may be given to a node.
func (m Member) Serves() bool { return m.State == Alive }
