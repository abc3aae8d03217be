package xfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/cluster/member"
	"tandem/kvstore/block"
)

// testBlock is block i of a chain, with a payload that depends on i.
func testBlock(i int) (block.Header, []byte) {
	h := block.Header{ID: testID(i), Fingerprint: block.Fingerprint{1}, Start: i * 4, Count: 4, Tokens: []block.Token{1, 2, 3, block.Token(i)}, PayloadBytes: 4 * (10_000 + i)}
	if i > 0 {
		h.Parent = testID(i - 1)
	}
	payload := bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, h.PayloadBytes/3+1)[:h.PayloadBytes]
	h.Digest = h.Sum(payload)
	return h, payload
}

func testID(i int) (id block.ID) {
	id[0] = 1
	binary.BigEndian.PutUint64(id[8:], uint64(i)+1)
	return id
}

func testIDs(n int) []block.ID {
	ids := make([]block.ID, n)
	for i := range ids {
		ids[i] = testID(i)
	}
	return ids
}

// testHolder holds the first blocks of the chain; more may come.
type testHolder struct {
	mu      sync.Mutex
	held    int
	more    chan struct{}
	leases  int
	spoil   int // the block whose payload is not what its digest says; 0: none
	stallAt int // the block that is given only when the context ends; 0: none
}

func newTestHolder(held int) *testHolder { return &testHolder{held: held, more: make(chan struct{})} }

func (h *testHolder) make(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held += n
	close(h.more)
	h.more = make(chan struct{})
}

func (h *testHolder) Take(ctx context.Context, id block.ID) (HeldBlock, error) {
	for {
		h.mu.Lock()
		i, more := int(binary.BigEndian.Uint64(id[8:]))-1, h.more
		if i < h.held && (h.stallAt == 0 || i != h.stallAt) {
			h.leases++
			h.mu.Unlock()
			header, payload := testBlock(i)
			if h.spoil > 0 && i == h.spoil {
				payload[5] ^= 1
			}
			return &testHeld{header, payload, h}, nil
		}
		h.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (h *testHolder) leased() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases
}

type testHeld struct {
	header  block.Header
	payload []byte
	holder  *testHolder
}

func (b *testHeld) Header() block.Header { return b.header }
func (b *testHeld) Payload() []byte      { return b.payload }
func (b *testHeld) Release() {
	b.holder.mu.Lock()
	defer b.holder.mu.Unlock()
	b.holder.leases--
}

// testSink has room for some blocks and remembers those that it took.
type testSink struct {
	mu    sync.Mutex
	room  int
	rooms int // that were given and neither taken nor dropped
	lost  int // that were given up for good
	took  []block.ID
	fresh chan struct{} // gets a token with each block that is taken; may be nil
}

type testRoom struct {
	sink *testSink
	h    block.Header
	b    []byte
	over bool
}

func (s *testSink) Room(h block.Header) (Room, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room == 0 {
		return nil, &PullError{Outcome: PullNoRoom}
	}
	s.room--
	s.rooms++
	return &testRoom{sink: s, h: h, b: make([]byte, h.PayloadBytes)}, nil
}

func (s *testSink) Take(r Room) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rooms--
	s.took = append(s.took, r.(*testRoom).h.ID)
	if s.fresh != nil {
		s.fresh <- struct{}{}
	}
	return nil
}

func (r *testRoom) Bytes() []byte { return r.b }

func (r *testRoom) Verify() error {
	if r.h.Sum(r.b) != r.h.Digest {
		return block.ErrDamaged
	}
	return nil
}

func (r *testRoom) Drop() {
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	if !r.over {
		r.sink.rooms--
	}
	r.over = true
}

// Lose is like Drop for who counts rooms, and remembered.
func (r *testRoom) Lose() {
	r.Drop()
	r.sink.mu.Lock()
	defer r.sink.mu.Unlock()
	r.sink.lost++
}

// testMemory is memory where holder and puller meet, with room for some blocks.
type testMemory struct {
	mu     sync.Mutex
	placed map[uint64][]byte
	next   uint64
	most   int // that were placed at once
	room   int // no more are placed at once; the others go as bytes
	late   int // loans that ended with blocks that were not read
	failed error
	silent chan struct{} // if there, reads wait for it
}

func (m *testMemory) Lend(member.ID, PullWay) Loan { return m }

func (m *testMemory) Place(_ context.Context, b HeldBlock) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.placed) >= m.room {
		return 0, errors.New("full")
	}
	m.next++
	m.placed[m.next] = b.Payload()
	m.most = max(m.most, len(m.placed))
	return m.next, nil
}

func (m *testMemory) Back(at uint64, _ HeldBlock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.placed, at)
}

func (m *testMemory) Close(late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if late {
		m.late++
	}
}

func (m *testMemory) Way() PullWay { return PullWindow }

func (m *testMemory) Read(ctx context.Context, pieces []Piece) error {
	if m.silent != nil {
		<-m.silent
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range pieces {
		if copy(p.Into, m.placed[p.At]) != len(p.Into) {
			return fmt.Errorf("nothing is placed at %d", p.At)
		}
	}
	return m.failed
}

func newTestMemory(room int) *testMemory {
	return &testMemory{placed: map[uint64][]byte{}, room: room}
}

// pulling connects a puller with a holder.
func pulling(t *testing.T, h Holder) func(lanes int, s Sink, ids []block.ID, wait time.Duration) *Pull {
	return pullingFrom(t, h, nil, pullLease)
}

// pullingFrom connects them through memory, too, if there is some.
func pullingFrom(t *testing.T, h Holder, m *testMemory, lease time.Duration) func(lanes int, s Sink, ids []block.ID, wait time.Duration) *Pull {
	t.Helper()
	var book addressBook
	var memory Memory
	var lender Lender
	if m != nil {
		memory, lender = m, m
	}
	a := startLink(t, 1, &book, nil)
	startLink(t, 2, &book, func(c *Config) {
		c.Handlers = map[string]Handler{ServicePull: servePull(h, lender, func(int, int64) {}, lease)}
	})
	return func(lanes int, s Sink, ids []block.ID, wait time.Duration) *Pull {
		return &Pull{IDs: ids, Lanes: lanes, Sink: s, Wait: wait, Memory: memory,
			Open: func(ctx context.Context, _ int) (*Stream, error) { return a.OpenBound(ctx, nodeID(2), ServicePull) }}
	}
}

// atRest waits until nothing is held for pulls any more.
func atRest(t *testing.T, h *testHolder, s *testSink) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for h.leased() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d blocks are still leased", h.leased())
		}
		runtime.Gosched()
	}
	if s.rooms != 0 {
		t.Errorf("%d rooms were neither taken nor dropped", s.rooms)
	}
}

func outcome(err error) Outcome {
	var known *PullError
	if err == nil {
		return PullComplete
	}
	if errors.As(err, &known) {
		return known.Outcome
	}
	return outcomes
}

func TestPull(t *testing.T) {
	for name, test := range map[string]struct {
		held, wanted, room, spoil int
		blocks                    int // least that must come
		outcome                   Outcome
	}{
		"all":                {held: 40, wanted: 40, room: 40, blocks: 40, outcome: PullComplete},
		"one":                {held: 1, wanted: 1, room: 1, blocks: 1, outcome: PullComplete},
		"nothing":            {held: 0, wanted: 5, room: 5, outcome: PullMissing},
		"less than wanted":   {held: 7, wanted: 12, room: 12, outcome: PullMissing},
		"no room at the end": {held: 20, wanted: 20, room: 9, outcome: PullNoRoom},
		"a damaged one":      {held: 20, wanted: 20, room: 20, spoil: 11, outcome: PullDamaged},
	} {
		for _, way := range []struct {
			lanes int
			m     *testMemory
		}{{1, nil}, {3, nil}, {1, newTestMemory(100)}, {1, newTestMemory(1)}, {2, newTestMemory(3)}} {
			where := ""
			if way.m != nil {
				where = fmt.Sprintf(", memory for %d", way.m.room)
			}
			t.Run(fmt.Sprintf("%s, %d lanes%s", name, way.lanes, where), func(t *testing.T) {
				h := newTestHolder(test.held)
				h.spoil = test.spoil
				sink := &testSink{room: test.room}
				got, err := pullingFrom(t, h, way.m, pullLease)(way.lanes, sink, testIDs(test.wanted), 0).Run(t.Context())
				if outcome(err) != test.outcome || got.Blocks < test.blocks {
					t.Errorf("%d blocks, %v; want %d, %v", got.Blocks, err, test.blocks, test.outcome)
				}
				if !slices.Equal(sink.took, testIDs(test.wanted)[:got.Blocks]) {
					t.Errorf("%d blocks were taken, not the first %d in order", len(sink.took), got.Blocks)
				}
				if test.spoil > 0 && got.Blocks > test.spoil {
					t.Errorf("%d blocks, though number %d was damaged", got.Blocks, test.spoil)
				}
				atRest(t, h, sink)
				if way.m != nil && test.held > 0 && way.m.most == 0 {
					t.Error("nothing was ever placed in memory")
				}
			})
		}
	}
}

// Memory that cannot be read ends a pull with what came before; memory that somebody
// may still write to is not used again.
func TestPullFromMemoryThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		lost int
	}{"failed": {errors.New("unplugged"), 0}, "unfenced": {fmt.Errorf("it hangs: %w", ErrUnfenced), 1}} {
		t.Run(name, func(t *testing.T) {
			h, m, sink := newTestHolder(3), newTestMemory(9), &testSink{room: 9}
			m.failed = test.err
			got, err := pullingFrom(t, h, m, pullLease)(1, sink, testIDs(3), 0).Run(t.Context())
			if outcome(err) != PullLost || !errors.Is(err, test.err) || got.Blocks != 0 {
				t.Errorf("%d blocks, %v", got.Blocks, err)
			}
			atRest(t, h, sink)
			if (sink.lost > 0) != (test.lost > 0) {
				t.Errorf("%d rooms were given up", sink.lost)
			}
		})
	}
}

// A puller that says nothing loses its lease, and the holder knows that it may still
// read; what it reads afterwards is not used.
func TestPullLeaseEnds(t *testing.T) {
	h, m, sink := newTestHolder(3), newTestMemory(9), &testSink{room: 9}
	m.silent = make(chan struct{})
	pull := pullingFrom(t, h, m, 50*time.Millisecond)(1, sink, testIDs(3), 0)
	done := make(chan error, 1)
	go func() {
		_, err := pull.Run(t.Context())
		done <- err
	}()
	for late := 0; late == 0; runtime.Gosched() {
		m.mu.Lock()
		late = m.late
		m.mu.Unlock()
	}
	close(m.silent)
	if err := <-done; outcome(err) != PullLost {
		t.Errorf("it ended with %v", err)
	}
	if len(sink.took) > 0 {
		t.Errorf("%d blocks were taken after the lease", len(sink.took))
	}
	atRest(t, h, sink)
}

// Blocks come as they are made, and not only when all are.
func TestPullOfBlocksThatAreBeingMade(t *testing.T) {
	h := newTestHolder(0)
	sink := &testSink{room: 30, fresh: make(chan struct{}, 30)}
	pull := pulling(t, h)(2, sink, testIDs(10), 30*time.Second)
	done := make(chan error, 1)
	go func() {
		_, err := pull.Run(t.Context())
		done <- err
	}()
	for range 10 {
		h.make(1)
		<-sink.fresh
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	atRest(t, h, sink)
}

// A pull that nobody wants any more frees everything on both sides, wherever it is.
func TestPullCancelled(t *testing.T) {
	h := newTestHolder(8)
	sink := &testSink{room: 30, fresh: make(chan struct{}, 30)}
	pull := pulling(t, h)(2, sink, testIDs(30), 30*time.Second)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for range 8 {
			<-sink.fresh
		}
		cancel(errors.New("enough"))
	}()
	got, err := pull.Run(ctx)
	if outcome(err) != PullCancelled || !strings.Contains(err.Error(), "enough") || got.Blocks != 8 {
		t.Errorf("%d blocks, %v", got.Blocks, err)
	}
	atRest(t, h, sink)
}

// What comes instead of a block ends the pull with what came before.
func TestPullOfAnotherBlock(t *testing.T) {
	h := newTestHolder(4)
	sink := &testSink{room: 9}
	pull := pulling(t, swapped{h})(1, sink, testIDs(4), 0)
	if got, err := pull.Run(t.Context()); outcome(err) != PullDamaged || got.Blocks != 2 {
		t.Errorf("%d blocks, %v", got.Blocks, err)
	}
	atRest(t, h, sink)
}

// swapped gives block 3 where block 2 is asked for.
type swapped struct{ *testHolder }

func (s swapped) Take(ctx context.Context, id block.ID) (HeldBlock, error) {
	if id == testID(2) {
		id = testID(3)
	}
	return s.testHolder.Take(ctx, id)
}

func TestPullRefusesWhatIsNoPull(t *testing.T) {
	good := encodePull(PullRegion, time.Second, testIDs(3))
	if way, wait, ids, err := decodePull(good); err != nil || way != PullRegion || wait != time.Second || !slices.Equal(ids, testIDs(3)) {
		t.Fatalf("%v %v %v", wait, ids, err)
	}
	change := func(at int, b ...byte) []byte {
		out := slices.Clone(good)
		copy(out[at:], b)
		return out
	}
	for name, data := range map[string][]byte{
		"at least": good[:5], "pull version 9": change(0, 9), "a pull by way 7": change(1, 7), "a pull that waits": change(4, 0xff), "a pull of 4294967295": change(8, 0xff, 0xff, 0xff, 0xff),
		"a pull of 0": change(8, 0, 0, 0, 0), "bytes of ids": good[:len(good)-1],
	} {
		if _, _, _, err := decodePull(data); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

// FuzzPullRequest: what is taken is written again as it was.
func FuzzPullRequest(f *testing.F) {
	f.Add(encodePull(PullBytes, time.Second, testIDs(2)))
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		way, wait, ids, err := decodePull(data)
		if err != nil {
			return
		}
		again := encodePull(way, wait, ids)
		copy(again[2:4], data[2:4]) // reserved
		if !bytes.Equal(again, data) {
			t.Fatalf("%x became %x", data, again)
		}
	})
}

// FuzzPulled: no bytes of a holder make the puller allocate more than a header.
func FuzzPulled(f *testing.F) {
	h, _ := testBlock(3)
	f.Add(block.AppendHeader([]byte{pullFrameBlock}, h))
	f.Add(append(block.AppendHeader([]byte{pullFramePlace}, h), 0, 0, 0, 0, 0, 0, 4, 0))
	f.Add([]byte{pullFrameEnd, byte(PullMissing), 0, 3, 'a', 'b', 'c'})
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, h, _, err := readPulled(bytes.NewReader(data))
		var known *PullError
		switch {
		case err == nil:
			if kind != pullFrameBlock && kind != pullFramePlace || h.Validate() != nil {
				t.Fatalf("an invalid header: %+v", h)
			}
		case !errors.As(err, &known) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Fatalf("%v", err)
		}
	})
}
