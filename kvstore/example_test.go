package kvstore_test

import (
	"context"
	"fmt"
	"log"

	"tandem/kvstore"
	"tandem/kvstore/block"
)

// What one request computed is found by the next that begins alike.
func Example() {
	shape := block.Shape{Layers: []block.Layer{{K: block.Row{Type: block.F16, Values: 64}, V: block.Row{Type: block.F16, Values: 64}}}}
	key, model := block.Key{1}, block.Fingerprint{2}
	store, err := kvstore.Open(kvstore.Options{
		RAMBytes: 1 << 20,
		Shapes:   func(f block.Fingerprint) (block.Shape, bool) { return shape, f == model },
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	defer store.Close(ctx)

	prompt := []block.Token{10, 11, 12, 13, 14, 15, 16, 17, 18}
	root := key.Root(model, "tenant")
	ids := key.Chain(root, prompt, 4) // two full blocks, and a token left over
	parent := root
	for i, id := range ids {
		w, ok := store.Reserve(block.Header{
			ID: id, Parent: parent, Fingerprint: model, Start: 4 * i, Count: 4,
			Tokens: prompt[4*i : 4*i+4], PayloadBytes: 4 * shape.Bytes(),
		})
		if ok {
			clear(w.Bytes()) // here the engine copies its rows
			w.Commit()
		}
		parent = id
	}
	if err := store.Flush(ctx); err != nil {
		log.Fatal(err)
	}

	run := store.Lookup(key.Chain(root, append(prompt, 19, 20, 21), 4))
	defer run.Close()
	if err := run.Load(ctx, run.Len()); err != nil {
		log.Fatal(err)
	}
	for _, ref := range run.Blocks() {
		fmt.Println("tokens from", ref.Header.Start, "on:", ref.Header.Tokens, "in", len(ref.Payload()), "bytes")
	}
	// Output:
	// tokens from 0 on: [10 11 12 13] in 1024 bytes
	// tokens from 4 on: [14 15 16 17] in 1024 bytes
}
