package engine

import "time"

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
// takes too long for one step is left to the next ones, unless all must go.
func (e *Engine) keepBlocks(s *Sequence, all bool) {
	if s.blocks == nil || s.retried || s.entry == nil {
		return
	}
	size := s.blocks.Size()
	begin := e.config.Now()
	for s.kept+size <= s.computed {
		from, to := s.kept, s.kept+size
		if room := s.blocks.Room(s.tokens, from, to); room != nil {
			err := e.backend.Export(s.entry.id, from, to, room)
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
	if s.blocks == nil || s.noReuse || s.retried {
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

// restore begins s with rows that were kept. False: it could not, and s has no
// entry.
func (e *Engine) restore(s *Sequence, rows []Rows, tokens int) bool {
	begin := e.config.Now()
	en, err := e.cache.restore(s, rows, tokens)
	if err != nil {
		e.config.Hooks.KVFailed(s.label, err)
		e.cache.drop(en)
		return false
	}
	took := e.config.Now().Sub(begin)
	e.pace.restored(tokens*e.info.KV.Bytes(), took)
	s.entry, s.kept = en, max(s.kept, tokens)
	s.blocks.Restored(tokens)
	restored := min(tokens, s.prompt)
	e.stats.Restored += int64(restored)
	s.result.RestoredTokens = restored
	return true
}
