package node_test

import (
	"testing"

	"tandem/node"
	"tandem/node/engine/enginetest"
	"tandem/node/models/builtin"
	"tandem/node/nodetest"
)

// The model in the program answers what it was made for, through the real engine
// and all that is above it.
func TestTheBuiltInModelKnowsTandem(t *testing.T) {
	const wanted = 40
	n := nodetest.Start(t, enginetest.Options{}, func(c *node.Config) {
		c.LoadBackend, c.Models, c.Context = nil, []string{builtin.Name}, 512
	})
	questions, err := builtin.Questions()
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for _, q := range questions {
		a, _ := ask(t, n, `{"model":"tandem-tiny","temperature":0,"max_tokens":96,"messages":[{"role":"user","content":`+quote(q.Question)+`}]}`, 200)
		if text := a.Choices[0].Message.Content; q.Right(text) {
			right++
		} else {
			t.Logf("wrong: %q got %q, want %v", q.Question, text, q.Want)
		}
	}
	if right < wanted {
		t.Errorf("%d of %d questions answered right; at least %d are wanted", right, len(questions), wanted)
	}
	t.Logf("%d of %d right", right, len(questions))
}
