package api

import (
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// Error is a refusal or failure as the client sees it. Message names the field,
// the value and what is allowed; it never holds a path of this machine.
type Error struct {
	Status     int           // HTTP status
	Type       string        // OpenAI's error type: invalid_request_error, ...
	Code       string        // machine-readable; "" if there is none
	Param      string        // the field; "" if none
	Message    string        // one sentence, for people
	RetryAfter time.Duration // with 429 and 503
}

func (e *Error) Error() string { return e.Message }

// BadRequest is a 400 that names the field at fault.
func BadRequest(param, format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Param: param, Message: fmt.Sprintf(format, args...)}
}

// NotFound is a 404 for a model.
func NotFound(model string) *Error {
	return &Error{Status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Param: "model",
		Message: fmt.Sprintf("model %q is not on this node; `tandem pull` gets models, `tandem models` lists them", clip(model, 100))}
}

// ContextExceeded is the 400 for a prompt that does not fit.
func ContextExceeded(tokens, limit int) *Error {
	return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "context_length_exceeded", Param: "messages",
		Message: fmt.Sprintf("the prompt has %d tokens, but the context holds %d, of which at least one is kept for the answer", tokens, limit)}
}

// Busy is a 429 or 503 with the time after which a retry makes sense.
func Busy(status int, retry time.Duration, format string, args ...any) *Error {
	return &Error{Status: status, Type: "server_error", Code: "overloaded", RetryAfter: retry, Message: fmt.Sprintf(format, args...)}
}

// clip shortens text from outside before it goes into a message, to n bytes or
// to the start of the character that would be cut.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
