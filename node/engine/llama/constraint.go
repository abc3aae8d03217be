package llama

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"tandem/node/engine"
	"tandem/node/engine/llama/gbnf"
)

// constraint is the grammar of one sequence at the end of its text.
type constraint struct {
	grammar *gbnf.Grammar
	state   *gbnf.State

	// A lazy grammar sleeps until a trigger matches the text.
	asleep   bool
	triggers []*trigger
	text     []byte
}

func newConstraint(g *gbnf.Grammar, patterns []string) (*constraint, error) {
	if len(patterns) > triggersMax {
		return nil, &engine.GrammarError{Reason: fmt.Sprintf("it has %d triggers, at most %d are allowed", len(patterns), triggersMax)}
	}
	c := &constraint{grammar: g, state: g.Start(), asleep: len(patterns) > 0}
	for _, p := range patterns {
		t, err := newTrigger(p)
		if err != nil {
			return nil, &engine.GrammarError{Reason: "trigger: " + err.Error()}
		}
		c.triggers = append(c.triggers, t)
	}
	return c, nil
}

// push appends what the model has written; literal text may only be what the
// grammar spells out. False: the grammar refuses it, and nothing has changed.
func (c *constraint) push(text []byte, literal bool) bool {
	if c.asleep {
		c.text = append(c.text, text...)
		for _, t := range c.triggers {
			t.push(text)
			if c.wake(t) {
				break
			}
		}
		return true
	}
	advance := c.grammar.Advance
	if literal {
		advance = c.grammar.AdvanceLiteral
	}
	next := advance(c.state, text)
	if next != nil {
		c.state = next
	}
	return next != nil
}

// wake hands the text from the trigger's group on to the grammar. If the grammar
// refuses that text the model only talked about what wakes it, and sleep goes on.
func (c *constraint) wake(t *trigger) bool {
	for {
		at, ok := t.match()
		if !ok {
			return false
		}
		if next := c.grammar.Advance(c.state, c.text[at:]); next != nil {
			c.state, c.asleep, c.text, c.triggers = next, false, nil, nil
			return true
		}
		if !t.forget(at) {
			return false
		}
	}
}

// grammars keeps the compiled grammars that were used last, and with them what
// they have learned about the vocabulary.
type grammars struct {
	mu     sync.Mutex
	recent []keptGrammar // the latest last

	once   sync.Once
	tokens *gbnf.Tokens
}

type keptGrammar struct {
	source  string
	grammar *gbnf.Grammar
}

// grammarsMax is how many are kept; each may hold some ten MiB.
const grammarsMax = 16

func (s *grammars) compile(source string) (*gbnf.Grammar, error) {
	if g := s.lookup(source); g != nil {
		return g, nil
	}
	g, err := gbnf.Compile(source)
	if err != nil {
		var e *gbnf.Error
		if errors.As(err, &e) {
			return nil, &engine.GrammarError{Reason: e.Error()}
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.recent) == grammarsMax {
		s.recent = slices.Delete(s.recent, 0, 1)
	}
	s.recent = append(s.recent, keptGrammar{source, g})
	return g, nil
}

func (s *grammars) lookup(source string) *gbnf.Grammar {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.recent, func(k keptGrammar) bool { return k.source == source })
	if i < 0 {
		return nil
	}
	k := s.recent[i]
	s.recent = append(slices.Delete(s.recent, i, i+1), k)
	return k.grammar
}

// vocabulary is what grammars may choose from. Control tokens only stand for what
// a grammar spells out, such as the tag that begins a call, never for one of many
// possible texts: clients do not see them. It takes some time the first time.
func (s *grammars) vocabulary(v *vocab) *gbnf.Tokens {
	s.once.Do(func() {
		s.tokens = gbnf.NewTokens(v.Size(), func(t int) (text []byte, literal bool) {
			if v.flags[t]&flagEOG != 0 {
				return nil, false
			}
			return v.piece(t), v.flags[t]&flagControl != 0
		})
	})
	return s.tokens
}
