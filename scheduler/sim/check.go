package sim

import (
	"fmt"
	"strings"
	"time"
)

// fault is planted by a test that shows a check firing.
type fault uint8

const (
	noFault fault = iota
	endsTwice
	losesRequest
	tokenEarly
	overfills
	timeRunsBack
)

// checker holds what is true of every run, whatever breaks in it: each request ends
// exactly once; no token without the KV of all before it; no node holds more than it
// has room for; time never runs back. It keeps its own account and is told of facts,
// not of intentions.
type checker struct {
	ends   []uint8
	faults []string
}

// faultsMax bounds what is told of a broken run.
const faultsMax = 8

func (c *checker) build(requests int) { c.ends = make([]uint8, requests) }

func (c *checker) fault(format string, args ...any) {
	if len(c.faults) < faultsMax {
		c.faults = append(c.faults, fmt.Sprintf(format, args...))
	}
}

func (c *checker) text() string { return strings.Join(c.faults, "; ") }

func (c *checker) time(now, next time.Duration) {
	if next < now {
		c.fault("time ran back from %v to %v", now, next)
	}
}

func (c *checker) end(number int) {
	if c.ends[number]++; c.ends[number] > 1 {
		c.fault("request %d ended %d times", number, c.ends[number])
	}
}

// credit notes tokens of a sequence's beginning whose KV is in the engine now.
func (c *checker) credit(t *task, tokens int) { t.credited += tokens }

// token is told before a sequence writes.
func (c *checker) token(t *task) {
	if t.credited < t.prompt {
		c.fault("request %d wrote a token on %s with the KV of %d of %d tokens", t.job.number, t.node.spec.Name, t.credited, t.prompt)
	}
}

func (c *checker) room(n *node) {
	if held := n.resident.size() + n.private; held > n.room {
		c.fault("%s holds %d blocks of KV; it has room for %d", n.spec.Name, held, n.room)
	}
	if n.ram.size() > n.ramRoom || n.disk.size() > n.diskRoom {
		c.fault("%s keeps %d and %d blocks; it has room for %d and %d", n.spec.Name, n.ram.size(), n.disk.size(), n.ramRoom, n.diskRoom)
	}
	if len(n.running) > n.spec.Slots {
		c.fault("%s runs %d requests in %d slots", n.spec.Name, len(n.running), n.spec.Slots)
	}
}

func (c *checker) finish(records []record) {
	for i := range records {
		if c.ends[i] == 0 {
			c.fault("request %d never ended", i)
		}
		if r := &records[i]; r.outcome == answered && (r.first < r.at || r.done < r.first) {
			c.fault("request %d came at %v, began to be answered at %v and ended at %v", i, r.at, r.first, r.done)
		}
	}
}
