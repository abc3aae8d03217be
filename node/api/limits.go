package api

import "time"

// Limits on what a client may send. Each is checked before memory is taken for
// what it bounds; together with MaxBody they bound what one request can cost.
const (
	// MaxBody is the longest JSON body. A 128k-token prompt is about 1 MiB of
	// text; a batch of 2,048 embedding inputs of 8 kB fits just so.
	MaxBody = 16 << 20
	// MaxDepth is how deep JSON may nest: the decoder recurses, and so do those
	// that read schemas after it. Schemas of real tools stay below 30.
	MaxDepth = 256
	// MaxMembers of one object that is decoded field by field.
	MaxMembers = 256

	// MaxModelName is a registry, a namespace, a name and a tag, amply.
	MaxModelName = 255
	// MaxPullRef is a model's reference where it may be a URL.
	MaxPullRef = 2048
	// MaxIdentifier bounds names and ids that are only passed on.
	MaxIdentifier = 512

	// MaxMessages of one conversation; long agent runs have some hundreds.
	MaxMessages = 4096
	// MaxParts of one message's content.
	MaxParts = 256
	// MaxToolCalls of one message.
	MaxToolCalls = 128
	// MaxTools of one request: all of them go into the prompt and the grammar.
	MaxTools = 256
	// MaxToolName is OpenAI's limit, which clients rely on.
	MaxToolName = 64
	// MaxSchema is the longest JSON Schema, of a tool or of the answer; an enum
	// of 20,000 short strings is 0.3 MiB.
	MaxSchema = 1 << 20
	// MaxGrammar is the longest GBNF text.
	MaxGrammar = 256 << 10

	// MaxStops and MaxStopBytes bound the work done for every piece of text.
	MaxStops     = 16
	MaxStopBytes = 512
	// MaxLogitBias is how many tokens may have a bias.
	MaxLogitBias = 1024
	// MaxTopLogprobs is OpenAI's limit.
	MaxTopLogprobs = 20

	// MaxChoices per prompt, and MaxSequences over all prompts: each takes a slot
	// and KV of its own.
	MaxChoices   = 16
	MaxSequences = 64
	// MaxPromptTokens of a prompt that comes as token ids.
	MaxPromptTokens = 1 << 20
	// MaxTokens is the largest number of tokens that may be asked for. The context
	// is what really ends a text.
	MaxTokens = 1 << 30
	// MaxEmbedInputs is OpenAI's limit.
	MaxEmbedInputs = 2048
	// MaxDimensions of an embedding that may be asked for.
	MaxDimensions = 1 << 16

	// MaxTemplateArgs and MaxTemplateArg bound chat_template_kwargs.
	MaxTemplateArgs = 32
	MaxTemplateArg  = 256
	// MaxMetadata is OpenAI's limit on metadata pairs.
	MaxMetadata = 16

	// MaxFiles of one /api/create.
	MaxFiles = 16
	// MaxBlob is the largest model file that may be uploaded; the library checks
	// the disk's free space.
	MaxBlob = 1 << 40

	// MaxKVPrefixes is the longest list of kept prefixes, and defaultKVPrefixes the
	// one that nobody gave a length.
	MaxKVPrefixes     = 10_000
	defaultKVPrefixes = 100
	// MaxKVImport is the largest file of KV blocks; each block in it has limits of its
	// own, and what they may take altogether is the budget of the tiers.
	MaxKVImport = 1 << 40
	// MaxKVCompared is how many tokens may follow the prompt of a comparison.
	MaxKVCompared = 1024
	// blockIDBytes is the length of the id of a KV block.
	blockIDBytes = 16

	// MaxWarning is the longest X-Tandem-Warning and the like.
	MaxWarning = 1024
	// maxWarnings is how many unknown fields are named.
	maxWarnings = 16
)

// Limits on time and on buffers of a connection.
const (
	// HeaderTimeout is how long the head of a request may take.
	HeaderTimeout = 10 * time.Second
	// IdleTimeout is how long a connection may wait for its next request; longer
	// than the pools of common clients and proxies keep one (60 to 90 s).
	IdleTimeout = 2 * time.Minute
	// MaxHeaderBytes of the head of a request.
	MaxHeaderBytes = 32 << 10
	// BodyGrace and BodyRate bound how long a body may take: the grace, plus a
	// second for every BodyRate bytes that did arrive. A client that trickles is
	// cut off; one on a slow line is not.
	BodyGrace = 30 * time.Second
	BodyRate  = 64 << 10
	// DefaultWriteTimeout is how long a client may stop reading before its request
	// is cancelled.
	DefaultWriteTimeout = 30 * time.Second
	// DefaultKeepAlive is the longest silence of an event stream; proxies and
	// clients give up after 30 to 60 s.
	DefaultKeepAlive = 10 * time.Second
	// MaxConnections is how many may be open; further ones wait to be accepted. Each
	// costs some ten kilobytes and a descriptor.
	MaxConnections = 2048
	// SendBuffer is the kernel's send buffer of a connection. Left to itself it
	// grows to megabytes, and a client that stopped reading would be noticed only
	// after as many tokens.
	SendBuffer = 16 << 10
	// maxPending is how many bytes of a stream may wait for the writer before the
	// producer has to.
	maxPending = 16 << 10
	// maxKeepAlive is the longest keep_alive that is not "for ever".
	maxKeepAlive = 10 * 365 * 24 * time.Hour
)
