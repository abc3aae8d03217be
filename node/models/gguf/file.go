package gguf

// File is the checked header of a model file.
type File struct {
	Summary
	Version    uint32
	Alignment  int64
	DataOffset int64 // of the first tensor
	Size       int64 // of the file, bytes

	// Metadata holds every key. Values are of the Go type that belongs to their
	// GGUF type: uint8 ... float64, bool, string, Array.
	Metadata map[string]any
	Tensors  []Tensor // in the order of the file
}

// Summary is what the node needs to know of a model. It holds no large slices
// but the chat template and may be copied.
type Summary struct {
	Architecture  string
	Name          string // general.name
	License       string // general.license
	Quantization  string // "Q4_K_M"
	Parameters    int64  // weights
	WeightBytes   int64
	ContextLength int // tokens, as trained
	Layers        int
	Embedding     int
	Heads         []uint32 // per layer; 0: no attention there
	KVHeads       []uint32 // per layer
	KeyLength     int      // values of one head's key
	ValueLength   int
	VocabSize     int
	Experts       int
	ExpertsUsed   int
	SlidingWindow int    // tokens that windowed layers see, as llama.cpp applies it; 0: all layers see all
	Tokenizer     string // llama (SentencePiece), gpt2 (BPE), bert, ...
	ChatTemplate  string // Jinja source; "" if the file has none
	Pooling       string // none, mean, cls, last, rank; "" if the file does not say

	IsEmbedding bool // makes embeddings: an encoder, or made for it by its pooling
	IsRecurrent bool // has recurrent state only
	IsHybrid    bool // has attention and recurrent layers
}

// CanChat says whether the model generates text and knows how to take turns.
func (s *Summary) CanChat() bool { return !s.IsEmbedding && s.ChatTemplate != "" }

var poolings = [...]string{"none", "mean", "cls", "last", "rank"}

func (f *File) summarise(h *hparams, v *vocab) {
	s := &f.Summary
	*s = Summary{
		Architecture: h.arch, ContextLength: h.context, Layers: h.layers, Embedding: h.embedding, Heads: h.heads, KVHeads: h.headsKV,
		KeyLength: int(h.keyLength), ValueLength: int(h.valueLength), VocabSize: v.tokens, Experts: int(h.experts), ExpertsUsed: int(h.expertsUsed),
		SlidingWindow: int(h.effectiveWindow()), IsRecurrent: h.traits.recurrent, IsHybrid: h.traits.hybrid,
	}
	s.Name, _ = f.Metadata["general.name"].(string)
	s.License, _ = f.Metadata["general.license"].(string)
	s.Tokenizer, _ = f.Metadata[keyTokenizer].(string)
	s.ChatTemplate, _ = f.Metadata[keyTemplate].(string)
	if h.pooling != noPooling {
		s.Pooling = poolings[h.pooling]
	}
	s.IsEmbedding = h.traits.encoder || h.pooling != noPooling && h.pooling != 0
	for i := range f.Tensors {
		s.Parameters += f.Tensors[i].Elements()
		s.WeightBytes += f.Tensors[i].Bytes
	}
	s.Quantization = f.quantization()
}

// quantization is the name of the file's mix of types; of a file that does not
// say, the type that most bytes are in.
func (f *File) quantization() string {
	if n, ok := f.Metadata["general.file_type"].(uint32); ok && fileTypes[n] != "" {
		return fileTypes[n]
	}
	bytes := map[TensorType]int64{}
	best := f.Tensors[0].Type
	for i := range f.Tensors {
		t := &f.Tensors[i]
		bytes[t.Type] += t.Bytes
		if bytes[t.Type] > bytes[best] || bytes[t.Type] == bytes[best] && t.Type < best {
			best = t.Type
		}
	}
	return best.String()
}

// Text is the value of a string key, "" if it is not there.
func (f *File) Text(key string) string {
	s, _ := f.Metadata[key].(string)
	return s
}

// Uint is the value of an integer key that is not negative.
func (f *File) Uint(key string) (uint64, bool) {
	switch v := f.Metadata[key].(type) {
	case uint8:
		return uint64(v), true
	case uint16:
		return uint64(v), true
	case uint32:
		return uint64(v), true
	case uint64:
		return v, true
	case int8:
		return uint64(v), v >= 0
	case int16:
		return uint64(v), v >= 0
	case int32:
		return uint64(v), v >= 0
	case int64:
		return uint64(v), v >= 0
	}
	return 0, false
}

// Float is the value of a floating-point key.
func (f *File) Float(key string) (float64, bool) {
	switch v := f.Metadata[key].(type) {
	case float32:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Bool is the value of a boolean key.
func (f *File) Bool(key string) (value, ok bool) {
	value, ok = f.Metadata[key].(bool)
	return value, ok
}
