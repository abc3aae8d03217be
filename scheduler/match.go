package scheduler

import (
	"math/bits"
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
)

// predictionsMax bounds what is predicted at a time; the oldest goes. 100 requests a
// second for 5 seconds are 500.
const predictionsMax = 1024

// Holding is what a node holds of a chain. All numbers are blocks, from the start of
// the chain without a gap.
type Holding struct {
	Node member.ID
	// Run is the leading run in any tier: each block is in the engine, in memory, on
	// disk, or predicted.
	Run int
	// Resident is the leading run in the engine alone, RAM and Disk those in memory
	// and on disk alone.
	Resident, RAM, Disk int
	// FromRAM and FromDisk are the blocks of Run after Resident, by the faster tier
	// that has them.
	FromRAM, FromDisk int
	// Predicted is how many blocks at the end of Run are not known to be there: a
	// request was sent that will leave them in the engine.
	Predicted int
	// Uses is about how many requests of the last minutes had just this run in
	// common with others: many mean a shared beginning, not one conversation.
	Uses float64
}

// prediction says that a node will soon hold all of a chain.
type prediction struct {
	node  member.ID
	known *indexed // the node, once the index knows it; nodes that are forgotten take their predictions along
	chain []block.ID
	until time.Time
}

// Predict says that a request was sent to a node, which will hold the chain until
// something is heard of it. It ends at until, some seconds from now, or with the
// node. The index keeps chain, which must not change any more. A node that is not
// known (no event, no snapshot yet) can have predictions, too.
func (x *Index) Predict(node member.ID, chain []block.ID, until time.Time) {
	if len(chain) == 0 {
		return
	}
	if len(x.predictions) >= predictionsMax {
		x.predictions = slices.Delete(x.predictions, 0, predictionsMax/8)
	}
	x.predictions = append(x.predictions, prediction{node, x.nodes[node], chain, until})
}

func (x *Index) unpredict(node member.ID) {
	x.predictions = slices.DeleteFunc(x.predictions, func(p prediction) bool { return p.node == node })
}

// Match tells what each node holds of a chain, by node id; nodes that hold nothing of
// it are left out. It counts as a use of what it finds, so call it once a request.
func (x *Index) Match(chain []block.ID, now time.Time) []Holding {
	x.sweep(sweepStep)
	x.tick++
	var found [NodesMax]Holding
	x.walk(chain, &found)
	strangers := x.foresee(chain, now, &found)
	out := make([]Holding, 0, len(x.order)+len(strangers))
	for _, n := range x.order {
		if found[n.slot].Run > 0 {
			found[n.slot].Node = n.id
			out = append(out, found[n.slot])
		}
	}
	if len(strangers) > 0 {
		out = append(out, strangers...)
		slices.SortFunc(out, func(a, b Holding) int { return compareIDs(a.Node, b.Node) })
	}
	x.heat.count(chain, out, now)
	return out
}

// walk fills in what is known of each slot.
func (x *Index) walk(chain []block.ID, found *[NodesMax]Holding) {
	run := x.live
	leading := [tierCount]uint64{x.live, x.live, x.live}
	var ram, disk uint64 // which nodes read the present segment from where
	segment, i := 0, none
	flush := func() {
		each(ram, func(slot int) { found[slot].FromRAM += segment })
		each(disk, func(slot int) { found[slot].FromDisk += segment })
		segment = 0
	}
	at := 0
	for ; at < len(chain) && run != 0; at++ {
		if i = x.table.after(i, &chain[at]); i == none {
			break
		}
		e := x.table.at(i)
		e.used, e.depth = x.tick, satDepth(at)
		for t := range tierCount {
			each(leading[t]&^e.held[t], func(slot int) { *found[slot].of(t) = at })
			leading[t] &= e.held[t]
		}
		any := e.any()
		each(run&^any, func(slot int) { found[slot].Run = at })
		run &= any
		fromRAM := run &^ leading[Resident] & e.held[RAM]
		fromDisk := run &^ leading[Resident] &^ e.held[RAM]
		if fromRAM != ram || fromDisk != disk {
			flush()
			ram, disk = fromRAM, fromDisk
		}
		segment++
	}
	flush()
	for t := range tierCount {
		each(leading[t], func(slot int) { *found[slot].of(t) = at })
	}
	each(run, func(slot int) { found[slot].Run = at })
}

// of is the leading run of one tier.
func (h *Holding) of(t Tier) *int {
	switch t {
	case RAM:
		return &h.RAM
	case Disk:
		return &h.Disk
	}
	return &h.Resident
}

func each(set uint64, do func(slot int)) {
	for ; set != 0; set &= set - 1 {
		do(bits.TrailingZeros64(set))
	}
}

// foresee lengthens runs by what is predicted. It returns those of nodes of which
// nothing else is known.
func (x *Index) foresee(chain []block.ID, now time.Time, found *[NodesMax]Holding) (strangers []Holding) {
	if len(x.predictions) == 0 || len(chain) == 0 {
		return nil
	}
	x.predictions = slices.DeleteFunc(x.predictions, func(p prediction) bool { return !p.until.After(now) })
	for i := range x.predictions {
		p := &x.predictions[i]
		if p.chain[0] != chain[0] {
			continue
		}
		h := p.holding(x, found, &strangers)
		if n := common(chain, p.chain, h.Run); n > h.Run {
			h.Predicted += n - h.Run
			h.Run = n
		}
	}
	return strangers
}

// holding is where a prediction is noted.
func (p *prediction) holding(x *Index, found *[NodesMax]Holding, strangers *[]Holding) *Holding {
	if p.known == nil {
		p.known = x.nodes[p.node]
	}
	if p.known != nil {
		return &found[p.known.slot]
	}
	at := slices.IndexFunc(*strangers, func(h Holding) bool { return h.Node == p.node })
	if at < 0 {
		at = len(*strangers)
		*strangers = append(*strangers, Holding{Node: p.node})
	}
	return &(*strangers)[at]
}

// common is the length of the common beginning of two chains, if it is longer than
// atLeast, or atLeast. An id stands for all before it, so equality at one place tells
// of all before, and one comparison mostly suffices.
func common(a, b []block.ID, atLeast int) int {
	low, high := atLeast, min(len(a), len(b))
	if low >= high || a[low] != b[low] {
		return atLeast
	}
	for low++; low < high; {
		if middle := (low + high) / 2; a[middle] == b[middle] {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}
