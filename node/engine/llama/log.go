package llama

// #include "bridge.h"
import "C"

import (
	"context"
	"log/slog"
	"strings"
)

// Levels of ggml's log.
const (
	ggmlDebug = 1
	ggmlInfo  = 2
	ggmlWarn  = 3
	ggmlError = 4
)

// slogLevel ranks llama.cpp's lines below their own names: its warnings are
// mostly remarks on the model file, and an error that ends a call comes back as
// the error of that call.
func slogLevel(ggml int) slog.Level {
	if ggml >= ggmlError {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

// setLogLevel keeps lines that nobody would see from crossing into Go.
func setLogLevel() {
	level := ggmlError
	if slog.Default().Enabled(context.Background(), slog.LevelDebug) {
		level = ggmlInfo
	}
	C.td_set_log_level(C.int32_t(level))
}

//export goLog
func goLog(level C.int, text *C.char) {
	line := strings.TrimSpace(C.GoString(text))
	if line == "" || line == "." {
		return
	}
	slog.Log(context.Background(), slogLevel(int(level)), line, "from", "llama.cpp")
}
