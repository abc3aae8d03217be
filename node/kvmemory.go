package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"tandem/cluster/member"
	"tandem/xfer"
	"tandem/xfer/fabric"
	"tandem/xfer/shm"
)

// Services that say how blocks can be read from memory, and the longest message.
const (
	serviceWindow = "kv/window" // shared memory of two nodes on one machine
	serviceRegion = "kv/region" // the holder's memory, by RDMA
	memoryMax     = 4 << 10
)

// Sizes and times of memory that blocks go through.
const (
	// windowBytes of shared memory for each node that is read from: some blocks are
	// written while others are read. Pages take room when they are first used.
	windowBytes = 64 << 20
	memoryTime  = 10 * time.Second // until memory is there, or not
	memoryAgain = 5 * time.Minute  // after a refusal; the reason is seldom one that passes
)

// kvMemory are the ways on which blocks come from, and go to, other nodes beside
// connections: memory that both have mapped, and one-sided reads. Every one of them may
// end at any time; blocks go over connections then.
type kvMemory struct {
	peers    *peers
	machine  string        // what nodes have in common that can share memory; "": this one cannot
	listener *shm.Listener // nil: this one cannot
	rdma     *rdma         // nil: it is off, or not there

	mu struct {
		sync.Mutex
		closed  bool
		from    map[member.ID]*shm.Window  // that this node reads
		to      map[member.ID]*shm.Window  // that it writes for others
		regions map[member.ID]*fabric.Peer // that this node reads
		again   map[member.ID]time.Time    // when a node that refused is asked again
	}
}

func newKVMemory(p *peers) *kvMemory {
	m := &kvMemory{peers: p}
	m.mu.from, m.mu.to, m.mu.regions, m.mu.again = map[member.ID]*shm.Window{}, map[member.ID]*shm.Window{}, map[member.ID]*fabric.Peer{}, map[member.ID]time.Time{}
	if p.node.keeper == nil {
		return m
	}
	if p.node.cfg.KVShared != "off" {
		if m.machine = shm.Machine(); m.machine != "" {
			var err error
			if m.listener, err = shm.Listen(); err != nil {
				p.node.log.Info("nodes on this machine exchange KV through sockets", "error", err)
				m.machine = ""
			}
		}
	}
	m.rdma = p.node.rdma
	return m
}

// close ends all memory, when no pull is served or made any more.
func (m *kvMemory) close() error {
	m.mu.Lock()
	m.mu.closed = true
	from, to, regions := m.mu.from, m.mu.to, m.mu.regions
	m.mu.from, m.mu.to, m.mu.regions = nil, nil, nil
	m.mu.Unlock()
	var errs []error
	if m.listener != nil {
		errs = append(errs, m.listener.Close())
	}
	for _, windows := range []map[member.ID]*shm.Window{from, to} {
		for _, w := range windows {
			errs = append(errs, w.Close())
		}
	}
	for _, r := range regions {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}

// drop ends the memory of a node that is gone.
func (m *kvMemory) drop(id member.ID) {
	m.mu.Lock()
	from, to, region := m.mu.from[id], m.mu.to[id], m.mu.regions[id]
	delete(m.mu.from, id)
	delete(m.mu.to, id)
	delete(m.mu.regions, id)
	delete(m.mu.again, id)
	m.mu.Unlock()
	for _, w := range []*shm.Window{from, to} {
		if w != nil {
			w.Close()
		}
	}
	if region != nil {
		region.Close()
	}
}

// open makes the ways from a node that are not there yet, and measures them.
func (m *kvMemory) open(ctx context.Context, id member.ID) {
	if m.listener == nil && m.rdma == nil {
		return
	}
	m.mu.Lock()
	window, region := m.mu.from[id], m.mu.regions[id]
	wait := m.mu.closed || time.Now().Before(m.mu.again[id])
	m.mu.Unlock()
	if window != nil && isOver(window.Lost()) {
		m.endWindow(id, window)
		window = nil
	}
	if wait {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, memoryTime)
	defer cancel()
	var refused bool
	if m.listener != nil && window == nil {
		refused = m.openWindow(ctx, id) != nil
	}
	if m.rdma != nil && region == nil {
		if err := m.openRegion(ctx, id); err != nil {
			refused = true
			m.peers.bulk.closed(id, xfer.RDMA, err.Error())
			m.rdma.complain(m.peers.name(id), err)
		}
	}
	if refused {
		m.mu.Lock()
		m.mu.again[id] = time.Now().Add(memoryAgain)
		m.mu.Unlock()
	}
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// of is the memory of a way from a node; nil: it is none, or gone.
func (m *kvMemory) of(id member.ID, way xfer.Transport) xfer.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.mu.from[id]; way == xfer.Shared && w != nil {
		return windowMemory{w}
	}
	if r := m.mu.regions[id]; way == xfer.RDMA && r != nil {
		return regionMemory{r}
	}
	return nil
}

// failed ends memory that could not be read: it is made anew.
func (m *kvMemory) failed(id member.ID, way xfer.Transport) {
	m.mu.Lock()
	window, region := m.mu.from[id], m.mu.regions[id]
	m.mu.Unlock()
	switch {
	case way == xfer.Shared && window != nil:
		m.endWindow(id, window)
	case way == xfer.RDMA && region != nil:
		m.endRegion(id, region)
	}
}

// windowCall asks for a window, windowAnswer says where it is offered, or why not.
type (
	windowCall struct {
		Machine string `json:"machine"`
	}
	windowAnswer struct {
		Socket  string `json:"socket,omitempty"`
		Token   []byte `json:"token,omitempty"`
		Refused string `json:"refused,omitempty"`
	}
)

// serveWindow tells a node on this machine where to give its window.
func (m *kvMemory) serveWindow(_ context.Context, s *xfer.Stream) error {
	var call windowCall
	if err := readJSON(s, memoryMax, &call); err != nil {
		return err
	}
	switch {
	case m.listener == nil:
		return writeJSON(s, windowAnswer{Refused: "this node shares no memory"})
	case call.Machine != m.machine:
		return writeJSON(s, windowAnswer{Refused: "it is another machine, network namespace or user"})
	}
	id := s.Peer()
	token := m.listener.Expect(func(w *shm.Window) {
		m.mu.Lock()
		old, closed := m.mu.to[id], m.mu.closed
		if !closed {
			m.mu.to[id] = w
		}
		m.mu.Unlock()
		if closed {
			old = w
		}
		if old != nil {
			old.Close()
		}
	})
	if token == (shm.Token{}) {
		return writeJSON(s, windowAnswer{Refused: "too many ask at once"})
	}
	return writeJSON(s, windowAnswer{Socket: m.listener.Name(), Token: token[:]})
}

// openWindow gives a node of this machine a window to write to.
func (m *kvMemory) openWindow(ctx context.Context, id member.ID) error {
	var a windowAnswer
	if err := m.ask(ctx, id, serviceWindow, windowCall{Machine: m.machine}, &a); err != nil {
		return err
	}
	if a.Refused != "" {
		return errors.New(a.Refused)
	}
	if len(a.Socket) > shm.NameBytesMax || len(a.Token) != shm.TokenBytes {
		return fmt.Errorf("a socket with a name of %d bytes and a token of %d", len(a.Socket), len(a.Token))
	}
	w, err := shm.Offer(ctx, a.Socket, shm.Token(a.Token), windowBytes)
	if err != nil {
		m.peers.bulk.closed(id, xfer.Shared, err.Error())
		return err
	}
	rate, err := windowRate(w)
	m.mu.Lock()
	keep := err == nil && !m.mu.closed
	if keep {
		m.mu.from[id] = w
	}
	m.mu.Unlock()
	if !keep {
		return errors.Join(err, w.Close())
	}
	m.peers.bulk.opened(id, xfer.Shared, rate)
	return nil
}

// windowRate is how fast a window is read, halved: the other node writes as long.
func windowRate(w *shm.Window) (float64, error) {
	piece := make([]byte, 1<<20)
	read := func() error {
		for at := range probeBytes / len(piece) {
			if err := w.Read(uint64(at*len(piece)), piece); err != nil {
				return err
			}
		}
		return nil
	}
	if err := read(); err != nil { // takes the pages
		return 0, err
	}
	start := time.Now()
	err := read()
	return probeBytes / 2 / max(time.Since(start), time.Microsecond).Seconds(), err
}

func (m *kvMemory) endWindow(id member.ID, w *shm.Window) {
	m.mu.Lock()
	if m.mu.from[id] == w {
		delete(m.mu.from, id)
	}
	m.mu.Unlock()
	m.peers.bulk.closed(id, xfer.Shared, "")
	w.Close()
}

// ask puts one question to a node.
func (m *kvMemory) ask(ctx context.Context, id member.ID, service string, question, answer any) error {
	s, err := m.peers.link.OpenBound(ctx, id, service)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := writeJSON(s, question); err != nil {
		return err
	}
	return readJSON(s, memoryMax, answer)
}

// Lend implements xfer.Lender.
func (m *kvMemory) Lend(peer member.ID, way xfer.PullWay) xfer.Loan {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.mu.to[peer]; way == xfer.PullWindow && w != nil {
		return windowLoan{w}
	}
	if way == xfer.PullRegion && m.rdma != nil {
		return regionLoan{m.rdma}
	}
	return nil
}

// windowLoan places blocks in a window.
type windowLoan struct{ w *shm.Window }

func (l windowLoan) Place(ctx context.Context, b xfer.HeldBlock) (uint64, error) {
	at, err := l.w.Alloc(ctx, len(b.Payload()))
	if err != nil {
		return 0, err
	}
	if err := l.w.Write(at, b.Payload()); err != nil {
		l.w.Free(at)
		return 0, err
	}
	return uint64(at), nil
}

func (l windowLoan) Back(at uint64, _ xfer.HeldBlock) { l.w.Free(int(at)) }

// Close has nothing to do: a puller that reads late reads another block, which its
// digest tells.
func (l windowLoan) Close(bool) {}

// windowMemory reads a window.
type windowMemory struct{ w *shm.Window }

func (m windowMemory) Way() xfer.PullWay { return xfer.PullWindow }

func (m windowMemory) Read(_ context.Context, pieces []xfer.Piece) error {
	for _, p := range pieces {
		if err := m.w.Read(p.At, p.Into); err != nil {
			return err
		}
	}
	return nil
}

// regionAnswer describes the memory of this node for RDMA.
type regionAnswer struct {
	Local   []byte `json:"local,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// serveRegion tells another node how to read this one's memory.
func (m *kvMemory) serveRegion(_ context.Context, s *xfer.Stream) error {
	var call json.RawMessage
	if err := readJSON(s, memoryMax, &call); err != nil {
		return err
	}
	if m.rdma == nil {
		return writeJSON(s, regionAnswer{Refused: m.peers.node.rdmaOff})
	}
	local, err := m.rdma.endpoint.Local().AppendBinary(nil)
	if err != nil {
		return writeJSON(s, regionAnswer{Refused: "its memory cannot be read now: " + err.Error()})
	}
	return writeJSON(s, regionAnswer{Local: local})
}

// openRegion connects to the memory of another node, and measures the way.
func (m *kvMemory) openRegion(ctx context.Context, id member.ID) error {
	var a regionAnswer
	if err := m.ask(ctx, id, serviceRegion, struct{}{}, &a); err != nil {
		return err
	}
	if a.Refused != "" {
		return fmt.Errorf("node %s: %s", m.peers.name(id), a.Refused)
	}
	local, err := fabric.ParseLocal(a.Local)
	if err != nil {
		return err
	}
	region, err := m.rdma.endpoint.Connect(local)
	if err != nil {
		return err
	}
	rate, err := m.rdma.measure(ctx, region, local.Length)
	m.mu.Lock()
	keep := err == nil && !m.mu.closed
	if keep {
		m.mu.regions[id] = region
	}
	m.mu.Unlock()
	if !keep {
		return cmp.Or(err, errStopping, region.Close())
	}
	m.peers.bulk.opened(id, xfer.RDMA, rate)
	if other, _ := m.peers.bulk.networkGoodput(id); other > rate {
		m.rdma.slow(m.peers.name(id), rate, other)
	}
	return nil
}

func (m *kvMemory) endRegion(id member.ID, r *fabric.Peer) {
	m.mu.Lock()
	if m.mu.regions[id] == r {
		delete(m.mu.regions, id)
	}
	m.mu.Unlock()
	m.peers.bulk.closed(id, xfer.RDMA, "a read failed")
	r.Close()
}

// regionLoan lends blocks where they lie.
type regionLoan struct{ rdma *rdma }

func (l regionLoan) Place(_ context.Context, b xfer.HeldBlock) (uint64, error) {
	given, ok := b.(givenBlock)
	if !ok {
		return 0, errors.New("a block that is not in the registered memory")
	}
	return given.ref.Offset(), nil
}

func (l regionLoan) Back(uint64, xfer.HeldBlock) {}

// Close changes address and key of the memory if a puller may still read what it does
// not hold any more.
func (l regionLoan) Close(late bool) {
	if late {
		l.rdma.rotate()
	}
}

// regionMemory reads the memory of another node.
type regionMemory struct{ peer *fabric.Peer }

func (m regionMemory) Way() xfer.PullWay { return xfer.PullRegion }

func (m regionMemory) Read(ctx context.Context, pieces []xfer.Piece) error {
	ops := make([]fabric.Op, len(pieces))
	for i, p := range pieces {
		ops[i] = fabric.Op{Remote: p.At, Local: p.Into}
	}
	err := m.peer.Read(ctx, ops)
	if errors.Is(err, fabric.ErrUnfenced) {
		return errors.Join(xfer.ErrUnfenced, err)
	}
	return err
}
