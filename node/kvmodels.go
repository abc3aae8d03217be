package node

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"tandem/kvstore"
	"tandem/kvstore/block"
	"tandem/node/engine"
)

// kvModels is what is known of the models that were loaded since the start, also of
// those that are unloaded: whose blocks are whose, and what they spared.
type kvModels struct {
	mu struct {
		sync.Mutex
		byName map[string]*kvModel
	}
}

// kvModel is one of them.
type kvModel struct {
	name        string
	fingerprint block.Fingerprint
	spared      int64         // prompt tokens that were restored
	computed    int64         // prompt tokens over which prefill was measured
	prefill     time.Duration // that they took, from the first step to the first token
}

// measureMin is how many tokens a prompt must have computed for its prefill to tell
// what a token costs: in shorter ones the fixed cost of a step shows.
const measureMin = 32

// learn takes note of a model whose blocks are kept from now on.
func (k *keeper) learn(name string, m *keptModel, vocab engine.Vocab) {
	if k == nil || m.reason != "" {
		return
	}
	m.name, m.vocab = name, vocab
	k.models.mu.Lock()
	defer k.models.mu.Unlock()
	k.models.get(name).fingerprint = m.fingerprint
}

// finished takes note of what a sequence cost. It is called by engines.
func (k *keeper) finished(name, label string, r engine.Result) {
	if k == nil || label == compareLabel || label == benchLabel {
		return
	}
	k.models.mu.Lock()
	defer k.models.mu.Unlock()
	m := k.models.get(name)
	m.spared += int64(r.RestoredTokens)
	if computed := r.PromptTokens - r.CachedTokens; computed >= measureMin && r.Prefill > 0 {
		m.computed += int64(computed)
		m.prefill += r.Prefill
	}
}

// get is the entry of a model, under the lock.
func (ms *kvModels) get(name string) *kvModel {
	m := ms.mu.byName[name]
	if m == nil {
		if ms.mu.byName == nil {
			ms.mu.byName = map[string]*kvModel{}
		}
		m = &kvModel{name: name}
		ms.mu.byName[name] = m
	}
	return m
}

// list copies all entries, by name.
func (ms *kvModels) list() []kvModel {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	out := make([]kvModel, 0, len(ms.mu.byName))
	for _, m := range ms.mu.byName {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b kvModel) int { return cmp.Compare(a.name, b.name) })
	return out
}

// secondsPerToken is what a prompt token takes to compute; false: it was not
// measured.
func (m *kvModel) secondsPerToken() (float64, bool) {
	if m.computed == 0 {
		return 0, false
	}
	return m.prefill.Seconds() / float64(m.computed), true
}

// Bounds of what is remembered of the text of prefixes.
const (
	wordsEntries = 8192
	wordsTokens  = 16 // of a block that are put into words
	wordsBytes   = 80
)

// kvWords remembers the first words of the blocks that requests asked for, so that a
// person knows them again. It is made only where there are no tenants to keep apart.
type kvWords struct {
	mu struct {
		sync.Mutex
		byID map[block.ID]string
	}
}

func newKVWords() *kvWords {
	w := &kvWords{}
	w.mu.byID = map[block.ID]string{}
	return w
}

// note remembers the blocks of a prompt.
func (w *kvWords) note(vocab engine.Vocab, ids []block.ID, prompt []engine.Token, size int) {
	if w == nil || vocab == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, id := range ids {
		if _, known := w.mu.byID[id]; known {
			continue
		}
		for other := range w.mu.byID {
			if len(w.mu.byID) < wordsEntries {
				break
			}
			delete(w.mu.byID, other)
		}
		w.mu.byID[id] = firstWords(vocab, prompt[i*size:min((i+1)*size, len(prompt))])
	}
}

// of is what is remembered of a block; "": nothing.
func (w *kvWords) of(id block.ID) string {
	if w == nil {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.byID[id]
}

// wordsOf are the words that tell a prefix from others.
func (k *keeper) wordsOf(p kvstore.Prefix) string {
	if p.Start > 0 {
		if words := k.words.of(p.ID); words != "" {
			return words
		}
	}
	return k.words.of(p.First)
}

// firstWords is the text of the first tokens on one line, without control tokens.
func firstWords(vocab engine.Vocab, tokens []engine.Token) string {
	var text []byte
	for _, t := range tokens[:min(wordsTokens, len(tokens))] {
		text = append(text, vocab.Piece(t, false)...)
	}
	line := strings.Join(strings.Fields(validText(text)), " ")
	if len(line) > wordsBytes {
		line = validText([]byte(line[:wordsBytes]))
	}
	return line
}
