// Package scheduler decides which node answers a request. It is values in, values
// out: no goroutine, clock, random source or I/O, so that a decision can be repeated
// from what went in, and a simulator is the same code under virtual time. Times come
// in as parameters, and ties are broken by a seed that is one, too.
//
// An Index knows which blocks of KV each node holds in which tier, from numbered
// events of that node, or from a snapshot when one was missed. Match gives the
// Holdings of a prompt's chain. State says what is known of nodes, each figure with
// its age. Place takes both and gives a Decision: the node, what it may fetch from
// others, an estimate, the reason in words and the scores of all candidates. A Ledger
// keeps what this node gave to others since their last report, so that a burst is not
// all sent to the same one.
//
// Costs are milliseconds, see cost.go: waiting, restoring and computing the prompt,
// and what the answer costs itself and those that run there. The other policies have
// the same signature and serve comparison.
//
// A Planner gives nodes roles, for the load of the next minutes: plan.go. OwnRole is what
// a node makes of a plan.
//
// An Index, a Ledger and a Planner belong to one goroutine at a time: the caller locks. Place
// and the other policies keep nothing and only read what they are given. Nothing
// blocks; a decision takes some tens of microseconds, also with a million blocks.
//
// Invariants: a node that is not alive, not ready, or excluded is never chosen; a
// figure that is too old counts as unknown; blocks of a node that was forgotten or
// restarted are never matched, nor is what was predicted of it. They stand with the
// types.
//
// Errors to match: *GapError and *NodesError of the Index; *Busy, *NotReadyError,
// *UnknownModelError and *TooLongError of policies; ErrInvalid of decoders.
//
// Start reading in state.go, then place.go and cost.go; index.go for what is where;
// plan.go and plan_forecast.go for roles.
package scheduler
