package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"tandem/cluster/member"
)

// Times of the watchers in paces.
const (
	watchEach    = 2
	conflictEach = 20 // for the same id
	udpEach      = 10
	udpSilence   = 20 // without an answer over UDP, from when on it is asked for
	udpFails     = 3  // in a row, before it is told
)

// watchLoop does what comes up now and then: forgets the dead, goes over to a new secret
// when all have it, settles conflicts, keeps the addresses.
func (c *Cluster) watchLoop() {
	tick := time.NewTicker(watchEach * c.cfg.Pace)
	defer tick.Stop()
	settled := map[member.ID]time.Time{}
	for {
		select {
		case <-c.ctx.Done():
			return
		case x := <-c.conflicts:
			if now := time.Now(); now.Sub(settled[x.id]) > conflictEach*c.cfg.Pace {
				c.settleConflict(c.ctx, x)
				if len(settled) > membersMax {
					clear(settled)
				}
				settled[x.id] = time.Now()
			}
		case <-tick.C:
			for _, m := range c.table.forget(c.cfg.DeadAfter) {
				c.problems.clear("clock/" + string(m.ID))
				c.log.Info("cluster: forgotten", "node", m.Name, "id", m.ID.Short(), "state", m.State)
			}
			c.keys.settle(keysOf(c.table.present()))
			if err := c.memory.save(); err != nil {
				c.problems.set("memory", err.Error())
			}
		}
	}
}

// Limits of doubts.
const (
	doubtsMax  = 64
	doubtEach  = 1 // paces for an answer
	doubtJoins = 3 // rounds of gossip in which a node learns that it was given up, and objects
)

// doubtLoop asks nodes that memberlist has given up whether they are there. A node whose
// UDP is blocked does not hear that it is suspected and cannot object; one that answers
// over TCP has not failed.
func (c *Cluster) doubtLoop() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-c.ctx.Done():
			return
		case e := <-c.doubts:
			wg.Go(func() {
				if !c.isThere(e) && c.ctx.Err() == nil {
					c.table.gone(e)
				}
			})
		}
	}
}

// isThere tells whether a node answers, and then has gossip take it back.
func (c *Cluster) isThere(e entry) bool {
	ctx, cancel := context.WithTimeout(c.ctx, doubtEach*c.cfg.Pace)
	defer cancel()
	_, there, err := c.ask(ctx, e.gossip, kindCheck, codeOK, "")
	if err != nil || there.ID != e.m.ID || there.Process != e.process {
		return false
	}
	id := string(e.m.ID)
	for range doubtJoins {
		if slices.ContainsFunc(c.list.Members(), func(n *memberlist.Node) bool { return n.Name == id }) {
			return true
		}
		if _, err := c.list.Join([]string{id + "/" + e.gossip.String()}); err != nil {
			return false
		}
	}
	return slices.ContainsFunc(c.list.Members(), func(n *memberlist.Node) bool { return n.Name == id })
}

// udpWatch finds nodes that answer over TCP and not over UDP. Such a node stays a member
// and would never be noticed otherwise.
type udpWatch struct {
	c *Cluster

	mu   sync.Mutex
	last map[member.ID]time.Time // an answer over UDP, or first sight
}

func newUDPWatch(c *Cluster) *udpWatch {
	return &udpWatch{c: c, last: map[member.ID]time.Time{}}
}

// heard notes an answer over UDP.
func (u *udpWatch) heard(id member.ID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, watched := u.last[id]; watched {
		u.last[id] = time.Now()
	}
}

// silent tells whether a node has not answered for long, and begins to watch it.
func (u *udpWatch) silent(id member.ID, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	last, watched := u.last[id]
	if !watched {
		u.last[id] = now
		return false
	}
	return now.Sub(last) > udpSilence*u.c.cfg.Pace
}

func (u *udpWatch) loop() {
	tick := time.NewTicker(udpEach * u.c.cfg.Pace)
	defer tick.Stop()
	fails := map[member.ID]int{}
	for {
		select {
		case <-u.c.ctx.Done():
			return
		case <-tick.C:
			u.look(fails)
		}
	}
}

// look asks those that have been silent and tells of those that do not answer.
func (u *udpWatch) look(fails map[member.ID]int) {
	present := map[member.ID]bool{}
	for _, e := range u.c.table.present() {
		id, key := e.m.ID, "udp/"+string(e.m.ID)
		present[id] = true
		if u.silent(id, time.Now()) {
			if _, err := u.c.list.Ping(string(id), net.UDPAddrFromAddrPort(e.gossip)); err != nil {
				if fails[id]++; fails[id] >= udpFails {
					u.c.problems.keep(key, fmt.Sprintf("%s does not answer over UDP on port %d, only over TCP: it stays a member, and changes are seen later; open UDP port %d on both sides and between them", who(e.m.Name, id, e.gossip.String()), e.gossip.Port(), e.gossip.Port()))
				}
				continue
			}
			u.heard(id)
		}
		delete(fails, id)
		if u.c.problems.clear(key) {
			u.c.log.Info("cluster: UDP works again", "node", e.m.Name)
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.last {
		if !present[id] {
			delete(u.last, id)
			delete(fails, id)
			u.c.problems.clear("udp/" + string(id))
		}
	}
}
