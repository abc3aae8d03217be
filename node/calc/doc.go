// Package calc answers "what would it take" without running anything: the bytes of KV
// that a model keeps for a token, how long they take over a wire and from which prompt
// on that is faster than computing, whether weights, KV and buffers fit into a box, and
// what each way to spread a model over boxes sends, and so which one to choose.
//
// Nouns: a Model is a list of layers with what each keeps, from the header of a GGUF
// (FromGGUF) or a config.json of Hugging Face (FromConfig); a Question is what is asked
// of it; Answer gives a Report, whose formulas and their sources are in docs/calc.md.
//
// Two figures of KV stand side by side wherever they differ. The first is that of the
// formula: layers with a window keep the window, latent attention keeps one latent.
// The second is what this program's engine keeps and moves: all rows of windowed
// layers, so that any prefix can be reused, and with latent attention the latent once
// as keys and once as values.
//
// The package is pure: no clock, no goroutine, no I/O. What it is told of links and
// rates is measured or assumed by its callers; where it brings figures of its own
// (efficiencies of links), each carries its basis. What a config.json says that would
// change an answer and is not understood is refused by name, as a *FieldError.
package calc
