// Package sim compares placement policies on a trace of requests. It runs the real
// scheduler.Index, Ledger and policies over nodes that are models: slots, a queue,
// prompts computed in chunks beside answers that are written, an LRU cache of blocks,
// reports and index events that arrive late, nodes that fail.
//
// It is a discrete-event simulation in one goroutine under virtual time. Everything
// random comes from Options.Seed: equal options give equal results.
//
// What it leaves out: lengths of answers that come back as part of the next prompt
// (a trace has them only as blocks), the network's bandwidth, and caches in several
// tiers. Figures are good for comparing policies, not for promising seconds.
//
// Start reading in sim.go, then node.go.
package sim
