package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore"
	"tandem/kvstore/block"
	"tandem/kvstore/prefix"
	"tandem/node/api"
	"tandem/node/models"
	"tandem/scheduler"
	"tandem/xfer"
)

// serviceKnowledge is the stream on which a node tells another one what it has and how
// busy it is, for as long as the stream lives.
const serviceKnowledge = "knowledge"

// Kinds of its messages: the first byte.
const (
	tellCards = 'c' // JSON list of models, whenever it changes
	tellLoad  = 'l' // JSON loadReport
	tellIndex = 'i' // a message of the scheduler: events, or a part of a snapshot
)

// Pace and limits of what nodes tell each other.
const (
	loadPause   = 200 * time.Millisecond // between two reports while something changes
	loadSilence = time.Second            // at most, even if nothing does
	cardPause   = 3 * time.Second        // between two looks at the list of models, which reads folders
	changesMax  = 8192                   // blocks told at once
	tellMax     = 8 << 20                // bytes of one message: the cards of 10,000 models
	followMin   = 100 * time.Millisecond // before a lost stream is opened anew; doubles
	followMax   = 5 * time.Second
)

// serveKnowledge tells another node what this one has and does.
func (n *Node) serveKnowledge(ctx context.Context, s *xfer.Stream) error {
	t := &teller{node: n, stream: s}
	if n.keeper != nil {
		if err := t.snapshot(ctx); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(loadPause)
	defer ticker.Stop()
	for {
		if err := t.tell(ctx); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-n.stopping.Done():
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// teller is one such stream and what was told on it so far. Its origin is its own: it
// begins with a snapshot, and nothing is missing behind it.
type teller struct {
	node   *Node
	stream *xfer.Stream
	cards  []byte
	load   []byte
	told   time.Time // when load was
	feed   *scheduler.Feed
	last   uint64 // change of the store
}

func (t *teller) tell(ctx context.Context) error {
	cards, load, err := t.node.told.now(t.node)
	if err != nil {
		return err
	}
	if !bytes.Equal(cards, t.cards) {
		if err := xfer.WriteMessage(t.stream, append([]byte{tellCards}, cards...)); err != nil {
			return err
		}
		t.cards = cards
	}
	if now := time.Now(); !bytes.Equal(load, t.load) || now.Sub(t.told) >= loadSilence {
		if err := xfer.WriteMessage(t.stream, append([]byte{tellLoad}, load...)); err != nil {
			return err
		}
		t.load, t.told = load, now
	}
	if t.node.keeper == nil {
		return nil
	}
	return t.changes(ctx)
}

// told is what this node tells all others, made once for all of them.
type told struct {
	mu     sync.Mutex
	list   []models.Model
	cards  []byte // JSON
	carded time.Time
	load   []byte // JSON
	loaded time.Time
}

// changed makes the next look read the list of models anew.
func (t *told) changed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.carded, t.loaded = time.Time{}, time.Time{}
}

func (t *told) now(n *Node) (cards, load []byte, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Sub(t.carded) >= cardPause {
		if t.list, err = n.store.List(n.stopping); err != nil {
			return nil, nil, err
		}
		if t.cards, err = json.Marshal(n.library.describeAll(t.list)); err != nil {
			return nil, nil, err
		}
		t.carded = now
	}
	if now.Sub(t.loaded) >= loadPause/2 {
		if t.load, err = json.Marshal(n.report(t.list)); err != nil {
			return nil, nil, err
		}
		t.loaded = now
	}
	return t.cards, t.load, nil
}

// snapshot tells all blocks that are held.
func (t *teller) snapshot(ctx context.Context) error {
	held, last, err := t.node.keeper.store.Held(ctx)
	if err != nil {
		return err
	}
	t.feed, t.last = scheduler.NewFeed(rand.Uint64()), last
	at := map[block.ID]int{}
	s := scheduler.Snapshot{Origin: t.feed.Origin()}
	for _, c := range held {
		i, ok := at[c.ID]
		if !ok {
			i = len(s.Held)
			at[c.ID] = i
			s.Held = append(s.Held, scheduler.Held{ID: c.ID})
		}
		s.Held[i].Tiers |= scheduler.TiersOf(tierOf(c.Tier))
	}
	for part := range s.Messages() {
		if err := xfer.WriteMessage(t.stream, append([]byte{tellIndex}, part...)); err != nil {
			return err
		}
	}
	return nil
}

func tierOf(t prefix.Tier) scheduler.Tier {
	if t == prefix.Disk {
		return scheduler.Disk
	}
	return scheduler.RAM
}

// changes tells what came and went since.
func (t *teller) changes(ctx context.Context) error {
	for {
		changes, last, ok := t.node.keeper.store.Changes(t.last, changesMax)
		if !ok {
			return t.snapshot(ctx)
		}
		if len(changes) == 0 {
			return nil
		}
		for from := 0; from < len(changes); {
			to := from + 1
			for to < len(changes) && changes[to].Tier == changes[from].Tier && changes[to].Present == changes[from].Present {
				to++
			}
			if err := t.events(changes[from:to]); err != nil {
				return err
			}
			from = to
		}
		t.last = last
	}
}

// events tells changes of one kind in one tier.
func (t *teller) events(changes []kvstore.Change) error {
	ids := make([]block.ID, len(changes))
	for i, c := range changes {
		ids[i] = c.ID
	}
	kind := scheduler.Removed
	if changes[0].Present {
		kind = scheduler.Stored
	}
	for _, e := range t.feed.Events(kind, tierOf(changes[0].Tier), ids) {
		if err := xfer.WriteMessage(t.stream, scheduler.AppendEvent([]byte{tellIndex}, e)); err != nil {
			return err
		}
	}
	return nil
}

// follow listens to what a node tells until ctx ends, whenever it can be reached.
func (p *peers) follow(ctx context.Context, id member.ID) {
	pause := followMin
	for ctx.Err() == nil {
		begin := time.Now()
		err := p.listen(ctx, id)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > followMax {
			pause = followMin
		}
		p.node.log.Debug("following a node ended", "node", p.name(id), "error", err)
		select {
		case <-time.After(pause + rand.N(pause)):
			pause = min(2*pause, followMax)
		case <-ctx.Done():
		}
	}
}

// listen takes in what a node tells on one stream.
func (p *peers) listen(ctx context.Context, id member.ID) error {
	s, err := p.link.OpenBound(ctx, id, serviceKnowledge)
	if err != nil {
		return err
	}
	defer s.Close()
	var snapshot scheduler.Assembly
	for {
		data, err := xfer.ReadMessage(s, tellMax)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return errors.New("an empty message")
		}
		if err := p.learn(id, data[0], data[1:], &snapshot); err != nil {
			return err
		}
	}
}

// learn takes in one message.
func (p *peers) learn(id member.ID, kind byte, data []byte, snapshot *scheduler.Assembly) error {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.mu.views[id]
	if v == nil {
		return fmt.Errorf("node %s is no member any more", id.Short())
	}
	v.good = now
	switch kind {
	case tellCards:
		var cards []api.Model
		if err := json.Unmarshal(data, &cards); err != nil {
			return err
		}
		v.cards = cards
	case tellLoad:
		var load loadReport
		if err := json.Unmarshal(data, &load); err != nil {
			return err
		}
		v.load, v.loaded = load, now
		p.mu.ledger.Reported(id, now.Add(-loadPause))
	case tellIndex:
		return p.learnIndex(id, data, snapshot)
	}
	return nil // what later versions tell besides
}

func (p *peers) learnIndex(id member.ID, data []byte, snapshot *scheduler.Assembly) error {
	if scheduler.IsEvent(data) {
		e, err := scheduler.DecodeEvent(data)
		if err != nil {
			return err
		}
		return p.mu.index.Apply(id, e)
	}
	s, complete, err := snapshot.Add(data)
	if err != nil || !complete {
		return err
	}
	return p.mu.index.Replace(id, s)
}
