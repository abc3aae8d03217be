package node

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tandem/node/api"
	"tandem/node/chat"
	"tandem/node/engine"
	"tandem/node/grammar"
	"tandem/node/models"
	"tandem/node/models/gguf"
	"tandem/scheduler"
)

// memoryRetry is what a client is told when a model does not fit beside those
// that are in use: about as long as a chat pauses.
const memoryRetry = 30 * time.Second

// refusal is the one table from errors of the parts to what a client sees. It
// returns nil for nil; what it does not know is a fault of the node, told
// without its internals.
func refusal(model string, err error) error {
	var known *api.Error
	var (
		name      *models.RefError
		broken    *models.BrokenError
		readOnly  *models.ReadOnlyError
		digest    *models.DigestError
		space     *models.SpaceError
		reach     *models.UnreachableError
		status    *models.StatusError
		format    *gguf.FormatError
		full      *engine.QueueFullError
		long      *engine.PromptTooLongError
		memory    *engine.NoMemoryError
		badToken  *engine.InvalidTokenError
		badRules  *engine.GrammarError
		schema    *grammar.Error
		syntax    *grammar.SyntaxError
		rendering *chat.RenderError
		busy      *scheduler.Busy
		notReady  *scheduler.NotReadyError
		unknown   *scheduler.UnknownModelError
		tooLong   *scheduler.TooLongError
		lost      *lostError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &busy):
		return api.Busy(http.StatusTooManyRequests, busy.RetryAfter, "%s", busy.Error())
	case errors.As(err, &notReady):
		return api.Busy(http.StatusServiceUnavailable, notReady.RetryAfter, "%s", notReady.Error())
	case errors.As(err, &unknown):
		return api.NotFound(model)
	case errors.As(err, &tooLong):
		return api.ContextExceeded(tooLong.Tokens, tooLong.Max)
	case errors.As(err, &lost):
		return api.Busy(http.StatusServiceUnavailable, time.Second, "the node that was to answer is gone or cannot; try again")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &name):
		return api.BadRequest(name.Field, "%s", name.Error())
	case errors.As(err, &format):
		return withStatus(http.StatusBadRequest, "invalid_model", format)
	case errors.As(err, &broken):
		return withStatus(http.StatusUnprocessableEntity, "invalid_model", broken)
	case errors.As(err, &readOnly):
		return withStatus(http.StatusForbidden, "read_only", readOnly)
	case errors.As(err, &digest):
		return withStatus(http.StatusBadRequest, "digest_mismatch", digest)
	case errors.As(err, &space):
		return withStatus(http.StatusInsufficientStorage, "disk_full", space)
	case errors.As(err, &reach):
		return withStatus(http.StatusBadGateway, "unreachable", reach)
	case errors.Is(err, models.ErrNotFound):
		return api.NotFound(model)
	case errors.As(err, &status):
		return withStatus(http.StatusBadGateway, "bad_answer", status)
	case errors.As(err, &long):
		return api.ContextExceeded(long.Tokens, long.Context)
	case errors.As(err, &full):
		return api.Busy(http.StatusTooManyRequests, full.RetryAfter, "%s; try again later", full.Error())
	case errors.As(err, &memory):
		return api.Busy(http.StatusServiceUnavailable, memoryRetry, "%s", memory.Error())
	case errors.As(err, &badToken):
		return api.BadRequest("prompt", "prompt: %s", badToken.Error())
	case errors.As(err, &badRules):
		return api.BadRequest("grammar", "%s", badRules.Error())
	case errors.As(err, &schema):
		return api.BadRequest("response_format", "%s", schema.Error())
	case errors.As(err, &syntax):
		return api.BadRequest("grammar", "%s", syntax.Error())
	case errors.As(err, &rendering):
		return api.BadRequest("messages", "%s", rendering.Error())
	case errors.Is(err, engine.ErrClosed):
		return api.Busy(http.StatusServiceUnavailable, time.Second, "the model is being unloaded; try again")
	case errors.Is(err, engine.ErrNoGeneration):
		return api.BadRequest("model", "model %q makes embeddings only; use /v1/embeddings, or another model", model)
	}
	return &api.Error{Status: http.StatusInternalServerError, Type: "server_error", Code: "internal_error", Message: err.Error()}
}

func withStatus(status int, code string, err error) *api.Error {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "server_error"
	}
	return &api.Error{Status: status, Type: kind, Code: code, Message: err.Error()}
}
