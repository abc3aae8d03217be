package quorum

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"tandem/cluster/member"
)

// Quorum is this node's part in what the cluster agrees on.
type Quorum struct {
	cfg    Config
	logger *slog.Logger

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	own    sync.WaitGroup // all goroutines of this package but those of cores

	wake       chan struct{} // pokes the reconciler
	news       chan struct{} // pokes the recorder and the one that calls watchers
	heard      chan card     // cards of others, for the reconciler
	recoveries chan recovery
	changes    chan struct{} // a token for each change that is waited for
	hellos     chan struct{} // a token for each stream that has not said who it is

	mu struct {
		sync.RWMutex
		core     *core // nil: none runs, for the reason in broken
		broken   error
		last     State // what State shows until a new core has something
		problems []string
		leaving  map[member.ID]time.Time // nodes that asked to be removed → their Started
		closed   bool
	}
	watch struct {
		sync.Mutex
		next  int
		calls map[int]*watcher
	}
	adopting sync.Mutex    // one stream at a time may bring this node into a cluster
	acting   atomic.Bool   // the leader's change of membership is under way
	replayed atomic.Uint64 // the term in which this leader has replayed everything
	rec      *reconciler   // the reconciler's own
}

type watcher struct {
	call func(State)
	seen *published
}

// Start opens the folder and begins. A folder that cannot be used is an error that
// names it; one that is damaged is set aside, with a line in the log. Start does not
// wait for other nodes.
func Start(c Config) (*Quorum, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	q := &Quorum{
		cfg: c, logger: newCalm(c.Logger.Handler()),
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1), heard: make(chan card, 64), recoveries: make(chan recovery),
		changes: make(chan struct{}, changesMax), hellos: make(chan struct{}, hellosMax),
		rec: newReconciler(),
	}
	q.mu.leaving = map[member.ID]time.Time{}
	q.watch.calls = map[int]*watcher{}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	s, err := openFolder(c, q.logger)
	if err == nil {
		q.mu.core, err = startCore(c, s, q.logger, q.changed, q.MembersChanged)
		if err != nil {
			s.close()
		}
	}
	if err != nil {
		q.cancel()
		return nil, err
	}
	q.own.Go(q.accept)
	q.own.Go(q.reconcile)
	q.own.Go(q.tell)
	return q, nil
}

// current is the core that runs.
func (q *Quorum) current() (*core, error) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	switch {
	case q.mu.closed:
		return nil, ErrClosed
	case q.mu.core == nil:
		return nil, q.mu.broken
	}
	return q.mu.core, nil
}

// changed is called by a state machine after each change.
func (q *Quorum) changed() {
	poke(q.news)
	poke(q.wake)
}

// MembersChanged makes the reconciler look at Members now. It does not block.
func (q *Quorum) MembersChanged() { poke(q.wake) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hear takes a card to the reconciler; one too many is dropped, there will be others.
func (q *Quorum) hear(c card) {
	select {
	case q.heard <- c:
	default:
	}
}

// accept takes streams of raft's from others until the streams are closed.
func (q *Quorum) accept() {
	for {
		conn, err := q.cfg.Streams.Accept()
		if err != nil {
			if q.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			q.logger.Warn("cannot accept streams of other nodes", "error", err)
			if !pause(q.ctx, q.cfg.tick()) {
				return
			}
			continue
		}
		select {
		case q.hellos <- struct{}{}:
			q.own.Go(func() {
				q.greet(conn)
				<-q.hellos
			})
		default:
			_ = conn.Close()
		}
	}
}

// pause waits, and tells whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// greet hears who a stream is from and hands it to raft, or refuses it.
func (q *Quorum) greet(conn net.Conn) {
	stop := context.AfterFunc(q.ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(q.cfg.rpcLimit()))
	var h hello
	if err := readFrame(conn, &h); err != nil {
		_ = conn.Close()
		return
	}
	k, refusal := q.welcome(conn, h)
	if refusal != "" {
		_ = writeFrame(conn, welcome{Refused: refusal})
		_ = conn.Close()
		return
	}
	if err := writeFrame(conn, welcome{}); err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if !stop() {
		return
	}
	_ = k.layer.offer(conn)
}

// welcome decides about a stream. A node that waits takes the cluster of whoever
// means this incarnation of it: only those do that were told to by their leader.
func (q *Quorum) welcome(conn net.Conn, h hello) (*core, string) {
	k, err := q.current()
	if err != nil {
		return nil, "the agreement of this node is closed: " + err.Error()
	}
	if p, ok := conn.(interface{ Peer() member.ID }); ok && p.Peer() != h.From {
		return nil, "the stream comes from another node than it says"
	}
	id := k.store.who()
	switch {
	case h.Version != helloVersion:
		return nil, "this node speaks another version of the cluster's protocol: run the same version on all nodes"
	case h.To != id.Incarnation || h.Cluster == "":
		return nil, "this node lost the folder that the stream is meant for: the leader will let it in anew"
	case h.realm == id.realm:
		return k, ""
	case id.Cluster != "":
		return nil, "this node belongs to another cluster, or to another generation of it"
	}
	q.adopting.Lock()
	defer q.adopting.Unlock()
	if id = k.store.who(); id.Cluster == "" {
		id.realm, id.Lost = h.realm, false
		if err := k.store.become(id); err != nil {
			return nil, "this node cannot store which cluster it belongs to: " + err.Error()
		}
		q.logger.Info("this node was let into a cluster", "cluster", h.Cluster, "generation", h.Generation, "peer", h.From.Short())
	}
	if id = k.store.who(); id.realm != h.realm {
		return nil, "this node belongs to another cluster, or to another generation of it"
	}
	return k, ""
}

// State is what is agreed, as far as this node knows. It waits for nothing.
func (q *Quorum) State() State {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.mu.core != nil {
		if shown := q.mu.core.fsm.shown.Load(); shown.state.ClusterID != "" {
			return shown.state.clone()
		}
	}
	return q.mu.last.clone()
}

// Watch has call called with the present state and then with new ones, in order, from
// one goroutine; states that follow each other fast may be left out, the last never
// is. It returns what ends that; a call may then still be under way.
func (q *Quorum) Watch(call func(State)) (stop func()) {
	q.watch.Lock()
	defer q.watch.Unlock()
	key := q.watch.next
	q.watch.next++
	q.watch.calls[key] = &watcher{call: call}
	poke(q.news)
	return func() {
		q.watch.Lock()
		defer q.watch.Unlock()
		delete(q.watch.calls, key)
	}
}

// Close ends all goroutines and the streams. A leader hands over first. It waits until
// everything has ended or the context has.
func (q *Quorum) Close(ctx context.Context) error {
	q.mu.Lock()
	k := q.mu.core
	if q.mu.closed {
		q.mu.Unlock()
		return nil
	}
	q.mu.closed = true
	if k != nil && k.fsm.shown.Load().state.ClusterID != "" {
		q.mu.last = k.fsm.shown.Load().state
	}
	q.mu.Unlock()
	if k != nil && k.leader() == q.cfg.Self && len(k.voters()) > 1 {
		handOver, cancel := context.WithTimeout(ctx, q.cfg.Heartbeat)
		_ = q.handOver(handOver, k)
		cancel()
	}
	q.cancel()
	_ = q.cfg.Streams.Close()
	var err error
	if k != nil {
		err = k.close(ctx, &q.own)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		q.own.Wait()
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}
