// Package api is the HTTP side of a node: it reads requests in the shapes of
// OpenAI, Anthropic and Ollama, checks everything that can be checked without a model,
// and writes answers and streams. What it needs of the node are the interfaces
// [Generator], [Library], [Admin] and [KV]; it knows nothing of models, engines or
// peers, and which model exists, what a prompt costs and where it runs is decided
// behind them.
//
// The nouns: a dialect is one endpoint's way to speak (decode a request, encode a
// stream, encode a whole answer, refuse); a call is a decoded request with how its
// client wants the answer; a stream is the one writer of an open response.
//
// Reading order: server.go (routes and what surrounds them), decode.go (the strict
// field decoder), openai_chat.go (a dialect), generate.go (one request from its
// body to its record), stream.go (who writes).
//
// Rules that hold for every endpoint:
//   - A documented parameter is honoured or refused with a 400 that names it. An
//     unknown one changes nothing and is named in X-Tandem-Warning.
//   - Every length, count and depth from outside meets a limit of limits.go before
//     anything is allocated for it.
//   - Errors of Generator, Library, Admin and KV that are an [*Error] reach the client
//     as they are; of any other the client sees a status and a request id only.
//   - What can be refused is refused with an HTTP status before a stream opens. An
//     error after that is the stream's last event: data: {"error":{...}} without
//     [DONE] for OpenAI (the official SDKs raise it), event: error for Anthropic,
//     response.failed for /v1/responses, {"error":"..."} for Ollama.
//   - Each generation request makes exactly one [RequestRecord].
//
// Goroutines: a handler runs Generate on its own goroutine. An open stream has one
// more, which alone writes to the connection and ends before the handler returns.
// Sink methods block while that writer is behind, for at most the write timeout;
// then the request's context is cancelled.
package api
