package sim

import (
	"errors"
	"time"

	"tandem/scheduler"
)

// retriesMax ends a request that no node takes, as a client would.
const retriesMax = 600

// place asks the policy of an entry, and again if that goes wrong.
func (s *sim) place(j *job) {
	e := s.entries[j.entry]
	if !e.node.serves(s.now) { // the client tries another node
		j.entry = s.random.IntN(len(s.entries))
		if e = s.entries[j.entry]; !e.node.serves(s.now) {
			s.again(j, time.Second)
			return
		}
	}
	d, err := s.decide(e, j)
	if err != nil {
		var long *scheduler.TooLongError
		var busy *scheduler.Busy
		wait := time.Second
		switch {
		case errors.As(err, &long):
			s.ended(j, tooLong)
			return
		case errors.As(err, &busy):
			wait = busy.RetryAfter
		}
		s.again(j, wait)
		return
	}
	n := s.nodes[placeOf(d.Node)]
	if s.known.views[n.at].state != "alive" {
		s.result.ToFailed++
	}
	e.ledger.Gave(n.id, d.Compute, s.clock())
	e.touched = append(e.touched, n.at)
	if s.o.PredictFor > 0 && len(j.chain) > 0 {
		e.index.of(n.at).Predict(n.id, j.chain, s.clock().Add(s.o.PredictFor))
	}
	j.attempt++
	t := &task{job: j, attempt: j.attempt, node: n, prompt: j.prompt(), left: j.left, blocks: j.blocks}
	j.task = t
	if j.way = 0; n == e.node {
		s.deliver(t)
		return
	}
	j.way = s.o.RTT / 2
	s.after(j.way, event{kind: delivers, ref: t})
}

// serves tells whether a node takes requests from clients.
func (n *node) serves(now time.Duration) bool { return n.up && n.frozenUntil <= now }

// again places a job once more in a while.
func (s *sim) again(j *job, wait time.Duration) {
	s.result.Retries++
	j.exclude = nil
	if j.retries++; j.retries > retriesMax {
		s.ended(j, gaveUp)
		return
	}
	s.after(wait, event{kind: placesAgain, ref: j})
}

// decide is one decision of the policy, or what a test forces.
func (s *sim) decide(e *entry, j *job) (scheduler.Decision, error) {
	e.number++
	s.result.Decisions++
	r := scheduler.Request{
		Model: modelName, Tokens: j.prompt(), BlockTokens: s.o.BlockTokens, BytesPerToken: s.o.BytesPerToken,
		Holdings: e.index.match(j.chain, s.clock()), Exclude: j.exclude,
		Number: e.number, Seed: s.random.Uint64(),
	}
	state := s.known.state(e.node, e)
	defer s.known.restore()
	d, err := s.policy(state, r)
	if choice, ok := s.o.Forced[j.number]; ok && j.retries == 0 && err == nil {
		d.Node = nodeID(choice.Node)
		d.Compute = max(1, j.prompt()-s.nodes[choice.Node].holding(j.blocks).Run*s.o.BlockTokens)
	}
	return d, err
}

// deliver brings a task to its node.
func (s *sim) deliver(t *task) {
	if t.stale() {
		return
	}
	// An answer ends where the node's context does.
	room := t.node.room*s.o.BlockTokens - t.prompt
	switch {
	case room < min(t.left, 1) && t.served != nil:
		t.served.wayEnds()
		return
	case room < min(t.left, 1):
		s.ended(t.job, tooLong)
		return
	case room < t.left:
		s.result.Cut++
		t.left, t.job.left = room, room
		s.records[t.job.number].output = int32(t.job.emitted + room)
	}
	ok, down := t.node.take(t)
	if ok {
		return
	}
	s.result.Refused++
	if t.served != nil {
		t.served.wayEnds()
		return
	}
	e := s.entries[t.job.entry]
	m := mark{scheduler.Full, s.now}
	if down {
		m.kind = scheduler.Refused
	}
	e.marks[t.node.at] = m
	t.job.exclude = append(t.job.exclude, t.node.id)
	s.place(t.job)
}

// wrote is tokens that come back to the entry node.
func (s *sim) wrote(t *task, count int, each time.Duration) {
	j := t.job
	j.emitted += count
	j.left -= count
	r := &s.records[j.number]
	if r.first == 0 {
		r.first = s.now + j.way
		r.node = int32(t.node.at)
		s.series.firstToken(s.now, r.first-r.at)
		if s.o.Stop == j.number+1 {
			s.stopped = true
		}
	}
	r.gap = max(r.gap, each)
	s.series.wrote(s.now, count)
}

// answered is the end of a task that wrote all.
func (s *sim) answered(t *task) {
	s.records[t.job.number].done = s.now + t.job.way
	s.ended(t.job, answered)
}
