package scheduler

import (
	"slices"
	"time"

	"tandem/cluster/member"
)

// ledgerMax bounds what is remembered of one node; with so much unreported it is not
// chosen for what the oldest added.
const ledgerMax = 1024

// Ledger remembers what this node gave to others, and to itself, that their last load
// report does not show yet.
type Ledger struct{ nodes map[member.ID][]given }

type given struct {
	tokens int
	at     time.Time
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger { return &Ledger{nodes: map[member.ID][]given{}} }

// Gave notes a request that was given to a node, with the tokens that it must compute.
func (l *Ledger) Gave(node member.ID, tokens int, at time.Time) {
	list := l.nodes[node]
	if len(list) >= ledgerMax {
		list = slices.Delete(list, 0, 1)
	}
	l.nodes[node] = append(list, given{tokens, at})
}

// Reported says that a report has come which shows everything that was given before a
// time of this node's clock: when the report came, less the way there and back.
func (l *Ledger) Reported(node member.ID, before time.Time) {
	l.nodes[node] = slices.DeleteFunc(l.nodes[node], func(g given) bool { return g.at.Before(before) })
}

// Sent is what no report shows: requests and tokens, for Model.Sent and SentTokens.
func (l *Ledger) Sent(node member.ID) (requests, tokens int) {
	for _, g := range l.nodes[node] {
		tokens += g.tokens
	}
	return len(l.nodes[node]), tokens
}

// Forget drops what is known of a node.
func (l *Ledger) Forget(node member.ID) { delete(l.nodes, node) }
