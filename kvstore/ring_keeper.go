package kvstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tandem/kvstore/block"
)

// asidesMax is how many damaged generations are kept for a look at them. They
// count to the budget and are the first to go.
const asidesMax = 2

const (
	generationPrefix = "gen-"
	asidePrefix      = "aside-"
	gonePrefix       = "gone-"
)

// keep is the keeper: it works whenever it is woken, until the ring is closed.
func (r *Ring) keep() {
	defer close(r.kept)
	for {
		r.round()
		select {
		case <-r.kick:
		case <-r.ctx.Done():
			return
		}
	}
}

// round does all that there is to do now.
func (r *Ring) round() {
	r.prepareNext()
	r.sealFull()
	r.dropDead()
	r.makeRoom()
	r.prepareNext()
	r.merge()
	r.room.measure()
}

// prepareNext makes the next generation, so that a writer need not wait for it.
func (r *Ring) prepareNext() {
	r.mu.Lock()
	have := r.mu.next != nil
	if !have {
		r.mu.sequence++
	}
	seq := r.mu.sequence
	r.mu.Unlock()
	if have || r.ctx.Err() != nil {
		return
	}
	g := r.newGeneration(seq)
	err := g.create()
	switch {
	case err == nil:
		r.mu.Lock()
		r.mu.next = g
		r.mu.Unlock()
	case !errors.Is(err, errBudget):
		r.noteFull(err)
	}
	r.room.measure()
}

// tell reports lost blocks.
func (r *Ring) tell() {
	r.mu.Lock()
	ids := r.mu.lost
	r.mu.lost = nil
	r.mu.Unlock()
	if len(ids) > 0 && r.opt.Lost != nil {
		r.opt.Lost(ids)
	}
}

func (r *Ring) newGeneration(seq uint64) *generation {
	name := fmt.Sprintf("%s%08d", generationPrefix, seq)
	return &generation{seq: seq, dir: filepath.Join(r.dir, name), geo: r.geo, log: r.log.With("generation", seq), room: r.room}
}

// inCondition are the generations that the keeper has to do something about.
func (r *Ring) inCondition(c condition) []*generation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.mu.gens), func(g *generation) bool { return r.mu.condition[g] != c })
}

func (r *Ring) sealFull() {
	for _, g := range r.inCondition(isFull) {
		err := g.seal()
		switch {
		case err == nil:
			r.mu.Lock()
			if r.mu.condition[g] == isFull {
				r.mu.condition[g] = isSealed
			}
			r.mu.Unlock()
		case errors.Is(err, block.ErrDamaged):
			r.condemn(g, err)
		default:
			r.noteFull(err) // it is read as it is, and sealed later
		}
		r.room.measure()
	}
}

// dropDead sets condemned generations aside and drops those without blocks.
func (r *Ring) dropDead() {
	for _, g := range r.inCondition(isCondemned) {
		r.unhand(g)
		r.lose(g)
		r.tell()
		g.close()
		r.putAside(g)
		r.unlist(g)
	}
	for _, g := range r.inCondition(isSealed) {
		if r.index.live(g) == 0 {
			r.drop(g)
		}
	}
	r.room.measure()
}

// unhand makes sure that nobody writes to g any more.
func (r *Ring) unhand(g *generation) {
	<-r.pen
	if r.active == g {
		r.active = nil
	}
	r.pen <- struct{}{}
}

func (r *Ring) unlist(g *generation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.gens = slices.DeleteFunc(r.mu.gens, func(o *generation) bool { return o == g })
	delete(r.mu.condition, g)
}

// putAside renames the folder of a damaged generation that is closed, or deletes
// it if there are enough of them. It is counted at the end: whoever sees the count
// finds the folder.
func (r *Ring) putAside(g *generation) {
	defer r.setAside.Add(1)
	for {
		asides := r.asides()
		if len(asides) < asidesMax {
			break
		}
		if !r.dropAside() {
			break
		}
	}
	to := filepath.Join(r.dir, strings.Replace(filepath.Base(g.dir), generationPrefix, asidePrefix, 1))
	if g.hurt || os.Rename(g.dir, to) != nil {
		r.removed(g.remove())
	}
}

func (r *Ring) asides() []string {
	return slices.DeleteFunc(fileNames(r.dir), func(name string) bool { return !strings.HasPrefix(name, asidePrefix) })
}

// dropAside deletes the oldest generation that was set aside. False: there is none,
// or it stays.
func (r *Ring) dropAside() bool {
	asides := r.asides()
	if len(asides) == 0 {
		return false
	}
	err := os.RemoveAll(filepath.Join(r.dir, asides[0]))
	r.removed(err)
	r.room.measure()
	return err == nil
}

func (r *Ring) removed(err error) {
	if err != nil {
		r.log.Warn("the KV disk tier cannot delete a folder", "err", err)
	}
}

// makeRoom drops what is oldest until there is enough room for the next writes.
func (r *Ring) makeRoom() {
	r.room.measure()
	for r.ctx.Err() == nil && r.room.free() < r.geo.copies+max(r.geo.generation/2, r.wanted.Load()) {
		if r.dropAside() {
			continue
		}
		old := r.inCondition(isSealed)
		if len(old) == 0 {
			return
		}
		gens := r.generations()
		younger := gens[slices.Index(gens, old[0])+1:]
		r.copyForward(old[0], r.index.survivors(old[0], younger, r.geo.copies))
		r.dropCopied(old[0])
	}
}

// merge copies the smallest generation and drops it while there are too many: each
// start begins one, however little is written to it.
func (r *Ring) merge() {
	for r.ctx.Err() == nil && len(r.generations()) > r.geo.generations() {
		sealed := r.inCondition(isSealed)
		if len(sealed) == 0 {
			return
		}
		small := slices.MinFunc(sealed, func(a, b *generation) int { return cmp.Compare(a.position, b.position) })
		r.copyForward(small, r.index.all(small, r.geo.copies))
		r.dropCopied(small)
	}
}

// dropCopied drops a generation, unless the ring is closed meanwhile: copying may
// have stopped half-way then.
func (r *Ring) dropCopied(g *generation) {
	if r.ctx.Err() == nil {
		r.drop(g)
		r.room.measure()
	}
}

// drop forgets what is left in a sealed generation and deletes it, after its
// readers have left.
func (r *Ring) drop(g *generation) {
	r.lose(g)
	r.tell()
	if err := g.close(); err != nil {
		r.log.Warn("the KV disk tier: closing a generation that is dropped", "generation", g.seq, "err", err)
	}
	r.removed(g.remove())
	r.unlist(g)
}

// copyForward writes blocks of old to the active generation. Whatever goes wrong
// only means that fewer blocks survive.
func (r *Ring) copyForward(old *generation, survivors []diskSurvivor) {
	var batch []Record
	var bytes int64
	flush := func() bool {
		err := r.tryStore(r.ctx, batch, old)
		if errors.Is(err, errNoGeneration) {
			r.prepareNext()
			err = r.tryStore(r.ctx, batch, old)
		}
		batch, bytes = batch[:0], 0
		return err == nil
	}
	for _, s := range survivors {
		if n := s.bytes(); bytes+n > min(diskBatchBytes/2, r.geo.record()) && len(batch) > 0 && !flush() {
			return
		}
		rec, err := r.readForCopy(r.ctx, old, s.id)
		if err != nil {
			continue
		}
		batch = append(batch, rec)
		bytes += s.bytes()
	}
	if len(batch) > 0 {
		flush()
	}
}

// readForCopy reads a block and checks its digest: damage does not spread.
func (r *Ring) readForCopy(ctx context.Context, old *generation, id block.ID) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	e, held := r.index.get(id)
	if !held || e.gen != old {
		return Record{}, ErrNotFound
	}
	var payload []byte
	h, err := old.read(id, e, func(n int) []byte {
		payload = make([]byte, n)
		return payload
	})
	if err != nil {
		return Record{}, err
	}
	if h.Sum(payload) != h.Digest {
		return Record{}, fmt.Errorf("%w: %s: its digest is wrong", block.ErrDamaged, id)
	}
	return Record{Header: h, Payload: payload}, nil
}
