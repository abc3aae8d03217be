package engine

// followMin is the number of tokens that must be spared to make waiting for
// another sequence worth a step.
const followMin = 16

// place finds the rows that s begins with: its own none, those that are in the
// cache, or those that an older sequence is about to compute. In the last case s
// holds nothing and waits; settleFollowers comes back to it.
//
// A leader is always older than its follower, so that there are no circles, and
// the oldest one computes: somebody always goes on.
func (e *Engine) place(s *Sequence) {
	var source *entry
	var n int
	if !s.noReuse && !s.retried {
		source, n = e.cache.match(s.tokens, s.salt)
	}
	s.leader, s.shared = e.findLeader(s)
	if s.leader != nil && s.shared >= n+followMin {
		return
	}
	s.leader = nil
	s.entry = e.cache.open(s, source, n)
	s.computed = len(s.entry.tokens)
	reused := min(s.computed, s.prompt)
	e.stats.Reused += int64(reused)
	s.cached = min(s.cached, reused)
	s.result.CachedTokens = s.cached
}

// findLeader returns the older sequence that will have most of the tokens of s in
// the cache once it has caught up, and how many.
func (e *Engine) findLeader(s *Sequence) (leader *Sequence, shared int) {
	for _, r := range e.running {
		// One that is paused may wait for its reader for ever.
		catchingUp := r.pending() > 1 && !r.paused && !r.suspect
		if r.number >= s.number || !catchingUp || !e.mayShare(s, r) {
			continue
		}
		if n := commonPrefix(r.tokens, s.tokens[:len(s.tokens)-1]); n > shared {
			leader, shared = r, n
		}
	}
	return leader, shared
}

// settleFollowers places the sequences whose leader has computed what they share,
// or never will. What an ended leader had computed is resident by now.
func (e *Engine) settleFollowers() {
	for _, s := range e.running {
		if l := s.leader; l != nil && (l.computed >= s.shared || !l.running) {
			e.place(s)
		}
	}
}
