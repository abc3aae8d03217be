package quorum

import (
	"errors"
	"fmt"
	"strings"

	"tandem/cluster/member"
)

// ErrClosed is returned after Close.
var ErrClosed = errors.New("the cluster's agreement is closed on this node")

// ErrUncertain marks a change of which it is not known whether it was made: its
// leader was lost after it had been asked. Look at State, or ask again.
var ErrUncertain = errors.New("the change may or may not have been made: the leader was lost while it was under way")

// ErrBusy is returned when too many changes wait already.
var ErrBusy = errors.New("too many changes are under way; try again")

// ErrInUse is returned by Recover for the folder of a node that runs.
var ErrInUse = errors.New("a running node uses this folder")

// InvalidError refuses a change for what it says. Nothing was changed.
type InvalidError struct {
	Field, Value, Allowed string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("%s: %.100q is not allowed; it must be %s", e.Field, e.Value, e.Allowed)
}

func tooMany(field, what string, limit int) error {
	return &InvalidError{Field: field, Value: "one more", Allowed: fmt.Sprintf("at most %d %s", limit, what)}
}

// StaleError refuses a role plan that was made for another one than the present.
type StaleError struct {
	Have, Got uint64 // epochs
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("role_plan.epoch: %d does not follow the present plan's %d; read the state again", e.Got, e.Have)
}

// NoQuorumError refuses a change because there is no leader who could make it.
// Nothing was changed, and serving goes on without it.
type NoQuorumError struct {
	Voters  int         // how many there are
	Alive   int         // how many of them are seen alive from here
	Missing []member.ID // the others
	Why     string      // a sentence with cause and remedy
}

func (e *NoQuorumError) Error() string { return e.Why }

// names lists nodes for a sentence: the name if it is known, and the short id.
func names(ids []member.ID, members map[member.ID]member.Member) string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.Short()
		if m, ok := members[id]; ok && m.Name != "" {
			out[i] = m.Name + " (" + id.Short() + ")"
		}
	}
	return strings.Join(out, ", ")
}
