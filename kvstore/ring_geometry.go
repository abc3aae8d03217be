package kvstore

import (
	"fmt"

	"tandem/kvstore/block"
)

const (
	// Generations of a ring: many make the budget better used, few make less work.
	generationsMany = 16
	generationsFew  = 8
	// generationBytesMax bounds what is lost when a generation is damaged, or copied
	// when it goes.
	generationBytesMax = 1 << 30
	generationBytesMin = 4 << 20
	// manyFrom is the share from which on there are many generations.
	manyFrom = 32 << 20
	// ringBudgetMax is for 1,024 generations of the largest size: each costs an open
	// file.
	ringBudgetMax = 1 << 40
	// entryBytes is more than Badger's memtable and its log need for a block's key.
	entryBytes = 256
)

// geometry is how a budget is cut into generations. All but entries are bytes.
type geometry struct {
	budget     int64
	generation int64 // all that one takes, at most
	capacity   int64 // of its data file
	memTable   int64 // Badger's log of keys
	step       int64 // reserved in the data file at once
	entries    int   // most blocks: the memtable must never fill
	margin     int64 // of the budget, for what is not reserved
	copies     int64 // most that is copied forward from one generation
}

// fixed is what an empty generation that is open for writing takes, but for the
// first step of its data file.
func (g geometry) fixed() int64 { return g.memTable + 32<<10 }

// generations is how many there may be: some more than fit if all are full, for
// each start begins one.
func (g geometry) generations() int { return int(g.budget/g.generation) * 3 / 2 }

// record is the largest block, encoded, that fits a generation.
func (g geometry) record() int64 { return g.capacity }

func geometryOf(budget int64) geometry {
	share := budget / generationsMany
	if share < manyFrom {
		share = min(budget/generationsFew, manyFrom)
	}
	share = min(share, generationBytesMax)
	g := geometry{budget: budget, generation: share}
	g.memTable = min(max(share/64, 256<<10), 8<<20)
	g.entries = int(g.memTable / entryBytes)
	g.step = min(max(share/16, 256<<10), 32<<20)
	g.margin = share/16 + 128<<10
	g.copies = share / 4
	g.capacity = share - g.fixed()
	return g
}

// planRing cuts a budget such that blocks of the given payload fit. The error names
// the smallest budget that is allowed.
func planRing(budget, payload int64) (geometry, error) {
	if payload < 0 || payload > diskPayloadMax {
		return geometry{}, fmt.Errorf("KV disk tier: blocks have %d bytes; allowed: at most %d", payload, diskPayloadMax)
	}
	if budget > ringBudgetMax {
		return geometry{}, fmt.Errorf("KV disk tier: the budget is %d bytes; allowed: at most %d", budget, int64(ringBudgetMax))
	}
	need := payload + block.HeaderBytesMax
	g := geometryOf(budget)
	if g.generation >= generationBytesMin && g.record() >= need {
		return g, nil
	}
	least := int64(generationBytesMin) * generationsFew
	for geometryOf(least).record() < need {
		least += 1 << 20
	}
	return geometry{}, fmt.Errorf("KV disk tier: the budget of %d bytes is too small for generations that hold blocks of %d bytes; allowed: at least %d", budget, payload, least)
}
