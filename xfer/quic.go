package xfer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// alpn names the protocol inside TLS, on both transports.
const alpn = "tandem/1"

// packetBytes is the size of the first packets: what every path of the internet
// carries. Larger ones are used after probing.
const packetBytes = 1200

// quicConfig is that of the dialler of a lane. For data its windows are large, as it is
// who asks for data, and the peer opens no streams.
func quicConfig(t Timings, n lane) *quic.Config {
	c := &quic.Config{
		HandshakeIdleTimeout:           t.QUIC,
		MaxIdleTimeout:                 n.patience(t.DeadAfter) * 9 / 8, // the pings notice it first and say why
		InitialStreamReceiveWindow:     StreamBufferMax,
		MaxStreamReceiveWindow:         StreamBufferMax,
		InitialConnectionReceiveWindow: ConnBufferMax,
		MaxConnectionReceiveWindow:     ConnBufferMax,
		MaxIncomingStreams:             acceptMax + 1,
		MaxIncomingUniStreams:          -1,
		InitialPacketSize:              packetBytes,
	}
	if n != controlLane {
		c.MaxIncomingStreams = -1
		c.InitialStreamReceiveWindow, c.MaxStreamReceiveWindow = bulkStreamWindow, bulkStreamWindowMax
		c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow = bulkConnWindow, bulkConnWindowMax
	}
	return c
}

// quicAcceptConfig is for connections of any lane, which the hello tells later. The
// dialler's idle timeout counts, being the smaller one.
func quicAcceptConfig(t Timings) *quic.Config {
	c := quicConfig(t, controlLane)
	c.MaxIdleTimeout = quicConfig(t, lanesMax).MaxIdleTimeout
	return c
}

// quicSession is a session on QUIC.
type quicSession struct {
	conn   *quic.Conn
	client bool
	own    *quic.Transport // of this connection alone; nil: the link's
	socket *net.UDPConn    // of own

	mu      sync.Mutex
	packets uint64    // that had come at the last look
	last    time.Time // look that found new ones
}

func (s *quicSession) open(ctx context.Context) (rawStream, error) {
	stream, err := s.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	return quicStream{stream}, nil
}

func (s *quicSession) accept() (rawStream, error) {
	stream, err := s.conn.AcceptStream(s.conn.Context())
	if err != nil {
		if cause := context.Cause(s.conn.Context()); cause != nil {
			err = cause
		}
		return nil, err
	}
	return quicStream{stream}, nil
}

func (s *quicSession) ours(id uint64) bool {
	const server = 1 // the lowest bit of a stream id
	return id&server == 0 == s.client
}

func (s *quicSession) close(goodbye *frame, _ rawStream) {
	if goodbye == nil {
		goodbye = &frame{}
	}
	s.conn.CloseWithError(quic.ApplicationErrorCode(goodbye.Code), clip(goodbye.Text, textBytesMax))
	if s.own != nil {
		s.own.Close()
		s.socket.Close()
	}
}

func (s *quicSession) heard() time.Time {
	packets := s.conn.ConnectionStats().PacketsReceived
	s.mu.Lock()
	defer s.mu.Unlock()
	if packets != s.packets {
		s.packets, s.last = packets, time.Now()
	}
	return s.last
}

func (s *quicSession) remote() net.Addr { return s.conn.RemoteAddr() }

// quicStream is a stream of QUIC.
type quicStream struct{ *quic.Stream }

func (s quicStream) id() uint64        { return uint64(s.StreamID()) }
func (s quicStream) closeWrite() error { return s.Close() }
func (s quicStream) stopRead()         { s.CancelRead(0) }
func (s quicStream) reset()            { s.CancelRead(0); s.CancelWrite(0) }

// promote lets control frames pass data.
func (s quicStream) promote() { s.SetPriority(0, true) }

// withALPN makes the configuration of the peer link out of one of the identity.
func withALPN(c *tls.Config) *tls.Config {
	c = c.Clone()
	c.NextProtos = []string{alpn}
	c.SessionTicketsDisabled = true // who resumes shows no certificate
	return c
}

// dialQUIC makes a QUIC connection to one address, without a hello.
func (l *Link) dialQUIC(ctx context.Context, addr string, n lane, tlsConfig *tls.Config) (session, tls.ConnectionState, error) {
	udp, err := resolveUDP(ctx, addr, l.udp.LocalAddr())
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	if n != controlLane {
		return l.dialOwnQUIC(ctx, udp, n, tlsConfig)
	}
	conn, err := l.quic.Dial(ctx, udp, tlsConfig, quicConfig(l.cfg.Timings, n))
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	return &quicSession{conn: conn, client: true}, conn.ConnectionState().TLS, nil
}

// dialOwnQUIC makes a connection with a socket of its own: one socket is one queue,
// and one goroutine that reads it.
func (l *Link) dialOwnQUIC(ctx context.Context, to *net.UDPAddr, n lane, tlsConfig *tls.Config) (session, tls.ConnectionState, error) {
	from := *l.udp.LocalAddr().(*net.UDPAddr)
	from.Port = 0
	socket, err := net.ListenUDP("udp", &from)
	if err != nil {
		return nil, tls.ConnectionState{}, err
	}
	own := &quic.Transport{Conn: socket}
	conn, err := own.Dial(ctx, to, tlsConfig, quicConfig(l.cfg.Timings, n))
	if err != nil {
		own.Close()
		socket.Close()
		return nil, tls.ConnectionState{}, err
	}
	return &quicSession{conn: conn, client: true, own: own, socket: socket}, conn.ConnectionState().TLS, nil
}

// resolveUDP finds an address that the local socket can send to.
func resolveUDP(ctx context.Context, addr string, from net.Addr) (*net.UDPAddr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	local, _ := from.(*net.UDPAddr)
	for _, ip := range ips {
		if local != nil && local.IP.To4() != nil && ip.IP.To4() == nil {
			continue // an IPv4 socket
		}
		if local != nil && !local.IP.IsUnspecified() && local.IP.To4() == nil && ip.IP.To4() != nil {
			continue // bound to one IPv6 address
		}
		return &net.UDPAddr{IP: ip.IP, Port: number, Zone: ip.Zone}, nil
	}
	return nil, errors.New("no address that the socket at " + from.String() + " can send to")
}
