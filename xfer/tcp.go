package xfer

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"net"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
)

// stuckAfter is how long one write to a TCP connection may take: longer than a silent
// peer is waited for, on any lane, so that pings notice it first and say why.
// byeTimeout is how long a goodbye may.
const (
	stuckAfter = 15 * time.Second
	byeTimeout = 300 * time.Millisecond
)

// yamuxConfig is for the side that takes data: windows are the receiver's.
func yamuxConfig(n lane) *yamux.Config {
	window := uint32(StreamBufferMax)
	if n != controlLane {
		window = bulkTCPWindow
	}
	return &yamux.Config{
		AcceptBacklog:          acceptMax + 1,
		KeepAliveInterval:      time.Hour, // not enabled: our own pings measure, too
		ConnectionWriteTimeout: stuckAfter,
		MaxStreamWindowSize:    window,
		Logger:                 log.New(io.Discard, "", 0), // what it says, its errors say
	}
}

// tcpSession is a session on TLS over TCP.
type tcpSession struct {
	mux    *yamux.Session
	wire   *wire
	client bool
}

func newTCPSession(tcp net.Conn, secured *tls.Conn, n lane, client bool) (*tcpSession, error) {
	w := &wire{Conn: secured, tcp: tcp}
	w.last.Store(time.Now().UnixNano())
	make := yamux.Server
	if client {
		make = yamux.Client
	}
	mux, err := make(w, yamuxConfig(n))
	if err != nil {
		return nil, err
	}
	return &tcpSession{mux: mux, wire: w, client: client}, nil
}

func (s *tcpSession) open(context.Context) (rawStream, error) {
	stream, err := s.mux.OpenStream()
	if err != nil {
		return nil, s.explain(err)
	}
	return tcpStream{stream}, nil
}

func (s *tcpSession) accept() (rawStream, error) {
	stream, err := s.mux.AcceptStream()
	if err != nil {
		return nil, s.explain(err)
	}
	return tcpStream{stream}, nil
}

// explain puts what the network said in the place of "session shutdown".
func (s *tcpSession) explain(err error) error {
	if cause := s.wire.fault.Load(); cause != nil {
		return *cause
	}
	return err
}

func (s *tcpSession) ours(id uint64) bool {
	return id%2 == 1 == s.client
}

func (s *tcpSession) close(goodbye *frame, bye rawStream) {
	if goodbye != nil && bye != nil {
		s.wire.tcp.SetWriteDeadline(time.Now().Add(byeTimeout))
		bye.Write(appendFrame(nil, *goodbye))
	}
	s.mux.Close()
}

func (s *tcpSession) heard() time.Time { return time.Unix(0, s.wire.last.Load()) }
func (s *tcpSession) remote() net.Addr { return s.wire.RemoteAddr() }

// wire is the TLS connection under yamux. It remembers when bytes came and what
// went wrong, and puts the head of a yamux frame into the TLS record of its body: by
// itself it would be a record, and a system call, of its own.
type wire struct {
	net.Conn // TLS
	tcp      net.Conn
	last     atomic.Int64 // Unix nanoseconds
	fault    atomic.Pointer[error]
	head     []byte // of a frame whose body is the next write; yamux writes from one goroutine
	joined   []byte // room for both
}

// muxHeadBytes is the length of the head of a yamux frame: version, type, flags u16,
// stream u32, length u32.
const muxHeadBytes = 12

// bodyFollows tells whether a write of yamux is the head of a frame with a body.
func bodyFollows(p []byte) bool {
	const data = 0 // the type
	return len(p) == muxHeadBytes && p[1] == data && binary.BigEndian.Uint32(p[8:]) > 0
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.last.Store(time.Now().UnixNano())
	}
	w.note(err)
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if len(w.head) == 0 && bodyFollows(p) {
		w.head = append(w.head, p...)
		return len(p), nil
	}
	whole := p
	if len(w.head) > 0 {
		w.joined = append(append(w.joined[:0], w.head...), p...)
		whole, w.head = w.joined, w.head[:0]
	}
	_, err := w.Conn.Write(whole)
	w.note(err)
	if err != nil {
		return 0, err // yamux gives the connection up
	}
	return len(p), nil
}

func (w *wire) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.fault.CompareAndSwap(nil, &err)
	}
}

// Close does not say goodbye in TLS: that could wait for seconds, and the control
// stream has said it.
func (w *wire) Close() error { return w.tcp.Close() }

// tcpStream is a stream of yamux.
type tcpStream struct{ *yamux.Stream }

func (s tcpStream) id() uint64        { return uint64(s.StreamID()) }
func (s tcpStream) closeWrite() error { return s.Close() }

// stopRead has nothing to do: what comes stays within the window of the stream
// until the peer has closed its side, too.
func (s tcpStream) stopRead() {}
func (s tcpStream) reset()    { s.Close() }

// dialTCP makes a TLS connection to one address, without a hello.
func (l *Link) dialTCP(ctx context.Context, addr string, n lane, tlsConfig *tls.Config) (session, tls.ConnectionState, error) {
	var dialer net.Dialer
	tcp, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	secured := tls.Client(tcp, tlsConfig)
	if err := secured.HandshakeContext(ctx); err != nil {
		tcp.Close()
		return nil, tls.ConnectionState{}, err
	}
	s, err := newTCPSession(tcp, secured, n, true)
	if err != nil {
		tcp.Close()
		return nil, tls.ConnectionState{}, err
	}
	return s, secured.ConnectionState(), nil
}
