package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"tandem/cluster/member"
)

// Streams are the ways to the other nodes. All of them are authenticated: who answers
// for an id is that node.
type Streams interface {
	// Dial opens a stream for raft to a node, wherever it is now.
	Dial(ctx context.Context, to member.ID) (net.Conn, error)
	// Accept waits for a stream that another node's Dial opened. If a connection has a
	// method Peer() member.ID, what it says is held against what the node says.
	Accept() (net.Conn, error)
	// Forward has a node's HandleForward answer a request.
	Forward(ctx context.Context, to member.ID, request []byte) ([]byte, error)
	// Close makes Accept return an error, now and for ever. Quorum.Close calls it.
	Close() error
}

// Config is what a Quorum needs. Durations that are zero take their defaults.
type Config struct {
	Self member.ID
	Dir  string // made if it is missing, 0700; belongs to one process

	// Join: others are there, or will be, who let this node in. A folder without a
	// state then waits instead of founding a cluster.
	Join bool

	Streams Streams
	Members func() []member.Member // as gossip sees them; must not block
	Logger  *slog.Logger

	// ValidSetting is asked on the leader about the value of a setting that is known and
	// has passed its own check; nil: nothing more to check.
	ValidSetting func(name, value string) error

	// Heartbeat is how long a follower does without a word of the leader before it looks
	// around; a leader is replaced after one to three of these. Default 1s; from 50ms. A
	// node whose cores all compute can be late by some hundred milliseconds, and should
	// not lose its place for that.
	Heartbeat time.Duration

	// DeadAfter is how long a node must have been gone before it is removed. Default
	// 10min. Shorter, and a node that is being repaired comes back as a new one; longer,
	// and more nodes may be lost in the meantime than a majority bears.
	DeadAfter time.Duration

	// ReplaceAfter is how long a voter must have been gone before another node gets its
	// vote, if there are more nodes than votes. Default a tenth of DeadAfter.
	ReplaceAfter time.Duration

	// FoundAfter is how long nodes that all wait to be let in wait for each other before
	// the one with the lowest id founds the cluster. Default 10s.
	FoundAfter time.Duration

	// ChangeLimit bounds every Change, whatever its context says. Default 10s.
	ChangeLimit time.Duration

	// StallLimit is after how long a disk that does not answer is trouble: a leader
	// then falls silent, so that the others elect another. Default 5s.
	StallLimit time.Duration

	// fault is called before each operation on the disk; for tests.
	fault func(op string) error
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	def(&c.Heartbeat, time.Second)
	def(&c.DeadAfter, 10*time.Minute)
	def(&c.ReplaceAfter, c.DeadAfter/10)
	def(&c.FoundAfter, 10*time.Second)
	def(&c.ChangeLimit, 10*time.Second)
	def(&c.StallLimit, 5*time.Second)
	return c
}

// Validate lists all faults.
func (c Config) Validate() error {
	var faults []error
	if _, err := member.ParseID(string(c.Self)); err != nil {
		faults = append(faults, fmt.Errorf("quorum: Self: %w", err))
	}
	for name, missing := range map[string]bool{"Dir": c.Dir == "", "Streams": c.Streams == nil, "Members": c.Members == nil, "Logger": c.Logger == nil} {
		if missing {
			faults = append(faults, fmt.Errorf("quorum: %s: it is missing", name))
		}
	}
	c = c.withDefaults()
	if c.Heartbeat < 50*time.Millisecond {
		faults = append(faults, fmt.Errorf("quorum: Heartbeat: %s is not allowed; it must be at least 50ms", c.Heartbeat))
	}
	for name, d := range map[string]time.Duration{"DeadAfter": c.DeadAfter, "ReplaceAfter": c.ReplaceAfter, "FoundAfter": c.FoundAfter, "ChangeLimit": c.ChangeLimit, "StallLimit": c.StallLimit} {
		if d < 0 {
			faults = append(faults, fmt.Errorf("quorum: %s: %s is not allowed; it must not be negative", name, d))
		}
	}
	return errors.Join(faults...)
}

// tick is how often the reconciler looks around by itself.
func (c Config) tick() time.Duration { return c.Heartbeat / 10 }

// rpcLimit bounds one exchange of raft with a peer, or one question to it.
func (c Config) rpcLimit() time.Duration { return 3 * c.Heartbeat }
