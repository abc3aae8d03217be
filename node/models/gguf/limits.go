package gguf

// Limits of what a file may ask for. They are well above what published models
// use (given in brackets) and low enough that a file at all limits at once costs
// seconds and megabytes, not more.
const (
	MaxHeaderBytes = 128 << 20 // metadata and tensor directory [16 MiB]
	MaxKeys        = 4096      // [60]; llama.cpp compares all pairs
	MaxKeyBytes    = 1024      // [70]
	MaxStringBytes = 8 << 20   // one metadata string, such as a chat template [100 KiB]
	MaxElements    = 4 << 20   // all array elements of a file together [1.2 M]
	MaxTensors     = 16384     // [1,700]; llama.cpp compares all pairs
	MaxTensorName  = 63        // bytes; llama.cpp keeps 64 with the zero
	MaxTokens      = 1 << 20   // vocabulary [262,400]
	MaxTokenBytes  = 8192      // one token [1,024]; llama.cpp frees its token trie by recursion
	MaxLayers      = 512       // arrays of fixed size in llama.cpp
	MaxExperts     = 512       // likewise
	MinAlignment   = 32        // llama.cpp asserts it of every buffer
	MaxAlignment   = 65536     // [32]

	maxDims      = 4
	maxHeads     = 8192    // [128]
	maxHeadDim   = 16384   // [576]
	maxEmbedding = 1 << 18 // [16,384]
	maxFF        = 1 << 24 // [53,248]
	maxContext   = 1 << 30 // tokens; positions are 32 bits wide [10 M]

	// Arrays of up to keptElements elements and keptBytes bytes are kept in
	// Metadata; of longer ones only type and length are.
	keptElements = 1024
	keptBytes    = 64 << 10
)
