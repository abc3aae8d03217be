package engine

import "tandem/kvstore/block"

// Backend is one loaded model with its KV cache. Vocab, Info and NewSampler may
// be called from any goroutine; everything else belongs to the engine's owner
// goroutine, one call at a time. node/engine/llama is the real one,
// node/engine/enginetest a fake whose next token depends on every KV row.
type Backend interface {
	Vocab() Vocab
	Info() Info

	// Decode computes one batch and appends its KV rows. After an error the KV of the
	// batch's sequences is undefined and they must be removed. Sequences whose ids
	// follow each other, in this order in the batch, are computed together.
	Decode(b *Batch) error
	// Sample draws the next token from the logits of batch entry i of the last
	// Decode, which must have had Logits set, for absolute position pos, and
	// accepts it into s.
	Sample(i int, s Sampler, pos int) (Output, error)
	// Embedding returns the pooled, not yet normalised vector of a sequence after
	// a Decode; the slice is only valid until the next call.
	Embedding(seq SeqID) ([]float32, error)

	// Remove drops the positions of seq from from on. False: this architecture cannot
	// cut there (recurrent state) and nothing changed.
	Remove(seq SeqID, from int) bool
	// Copy makes dst hold the first n positions of src and nothing else. After an
	// error dst is empty.
	Copy(src, dst SeqID, n int) error
	// Export writes the rows of positions [from, to) of seq to dst, which has
	// (to-from) × Info.KV.Bytes() bytes: for each layer in order its K, then its V.
	Export(seq SeqID, from, to int, dst []byte) error
	// Import adds the rows of blocks, which follow each other, to those of the first
	// from positions, which is all that seq holds; with from = 0 it replaces what seq
	// holds. The rows must have been checked: the engine believes them. After an error
	// seq is empty.
	Import(seq SeqID, from int, blocks []Rows) error

	// NewSampler compiles the sampling of one sequence, whose prompt and already
	// generated tokens are given: penalties see both, the grammar the latter. A
	// grammar that cannot be used is a *GrammarError.
	NewSampler(s Sampling, prompt, generated []Token) (Sampler, error)

	Close()
}

// SeqID numbers the sequences of a cache, 0 ... Info.Sequences-1.
type SeqID = int32

// Sampler holds the sampling state of one sequence. It is freed by Close.
type Sampler interface{ Close() }

// Rows are the KV rows of consecutive tokens in the layout of Backend.Export.
type Rows struct {
	Tokens int
	Data   []byte
}

// Batch is what one Decode computes, at most Info.Batch entries. It is reused:
// Reset keeps the memory.
type Batch struct {
	Tokens []Token
	Pos    []int32
	Seq    []SeqID
	Logits []bool
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.Tokens, b.Pos, b.Seq, b.Logits = b.Tokens[:0], b.Pos[:0], b.Seq[:0], b.Logits[:0]
}

// Add appends one token and returns its index.
func (b *Batch) Add(t Token, pos int, seq SeqID, logits bool) int {
	b.Tokens, b.Pos = append(b.Tokens, t), append(b.Pos, int32(pos))
	b.Seq, b.Logits = append(b.Seq, seq), append(b.Logits, logits)
	return len(b.Tokens) - 1
}

// Len is the number of entries.
func (b *Batch) Len() int { return len(b.Tokens) }

// Info describes a loaded model. It never changes.
type Info struct {
	Architecture  string
	Description   string // "llama 135M Q4_1"
	Parameters    int64
	SizeBytes     int64 // weights
	ContextTrain  int
	Context       int // tokens of one sequence; the KV cache has room for Sequences of them
	Batch         int // tokens of one Decode
	MicroBatch    int // tokens that the engine computes at once
	Sequences     int // sequences that are held at once
	Layers        int
	Embedding     int // width of an embedding vector
	Pooled        bool
	CanCut        bool // Remove of a tail works: full attention
	Recurrent     bool
	SlidingWindow int         // 0: none
	KVType        string      // f16, q8_0, q4_0
	KV            block.Shape // rows of one token; no layers if rows cannot be copied, exported or imported
	Threads       int
	Devices       []Device
	ChatTemplate  string // Jinja source of the GGUF; "" if it has none
}

// Device is a compute device that the model's layers may run on.
type Device struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Kind        string `json:"kind"` // cpu, gpu, igpu, accel
	FreeBytes   int64  `json:"free_bytes"`
	TotalBytes  int64  `json:"total_bytes"`
}

// Vocab is the model's vocabulary. It is safe for concurrent use.
type Vocab interface {
	Size() int
	// Tokenize splits text. With special, the texts of control tokens become
	// those tokens; without, they are ordinary text. BOS and EOS are never added.
	Tokenize(text string, special bool) ([]Token, error)
	// Piece is the text of one token; control tokens give theirs only with special.
	Piece(t Token, special bool) []byte
	IsEOG(t Token) bool
	IsControl(t Token) bool
	// BOS, EOS are -1 if there is none.
	BOS() Token
	EOS() Token
	// AddBOS tells whether the model expects a BOS token before a raw prompt.
	AddBOS() bool
	// TextEnd is the token that the model expects behind a text to embed, if any.
	TextEnd() (Token, bool)
	// ControlTexts are the texts of all control and user-defined tokens.
	ControlTexts() []string
	// Infill are the fill-in-the-middle tokens, ok if the vocabulary has them.
	Infill() (prefix, suffix, middle Token, ok bool)
}
