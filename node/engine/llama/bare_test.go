package llama

import (
	"context"
	"errors"
	"testing"

	"tandem/node/models/gguf/gguftest"
)

func TestBare(t *testing.T) {
	o := Options{Path: writeModel(t, gguftest.Llama().Writer()), Context: 128, Sequences: 2, Batch: 32, Threads: 1}
	r, err := Bare(context.Background(), o, BareWork{Prompt: 70, Generate: 10, Sequences: 2})
	if err != nil || r.Prefill <= 0 || r.Decode <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, w := range []BareWork{{0, 1, 1}, {1, -1, 1}, {1, 1, 0}, {1, 1, 3}, {100, 100, 1}} {
		if _, err := Bare(context.Background(), o, w); err == nil {
			t.Errorf("no error for %+v", w)
		}
	}
}

func TestBareStops(t *testing.T) {
	m := tiny(t, Options{})
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	if _, err := m.bare(ctx, BareWork{Prompt: 10, Generate: 400, Sequences: 1}); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	// The cache is empty again.
	answer(t, m, plain(), tokenize(t, m, "the end"), 3)
}
