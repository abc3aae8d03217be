package xfer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"tandem/kvstore/block"
)

// pullReadBuffer holds the frames of a batch of placed blocks.
const pullReadBuffer = 64 << 10

// Room is memory for one block that comes in.
type Room interface {
	// Bytes is the memory, as long as the header says.
	Bytes() []byte
	// Verify compares what Bytes holds with the header.
	Verify() error
	// Drop gives the memory back. After the block was taken it does nothing.
	Drop()
	// Lose leaves the memory unused for ever: something may still write there.
	Lose()
}

// Sink takes blocks in. Room is called by several goroutines, Take by one at a time,
// in the order of the chain, with verified rooms.
type Sink interface {
	// Room gives memory for a block; errors are *PullError or others, which end the pull.
	Room(h block.Header) (Room, error)
	Take(r Room) error
}

// Memory is memory where a holder places blocks.
type Memory interface {
	Way() PullWay
	// Read fills pieces. When it has returned nothing is written to them any more,
	// except after an error that is ErrUnfenced.
	Read(ctx context.Context, pieces []Piece) error
}

// Piece is one range of such memory, and where it goes.
type Piece struct {
	At   uint64
	Into []byte
}

// ErrUnfenced says that a read could not be ended: the memory that it was given must
// not be used again.
var ErrUnfenced = errors.New("a read could not be ended")

// Pull asks for blocks of a chain, in order, and how they may come.
type Pull struct {
	IDs  []block.ID
	Wait time.Duration // how long the holder may wait for blocks that are being made
	// Lanes is over how many streams the blocks are spread; Open opens one of them,
	// to ServicePull of the holder.
	Lanes int
	Open  func(ctx context.Context, lane int) (*Stream, error)
	Sink  Sink
	// Memory is where this node reads blocks itself, if the holder places them there;
	// nil: all come as bytes.
	Memory Memory
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
	way := PullBytes
	if c.pull.Memory != nil {
		way = c.pull.Memory.Way()
	}
	if err := WriteMessage(s, encodePull(way, c.pull.Wait, ids)); err != nil {
		return err
	}
	in := incoming{c: c, s: s, r: s}
	if way != PullBytes { // small frames; a reader between would only copy bytes of blocks
		in.r = bufio.NewReaderSize(s, pullReadBuffer)
	}
	defer in.drop()
	for i := range ids {
		if err := in.block(ctx, lane+i*lanes); err != nil {
			return err
		}
	}
	if err := in.read(ctx); err != nil {
		return err
	}
	s.SetReadDeadline(time.Now().Add(pullStall))
	return readEnd(in.r)
}

// incoming are the blocks of one lane.
type incoming struct {
	c      *collector
	s      *Stream
	r      io.Reader // of s
	placed []placed  // blocks that are to be read, oldest first
	bytes  int       // of them
}

// placed is a block that the holder has placed in memory.
type placed struct {
	at   int // place in the chain
	room Room
	from uint64
}

// block takes in the block at one place of the chain.
func (in *incoming) block(ctx context.Context, at int) error {
	in.s.SetReadDeadline(time.Now().Add(in.c.pull.Wait + pullStall))
	kind, h, from, err := readPulled(in.r)
	switch {
	case err != nil:
		return in.after(ctx, err)
	case h.ID != in.c.pull.IDs[at]:
		return &PullError{PullDamaged, fmt.Errorf("block %v came where %v was asked for", h.ID, in.c.pull.IDs[at])}
	case kind == pullFramePlace && in.c.pull.Memory == nil:
		return &PullError{PullDamaged, errors.New("a block was placed in memory that nobody asked for")}
	}
	room, err := in.c.pull.Sink.Room(h)
	if err != nil {
		return in.after(ctx, err)
	}
	if kind == pullFramePlace {
		in.placed = append(in.placed, placed{at, room, from})
		if in.bytes += h.PayloadBytes; in.more() {
			return nil
		}
		return in.read(ctx)
	}
	if err := in.read(ctx); err != nil {
		room.Drop()
		return err
	}
	if err := readRows(in.s, in.r, room.Bytes()); err != nil {
		room.Drop()
		return err
	}
	return in.c.verified(at, room)
}

// more tells whether another block can be read together with those that are placed.
func (in *incoming) more() bool {
	r, ok := in.r.(*bufio.Reader)
	return ok && r.Buffered() > 0 && len(in.placed) < pullBatch && in.bytes < pullBatchBytes
}

// after reads what was placed before something went wrong.
func (in *incoming) after(ctx context.Context, err error) error {
	if readErr := in.read(ctx); readErr != nil {
		return readErr
	}
	return err
}

// read reads all placed blocks, and says so. The lease is renewed meanwhile, and was
// kept if the stream is whole afterwards.
func (in *incoming) read(ctx context.Context) error {
	if len(in.placed) == 0 {
		return nil
	}
	pieces := make([]Piece, len(in.placed))
	for i, p := range in.placed {
		pieces[i] = Piece{At: p.from, Into: p.room.Bytes()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pullStall+pullLease, errors.New("reading takes too long"))
	defer cancel()
	defer in.renew()()
	err := in.c.pull.Memory.Read(ctx, pieces)
	if err == nil {
		err = in.s.failureNow() // without the stream the lease may be over
	}
	switch {
	case errors.Is(err, ErrUnfenced):
		for _, p := range in.placed {
			p.room.Lose()
		}
		in.placed = nil
		return &PullError{PullLost, err}
	case err != nil:
		return &PullError{PullLost, err}
	}
	for len(in.placed) > 0 {
		p := in.placed[0]
		in.placed = in.placed[1:]
		if err := in.c.verified(p.at, p.room); err != nil {
			return err
		}
		if err := in.say(pullWordRead); err != nil {
			return err
		}
	}
	in.placed, in.bytes = nil, 0
	return nil
}

// renew says every pullRenew that blocks are still being read, until it is stopped.
func (in *incoming) renew() (stop func()) {
	done := make(chan struct{})
	var speaker sync.WaitGroup
	speaker.Go(func() {
		tick := time.NewTicker(pullRenew)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if in.say(pullWordRenew) != nil {
					return // the stream has failed: read sees it
				}
			case <-done:
				return
			}
		}
	})
	return func() { close(done); speaker.Wait() }
}

func (in *incoming) say(word byte) error {
	in.s.SetWriteDeadline(time.Now().Add(pullStall))
	_, err := in.s.Write([]byte{word})
	return err
}

// drop gives up what was placed and not read.
func (in *incoming) drop() {
	for _, p := range in.placed {
		p.room.Drop()
	}
	in.placed = nil
}

// readRows fills p, as long as something comes.
func readRows(s *Stream, r io.Reader, p []byte) error {
	const piece = 1 << 20
	for len(p) > 0 {
		s.SetReadDeadline(time.Now().Add(pullStall))
		n, err := io.ReadFull(r, p[:min(piece, len(p))])
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// verified looks whether a block is what its header says, and hands on all blocks that
// are next in the chain.
func (c *collector) verified(at int, room Room) error {
	if err := room.Verify(); err != nil {
		room.Drop()
		return &PullError{PullDamaged, err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rooms[at] = room
	c.result.Bytes += int64(len(room.Bytes()))
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

// readPulled reads the frame of a block: all of it if the block is placed, up to its
// payload if that follows. The end of a pull is its *PullError; of a complete one,
// which is too early here, too.
func readPulled(r io.Reader) (kind byte, h block.Header, from uint64, err error) {
	var first [1]byte
	if _, err := io.ReadFull(r, first[:]); err != nil {
		return 0, h, 0, err
	}
	switch kind = first[0]; kind {
	case pullFrameBlock, pullFramePlace:
	case pullFrameEnd:
		if err := readVerdict(r); err != nil {
			return 0, h, 0, err
		}
		return 0, h, 0, &PullError{PullMissing, errors.New("it ended before its last block")}
	default:
		return 0, h, 0, &PullError{PullDamaged, fmt.Errorf("a frame of kind %#x", kind)}
	}
	if h, err = readBlockHeader(r); err != nil || kind == pullFrameBlock {
		return kind, h, 0, err
	}
	var place [8]byte
	_, err = io.ReadFull(r, place[:])
	return kind, h, binary.BigEndian.Uint64(place[:]), err
}

func readBlockHeader(r io.Reader) (block.Header, error) {
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
func readEnd(r io.Reader) error {
	var kind [1]byte
	if _, err := io.ReadFull(r, kind[:]); err != nil {
		return err
	}
	if kind[0] != pullFrameEnd {
		return &PullError{PullDamaged, fmt.Errorf("a frame of kind %#x after the last block", kind[0])}
	}
	return readVerdict(r)
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
