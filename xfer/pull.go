package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"tandem/kvstore/block"
)

// ServicePull is where a node gives KV blocks to others: docs/kv-pull.md.
const ServicePull = "kv/pull"

// Limits of a pull.
const (
	// PullBlocksMax is the most blocks of one pull: a prompt of a million tokens in
	// blocks of 64.
	PullBlocksMax = 1 << 14
	// PullWaitMax is the longest that a holder waits for blocks that are being made.
	PullWaitMax = 10 * time.Minute
	// PullsMax is how many pulls a holder serves at once; each has one block at a time.
	PullsMax = 64
	// pullLease is how long a holder keeps a block for a puller that takes nothing.
	pullLease = 30 * time.Second
	// pullStall is how long a puller waits for the next byte of a block that was begun.
	pullStall = 5 * time.Second

	pullVersion    = 1
	pullHeadBytes  = 1 + 3 + 4 + 4
	pullRequestMax = pullHeadBytes + PullBlocksMax*len(block.ID{})
	pullTextMax    = 512
	pullFrameBlock = 'B'
	pullFrameEnd   = 'E'
	pullLanesMax   = 16
)

// Outcome says how a pull ended.
type Outcome uint8

// The outcomes. Whatever comes before the end can be used; what is missing is
// computed.
const (
	// PullComplete: every block came.
	PullComplete Outcome = iota
	// PullMissing: the holder does not hold the next block, or did not get it in time.
	PullMissing
	// PullBusy: the holder serves as many pulls as it can.
	PullBusy
	// PullNoRoom: the puller has no memory for the next block.
	PullNoRoom
	// PullDamaged: a block did not verify, or was not the one that was asked for.
	PullDamaged
	// PullUnknown: the puller does not know the shape of such blocks.
	PullUnknown
	// PullLost: the holder, or the way to it, is gone, or stood still.
	PullLost
	// PullCancelled: the puller wants no more, or its time is over.
	PullCancelled
	outcomes
)

func (o Outcome) String() string {
	if o >= outcomes {
		return fmt.Sprintf("outcome(%d)", uint8(o))
	}
	return [...]string{"complete", "missing", "busy", "no_room", "damaged", "unknown_shape", "lost", "cancelled"}[o]
}

// PullError says why a pull ended early.
type PullError struct {
	Outcome Outcome
	Err     error // may be nil
}

func (e *PullError) Error() string {
	text := map[Outcome]string{
		PullMissing: "the holder has no more of the blocks", PullBusy: "the holder serves too many others", PullNoRoom: "there is no memory for more blocks",
		PullDamaged: "a block did not verify", PullUnknown: "blocks of that shape are not known here", PullLost: "the holder is gone", PullCancelled: "it was cancelled",
	}[e.Outcome]
	if e.Err != nil {
		return text + ": " + e.Err.Error()
	}
	return text
}

func (e *PullError) Unwrap() error { return e.Err }

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

// ServePull is the handler of ServicePull.
func ServePull(h Holder, served func(blocks int, bytes int64)) Handler {
	places := make(chan struct{}, PullsMax)
	return func(ctx context.Context, s *Stream) error {
		data, err := ReadMessage(s, pullRequestMax)
		if err != nil {
			return err
		}
		wait, ids, err := decodePull(data)
		if err != nil {
			return &RemoteError{Code: CodeProtocol, Text: err.Error()}
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			return endPull(s, PullBusy, fmt.Sprintf("%d pulls are served, the most at once", PullsMax))
		}
		until, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		// The puller says nothing more: its end of the stream, or a cancel, ends the
		// context of the handler.
		for _, id := range ids {
			if err := giveBlock(ctx, until, h, s, id, served); err != nil {
				var miss *missError
				if errors.As(err, &miss) {
					return endPull(s, PullMissing, miss.Error())
				}
				return err
			}
		}
		return endPull(s, PullComplete, "")
	}
}

// missError says that a block was not there, or not in time.
type missError struct {
	id  block.ID
	err error
}

func (e *missError) Error() string { return fmt.Sprintf("block %v: %v", e.id, e.err) }

// giveBlock writes one block. until bounds the wait for it; the lease on it ends with
// the write.
func giveBlock(ctx, until context.Context, h Holder, s *Stream, id block.ID, served func(int, int64)) error {
	b, err := h.Take(until, id)
	switch {
	case ctx.Err() != nil:
		if err == nil {
			b.Release()
		}
		return context.Cause(ctx)
	case err != nil:
		return &missError{id, err}
	}
	defer b.Release()
	s.SetWriteDeadline(time.Now().Add(pullLease))
	if _, err := s.Write(block.AppendHeader([]byte{pullFrameBlock}, b.Header())); err != nil {
		return err
	}
	if _, err := s.Write(b.Payload()); err != nil {
		return err
	}
	served(1, int64(len(b.Payload())))
	return nil
}

func endPull(s *Stream, o Outcome, text string) error {
	text = text[:min(len(text), pullTextMax)]
	frame := binary.BigEndian.AppendUint16([]byte{pullFrameEnd, byte(o)}, uint16(len(text)))
	s.SetWriteDeadline(time.Now().Add(pullLease))
	_, err := s.Write(append(frame, text...))
	return err
}

// encodePull is the request for blocks, each of which the holder may wait for.
func encodePull(wait time.Duration, ids []block.ID) []byte {
	b := make([]byte, 4, pullHeadBytes+len(ids)*len(block.ID{}))
	b[0] = pullVersion
	b = binary.BigEndian.AppendUint32(b, uint32(min(max(wait, 0), PullWaitMax).Milliseconds()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

func decodePull(b []byte) (wait time.Duration, ids []block.ID, err error) {
	if len(b) < pullHeadBytes {
		return 0, nil, fmt.Errorf("a pull of %d bytes; at least %d", len(b), pullHeadBytes)
	}
	if b[0] != pullVersion {
		return 0, nil, fmt.Errorf("pull version %d; allowed: %d: update the older program", b[0], pullVersion)
	}
	wait = time.Duration(binary.BigEndian.Uint32(b[4:])) * time.Millisecond
	n := binary.BigEndian.Uint32(b[8:])
	rest := b[pullHeadBytes:]
	switch {
	case wait > PullWaitMax:
		return 0, nil, fmt.Errorf("a pull that waits %v; at most %v", wait, PullWaitMax)
	case n < 1 || n > PullBlocksMax:
		return 0, nil, fmt.Errorf("a pull of %d blocks; 1 to %d are allowed", n, PullBlocksMax)
	case len(rest) != int(n)*len(block.ID{}):
		return 0, nil, fmt.Errorf("a pull of %d blocks with %d bytes of ids", n, len(rest))
	}
	ids = make([]block.ID, n)
	for i := range ids {
		copy(ids[i][:], rest[i*len(ids[i]):])
	}
	return wait, ids, nil
}

// Room is memory for one block that comes in.
type Room interface {
	// Bytes is the memory, as long as the header says.
	Bytes() []byte
	// Verify compares what Bytes holds with the header.
	Verify() error
	// Drop gives the memory back. After the block was taken it does nothing.
	Drop()
}

// Sink takes blocks in. Room is called by several goroutines, Take by one at a time,
// in the order of the chain, with verified rooms.
type Sink interface {
	// Room gives memory for a block; errors are *PullError or others, which end the pull.
	Room(h block.Header) (Room, error)
	Take(r Room) error
}

// Pull asks for blocks of a chain, in order, and how they may come.
type Pull struct {
	IDs  []block.ID
	Wait time.Duration // how long the holder may wait for blocks that are being made
	// Lanes is over how many streams the blocks are spread; Open opens one of them,
	// to ServicePull of the holder.
	Lanes int
	Open  func(ctx context.Context, lane int) (*Stream, error)
	Sink  Sink
}

// Pulled is what came of a pull.
type Pulled struct {
	Blocks int           // of the chain, in order, that were taken
	Bytes  int64         // of all payloads that came
	First  time.Duration // until the first block was taken; 0: none was
	Took   time.Duration
}

// Run pulls until all blocks were taken, something went wrong, or ctx ends. Blocks
// are verified before they are taken. The error is nil or a *PullError. When Run
// returns nothing more is written to any memory of the sink.
func (p *Pull) Run(ctx context.Context) (Pulled, error) {
	lanes := min(max(p.Lanes, 1), pullLanesMax, len(p.IDs))
	if len(p.IDs) == 0 || len(p.IDs) > PullBlocksMax {
		return Pulled{}, &PullError{PullMissing, fmt.Errorf("%d blocks are wanted; 1 to %d are allowed", len(p.IDs), PullBlocksMax)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &collector{pull: p, start: time.Now(), rooms: make([]Room, len(p.IDs)), cancel: cancel}
	defer c.dropRest()
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			if err := c.run(ctx, lane, lanes); err != nil {
				c.failed(ctx, err)
			}
		})
	}
	all.Wait()
	c.result.Took = time.Since(c.start)
	return c.result, c.err
}

// collector is one pull.
type collector struct {
	pull   *Pull
	start  time.Time
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	rooms  []Room // verified and not taken yet, by place in the chain
	result Pulled
	err    error // of the lane that failed first
}

// failed ends the pull with the first error: other lanes only follow.
func (c *collector) failed(ctx context.Context, err error) {
	var known *PullError
	if !errors.As(err, &known) {
		known = &PullError{PullLost, err}
		if cause := context.Cause(ctx); cause != nil {
			known = &PullError{PullCancelled, cause}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = known
		c.cancel(known)
	}
}

// run takes in every lanes-th block.
func (c *collector) run(ctx context.Context, lane, lanes int) error {
	s, err := c.pull.Open(ctx, lane)
	if err != nil {
		return err
	}
	defer s.Close()
	stop := context.AfterFunc(ctx, func() { s.Cancel("the pull is over") })
	defer stop()
	var ids []block.ID
	for i := lane; i < len(c.pull.IDs); i += lanes {
		ids = append(ids, c.pull.IDs[i])
	}
	if err := WriteMessage(s, encodePull(c.pull.Wait, ids)); err != nil {
		return err
	}
	for i := range ids {
		if err := c.block(s, lane+i*lanes); err != nil {
			return err
		}
	}
	return readEnd(s)
}

// block takes in the block at one place of the chain.
func (c *collector) block(s *Stream, at int) error {
	s.SetReadDeadline(time.Now().Add(c.pull.Wait + pullStall))
	h, err := readPulledHeader(s)
	if err != nil {
		return err
	}
	if h.ID != c.pull.IDs[at] {
		return &PullError{PullDamaged, fmt.Errorf("block %v came where %v was asked for", h.ID, c.pull.IDs[at])}
	}
	room, err := c.pull.Sink.Room(h)
	if err != nil {
		return err
	}
	if err := readRows(s, room.Bytes()); err != nil {
		room.Drop()
		return err
	}
	if err := room.Verify(); err != nil {
		room.Drop()
		return &PullError{PullDamaged, err}
	}
	return c.take(at, room, int64(h.PayloadBytes))
}

// readRows fills p, as long as something comes.
func readRows(s *Stream, p []byte) error {
	const piece = 1 << 20
	for len(p) > 0 {
		s.SetReadDeadline(time.Now().Add(pullStall))
		n, err := io.ReadFull(s, p[:min(piece, len(p))])
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// take hands on all blocks that are next in the chain.
func (c *collector) take(at int, room Room, bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rooms[at] = room
	c.result.Bytes += bytes
	for next := c.result.Blocks; next < len(c.rooms) && c.rooms[next] != nil && c.err == nil; next++ {
		room, c.rooms[next] = c.rooms[next], nil
		if err := c.pull.Sink.Take(room); err != nil {
			return err
		}
		if c.result.Blocks++; c.result.Blocks == 1 {
			c.result.First = time.Since(c.start)
		}
	}
	return nil
}

// dropRest gives back what cannot be used: a block before it is missing.
func (c *collector) dropRest() {
	for _, r := range c.rooms {
		if r != nil {
			r.Drop()
		}
	}
}

// readPulledHeader reads the frame of a block up to its payload. The end of a pull is
// its *PullError; of a complete one, which is too early here, too.
func readPulledHeader(r io.Reader) (block.Header, error) {
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err != nil {
		return block.Header{}, err
	}
	switch kind[0] {
	case pullFrameBlock:
	case pullFrameEnd:
		if err := readVerdict(r); err != nil {
			return block.Header{}, err
		}
		return block.Header{}, &PullError{PullMissing, errors.New("it ended before its last block")}
	default:
		return block.Header{}, &PullError{PullDamaged, fmt.Errorf("a frame of kind %#x", kind[0])}
	}
	head := make([]byte, block.HeaderPrefixBytes, 1024)
	if _, err := io.ReadFull(r, head); err != nil {
		return block.Header{}, err
	}
	n, err := block.HeaderLength(head)
	if err != nil {
		return block.Header{}, &PullError{PullDamaged, err}
	}
	head = append(head, make([]byte, n-len(head))...)
	if _, err := io.ReadFull(r, head[block.HeaderPrefixBytes:]); err != nil {
		return block.Header{}, err
	}
	h, _, err := block.DecodeHeader(head)
	if err != nil {
		return h, &PullError{PullDamaged, err}
	}
	return h, nil
}

// readEnd reads what follows the last block.
func readEnd(s *Stream) error {
	s.SetReadDeadline(time.Now().Add(pullStall))
	var kind [1]byte
	if _, err := io.ReadFull(s, kind[:]); err != nil {
		return err
	}
	if kind[0] != pullFrameEnd {
		return &PullError{PullDamaged, fmt.Errorf("a frame of kind %#x after the last block", kind[0])}
	}
	return readVerdict(s)
}

// readVerdict reads the rest of an end frame; nil: the pull is complete.
func readVerdict(r io.Reader) error {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(head[1:])
	if n > pullTextMax {
		return &PullError{PullDamaged, fmt.Errorf("an end with %d bytes of text; at most %d", n, pullTextMax)}
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	switch o := Outcome(head[0]); o {
	case PullComplete:
		return nil
	case PullMissing, PullBusy:
		return &PullError{o, errors.New(string(text))}
	default:
		return &PullError{PullDamaged, fmt.Errorf("an end that means nothing: %d %.64q", head[0], text)}
	}
}
