package sim

import (
	"slices"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// outageBegins kills or freezes a node. The others see it after Options.DetectAfter.
func (s *sim) outageBegins(out Outage) {
	n := s.nodes[out.Node]
	if !n.up {
		return
	}
	s.after(s.o.DetectAfter, event{kind: detects, node: int32(n.at), epoch: n.epoch})
	if out.Frozen {
		n.frozenUntil = max(n.frozenUntil, out.To)
		return
	}
	n.crash()
}

// crash loses everything but what is on disk.
func (n *node) crash() {
	n.up, n.busy = false, false
	n.epoch++
	lost := slices.Concat(n.running, n.queue, n.waiting)
	for _, t := range lost {
		if t.source != nil {
			t.source.node.drop(t.source)
			t.source.node.begin()
			t.source = nil
		}
		t.gone = true
		if t.served == nil && !n.s.isStale(t) {
			n.s.result.Lost++
			n.s.lostWith(n, t.job)
		}
	}
	n.running, n.queue, n.waiting, n.news = nil, nil, nil, nil
	n.toCompute, n.active, n.private = 0, 0, 0
	n.resident, n.ram = newTier(), newTier()
}

func (s *sim) isStale(t *task) bool { return t.attempt != t.job.attempt }

// lostWith places a job again once it is seen that its node is gone.
func (s *sim) lostWith(n *node, j *job) {
	s.stale(j)
	s.after(s.o.DetectAfter, event{kind: placesAgain, ref: j})
}

// detect is when the others see that a node is gone.
func (s *sim) detect(n *node, epoch int32) {
	dead := !n.up && n.epoch == epoch+1
	frozen := n.up && n.epoch == epoch && n.frozenUntil > s.now
	if !dead && !frozen {
		return
	}
	s.known.lost(n)
	for _, o := range s.nodes {
		for _, t := range slices.Clone(o.waiting) {
			if t.transfer != nil && t.transfer.from == n && t.getting && o != n {
				t.wayEnds()
			}
		}
	}
	if frozen {
		for _, t := range slices.Concat(n.running, n.queue, n.waiting) {
			if t.served == nil && !s.isStale(t) {
				s.result.Lost++
				s.stale(t.job)
				s.place(t.job)
			}
		}
	}
}

// outageEnds starts a node's process again, or lets it go on.
func (s *sim) outageEnds(out Outage) {
	n := s.nodes[out.Node]
	switch {
	case out.Frozen && n.up:
		for _, t := range slices.Concat(n.running, n.queue, n.waiting) {
			if t.stale() { // it learns what was given to others meanwhile
				n.drop(t)
			}
		}
	case out.Frozen:
		return
	default:
		n.up, n.epoch, n.stepNumber = true, n.epoch+1, 0
		n.feed = scheduler.NewFeed(n.origin())
	}
	n.publish()
	snapshot := scheduler.Snapshot{Origin: n.feed.Origin(), Seq: n.feed.Seq(), Held: n.held()}
	for _, e := range s.entries {
		if err := e.index.of(n.at).Replace(n.id, snapshot); err != nil {
			panic("sim: a node that was known is too many: " + err.Error())
		}
		delete(e.marks, n.at)
	}
	s.known.views[n.at] = view{state: member.Alive, at: s.now, sent: s.now - s.o.ReportEvery}
	s.known.shared.Nodes[n.at].State = member.Alive
	s.known.changed(n)
	n.begin()
}

// held is a snapshot of what a node keeps.
func (n *node) held() []scheduler.Held {
	tiers := map[uint64]scheduler.Tiers{}
	for tier, t := range []*tier{n.resident, n.ram, n.disk} {
		for b := range t.places {
			tiers[b] |= scheduler.TiersOf(scheduler.Tier(tier))
		}
	}
	names := make([]uint64, 0, len(tiers))
	for b := range tiers {
		names = append(names, b)
	}
	slices.Sort(names)
	out := make([]scheduler.Held, len(names))
	for i, id := range ids(names) {
		out[i] = scheduler.Held{ID: id, Tiers: tiers[names[i]]}
	}
	return out
}

// plan asks the planner, and gives nodes their roles.
func (s *sim) plan() {
	seen := make([]Observed, len(s.nodes))
	for i, n := range s.nodes {
		busy := n.busyTime - n.busyBefore
		n.busyBefore = n.busyTime
		seen[i] = Observed{Name: n.spec.Name, Role: n.role, Up: n.up && s.known.views[i].state == member.Alive, Running: len(n.running), Queued: len(n.queue) + len(n.waiting),
			Waiting: n.toCompute, KVUsed: n.resident.pinned + n.private, KVRoom: n.room, PrefillRate: n.spec.Engine.prefillRate(),
			BusyShare: float64(busy) / float64(s.o.PlanEvery)}
	}
	if roles := s.o.Planner(s.now, seen); len(roles) == len(s.nodes) {
		for i, role := range roles {
			if n := s.nodes[i]; n.role != role {
				n.role, n.fixed = role, false
				s.result.RoleChanges++
				s.known.views[i].steady = false
				s.known.changed(n)
			}
		}
	}
	s.after(s.o.PlanEvery, event{kind: plans})
}
