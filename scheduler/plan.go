package scheduler

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"tandem/cluster/member"
)

// The loops of a Planner, and what keeps it from going to and fro.
const (
	// PlanEvery is between two steps: the load loop. Every planIntervals-th step is one
	// of the throughput loop, 180 s.
	PlanEvery     = 5 * time.Second
	planIntervals = 36
	planRecent    = 6 // steps that the load loop looks back over

	// planGain is by what share another plan must be better, twice of it in the load
	// loop, and planGainMs by how much.
	planGain   = 0.1
	planGainMs = 20
	// planCool is how long a plan stays at least; it doubles up to planCoolMax each time
	// that a plan comes back which was given up less than that ago.
	planCool    = 3 * time.Minute
	planCoolMax = time.Hour
	// planPressed is how many steps in a row must show pressure before the load loop acts.
	planPressed = 3
	// planQuiet is after how long without a request all nodes are hybrid again.
	planQuiet = 10 * time.Minute
	// planStale is how old a node's report may be before it counts as frozen.
	planStale = 15 * time.Second
	// planWorse is how much worse than the plan before a new one may turn out, after
	// planTrial and with planTrialRequests; then that one comes back, and the new one is
	// barred for planBarred.
	planWorse         = 1.25
	planTrial         = 2 * time.Minute
	planTrialRequests = 10
	planBarred        = time.Hour
	// planCorrect bounds the correction of forecasts by what is observed.
	planCorrect = 4.0
)

// PlanNode is what a planner knows of a node.
type PlanNode struct {
	ID    member.ID
	Name  string
	State member.State
	Role  member.Role   // the one that it has taken
	Fixed bool          // by --role: it takes no other
	Age   time.Duration // of its last report
	Model Model         // the model that is planned for, there; Name is "" if it does not have it
}

// PlanLoad is what requests were like in some time, summed over them.
type PlanLoad struct {
	Requests     float64
	PromptTokens float64 // cached ones included
	CachedTokens float64
	AnswerTokens float64
	TTFTMs       float64 // of TTFTs requests
	TTFTs        float64
	ITLMs        float64 // of ITLs tokens
	ITLs         float64
}

// Plus is the sum of two.
func (l PlanLoad) Plus(o PlanLoad) PlanLoad {
	return PlanLoad{l.Requests + o.Requests, l.PromptTokens + o.PromptTokens, l.CachedTokens + o.CachedTokens, l.AnswerTokens + o.AnswerTokens,
		l.TTFTMs + o.TTFTMs, l.TTFTs + o.TTFTs, l.ITLMs + o.ITLMs, l.ITLs + o.ITLs}
}

// PlanInput is what one step of a Planner goes by.
type PlanInput struct {
	// Now is a time that never goes back, the same for all that lead: since some midnight,
	// so that days repeat.
	Now           time.Duration
	Nodes         []PlanNode
	Links         []Link
	Transfers     bool // KV can move
	BlockTokens   int
	BytesPerToken int
	TTFTMs        float64 // wanted
	ITLMs         float64 // wanted
	Load          PlanLoad
	Roles         map[member.ID]member.Role // the plan that holds
}

// Forecast is what is expected of a plan.
type Forecast struct {
	RequestsPerSecond float64 `json:"requests_per_second"`
	PromptTokens      float64 `json:"prompt_tokens"` // of a request
	CachedTokens      float64 `json:"cached_tokens"` // of them
	AnswerTokens      float64 `json:"answer_tokens"`
	Predictor         string  `json:"predictor"`
	TTFTMs            float64 `json:"ttft_ms"`
	ITLMs             float64 `json:"itl_ms"`
	Utilisation       float64 `json:"utilisation"` // of what the nodes can do; above 1 requests pile up
	// PrefillNeeded and DecodeNeeded are how many nodes, the fastest first, the demand
	// would need for each if they did nothing else.
	PrefillNeeded int `json:"prefill_needed"`
	DecodeNeeded  int `json:"decode_needed"`
	costMs        float64
}

// Verdict is what came of a step.
type Verdict struct {
	// Change says that Roles are to replace the plan that holds; else Roles are that plan.
	Change   bool
	Rollback bool
	Roles    map[member.ID]member.Role // of nodes that are not hybrid
	Reasons  []string                  // the first says what is planned, and why
	Forecast Forecast                  // of Roles
	Others   Forecast                  // of the best other kind of plan
	trial    bool                      // Roles have to prove that they are better
}

// Planner turns what is measured into roles. It is the state of one leader: another
// begins anew with the plan that holds, and changes nothing before planCool.
//
// It belongs to one goroutine at a time. Equal inputs give equal verdicts.
type Planner struct {
	steps    int
	began    time.Duration
	interval PlanLoad             // of the throughput loop so far
	recent   [planRecent]PlanLoad // of the last steps
	forecast forecaster
	asked    time.Duration // the last request

	changed time.Duration // the last change
	cool    time.Duration
	pressed int
	barred  map[string]time.Duration // plans that turned out worse → until when
	left    map[string]time.Duration // plans that were given up → when

	before  map[member.ID]member.Role // the plan before, until the new one has proved itself; nil: it has
	trial   PlanLoad                  // since the change
	correct [2]float64                // observed over forecast time to first token, by kind of plan; 0: not known
}

// NewPlanner makes the planner of a node that begins to lead.
func NewPlanner(now time.Duration) *Planner {
	return &Planner{began: now, asked: now, changed: now, cool: planCool, barred: map[string]time.Duration{}, left: map[string]time.Duration{}}
}

// Step takes in what the last PlanEvery were like and says which roles are right.
func (p *Planner) Step(in PlanInput) Verdict {
	in.Load = in.Load.sane()
	w := newPlanWorld(&in)
	p.learn(&in, w)
	throughput := p.steps%planIntervals == 0
	v := p.decide(&in, w, throughput)
	if throughput {
		p.interval = PlanLoad{}
	}
	if !v.Change {
		v.Roles = in.Roles
		return v
	}
	p.note(&in, v)
	return v
}

// learn takes the load into the windows and corrects forecasts by what came of the plan
// that holds.
func (p *Planner) learn(in *PlanInput, w *planWorld) {
	p.recent[p.steps%planRecent] = in.Load
	p.steps++
	p.interval = p.interval.Plus(in.Load)
	if in.Load.Requests > 0 {
		p.asked = in.Now
	}
	if p.steps%planIntervals == 0 {
		p.forecast.add(in.Now, p.interval)
	}
	if w.crippled() {
		return // what requests take now, the plan is not to blame for
	}
	if p.before != nil {
		p.trial = p.trial.Plus(in.Load)
	}
	recent := p.window()
	if recent.TTFTs < 3 {
		return
	}
	kind := kindOf(w.now)
	expected := w.forecast(w.now, demandOf(recent, planRecent*PlanEvery)).TTFTMs
	if expected <= 0 {
		return
	}
	ratio := min(max(recent.TTFTMs/recent.TTFTs/expected, 1/planCorrect), planCorrect)
	if p.correct[kind] == 0 {
		p.correct[kind] = ratio
	}
	p.correct[kind] += (ratio - p.correct[kind]) / planIntervals
}

// window is the load of the last steps.
func (p *Planner) window() (sum PlanLoad) {
	for _, l := range p.recent {
		sum = sum.Plus(l)
	}
	return sum
}

// expected is the demand that a plan is for: as predicted, or as it was lately if there
// is more of that.
func (p *Planner) expected(in *PlanInput, throughput bool) (demand, string) {
	steps := min(p.steps, planRecent)
	lately := demandOf(p.window(), time.Duration(steps)*PlanEvery)
	if !throughput {
		return lately, "the last 30 s"
	}
	d, name := p.forecast.next(in.Now)
	if lately.rps > d.rps {
		return lately, "the last 30 s"
	}
	return d, name
}

// decide is the order in which reasons count.
func (p *Planner) decide(in *PlanInput, w *planWorld, throughput bool) Verdict {
	hybrid := w.withFixed()
	d, predictor := p.expected(in, throughput)
	current := p.forecastOf(w, w.now, d)
	current.Predictor = predictor
	v := Verdict{Forecast: current}
	broken := w.broken()
	switch cooling := in.Now < p.changed+p.cool; {
	case len(w.nodes) < 2:
		v.Reasons = []string{w.tooFew()}
		v.propose(w, hybrid, kindOf(w.now) == split)
	case broken != "":
		v.Reasons = []string{"all hybrid: " + broken}
		v.propose(w, hybrid, true) // at once: nobody does what was planned
	case in.Now-p.asked >= planQuiet:
		v.Reasons = []string{"all hybrid: no requests for " + age(in.Now-p.asked)}
		v.propose(w, hybrid, kindOf(w.now) == split)
	case p.failed(in, w):
		was := w.rolesOf(p.before)
		v.Reasons = []string{fmt.Sprintf("the plan before: the new one took %s ms to the first token and %s ms a token", milliseconds(p.trial.TTFTMs/max(1, p.trial.TTFTs)), milliseconds(p.trial.ITLMs/max(1, p.trial.ITLs)))}
		v.propose(w, was, true)
		v.Rollback = v.Change
	case cooling:
		v.Reasons = []string{w.describe(w.now) + ": the plan is " + age(in.Now-p.changed) + " old and stays " + age(p.cool)}
	case !w.measured:
		v.Reasons = []string{w.describe(w.now) + ": nothing was measured yet"}
	case d.rps == 0 || p.window().Requests == 0:
		v.Reasons = []string{w.describe(w.now) + ": no requests to plan for"}
	case throughput:
		p.search(in, w, d, &v, w.candidates(d), planGain)
	case p.pressure(in, w):
		p.search(in, w, d, &v, w.neighbours(d), 2*planGain)
	default:
		v.Reasons = []string{w.describe(w.now) + ": as planned"}
	}
	if v.Change {
		v.Forecast = p.forecastOf(w, w.rolesOf(v.Roles), d)
		v.Forecast.Predictor = predictor
	}
	v.Reasons = append(v.Reasons, w.remarks()...)
	return v
}

// propose sets the roles if they differ from those that hold.
func (v *Verdict) propose(w *planWorld, roles []member.Role, wanted bool) {
	if wanted && !slices.Equal(roles, w.now) {
		v.Change, v.Roles = true, w.named(roles)
	}
}

// search looks for a plan that is better by a share.
func (p *Planner) search(in *PlanInput, w *planWorld, d demand, v *Verdict, candidates [][]member.Role, gain float64) {
	best, other := w.now, []member.Role(nil)
	low, lowOther := v.Forecast, Forecast{costMs: math.Inf(1)}
	barred := time.Duration(0)
	for _, roles := range candidates {
		f := p.forecastOf(w, roles, d)
		if kindOf(roles) != kindOf(w.now) && f.costMs < lowOther.costMs {
			other, lowOther = roles, f
			barred = p.barred[signature(w.named(roles))] - in.Now
		}
		if in.Now < p.barred[signature(w.named(roles))] {
			continue
		}
		if f.costMs < low.costMs {
			best, low = roles, f
		}
	}
	if other != nil {
		v.Others = lowOther
	}
	enough := v.Forecast.costMs*(1-gain) - planGainMs
	if kindOf(w.now) == split && kindOf(best) == allHybrid {
		enough = v.Forecast.costMs // roles must pay for themselves
	}
	if slices.Equal(best, w.now) || low.costMs > enough {
		v.Reasons = []string{w.describe(w.now) + ": " + w.whyNot(d, v.Forecast, other, lowOther, barred)}
		return
	}
	v.Reasons = []string{w.describe(best) + ": " + w.why(d, v.Forecast, low, best)}
	v.Others, v.trial = v.Forecast, true
	v.propose(w, best, true)
}

// forecastOf is a forecast, corrected by what was observed of such plans, or of others
// if of such ones nothing was.
func (p *Planner) forecastOf(w *planWorld, roles []member.Role, d demand) Forecast {
	f := w.forecast(roles, d)
	kind := kindOf(roles)
	c := p.correct[kind]
	if c == 0 {
		c = p.correct[1-kind]
	}
	if c > 0 {
		f.TTFTMs *= c
	}
	f.costMs = w.cost(f, d)
	return f
}

// failed tells whether the new plan has proved worse than the one before would be.
func (p *Planner) failed(in *PlanInput, w *planWorld) bool {
	if p.before == nil || in.Now < p.changed+planTrial || p.trial.TTFTs < planTrialRequests {
		return false
	}
	d := demandOf(p.trial, in.Now-p.changed)
	was := p.forecastOf(w, w.rolesOf(p.before), d)
	seen := Forecast{TTFTMs: p.trial.TTFTMs / p.trial.TTFTs, ITLMs: p.trial.ITLMs / max(1, p.trial.ITLs)}
	worse := w.cost(seen, d) > was.costMs*planWorse+planGainMs
	if !worse && in.Now >= p.changed+2*planTrial {
		p.before = nil // it has proved itself
	}
	return worse
}

// pressure tells whether prompts have waited longer than wanted everywhere that they are
// computed, or tokens have come slower than wanted, for some steps.
func (p *Planner) pressure(in *PlanInput, w *planWorld) bool {
	last := in.Load
	late := last.TTFTs > 0 && last.TTFTMs/last.TTFTs > in.TTFTMs || w.waiting() > in.TTFTMs
	slow := last.ITLs > 0 && last.ITLMs/last.ITLs > in.ITLMs
	if !late && !slow {
		p.pressed = 0
		return false
	}
	p.pressed++
	if p.pressed < planPressed {
		return false
	}
	p.pressed = 0
	return true
}

// note remembers a change.
func (p *Planner) note(in *PlanInput, v Verdict) {
	was, now := signature(in.Roles), signature(v.Roles)
	gave, known := p.left[now]
	switch {
	case known && in.Now-gave < planCoolMax:
		p.cool = min(2*p.cool, planCoolMax)
	case in.Now-p.changed > planCoolMax:
		p.cool = planCool
	}
	if v.Rollback {
		p.barred[was] = in.Now + planBarred
	}
	p.left[was] = in.Now
	forget(p.left, in.Now-planCoolMax)
	forget(p.barred, in.Now)
	p.changed, p.pressed, p.trial = in.Now, 0, PlanLoad{}
	p.before = nil
	if v.trial {
		p.before = maps.Clone(in.Roles)
		if p.before == nil {
			p.before = map[member.ID]member.Role{}
		}
	}
}

// forget drops what is older than a time.
func forget(times map[string]time.Duration, before time.Duration) {
	for key, at := range times {
		if at < before {
			delete(times, key)
		}
	}
}

// signature is a plan as text; nodes that are hybrid are not in it.
func signature(roles map[member.ID]member.Role) string {
	var parts []string
	for id, role := range roles {
		if role != member.Hybrid {
			parts = append(parts, string(id)+"="+string(role))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// sane drops what cannot have been measured, and bounds the rest: it comes from other
// nodes.
func (l PlanLoad) sane() PlanLoad {
	const most = 1e9
	for _, f := range []*float64{&l.Requests, &l.PromptTokens, &l.CachedTokens, &l.AnswerTokens, &l.TTFTMs, &l.TTFTs, &l.ITLMs, &l.ITLs} {
		if !(*f > 0) {
			*f = 0
		}
		*f = min(*f, most)
	}
	l.CachedTokens = min(l.CachedTokens, l.PromptTokens)
	return l
}
