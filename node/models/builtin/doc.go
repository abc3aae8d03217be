// Package builtin holds the model that is part of the program: a Llama of 2.6
// million parameters that answers questions about tandem and, asked for anything
// else, says which model to pull. With it a node without any network answers at
// once, and tests run on a real trained transformer in seconds.
//
// GGUF is the whole file, as llama.cpp reads it: Q8_0 weights, a byte-level BPE
// and a ChatML template. llama.cpp reads files, not memory, so whoever serves the
// model writes it to the data dir first.
//
// Questions is the list of what it must answer; under greedy decoding at least
// 40 of the answers are right, and tests and tools/builtin-model/eval.py hold it to
// that. The recipe, the data, and how to make both files anew are in
// tools/builtin-model.
//
// The package has no goroutine and no state that changes: nobody may write to
// GGUF.
package builtin
