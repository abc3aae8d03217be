// Package enginetest is a model for tests that needs no model file: a
// deterministic engine.Backend with a byte-level vocabulary and a simulated KV
// cache.
//
//	e := engine.New(enginetest.New(enginetest.Options{}), engine.Config{})
//
// Every KV row is a hash of its token, its position and all rows before it, and
// the next token is a hash of every row that the sequence holds. KV that is
// missing, stale, shifted, swapped or taken from another prompt therefore changes
// the text. Besides, a sampler knows the tokens that its sequence should hold and
// compares: a difference is a fault, and the token it yields is '#'. Tests call
// Faults at their end.
//
// Without a script the model babbles lower-case words, always the same after the
// same prompt at temperature 0; with Options.Script it says what the test wants.
// Grammars are checked by Options.Grammar and otherwise ignored.
//
// The text of a token is one byte; control tokens such as <|im_start|> have
// numbers from 256. Text round-trips through Tokenize and Piece, whatever bytes it
// has.
//
// A Backend is owned by one engine, as the interface says, and reports concurrent
// use as a fault. Its inspecting methods (Held, Samplers, Steps, Faults) may
// be called from any goroutine.
package enginetest
