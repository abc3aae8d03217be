package engine

// followMin is the number of tokens that must be spared to make waiting for
// another sequence worth a step.
const followMin = 16

// place finds the rows that s begins with: its own none, those that are resident,
// those that are kept outside, or those that an older sequence is about to compute.
// In the last case, and while kept rows are being fetched, s holds nothing and
// waits; settle comes back to it.
//
// A leader is always older than its follower, so that there are no circles, and
// the oldest one computes: somebody always goes on.
func (e *Engine) place(s *Sequence) {
	source, n := e.resident(s)
	rows, kept, pending := s.restorable(e, n)
	if s.fetching = pending; pending {
		return
	}
	s.leader, s.shared = e.findLeader(s)
	if s.leader != nil && s.shared >= max(n, kept)+followMin {
		return
	}
	s.leader = nil
	if len(rows) > 0 {
		s.entry, s.rows, s.kept = e.cache.empty(s), rows, max(s.kept, kept)
		return // restoreRows goes on
	}
	e.begin(s, source, n)
	s.computed = len(s.entry.tokens)
	e.reused(s)
}

// reused takes note of the rows that s begins with.
func (e *Engine) reused(s *Sequence) {
	reused := min(s.computed, s.prompt)
	e.stats.Reused += int64(reused)
	s.cached = min(s.cached, reused)
	s.result.CachedTokens = s.cached
}

// resident finds the entry that spares most of the tokens of s, and how many.
func (e *Engine) resident(s *Sequence) (source *entry, n int) {
	if s.noReuse || s.retried {
		return nil, 0
	}
	return e.cache.match(s.tokens, s.salt)
}

// begin gives s the first n tokens of a resident entry.
func (e *Engine) begin(s *Sequence, source *entry, n int) {
	en, err := e.cache.open(s, source, n)
	if err != nil {
		e.config.Hooks.KVFailed(s.label, err)
	}
	s.entry = en
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

// settle places the sequences that wait for the rows of a leader that has computed
// what they share, or never will, and those whose kept rows may have come. What an
// ended leader had computed is resident by now.
func (e *Engine) settle() {
	for _, s := range e.running {
		if l := s.leader; l != nil && (l.computed >= s.shared || !l.running) || s.fetching {
			e.place(s)
		}
	}
}
