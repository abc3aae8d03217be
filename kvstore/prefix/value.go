package prefix

import (
	"math"

	"tandem/kvstore/block"
)

// Touch counts one use of each block at a time; ids that are not held are passed
// over. Times may come in any order. Ids of one path in order are the fastest.
func (t *Tree) Touch(ids []block.ID, now Tick) {
	i := none
	last := sum{a: math.NaN()}
	for _, id := range ids {
		if i = t.after(i, id); i == none || t.at(i).tiers == 0 {
			continue
		}
		t.touch(t.at(i), now, &last)
		for tier := range tierCount {
			t.settle(i, tier)
		}
	}
}

// touch adds a use to the value v. With h the half-life, the decayed number of uses
// at time T is the sum of 2^((ti-T)/h) over the times ti of use; v is its logarithm
// to the base 2, plus T/h, which does not depend on T.
func (t *Tree) touch(n *node, now Tick, last *sum) {
	x := float64(now) / t.halfLife
	if n.uses == 0 {
		n.value = x
	} else {
		n.value = last.of(n.value, x)
	}
	n.uses = addSaturating(n.uses, 1)
	n.lastUse = max(n.lastUse, now)
}

// sum adds values and keeps the last result: blocks of one path were mostly used
// together, so their values are equal, and logarithms are dear.
type sum struct{ a, b, result float64 }

// of gives log2(2^a + 2^b).
func (s *sum) of(a, b float64) float64 {
	if s.a != a || s.b != b {
		low, high := min(a, b), max(a, b)
		*s = sum{a, b, high + math.Log2(1+math.Exp2(low-high))}
	}
	return s.result
}

// Spared counts that a use of each block made computing its tokens unnecessary.
func (t *Tree) Spared(ids []block.ID) {
	i := none
	for _, id := range ids {
		if i = t.after(i, id); i != none {
			n := t.at(i)
			n.saved = addSaturating(n.saved, 1)
		}
	}
}

func addSaturating(a, b uint32) uint32 {
	if a > math.MaxUint32-b {
		return math.MaxUint32
	}
	return a + b
}
