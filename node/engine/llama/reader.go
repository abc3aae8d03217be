package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"unsafe"

	"tandem/node/engine"
)

// Reader is a model of which only the vocabulary was loaded: enough to make the
// tokens of prompts that another node computes.
type Reader struct {
	c            *C.td_model
	vocab        *vocab
	chatTemplate string
	contextTrain int
	pooled       bool
}

// OpenReader reads the vocabulary of a GGUF file, whose weights need not be there:
// the file must only be as long as if they were.
func OpenReader(path string) (*Reader, error) {
	initOnce()
	setLogLevel()
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var info C.td_info
	var cerr C.td_error
	c := C.td_load_vocab(p, &info, &cerr)
	if c == nil {
		return nil, fmt.Errorf("llama: reading the vocabulary of %s: %s", filepath.Base(path), cause(errorText(&cerr)))
	}
	v, err := newVocab(c)
	if err != nil {
		C.td_free(c)
		return nil, errors.Join(errors.New("llama: vocabulary"), err)
	}
	r := &Reader{c: c, vocab: v, contextTrain: int(info.context_train), pooled: bool(info.embeds)}
	if info.chat_template != nil {
		r.chatTemplate = C.GoString(info.chat_template)
	}
	return r, nil
}

// Vocab is the vocabulary, usable until Close.
func (r *Reader) Vocab() engine.Vocab { return r.vocab }

// ChatTemplate is the Jinja source in the file, or "".
func (r *Reader) ChatTemplate() string { return r.chatTemplate }

// ContextTrain is the context in tokens that the model was trained on; 0: unknown.
func (r *Reader) ContextTrain() int { return r.contextTrain }

// Pooled tells whether the model makes embeddings only.
func (r *Reader) Pooled() bool { return r.pooled }

// Close frees the vocabulary. It waits for a Tokenize that is going on.
func (r *Reader) Close() {
	r.vocab.close()
	C.td_free(r.c)
}
