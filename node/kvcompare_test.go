package node

import (
	"math"
	"strings"
	"testing"

	"tandem/kvstore/block"
	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// saw is an output that chose the first of tokens, which fall off by 1 each from
// the given log-probability.
func saw(best float32, tokens ...engine.Token) engine.Output {
	l := &engine.Logprob{Logprob: best}
	for i, t := range tokens {
		l.Top = append(l.Top, engine.TokenLogprob{Token: t, Logprob: best - float32(i)})
	}
	return engine.Output{Token: tokens[0], Logprob: l}
}

func TestCompareOutputs(t *testing.T) {
	same := []engine.Output{saw(-0.5, 1, 2, 3), saw(-0.25, 4, 5, 6)}
	for name, tt := range map[string]struct {
		cold, restored []engine.Output
		difference     float64
		at, positions  int
		equal          bool
	}{
		"equal":              {same, same, 0, -1, 2, true},
		"a little off":       {same, []engine.Output{saw(-0.5, 1, 2, 3), saw(-0.375, 4, 5, 6)}, 0.125, -1, 2, true},
		"another token":      {same, []engine.Output{saw(-0.5, 2, 1, 3), saw(-9, 7)}, 1, 0, 1, false},
		"later":              {same, []engine.Output{saw(-0.5, 1, 2, 3), saw(-0.25, 5, 4, 6)}, 1, 1, 2, false},
		"other alternatives": {same, []engine.Output{saw(-0.5, 1, 2, 3), saw(-0.25, 4, 8, 9)}, 1, -1, 2, true},
		"shorter":            {same, same[:1], 0, -1, 1, false},
		"no number":          {same, []engine.Output{saw(float32(math.NaN()), 1, 2, 3), same[1]}, differenceMax, -1, 2, true},
		"infinite":           {same, []engine.Output{saw(float32(math.Inf(-1)), 1, 2, 3), same[1]}, differenceMax, -1, 2, true},
		"no alternatives":    {same, []engine.Output{{Token: 1}, same[1]}, differenceMax, -1, 2, true},
	} {
		c := compareOutputs(tt.cold, tt.restored)
		if c.LargestDifference != tt.difference || c.DifferentAt != tt.at || c.Positions != tt.positions || c.EqualText != tt.equal {
			t.Errorf("%s: %+v", name, c)
		}
		if c.DifferentAt >= 0 && c.Margin != 1 {
			t.Errorf("%s: margin %v", name, c.Margin)
		}
	}
}

func TestWordsAreBounded(t *testing.T) {
	w, vocab := newKVWords(), enginetest.Vocab{}
	tokens, err := vocab.Tokenize(strings.Repeat("  one two\n\n", 40), false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range wordsEntries + 500 {
		w.note(vocab, []block.ID{{byte(i), byte(i >> 8), 1}}, tokens, len(tokens))
	}
	if n := len(w.mu.byID); n != wordsEntries {
		t.Errorf("%d blocks are remembered", n)
	}
	last := wordsEntries + 499
	if got := w.of(block.ID{byte(last), byte(last >> 8), 1}); got != "one two one" {
		t.Errorf("words %q", got)
	}
	if got := w.of(block.ID{7}); got != "" {
		t.Errorf("words of a block that nobody asked for: %q", got)
	}
}
