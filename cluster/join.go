package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"tandem/cluster/member"
)

// Times of the joiner in paces (Config.Pace, half a second by default).
const (
	retryFirst = 2   // after the first failure
	retryMost  = 60  // at most, for what was given
	lostFirst  = 10  // before a lost node is looked for where it was
	lostMost   = 60  // at most, at first
	lostSoon   = 12  // attempts until it is looked for half as often
	askAgain   = 120 // what is not urgent: this node's own address, and any while there are others
	roundsMost = 16  // addresses that are tried at a time
)

// lostFor is how long a lost node is looked for before its address is forgotten.
const lostFor = 24 * time.Hour

// attempt is the history of one address that is to be joined.
type attempt struct {
	next     time.Time // not before
	fails    int
	failing  time.Time // since when
	id       member.ID // who answered there last
	standing bool      // that node has been there since
}

// failed sets the time of the next attempt: doubled each time, a little at random so
// that nodes do not come in step.
func (a *attempt) failed(now time.Time, first, most time.Duration, random func() float64) {
	if a.fails == 0 {
		a.failing = now
	}
	delay := most
	if a.fails < 16 && first<<a.fails < most {
		delay = first << a.fails
	}
	a.fails++
	a.next = now.Add(time.Duration(float64(delay) * (0.8 + 0.4*random())))
}

// job is one thing to try: an address that was given, a node that was lost, or mDNS.
type job struct {
	key    string
	target target    // of what was given
	lost   member.ID // of a node that was lost
	place  place
}

func (j job) String() string {
	if j.lost != "" {
		return who(j.place.name, j.lost, j.place.addr.String())
	}
	return j.target.String()
}

// joinLoop tries whatever is not joined, for ever.
func (c *Cluster) joinLoop() {
	history := map[string]*attempt{}
	for {
		due, next := c.plan(history, time.Now())
		if len(due) > 0 {
			c.tryAll(history, due)
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-c.wake:
		case <-c.ctx.Done():
		}
		timer.Stop()
		if c.ctx.Err() != nil {
			return
		}
	}
}

// plan says what is due and when to look again. It keeps the history to what is wanted.
func (c *Cluster) plan(history map[string]*attempt, now time.Time) (due []job, next time.Time) {
	pace := c.cfg.Pace
	next = now.Add(retryMost * pace)
	if c.stopped() {
		return nil, next
	}
	wanted := map[string]bool{}
	consider := func(j job, firstWait time.Duration) {
		wanted[j.key] = true
		a := history[j.key]
		if a == nil {
			a = &attempt{next: now.Add(firstWait)}
			history[j.key] = a
		}
		if a.next.After(now) {
			next = earlier(next, a.next)
			return
		}
		due = append(due, j)
	}
	for _, t := range c.targets {
		j := job{key: "join/" + t.String(), target: t}
		if a := history[j.key]; a != nil && a.id != "" && c.isPresent(a.id) {
			wanted[j.key] = true
			a.standing, a.fails = true, 0
			continue
		} else if a != nil && a.standing { // lost since
			a.standing = false
			a.failed(now, lostFirst*pace, lostMost*pace, rand.Float64)
		}
		consider(j, 0)
	}
	started := len(history) > 0
	ids, places := c.memory.wanted()
	for _, id := range ids {
		if id == c.cfg.Self.ID || c.isPresent(id) {
			continue
		}
		firstWait := time.Duration(0) // at the start, where an earlier run saw it
		if _, seen := c.table.get(id); seen || started {
			firstWait = lostFirst * pace
		}
		consider(job{key: "lost/" + string(id), lost: id, place: places[id]}, firstWait)
	}
	if c.auto {
		consider(job{key: Auto}, 0)
	}
	for key := range history {
		if !wanted[key] {
			delete(history, key)
		}
	}
	return due, next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (c *Cluster) stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leaving || c.ctx.Err() != nil
}

func (c *Cluster) isPresent(id member.ID) bool {
	e, ok := c.table.get(id)
	return ok && e.present()
}

// tryAll does what is due, some at a time, and waits for all.
func (c *Cluster) tryAll(history map[string]*attempt, due []job) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, roundsMost)
	for _, j := range due {
		slots <- struct{}{}
		a := history[j.key]
		wg.Go(func() {
			defer func() { <-slots }()
			switch {
			case j.key == Auto:
				c.tryAuto(a)
			case j.lost != "":
				c.tryLost(j, a)
			default:
				c.tryGiven(j, a)
			}
		})
	}
	wg.Wait()
}

// tryGiven joins through an address that was given. All addresses of a name are tried
// until one leads to another node.
func (c *Cluster) tryGiven(j job, a *attempt) {
	pace := c.cfg.Pace
	addrs, err := j.target.resolve(c.ctx, net.DefaultResolver)
	self := false
	for _, at := range addrs {
		var id member.ID
		id, err = c.joinAt(c.ctx, at)
		if err == nil && id != c.cfg.Self.ID {
			if c.problems.clear(j.key) || a.id != id {
				c.log.Info("cluster: joined", "through", j.String(), "node", id.Short())
			}
			*a = attempt{id: id, next: time.Now().Add(retryFirst * pace)}
			return
		}
		self = self || err == nil
		if _, refused := errors.AsType[*joinError](err); err != nil && !refused && at.String() != j.target.String() {
			err = fmt.Errorf("at %s: %w", at, err)
		}
	}
	if c.ctx.Err() != nil {
		return
	}
	if self { // the same list of addresses is given to all nodes, often
		c.problems.clear(j.key)
		*a = attempt{next: time.Now().Add(askAgain * pace)}
		return
	}
	if err == nil {
		err = errors.New("the name has no address")
	}
	c.failedGiven(j, a, err)
}

func (c *Cluster) failedGiven(j job, a *attempt, err error) {
	pace := c.cfg.Pace
	refused, ok := errors.AsType[*joinError](err)
	if ok && (refused.code == codeWait || refused.code == codeBusy) {
		a.next = time.Now().Add(retryFirst * pace)
		c.problems.set(j.key, refused.text)
		return
	}
	most := retryMost * pace
	if len(c.table.present()) > 0 {
		most = askAgain * pace
	}
	a.failed(time.Now(), retryFirst*pace, most, rand.Float64)
	switch {
	case ok:
		c.problems.keep(j.key, refused.text)
	case a.id != "" && len(c.table.present()) > 0:
		c.problems.clear(j.key) // the list of members says who is missing
	default:
		c.problems.keep(j.key, fmt.Sprintf("waiting to join %s: %v; it is tried again, at least every %v", j, err, most))
	}
}

// tryLost looks for a node where it was last. Nobody asked for that, so only what is
// worth knowing is told: that something there refuses this node.
func (c *Cluster) tryLost(j job, a *attempt) {
	pace := c.cfg.Pace
	id, err := c.joinAt(c.ctx, j.place.addr)
	now := time.Now()
	switch refused, ok := errors.AsType[*joinError](err); {
	case err == nil:
		c.problems.clear(j.key)
		c.log.Info("cluster: found again", "node", id.Short(), "address", j.place.addr.String())
		*a = attempt{next: now.Add(lostFirst * pace)}
		if id != j.lost { // its address has another owner now
			c.memory.drop(j.lost)
		}
		return
	case ok && refused.code != codeWait && refused.code != codeBusy:
		c.problems.set(j.key, refused.text)
	}
	most := lostMost * pace
	if a.fails >= lostSoon {
		most *= 2
	}
	a.failed(now, lostFirst*pace, most, rand.Float64)
	if now.Sub(a.failing) > lostFor {
		c.memory.drop(j.lost)
	}
}

// tryAuto joins whom mDNS finds. While others are there it goes on, seldom: two halves
// of a cluster may have found each other apart.
func (c *Cluster) tryAuto(a *attempt) {
	pace := c.cfg.Pace
	discover := c.cfg.discover
	if discover == nil {
		discover = c.discover
	}
	for _, text := range discover(c.ctx) {
		at, err := netip.ParseAddrPort(text)
		if err != nil || at == c.transport.known || c.knownAt(at) {
			continue
		}
		id, err := c.joinAt(c.ctx, at)
		switch refused, ok := errors.AsType[*joinError](err); {
		case err == nil && id != c.cfg.Self.ID:
			c.problems.clear("auto/" + at.Addr().String())
			c.log.Info("cluster: joined", "through", "mDNS", "address", at.String(), "node", id.Short())
		case ok && refused.code != codeWait:
			c.problems.set("auto/"+at.Addr().String(), refused.text)
		}
	}
	if len(c.table.present()) > 0 {
		c.problems.clear(Auto)
		*a = attempt{next: time.Now().Add(askAgain * pace)}
		return
	}
	a.failed(time.Now(), retryFirst*pace, retryMost*pace, rand.Float64)
	c.problems.keep(Auto, "waiting to find another node on this network by mDNS; if there is one, give its address with --join")
}

func (c *Cluster) knownAt(at netip.AddrPort) bool {
	return slices.ContainsFunc(c.table.present(), func(e entry) bool { return e.gossip == at })
}

// conflict is an id that gossip knows at two addresses.
type conflict struct {
	id           member.ID
	known, other netip.AddrPort
}

// settleConflict asks at both addresses. Two processes with one id are both told; a node
// that was restarted elsewhere is taken once its old address is given up.
func (c *Cluster) settleConflict(ctx context.Context, x conflict) {
	key := "twice/" + string(x.id)
	_, a, errA := c.ask(ctx, x.known, kindCheck, codeOK, "")
	_, b, errB := c.ask(ctx, x.other, kindCheck, codeOK, "")
	if errA != nil || errB != nil || a.ID != x.id || b.ID != x.id || a.Process == b.Process {
		c.problems.clear(key)
		return
	}
	c.problems.set(key, fmt.Sprintf("%s and %s have the same node id; a data folder was copied: delete the file node-id in one of the two", who(a.Name, a.ID, x.known.String()), who(b.Name, b.ID, x.other.String())))
	if x.id != c.cfg.Self.ID {
		_, _, _ = c.ask(ctx, x.known, kindCheck, codeDuplicate, x.other.String())
	}
	_, _, _ = c.ask(ctx, x.other, kindCheck, codeDuplicate, x.known.String())
}
