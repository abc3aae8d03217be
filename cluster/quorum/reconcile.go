package quorum

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

// reconciler is what the goroutine that reconciles knows. Nobody else touches it.
type reconciler struct {
	members map[member.ID]member.Member
	gone    map[member.ID]time.Time // since when a node has not been here, by our clock
	peers   map[member.ID]*peer
	waits   time.Time // since when all that were heard wait to be let in
	leader  member.ID // that was last told of in the log
	why     string    // there is no leader, as last told of
	led     time.Time // when there was a leader, or this node began
}

// peer is what was heard of a node.
type peer struct {
	card    card
	heard   time.Time
	asked   time.Time
	started time.Time // of the member when it was asked
	asking  chan struct{}
}

func newReconciler() *reconciler {
	return &reconciler{gone: map[member.ID]time.Time{}, peers: map[member.ID]*peer{}, waits: time.Now(), led: time.Now()}
}

// reconcile makes membership follow gossip and identity follow what is met, until
// Close.
func (q *Quorum) reconcile() {
	ticker := time.NewTicker(q.cfg.tick())
	defer ticker.Stop()
	for {
		select {
		case <-q.ctx.Done():
			return
		case <-ticker.C:
		case <-q.wake:
		case c := <-q.heard:
			q.meet(c)
		case r := <-q.recoveries:
			r.done <- q.recover(r)
		}
		q.look()
	}
}

// look does one round.
func (q *Quorum) look() {
	now := time.Now()
	q.rec.see(q.cfg.Members(), now)
	k, err := q.current()
	if err != nil {
		q.reopen()
		return
	}
	k.layer.mute(k.store.disk.stalled() > q.cfg.StallLimit)
	q.report(k, now)
	q.askAround(k, now)
	q.found(k, now)
	if k.leader() == q.cfg.Self {
		q.lead(k, now)
	}
}

// see takes in what gossip says. Times are by this process's monotonic clock: no
// clock that is set expires anybody.
func (r *reconciler) see(members []member.Member, now time.Time) {
	r.members = make(map[member.ID]member.Member, len(members))
	for _, m := range members {
		r.members[m.ID] = m
		if here(r.members, m.ID) {
			delete(r.gone, m.ID)
		} else if _, ok := r.gone[m.ID]; !ok {
			r.gone[m.ID] = now
		}
	}
	for id := range r.peers {
		if _, ok := r.members[id]; !ok {
			delete(r.peers, id)
		}
	}
}

// missing is how long the servers of a configuration have not been here.
func (r *reconciler) missing(servers []raft.Server, now time.Time) map[member.ID]time.Duration {
	out := map[member.ID]time.Duration{}
	listed := map[member.ID]bool{}
	for _, s := range servers {
		id := member.ID(s.ID)
		listed[id] = true
		if here(r.members, id) {
			continue
		}
		if _, ok := r.gone[id]; !ok {
			r.gone[id] = now
		}
		out[id] = now.Sub(r.gone[id])
	}
	maps.DeleteFunc(r.gone, func(id member.ID, _ time.Time) bool {
		_, known := r.members[id]
		return !known && !listed[id]
	})
	return out
}

// electionTime is how long there may be no leader before that is worth a word.
const electionTime = 5 * time.Second

// report tells the log of a new leader, and once of the want of one.
func (q *Quorum) report(k *core, now time.Time) {
	leader := k.leader()
	if leader != "" {
		q.rec.led = now
	}
	if leader != q.rec.leader && leader != "" {
		q.rec.leader, q.rec.why = leader, ""
		q.cfg.Logger.Info("the cluster has a leader", "leader", leader.Short(), "self", leader == q.cfg.Self, "term", k.raft.CurrentTerm())
	} else if leader == "" && now.Sub(q.rec.led) >= electionTime {
		if why := q.Status().Why; why != q.rec.why {
			q.rec.why, q.rec.leader = why, ""
			q.logger.Warn("changes cannot be made", "why", why)
		}
	}
}

// askAround asks nodes who they are, when that may be news.
func (q *Quorum) askAround(k *core, now time.Time) {
	servers, mine, leads := k.servers(), k.store.who().realm, k.leader() == q.cfg.Self
	for id, m := range q.rec.members {
		if id == q.cfg.Self || !here(q.rec.members, id) {
			continue
		}
		p := q.rec.peers[id]
		if p == nil {
			p = &peer{asking: make(chan struct{}, 1)}
			q.rec.peers[id] = p
		}
		settled := p.card.realm == mine && slices.ContainsFunc(servers, func(s raft.Server) bool {
			return s.ID == raft.ServerID(id) && (s.Suffrage == raft.Voter || !leads)
		})
		every := q.cfg.Heartbeat
		switch {
		case settled:
			every *= 30
		case leads && len(k.voters()) < VotersMax:
			every /= 8 // its vote waits for what it says
		}
		if now.Sub(p.asked) < every && p.started.Equal(m.Started) {
			continue
		}
		select {
		case p.asking <- struct{}{}:
		default:
			continue // a question is under way
		}
		p.asked, p.started = now, m.Started
		q.own.Go(func() {
			defer func() { <-p.asking }()
			ctx, cancel := context.WithTimeout(q.ctx, q.cfg.rpcLimit())
			defer cancel()
			if _, err := q.ask(ctx, id, request{Kind: kindWho}); err != nil && q.ctx.Err() == nil {
				q.logger.Debug("a node did not say who it is", "peer", id.Short(), "error", err)
			}
		})
	}
}

// meet takes in who a node is and decides what that means for this one.
func (q *Quorum) meet(c card) {
	p := q.rec.peers[c.ID]
	if p == nil {
		if len(q.rec.peers) >= 2*nodesMax || c.ID == q.cfg.Self {
			return
		}
		p = &peer{asking: make(chan struct{}, 1)}
		q.rec.peers[c.ID] = p
	}
	p.card, p.heard = c, time.Now()
	what, why := resolve(q.card(), c)
	if what == giveUp {
		q.giveUp(why)
	}
	q.complain()
}

// complain lists what people must decide.
func (q *Quorum) complain() {
	self := q.card()
	var problems []string
	for _, id := range sortedIDs(q.rec.peers) {
		if what, why := resolve(self, q.rec.peers[id].card); what == stuck && here(q.rec.members, id) {
			problems = append(problems, why)
			q.logger.Warn("two clusters met", "peer", id.Short(), "problem", why)
		}
	}
	q.mu.Lock()
	q.mu.problems = slices.Compact(problems)
	q.mu.Unlock()
}

// giveUp sets this node's state aside and waits to be let in by others.
func (q *Quorum) giveUp(why string) {
	q.logger.Warn("this node gives up its own state of the cluster and joins the others'", "why", why)
	ctx, cancel := context.WithTimeout(q.ctx, 2*q.cfg.rpcLimit()+q.cfg.StallLimit)
	defer cancel()
	err := q.rebuild(ctx, func() error {
		where, err := setAside(q.cfg.Dir, storeFile, memoFile)
		if err != nil {
			return err
		}
		q.logger.Info("the state that was given up has been set aside", "where", where)
		s, err := openStore(q.cfg.Dir+"/"+storeFile, q.logger, q.cfg.fault)
		if err != nil {
			return err
		}
		defer s.close()
		id := newIdentity(q.cfg.Self)
		id.Lost = true
		return s.become(id)
	})
	if err != nil {
		q.logger.Error("cannot give up the state of the cluster", "error", err)
	}
}

// rebuild ends the core, changes the folder and starts another core.
func (q *Quorum) rebuild(ctx context.Context, change func() error) error {
	q.mu.Lock()
	k := q.mu.core
	if q.mu.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	if k != nil {
		if shown := k.fsm.shown.Load(); shown.state.ClusterID != "" {
			q.mu.last = shown.state
		}
	}
	q.mu.core, q.mu.broken = nil, fmt.Errorf("it is being rebuilt")
	q.replayed.Store(0)
	q.mu.Unlock()
	var err error
	if k != nil {
		err = k.close(ctx, &q.own)
	}
	if err == nil {
		err = change()
	}
	if err != nil {
		q.setBroken(err)
		return err
	}
	return q.reopen()
}

func (q *Quorum) setBroken(err error) {
	q.mu.Lock()
	q.mu.broken = err
	q.mu.Unlock()
}

// reopen starts a core over the folder as it is.
func (q *Quorum) reopen() error {
	s, err := openFolder(q.cfg, q.logger)
	if err != nil {
		q.setBroken(err)
		return err
	}
	k, err := startCore(q.cfg, s, q.logger, q.changed, q.MembersChanged)
	if err != nil {
		s.close()
		q.setBroken(err)
		return err
	}
	q.mu.Lock()
	closed := q.mu.closed
	if !closed {
		q.mu.core, q.mu.broken = k, nil
	}
	q.mu.Unlock()
	q.rec.waits = time.Now()
	if closed {
		return k.close(q.ctx, &q.own)
	}
	poke(q.news)
	return nil
}

// found makes this node's cluster if all wait for somebody to do it.
func (q *Quorum) found(k *core, now time.Time) {
	if id := k.store.who(); id.Cluster != "" || id.Lost {
		q.rec.waits = now
		return
	}
	var others []card
	for id := range q.rec.members {
		if id == q.cfg.Self || !here(q.rec.members, id) {
			continue
		}
		p := q.rec.peers[id]
		if p == nil || now.Sub(p.heard) > 4*q.cfg.Heartbeat {
			q.rec.waits = now // somebody may have a cluster and not have said so
			return
		}
		others = append(others, p.card)
	}
	if !founds(q.card(), others) {
		q.rec.waits = now
		return
	}
	if now.Sub(q.rec.waits) < q.cfg.FoundAfter {
		return
	}
	q.logger.Info("all nodes wait to be let in; this one founds the cluster", "nodes", len(others)+1)
	ctx, cancel := context.WithTimeout(q.ctx, q.cfg.rpcLimit())
	defer cancel()
	err := q.rebuild(ctx, func() error {
		s, err := openFolder(q.cfg, q.logger)
		if err != nil {
			return err
		}
		defer s.close()
		id := s.who()
		if id.Cluster != "" {
			return nil // it was let in meanwhile
		}
		return s.found(id.found(realm{}), nil)
	})
	if err != nil {
		q.logger.Error("cannot found a cluster", "error", err)
	}
}

// lead makes the next change of membership, if none is under way.
func (q *Quorum) lead(k *core, now time.Time) {
	if q.acting.Load() {
		return
	}
	if term := k.raft.CurrentTerm(); q.replayed.Load() != term {
		q.replay(k, term)
		return
	}
	cards := map[member.ID]card{}
	for id, p := range q.rec.peers {
		if here(q.rec.members, id) && p.card.ID != "" && now.Sub(p.heard) < 60*q.cfg.Heartbeat {
			cards[id] = p.card
		}
	}
	q.mu.RLock()
	leaving := maps.Clone(q.mu.leaving)
	q.mu.RUnlock()
	servers := k.servers()
	s := plan(planInput{
		self: q.cfg.Self, realm: k.store.who().realm, servers: servers, nodes: k.fsm.shown.Load().nodes,
		members: q.rec.members, cards: cards, gone: q.rec.missing(servers, now), leaving: leaving, commit: k.raft.CommitIndex(),
		deadAfter: q.cfg.DeadAfter, replaceAfter: q.cfg.ReplaceAfter,
	})
	if s == nil || !q.acting.CompareAndSwap(false, true) {
		return
	}
	q.own.Go(func() {
		defer q.MembersChanged()
		defer q.acting.Store(false)
		ctx, cancel := context.WithTimeout(q.ctx, q.cfg.ChangeLimit)
		defer cancel()
		if err := q.act(ctx, k, *s); err != nil {
			q.logger.Warn("cannot "+string(s.action)+" a node", "peer", s.id.Short(), "error", err)
			pause(q.ctx, q.cfg.Heartbeat)
			return
		}
		q.cfg.Logger.Info("membership of the cluster's agreement: "+string(s.action), "peer", s.id.Short(), "why", s.why)
	})
}

// replay makes sure that a new leader's state machine has all that was agreed, before
// the leader decides anything by it.
func (q *Quorum) replay(k *core, term uint64) {
	if !q.acting.CompareAndSwap(false, true) {
		return
	}
	q.own.Go(func() {
		defer q.MembersChanged()
		defer q.acting.Store(false)
		ctx, cancel := context.WithTimeout(q.ctx, q.cfg.ChangeLimit)
		defer cancel()
		err := k.await(ctx, func() raft.Future { return k.raft.Barrier(q.cfg.rpcLimit()) })
		if err == nil && k.raft.CurrentTerm() == term {
			q.replayed.Store(term)
		} else {
			pause(q.ctx, q.cfg.tick())
		}
	})
}

// act makes one change of membership.
func (q *Quorum) act(ctx context.Context, k *core, s step) error {
	id, addr, limit := raft.ServerID(s.id), raft.ServerAddress(s.id), q.cfg.rpcLimit()
	switch s.action {
	case actRemove:
		return q.remove(ctx, k, s.id)
	case actLetIn:
		return q.propose(ctx, k, command{Version: commandVersion, ID: token(), Node: &nodeCommand{ID: s.id, Incarnation: s.incarnation}})
	case actAdd:
		return k.await(ctx, func() raft.Future { return k.raft.AddNonvoter(id, addr, 0, limit) })
	case actPromote:
		return k.await(ctx, func() raft.Future { return k.raft.AddVoter(id, addr, 0, limit) })
	default:
		return k.await(ctx, func() raft.Future { return k.raft.DemoteVoter(id, 0, limit) })
	}
}
