package engine

import (
	"errors"
	"fmt"
	"time"
)

// Token is an id in the model's vocabulary.
type Token = int32

// Request is one sequence to generate. Nothing of it may be changed until the
// sequence has ended.
type Request struct {
	Label     string  // names the request in events; the engine does not read it
	Tokens    []Token // the whole prompt, at least one
	Generated []Token // what was generated elsewhere so far: the answer goes on behind it
	MaxTokens int     // tokens to generate, Generated included; 0: until the context is full
	Sampling  Sampling
	Salt      string // sequences share resident prefixes only if their salts are equal
	NoReuse   bool   // compute every token, whatever is resident or kept
	// Background requests end with ErrGaveWay as soon as another one comes, and are
	// refused with it while there is one. They count for no statistics and leave no
	// resident rows.
	Background bool `json:"-"`
	// Blocks restores and keeps rows outside the engine, which closes it when the
	// sequence has ended or is refused; nil: none.
	Blocks Blocks `json:"-"`
}

// Sampling is what shapes the choice of the next token; see the node's API for
// the meaning and ranges of the fields, which have been checked before.
type Sampling struct {
	Temperature      float32 // 0: greedy
	TopK             int32   // 0: off
	TopP             float32 // 1: off
	MinP             float32 // 0: off
	TypicalP         float32 // 1: off
	RepeatPenalty    float32 // 1: off
	RepeatLastN      int32   // -1: the context
	FrequencyPenalty float32 // 0: off
	PresencePenalty  float32 // 0: off
	Mirostat         int32   // 0, 1, 2
	MirostatTau      float32
	MirostatEta      float32
	LogitBias        map[Token]float32
	// Seed and the absolute position of a token are all that the final draw
	// depends on: the same log of tokens goes on the same way on any node.
	Seed uint64
	// Grammar is GBNF with the root rule "root"; "" is none. With Triggers it
	// stays asleep until the text generated so far matches one of these regular
	// expressions; the first group of the match is then fed to the grammar.
	Grammar  string
	Triggers []string
	// TopLogprobs is how many alternatives come with each token; -1 turns
	// logprobs off.
	TopLogprobs int
	IgnoreEOS   bool // end-of-generation tokens are never drawn
}

// Output is one generated token. The end-of-generation token that ends a sequence
// is none.
type Output struct {
	Token   Token
	Piece   []byte // its bytes; may be part of a UTF-8 character; control tokens give none
	Logprob *Logprob
}

// Logprob is the natural logarithm of the chosen token's probability, before
// temperature and filters, with the most likely tokens of that position.
type Logprob struct {
	Logprob float32
	Top     []TokenLogprob // descending
}

// TokenLogprob is one alternative.
type TokenLogprob struct {
	Token   Token
	Piece   []byte
	Logprob float32
}

// FinishReason says why a sequence ended.
type FinishReason string

// The reasons. Cancelled and Failed come with an error.
const (
	FinishStop      FinishReason = "stop"   // an end-of-generation token was drawn
	FinishLength    FinishReason = "length" // MaxTokens or the context is full
	FinishCancelled FinishReason = "cancelled"
	FinishFailed    FinishReason = "failed"
)

// Result is what a sequence cost.
type Result struct {
	Reason       FinishReason
	PromptTokens int
	CachedTokens int // of the prompt, not computed because they were resident or restored; known from the first token on
	// RestoredTokens are those of CachedTokens that came from Blocks.
	RestoredTokens int
	Generated      int           // tokens that Next returned or will return, without Request.Generated
	Queue          time.Duration // from Submit to the first prefill step
	Prefill        time.Duration // from there to the first token
	Decode         time.Duration // from the first to the last token
}

// Stats is the state of one engine at one moment.
type Stats struct {
	Running   int // sequences that hold a slot
	Queued    int
	Parked    int // lost their slots because nobody reads
	Slots     int
	Context   int   // tokens of one sequence
	KVTokens  int   // tokens held by running sequences
	KVCells   int   // tokens that fit
	Resident  int   // tokens kept for reuse after their sequence ended
	Computed  int64 // prompt tokens computed since the start
	Reused    int64 // prompt tokens not computed
	Restored  int64 // of these, from Blocks
	Exported  int64 // tokens whose rows were handed to Blocks
	Generated int64 // tokens generated
	Steps     int64 // calls of the model
	LastStep  time.Time
	Waiting   int           // prompt tokens of queued and running sequences that are still to be computed
	TokenTime time.Duration // that the first token of a prompt takes, as measured lately; 0: unknown
	// TokenDoubles is the position at which a token takes twice as long; 0: unknown.
	TokenDoubles float64
	StepTime     time.Duration // of a step in which sequences only decode, as measured lately; 0: unknown
	StepWidth    float64       // sequences in such a step
	Hold         time.Duration // that a sequence keeps its slot, as measured lately; 0: unknown
	// RestoreRate is how fast kept rows are restored, in bytes per second, ExportRate how
	// fast rows are taken out; 0: unknown.
	RestoreRate, ExportRate float64
	// TokensKnown and StepsKnown are on how much TokenTime and StepTime are based, in
	// prompt tokens and steps since Forget; they stop to rise at RatesFull.
	TokensKnown, StepsKnown int
	// Used is when the last request that was no background ended or was queued.
	Used time.Time
	// Stalled is how long there has been work that a step could do without a step
	// having ended; 0 if there is none. A watchdog may act on it.
	Stalled time.Duration
}

// Refusals and ends that have no numbers to tell.
var (
	// ErrClosed means that the engine is being unloaded.
	ErrClosed = errors.New("engine: closed")
	// ErrGaveWay ends a background request because another one came.
	ErrGaveWay = errors.New("engine: a request came, which goes first")
	// ErrNoGeneration refuses a Submit to a model that only makes embeddings.
	ErrNoGeneration = errors.New("this model makes embeddings only")
	// ErrNoEmbeddings refuses an Embed with a model that only generates.
	ErrNoEmbeddings = errors.New("this model makes no embeddings")
)

// QueueFullError refuses a request because Limit others already wait.
type QueueFullError struct {
	Limit      int
	RetryAfter time.Duration
}

func (e *QueueFullError) Error() string {
	return fmt.Sprintf("the queue of this model is full (%d requests wait)", e.Limit)
}

// PromptTooLongError refuses a prompt that leaves no room for one token.
type PromptTooLongError struct{ Tokens, Context int }

func (e *PromptTooLongError) Error() string {
	return fmt.Sprintf("the prompt has %d tokens, but the context holds %d", e.Tokens, e.Context)
}

// InvalidTokenError refuses tokens that are none of the vocabulary, or an empty
// list of them (Size is 0 then).
type InvalidTokenError struct {
	Index int
	Token Token
	Size  int
}

func (e *InvalidTokenError) Error() string {
	if e.Size == 0 {
		return "the prompt has no tokens; at least one is needed"
	}
	return fmt.Sprintf("token %d at index %d is not in the vocabulary, which has 0 ... %d", e.Token, e.Index, e.Size-1)
}

// GrammarError refuses a grammar that the sampler cannot use.
type GrammarError struct{ Reason string }

func (e *GrammarError) Error() string { return "grammar: " + e.Reason }
