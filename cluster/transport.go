package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// Limits of what comes in before it is known from whom.
const (
	streamsMax     = 64               // open at a time; each may hold streamBytesMax
	streamBytesMax = 512 << 10        // read from one stream: the state of some 700 nodes
	sniffWithin    = 5 * time.Second  // for the first byte
	helloWithin    = 10 * time.Second // for a whole hello, with dialling back
	packetBytesMax = 64 << 10         // what UDP can carry
	udpBuffer      = 2 << 20          // asked for; the kernel may give less
	portTries      = 20               // for a free port that is free in TCP and UDP
	acceptPause    = 50 * time.Millisecond
)

// memberlistEncrypted begins each stream of memberlist when gossip is encrypted.
const memberlistEncrypted = 10

// network is where sockets come from. Tests put cuts into it; nil fields are the real
// thing.
type network struct {
	packets func(net.PacketConn) net.PacketConn
	dial    func(ctx context.Context, d *net.Dialer, to string) (net.Conn, error)
}

// transport carries gossip over UDP and TCP, and tells hellos from gossip on TCP. It is
// a memberlist.NodeAwareTransport.
type transport struct {
	log   *slog.Logger
	net   network
	tcp   *net.TCPListener
	udp   net.PacketConn
	local netip.AddrPort // where it is bound, with the port that it got
	known netip.AddrPort // what others are told; set before memberlist starts

	packets chan *memberlist.Packet
	streams chan net.Conn
	slots   chan struct{} // one for each open stream
	onHello func(ctx context.Context, conn net.Conn)
	onCheck func(packet []byte, from net.Addr) // must not wait

	ctx    context.Context // ends with the transport
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// listen binds TCP and UDP to the same port; with port 0 to one that is free in both.
func listen(bind netip.AddrPort, n network, log *slog.Logger) (*transport, error) {
	tries := 1
	if bind.Port() == 0 {
		tries = portTries
	}
	var err error
	for range tries {
		var t *transport
		if t, err = listenOnce(bind, n, log); err == nil {
			return t, nil
		}
	}
	return nil, err
}

func listenOnce(bind netip.AddrPort, n network, log *slog.Logger) (*transport, error) {
	tcp, err := net.ListenTCP(family("tcp", bind), net.TCPAddrFromAddrPort(bind))
	if err != nil {
		return nil, fmt.Errorf("listen for gossip on %s (TCP): %w", bind, cause(err))
	}
	local := tcp.Addr().(*net.TCPAddr).AddrPort()
	local = netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
	if bind.Addr().IsValid() {
		local = netip.AddrPortFrom(bind.Addr(), local.Port())
	}
	udp, err := net.ListenUDP(family("udp", bind), net.UDPAddrFromAddrPort(netip.AddrPortFrom(bind.Addr(), local.Port())))
	if err != nil {
		_ = tcp.Close()
		return nil, fmt.Errorf("listen for gossip on %s (UDP): %w", local, cause(err))
	}
	_ = udp.SetReadBuffer(udpBuffer) // less loses packets under load, which gossip repeats
	t := &transport{
		log: log, net: n, tcp: tcp, udp: udp, local: local,
		packets: make(chan *memberlist.Packet),
		streams: make(chan net.Conn),
		slots:   make(chan struct{}, streamsMax),
	}
	if n.packets != nil {
		t.udp = n.packets(udp)
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t, nil
}

// family keeps 0.0.0.0 from becoming all of IPv6 too.
func family(network string, addr netip.AddrPort) string {
	if addr.Addr().Is4() {
		return network + "4"
	}
	return network
}

// cause is what the system said, without the addresses and calls around it.
func cause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// start reads the sockets until Shutdown.
func (t *transport) start(onHello func(ctx context.Context, conn net.Conn), onCheck func(packet []byte, from net.Addr)) {
	t.onHello, t.onCheck = onHello, onCheck
	t.wg.Go(t.accept)
	t.wg.Go(t.receive)
}

func (t *transport) accept() {
	for {
		conn, err := t.tcp.AcceptTCP()
		if t.ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil { // out of descriptors, most likely: they come back
			if !wait(t.ctx, acceptPause) {
				return
			}
			continue
		}
		select {
		case t.slots <- struct{}{}:
			t.wg.Go(func() { t.recognise(&stream{Conn: conn, t: t, left: streamBytesMax}) })
		default:
			t.log.Debug("gossip: a stream was refused, too many are open", "from", conn.RemoteAddr(), "most", streamsMax)
			_ = conn.Close()
		}
	}
}

// recognise reads the first byte of a stream and gives it to whom it is for.
func (t *transport) recognise(s *stream) {
	handed := false
	defer func() {
		if !handed {
			_ = s.Close()
		}
	}()
	_ = s.SetDeadline(time.Now().Add(sniffWithin))
	stop := context.AfterFunc(t.ctx, func() { _ = s.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var first [1]byte
	if _, err := s.Conn.Read(first[:]); err != nil {
		return
	}
	s.first, s.peeked = first[0], true
	switch s.first {
	case helloMagic[0]:
		ctx, cancel := context.WithTimeout(t.ctx, helloWithin)
		defer cancel()
		_ = s.SetDeadline(time.Now().Add(helloWithin))
		t.onHello(ctx, s)
	case memberlistEncrypted:
		select {
		case t.streams <- s:
			handed = true // memberlist sets its own deadline and closes
		case <-t.ctx.Done():
		}
	default:
		t.log.Debug("gossip: a stream was refused, it is not gossip", "from", s.RemoteAddr())
	}
}

// stream is a connection from outside: its first byte has been looked at, and what it
// may send is bounded.
type stream struct {
	net.Conn
	t      *transport
	first  byte
	peeked bool
	left   int
	once   sync.Once
}

var errStreamLong = fmt.Errorf("a gossip stream of more than %d bytes", streamBytesMax)

func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if s.peeked {
		s.peeked = false
		p[0] = s.first
		return 1, nil
	}
	if s.left <= 0 {
		return 0, errStreamLong
	}
	n, err := s.Conn.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}

func (s *stream) Close() error {
	err := s.Conn.Close()
	s.once.Do(func() { <-s.t.slots })
	return err
}

func (t *transport) receive() {
	buf := make([]byte, packetBytesMax)
	for {
		n, from, err := t.udp.ReadFrom(buf)
		now := time.Now()
		if t.ctx.Err() != nil {
			return
		}
		if err != nil {
			if !wait(t.ctx, acceptPause) {
				return
			}
			continue
		}
		if n == 0 {
			continue
		}
		if buf[0] == helloMagic[0] { // memberlist's begin with a version, 0 or 1
			t.onCheck(buf[:n], from)
			continue
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: append([]byte(nil), buf[:n]...), From: from, Timestamp: now}:
		case <-t.ctx.Done():
			return
		}
	}
}

// FinalAdvertiseAddr is what others are told; it was settled before.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.known.Addr().AsSlice(), int(t.known.Port()), nil
}

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

// WriteToAddress sends a packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("gossip to %q: %w", a.Addr, err)
	}
	_, err = t.udp.WriteTo(b, net.UDPAddrFromAddrPort(to))
	return time.Now(), err
}

// PacketCh hands packets to memberlist.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh hands streams to memberlist.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout opens a stream.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	return t.dialStream(ctx, addr)
}

// DialAddressTimeout opens a stream.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// dialStream comes from the address that the node is bound to, so that others see it
// under the one that they know.
func (t *transport) dialStream(ctx context.Context, to string) (net.Conn, error) {
	if at, err := netip.ParseAddrPort(to); err == nil && !t.reaches(at.Addr()) {
		return nil, fmt.Errorf("this node's gossip is bound to %s, from where no %s address can be reached; bind it to an address of that kind, or to all", t.local, familyName(at.Addr()))
	}
	d := &net.Dialer{}
	if !t.local.Addr().IsUnspecified() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.local.Addr(), 0))
	}
	if t.net.dial != nil {
		return t.net.dial(ctx, d, to)
	}
	return d.DialContext(ctx, "tcp", to)
}

// reaches tells whether the sockets can send to an address: those of one family do not
// reach the other.
func (t *transport) reaches(to netip.Addr) bool {
	local := t.local.Addr()
	return local == netip.IPv6Unspecified() || local.Is4() == to.Unmap().Is4()
}

func familyName(a netip.Addr) string {
	if a.Unmap().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// Shutdown closes the sockets and waits for their goroutines. Streams that memberlist
// has are memberlist's.
func (t *transport) Shutdown() error {
	t.cancel()
	err := errors.Join(t.tcp.Close(), t.udp.Close())
	t.wg.Wait()
	return err
}

// wait lets a time pass; false if the context ended before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
