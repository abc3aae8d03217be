package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

// Change has the cluster make a change and returns when this is agreed: on the disks
// of a majority, and applied by the leader. This node's State may be a moment behind.
//
//   - nil: it is made.
//   - *InvalidError, *StaleError: it was refused and is not made.
//   - *NoQuorumError: there is nobody who could make it, and it is not made. If it is
//     known that voters are missing this comes at once, else after three heartbeats.
//   - ErrUncertain: it may or may not be made.
//   - ErrBusy, ErrClosed: it is not made.
//
// It asks again on its own where that is safe: a change is made once, however often
// it is asked for.
func (q *Quorum) Change(ctx context.Context, c Change) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := validSettings(c.Set, nil); err != nil {
		return err
	}
	return q.submit(ctx, command{Version: commandVersion, ID: token(), Change: &c})
}

// submit finds the leader and has it append the command.
func (q *Quorum) submit(ctx context.Context, c command) error {
	data, err := c.encode()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.cfg.ChangeLimit)
	defer cancel()
	uncertain := false
	leaderless := time.Now()
	for {
		k, err := q.current()
		if err != nil {
			return sure(uncertain, err)
		}
		switch leader := k.leader(); leader {
		case "":
			err = errNotLeader
			if why := q.noQuorum(time.Since(leaderless) > 3*q.cfg.Heartbeat); why != nil {
				return sure(uncertain, why)
			}
		case q.cfg.Self:
			err = q.propose(ctx, k, c)
		default:
			err = q.forward(ctx, leader, data)
		}
		if k.leader() != "" {
			leaderless = time.Now()
		}
		if err == nil || !errors.Is(err, errNotLeader) && !errors.Is(err, ErrUncertain) {
			return err
		}
		uncertain = uncertain || errors.Is(err, ErrUncertain)
		if !pause(ctx, q.cfg.Heartbeat/20) {
			if why := q.noQuorum(true); why != nil {
				err = why
			}
			return sure(uncertain, fmt.Errorf("%w: %w", err, ctx.Err()))
		}
	}
}

// sure says that a change may have been made, if that is so, whatever came after.
func sure(uncertain bool, err error) error {
	if uncertain {
		return fmt.Errorf("%w (%w)", ErrUncertain, err)
	}
	return err
}

// forward asks the leader. An answer that does not come is uncertain, but for one that
// cannot: a question that was never sent is no reason for doubt, yet from here the two
// look alike.
func (q *Quorum) forward(ctx context.Context, leader member.ID, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, q.cfg.rpcLimit())
	defer cancel()
	res, err := q.ask(ctx, leader, request{Kind: kindChange, Command: data})
	if err != nil {
		return fmt.Errorf("%w: node %s: %w", ErrUncertain, leader.Short(), err)
	}
	return res.err()
}

// propose appends a command, on the leader. errNotLeader: it was not appended.
func (q *Quorum) propose(ctx context.Context, k *core, c command) error {
	if c.Change != nil {
		if err := validSettings(c.Change.Set, q.cfg.ValidSetting); err != nil {
			return err
		}
	}
	data, err := c.encode()
	if err != nil {
		return err
	}
	select {
	case q.changes <- struct{}{}:
	default:
		return ErrBusy
	}
	limit := q.cfg.ChangeLimit
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Millisecond, time.Until(deadline))
	}
	var applied raft.ApplyFuture
	err = k.await(ctx, func() raft.Future {
		applied = k.raft.Apply(data, limit)
		return tokenFuture{applied, q.changes}
	})
	switch {
	case err == nil:
		if refusal, ok := applied.Response().(error); ok {
			return refusal
		}
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return errNotLeader
	default:
		return fmt.Errorf("%w: %w", ErrUncertain, errors.Join(err, k.troubleError()))
	}
}

// tokenFuture gives a token back when raft is done with a change.
type tokenFuture struct {
	raft.Future
	tokens chan struct{}
}

// Error waits for raft.
func (f tokenFuture) Error() error {
	defer func() { <-f.tokens }()
	return f.Future.Error()
}

// Leave takes this node out of the voters, for a node that stops on purpose: the
// others then need no majority that counts it. A leader hands over first. It is best
// done before gossip says that the node leaves, and Close comes after it. For a
// cluster of one there is nothing to do. *NoQuorumError: the others cannot be asked;
// the node stays a voter and may be closed all the same.
func (q *Quorum) Leave(ctx context.Context) error {
	for {
		k, err := q.current()
		if err != nil {
			return err
		}
		servers := k.servers()
		if len(servers) == 0 || len(servers) == 1 && servers[0].ID == raft.ServerID(q.cfg.Self) {
			return nil
		}
		switch leader := k.leader(); leader {
		case "":
			err = q.noQuorum(false)
			if err != nil {
				return err
			}
		case q.cfg.Self:
			err = q.handOver(ctx, k)
		default:
			var res response
			if res, err = q.ask(ctx, leader, request{Kind: kindLeave}); err == nil {
				if err = res.err(); err == nil {
					return nil
				}
			}
		}
		if !pause(ctx, q.cfg.Heartbeat/20) {
			return fmt.Errorf("the others did not let this node go in time, so it stays a voter: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// handOver gives the leadership to another voter.
func (q *Quorum) handOver(ctx context.Context, k *core) error {
	return k.await(ctx, func() raft.Future { return k.raft.LeadershipTransfer() })
}

// release removes a node that asked for it.
func (q *Quorum) release(ctx context.Context, id member.ID) error {
	k, err := q.current()
	if err != nil || k.leader() != q.cfg.Self {
		return errNotLeader
	}
	q.mu.Lock()
	q.mu.leaving[id] = startedOf(q.cfg.Members(), id)
	if len(q.mu.leaving) > nodesMax {
		clear(q.mu.leaving)
	}
	q.mu.Unlock()
	return q.remove(ctx, k, id)
}

func startedOf(members []member.Member, id member.ID) time.Time {
	for _, m := range members {
		if m.ID == id {
			return m.Started
		}
	}
	return time.Time{}
}

// remove takes a node out of the configuration and out of those that are known.
func (q *Quorum) remove(ctx context.Context, k *core, id member.ID) error {
	err := k.await(ctx, func() raft.Future { return k.raft.RemoveServer(raft.ServerID(id), 0, q.cfg.rpcLimit()) })
	if err != nil {
		return fmt.Errorf("%w: %w", errNotLeader, err)
	}
	return q.propose(ctx, k, command{Version: commandVersion, ID: token(), Node: &nodeCommand{ID: id}})
}
