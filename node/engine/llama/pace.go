package llama

import "time"

// pace adapts the number of compute threads to a machine that has other work.
// ggml's threads wait for each other in a loop after every operation: as soon as
// one of them is not running, all others only spin. On two cores shared with
// other programs two threads were found to be 10 to 30 times slower than one.
//
// The sign is the caller's own thread: it computes or spins all the time, so it
// runs less than all the time only if others have its core. A few windows in turn
// must show it, since requests that come and go take a core for a moment. Then the
// number goes down, and up again after a calm time that doubles with each failure.
type pace struct {
	most, now int

	wall, cpu time.Duration // of the window that is measured
	strikes   int           // windows in turn that were disturbed
	calm      time.Duration // without disturbance
	patience  time.Duration // the calm that more threads need
}

const (
	paceWindow   = 40 * time.Millisecond // of computation
	paceStrikes  = 3
	disturbed    = 0.80 // share of the time that the thread ran
	undisturbed  = 0.95
	patienceMin  = 250 * time.Millisecond
	patienceMax  = 16 * time.Second
	forgivenCalm = 8 * patienceMin // with all threads, until failures are forgotten
)

func newPace(threads int) *pace { return &pace{most: threads, now: threads, patience: patienceMin} }

// observe takes what one computation took, and tells whether the number has
// changed.
func (p *pace) observe(wall, cpu time.Duration) bool {
	if p.most == 1 {
		return false
	}
	p.wall += wall
	p.cpu += cpu
	if p.wall < paceWindow {
		return false
	}
	share := float64(p.cpu) / float64(p.wall)
	p.calm += p.wall
	p.wall, p.cpu = 0, 0
	if share >= disturbed {
		p.strikes = 0
	}
	switch {
	case share < disturbed:
		p.calm = 0
		if p.strikes++; p.strikes >= paceStrikes {
			p.strikes = 0
			return p.slower()
		}
	case share < undisturbed:
		p.calm = 0
	case p.now < p.most:
		return p.calm >= p.patience && p.faster()
	case p.calm >= forgivenCalm:
		p.patience = patienceMin
	}
	return false
}

func (p *pace) slower() bool {
	p.calm = 0
	if p.now == 1 {
		return false
	}
	p.now -= max(1, p.now/4)
	p.patience = min(2*p.patience, patienceMax)
	return true
}

func (p *pace) faster() bool {
	p.calm = 0
	p.now = min(p.most, p.now+max(1, p.now/4))
	return true
}
