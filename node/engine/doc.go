// Package engine runs language models: it decides what each step computes, for
// whom, and which tokens stay in the KV cache. What a step computes is the
// business of a Backend; text, templates, stop strings and HTTP are that of others.
//
// An Engine runs one model. Submit makes a Sequence: it waits in the queue, takes a
// slot, catches up with its prompt in pieces, then gains a token per step, and ends.
// One quantity drives all: computed, the tokens whose rows are in the cache, follows
// the tokens that there are; a sequence that lacks one token gets it in every step,
// the others share a budget that keeps steps short while streams run.
//
// A prefix is computed once. Rows of ended sequences stay resident until their id
// is needed, those of running ones are copied, of requests that arrive together the
// younger ones wait for what the oldest computes, and with Blocks every completed
// block is handed out and comes back when it is wanted. Where an architecture cannot
// cut its state only exact continuations are reused.
//
// A Pool loads engines on demand, one per Spec, and hands out leases.
//
// Goroutines. Each Engine has one, which alone calls the Backend's computing methods
// and owns all that is not under Engine.mu. It never waits for a reader: a sequence
// whose buffer is full pauses, and gives its slot to one that waits. A Pool has one
// for expiries and one per load or unload in progress. Nothing else is started.
//
// Blocking. Submit only compiles a grammar; Sequence.Next, Wait, Embed, Acquire,
// Unload and Close wait and take a context where they can wait long. Stats, Cancel,
// Position and Release do not wait for the model.
//
// Invariants: an entry's tokens are those whose rows its id holds; when a reader
// learns of the end of a sequence, its slot and sampler are free, its Blocks closed
// and its rows resident or gone. They stand with the types cache, outbox and pooled.
//
// Errors to match: *PromptTooLongError, *InvalidTokenError, *GrammarError,
// *QueueFullError, *NoMemoryError, ErrClosed, ErrNoGeneration, ErrNoEmbeddings.
//
// Start reading in engine.go, then loop.go, plan.go and step.go.
package engine
