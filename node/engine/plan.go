package engine

import "time"

// plan fills e.work with what one step computes, and tells whether that is
// anything: every sequence that lacks one token gets it, the others
// share the budget for prompts. A suspect runs alone, every second step if others
// have work, too.
func (e *Engine) plan() bool {
	e.work = e.work[:0]
	suspect, others := e.survey()
	e.flip = suspect != nil && (!e.flip || others == 0)
	if e.flip {
		e.work = append(e.work, work{s: suspect, n: min(suspect.pending(), e.budget(others))})
		return true
	}
	prompts := 0
	for _, s := range e.running {
		switch {
		case !s.ready() || s.suspect:
		case s.pending() == 1:
			e.work = append(e.work, work{s: s, n: 1})
		default:
			prompts++
		}
	}
	if prompts > 0 {
		e.share(prompts, e.budget(len(e.work)))
	}
	return len(e.work) > 0
}

// survey finds the first suspect and counts the other sequences that have work.
func (e *Engine) survey() (suspect *Sequence, others int) {
	for _, s := range e.running {
		switch {
		case !s.ready():
		case !s.suspect:
			others++
		case suspect == nil:
			suspect = s
		}
	}
	return suspect, others
}

// share divides a budget of tokens among the sequences that catch up: equal parts,
// so that a short prompt does not wait for a long one, and what short prompts
// leave goes to the oldest.
func (e *Engine) share(prompts, budget int) {
	part, skip := budget/prompts, 0
	if part == 0 {
		part, skip = 1, e.rotation%prompts
		e.rotation += budget
	}
	begin := len(e.work)
	for round := range 2 { // the first skip sequences come last
		i := 0
		for _, s := range e.running {
			if !s.ready() || s.suspect || s.pending() == 1 {
				continue
			}
			if i++; (i <= skip) != (round == 1) || budget == 0 {
				continue
			}
			n := min(part, s.pending(), budget)
			e.work = append(e.work, work{s: s, n: n})
			budget -= n
		}
	}
	for i := begin; i < len(e.work) && budget > 0; i++ {
		w := &e.work[i]
		more := min(w.s.pending()-w.n, budget)
		w.n += more
		budget -= more
	}
}

// budget is how many prompt tokens a step may compute beside streams that wait for
// it.
func (e *Engine) budget(streams int) int {
	limit := aloneTime
	if e.background() {
		limit = backgroundTime
	}
	n := e.pace.fit(e.info.Batch, limit)
	if streams > 0 {
		n = e.pace.fit(e.config.StepBudget, e.config.StepTime)
	}
	return max(min(n, e.info.Batch-streams), 1)
}

// Bounds of steps.
const (
	// aloneTime is what a step may last when nobody waits for a token: as long as a
	// cancelled or a new request waits to be seen.
	aloneTime = time.Second
	// backgroundTime is the same while only background requests run: a request that
	// comes waits for their step at most.
	backgroundTime = 250 * time.Millisecond
	// unknownBudget bounds a step before anything was measured.
	unknownBudget = 128
	// budgetMin keeps the fixed cost of a step small against its use.
	budgetMin = 16
)

// stepMemory is over how many steps the time of one is averaged.
const stepMemory = 16

// pace is what was measured: the time that one token of a prompt takes, and the
// rate at which kept rows are restored.
type pace struct {
	known    bool
	perToken time.Duration
	restore  float64 // bytes per second; 0: nothing was measured
	export   float64 // likewise
}

// observe learns from a step that was mostly prompts.
func (p *pace) observe(prompt, total int, took time.Duration) {
	if prompt < budgetMin || prompt < total/2 {
		return
	}
	each := took / time.Duration(total)
	if !p.known {
		p.known, p.perToken = true, each
		return
	}
	p.perToken += (each - p.perToken) / 4
}

// fit halves n until that many tokens should take no longer than limit. Halving,
// unlike dividing, makes the same steps of the same prompt whatever the noise of
// the clock.
func (p *pace) fit(n int, limit time.Duration) int {
	if !p.known {
		return min(n, unknownBudget)
	}
	for n/2 >= budgetMin && time.Duration(n)*p.perToken > limit {
		n /= 2
	}
	return n
}

// restored learns from a restore.
func (p *pace) restored(bytes int, took time.Duration) {
	if took <= 0 {
		return
	}
	learnRate(&p.restore, bytes, took)
}

// exported learns from an export.
func (p *pace) exported(bytes int, took time.Duration) {
	if took > 0 {
		learnRate(&p.export, bytes, took)
	}
}

func learnRate(average *float64, bytes int, took time.Duration) {
	rate := float64(bytes) / took.Seconds()
	if *average == 0 {
		*average = rate
	}
	*average += (rate - *average) / 4
}

// restorable is how many of the pieces can be restored in a time; 0 if nothing was
// measured.
func (p *pace) restorable(pieces []Rows, limit time.Duration) int {
	bytes := int(p.restore * limit.Seconds())
	for i, r := range pieces {
		if bytes -= len(r.Data); bytes < 0 {
			return i
		}
	}
	return len(pieces)
}

// worthRestoring tells whether to restore tokens, of which so many are spared,
// should take less time than to compute the spared ones.
func (p *pace) worthRestoring(tokens, spared, tokenBytes int) bool {
	if !p.known || p.restore == 0 {
		return spared >= restoreMin
	}
	cost := time.Duration(float64(tokens*tokenBytes) / p.restore * float64(time.Second))
	return spared > 0 && cost < time.Duration(spared)*p.perToken
}
