package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
)

// HeldBlock is a verified block that stays as it is until its Release.
type HeldBlock interface {
	Header() block.Header
	Payload() []byte
	Release()
}

// Holder gives blocks to others.
type Holder interface {
	// Take gives a block as soon as it is held, or an error when ctx ends.
	Take(ctx context.Context, id block.ID) (HeldBlock, error)
}

// Lender makes blocks readable for pullers that read memory themselves.
type Lender interface {
	// Lend begins a pull of a peer. Nil: there is no such memory, and the blocks go
	// as bytes.
	Lend(peer member.ID, way PullWay) Loan
}

// Loan is the memory of one pull. Its methods may be called at once.
type Loan interface {
	// Place makes a block readable and says where. It may wait for Back until ctx
	// ends. An error: this block goes as bytes.
	Place(ctx context.Context, b HeldBlock) (at uint64, err error)
	// Back takes the place of a block that was read.
	Back(at uint64, b HeldBlock)
	// Close ends the loan when it takes no more. late: the lease on some places ended
	// before the puller said that it had read them.
	Close(late bool)
}

// ServePull is the handler of ServicePull. l may be nil.
func ServePull(h Holder, l Lender, served func(blocks int, bytes int64)) Handler {
	return servePull(h, l, served, pullLease)
}

func servePull(h Holder, l Lender, served func(blocks int, bytes int64), lease time.Duration) Handler {
	places := make(chan struct{}, PullsMax)
	return func(ctx context.Context, s *Stream) error {
		data, err := ReadMessage(s, pullRequestMax)
		if err != nil {
			return err
		}
		way, wait, ids, err := decodePull(data)
		if err != nil {
			return &RemoteError{Code: CodeProtocol, Text: err.Error()}
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			return endPull(s, PullBusy, fmt.Sprintf("%d pulls are served, the most at once", PullsMax))
		}
		g := &giver{holder: h, s: s, served: served}
		if l != nil && way != PullBytes {
			if loan := l.Lend(s.Peer(), way); loan != nil {
				return g.lend(ctx, loan, lease, wait, ids)
			}
		}
		return g.give(ctx, wait, ids)
	}
}

// giver serves one pull.
type giver struct {
	holder Holder
	s      *Stream
	served func(blocks int, bytes int64)
	lent   *lent // nil: all goes as bytes
}

// missError says that a block was not there, or not in time.
type missError struct {
	id  block.ID
	err error
}

func (e *missError) Error() string { return fmt.Sprintf("block %v: %v", e.id, e.err) }

// give answers with all blocks and the end. wait bounds the time until they are there.
func (g *giver) give(ctx context.Context, wait time.Duration, ids []block.ID) error {
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for _, id := range ids {
		err := g.block(ctx, until, id)
		var miss *missError
		switch {
		case errors.As(err, &miss):
			if err := g.lent.settled(ctx); err != nil {
				return err
			}
			return endPull(g.s, PullMissing, miss.Error())
		case err != nil:
			return err
		}
	}
	if err := g.lent.settled(ctx); err != nil {
		return err
	}
	return endPull(g.s, PullComplete, "")
}

// block gives one block. The lease on it ends with the write, or when the puller has
// read it.
func (g *giver) block(ctx, until context.Context, id block.ID) error {
	b, err := g.holder.Take(until, id)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			b.Release()
		}
		return context.Cause(ctx)
	case err != nil:
		return &missError{id, err}
	}
	if g.lent != nil {
		switch at, err := g.lent.place(ctx, b); {
		case err == nil:
			return g.frame(binary.BigEndian.AppendUint64(block.AppendHeader([]byte{pullFramePlace}, b.Header()), at))
		case ctx.Err() != nil:
			b.Release()
			return context.Cause(ctx)
		}
	}
	defer b.Release()
	if err := g.frame(block.AppendHeader([]byte{pullFrameBlock}, b.Header())); err != nil {
		return err
	}
	if _, err := g.s.Write(b.Payload()); err != nil {
		return err
	}
	g.served(1, int64(len(b.Payload())))
	return nil
}

func (g *giver) frame(b []byte) error {
	g.s.SetWriteDeadline(time.Now().Add(pullLease))
	_, err := g.s.Write(b)
	return err
}

// lend gives places in memory, and waits at the end until all were read.
func (g *giver) lend(ctx context.Context, loan Loan, lease, wait time.Duration, ids []block.ID) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g.lent = &lent{loan: loan, out: make(chan lentBlock, pullLent), places: make(chan struct{}, pullLent)}
	var words sync.WaitGroup
	words.Go(func() {
		if err := g.lent.listen(g.s, lease, g.served); err != nil {
			cancel(err)
		}
	})
	err := g.give(ctx, wait, ids)
	g.lent.over.Store(true)
	g.s.SetReadDeadline(long)
	words.Wait()
	g.lent.close()
	return err
}

// lent are the blocks that a puller may read now, oldest first.
type lent struct {
	loan   Loan
	places chan struct{} // one is put in for each block that is lent
	out    chan lentBlock
	over   atomic.Bool // the pull has ended: nobody needs to listen
}

type lentBlock struct {
	b  HeldBlock
	at uint64
}

// place lends a block. Without an error it is released when the puller has read it,
// or the pull ends.
func (l *lent) place(ctx context.Context, b HeldBlock) (at uint64, err error) {
	select {
	case l.places <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if at, err = l.loan.Place(ctx, b); err != nil {
		<-l.places
		return 0, err
	}
	l.out <- lentBlock{b, at} // has room: a place was taken
	return at, nil
}

// listen takes the puller's words until the pull is over, or the puller says nothing
// for the time of a lease.
func (l *lent) listen(s *Stream, lease time.Duration, served func(int, int64)) error {
	var word [1]byte
	for {
		s.SetReadDeadline(time.Now().Add(lease))
		if l.over.Load() { // before the deadline that was set just now
			return nil
		}
		_, err := io.ReadFull(s, word[:])
		switch {
		case err != nil && l.over.Load():
			return nil
		case isTimeout(err):
			return fmt.Errorf("the puller did not say for %v that it still reads: its lease is over", lease)
		case err != nil:
			return err
		}
		switch word[0] {
		case pullWordRenew:
		case pullWordRead:
			select {
			case one := <-l.out:
				served(1, int64(len(one.b.Payload())))
				l.back(one)
				<-l.places
			default:
				return errors.New("the puller has read a block that was not lent")
			}
		default:
			return fmt.Errorf("the puller said %#x, which means nothing", word[0])
		}
	}
}

func (l *lent) back(one lentBlock) {
	l.loan.Back(one.at, one.b)
	one.b.Release()
}

// settled waits until everything was read.
func (l *lent) settled(ctx context.Context) error {
	if l == nil {
		return nil
	}
	for range cap(l.places) {
		select {
		case l.places <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// close takes back what was not read, when nobody listens any more.
func (l *lent) close() {
	late := false
	for {
		select {
		case one := <-l.out:
			late = true
			l.back(one)
		default:
			l.loan.Close(late)
			return
		}
	}
}

func endPull(s *Stream, o Outcome, text string) error {
	text = text[:min(len(text), pullTextMax)]
	frame := binary.BigEndian.AppendUint16([]byte{pullFrameEnd, byte(o)}, uint16(len(text)))
	s.SetWriteDeadline(time.Now().Add(pullLease))
	_, err := s.Write(append(frame, text...))
	return err
}
