package scheduler

import (
	"cmp"
	"math"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
)

const (
	// heatHalfLife is after how long a use counts half.
	heatHalfLife = time.Minute
	// heatPlaces bounds what is counted.
	heatPlaces = 4096
)

func compareIDs(a, b member.ID) int { return cmp.Compare(a, b) }

// heat counts where prompts part from what is held. Many uses of one place are a
// beginning that many requests share; a conversation ends at another place with each
// turn.
//
// Places that were not used lately make room for new ones: there are two generations,
// and the older one is dropped whenever the younger one is full.
type heat struct{ young, old map[block.ID]warmth }

type warmth struct {
	uses float64
	at   time.Time
}

func (w warmth) now(now time.Time) float64 {
	age := max(0, now.Sub(w.at))
	return w.uses * math.Exp2(-float64(age)/float64(heatHalfLife))
}

func newHeat() heat { return heat{young: map[block.ID]warmth{}} }

// count counts a use at the end of the longest run, and tells each holding how often
// the end of its own was used.
func (h *heat) count(chain []block.ID, held []Holding, now time.Time) {
	longest := 0
	for _, holding := range held {
		longest = max(longest, holding.Run)
	}
	if longest == 0 {
		return
	}
	h.add(chain[longest-1], now)
	for i := range held {
		held[i].Uses = h.at(chain[held[i].Run-1]).now(now)
	}
}

func (h *heat) add(id block.ID, now time.Time) {
	uses := h.at(id).now(now) + 1
	if len(h.young) >= heatPlaces/2 {
		h.old, h.young = h.young, make(map[block.ID]warmth, heatPlaces/2)
	}
	h.young[id] = warmth{uses, now}
}

func (h *heat) at(id block.ID) warmth {
	if w, ok := h.young[id]; ok {
		return w
	}
	return h.old[id]
}
