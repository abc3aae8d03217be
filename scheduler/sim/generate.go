package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Load is a synthetic load.
type Load struct {
	Kind     string
	Requests int
	Rate     float64 // requests/s on average
	Input    int     // prompt tokens on average; of chat those that a turn adds, of documents those of a document, of shared those after the beginning
	Output   int     // tokens of an answer on average
	Vary     float64 // sigma of the logarithm of both lengths; 0: they are all alike
	Turns    int     // of a conversation, or questions to a document, on average
	Gap      float64 // seconds between turns on average
	Prefix   int     // tokens that a group shares
	Groups   int     // of shared beginnings
	Burst    int     // requests that come at once
	Block    int     // tokens of a block
	Seed     uint64
}

// LoadKinds are the kinds of Load. poisson: prompts that share nothing, at random
// times. bursts: the same, several at once. chat: conversations that begin with one of
// some system prompts and repeat all that was said. documents: questions to long
// documents. shared: prompts with one of some long beginnings.
func LoadKinds() []string { return []string{"poisson", "bursts", "chat", "documents", "shared"} }

// loadDefaults are those of a kind.
func loadDefaults(kind string) (Load, error) {
	l := Load{Kind: kind, Requests: 1000, Rate: 1, Input: 1000, Output: 250, Vary: 0.6, Turns: 4, Gap: 30, Prefix: 512, Groups: 4, Burst: 8, Block: 64}
	switch kind {
	case "poisson", "bursts":
	case "chat":
		l.Input = 400
	case "documents":
		l.Input, l.Output, l.Prefix, l.Gap = 20_000, 150, 0, 20
	case "shared":
		l.Input, l.Prefix, l.Groups = 500, 4000, 8
	default:
		return l, fmt.Errorf("load %.32q; allowed are %s", kind, strings.Join(LoadKinds(), ", "))
	}
	return l, nil
}

// ParseLoad reads "chat" or "chat,requests=500,rate=2.5,input=800".
func ParseLoad(text string) (Load, error) {
	parts := strings.Split(text, ",")
	l, err := loadDefaults(strings.TrimSpace(parts[0]))
	if err != nil {
		return l, err
	}
	ints := map[string]struct {
		at        *int
		low, high int
	}{
		"requests": {&l.Requests, 1, requestsMax}, "input": {&l.Input, 1, 1_000_000}, "output": {&l.Output, 1, 100_000}, "turns": {&l.Turns, 1, 1000},
		"prefix": {&l.Prefix, 0, 1_000_000}, "groups": {&l.Groups, 1, 1_000_000}, "burst": {&l.Burst, 1, 100_000}, "block": {&l.Block, 1, blockTokMax},
	}
	floats := map[string]struct {
		at        *float64
		low, high float64
	}{"rate": {&l.Rate, 1e-6, 1e6}, "vary": {&l.Vary, 0, 2}, "gap": {&l.Gap, 0, 1e6}}
	for _, part := range parts[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if f, ok := ints[name]; ok {
			n, err := strconv.Atoi(value)
			if err != nil || n < f.low || n > f.high {
				return l, fmt.Errorf("load %s: %s is %.32q; allowed are %d to %d", l.Kind, name, value, f.low, f.high)
			}
			*f.at = n
		} else if f, ok := floats[name]; ok {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil || !(v >= f.low && v <= f.high) {
				return l, fmt.Errorf("load %s: %s is %.32q; allowed are %g to %g", l.Kind, name, value, f.low, f.high)
			}
			*f.at = v
		} else {
			return l, fmt.Errorf("load %s: %.32q is not known; allowed are requests, rate, input, output, vary, turns, gap, prefix, groups, burst and block, each with =", l.Kind, part)
		}
	}
	return l, nil
}

// maker makes arrivals.
type maker struct {
	l      Load
	random *rand.Rand
	name   uint64
	out    []Arrival
}

// Make makes the arrivals of a load, in order.
func (l Load) Make() []Arrival {
	m := &maker{l: l, random: rand.New(rand.NewPCG(l.Seed, 2)), name: uint64(l.Groups+1) << 20}
	switch l.Kind {
	case "chat":
		m.chats()
	case "documents":
		m.documents()
	case "shared":
		m.shared()
	default:
		m.singles()
	}
	slices.SortStableFunc(m.out, func(a, b Arrival) int { return int(max(-1, min(1, a.At-b.At))) })
	return ordered(m.out[:min(len(m.out), l.Requests)])
}

// length draws from a lognormal distribution with a mean.
func (m *maker) length(mean int) int {
	sigma := m.l.Vary
	return max(1, int(float64(mean)*math.Exp(m.random.NormFloat64()*sigma-sigma*sigma/2)+0.5))
}

func (m *maker) fresh(n int) []uint64 {
	blocks := make([]uint64, n)
	for i := range blocks {
		m.name++
		blocks[i] = m.name
	}
	return blocks
}

// beginning is the blocks of a group's shared beginning.
func (m *maker) beginning(group, tokens int) []uint64 {
	blocks := make([]uint64, tokens/m.l.Block)
	for i := range blocks {
		blocks[i] = uint64(group+1)<<20 | uint64(i)
	}
	return blocks
}

func (m *maker) add(at float64, input int, blocks []uint64) {
	m.out = append(m.out, Arrival{At: time.Duration(at * float64(time.Second)), Input: input, Output: m.length(m.l.Output), Blocks: blocks})
}

func (m *maker) singles() {
	at, together := 0.0, 1
	if m.l.Kind == "bursts" {
		together = m.l.Burst
	}
	for len(m.out) < m.l.Requests {
		for range together {
			m.add(at, m.length(m.l.Input), nil)
		}
		at += m.random.ExpFloat64() * float64(together) / m.l.Rate
	}
}

func (m *maker) shared() {
	at := 0.0
	for len(m.out) < m.l.Requests {
		input := m.l.Prefix/m.l.Block*m.l.Block + m.length(m.l.Input)
		blocks := m.beginning(m.random.IntN(m.l.Groups), m.l.Prefix)
		m.add(at, input, append(blocks, m.fresh((input+m.l.Block-1)/m.l.Block-len(blocks))...))
		at += m.random.ExpFloat64() / m.l.Rate
	}
}

// turns is how many a conversation has: 1 to twice the mean.
func (m *maker) turns() int { return 1 + m.random.IntN(2*m.l.Turns-1) }

// chats makes more conversations than are needed and drops the end: else the last
// seconds would have few.
func (m *maker) chats() {
	begin := 0.0
	for len(m.out) < m.l.Requests*3/2+m.l.Turns {
		at, input := begin, m.l.Prefix/m.l.Block*m.l.Block
		blocks := m.beginning(m.random.IntN(m.l.Groups), m.l.Prefix)
		for range m.turns() {
			input += m.length(m.l.Input)
			full := input / m.l.Block
			if full > len(blocks) {
				blocks = append(blocks, m.fresh(full-len(blocks))...)
			}
			m.add(at, input, slices.Clone(blocks))
			// The next prompt repeats the answer, too.
			input += m.out[len(m.out)-1].Output
			at += m.random.ExpFloat64() * m.l.Gap
		}
		begin += m.random.ExpFloat64() * float64(m.l.Turns) / m.l.Rate
	}
}

func (m *maker) documents() {
	begin := 0.0
	for len(m.out) < m.l.Requests*3/2+m.l.Turns {
		at, document := begin, m.fresh(m.length(m.l.Input)/m.l.Block)
		for range m.turns() {
			question := 20 + m.random.IntN(100)
			input := len(document)*m.l.Block + question
			m.add(at, input, append(slices.Clone(document), m.fresh((input+m.l.Block-1)/m.l.Block-len(document))...))
			at += m.random.ExpFloat64() * m.l.Gap
		}
		begin += m.random.ExpFloat64() * float64(m.l.Turns) / m.l.Rate
	}
}
