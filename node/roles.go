package node

import (
	"slices"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/cluster/quorum"
	"tandem/scheduler"
)

// roles is the part that this node has, and how it comes to another one: it tells the
// others which, which give it nothing new of its old part, finishes what it has, and
// then takes it. Nothing that runs is cut off.
//
// The role follows from the last plan, the members and what this node knows of itself:
// it needs no leader, and holds without one.
type roles struct {
	node *Node
	wake chan struct{} // one slot: something changed

	mu      sync.Mutex
	plan    quorum.RolePlan
	applies bool // the planner's mode lets plans count
	next    member.Role
	since   time.Time // of next; zero: the role that it has is the right one
	why     string
	history []PlanChange // the newest at the end
}

// PlanChange is a plan that came to hold, as this node saw it.
type PlanChange struct {
	Time   time.Time         `json:"time"`
	Epoch  uint64            `json:"epoch"`
	Roles  map[string]string `json:"roles"` // by name; others are hybrid
	Reason string            `json:"reason"`
}

const (
	// roleDrain bounds how long a node finishes what it has before it takes a role; what
	// runs then goes on beside it.
	roleDrain = 2 * time.Minute
	// rolePoll is how often it is looked at while nothing tells of a change.
	rolePoll       = time.Second
	roleDrainPoll  = 20 * time.Millisecond
	planHistoryMax = 20
)

func newRoles(n *Node) *roles { return &roles{node: n, wake: make(chan struct{}, 1)} }

// agreed takes over the plan of the nodes. It is called by the quorum's watcher.
func (r *roles) agreed(s quorum.State) {
	r.mu.Lock()
	if s.RolePlan.Epoch != r.plan.Epoch {
		c := PlanChange{Time: time.Now(), Epoch: s.RolePlan.Epoch, Roles: map[string]string{}, Reason: s.RolePlan.Reason}
		for id, role := range s.RolePlan.Roles {
			c.Roles[r.node.peers.name(id)] = string(role)
		}
		r.history = append(r.history, c)
		if len(r.history) > planHistoryMax {
			r.history = slices.Delete(r.history, 0, 1)
		}
	}
	r.plan = s.RolePlan
	r.applies = plannerMode(r.node.cfg.Planner, s.Value("planner")) == plannerAuto
	r.mu.Unlock()
	r.poke()
}

func (r *roles) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run takes roles until the node stops.
func (r *roles) run() {
	tick := time.NewTicker(rolePoll)
	defer tick.Stop()
	for {
		if r.step() {
			tick.Reset(roleDrainPoll)
		} else {
			tick.Reset(rolePoll)
		}
		select {
		case <-tick.C:
		case <-r.wake:
		case <-r.node.stopping.Done():
			return
		}
	}
}

// taking is the role that this node is about to take, "" if it has the right one.
func (r *roles) taking() member.Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		return ""
	}
	return r.next
}

// step looks at which role is the right one, and takes it when the old one is done.
// True: it is being drained for another one.
func (r *roles) step() (draining bool) {
	n := r.node
	self, ok := n.peers.cluster.Member(member.ID(n.id))
	if !ok {
		return false
	}
	var fixed member.Role
	if n.fixedRole() {
		fixed = n.wantedRole()
	}
	measured := n.measuredSomething()
	members := n.peers.cluster.Members()
	r.mu.Lock()
	var plan map[member.ID]member.Role
	if r.applies {
		plan = r.plan.Roles
	}
	role, why := scheduler.OwnRole(self.ID, fixed, plan, members, measured)
	r.why = why
	if role == self.Role {
		r.since = time.Time{}
		r.mu.Unlock()
		return false
	}
	if r.since.IsZero() || r.next != role {
		r.next, r.since = role, time.Now()
		r.mu.Unlock()
		n.events.emit(RoleDraining{From: string(self.Role), To: string(role), Left: n.leftOf(role), Reason: why})
		n.told.changed()
		return true
	}
	since := r.since
	r.mu.Unlock()
	took := time.Since(since)
	left := n.leftOf(role)
	// Others have to hear of it before nothing new comes.
	if took < 2*loadPause || left > 0 && took < roleDrain {
		return true
	}
	if err := n.peers.cluster.Update(func(m *member.Member) { m.Role = role }); err != nil {
		n.log.Warn("the others could not be told of a new role; it is tried again", "role", role, "error", err)
		return true
	}
	r.mu.Lock()
	r.since = time.Time{}
	r.mu.Unlock()
	n.told.changed()
	n.events.emit(RoleTaken{From: string(self.Role), To: string(role), Seconds: took.Seconds(), Left: left, Reason: why})
	return false
}

// fixedRole tells whether --role, or a person since, says what this node does.
func (n *Node) fixedRole() bool {
	return n.pages.givenRole() != "" || n.cfg.Role != "auto" && n.cfg.Role != ""
}

// leftOf counts what runs here and is not of a role: answers of a node that is to compute
// prompts for others, and prompts of others of one that is to answer.
func (n *Node) leftOf(role member.Role) int {
	prefills := int(n.prefills.Load())
	switch role {
	case member.Decode:
		return prefills
	case member.Prefill:
		all := 0
		for _, m := range n.pool.Loaded() {
			all += m.Running + m.Queued + m.Stats.Parked
		}
		return max(0, all-prefills)
	}
	return 0
}

// measuredSomething tells whether this node knows how fast one of its models is.
func (n *Node) measuredSomething() bool {
	for _, m := range n.pool.Loaded() {
		if m.Stats.TokenTime > 0 {
			return true
		}
		if model, err := n.store.Resolve(m.Spec.Model); err == nil {
			if _, ok := n.bench.of(model); ok {
				return true
			}
		}
	}
	return false
}
