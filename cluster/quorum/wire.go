package quorum

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tandem/cluster/member"
)

// card is what a node tells others of itself.
type card struct {
	ID          member.ID `json:"id"`
	realm                 // where it is
	Incarnation string    `json:"incarnation"`
	MayVote     bool      `json:"may_vote"`

	Voters  []member.ID `json:"voters"`           // of its cluster, as it knows them
	Leader  member.ID   `json:"leader,omitempty"` // of its cluster, ""; nobody
	Changes uint64      `json:"changes"`          // State.Changes
	Applied uint64      `json:"applied"`          // the last entry in its state machine
	Command int         `json:"command"`          // the newest command version that it applies
}

// waits tells whether a node has no cluster yet.
func (c card) waits() bool { return c.Cluster == "" }

// request is what Forward carries, response what comes back.
type request struct {
	Version int             `json:"v"`
	Kind    string          `json:"kind"`
	Card    card            `json:"card"`
	Command json.RawMessage `json:"command,omitempty"` // of a change
}

type response struct {
	Version int       `json:"v"`
	Card    card      `json:"card"`
	Code    string    `json:"code,omitempty"` // "": it went well
	Message string    `json:"message,omitempty"`
	Fields  []string  `json:"fields,omitempty"` // of an InvalidError
	Epochs  [2]uint64 `json:"epochs"`           // of a StaleError
}

const (
	wireVersion = 1

	kindWho    = "who"    // who are you; here is who I am
	kindChange = "change" // append this command
	kindLeave  = "leave"  // remove me

	codeInvalid   = "invalid"
	codeStale     = "stale"
	codeNotLeader = "not-leader"
	codeUncertain = "uncertain"
	codeBusy      = "busy"
	codeFailed    = "failed"
)

// errNotLeader: the command was not appended; ask somebody else.
var errNotLeader = errors.New("not the leader")

func decodeRequest(data []byte) (request, error) {
	var r request
	if len(data) > forwardBytesMax {
		return r, fmt.Errorf("request of %d bytes; the most is %d", len(data), forwardBytesMax)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("request: %w", err)
	}
	if r.Version != wireVersion {
		return r, fmt.Errorf("request of version %d; this program knows %d: run the same version on all nodes", r.Version, wireVersion)
	}
	return r, r.Card.check()
}

func decodeResponse(data []byte) (response, error) {
	var r response
	if len(data) > forwardBytesMax {
		return r, fmt.Errorf("response of %d bytes; the most is %d", len(data), forwardBytesMax)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("response: %w", err)
	}
	if r.Version != wireVersion {
		return r, fmt.Errorf("response of version %d; this program knows %d: run the same version on all nodes", r.Version, wireVersion)
	}
	return r, r.Card.check()
}

func (c card) check() error {
	if _, err := member.ParseID(string(c.ID)); err != nil {
		return err
	}
	if c.Incarnation == "" {
		return fmt.Errorf("card of node %s without an incarnation", c.ID.Short())
	}
	if len(c.Voters) > nodesMax {
		return fmt.Errorf("card of node %s with %d voters; the most is %d", c.ID.Short(), len(c.Voters), nodesMax)
	}
	for _, s := range []string{c.Cluster, c.Tag, c.Incarnation, string(c.Leader)} {
		if len(s) > idBytesMax {
			return fmt.Errorf("card of node %s with an id of %d bytes; the most is %d", c.ID.Short(), len(s), idBytesMax)
		}
	}
	return nil
}

// fail puts an error into a response, so that the other side gets the same kind.
func (r *response) fail(err error) {
	var invalid *InvalidError
	var stale *StaleError
	switch r.Message = err.Error(); {
	case errors.As(err, &invalid):
		value := invalid.Value
		r.Code, r.Fields = codeInvalid, []string{invalid.Field, value[:min(len(value), valueBytesMax)], invalid.Allowed}
	case errors.As(err, &stale):
		r.Code, r.Epochs = codeStale, [2]uint64{stale.Have, stale.Got}
	case errors.Is(err, errNotLeader):
		r.Code = codeNotLeader
	case errors.Is(err, ErrUncertain):
		r.Code = codeUncertain
	case errors.Is(err, ErrBusy):
		r.Code = codeBusy
	default:
		r.Code = codeFailed
	}
	if len(r.Message) > reasonBytesMax {
		r.Message = r.Message[:reasonBytesMax]
	}
}

// err is the error that the other side had.
func (r response) err() error {
	switch r.Code {
	case "":
		return nil
	case codeInvalid:
		if len(r.Fields) == 3 {
			return &InvalidError{Field: r.Fields[0], Value: r.Fields[1], Allowed: r.Fields[2]}
		}
	case codeStale:
		return &StaleError{Have: r.Epochs[0], Got: r.Epochs[1]}
	case codeNotLeader:
		return errNotLeader
	case codeUncertain:
		return ErrUncertain
	case codeBusy:
		return ErrBusy
	}
	return fmt.Errorf("node %s refused: %.1024s", r.Card.ID.Short(), r.Message)
}

// HandleForward answers what another node's Forward brings. From must be
// authenticated. Its errors are of the request's form; all else is in the answer.
func (q *Quorum) HandleForward(ctx context.Context, from member.ID, data []byte) ([]byte, error) {
	req, err := decodeRequest(data)
	if err != nil {
		return nil, err
	}
	if req.Card.ID != from {
		return nil, fmt.Errorf("node %s sent the card of node %s", from.Short(), req.Card.ID.Short())
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.ChangeLimit)
	defer cancel()
	if _, err := q.current(); err != nil {
		return nil, err // there is nothing yet, or no more, that this node could say of itself
	}
	q.hear(req.Card)
	res := response{Version: wireVersion}
	switch req.Kind {
	case kindWho:
	case kindChange:
		err = q.proposeFor(ctx, req)
	case kindLeave:
		err = q.release(ctx, from)
	default:
		err = fmt.Errorf("request of kind %.32q is not known here", req.Kind)
	}
	if err != nil {
		res.fail(err)
	}
	if res.Card = q.card(); res.Card.Incarnation == "" {
		return nil, errors.New("this node is changing its part in the cluster; ask again")
	}
	return json.Marshal(res)
}

// proposeFor appends another node's command.
func (q *Quorum) proposeFor(ctx context.Context, req request) error {
	k, err := q.current()
	if err != nil {
		return errNotLeader
	}
	if req.Card.realm != k.store.who().realm {
		return errNotLeader // it would land in another cluster
	}
	c, err := decodeCommand(req.Command)
	if err != nil {
		return err
	}
	if c.Change == nil {
		return &InvalidError{Field: "command", Value: "node", Allowed: "a change"}
	}
	return q.propose(ctx, k, c)
}

// ask sends a request and gives the answer with its card.
func (q *Quorum) ask(ctx context.Context, to member.ID, req request) (response, error) {
	req.Version, req.Card = wireVersion, q.card()
	if req.Card.Incarnation == "" {
		return response{}, errors.New("this node is changing its part in the cluster")
	}
	data, err := json.Marshal(req)
	if err != nil {
		return response{}, err
	}
	answer, err := q.cfg.Streams.Forward(ctx, to, data)
	if err != nil {
		return response{}, err
	}
	res, err := decodeResponse(answer)
	if err == nil && res.Card.ID != to {
		err = fmt.Errorf("node %s answered for node %s", res.Card.ID.Short(), to.Short())
	}
	if err == nil {
		q.hear(res.Card)
	}
	return res, err
}

// card says who this node is.
func (q *Quorum) card() card {
	k, err := q.current()
	if err != nil {
		return card{ID: q.cfg.Self}
	}
	id, shown := k.store.who(), k.fsm.shown.Load()
	return card{
		ID: q.cfg.Self, realm: id.realm, Incarnation: id.Incarnation, MayVote: id.MayVote,
		Voters: k.voters(), Leader: k.leader(), Changes: max(id.Changes, shown.state.Changes), Applied: k.raft.AppliedIndex(), Command: commandVersion,
	}
}
