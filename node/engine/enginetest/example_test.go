package enginetest_test

import (
	"context"
	"fmt"

	"tandem/node/engine"
	"tandem/node/engine/enginetest"
)

// A test of something that talks to a model has the model say what it needs.
func ExampleNew() {
	fake := enginetest.New(enginetest.Options{Script: func(prompt string) (string, bool) {
		return "You said: " + prompt, true
	}})
	e := engine.New(fake, engine.Config{})
	defer e.Close(context.Background())

	prompt, _ := e.Vocab().Tokenize("hello", true)
	s, err := e.Submit(context.Background(), engine.Request{Tokens: prompt, Sampling: engine.Sampling{TopLogprobs: -1}})
	if err != nil {
		panic(err)
	}
	for {
		out, err := s.Next(context.Background())
		if err != nil {
			break // io.EOF
		}
		fmt.Printf("%s", out.Piece)
	}
	fmt.Println()
	fmt.Println(s.Result().Reason, fake.Faults())
	// Output:
	// You said: hello
	// stop <nil>
}
