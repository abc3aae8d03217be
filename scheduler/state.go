package scheduler

import (
	"fmt"
	"time"

	"tandem/cluster/member"
)

// Figure is something that was measured, and when. Value 0 or less: never.
type Figure struct {
	Value float64
	Age   time.Duration
}

// State is what this node knows of all nodes, itself included, at one moment.
type State struct {
	Entry     member.ID // this node: requests come in here
	Nodes     []Node
	Links     []Link
	Transfers bool // nodes can move KV between each other
	Disagg    Disagg
	Tuning    Tuning
}

// Node is what is known of one node.
type Node struct {
	ID     member.ID
	Name   string
	State  member.State
	Role   member.Role
	Fixed  bool    // Role is its owner's word: a wall, where a planned one is a preference
	Models []Model // all that it has, in any order
	Mark   Mark
	// GoodAge is since its last good sign: a load report, or an answer. It clears
	// marks that are older.
	GoodAge time.Duration
}

// Model is a model on a node, with what was measured of it there.
type Model struct {
	Name  string
	Ready bool // it has answered a self test, or it can be loaded at once
	// LoadMs is what loading it costs before the first token, if it is not resident.
	LoadMs  float64
	Context int // most tokens of a request; 0: not known
	Slots   int // requests that it runs at once

	Running  int // requests in a slot
	Queued   int // requests that wait for one
	QueueMax int // more are refused; 0: not known
	Waiting  int // prompt tokens of both that are not computed yet
	Active   int // tokens whose KV running requests use
	LoadAge  time.Duration
	// Sent and SentTokens are requests, and their tokens to compute, that this node
	// gave to it since that report; see Ledger.
	Sent, SentTokens int

	PrefillRate Figure // prompt tokens/s, short contexts
	// PrefillContext is the context at which a token takes twice as long to compute
	// as in a short one; 0: not known.
	PrefillContext float64
	Decode         []Pace // by streams, ascending
	DecodeAge      time.Duration
	// DecodeContext is the context at which a token takes twice as long as Decode says;
	// 0: not known.
	DecodeContext float64
	SlotMs        Figure // time that a request keeps a slot
	RAMRate       Figure // bytes/s from its memory into its engine
	DiskRate      Figure // bytes/s from its disk into its engine
}

// Pace is how long a token takes each of some streams.
type Pace struct {
	Streams int
	Ms      float64
}

// Link is the way between two nodes, in either direction.
type Link struct {
	A, B    member.ID
	Goodput Figure // bytes/s
	RTTMs   Figure
}

// MarkKind is what went wrong with a node.
type MarkKind uint8

// The kinds. Refused: it could not be reached, or said that it does not serve. Failed:
// a request broke there. Full: it said that its queue is full.
const (
	NoMark MarkKind = iota
	Refused
	Failed
	Full
)

func (k MarkKind) String() string {
	switch k {
	case Refused:
		return "could not be reached"
	case Failed:
		return "failed a request"
	case Full:
		return "said that its queue is full"
	}
	return "no mark"
}

// Mark keeps requests from a node for a term. It ends by itself, and with the first
// good sign that is younger.
type Mark struct {
	Kind MarkKind
	Age  time.Duration
	Term time.Duration
}

// left is how long a mark still counts.
func (n *Node) left() time.Duration {
	if n.Mark.Kind == NoMark || n.GoodAge < n.Mark.Age {
		return 0
	}
	return max(0, n.Mark.Term-n.Mark.Age)
}

// Request is what has to be placed.
type Request struct {
	Model         string
	Tokens        int // of the prompt
	BlockTokens   int
	BytesPerToken int // of KV
	Expected      int // tokens of the answer, as far as can be guessed; 0: 256
	Holdings      []Holding
	// Exclude are nodes that failed this request already.
	Exclude []member.ID
	Number  uint64 // counts the requests of this node, for round-robin
	Seed    uint64 // decides between equals
}

// Tuning are the knobs of the cost policy. Zero values mean the default.
type Tuning struct {
	Hysteresis float64       // another node must be better than this one by this share; 0.1
	NoiseMs    float64       // and by this much; 2
	LoadStale  time.Duration // load reports older than this count as unknown; 5 s
	RateStale  time.Duration // rates, too; 24 h: machines change seldom
	LinkStale  time.Duration // goodput and RTT, too; 10 min
	ITLMs      float64       // wanted time between tokens; 100
	// DecodeWeight is what a millisecond of decoding counts beside one of waiting for
	// the first token, up to ITLMs; beyond it counts whole. 0.3
	DecodeWeight float64
	CopyUses     float64 // a beginning deserves one more copy for this many uses; 12
	CopyMsMax    float64 // what one request may pay for a copy; 1000
	FetchTokens  int     // fewer are not fetched from another node; 256
	// RoleShare is by what share work counts more on a node that is planned for other
	// work. 0.25
	RoleShare float64
}

// DefaultTuning is what zero values of Tuning mean.
func DefaultTuning() Tuning {
	return Tuning{
		Hysteresis: 0.1, NoiseMs: 2, LoadStale: 5 * time.Second, RateStale: 24 * time.Hour, LinkStale: 10 * time.Minute,
		ITLMs: 100, DecodeWeight: 0.3, CopyUses: 12, CopyMsMax: 1000, FetchTokens: 256, RoleShare: 0.25,
	}
}

func (t Tuning) filled() Tuning {
	d := DefaultTuning()
	fill(&t.Hysteresis, d.Hysteresis)
	fill(&t.NoiseMs, d.NoiseMs)
	fill(&t.LoadStale, d.LoadStale)
	fill(&t.RateStale, d.RateStale)
	fill(&t.LinkStale, d.LinkStale)
	fill(&t.ITLMs, d.ITLMs)
	fill(&t.DecodeWeight, d.DecodeWeight)
	fill(&t.CopyUses, d.CopyUses)
	fill(&t.CopyMsMax, d.CopyMsMax)
	fill(&t.FetchTokens, d.FetchTokens)
	fill(&t.RoleShare, d.RoleShare)
	return t
}

func fill[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// Decision says who answers a request.
type Decision struct {
	Node   member.ID
	Source member.ID // who computes most of the prompt
	Fetch  []Fetch   // what Node gets from others first; of Source it waits for it
	Ways   []Way     // how Node could get the prompt's KV, the chosen one first
	// EstimateMs is until the first token, as expected.
	EstimateMs float64
	// Cached are tokens of the prompt that need not be computed, Compute those that
	// must.
	Cached, Compute int
	Reason          string
	Policy          string
	Scores          []Score // of every node that was looked at, by id
}

// Fetch is a plan to get blocks of the prompt from another node.
type Fetch struct {
	From      member.ID
	First     int // place in the chain
	Blocks    int
	Ms        float64 // estimate
	ComputeMs float64 // what computing them on Node would take instead
	Made      bool    // From has to compute them first
}

// Score is how a node fared. If Why is not empty it was no candidate; otherwise Cost
// is what the policy compared, and the parts add up to it for the cost policy, in
// milliseconds.
type Score struct {
	Node      member.ID `json:"node"`
	Why       string    `json:"why,omitempty"`
	Cost      float64   `json:"cost"`
	QueueMs   float64   `json:"queue_ms"`
	ForwardMs float64   `json:"forward_ms"`
	FetchMs   float64   `json:"fetch_ms"`
	PrefillMs float64   `json:"prefill_ms"`
	DecodeMs  float64   `json:"decode_ms"`         // its own answer, weighed
	HarmMs    float64   `json:"harm_ms"`           // to answers that run there, weighed
	CopyMs    float64   `json:"copy_ms"`           // taken off, or added, to spread a beginning that many share
	RoleMs    float64   `json:"role_ms,omitempty"` // because it is planned for prompts of others
	Cached    int       `json:"cached_tokens"`
	Guessed   bool      `json:"guessed,omitempty"` // some figure was unknown
	source    member.ID // who computes most of the prompt
	plans     *plans    // of the node that was chosen
	firstMs   float64
	fromRAM   int
	fromDisk  int
	predicted int
}

// Busy says that every node that could answer has as much as it takes.
type Busy struct{ RetryAfter time.Duration }

func (e *Busy) Error() string {
	return fmt.Sprintf("all nodes have as many requests as they take: try again in %d s", seconds(e.RetryAfter))
}

// NotReadyError says that the model is known but no node can answer with it now.
type NotReadyError struct {
	Model      string
	Why        string // of the nodes that have it
	RetryAfter time.Duration
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("no node can answer with model %.64q now (%s): try again in %d s", e.Model, e.Why, seconds(e.RetryAfter))
}

// UnknownModelError says that no node has the model.
type UnknownModelError struct{ Model string }

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("no node has model %.64q", e.Model)
}

// TooLongError says that the prompt fits no node that could answer.
type TooLongError struct{ Tokens, Max int }

func (e *TooLongError) Error() string {
	return fmt.Sprintf("the prompt has %s tokens; the most that a ready node takes is %s, one of them for the answer",
		number(e.Tokens), number(e.Max))
}

func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// chainTokens is how many prompt tokens the first blocks of a chain stand for. The last
// token is always computed.
func (r *Request) chainTokens(blocks int) int {
	return max(0, min(blocks*r.BlockTokens, r.Tokens-1))
}
