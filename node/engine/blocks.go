package engine

import (
	"slices"
	"time"
)

// Blocks connects a sequence with KV blocks that are kept outside the engine. All
// methods but Start are called on the owner goroutine: they must neither wait nor
// do I/O, and must not call the engine.
type Blocks interface {
	// Start begins to fetch what is kept of the prompt; wake is called whenever
	// Restorable has more to say. It is called once, by Submit.
	Start(wake func())
	// Restorable returns the rows of the first tokens of the prompt that are at hand,
	// checked, and of how many tokens. soon is how many it may be when wake is called
	// next; 0: nothing more comes. The rows stay valid until the next call of a method.
	Restorable() (rows []Rows, tokens, soon int)
	// Restored says that the rows of the first tokens were restored, and that so many
	// tokens need not be computed.
	Restored(tokens int)
	// Size is the number of tokens of one block.
	Size() int
	// Room returns memory for the rows of the block tokens[from:to], which the engine
	// fills before it calls Kept; nil if the block is held, or cannot be.
	Room(tokens []Token, from, to int) []byte
	// Kept ends what Room began; not ok: the memory was not filled.
	Kept(ok bool)
	// Close ends the sequence's use of blocks. It may be called on any goroutine.
	Close()
}

// exportTime is what the export of blocks may add to one step.
const exportTime = 2 * time.Millisecond

// keepBlocks hands the rows of the blocks that s has completed to its Blocks. What
// takes too long for one step is left to the next ones, unless all must go, because
// the sequence ends, or because nobody waits for a token meanwhile: then others may
// wait for the blocks.
func (e *Engine) keepBlocks(s *Sequence, all bool) {
	if s.blocks == nil || s.retried || s.entry == nil {
		return
	}
	size := s.blocks.Size()
	begin := e.config.Now()
	for s.kept+size <= s.computed {
		from, to := s.kept, s.kept+size
		if room := s.blocks.Room(s.tokens, from, to); room != nil {
			start := e.config.Now()
			err := e.backend.Export(s.entry.id, from, to, room)
			if err == nil {
				e.pace.exported(len(room), e.config.Now().Sub(start))
			}
			s.blocks.Kept(err == nil)
			if err != nil {
				e.config.Hooks.KVFailed(s.label, err)
			} else {
				e.stats.Exported += int64(size)
			}
		}
		s.kept = to
		if !all && e.config.Now().Sub(begin) > exportTime {
			return
		}
	}
}

// restoreMin is how many tokens a restore must spare where nothing was measured.
const restoreMin = 16

// restorable returns the rows with which s should begin instead of the n tokens
// that are resident; none if those are as good. pending: rows that are worth it are
// on their way.
func (s *Sequence) restorable(e *Engine, n int) (rows []Rows, tokens int, pending bool) {
	if s.blocks == nil || s.noReuse || s.noRestore || s.retried {
		return nil, 0, false
	}
	rows, tokens, soon := s.blocks.Restorable()
	size := e.info.KV.Bytes()
	if most := len(s.tokens) - 1; e.pace.worthRestoring(min(soon, most), min(soon, most)-n, size) {
		return nil, 0, true
	}
	for tokens > len(s.tokens)-1 { // logits of the last token are wanted
		last := rows[len(rows)-1]
		rows, tokens = rows[:len(rows)-1], tokens-last.Tokens
	}
	if !e.pace.worthRestoring(tokens, tokens-n, size) {
		return nil, 0, false
	}
	return rows, tokens, false
}

// restoreTime is what the import of kept rows may add to one step.
const restoreTime = 2 * time.Millisecond

// restoreRows writes kept rows into the cache, those of the oldest sequence first,
// and tells whether any were. If others wait for their next token it ends after
// restoreTime and the rest follows with the next steps.
func (e *Engine) restoreRows() bool {
	begin, done := e.config.Now(), false
	waiting := slices.ContainsFunc(e.running, (*Sequence).ready)
	for _, s := range e.running {
		for len(s.rows) > 0 {
			n := len(s.rows)
			if waiting {
				n = e.pace.restorable(s.rows, restoreTime-e.config.Now().Sub(begin))
			}
			if n == 0 && done {
				return true
			}
			e.restore(s, max(n, 1))
			done = true
		}
	}
	return done
}

// restore writes the next n pieces of the kept rows of s. A sequence of which one
// cannot be written begins without kept rows.
func (e *Engine) restore(s *Sequence, n int) {
	begin := e.config.Now()
	piece, tokens := s.rows[:n], 0
	for _, r := range piece {
		tokens += r.Tokens
	}
	if err := e.backend.Import(s.entry.id, s.computed, piece); err != nil {
		e.config.Hooks.KVFailed(s.label, err)
		e.giveUp(s)
		s.rows, s.noRestore = nil, true
		e.place(s)
		return
	}
	e.pace.restored(tokens*e.info.KV.Bytes(), e.config.Now().Sub(begin))
	s.rows = s.rows[n:]
	s.computed += tokens
	e.cache.grow(s.entry, s.tokens[:s.computed:s.computed])
	if len(s.rows) == 0 {
		s.blocks.Restored(s.computed)
		restored := min(s.computed, s.prompt)
		e.stats.Restored += int64(restored)
		s.result.RestoredTokens = restored
		e.reused(s)
	}
}
