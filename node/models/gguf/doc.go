// Package gguf reads and writes GGUF model files.
//
// Read accepts a file only if llama.cpp can be trusted with it: the C code
// checks a good deal by assertion, which ends the process, and it allocates by
// lengths that the file names. So every count, length, offset, type and shape is
// checked here first, against the bytes that are really there and against the
// limits of limits.go, before anything is allocated for it. Memory is bounded by
// a small multiple of the header; large arrays (the vocabulary) are checked while
// they stream by and are not kept.
//
// Nouns: a File is a header, that is Metadata (keys and values), Tensors (name,
// type, shape, place) and the Summary that the rest of the node works with. The
// Writer makes files: for tests, for tools, for the built-in model. Package
// gguftest builds small random models with it.
//
// The checks come in this order, and each is a file: the encoding (decode.go),
// the vocabulary (vocab.go), hyperparameters that all architectures share
// (params.go), what single architectures assert (arch.go), and the shapes and
// types of tensors (tensors.go). An architecture that is not in the table of
// arch.go is refused: nobody has looked at what it asserts.
//
// The package does not read weights, does not tokenise and knows nothing of the
// model store. It starts no goroutine; Read blocks on its reader only. A refused
// file gives a *FormatError, which names the field, its value and what is
// allowed; any other error comes from the reader.
package gguf
