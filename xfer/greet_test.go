package xfer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"tandem/cluster/member"
)

func TestVersions(t *testing.T) {
	tests := []struct {
		name string
		a, b Versions
		want uint16
	}{
		{"N and N", Versions{2, 3}, Versions{2, 3}, 3},
		{"N and N-1", Versions{2, 3}, Versions{1, 2}, 2},
		{"N-1 and N", Versions{1, 2}, Versions{2, 3}, 2},
		{"N-2", Versions{2, 3}, Versions{1, 1}, 0},
	}
	for _, tt := range tests {
		for _, kind := range []Transport{QUIC, TCP} {
			t.Run(tt.name+"/"+string(kind), func(t *testing.T) {
				book := &addressBook{}
				var log logs
				a := startLink(t, 1, book, func(c *Config) { c.TCPOnly, c.Versions, c.Program = kind == TCP, tt.a, "7.1" })
				b := startLink(t, 2, book, func(c *Config) {
					c.TCPOnly, c.Versions, c.Program, c.Logger = kind == TCP, tt.b, "6.0", log.logger()
					c.Handlers = map[string]Handler{"echo": echoMessages}
				})
				err := call(a, b.cfg.Self, []byte("x"), 5*time.Second)
				if tt.want != 0 {
					if err != nil || status(a, b.cfg.Self).Version != tt.want || status(b, a.cfg.Self).Version != tt.want {
						t.Fatalf("%v; %+v", err, status(a, b.cfg.Self))
					}
					return
				}
				wantRefused(t, err, CodeVersion, "7.1", "6.0", tt.a.String(), tt.b.String(), "update the older program")
				until(t, "the reason in the log there", 2*time.Second, func() bool { return log.count("update the older program") == 1 })
			})
		}
	}
}

func wantRefused(t *testing.T, err error, code Code, words ...string) {
	t.Helper()
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Code != code {
		t.Fatalf("%v; want a refusal with code %d", err, code)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// Whoever does not belong is refused, and both sides say why.
func TestRefusals(t *testing.T) {
	tests := []struct {
		name   string
		a      func(tb testing.TB, c *Config) // changes the node that dials
		code   Code
		words  []string // that its error says
		logged string   // at the other node
	}{
		{"another secret", func(tb testing.TB, c *Config) { c.Identity = newTestIdentity(tb, "other", c.Self) }, CodeIdentity, []string{"--secret", "node 00000000"}, "--secret"},
		{"another cluster", func(_ testing.TB, c *Config) { c.Cluster = "cluster-b" }, CodeCluster, []string{"cluster-a", "cluster-b", "--secret"}, "cluster-b"},
		{"the same id", func(tb testing.TB, c *Config) {
			c.Self = nodeID(2)
			c.Identity = newTestIdentity(tb, "secret", nodeID(2))
		}, CodeSameID, []string{"node-id", string(nodeID(2))}, "node-id"},
		{"a hello of another node", func(tb testing.TB, c *Config) { c.Identity = newTestIdentity(tb, "secret", nodeID(5)) }, CodeIdentity, []string{"its certificate node"}, "its certificate node"},
	}
	for _, tt := range tests {
		for _, kind := range []Transport{QUIC, TCP} {
			t.Run(tt.name+"/"+string(kind), func(t *testing.T) {
				book := &addressBook{}
				var log logs
				b := startLink(t, 2, book, func(c *Config) { c.TCPOnly, c.Logger = kind == TCP, log.logger() })
				addr := b.Addr()
				a := startLink(t, 1, book, func(c *Config) { c.TCPOnly = kind == TCP; tt.a(t, c) })
				book.set(nodeID(2), addr)
				start := time.Now()
				// Node 2 cannot be dialled by its own id: the pool is asked directly.
				_, err := a.dial(context.Background(), &peer{id: nodeID(2)})
				wantRefused(t, err, tt.code, tt.words...)
				if took := time.Since(start); took > quick.QUIC {
					t.Errorf("refused after %v: it tried another transport", took)
				}
				until(t, "the reason in the log there", 2*time.Second, func() bool { return log.count(tt.logged) >= 1 })
				_, err = a.dial(context.Background(), &peer{id: nodeID(2)})
				wantRefused(t, err, tt.code)
				if n := log.count("connection refused"); n != 1 {
					t.Errorf("%d warnings", n)
				}
			})
		}
	}
}

// An address at which another node lives is no way to the one that is wanted.
func TestAddressOfAnotherNode(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			book := &addressBook{}
			tcpOnly := func(c *Config) { c.TCPOnly = kind == TCP }
			b := startLink(t, 2, book, tcpOnly)
			a := startLink(t, 1, book, tcpOnly)
			book.set(nodeID(7), b.Addr())
			_, err := a.Open(within(t, 5*time.Second), nodeID(7), "echo")
			wantRefused(t, err, CodeIdentity, "node "+nodeID(7).Short(), b.Addr())
		})
	}
}

// rawPeer connects to a link below its rules.
func rawPeer(t *testing.T, kind Transport, to *Link, id member.ID) session {
	t.Helper()
	conf := withALPN(newTestIdentity(t, "secret", id).ClientTLS(to.cfg.Self))
	if kind == TCP {
		tcp, err := net.Dial("tcp", to.Addr())
		if err != nil {
			t.Fatal(err)
		}
		secured := tls.Client(tcp, conf)
		s, err := newTCPSession(tcp, secured, controlLane, true)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.close(nil, nil) })
		return s
	}
	conn, err := quic.DialAddr(within(t, 5*time.Second), to.Addr(), conf, quicConfig(quick.withDefaults(), controlLane))
	if err != nil {
		t.Fatal(err)
	}
	s := &quicSession{conn: conn, client: true}
	t.Cleanup(func() { s.close(nil, nil) })
	return s
}

// Peers that do not keep to docs/wire.md are cut off, and the link goes on.
func TestBrokenPeers(t *testing.T) {
	goodHello := func(id member.ID) []byte {
		return appendFrame(nil, frame{Type: frameHello, Hello: hello{Versions: Versions{1, 1}, Cluster: "cluster-a", Node: id, Program: "x", Instance: 1, Stamp: 1, Streams: 10, Idle: time.Second}})
	}
	type script struct {
		name   string
		before []byte                                     // in place of a hello
		after  func(t *testing.T, s session, c rawStream) // once both hellos were said
		told   string                                     // on the control stream, or in the close of the connection
	}
	tests := []script{
		{name: "no hello", before: []byte{}},
		{name: "noise", before: []byte("GET / HTTP/1.1\r\n\r\n and so on and so on")},
		{name: "an endless hello", before: []byte{1, 255, 255, 255, 255, 0}},
		{name: "a lane that there is not", before: appendFrame(nil, frame{Type: frameHello, Hello: hello{Versions: Versions{1, 2}, Cluster: "cluster-a", Node: nodeID(1), Program: "x",
			Instance: 1, Stamp: 1, Streams: 10, Idle: time.Second, Lane: lanesMax + 1}})},
		{name: "another frame", before: appendFrame(nil, frame{Type: framePing})},
		{name: "a second hello", after: func(t *testing.T, s session, c rawStream) { c.Write(goodHello(nodeID(1))) }, told: "second hello"},
		{name: "a frame that is too long", after: func(t *testing.T, s session, c rawStream) { c.Write([]byte{3, 0, 1, 0, 0}) }, told: "65536 bytes"},
		{name: "a short frame", after: func(t *testing.T, s session, c rawStream) { c.Write([]byte{5, 0, 0, 0, 1, 0}) }, told: "too short"},
		{name: "ends of streams that never come", after: func(t *testing.T, s session, c rawStream) {
			for i := range uint64(earlyMax + 1) {
				if _, err := c.Write(appendFrame(nil, frame{Type: frameCancel, Stream: 4001 + 4*i - (4001+4*i)%4 + 4})); err != nil {
					return
				}
				if _, err := c.Write(appendFrame(nil, frame{Type: frameCancel, Stream: 4001 + 4*i})); err != nil {
					return
				}
			}
		}, told: "did not open"},
		{name: "silence", after: func(t *testing.T, s session, c rawStream) {}},
	}
	for _, tt := range tests {
		for _, kind := range []Transport{QUIC, TCP} {
			t.Run(tt.name+"/"+string(kind), func(t *testing.T) {
				book := &addressBook{}
				b := startLink(t, 2, book, func(c *Config) { c.Handlers = map[string]Handler{"echo": echoMessages} })
				s := rawPeer(t, kind, b, nodeID(1))
				control, err := s.open(within(t, time.Second))
				if err != nil {
					t.Fatal(err)
				}
				if tt.before != nil {
					control.Write(tt.before)
				} else {
					control.Write(goodHello(nodeID(1)))
					if f, err := readFrame(control); err != nil || f.Type != frameHello || f.Hello.Node != nodeID(2) {
						t.Fatalf("%+v, %v", f, err)
					}
					tt.after(t, s, control)
				}
				control.SetReadDeadline(time.Now().Add(5 * time.Second))
				said := ""
				for err == nil {
					var f frame
					if f, err = readFrame(control); err == nil {
						said += f.Text
					}
				}
				if isTimeout(err) && !strings.Contains(err.Error(), "no recent network activity") {
					t.Fatalf("it is still connected: %v", err)
				}
				if !strings.Contains(said+err.Error(), tt.told) {
					t.Errorf("it was told %q, %v; want %q", said, err, tt.told)
				}
				until(t, "gone", 5*time.Second, func() bool { return status(b, nodeID(1)).Connections == 0 })
				a := startLink(t, 3, book, nil)
				mustCall(t, a, b.cfg.Self)
			})
		}
	}
}

// Streams that begin with nonsense are cancelled, and others go on.
func TestBrokenStreams(t *testing.T) {
	tests := []struct {
		name  string
		bytes []byte
		told  string
	}{
		{"a long header", []byte{255, 255, 3, 'a'}, "65535 bytes"},
		{"a header without a service", []byte{0, 5, 0, 0, 0, 0, 0}, `service ""`},
		{"a bad name", append([]byte{0, 7, 2, 'A', '\n'}, 0, 0, 0, 0), "a-z"},
		{"half a header", []byte{0, 9, 4, 'e'}, "without a header"},
	}
	for _, tt := range tests {
		transports(t, func(t *testing.T, from, to *Link) {
			if from == to {
				t.Skip("its other end is this program")
			}
			to.Handle("echo", echoMessages)
			c, err := from.connection(within(t, 5*time.Second), to.cfg.Self)
			if err != nil {
				t.Fatal(err)
			}
			c.places <- struct{}{}
			s, err := c.openPlaced(within(t, 5*time.Second), "raw")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(tt.bytes); err != nil {
				t.Fatal(err)
			}
			_, err = io.ReadAll(s)
			wantRemote(CodeProtocol, tt.told)(t, err)
			mustCall(t, from, to.cfg.Self)
			noStreams(t, from, to)
		})
	}
}

// A stream whose end does not fit what came is an error, never io.EOF.
func TestTruncatedStream(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			book := &addressBook{}
			got := make(chan error, 1)
			b := startLink(t, 2, book, func(c *Config) {
				c.Handlers = map[string]Handler{"read": func(ctx context.Context, s *Stream) error {
					_, err := io.ReadAll(s)
					got <- err
					return err
				}}
			})
			a := startLink(t, 1, book, func(c *Config) { c.TCPOnly = kind == TCP })
			s := open(t, a, b, "read")
			s.Write([]byte("half of it"))
			f := frame{Type: frameFinish, Stream: s.raw.id(), Size: s.sent + 7}
			s.conn.enqueue(func() error { err := s.conn.write(f); s.raw.closeWrite(); return err })
			select {
			case err := <-got:
				wantRemote(CodeProtocol, "of")(t, err)
			case <-time.After(5 * time.Second):
				t.Fatal("it still reads")
			}
			if _, err := s.Read(make([]byte, 1)); err == nil || err == io.EOF {
				t.Errorf("%v", err)
			}
			s.Close()
			noStreams(t, a, b)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, err := Listen(Config{Self: "x", Listen: "nowhere", Versions: Versions{3, 2}, Handlers: map[string]Handler{"Bad Name": nil}})
	for _, field := range []string{"Self", "Identity", "Listen", "Address", "Cluster", "Versions", "Handlers"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: does not name %s", err, field)
		}
	}
	book := &addressBook{}
	a := startLink(t, 1, book, nil)
	cfg := a.cfg
	cfg.Listen = a.Addr()
	if _, err := Listen(cfg); err == nil || !strings.Contains(err.Error(), a.Addr()) {
		t.Errorf("a port in use: %v", err)
	}
	if _, err := a.Open(within(t, time.Second), nodeID(2), "No Service"); err == nil {
		t.Error("a bad name of a service was accepted")
	}
}

func TestBufferWarning(t *testing.T) {
	book := &addressBook{}
	var log logs
	got := -1
	a := startLink(t, 1, book, func(c *Config) { c.Logger = log.logger(); c.Buffers = func(wanted, granted int) { got = granted } })
	size := granted(a.udp)
	if size == 0 {
		t.Skip("not known here")
	}
	small := size < bufferEnough
	if warned := log.count("granted_bytes") == 1 && got == size; warned != small {
		t.Errorf("granted %d, warned %v", size, warned)
	}
	before := log.count("granted_bytes")
	if err := a.udp.SetReadBuffer(100_000); err != nil {
		t.Fatal(err)
	}
	a.checkBuffers()
	if log.count("granted_bytes") != before+1 || got >= bufferEnough {
		t.Errorf("no word about a buffer of %d bytes", granted(a.udp))
	}
}
