package quorum

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"tandem/cluster/member"
)

// hello begins every stream of raft's. The answer is a welcome.
type hello struct {
	Version int       `json:"v"`
	From    member.ID `json:"from"`
	To      string    `json:"to"` // the incarnation that is meant
	realm
}

type welcome struct {
	Refused string `json:"refused,omitempty"` // a sentence; "": go on
}

const helloVersion = 1

// writeFrame writes a length of four bytes and a value in JSON.
func writeFrame(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// readFrame reads what writeFrame wrote, and not a byte more.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > helloBytesMax {
		return fmt.Errorf("hello of %d bytes; the most is %d", size, helloBytesMax)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// layer gives raft its streams. One belongs to one core; when it is closed, every
// stream of that core is.
type layer struct {
	self    member.ID
	streams Streams
	hello   func(to member.ID) (hello, error)
	limit   time.Duration

	ctx      context.Context
	cancel   context.CancelFunc
	accepted chan net.Conn

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
	muted bool
	count sync.WaitGroup // of conns
}

func newLayer(self member.ID, streams Streams, limit time.Duration, hello func(member.ID) (hello, error)) *layer {
	ctx, cancel := context.WithCancel(context.Background())
	return &layer{self: self, streams: streams, hello: hello, limit: limit, ctx: ctx, cancel: cancel, accepted: make(chan net.Conn), conns: map[*trackedConn]struct{}{}}
}

// address is a node's id: what raft takes for an address needs no change when the
// node moves.
type address member.ID

// Network names the kind of address.
func (a address) Network() string { return "member" }

func (a address) String() string { return string(a) }

// Addr is this node's id.
func (l *layer) Addr() net.Addr { return address(l.self) }

// Dial opens a stream and waits until the other side has agreed to it.
func (l *layer) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	greeting, err := l.hello(member.ID(to))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(l.ctx, min(timeout, l.limit))
	defer cancel()
	raw, err := l.streams.Dial(ctx, member.ID(to))
	if err != nil {
		return nil, err
	}
	conn, err := l.track(raw)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	var answer welcome
	err = writeFrame(conn, greeting)
	if err == nil {
		err = readFrame(conn, &answer)
	}
	if err == nil && answer.Refused != "" {
		err = errors.New(answer.Refused)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("raft stream to %s: %w", member.ID(to).Short(), err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// Accept waits for a stream that was greeted.
func (l *layer) Accept() (net.Conn, error) {
	select {
	case conn := <-l.accepted:
		return conn, nil
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// offer hands a greeted stream to raft, which owns it then.
func (l *layer) offer(raw net.Conn) error {
	conn, err := l.track(raw)
	if err != nil {
		return err
	}
	select {
	case l.accepted <- conn:
		return nil
	case <-l.ctx.Done():
		_ = conn.Close()
		return net.ErrClosed
	}
}

// track counts a stream until it is closed.
func (l *layer) track(raw net.Conn) (*trackedConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || l.muted || len(l.conns) >= streamsMax {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	c := &trackedConn{Conn: raw, layer: l}
	l.conns[c] = struct{}{}
	l.count.Add(1)
	return c, nil
}

// mute ends all streams and allows no new ones, or allows them again.
func (l *layer) mute(on bool) {
	l.mu.Lock()
	was := l.muted
	l.muted = on
	l.mu.Unlock()
	if on && !was {
		l.closeConns()
	}
}

// Close ends all streams.
func (l *layer) Close() error {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.closeConns()
	return nil
}

// closeConns ends the streams under raft's feet: raft's readers then close them, too,
// which is when they stop to count.
func (l *layer) closeConns() {
	l.mu.Lock()
	conns := make([]*trackedConn, 0, len(l.conns))
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns {
		_ = c.Conn.Close()
	}
}

// trackedConn tells the layer when it is closed.
type trackedConn struct {
	net.Conn
	layer *layer
	once  sync.Once
}

// Close ends the stream.
func (c *trackedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.layer.mu.Lock()
		delete(c.layer.conns, c)
		c.layer.mu.Unlock()
		c.layer.count.Done()
	})
	return err
}
