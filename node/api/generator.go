package api

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"tandem/node/chat"
)

// Generator runs requests. The node implements it; this package knows nothing
// else of the node.
type Generator interface {
	// Generate runs one request to its end. An error before out.Accepted was
	// called is a refusal and becomes an HTTP status; after it, the stream is
	// already open and the error becomes its last event. It returns the context's
	// cause when ctx ends, after everything the request held has been freed.
	Generate(ctx context.Context, r *Request, out Sink) (Result, error)

	// Embed computes one vector per input, in order.
	Embed(ctx context.Context, r *EmbedRequest) (EmbedResult, error)

	// Count tells how many tokens the prompt of a request has, also of one that is too
	// long to be answered.
	Count(ctx context.Context, r *Request) (int, error)

	// Tokenize and Detokenize use the vocabulary of a model, loading it if need be.
	Tokenize(ctx context.Context, model, text string, o TokenizeOptions) ([]TextToken, error)
	Detokenize(ctx context.Context, model string, tokens []int32) (string, error)
}

// Sink receives the output of one request, in order, from one goroutine. Delta
// and Finish block while the client does not read, for at most the write
// timeout; their error means that the client is gone and ends the request.
type Sink interface {
	Accepted(a Accepted)
	Delta(choice int, d Delta) error
	Finish(choice int, f Finish) error
}

// Request is one decoded and validated completion request. Exactly one of
// Messages and Prompts is set. Every prompt is answered N times; the index of a
// choice is prompt*N + n.
type Request struct {
	ID       string // unique, "chatcmpl-...", "msg_..."
	Endpoint string // closed set, label of metrics: chat, completions, messages, responses, ollama_chat, ...
	Model    string // as the client named it
	Tenant   string // derived by the server from the credential; "" without keys

	Messages          []chat.Message
	Tools             []chat.Tool
	ToolChoice        chat.ToolChoice
	ParallelToolCalls bool
	TemplateArgs      map[string]any // chat_template_kwargs; values are JSON values
	Think             *bool          // nil: the template decides
	Prompts           []Prompt

	N         int // choices per prompt, 1 ... MaxChoices
	MaxTokens int // 0: until the context is full
	Context   int // Ollama's num_ctx; 0: the node's. Larger than the node's is refused
	Stop      []string
	Sampling  Sampling
	Format    Format

	KeepAlive *time.Duration // nil: the node's default; negative: for ever; 0: unload afterwards
	Truncate  bool           // never cut silently: true only if the client asked for it
	LoadOnly  bool           // Ollama: load (or, with KeepAlive 0, unload) and return
}

// Prompt is a raw prompt: text or token ids, used as it is, without a template.
type Prompt struct {
	Text   string
	Tokens []int32 // used instead of Text if not nil
	Suffix string  // fill-in-the-middle, if the model's vocabulary has the tokens
	Plain  bool    // Text may not yield control tokens
}

// Sampling is what shapes the choice of the next token. Zero values are "off"
// where a field says so; defaults are filled in by the decoder.
type Sampling struct {
	Temperature      float64 // 0: greedy
	TopK             int     // 0: off
	TopP             float64 // 1: off
	MinP             float64 // 0: off
	TypicalP         float64 // 1: off
	RepeatPenalty    float64 // 1: off
	RepeatLastN      int     // tokens looked back on by the penalties; -1: the context
	FrequencyPenalty float64
	PresencePenalty  float64
	Mirostat         int // 0 off, 1, 2
	MirostatTau      float64
	MirostatEta      float64
	LogitBias        map[int32]float64
	Seed             *uint64 // nil: drawn by the server
	TopLogprobs      int     // -1: no logprobs; 0: of the chosen token only
	IgnoreEOS        bool
}

// Format constrains the shape of the text. At most one of the fields is set.
type Format struct {
	JSON    bool            // any JSON object
	Schema  json.RawMessage // JSON Schema
	Grammar string          // GBNF, root rule "root"
}

// Accepted says what is known once a request cannot be refused any more.
type Accepted struct {
	Model        string // canonical name
	Node         string // name of the node that decodes
	Prefill      string // "local", or the name of the node that computes the prompt
	Reason       string // why it went there, in words
	PromptTokens int
	Created      time.Time
	Truncated    int // tokens cut off the prompt because the request asked for that
	Warnings     []string
}

// Delta is a piece of one choice. Any of its fields may be empty.
type Delta struct {
	Content   string
	Reasoning string
	ToolCalls []ToolCallDelta
	Logprobs  []TokenLogprob
}

// ToolCallDelta adds to the call at Index: ID and Name come with the first
// piece, Arguments are joined by the client.
type ToolCallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// TokenLogprob is one generated token with its natural-log probability and the
// most likely alternatives.
type TokenLogprob struct {
	ID      int32
	Bytes   []byte
	Logprob float64
	Top     []TokenLogprob // Top[i].Top is nil
}

// Finish ends a choice.
type Finish struct {
	Reason string // stop, length, tool_calls
	Stop   string // the client's stop string at which it ended; "": at none
	Usage  Usage
}

// Result is what a request cost so far, also beside an error; sums over its
// choices.
type Result struct {
	Usage
	Load    time.Duration // loading the model, 0 if it was resident
	Queue   time.Duration
	Prefill time.Duration
	Decode  time.Duration
	Total   time.Duration
}

// Usage counts tokens. CachedTokens of PromptTokens were not computed.
type Usage struct {
	PromptTokens     int
	CachedTokens     int
	CompletionTokens int
	ReasoningTokens  int
}

// EmbedRequest asks for one vector per input.
type EmbedRequest struct {
	Model      string
	Tenant     string
	Inputs     []Prompt
	Dimensions int // 0: all of the model's
	Truncate   bool
	KeepAlive  *time.Duration
}

// EmbedResult holds unit-length vectors in the order of the inputs.
type EmbedResult struct {
	Model        string
	Vectors      [][]float32
	PromptTokens int
	Truncated    int // inputs that were cut because the request asked for that
	Load, Total  time.Duration
}

// Library is the model store as the API sees it.
type Library interface {
	List(ctx context.Context) ([]Model, error)
	Show(ctx context.Context, name string) (ModelDetail, error)
	Loaded() []LoadedModel
	// Pull downloads a model; progress is called from one goroutine.
	Pull(ctx context.Context, ref string, progress func(PullProgress)) error
	Delete(ctx context.Context, name string) error
	Copy(ctx context.Context, from, to string) error
	// Create makes a model name out of an uploaded blob or an existing model.
	Create(ctx context.Context, c CreateModel) error
	HasBlob(digest string) bool
	PutBlob(ctx context.Context, digest string, r io.Reader) error
	// Unload frees a model once its running requests have ended.
	Unload(ctx context.Context, name string) error
}

// Model is one line of a model list.
type Model struct {
	Name          string
	Digest        string // hex SHA-256 of the GGUF
	Size          int64  // bytes
	Modified      time.Time
	Family        string // general.architecture
	Parameters    int64  // number of weights
	Quantization  string // "Q4_K_M"
	ContextLength int    // the one that is enforced here
	Default       bool   // what a client without a wish should take
	Capabilities  []string
	Loaded        bool
	Memory        int64  // bytes that it would take when loaded, as estimated; 0: not known
	Source        string // "tandem", "ollama", "huggingface", "file", "built-in"
	License       string
}

// ModelDetail is what /api/show tells.
type ModelDetail struct {
	Model
	Template string
	Metadata map[string]any // GGUF keys without the large arrays
}

// LoadedModel is one line of /api/ps.
type LoadedModel struct {
	Model
	MemoryBytes int64
	GPUBytes    int64
	Expires     time.Time // zero: for ever
	Running     int
	Queued      int
}

// PullProgress is one step of a download.
type PullProgress struct {
	Status    string
	Digest    string
	Total     int64
	Completed int64
}

// CreateModel makes Name from From (a model), or from Files (file name to digest).
type CreateModel struct {
	Name  string
	From  string
	Files map[string]string
}

// Admin is what the operator's routes show.
type Admin interface {
	// Ready is nil once a model can answer; the error says what is missing.
	Ready() error
	// Status is encoded as JSON for /admin/status.
	Status(ctx context.Context) any
	// Events calls open, and each with every typed event since as JSON until ctx ends.
	Events(ctx context.Context, open func(), each func(name string, data []byte) error) error
	// Metrics writes the Prometheus text format.
	Metrics(w io.Writer) error
}
