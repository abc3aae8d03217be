package kvstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"

	"tandem/kvstore/block"
)

const (
	ringLockName = "ring.lock"
	// ringRetryAfter is the calm time after a full disk.
	ringRetryAfter = 30 * time.Second
)

// OpenRing opens the disk tier in dir, which it makes if need be. Whatever is in
// there that cannot be used is set aside with one line in the log: it fails only if
// the budget is too small, another process has the folder, or nothing can be read
// or written there at all.
func OpenRing(dir string, o RingOptions) (*Ring, error) {
	geo, err := planRing(o.Bytes, o.BlockBytes)
	if err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.RetryAfter == 0 {
		o.RetryAfter = ringRetryAfter
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("KV disk tier: %w", err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	r := &Ring{
		dir: dir, opt: o, geo: geo, log: o.Log, lock: lock, room: newDiskRoom(dir, geo),
		pen: make(chan struct{}, 1), kick: make(chan struct{}, 1), kept: make(chan struct{}),
	}
	r.index.blocks = map[block.ID]diskEntry{}
	r.mu.condition = map[*generation]condition{}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	began := time.Now()
	r.load()
	r.pen <- struct{}{}
	r.room.measure()
	r.log.Info("the KV disk tier is open", "dir", dir, "blocks", r.index.len(), "generations", len(r.mu.gens),
		"bytes", r.room.bytes(), "budget", o.Bytes, "took", time.Since(began).Round(time.Millisecond))
	go r.keep()
	return r, nil
}

// lockFolder makes sure that one process uses the folder.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ringLockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("KV disk tier: %w", err)
	}
	locked, err := lockFile(f)
	if err == nil && !locked {
		err = errors.New("another process is using it; give each node its own folder")
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("KV disk tier: folder %s: %w", dir, err)
	}
	return f, nil
}

// load opens the generations that are here, newest first: of a block that was
// copied forward just before the process ended the newer copy counts.
func (r *Ring) load() {
	found := r.found()
	r.trim(found)
	r.room.measure()
	for len(found) > 0 && r.room.free() < 0 {
		r.removed(found[0].remove()) // the budget is smaller than it was
		found = found[1:]
		r.room.measure()
	}
	for _, g := range slices.Backward(found) {
		err := r.loadOne(g)
		switch {
		case errors.Is(err, errEmpty):
			g.close()
			r.removed(g.remove())
		case err != nil:
			r.log.Warn("a generation of the KV disk tier cannot be used and is set aside", "generation", g.seq, "err", err)
			r.index.removeAll(g)
			g.close()
			r.putAside(g)
		default:
			r.mu.gens = append(r.mu.gens, g)
			r.mu.condition[g] = isSealed
		}
		r.room.measure()
	}
	slices.Reverse(r.mu.gens)
}

// found are the generations in the folder, oldest first.
func (r *Ring) found() []*generation {
	var out []*generation
	for _, name := range fileNames(r.dir) {
		digits, ok := strings.CutPrefix(name, generationPrefix)
		seq, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || seq >= math.MaxUint64/2 {
			continue
		}
		g := r.newGeneration(seq)
		g.dir = filepath.Join(r.dir, name)
		out = append(out, g)
		r.mu.sequence = max(r.mu.sequence, seq)
	}
	slices.SortFunc(out, func(a, b *generation) int { return int(int64(a.seq) - int64(b.seq)) })
	return out
}

// trim gives back what was reserved by a process that has ended.
func (r *Ring) trim(found []*generation) {
	for _, name := range fileNames(r.dir) {
		if strings.HasPrefix(name, gonePrefix) {
			r.removed(os.RemoveAll(filepath.Join(r.dir, name)))
		}
	}
	for _, g := range found {
		os.Remove(g.path(ballastName))
		os.Remove(g.path("DISCARD"))
		os.Remove(g.path(stateName + ".new"))
	}
}

// errEmpty says that nothing is lost with a generation.
var errEmpty = errors.New("the generation is empty")

// loadOne opens the data file of a generation and enters its blocks into the index.
// One that was not closed is sealed.
func (r *Ring) loadOne(g *generation) error {
	state, err := readState(g.dir)
	if _, begun := state.find(badger.ManifestFilename); !begun && (state.Open || isBare(g.dir)) {
		return errEmpty // the process ended while it made the folder
	}
	if err == nil {
		err = state.check(g.dir)
	}
	if err != nil {
		return err
	}
	blocks, err := g.load(state.Open)
	if err != nil {
		return err
	}
	for _, b := range blocks {
		r.index.add(b, g)
	}
	if g.live == 0 {
		err = errEmpty
	}
	if err == nil && state.Open {
		// On a full disk the next start does this again.
		if err = writeState(g.dir, false); isNoSpace(err) {
			err = nil
		}
	}
	return err
}

// isBare tells whether a folder has nothing of a generation in it.
func isBare(dir string) bool {
	return !slices.ContainsFunc(fileNames(dir), func(name string) bool {
		return name == stateName || name == dataName || badgerSmall(name)
	})
}

// Close implements Disk.
func (r *Ring) Close() error {
	var err error
	r.closed.Do(func() {
		r.cancel()
		<-r.kept
		<-r.pen // for ever: nobody writes again
		for _, g := range r.generations() {
			end := g.close
			if c := r.conditionOf(g); c == isActive || c == isFull {
				end = g.finish
			}
			if one := end(); !isNoSpace(one) { // the next start does what there was no room for
				err = errors.Join(err, one)
			}
		}
		if g := r.mu.next; g != nil {
			err = errors.Join(err, g.close(), g.remove())
		}
		err = errors.Join(err, unlockFile(r.lock))
	})
	return err
}
