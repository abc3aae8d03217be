package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// statusClientGone is what logs and metrics call a request whose client left; no
// client sees it.
const statusClientGone = 499

var (
	errClientGone = &Error{Status: statusClientGone, Type: "server_error", Code: "cancelled", Message: "the client is gone"}
	errStalled    = &Error{Status: statusClientGone, Type: "server_error", Code: "cancelled", Message: "the client stopped reading"}
	errInternal   = &Error{Status: http.StatusInternalServerError, Type: "server_error", Code: "internal_error",
		Message: "internal error; the log of the node says more under the id in X-Tandem-Request-Id"}
	errTimeout  = &Error{Status: http.StatusGatewayTimeout, Type: "server_error", Code: "timeout", Message: "the request took too long"}
	errSlowBody = &Error{Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "timeout",
		Message: "the body did not arrive in time"}
	errBodyLost = &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "incomplete_body",
		Message: "the body did not arrive whole"}
)

func errTooLarge(limit int64) *Error {
	return &Error{Status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error", Code: "request_too_large",
		Message: "the body is larger than " + strconv.FormatInt(limit, 10) + " bytes"}
}

// asError is the one place where an error becomes what a client sees. An *Error
// passes, ends of contexts and of bodies have their own status, and of anything
// else nothing is told.
func asError(err error) *Error {
	var e *Error
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &tooLarge):
		return errTooLarge(tooLarge.Limit)
	case errors.Is(err, context.Canceled):
		return errClientGone
	case errors.Is(err, context.DeadlineExceeded):
		return errTimeout
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errSlowBody
	}
	return errInternal
}

// openAIError is the body of an error in OpenAI's shape.
type openAIError struct {
	Error openAIErrorFields `json:"error"`
}

type openAIErrorFields struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

// ollamaError is the body of an error in Ollama's shape.
type ollamaError struct {
	Error string `json:"error"`
}

func shapeOpenAI(e *Error) openAIError {
	optional := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	kind := e.Type
	if kind == "" {
		kind = "server_error"
	}
	return openAIError{openAIErrorFields{Message: e.Message, Type: kind, Param: optional(e.Param), Code: optional(e.Code)}}
}

// refusal writes an error as a whole answer.
type refusal func(w http.ResponseWriter, e *Error)

func refuseOpenAI(w http.ResponseWriter, e *Error) { refuse(w, e, shapeOpenAI(e)) }
func refuseOllama(w http.ResponseWriter, e *Error) { refuse(w, e, ollamaError{e.Message}) }

func refuse(w http.ResponseWriter, e *Error, body any) {
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	status := e.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	writeJSON(w, status, body)
}

// refusalFor is the shape of errors on a path.
func refusalFor(path string) refusal {
	switch {
	case strings.HasPrefix(path, "/api/"):
		return refuseOllama
	case path == "/v1/messages", strings.HasPrefix(path, "/v1/messages/"):
		return refuseAnthropic
	}
	return refuseOpenAI
}

// writeJSON writes a whole answer. An error of the write is of no use: the client
// is gone. What cannot be encoded is a fault of the node, and is treated as one.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := marshal(v)
	if err != nil {
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// marshal encodes without the escapes for HTML, which JSON does not need, and ends
// with a newline.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// armWrite bounds the writes that follow. Recorders of tests have no deadlines.
func armWrite(w http.ResponseWriter, timeout time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
}
