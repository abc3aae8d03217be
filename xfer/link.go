package xfer

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"tandem/cluster/member"
)

// Identity proves who the nodes are: cluster/identity does.
type Identity interface {
	// ServerTLS asks for a certificate of the cluster.
	ServerTLS() *tls.Config
	// ClientTLS accepts only the node that is wanted.
	ClientTLS(want member.ID) *tls.Config
	// PeerID reads who is at the other end of a connection.
	PeerID(tls.ConnectionState) (member.ID, error)
}

// Handler serves one stream of a peer. Its context ends when the peer no longer
// takes part, when the opener's time is over, or with the link; it must then return.
// What it returns is the end of the stream: nil is io.EOF for the opener, an error
// arrives there as *RemoteError after all that was written. A *RemoteError returned
// here keeps its code and text, any other gets CodeFailed. The stream is closed
// after the return.
type Handler func(ctx context.Context, s *Stream) error

// Config is what a link needs.
type Config struct {
	Self     member.ID
	Identity Identity
	Listen   string                    // host:port of UDP and TCP; port 0 takes one that is free in both
	Address  func(member.ID) []string  // host:port of a peer, best first; names are resolved at each attempt
	Cluster  string                    // public fingerprint of the secret: both ends must have the same
	Program  string                    // version of the program, for refusals
	Versions Versions                  // of the wire; zero: what this program speaks
	TCPOnly  bool                      // never use QUIC
	ResetKey *[32]byte                 // secret, the same after a restart: peers then notice one at once; nil: after DeadAfter
	Handlers map[string]Handler        // services that are there from the first moment; Handle adds more
	Logger   *slog.Logger              // nil: nothing is logged
	Timings  Timings                   // zero: the defaults
	Buffers  func(wanted, granted int) // told if the kernel grants less than QUIC wants, in bytes; may be nil
	Changed  func(peer member.ID)      // a connection of this peer came or went; must not wait; may be nil
}

// validate names everything that is wrong.
func (c Config) validate() error {
	var errs []error
	if _, err := member.ParseID(string(c.Self)); err != nil {
		errs = append(errs, fmt.Errorf("field Self: %w", err))
	}
	if c.Identity == nil {
		errs = append(errs, errors.New("field Identity: it is missing"))
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, fmt.Errorf("field Listen: %q: %w", c.Listen, err))
	}
	if c.Address == nil {
		errs = append(errs, errors.New("field Address: it is missing"))
	}
	if c.Cluster == "" || len(c.Cluster) > clusterBytesMax {
		errs = append(errs, fmt.Errorf("field Cluster: %d bytes; 1 to %d are allowed", len(c.Cluster), clusterBytesMax))
	}
	if c.Versions.Min == 0 || c.Versions.Min > c.Versions.Max {
		errs = append(errs, fmt.Errorf("field Versions: %d to %d", c.Versions.Min, c.Versions.Max))
	}
	if c.Timings.DeadAfter < idleMin {
		errs = append(errs, fmt.Errorf("field Timings.DeadAfter: %v; at least %v", c.Timings.DeadAfter, idleMin))
	}
	for name, h := range c.Handlers {
		if !validService(name) || h == nil {
			errs = append(errs, fmt.Errorf("field Handlers: %q: a service has 1 to %d characters a-z, 0-9, '-', '.', '/', and a handler", name, serviceBytesMax))
		}
	}
	return errors.Join(errs...)
}

// Link is this node's end of all peer links.
type Link struct {
	cfg      Config
	log      *slog.Logger
	udp      *net.UDPConn
	quic     *quic.Transport
	tcp      net.Listener
	instance uint64
	loop     *conn           // to itself, the opener's end
	greeting chan struct{}   // held by connections that have not said hello
	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	handlers map[string]Handler
	peers    map[member.ID]*peer
	warned   map[string]time.Time
}

// Listen opens the port, in UDP and TCP, and answers peers from then on.
func Listen(cfg Config) (*Link, error) {
	cfg.Timings = cfg.Timings.withDefaults()
	if cfg.Versions == (Versions{}) {
		cfg.Versions = Versions{VersionMin, VersionMax}
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("peer link: %w", err)
	}
	l := &Link{cfg: cfg, log: cfg.Logger, greeting: make(chan struct{}, helloMax),
		handlers: map[string]Handler{}, peers: map[member.ID]*peer{}, warned: map[string]time.Time{}}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	for name, h := range cfg.Handlers {
		l.handlers[name] = h
	}
	var random [8]byte
	rand.Read(random[:])
	l.instance = binary.BigEndian.Uint64(random[:])
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	if err := l.bind(); err != nil {
		l.cancel(ErrClosed)
		return nil, fmt.Errorf("peer link: listen at %s: %w", cfg.Listen, err)
	}
	// quic-go's own warning goes to the global logger and names no remedy.
	os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	l.quic = &quic.Transport{Conn: l.udp, ConnContext: l.watchHandshake}
	if cfg.ResetKey != nil {
		key := quic.StatelessResetKey(*cfg.ResetKey)
		l.quic.StatelessResetKey = &key
	}
	incoming, err := l.quic.Listen(withALPN(cfg.Identity.ServerTLS()), quicAcceptConfig(cfg.Timings))
	if err != nil {
		l.cancel(ErrClosed)
		l.udp.Close()
		l.tcp.Close()
		return nil, fmt.Errorf("peer link: QUIC at %s: %w", cfg.Listen, err)
	}
	l.checkBuffers()
	l.startLoop()
	l.start(func() { l.acceptQUIC(incoming) })
	l.start(l.acceptTCP)
	l.start(l.tend)
	return l, nil
}

// bind opens both sockets. The kernel chooses a free UDP port, which may be taken in
// TCP: then it is asked again.
func (l *Link) bind() error {
	const attempts = 20
	_, port, _ := net.SplitHostPort(l.cfg.Listen)
	for attempt := 1; ; attempt++ {
		at, err := net.ResolveUDPAddr("udp", l.cfg.Listen)
		if err != nil {
			return err
		}
		udp, err := net.ListenUDP("udp", at)
		if err != nil {
			return err
		}
		at = udp.LocalAddr().(*net.UDPAddr)
		tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: at.IP, Port: at.Port, Zone: at.Zone})
		if err == nil {
			l.udp, l.tcp = udp, tcp
			return nil
		}
		udp.Close()
		if port != "0" || attempt == attempts {
			return err
		}
	}
}

// Addr is the address of the port, in UDP and TCP.
func (l *Link) Addr() string { return l.tcp.Addr().String() }

// start runs f in a goroutine that Close waits for, unless the link is closed.
func (l *Link) start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.wg.Go(f)
	return true
}

// startLoop connects the node with itself.
func (l *Link) startLoop() {
	a, b := newLoop()
	out, _ := a.open(l.ctx)
	in, _ := b.accept()
	h := l.hello(0, controlLane)
	l.loop = newConn(l, l.cfg.Self, Loop, controlLane, a, out, true, h)
	there := newConn(l, l.cfg.Self, Loop, controlLane, b, in, false, h)
	l.loop.version, there.version = l.cfg.Versions.Max, l.cfg.Versions.Max
	l.loop.start()
	there.start()
}

// Handle gives a service a handler, for streams that come from now on. It panics if
// the name is not 1 to 64 characters a-z, 0-9, '-', '.', '/', or has a handler.
func (l *Link) Handle(service string, h Handler) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !validService(service) || h == nil || l.handlers[service] != nil {
		panic(fmt.Sprintf("xfer: service %q cannot have this handler", service))
	}
	l.handlers[service] = h
}

func (l *Link) handler(service string) Handler {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handlers[service]
}

// Open opens a stream to a service of a peer, or of this node itself. ctx bounds the
// opening only, which may connect first and so take some seconds. Nothing is waited
// for at the peer: whether it has the service shows the first Read or Write. Errors:
// *UnreachableError, *RefusedError, *PeerLostError, ErrClosed, those of ctx.
func (l *Link) Open(ctx context.Context, to member.ID, service string) (*Stream, error) {
	return l.open(ctx, service, 0, func(ctx context.Context) (*conn, error) { return l.connection(ctx, to) })
}

// OpenBound is Open for a stream that lives no longer than ctx: its end cancels the
// stream, and its deadline also ends the context of the handler.
func (l *Link) OpenBound(ctx context.Context, to member.ID, service string) (*Stream, error) {
	return l.openBound(ctx, service, func(ctx context.Context) (*conn, error) { return l.connection(ctx, to) })
}

// connecting gives a connection that is open.
type connecting func(ctx context.Context) (*conn, error)

func (l *Link) openBound(ctx context.Context, service string, connect connecting) (*Stream, error) {
	var within time.Duration
	if by, ok := ctx.Deadline(); ok {
		within = time.Until(by)
		if within <= 0 {
			return nil, context.DeadlineExceeded
		}
	}
	s, err := l.open(ctx, service, within, connect)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		cause, code := context.Cause(ctx), CodeCancelled
		if errors.Is(cause, context.DeadlineExceeded) {
			code = CodeDeadline
		}
		s.cancelWith(cause, code, cause.Error())
	})
	s.mu.Lock()
	over := s.released
	s.atEnd = func() { stop() }
	s.mu.Unlock()
	if over {
		stop()
	}
	return s, nil
}

func (l *Link) open(ctx context.Context, service string, within time.Duration, connect connecting) (*Stream, error) {
	const attempts = 3 // a pooled connection may turn out to be dead, and the next one, too
	if !validService(service) {
		return nil, fmt.Errorf("open %q: a service has 1 to %d characters a-z, 0-9, '-', '.', '/'", service, serviceBytesMax)
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timings.Open)
	defer cancel()
	for attempt := 1; ; attempt++ {
		c, err := connect(ctx)
		if err != nil {
			return nil, err
		}
		s, err := c.open(ctx, service, within)
		if err == nil || attempt == attempts || c.ctx.Err() == nil || ctx.Err() != nil {
			return s, err
		}
	}
}

// Probe measures a round trip to a peer, and connects first if there is no
// connection.
func (l *Link) Probe(ctx context.Context, to member.ID) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Timings.Open)
	defer cancel()
	c, err := l.connection(ctx, to)
	if err != nil {
		return 0, err
	}
	return c.probe(ctx)
}

// Drop ends all connections of a peer that is no member any more.
func (l *Link) Drop(id member.ID) {
	const why = "it is no longer a member of the cluster"
	l.mu.Lock()
	var conns []*conn
	if p := l.peers[id]; p != nil {
		conns = p.allLocked()
		if !p.diallingLocked() {
			delete(l.peers, id)
		}
	}
	l.mu.Unlock()
	for _, c := range conns {
		c.fail(c.lostBecause(why, nil), &frame{Type: frameBye, Code: CodeClosing, Text: "node " + l.cfg.Self.Short() + " says: " + why})
	}
}

// Close ends all streams and connections at once and waits until all goroutines,
// also those of handlers, have ended, or ctx has.
func (l *Link) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	conns := []*conn{l.loop}
	for _, p := range l.peers {
		conns = append(conns, p.allLocked()...)
	}
	l.mu.Unlock()
	if first {
		var all sync.WaitGroup
		for _, c := range conns {
			all.Go(func() { c.fail(ErrClosed, &frame{Type: frameBye, Code: CodeClosing, Text: "the node shuts down"}) })
		}
		all.Wait()
		l.cancel(ErrClosed)
		l.tcp.Close()
		l.quic.Close()
		l.udp.Close()
	}
	ended := make(chan struct{})
	go func() { // ends with the last handler
		l.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("peer link: handlers still run: %w", context.Cause(ctx))
	}
}
