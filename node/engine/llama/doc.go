// Package llama is the engine's backend over llama.cpp: load a GGUF file, compute
// batches, sample, cut and share sequences of the KV cache. It is the only
// package with cgo. Scheduling, chat templates and files belong to others.
//
// llama.cpp comes with the Go module github.com/ollama/ollama, of which only the
// package with the C++ sources is imported. Its headers are out of reach, so
// abi.h repeats what is called; a test compares it with the originals. Go calls
// the functions of bridge.h only. They take no Go memory beyond a call, and turn
// C++ exceptions into errors, and so failed assertions during load, tokenising
// and sampling; a failed assertion in the midst of a computation ends the
// process, because nothing is known of the threads that took part in it.
//
// Load returns a model, which is an engine.Backend. Its owner's goroutine is the
// only one to use it, apart from Info, NewSampler and the Vocab. Calls block
// while llama.cpp computes; a Load ends early when its context does, a Decode
// does not. The package starts no goroutines. A model has a thread that runs its
// Decodes, for which Go waits without holding a processor (runner.h, bell.go), and
// llama.cpp's compute threads, which sleep between computations, and fewer of
// which compute while other programs have the cores (pace.go).
//
// Sampling: a greedy choice without anything else is a scan of the logits. Draws
// use a counter-based generator on (seed, position), and break ties by token, so
// that a text goes on in the same way wherever it is continued; only mirostat,
// whose state follows from the logits of the past, starts anew then. The order is
// bias, penalties, grammar, top-k, typical, top-p, min-p, temperature. Grammars
// (package gbnf) are asked about a drawn token first and about the whole
// vocabulary only when they refuse it. While a grammar is awake no control token
// is drawn, and when its text is complete nothing but the end.
//
// Errors to match: engine.ErrClosed, *engine.GrammarError, and
// the cause of the context given to Load.
//
// Start reading in llama.go and bridge.h.
package llama
