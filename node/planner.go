package node

import (
	"context"
	"strconv"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/cluster/quorum"
	"tandem/scheduler"
)

// Modes of the planner: what the leader's flag and the setting of all nodes allow both.
const (
	plannerAuto   = "auto"
	plannerAdvise = "advise"
	plannerOff    = "off"
)

// plannerMode is the more careful one of two.
func plannerMode(a, b string) string {
	switch {
	case a == plannerOff || b == plannerOff:
		return plannerOff
	case a == plannerAdvise || b == plannerAdvise:
		return plannerAdvise
	}
	return plannerAuto
}

// planner runs the loops of scheduler.Planner while this node leads. What it decides is
// proposed to the nodes; what they have agreed on, each takes by itself: roles.go.
//
// Its goroutine is run's, which alone touches all but what the lock guards.
type planner struct {
	node    *Node
	step    func(scheduler.PlanInput) scheduler.Verdict
	leading bool
	before  map[workKey]work // as last seen

	mu   sync.Mutex
	last PlannerSays // while this node leads
}

type workKey struct {
	node   member.ID
	digest string
}

// PlannerSays is what the leader's planner says, as it tells all nodes.
type PlannerSays struct {
	Time     time.Time          `json:"time"`
	Leader   string             `json:"leader"`
	Mode     string             `json:"mode"`
	Model    string             `json:"model"` // that it plans for: the one with the most requests
	Reasons  []string           `json:"reasons"`
	Advice   map[string]string  `json:"advice,omitempty"` // roles by name that mode advise does not propose
	Forecast scheduler.Forecast `json:"forecast"`
	// Others is the forecast for the best plan of another kind.
	Others scheduler.Forecast `json:"others"`
}

// PlannerStatus is the planner's part of the status.
type PlannerStatus struct {
	Mode    string            `json:"mode"` // on this node
	Epoch   uint64            `json:"epoch"`
	Plan    map[string]string `json:"plan"` // roles by name; others are hybrid
	Reason  string            `json:"reason"`
	Role    string            `json:"role"`             // of this node
	Taking  string            `json:"taking,omitempty"` // the role that it will have when it has finished what it does
	Left    int               `json:"left,omitempty"`   // requests until then
	RoleWhy string            `json:"role_why"`
	// Says is what the leader's planner said last; nil: none has told.
	Says      *PlannerSays       `json:"says,omitempty"`
	Reasons   []string           `json:"reasons"`
	Forecast  scheduler.Forecast `json:"forecast"`
	History   []PlanChange       `json:"history"`
	Estimator EstimatorError     `json:"estimator"`
}

func newPlanner(n *Node) *planner { return &planner{node: n, before: map[workKey]work{}} }

// run plans until the node stops.
func (p *planner) run() {
	every := p.node.cfg.PlanEvery
	if every == 0 {
		every = scheduler.PlanEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.tick(p.node.stopping)
		case <-p.node.stopping.Done():
			return
		}
	}
}

// tick is one step, on the leader.
func (p *planner) tick(ctx context.Context) {
	n := p.node
	q := n.peers.quorum.Status()
	state := n.peers.quorum.State()
	mode := plannerMode(n.cfg.Planner, state.Value("planner"))
	if q.Leader != member.ID(n.id) || !q.HasQuorum || mode == plannerOff {
		p.leading = false
		p.mu.Lock()
		p.last = PlannerSays{}
		p.mu.Unlock()
		return
	}
	in, model := p.input(state)
	if !p.leading {
		p.leading = true
		p.step = n.cfg.PlanStep
		if p.step == nil {
			p.step = scheduler.NewPlanner(in.Now).Step
		}
		in.Load = scheduler.PlanLoad{} // what came before it led
	}
	v := p.step(in)
	said := p.say(v, mode, model)
	if v.Change && mode == plannerAuto {
		p.propose(ctx, state, v, said)
	}
}

// propose has the nodes agree on roles.
func (p *planner) propose(ctx context.Context, state quorum.State, v scheduler.Verdict, said PlannerSays) {
	n := p.node
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	plan := quorum.RolePlan{Epoch: state.RolePlan.Epoch + 1, Roles: v.Roles, Reason: firstBytes(said.Reasons, reasonMax)}
	if err := n.peers.quorum.Change(ctx, quorum.Change{RolePlan: &plan}); err != nil {
		n.log.Warn("a plan could not be agreed on; the last one holds", "reason", plan.Reason, "error", err)
		return
	}
	n.events.emit(PlanMade{Epoch: plan.Epoch, Roles: p.named(v.Roles), Rollback: v.Rollback, Reason: plan.Reason,
		TTFTMs: v.Forecast.TTFTMs, ITLMs: v.Forecast.ITLMs})
}

// reasonMax bounds the reason of a plan, in bytes; the quorum takes some more.
const reasonMax = 1000

// firstBytes joins sentences as long as they fit.
func firstBytes(sentences []string, limit int) (out string) {
	for _, s := range sentences {
		if len(out)+len(s)+2 > limit {
			break
		}
		if out != "" {
			out += "; "
		}
		out += s
	}
	return out
}

func (p *planner) named(roles map[member.ID]member.Role) map[string]string {
	out := map[string]string{}
	for id, role := range roles {
		out[p.node.peers.name(id)] = string(role)
	}
	return out
}

// say keeps what all nodes are told.
func (p *planner) say(v scheduler.Verdict, mode, model string) PlannerSays {
	says := PlannerSays{Time: time.Now().Round(time.Second), Leader: p.node.cfg.Name, Mode: mode, Model: model, Reasons: v.Reasons, Forecast: v.Forecast, Others: v.Others}
	p.mu.Lock()
	before := p.last
	switch {
	case v.Change && mode == plannerAdvise:
		says.Advice = p.named(v.Roles)
	case mode == plannerAdvise && len(before.Advice) > 0:
		says.Advice = before.Advice
	}
	p.last = says
	p.mu.Unlock()
	if v.Change && mode == plannerAdvise {
		p.node.events.emit(PlanMade{Advice: true, Roles: says.Advice, Rollback: v.Rollback, Reason: firstBytes(v.Reasons, reasonMax), TTFTMs: v.Forecast.TTFTMs, ITLMs: v.Forecast.ITLMs})
	}
	return says
}

// said is what this node tells as a leader; nil: it does not lead.
func (p *planner) said() *PlannerSays {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.Mode == "" {
		return nil
	}
	says := p.last
	return &says
}

// input is what a step goes by: what the nodes have told. The model is the one that
// most of the work since the last step was for, or the one that this node prefers.
func (p *planner) input(state quorum.State) (in scheduler.PlanInput, model string) {
	n, ps, now := p.node, p.node.peers, time.Now()
	in = scheduler.PlanInput{Now: sinceMidnight(n.started) + now.Sub(n.started), Transfers: n.keeper != nil, Roles: state.RolePlan.Roles,
		TTFTMs: settingMs(state, "slo_ttft_ms"), ITLMs: settingMs(state, "slo_itl_ms")}
	fallback, _ := n.store.Resolve(n.orDefault(""))
	ps.mu.Lock()
	defer ps.mu.Unlock()
	loads := map[string]scheduler.PlanLoad{}
	seen := map[workKey]work{}
	for id, v := range ps.mu.views {
		for i, w := range v.load.Work {
			if i >= worksMax {
				break
			}
			key := workKey{id, w.Digest}
			before, known := p.before[key]
			if !known {
				before = w // what it did before is not of now
			}
			d := w.since(before)
			loads[w.Digest] = loads[w.Digest].Plus(d)
			seen[key] = w
		}
	}
	p.before = seen
	digest, most := fallback.Digest, 0.0
	for d, l := range loads {
		if weight := l.PromptTokens + l.AnswerTokens; weight > most || weight == most && most > 0 && d < digest {
			digest, most = d, weight
		}
	}
	in.Load = loads[digest]
	for id, v := range ps.mu.views {
		node := scheduler.PlanNode{ID: id, Name: v.member.Name, State: v.member.State, Role: v.member.Role, Fixed: v.load.Fixed, Age: now.Sub(v.loaded)}
		for i := range v.load.Models {
			l := &v.load.Models[i]
			if l.Digest == "" || l.Digest != digest {
				continue
			}
			node.Model, model = l.known(l.Name, now.Sub(v.loaded)), l.Name
			if l.BlockTokens > 0 && in.BlockTokens == 0 {
				in.BlockTokens, in.BytesPerToken = l.BlockTokens, l.KVBytes
			}
			break
		}
		in.Nodes = append(in.Nodes, node)
		for _, l := range v.load.Links {
			in.Links = append(in.Links, scheduler.Link{A: id, B: l.From, Goodput: scheduler.Figure{Value: l.Goodput}, RTTMs: scheduler.Figure{Value: l.RTTMs}})
		}
	}
	return in, model
}

// sinceMidnight places a moment in its day, by this machine's clock and zone.
func sinceMidnight(t time.Time) time.Duration {
	y, m, d := t.Date()
	return t.Sub(time.Date(y, m, d, 0, 0, 0, 0, t.Location()))
}

// settingMs is a setting that is a number of ms; its table allows nothing else.
func settingMs(s quorum.State, name string) float64 {
	ms, _ := strconv.ParseFloat(s.Value(name), 64)
	return ms
}

// status is the planner's part of the status of this node.
func (n *Node) plannerStatus() PlannerStatus {
	s := PlannerStatus{Mode: n.cfg.Planner, Plan: map[string]string{}, Role: n.role(), Reasons: []string{}, History: []PlanChange{}, Estimator: n.workload.estimatorError()}
	if n.peers == nil {
		s.RoleWhy = "this node is alone"
		return s
	}
	state := n.peers.quorum.State()
	s.Mode = plannerMode(n.cfg.Planner, state.Value("planner"))
	r := n.roles
	r.mu.Lock()
	s.Epoch, s.Reason, s.RoleWhy, s.History = r.plan.Epoch, r.plan.Reason, r.why, append(s.History, r.history...)
	roles := r.plan.Roles
	r.mu.Unlock()
	s.Plan = n.planner.named(roles)
	if to := r.taking(); to != "" {
		s.Taking, s.Left = string(to), n.leftOf(to)
	}
	if s.Says = n.peers.plannerSays(); s.Says != nil {
		s.Reasons, s.Forecast = s.Says.Reasons, s.Says.Forecast
	}
	return s
}

// plannerSays is what the leader has told; nil: none.
func (p *peers) plannerSays() *PlannerSays {
	if says := p.node.planner.said(); says != nil {
		return says
	}
	leader := p.quorum.Status().Leader
	p.mu.Lock()
	defer p.mu.Unlock()
	if v := p.mu.views[leader]; v != nil {
		return v.load.Planner
	}
	return nil
}
