// Package node assembles one tandem node and runs requests on it.
//
// New opens the data folder and wires the parts by hand; Run opens the port,
// serves until its context ends, lets running answers finish and frees
// everything in reverse order. Generate in request.go is one request from top to
// bottom and the place to start reading. HTTP belongs to node/api, the model's
// owner loop to node/engine, files to node/models, text of conversations to
// node/chat and node/grammar: this package only joins them.
//
// Goroutines: the HTTP server's, one that gets and loads the default model, one
// per choice of a request with several, and those of the pool and its engines.
// close waits for all of them.
//
// What happens is told as typed events (events.go); log, metrics and
// /admin/events listen to the same ones. Errors of the parts become HTTP errors
// in one table (refusal.go).
package node
