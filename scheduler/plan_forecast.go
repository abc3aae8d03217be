package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"

	"tandem/cluster/member"
)

// What forecasts take for granted.
const (
	// planFill is how busy a fast node gets before slower ones get requests.
	planFill = 0.6
	// planFull bounds how busy a node can be in the formula of waiting, which has no
	// value at 1; planOverMs is what a full load more than the nodes can do costs.
	planFull   = 0.95
	planOverMs = 60_000.0
	// planStepMs is how long a step may take in which a prompt is computed beside
	// answers; see engine.Config.StepTime.
	planStepMs = 100.0
	// planOutlier is by what factor a node's rate may differ from the median of all
	// before it is not believed.
	planOutlier    = 1000.0
	planTokensMax  = 1e7 // of a prompt, or an answer
	planCandidates = 32  // sizes of the prefill side that are tried
)

// kind of a plan.
const (
	allHybrid = iota
	split
)

func kindOf(roles []member.Role) int {
	var prefill, decode bool
	for _, r := range roles {
		prefill, decode = prefill || r == member.Prefill, decode || r == member.Decode
	}
	if prefill && decode {
		return split
	}
	return allHybrid
}

// demand is what requests are like.
type demand struct {
	rps     float64
	prompt  float64 // tokens
	compute float64 // of them, not cached
	answer  float64 // tokens
}

func demandOf(l PlanLoad, in time.Duration) demand {
	if l.Requests == 0 || in <= 0 {
		return demand{}
	}
	prompt, cached := min(l.PromptTokens/l.Requests, planTokensMax), min(l.CachedTokens/l.Requests, planTokensMax)
	return demand{rps: l.Requests / in.Seconds(), prompt: prompt, compute: prompt - cached, answer: min(max(1, l.AnswerTokens/l.Requests), planTokensMax)}
}

// planNode is a node that can do something, with all its figures.
type planNode struct {
	*PlanNode
	rate          float64 // prompt tokens/s in short contexts
	context       float64 // see Model.PrefillContext
	decode        []Pace
	ram           float64
	decodeContext float64 // see Model.DecodeContext
	guessed       bool
}

// planWorld is one input in the terms of forecasts. Slices of roles are by its nodes.
type planWorld struct {
	in       *PlanInput
	nodes    []planNode // usable, by id
	frozen   []*PlanNode
	now      []member.Role // that hold
	measured bool          // rates of some node are known
	goodput  float64       // bytes/s, the median of the measured ones; 0: none
	links    map[[2]member.ID]Link
}

func newPlanWorld(in *PlanInput) *planWorld {
	w := &planWorld{in: in, links: map[[2]member.ID]Link{}}
	var rates, rams, goodputs []float64
	var curves [][]Pace
	for i := range in.Nodes {
		n := &in.Nodes[i]
		switch {
		case n.Model.Name == "" || n.State == member.Left || n.State == member.Draining:
			continue
		case n.State != member.Alive || n.Age > planStale:
			w.frozen = append(w.frozen, n)
			continue
		}
		w.nodes = append(w.nodes, planNode{PlanNode: n})
		if r := n.Model.PrefillRate.Value; between(r, 1e-3, rateHigh) {
			rates = append(rates, r)
		}
		if r := n.Model.RAMRate.Value; between(r, rateLow, rateHigh) {
			rams = append(rams, r)
		}
		if saneCurve(n.Model.Decode) {
			curves = append(curves, n.Model.Decode)
		}
	}
	slices.SortFunc(w.nodes, func(a, b planNode) int { return compareIDs(a.ID, b.ID) })
	w.measured = len(rates) > 0
	rate, ram, curve := middle(rates, rateDefault, true), middle(rams, ramRateDefault, true), []Pace{{1, paceMsDefault}}
	if len(curves) > 0 {
		slices.SortFunc(curves, func(a, b []Pace) int { return cmp.Compare(a[0].Ms, b[0].Ms) })
		curve = curves[len(curves)/2]
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		n.rate, n.context, n.decode, n.ram = n.Model.PrefillRate.Value, n.Model.PrefillContext, n.Model.Decode, n.Model.RAMRate.Value
		if !(n.rate > rate/planOutlier && n.rate < rate*planOutlier) {
			n.rate, n.context, n.guessed = rate, 0, true
		}
		if !saneCurve(n.decode) {
			n.decode, n.guessed = curve, true
		}
		if !between(n.ram, rateLow, rateHigh) {
			n.ram = ram
		}
		n.context, n.decodeContext = saneContext(n.context), saneContext(n.Model.DecodeContext)
	}
	for _, l := range in.Links {
		w.links[[2]member.ID{l.A, l.B}] = l
		if g := l.Goodput.Value; between(g, rateLow, rateHigh) {
			goodputs = append(goodputs, g)
		}
	}
	w.goodput = middle(goodputs, 0, true)
	w.now = w.rolesOf(in.Roles)
	return w
}

// Bounds of what can have been measured, in bytes or tokens per second.
const (
	rateLow  = 1e3
	rateHigh = 1e13
)

// between is false for what is no number.
func between(x, low, high float64) bool { return x >= low && x <= high }

// saneContext is a context at which something doubles, or 0: not known.
func saneContext(tokens float64) float64 {
	if between(tokens, 16, 1e9) {
		return tokens
	}
	return 0
}

// saneCurve tells whether times between tokens can have been measured.
func saneCurve(c []Pace) bool {
	last := 0
	for _, p := range c {
		if p.Streams <= last || !between(p.Ms, 1e-3, 1e6) {
			return false
		}
		last = p.Streams
	}
	return len(c) > 0
}

// rolesOf are the roles that a plan gives the nodes.
func (w *planWorld) rolesOf(plan map[member.ID]member.Role) []member.Role {
	out := make([]member.Role, len(w.nodes))
	for i := range w.nodes {
		n := &w.nodes[i]
		out[i] = member.Hybrid
		if r, ok := plan[n.ID]; ok {
			out[i] = r
		}
		if n.Fixed {
			out[i] = n.Role
		}
	}
	return out
}

// crippled tells whether a node that the plan gives a part is not usable.
func (w *planWorld) crippled() bool {
	for id, role := range w.in.Roles {
		if role != member.Hybrid && !slices.ContainsFunc(w.nodes, func(n planNode) bool { return n.ID == id }) {
			return true
		}
	}
	return false
}

// withFixed is all hybrid but for the nodes whose owners said otherwise.
func (w *planWorld) withFixed() []member.Role { return w.rolesOf(nil) }

// named is a plan as a map; what is hybrid anyway is left out, and nodes that are not
// there now lose their roles.
func (w *planWorld) named(roles []member.Role) map[member.ID]member.Role {
	out := map[member.ID]member.Role{}
	for i, r := range roles {
		if r != member.Hybrid {
			out[w.nodes[i].ID] = r
		}
	}
	return out
}

// prefillMs is how long a node computes the prompts of a demand.
func (n *planNode) prefillMs(d demand) float64 {
	ms := d.compute / n.rate * 1000
	if n.context > 0 {
		ms *= 1 + (d.prompt-d.compute/2)/n.context
	}
	return ms
}

// itl is the time between tokens of some streams, with the context of a demand.
func (n *planNode) itl(streams float64, d demand) float64 {
	ms := paceAt(n.decode, max(1, streams))
	if c := n.decodeContext; c > 0 {
		ms *= 1 + (d.prompt+d.answer/2)/c
	}
	return ms
}

func (n *planNode) slots() float64 { return float64(max(1, n.Model.Slots)) }

// prefillRps is how many prompts a node computes a second, and sends on if from is not
// the node itself. The published formula takes the batch that is best within the wanted
// time; as prompts in a batch share the rate, that is one.
func (n *planNode) prefillRps(d demand, moveMs float64) float64 {
	return 1000 / max(n.prefillMs(d), moveMs, 1e-3)
}

// decodeRps is how many answers a node writes a second with the most streams that keep
// the wanted time between tokens; if none does, with the best number of them.
func (n *planNode) decodeRps(d demand, wantedMs float64) (rps float64, streams float64, met bool) {
	for b := 1.0; b <= n.slots(); b++ {
		itl := n.itl(b, d)
		r, ok := b*1000/(d.answer*itl), itl <= wantedMs
		if ok && (!met || r > rps) || !ok && !met && r > rps {
			rps, streams, met = r, b, ok
		}
	}
	return rps, streams, met
}

// hybridRps is how many requests a node computes whole a second.
func (n *planNode) hybridRps(d demand, wantedMs float64) float64 {
	rps, _, _ := n.decodeRps(d, wantedMs)
	return 1 / (n.prefillMs(d)/1000 + 1/rps)
}

// moveMs is how long the wire from a node to another takes for a prompt's KV.
func (w *planWorld) moveMs(from, to *planNode, d demand) (move, rtt float64) {
	l, ok := w.links[[2]member.ID{to.ID, from.ID}]
	if !ok || !between(l.Goodput.Value, rateLow, rateHigh) {
		l, ok = w.links[[2]member.ID{from.ID, to.ID}]
	}
	goodput := l.Goodput.Value
	if !ok || !between(goodput, rateLow, rateHigh) {
		goodput = cmp.Or(w.goodput, goodputDefault)
	}
	if between(l.RTTMs.Value, 0, 10_000) {
		rtt = l.RTTMs.Value
	}
	return d.compute * float64(w.in.BytesPerToken) / goodput * 1000, rtt
}

// forecast is what is expected of roles with a demand.
//
// Nodes get requests in the order of their speed, each up to planFill of what it can do,
// then all in proportion. What waits is served in the mean after busy/(1-busy) of what
// one request takes. Prompts that are computed beside answers slow these down; prompts
// that are computed elsewhere have to come over the wire, which counts where it is
// slower than computing.
func (w *planWorld) forecast(roles []member.Role, d demand) Forecast {
	f := Forecast{RequestsPerSecond: d.rps, PromptTokens: d.prompt, CachedTokens: d.prompt - d.compute, AnswerTokens: d.answer}
	if d.rps == 0 || len(w.nodes) == 0 {
		return f
	}
	f.PrefillNeeded, f.DecodeNeeded = w.needed(d)
	var prefill, decode, hybrid []int
	for i, r := range roles {
		switch {
		case kindOf(roles) == allHybrid || r == member.Hybrid:
			hybrid = append(hybrid, i)
		case r == member.Prefill:
			prefill = append(prefill, i)
		default:
			decode = append(decode, i)
		}
	}
	whole := w.whole(hybrid, d)
	parted, moved := w.parted(prefill, decode, d)
	capacity := whole.rps + parted
	f.Utilisation = d.rps / capacity
	toParted := d.rps * parted / capacity
	if whole.rps > 0 && parted > 0 { // whoever is faster first
		toParted = min(d.rps, max(toParted, planFill*parted))
	}
	f.TTFTMs, f.ITLMs = 0, 0
	if rest := d.rps - toParted; rest > 0 {
		ttft, itl := w.runWhole(whole, rest, d)
		f.TTFTMs, f.ITLMs = ttft*rest/d.rps, itl*rest/d.rps
	}
	if toParted > 0 {
		ttft, itl := w.runParted(moved, decode, toParted, d)
		f.TTFTMs, f.ITLMs = f.TTFTMs+ttft*toParted/d.rps, f.ITLMs+itl*toParted/d.rps
	}
	f.costMs = w.cost(f, d)
	return f
}

// station is a node with what it can do, for sharing requests out.
type station struct {
	n     *planNode
	rps   float64
	speed float64 // ms that decide the order
	extra float64 // ms that moving takes beyond computing
}

type stations struct {
	list []station
	rps  float64
}

func (s *stations) add(one station) {
	s.list = append(s.list, one)
	s.rps += one.rps
}

// share gives each station its part of the requests.
func (s *stations) share(rps float64) []float64 {
	slices.SortStableFunc(s.list, func(a, b station) int { return cmp.Compare(a.speed, b.speed) })
	out := make([]float64, len(s.list))
	for i, st := range s.list {
		out[i] = min(rps, planFill*st.rps)
		rps -= out[i]
	}
	left := (1 - planFill) * s.rps
	for i, st := range s.list {
		if left > 0 {
			out[i] += rps * (1 - planFill) * st.rps / left
		}
	}
	return out
}

// wait is the mean time, in ms, that something waits which takes so long.
func wait(serviceMs, busy float64) float64 {
	busy = min(busy, planFull)
	return serviceMs * busy / (1 - busy)
}

func (w *planWorld) whole(nodes []int, d demand) (s stations) {
	for _, i := range nodes {
		n := &w.nodes[i]
		s.add(station{n: n, rps: n.hybridRps(d, w.in.ITLMs), speed: n.prefillMs(d) + d.answer*w.weigh(n.itl(1, d))})
	}
	return s
}

// runWhole is what requests take on nodes that compute all of them.
func (w *planWorld) runWhole(s stations, rps float64, d demand) (ttft, itl float64) {
	for i, part := range s.share(rps) {
		st := s.list[i]
		prompt := st.n.prefillMs(d)
		computing := min(planFull, part*prompt/1000)
		own := st.n.itl(1, d)
		for range 4 { // as many streams as answers take, which take longer the more there are
			streams := min(st.n.slots(), part*d.answer*own/1000)
			alone := st.n.itl(streams, d)
			beside := max(alone, min(planStepMs, alone+prompt))
			own = alone*(1-computing) + beside*computing
		}
		ttft += (prompt + wait(prompt, part/st.rps)) * part / rps
		itl += own * part / rps
	}
	return ttft, itl
}

// parted is how many requests a second the two sides can do, and the prefill side.
func (w *planWorld) parted(prefill, decode []int, d demand) (rps float64, sources stations) {
	if len(prefill) == 0 || len(decode) == 0 {
		return 0, sources
	}
	answers := 0.0
	for _, j := range decode {
		one, _, _ := w.nodes[j].decodeRps(d, w.in.ITLMs)
		answers += one
	}
	for _, i := range prefill {
		n := &w.nodes[i]
		compute, move, more := n.prefillMs(d), 0.0, 0.0
		for _, j := range decode {
			m, rtt := w.moveMs(n, &w.nodes[j], d)
			block := m * min(1, float64(w.in.BlockTokens)/max(d.compute, 1))
			in := d.compute * float64(w.in.BytesPerToken) / w.nodes[j].ram * 1000
			move += m / float64(len(decode))
			more += (max(0, m-compute) + block + rtt + in) / float64(len(decode))
		}
		sources.add(station{n: n, rps: n.prefillRps(d, move), speed: compute + more, extra: more})
	}
	return min(answers, sources.rps), sources
}

// runParted is what requests take that one node begins and another one answers.
func (w *planWorld) runParted(sources stations, decode []int, rps float64, d demand) (ttft, itl float64) {
	for i, part := range sources.share(rps) {
		st := sources.list[i]
		prompt := max(st.n.prefillMs(d), 1000/st.rps)
		ttft += (st.n.prefillMs(d) + st.extra + wait(prompt, part/st.rps)) * part / rps
	}
	var s stations
	for _, j := range decode {
		n := &w.nodes[j]
		one, _, _ := n.decodeRps(d, w.in.ITLMs)
		s.add(station{n: n, rps: one, speed: n.itl(1, d)})
	}
	for i, part := range s.share(rps) {
		n, own := s.list[i].n, s.list[i].n.itl(1, d)
		for range 4 {
			own = n.itl(min(n.slots(), part*d.answer*own/1000), d)
		}
		itl += own * part / rps
		if over := part / s.list[i].rps; over > planFill { // slots are waited for
			ttft += wait(d.answer*own/n.slots(), over-planFill) * part / rps
		}
	}
	return ttft, itl
}

// weigh is that of placement: time between tokens counts little while it is as wanted.
func (w *planWorld) weigh(ms float64) float64 {
	return DefaultTuning().DecodeWeight*min(ms, w.in.ITLMs) + max(0, ms-w.in.ITLMs)
}

// cost is what a request costs, in ms: time to the first token, twice what exceeds the
// wanted one, the answer as weighed, and what piles up.
func (w *planWorld) cost(f Forecast, d demand) float64 {
	return f.TTFTMs + max(0, f.TTFTMs-w.in.TTFTMs) + d.answer*w.weigh(f.ITLMs) + planOverMs*max(0, f.Utilisation-planFull)
}

// needed are the published numbers N_p and N_d for unlike nodes: how many, the fastest
// first, the demand needs for prompts, and for answers, at least one each.
func (w *planWorld) needed(d demand) (prefill, decode int) {
	var prompts, answers []float64
	for i := range w.nodes {
		n := &w.nodes[i]
		prompts = append(prompts, n.prefillRps(d, 0))
		one, _, _ := n.decodeRps(d, w.in.ITLMs)
		answers = append(answers, one)
	}
	return countNeeded(prompts, d.rps), countNeeded(answers, d.rps)
}

// countNeeded is how many of the largest it takes to have so much; one more than there
// are if all do not suffice.
func countNeeded(rates []float64, want float64) int {
	slices.SortFunc(rates, func(a, b float64) int { return cmp.Compare(b, a) })
	sum := 0.0
	for i, r := range rates {
		if sum += r; sum >= want {
			return i + 1
		}
	}
	return len(rates) + 1
}

// candidates are the plans that are compared: all hybrid, and for each size of the
// prefill side the nodes that are best at it, by their rate of prompts over their rate of
// answers, or by the former alone.
func (w *planWorld) candidates(d demand) [][]member.Role {
	out := [][]member.Role{w.withFixed()}
	if !w.in.Transfers || w.in.BytesPerToken <= 0 || w.in.BlockTokens <= 0 {
		return out
	}
	var free []int
	fixedPrefill, fixedDecode := 0, 0
	for i := range w.nodes {
		switch n := &w.nodes[i]; {
		case !n.Fixed && n.Model.Ready:
			free = append(free, i)
		case n.Fixed && n.Role == member.Prefill:
			fixedPrefill++
		case n.Fixed && n.Role == member.Decode:
			fixedDecode++
		}
	}
	step := max(1, len(free)/planCandidates)
	for _, by := range []func(n *planNode) float64{
		func(n *planNode) float64 { r, _, _ := n.decodeRps(d, w.in.ITLMs); return n.prefillRps(d, 0) / r },
		func(n *planNode) float64 { return n.prefillRps(d, 0) },
	} {
		order := slices.Clone(free)
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(by(&w.nodes[b]), by(&w.nodes[a])) })
		for k := 0; k <= len(order); k += step {
			if k+fixedPrefill < 1 || len(order)-k+fixedDecode < 1 {
				continue // at least one each
			}
			roles := w.withFixed()
			for at, i := range order {
				roles[i] = member.Decode
				if at < k {
					roles[i] = member.Prefill
				}
			}
			out = append(out, roles)
		}
	}
	return out
}

// neighbours are the candidates that differ from the plan that holds in one node, and
// all hybrid.
func (w *planWorld) neighbours(d demand) [][]member.Role {
	all := w.candidates(d)
	return slices.DeleteFunc(all, func(roles []member.Role) bool {
		differ := 0
		for i := range roles {
			if roles[i] != w.now[i] {
				differ++
			}
		}
		return kindOf(w.now) == split && kindOf(roles) == split && differ > 1
	})
}

// waiting is how long, in ms, the least busy node that computes prompts has to go until
// it begins another.
func (w *planWorld) waiting() float64 {
	least := math.Inf(1)
	for i := range w.nodes {
		if n := &w.nodes[i]; kindOf(w.now) == allHybrid || w.now[i] != member.Decode {
			least = min(least, float64(max(0, n.Model.Waiting))/n.rate*1000)
		}
	}
	if math.IsInf(least, 1) {
		return 0
	}
	return least
}
