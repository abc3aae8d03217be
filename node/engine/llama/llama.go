package llama

// #cgo CXXFLAGS: -std=c++17
// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime/cgo"
	"strings"
	"sync"
	"unsafe"

	"tandem/node/engine"

	_ "github.com/ollama/ollama/llama/llama.cpp/src" // llama.cpp itself
)

// Options says what to load and how large its cache is. Zero values are the
// defaults that the fields name.
type Options struct {
	Path       string // of a GGUF file, or of the first part of a split one
	Context    int    // tokens of one sequence; 0: what the model was trained on
	Sequences  int    // sequences that are held at once, each with room for Context; 0: 1; at most SequencesMax
	Batch      int    // tokens of one Decode; 0: 512
	MicroBatch int    // tokens computed at once; 0: Batch, at most 512
	KVType     string // f16, q8_0, q4_0; "": f16
	GPULayers  int    // layers on GPUs, -1: all; without a GPU it means nothing
	Threads    int    // 0: physical cores that this process may use
	Embeddings bool   // embed texts instead of generating; set by itself for models that can do nothing else

	// Progress is called with 0 ... 1 while weights are read, on the goroutine
	// of Load. It may be nil.
	Progress func(float32)
}

// SequencesMax is how many sequence ids llama.cpp can tell apart.
const SequencesMax = 256

// Largest sizes that Load accepts; they keep the arithmetic on them in range.
const (
	contextMax = 1 << 30
	batchMax   = 1 << 16
)

func (o Options) withDefaults() Options {
	o.Sequences = orDefault(o.Sequences, 1)
	o.Batch = orDefault(o.Batch, 512)
	o.MicroBatch = orDefault(o.MicroBatch, min(o.Batch, 512))
	o.Threads = orDefault(o.Threads, DefaultThreads())
	if o.KVType == "" {
		o.KVType = "f16"
	}
	return o
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// Validate reports all fields that Load would refuse.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	check := func(name string, v, lo, hi int) {
		if v < lo || v > hi {
			errs = append(errs, fmt.Errorf("%s is %d, allowed are %d to %d", name, v, lo, hi))
		}
	}
	if o.Path == "" {
		errs = append(errs, errors.New("field Path is empty"))
	}
	if strings.IndexByte(o.Path, 0) >= 0 {
		errs = append(errs, errors.New("field Path is a text with a zero byte"))
	}
	check("Context", o.Context, 0, contextMax)
	check("Sequences", o.Sequences, 1, SequencesMax)
	check("Batch", o.Batch, 1, batchMax)
	check("MicroBatch", o.MicroBatch, 1, batchMax)
	check("GPULayers", o.GPULayers, -1, 1<<16)
	check("Threads", o.Threads, 1, threadsMax)
	if _, ok := kvTypes[o.KVType]; !ok {
		errs = append(errs, fmt.Errorf("KVType is %q, allowed are f16, q8_0, q4_0", o.KVType))
	}
	return errors.Join(errs...)
}

// kvTypes maps to ggml's numbers; TestABI holds them.
var kvTypes = map[string]C.int32_t{"f16": 1, "q8_0": 8, "q4_0": 2}

// pollLevel is how eagerly compute threads look for the next batch before they
// sleep; ggml counts from 0 to 100.
const pollLevel = 0

// initOnce prepares the process: log, assertion handler, CPU backend.
var initOnce = sync.OnceFunc(func() { C.td_init() })

// Load reads a model and makes its context. It blocks until both are ready; a
// done ctx stops the reading of weights and is returned as the context's cause.
func Load(ctx context.Context, o Options) (engine.Backend, error) {
	m, err := load(ctx, o)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func load(ctx context.Context, o Options) (*model, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	initOnce()
	setLogLevel()

	done, err := newBell()
	if err != nil {
		return nil, fmt.Errorf("llama: %w", err)
	}
	progress := cgo.NewHandle(progressFunc(func(p float32) bool {
		if o.Progress != nil {
			o.Progress(p)
		}
		return ctx.Err() == nil
	}))
	defer progress.Delete()
	path := C.CString(o.Path)
	defer C.free(unsafe.Pointer(path))
	co := C.td_options{
		path: path, context: C.uint32_t(o.Context),
		sequences: C.uint32_t(o.Sequences), batch: C.uint32_t(o.Batch), micro_batch: C.uint32_t(o.MicroBatch),
		kv_type: kvTypes[o.KVType], gpu_layers: C.int32_t(o.GPULayers), threads: C.int32_t(o.Threads), poll: pollLevel,
		embeddings: C.bool(o.Embeddings), progress: C.uintptr_t(progress), done: C.int(done.fd()),
	}
	var info C.td_info
	var cerr C.td_error
	c := C.td_load(&co, &info, &cerr)
	if c == nil {
		done.close()
		return nil, loadError(ctx, o.Path, errorText(&cerr))
	}
	m, err := newModel(c, &info, o, done)
	if err != nil {
		C.td_free(c)
		done.close()
		return nil, err
	}
	return m, nil
}

func loadError(ctx context.Context, path, text string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	name := filepath.Base(path)
	text = strings.ReplaceAll(text, path, name)
	text = strings.ReplaceAll(text, filepath.Dir(path)+string(filepath.Separator), "")
	return fmt.Errorf("llama: loading %s: %s", name, cause(text))
}

// logPrefix is the function that a line of llama.cpp's log comes from.
var logPrefix = regexp.MustCompile(`^\w+: `)

// cause is the first line of an error log, which is nearest to the cause,
// without what llama.cpp puts before it.
func cause(log string) string {
	line, _, _ := strings.Cut(strings.ToValidUTF8(log, "?"), "\n")
	line = logPrefix.ReplaceAllString(line, "")
	return strings.TrimPrefix(line, "error loading model: ")
}

func errorText(e *C.td_error) string { return C.GoString(&e.text[0]) }

// progressFunc tells whether loading shall go on.
type progressFunc func(float32) bool

//export goProgress
func goProgress(handle C.uintptr_t, p C.float) C.bool {
	return C.bool(cgo.Handle(handle).Value().(progressFunc)(float32(p)))
}
