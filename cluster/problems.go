package cluster

import (
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Limits of what is shown and logged about others.
const (
	problemsMax    = 64
	problemLogEach = time.Minute     // the same cause for the same peer
	problemShown   = 3 * time.Minute // after it last came up, unless it is cleared
)

// problems are sentences about what does not work, each under a key for its cause and
// peer. What others do can add sentences; it cannot fill memory or the log.
type problems struct {
	log *slog.Logger

	mu   sync.Mutex
	byID map[string]problem
}

type problem struct {
	text   string
	since  time.Time
	seen   time.Time
	logged time.Time
	forAll bool // until it is cleared
}

func newProblems(log *slog.Logger) *problems {
	return &problems{log: log, byID: map[string]problem{}}
}

// set shows a sentence for a while, and logs it at most once a minute.
func (p *problems) set(key, text string) { p.put(key, text, false) }

// keep shows a sentence until it is cleared.
func (p *problems) keep(key, text string) { p.put(key, text, true) }

func (p *problems) put(key, text string, forAll bool) {
	now := time.Now()
	p.mu.Lock()
	have, known := p.byID[key]
	if !known {
		p.makeRoomLocked()
		have.since = now
	}
	say := !known || now.Sub(have.logged) >= problemLogEach
	if say {
		have.logged = now
	}
	have.text, have.seen, have.forAll = text, now, forAll
	p.byID[key] = have
	p.mu.Unlock()
	if say {
		p.log.Warn(text)
	}
}

// makeRoomLocked drops the sentence that has not come up for longest.
func (p *problems) makeRoomLocked() {
	if len(p.byID) < problemsMax {
		return
	}
	oldest := ""
	for key, problem := range p.byID {
		if oldest == "" || problem.seen.Before(p.byID[oldest].seen) {
			oldest = key
		}
	}
	delete(p.byID, oldest)
}

// clear takes a sentence back; it says whether there was one.
func (p *problems) clear(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, had := p.byID[key]
	delete(p.byID, key)
	return had
}

// list is what is to be shown, the longest standing first.
func (p *problems) list() []string {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := make([]problem, 0, len(p.byID))
	for key, problem := range p.byID {
		if !problem.forAll && now.Sub(problem.seen) > problemShown {
			delete(p.byID, key)
			continue
		}
		shown = append(shown, problem)
	}
	slices.SortFunc(shown, func(a, b problem) int {
		if c := a.since.Compare(b.since); c != 0 {
			return c
		}
		if a.text < b.text {
			return -1
		}
		return 1
	})
	out := make([]string, len(shown))
	for i, problem := range shown {
		out[i] = problem.text
	}
	return out
}
