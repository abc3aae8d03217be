package scheduler

import (
	"fmt"

	"tandem/cluster/member"
	"tandem/kvstore/block"
)

// Tier is a place where a node holds blocks, the fastest first.
type Tier uint8

// The tiers.
const (
	Resident Tier = iota // rows in the engine: usable at once
	RAM
	Disk
	tierCount
)

// String is the tier's name in messages.
func (t Tier) String() string {
	switch t {
	case Resident:
		return "resident"
	case RAM:
		return "ram"
	case Disk:
		return "disk"
	}
	return fmt.Sprintf("tier(%d)", uint8(t))
}

// Tiers is a set of tiers.
type Tiers uint8

// allTiers has every tier.
const allTiers = Tiers(1<<tierCount - 1)

// TiersOf makes a set.
func TiersOf(tiers ...Tier) (s Tiers) {
	for _, t := range tiers {
		s |= 1 << t
	}
	return s
}

// Has tells whether the set contains t.
func (s Tiers) Has(t Tier) bool { return s>>t&1 != 0 }

// Kind is what happened to blocks.
type Kind uint8

// The kinds. Cleared is of all blocks in all tiers; it has no ids.
const (
	Stored Kind = 1 + iota
	Removed
	Cleared
)

// Event is a change of what a node holds. Seq counts up by one from 1 for each
// Origin, which a node draws anew when its process starts. IDs of one chain are in
// its order: the first block first.
type Event struct {
	Origin uint64
	Seq    uint64
	Kind   Kind
	Tier   Tier
	IDs    []block.ID
}

// Snapshot is all that a node holds, after its event Seq. An id is there once. A
// node sends a snapshot and then the events from Seq+1 on, on one stream, so that
// none can fall between.
type Snapshot struct {
	Origin uint64
	Seq    uint64
	Held   []Held
}

// Held is a block and the tiers it is in.
type Held struct {
	ID    block.ID
	Tiers Tiers
}

// GapError says that events of a node are missing; a snapshot is wanted. What is
// known of the node stays until then.
type GapError struct {
	Node member.ID
	Want uint64 // the event that should have come; 0: the node started anew, or is new here
	Got  uint64
}

func (e *GapError) Error() string {
	if e.Want == 0 {
		return fmt.Sprintf("events of node %s begin with %d: a snapshot is needed", e.Node.Short(), e.Got)
	}
	return fmt.Sprintf("events %d to %d of node %s are missing: a snapshot is needed", e.Want, e.Got-1, e.Node.Short())
}

// NodesError says that an Index holds as many nodes as it can.
type NodesError struct{ Node member.ID }

func (e *NodesError) Error() string {
	return fmt.Sprintf("blocks of node %s are not indexed: there are %d other nodes, which is the most", e.Node.Short(), NodesMax)
}

// Feed numbers the events of this node.
type Feed struct {
	origin uint64
	seq    uint64
}

// NewFeed makes a feed; origin must differ from those of earlier processes of this
// node, so draw it at random.
func NewFeed(origin uint64) *Feed { return &Feed{origin: origin} }

// Origin is that of all events of this feed.
func (f *Feed) Origin() uint64 { return f.origin }

// Seq is the number of the last event, 0 before the first: what a Snapshot taken now
// carries.
func (f *Feed) Seq() uint64 { return f.seq }

// Events makes one event, or several if there are more ids than one may carry. The
// events share ids with the caller.
func (f *Feed) Events(kind Kind, tier Tier, ids []block.ID) []Event {
	if kind == Cleared {
		f.seq++
		return []Event{{Origin: f.origin, Seq: f.seq, Kind: Cleared}}
	}
	var out []Event
	for len(ids) > 0 {
		n := min(len(ids), EventIDsMax)
		f.seq++
		out = append(out, Event{Origin: f.origin, Seq: f.seq, Kind: kind, Tier: tier, IDs: ids[:n:n]})
		ids = ids[n:]
	}
	return out
}
