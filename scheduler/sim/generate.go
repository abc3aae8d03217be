package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

// Chats makes arrivals as of people who chat: conversations of some turns, each with
// the whole of what was said before, which begin with one of a few system prompts.
// Blocks have 512 tokens.
func Chats(seed uint64, requests int, perSecond float64) []Arrival {
	const blockTokens, systems, turnsMax = 512, 4, 8
	random := rand.New(rand.NewPCG(seed, 2))
	name := uint64(systems * 8)
	fresh := func(n int) (blocks []uint64) {
		for range n {
			name++
			blocks = append(blocks, name)
		}
		return blocks
	}
	var out []Arrival
	begin := 0.0
	for len(out) < requests {
		turns := 1 + random.IntN(turnsMax)
		begin += random.ExpFloat64() / perSecond * (1 + turnsMax) / 2
		system := uint64(random.IntN(systems))
		var blocks []uint64
		for i := range uint64(1 + random.IntN(4)) {
			blocks = append(blocks, system*8+i)
		}
		at := begin
		for range turns {
			blocks = append(blocks, fresh(1+random.IntN(12))...)
			out = append(out, Arrival{
				At:    time.Duration(at * float64(time.Second)),
				Input: len(blocks)*blockTokens - random.IntN(blockTokens), Output: 20 + random.IntN(600),
				Blocks: slices.Clone(blocks),
			})
			at += 10 + random.ExpFloat64()*30
		}
	}
	slices.SortStableFunc(out, func(a, b Arrival) int { return int(a.At - b.At) })
	return out[:requests]
}
