package node

import (
	"context"
	"errors"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore"
	"tandem/kvstore/block"
	"tandem/xfer"
)

// kvHolder gives the blocks of this node to others: xfer.Holder.
type kvHolder struct{ keeper *keeper }

func (h kvHolder) Take(ctx context.Context, id block.ID) (xfer.HeldBlock, error) {
	ref, err := h.keeper.store.Await(ctx, id)
	if err != nil {
		return nil, err
	}
	return givenBlock{ref}, nil
}

type givenBlock struct{ ref *kvstore.Ref }

func (b givenBlock) Header() block.Header { return b.ref.Header }
func (b givenBlock) Payload() []byte      { return b.ref.Payload() }
func (b givenBlock) Release()             { b.ref.Release() }

// kvSink takes blocks of others into memory: xfer.Sink. Its blocks stay until Close.
type kvSink struct {
	keeper *keeper
	refs   []*kvstore.Ref // taken, in the order of the chain
}

func (s *kvSink) Room(h block.Header) (xfer.Room, error) {
	in, err := s.keeper.store.Incoming(h)
	switch {
	case err == nil:
		return in, nil
	case errors.Is(err, kvstore.ErrNoRoom):
		return nil, &xfer.PullError{Outcome: xfer.PullNoRoom, Err: err}
	case errors.Is(err, kvstore.ErrUnknownShape):
		return nil, &xfer.PullError{Outcome: xfer.PullUnknown, Err: err}
	case errors.Is(err, kvstore.ErrClosed):
		return nil, &xfer.PullError{Outcome: xfer.PullCancelled, Err: err}
	}
	return nil, &xfer.PullError{Outcome: xfer.PullDamaged, Err: err}
}

func (s *kvSink) Take(r xfer.Room) error {
	ref, err := r.(*kvstore.Incoming).Insert()
	if err != nil {
		return &xfer.PullError{Outcome: xfer.PullNoRoom, Err: err} // what it follows was evicted, or the store closes
	}
	s.refs = append(s.refs, ref)
	return nil
}

func (s *kvSink) Close() {
	for _, r := range s.refs {
		r.Release()
	}
	s.refs = nil
}

// pull gets blocks of a chain from another node, over the way that is fastest to it,
// and learns how fast that is. What came is in the sink, whatever the error, which is
// a *xfer.PullError.
func (p *peers) pull(ctx context.Context, from member.ID, ids []block.ID, wait time.Duration, sink *kvSink) (xfer.Pulled, xfer.Transport, error) {
	// Beside memory a connection carries words about blocks, and those that found no place;
	// without it, should it have gone this moment, all of them.
	way, carrier := p.bulk.way(from), p.bulk.network(from)
	memory := p.memory.of(from, way)
	if memory == nil {
		way = carrier
	}
	pull := xfer.Pull{IDs: ids, Wait: wait, Lanes: xfer.BulkLanes(way), Sink: sink, Memory: memory, Open: func(ctx context.Context, lane int) (*xfer.Stream, error) {
		return p.link.OpenBulk(ctx, from, xfer.ServicePull, carrier, lane)
	}}
	pulled, err := pull.Run(ctx)
	if wait == 0 {
		p.bulk.moved(from, way, pulled.Bytes, pulled.Took)
	}
	var failed *xfer.PullError
	if errors.As(err, &failed) && failed.Outcome == xfer.PullLost && pulled.Blocks == 0 {
		p.bulk.failed(from, way, failed)
		p.memory.failed(from, way)
	}
	return pulled, way, err
}

// outcomeOf names how a transfer ended.
func outcomeOf(err error) string {
	var known *xfer.PullError
	switch {
	case err == nil:
		return xfer.PullComplete.String()
	case errors.As(err, &known):
		return known.Outcome.String()
	}
	return xfer.PullLost.String() // it did not begin
}
