package quorum

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"tandem/cluster/member"
)

// world is the wire and the gossip between nodes: in memory, with cuts and freezes.
type world struct {
	t *testing.T

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when cuts or freezes change
	nodes   map[member.ID]*node
	cut     map[[2]member.ID]bool // one way
	frozen  map[member.ID]bool
	blind   bool // gossip does not notice deaths
	states  map[member.ID]member.State
	starts  map[member.ID]time.Time
	conns   map[*wire]struct{}
	dials   map[member.ID]int
}

// node is one place in the world. Its quorum comes and goes, its folder stays.
type node struct {
	w    *world
	id   member.ID
	dir  string
	cfg  func(*Config)
	q    *Quorum
	ends *ends
}

func newWorld(t *testing.T) *world {
	return &world{t: t, changed: make(chan struct{}), nodes: map[member.ID]*node{}, cut: map[[2]member.ID]bool{}, frozen: map[member.ID]bool{},
		states: map[member.ID]member.State{}, starts: map[member.ID]time.Time{}, conns: map[*wire]struct{}{}, dials: map[member.ID]int{}}
}

func nodeID(i int) member.ID { return member.ID(fmt.Sprintf("%032x", i)) }

// ends is a node's Streams.
type ends struct {
	w      *world
	id     member.ID
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (e *ends) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

func (e *ends) Accept() (net.Conn, error) {
	select {
	case c := <-e.accept:
		return c, nil
	case <-e.closed:
		return nil, net.ErrClosed
	}
}

func (e *ends) Dial(ctx context.Context, to member.ID) (net.Conn, error) {
	e.w.mu.Lock()
	e.w.dials[to]++
	e.w.mu.Unlock()
	if err := e.w.pass(ctx, e.id, to); err != nil {
		return nil, err
	}
	e.w.mu.Lock()
	there := e.w.nodes[to]
	if there == nil || there.ends == nil {
		e.w.mu.Unlock()
		return nil, errors.New("connection refused")
	}
	other := there.ends
	e.w.mu.Unlock()
	a, b := net.Pipe()
	near, far := &wire{Conn: a, w: e.w, from: e.id, to: to}, &wire{Conn: b, w: e.w, from: to, to: e.id}
	e.w.mu.Lock()
	e.w.conns[near], e.w.conns[far] = struct{}{}, struct{}{}
	e.w.mu.Unlock()
	select {
	case other.accept <- far:
		return near, nil
	case <-other.closed:
		_ = near.Close()
		_ = far.Close()
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		_ = near.Close()
		_ = far.Close()
		return nil, ctx.Err()
	}
}

func (e *ends) Forward(ctx context.Context, to member.ID, request []byte) ([]byte, error) {
	if err := e.w.pass(ctx, e.id, to); err != nil {
		return nil, err
	}
	e.w.mu.Lock()
	n := e.w.nodes[to]
	var q *Quorum
	if n != nil {
		q = n.q
	}
	e.w.mu.Unlock()
	if q == nil {
		return nil, errors.New("connection refused")
	}
	answer, err := q.HandleForward(ctx, e.id, request)
	if err != nil {
		return nil, err
	}
	return answer, e.w.pass(ctx, to, e.id)
}

// pass waits until nothing keeps a message back.
func (w *world) pass(ctx context.Context, from, to member.ID) error {
	for {
		w.mu.Lock()
		open := !w.cut[[2]member.ID{from, to}] && !w.frozen[from] && !w.frozen[to]
		changed := w.changed
		w.mu.Unlock()
		if open {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wire is one end of a stream: what it writes waits while it is cut, and so does what
// a frozen node reads.
type wire struct {
	net.Conn
	w        *world
	from, to member.ID
	mu       sync.Mutex
	deadline time.Time
	gone     chan struct{}
	once     sync.Once
}

func (c *wire) closing() chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone == nil {
		c.gone = make(chan struct{})
	}
	return c.gone
}

func (c *wire) Close() error {
	gone := c.closing()
	c.once.Do(func() {
		close(gone)
		c.w.mu.Lock()
		delete(c.w.conns, c)
		c.w.mu.Unlock()
	})
	return c.Conn.Close()
}

func (c *wire) SetDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

func (c *wire) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c *wire) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

func (c *wire) wait(from, to member.ID) error {
	c.mu.Lock()
	deadline := c.deadline
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	if !deadline.IsZero() {
		ctx, cancel = context.WithDeadline(context.Background(), deadline)
	}
	defer cancel()
	gone := c.closing()
	for {
		c.w.mu.Lock()
		open := !c.w.cut[[2]member.ID{from, to}] && !c.w.frozen[c.from]
		changed := c.w.changed
		c.w.mu.Unlock()
		if open {
			return nil
		}
		select {
		case <-changed:
		case <-gone:
			return net.ErrClosed
		case <-ctx.Done():
			return os.ErrDeadlineExceeded
		}
	}
}

func (c *wire) Write(p []byte) (int, error) {
	if err := c.wait(c.from, c.to); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *wire) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if werr := c.wait(c.to, c.from); werr != nil && err == nil {
		err = werr
	}
	return n, err
}

// change alters the world and tells those who wait.
func (w *world) change(do func()) {
	w.mu.Lock()
	do()
	close(w.changed)
	w.changed = make(chan struct{})
	nodes := []*node{}
	for _, n := range w.nodes {
		nodes = append(nodes, n)
	}
	w.mu.Unlock()
	for _, n := range nodes {
		w.mu.Lock()
		q := n.q
		w.mu.Unlock()
		if q != nil {
			q.MembersChanged()
		}
	}
}

// split cuts every pair of nodes that is not in one group.
func (w *world) split(groups ...[]int) {
	w.change(func() {
		group := map[member.ID]int{}
		for g, ids := range groups {
			for _, i := range ids {
				group[nodeID(i)] = g + 1
			}
		}
		for a := range w.nodes {
			for b := range w.nodes {
				w.cut[[2]member.ID{a, b}] = group[a] != group[b]
			}
		}
	})
}

func (w *world) heal() { w.change(func() { clear(w.cut); clear(w.frozen) }) }

func (w *world) freeze(i int) { w.change(func() { w.frozen[nodeID(i)] = true }) }

// members is gossip: it sees at once what is cut, dead or frozen.
func (w *world) members(of member.ID) []member.Member {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []member.Member
	for id := range w.nodes {
		m := member.Member{ID: id, Name: "n" + string(id[len(id)-2:]), State: w.states[id], Started: w.starts[id]}
		unreachable := w.cut[[2]member.ID{of, id}] || w.cut[[2]member.ID{id, of}] || w.frozen[id]
		if m.State == member.Alive && unreachable && id != of && !w.blind {
			m.State = member.Failed
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b member.Member) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	return out
}

// node makes a place with a folder of its own.
func (w *world) node(i int, cfg func(*Config)) *node {
	n := &node{w: w, id: nodeID(i), dir: filepath.Join(w.t.TempDir(), "raft"), cfg: cfg}
	return n
}

// start starts or restarts a node.
func (n *node) start() *node {
	n.w.t.Helper()
	e := &ends{w: n.w, id: n.id, accept: make(chan net.Conn, 16), closed: make(chan struct{})}
	c := Config{Self: n.id, Dir: n.dir, Streams: e, Members: func() []member.Member { return n.w.members(n.id) }, Logger: testLogger(n.w.t, n.id)}
	if n.cfg != nil {
		n.cfg(&c)
	}
	q, err := Start(c)
	if err != nil {
		n.w.t.Fatalf("start %s: %v", n.id, err)
	}
	n.w.change(func() {
		n.q, n.ends = q, e
		n.w.nodes[n.id], n.w.states[n.id], n.w.starts[n.id] = n, member.Alive, time.Now()
	})
	return n
}

// kill ends a node without a word: nobody it could tell hears of it.
func (n *node) kill() {
	n.w.t.Helper()
	var open []*wire
	n.w.change(func() {
		for c := range n.w.conns {
			if c.from == n.id || c.to == n.id {
				open = append(open, c)
			}
		}
		for other := range n.w.nodes {
			n.w.cut[[2]member.ID{n.id, other}], n.w.cut[[2]member.ID{other, n.id}] = true, true
		}
		if !n.w.blind {
			n.w.states[n.id] = member.Failed
		}
	})
	for _, c := range open {
		_ = c.Close()
	}
	n.stop()
	n.w.change(func() {
		for other := range n.w.nodes {
			delete(n.w.cut, [2]member.ID{n.id, other})
			delete(n.w.cut, [2]member.ID{other, n.id})
		}
	})
}

// stop closes a node.
func (n *node) stop() {
	n.w.t.Helper()
	if n.q == nil {
		return
	}
	q := n.q
	n.w.change(func() { n.q, n.ends = nil, nil })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := q.Close(ctx); err != nil {
		n.w.t.Errorf("close %s: %v", n.id, err)
	}
}

// leave goes on purpose.
func (n *node) leave() {
	n.w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.q.Leave(ctx); err != nil {
		n.w.t.Errorf("leave %s: %v", n.id, err)
	}
	n.w.change(func() { n.w.states[n.id] = member.Left })
	n.stop()
}

func (w *world) stopAll() {
	w.heal()
	var wg sync.WaitGroup
	for _, n := range w.nodes {
		wg.Go(n.stop)
	}
	wg.Wait()
}

// cluster starts n nodes, the first alone and the others to join, and waits until all
// vote that may.
func (w *world) cluster(n int, cfg func(*Config)) []*node {
	w.t.Helper()
	nodes := []*node{}
	for i := 1; i <= n; i++ {
		nodes = append(nodes, w.node(i, func(c *Config) {
			c.Join = i > 1
			if cfg != nil {
				cfg(c)
			}
		}).start())
	}
	w.until(time.Minute, "all nodes vote", func() bool { return w.settled(nodes, min(n, VotersMax)) })
	return nodes
}

// settled tells whether nodes agree on a leader and on so many voters.
func (w *world) settled(nodes []*node, voters int) bool {
	var first Status
	for i, n := range nodes {
		s := n.q.Status()
		if i == 0 {
			first = s
		}
		if !s.HasQuorum || len(s.Voters) != voters || len(s.Voters)+len(s.Others) != len(nodes) || s.Leader != first.Leader || s.ClusterID != first.ClusterID || n.q.State().ClusterID != s.ClusterID {
			return false
		}
	}
	return true
}

// until polls a condition.
func (w *world) until(limit time.Duration, what string, done func() bool) time.Duration {
	w.t.Helper()
	begin := time.Now()
	for !done() {
		if time.Since(begin) > limit {
			for _, n := range w.nodes {
				if n.q != nil {
					w.t.Logf("%s: %+v\n  card %+v", n.id.Short(), n.q.Status(), n.q.card())
				}
			}
			w.stopAll()
			w.t.Fatalf("after %s: not yet: %s", limit, what)
		}
		wait(20 * time.Millisecond)
	}
	return time.Since(begin)
}

func wait(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// change makes one and fails the test if that fails.
func (n *node) change(c Change) {
	n.w.t.Helper()
	if err := n.q.Change(context.Background(), c); err != nil {
		n.w.t.Errorf("change on %s: %v", n.id, err)
	}
}

func (w *world) leader(nodes []*node) *node {
	w.t.Helper()
	var out *node
	w.until(time.Minute, "a leader", func() bool {
		for _, n := range nodes {
			if n.q != nil && n.q.Status().Leader == n.id {
				out = n
				return true
			}
		}
		return false
	})
	return out
}

func testLogger(t *testing.T, id member.ID) *slog.Logger {
	if os.Getenv("QUORUM_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("n", id[30:])
}
