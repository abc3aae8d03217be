package prefix_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the property test; 0 takes a few fixed ones")
	steps = flag.Int("steps", 4000, "steps of the property test for each seed")
)

// modelBlock is what the naive model knows of a block. Everything else it works out
// by going through all blocks.
type modelBlock struct {
	prefix.Block
	tiers  map[prefix.Tier]bool
	uses   []prefix.Tick
	pinned bool
	leases int
}

type model map[block.ID]*modelBlock

// before tells whether a is an ancestor of b, or b itself.
func (m model) before(a, b *modelBlock) bool {
	for b != nil && b != a {
		b = m[b.Parent]
	}
	return b == a
}

// mayGo tells whether a block may be evicted from a tier, by the definition.
func (m model) mayGo(tier prefix.Tier, b *modelBlock) bool {
	if !b.tiers[tier] {
		return false
	}
	for _, other := range m {
		if m.before(b, other) && (other.pinned || other.leases > 0 || other != b && other.tiers[tier]) {
			return false
		}
	}
	return true
}

// worth is the logarithm of the decayed uses at a time after all of them.
func (b *modelBlock) worth(now prefix.Tick) float64 {
	if len(b.uses) == 0 {
		return math.Inf(-1)
	}
	sum := 0.0
	for _, at := range b.uses {
		sum += math.Exp2((float64(at) - float64(now)) / halfLife)
	}
	return math.Log2(sum)
}

// player plays the same random game with a tree and with the model.
type player struct {
	t      *testing.T
	rnd    *rand.Rand
	tree   *prefix.Tree
	model  model
	blocks []prefix.Block // of the whole forest that is played with
	now    prefix.Tick
}

// forest is a random set of chains that share beginnings.
func forest(rnd *rand.Rand, n int) []prefix.Block {
	var blocks []prefix.Block
	for i := range n {
		b := prefix.Block{ID: id(1, i), Parent: id(0, rnd.IntN(2)), Count: 1 + rnd.IntN(4), Bytes: int64(rnd.IntN(50))}
		if i > 0 && rnd.IntN(8) > 0 {
			p := blocks[max(0, i-1-rnd.IntN(4))]
			b.Parent, b.Start = p.ID, p.Start+p.Count
		}
		blocks = append(blocks, b)
	}
	return blocks
}

func (p *player) any() prefix.Block { return p.blocks[p.rnd.IntN(len(p.blocks))] }

func (p *player) anyTier() prefix.Tier { return prefix.Tier(p.rnd.IntN(2)) }

// known gives the model's entry of a block that is held in some tier.
func (p *player) known(id block.ID) (*modelBlock, bool) {
	b, ok := p.model[id]
	return b, ok && len(b.tiers) > 0
}

// forget drops the model's entries that the tree forgets too: not held, and before
// no block that is.
func (p *player) forget() {
	for again := true; again; {
		again = false
		for id, b := range p.model {
			parent := func(o *modelBlock) bool { return o.Parent == id }
			if len(b.tiers) == 0 && !b.pinned && b.leases == 0 && !slices.ContainsFunc(slices.Collect(maps.Values(p.model)), parent) {
				delete(p.model, id)
				again = true
			}
		}
	}
}

func (p *player) step() string {
	b, tier := p.any(), p.anyTier()
	m, held := p.known(b.ID)
	switch what := p.rnd.IntN(20); {
	case what < 8:
		if err := p.tree.Add(tier, b); err != nil {
			p.t.Fatal(err)
		}
		if p.model[b.ID] == nil {
			p.model[b.ID] = &modelBlock{Block: b, tiers: map[prefix.Tier]bool{}}
		}
		p.model[b.ID].tiers[tier] = true
		return fmt.Sprintf("add %v %v", tier, b.ID)
	case what < 9:
		if p.tree.Remove(tier, b.ID) != (held && m.tiers[tier]) {
			p.t.Fatalf("remove %v %v: wrong answer", tier, b.ID)
		}
		if held {
			delete(m.tiers, tier)
		}
		return fmt.Sprintf("remove %v %v", tier, b.ID)
	case what < 12:
		p.now += prefix.Tick(p.rnd.IntN(300))
		p.tree.Touch([]block.ID{b.ID}, p.now)
		if held {
			m.uses = append(m.uses, p.now)
		}
		return fmt.Sprintf("touch %v at %d", b.ID, p.now)
	case what < 15:
		return p.hold(what, b.ID)
	default:
		return p.evict(tier)
	}
}

func (p *player) hold(what int, id block.ID) string {
	m, held := p.known(id)
	switch {
	case what == 12:
		if p.tree.Lease(id) != held {
			p.t.Fatalf("lease %v: wrong answer", id)
		}
		if held {
			m.leases++
		}
		return fmt.Sprintf("lease %v", id)
	case what == 13 && p.rnd.IntN(3) == 0:
		if p.tree.Pin(id) != held {
			p.t.Fatalf("pin %v: wrong answer", id)
		}
		if held {
			m.pinned = true
		}
		return fmt.Sprintf("pin %v", id)
	}
	for _, at := range p.rnd.Perm(len(p.blocks)) { // end a lease, or the pin, of one block
		id := p.blocks[at].ID
		m := p.model[id]
		if m == nil || m.leases == 0 && !m.pinned {
			continue
		}
		if m.leases > 0 {
			p.tree.Release(id)
			m.leases--
			return fmt.Sprintf("release %v", id)
		}
		if p.tree.Unpin(id) != m.pinned {
			p.t.Fatalf("unpin %v: wrong answer", id)
		}
		m.pinned = false
		return fmt.Sprintf("unpin %v", id)
	}
	return "nothing"
}

// evict checks each victim: it might go, none that might go was worth less by more
// than a rank, and the eviction ended only with enough of them or no candidates.
func (p *player) evict(tier prefix.Tier) string {
	wanted, most := int64(p.rnd.IntN(120)), p.rnd.IntN(6)
	freed := int64(0)
	victims := p.tree.Evict(tier, wanted, most, nil)
	for _, v := range victims {
		if freed >= wanted {
			p.t.Fatalf("evict %v: %d of %d bytes were free, yet %v went", tier, freed, wanted, v.ID)
		}
		m := p.model[v.ID]
		if m == nil || !p.model.mayGo(tier, m) || v.Bytes != m.Bytes || v.Tokens != m.Count {
			p.t.Fatalf("evict %v: %+v may not go, or is another", tier, v)
		}
		for id, other := range p.model {
			if p.model.mayGo(tier, other) && other.worth(p.now) < m.worth(p.now)-0.126 {
				p.t.Fatalf("evict %v: %v went, worth %v; %v stayed, worth %v", tier, v.ID, m.worth(p.now), id, other.worth(p.now))
			}
		}
		delete(m.tiers, tier)
		freed += v.Bytes
		if v.Left.Has(prefix.RAM) != m.tiers[prefix.RAM] || v.Left.Has(prefix.Disk) != m.tiers[prefix.Disk] {
			p.t.Fatalf("evict %v: %v is said to be left in %v", tier, v.ID, v.Left)
		}
		p.forget()
	}
	for id, m := range p.model {
		if freed < wanted && len(victims) < most && p.model.mayGo(tier, m) {
			p.t.Fatalf("evict %v: %d of %d bytes, yet %v stayed", tier, freed, wanted, id)
		}
	}
	return fmt.Sprintf("evict %d bytes from %v", wanted, tier)
}

// compare holds what the tree says against the model.
func (p *player) compare() error {
	if err := p.tree.Check(); err != nil {
		return err
	}
	p.forget()
	for _, tier := range []prefix.Tier{prefix.RAM, prefix.Disk} {
		var totals prefix.Totals
		for _, m := range p.model {
			if m.tiers[tier] {
				totals.Blocks++
				totals.Tokens += int64(m.Count)
				totals.Bytes += m.Bytes
			}
		}
		if got := p.tree.Totals(tier); got != totals {
			return fmt.Errorf("%v: totals %+v, want %+v", tier, got, totals)
		}
	}
	for id, m := range p.model {
		info, ok := p.tree.Get(id)
		if !ok || info.Block != m.Block || info.Leases != m.leases || info.Pinned != m.pinned || info.Uses != len(m.uses) ||
			info.Tiers.Has(prefix.RAM) != m.tiers[prefix.RAM] || info.Tiers.Has(prefix.Disk) != m.tiers[prefix.Disk] {
			return fmt.Errorf("%v: the tree says %+v, the model %+v", id, info, *m)
		}
	}
	return p.compareMatch()
}

// compareMatch matches the path to a random block.
func (p *player) compareMatch() error {
	var ids []block.ID
	for at, ok := p.any(), true; ok; {
		ids = append(ids, at.ID)
		i := slices.IndexFunc(p.blocks, func(b prefix.Block) bool { return b.ID == at.Parent })
		if ok = i >= 0; ok {
			at = p.blocks[i]
		}
	}
	slices.Reverse(ids)
	want := 0
	for want < len(ids) {
		if _, held := p.known(ids[want]); !held {
			break
		}
		want++
	}
	if got := len(p.tree.Match(ids, nil)); got != want {
		return fmt.Errorf("%d of %v match, want %d", got, ids, want)
	}
	return nil
}

func TestTreeEqualsANaiveModel(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = []uint64{1, 2, 3, 4, 5}
	}
	for _, s := range seeds {
		rnd := rand.New(rand.NewPCG(s, 0))
		p := &player{t: t, rnd: rnd, tree: prefix.New(halfLife), model: model{}, blocks: forest(rnd, 40), now: 1}
		again := fmt.Sprintf("go test ./kvstore/prefix -run %s -seed %d -steps %d", t.Name(), s, *steps)
		t.Cleanup(func() {
			if t.Failed() {
				t.Log(again)
			}
		})
		for i := range *steps {
			did := p.step()
			if err := p.compare(); err != nil {
				t.Fatalf("step %d, %s: %v", i, did, err)
			}
		}
	}
}
