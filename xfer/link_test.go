package xfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"tandem/cluster/member"
)

// pairs runs a test over both transports between two nodes, of which the first
// reaches the second through a relay.
func pairs(t *testing.T, test func(t *testing.T, kind Transport, a, b *Link, r *relay)) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			book := &addressBook{}
			tcpOnly := func(c *Config) { c.TCPOnly = kind == TCP }
			b := startLink(t, 2, book, tcpOnly)
			r := startRelay(t, b.Addr())
			a := startLink(t, 1, book, tcpOnly)
			book.set(nodeID(2), r.addr())
			test(t, kind, a, b, r)
		})
	}
}

// call sends one message to the echo service and takes it back.
func call(from *Link, to member.ID, message []byte, d time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	s, err := from.OpenBound(ctx, to, "echo")
	if err != nil {
		return err
	}
	defer s.Close()
	wrote := make(chan error, 1)
	go func() { wrote <- WriteMessage(s, message) }()
	got, err := ReadMessage(s, MessageMax)
	if err := errors.Join(<-wrote, err); err != nil {
		return err
	}
	if !bytes.Equal(got, message) {
		return errors.New("other bytes came back")
	}
	return nil
}

func mustCall(t *testing.T, from *Link, to member.ID) {
	t.Helper()
	if err := call(from, to, []byte("hello"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestOneConnectionIsShared(t *testing.T) {
	pairs(t, func(t *testing.T, kind Transport, a, b *Link, _ *relay) {
		b.Handle("echo", echoMessages)
		a.Handle("echo", echoMessages)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { mustCall(t, a, b.cfg.Self) })
		}
		wg.Wait()
		mustCall(t, b, a.cfg.Self) // over the connection that a made
		for _, l := range []*Link{a, b} {
			p := l.Peers()
			if len(p) != 1 || p[0].Transport != kind || p[0].Connections != 1 || p[0].Since.IsZero() || p[0].Program != "test" || p[0].Version != VersionMax {
				t.Errorf("peers of %s: %+v", l.cfg.Self.Short(), p)
			}
		}
		rtt, err := a.Probe(within(t, time.Second), b.cfg.Self)
		if err != nil || rtt <= 0 || rtt > time.Second {
			t.Errorf("probe: %v, %v", rtt, err)
		}
		until(t, "a round trip time", time.Second, func() bool { return status(a, b.cfg.Self).RTT > 0 })
	})
}

// Both dial at once: all requests succeed, and one connection is left.
func TestSimultaneousDials(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			for round := range 5 {
				book := &addressBook{}
				tcpOnly := func(c *Config) { c.TCPOnly = kind == TCP; c.Handlers = map[string]Handler{"echo": echoMessages} }
				a, b := startLink(t, 1, book, tcpOnly), startLink(t, 2, book, tcpOnly)
				var wg sync.WaitGroup
				for range 10 {
					wg.Go(func() { mustCall(t, a, b.cfg.Self) })
					wg.Go(func() { mustCall(t, b, a.cfg.Self) })
				}
				wg.Wait()
				kept := open(t, a, b, "echo")
				timer := time.NewTimer(3 * quick.Retire)
				<-timer.C
				if err := WriteMessage(kept, []byte("x")); err != nil {
					t.Errorf("round %d: the stream in use: %v", round, err)
				}
				if _, err := ReadMessage(kept, 1); err != nil {
					t.Errorf("round %d: the stream in use: %v", round, err)
				}
				kept.Close()
				until(t, "one connection", 10*time.Second, func() bool {
					return status(a, b.cfg.Self).Connections == 1 && status(b, a.cfg.Self).Connections == 1
				})
				mustCall(t, a, b.cfg.Self)
			}
		})
	}
}

// A stream may be silent for many times the idle time.
func TestSilentStreamLives(t *testing.T) {
	pairs(t, func(t *testing.T, _ Transport, a, b *Link, _ *relay) {
		b.Handle("prefill", func(ctx context.Context, s *Stream) error {
			timer := time.NewTimer(4 * quick.DeadAfter)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			return WriteMessage(s, []byte("done"))
		})
		s := open(t, a, b, "prefill")
		defer s.Close()
		if got, err := ReadMessage(s, 10); err != nil || string(got) != "done" {
			t.Fatalf("%q, %v", got, err)
		}
	})
}

// The smaller of both idle times counts, and the keep-alives follow it.
func TestIdleTimeIsAgreed(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			book := &addressBook{}
			b := startLink(t, 2, book, func(c *Config) { c.TCPOnly = kind == TCP; c.Handlers = map[string]Handler{"echo": echoMessages} })
			a := startLink(t, 1, book, func(c *Config) {
				c.TCPOnly = kind == TCP
				c.Timings = Timings{KeepAlive: time.Minute, DeadAfter: time.Hour, Open: 5 * time.Second}
			})
			s := open(t, a, b, "echo")
			c := s.conn
			if c.deadAfter != quick.DeadAfter || c.keepAlive > quick.DeadAfter/3 {
				t.Errorf("dead after %v, keep-alive every %v", c.deadAfter, c.keepAlive)
			}
			timer := time.NewTimer(3 * quick.DeadAfter)
			defer timer.Stop()
			<-timer.C
			if err := WriteMessage(s, []byte("x")); err != nil {
				t.Error(err)
			}
			if _, err := ReadMessage(s, 1); err != nil {
				t.Error(err)
			}
			s.Close()
		})
	}
}

// Cut off in mid-stream: both sides notice, name the peer, and connect again when
// the network is back.
func TestCutIsNoticed(t *testing.T) {
	pairs(t, func(t *testing.T, _ Transport, a, b *Link, r *relay) {
		handler := make(chan error, 1)
		b.Handle("wait", func(ctx context.Context, s *Stream) error {
			<-ctx.Done()
			handler <- context.Cause(ctx)
			return nil
		})
		b.Handle("echo", echoMessages)
		s := open(t, a, b, "wait")
		mustCall(t, a, b.cfg.Self)
		start := time.Now()
		r.set(func(r *relay) { r.cutUDP, r.cutTCP = true, true })
		_, err := s.Read(make([]byte, 1))
		var lost *PeerLostError
		if !errors.As(err, &lost) || lost.Peer != b.cfg.Self || !strings.Contains(err.Error(), b.cfg.Self.Short()) {
			t.Errorf("the opener reads %v", err)
		}
		select {
		case err := <-handler:
			if !errors.As(err, &lost) || lost.Peer != a.cfg.Self {
				t.Errorf("the handler's context: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the handler goes on")
		}
		if took := time.Since(start); took > 3*quick.DeadAfter { // twice, and what a busy machine forgives
			t.Errorf("noticed after %v", took)
		}
		r.set(func(r *relay) { r.cutUDP, r.cutTCP = false, false })
		mustCall(t, a, b.cfg.Self)
		if p := status(a, b.cfg.Self); p.LastError == "" || p.LastErrorAt.IsZero() {
			t.Errorf("status %+v", p)
		}
		noStreams(t, a, b)
	})
}

// A pooled connection that has died unseen costs the next caller time, not an error.
func TestDeadPooledConnectionIsReplaced(t *testing.T) {
	pairs(t, func(t *testing.T, kind Transport, a, b *Link, r *relay) {
		b.Handle("echo", echoMessages)
		mustCall(t, a, b.cfg.Self)
		old := status(a, b.cfg.Self).Since
		// b ends it and the news does not arrive.
		r.set(func(r *relay) { r.cutUDP, r.cutTCP = true, true })
		b.Drop(a.cfg.Self)
		until(t, "a suspicion", 5*time.Second, func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			p := a.peers[b.cfg.Self]
			return p == nil || p.bestLocked(time.Now()) == nil
		})
		r.set(func(r *relay) { r.cutUDP, r.cutTCP = false, false })
		mustCall(t, a, b.cfg.Self)
		if since := status(a, b.cfg.Self).Since; !since.After(old) {
			t.Error("the old connection is still used")
		}
	})
}

// A peer that was started again ends the streams to its earlier life at once.
func TestRestartIsNoticed(t *testing.T) {
	for _, kind := range []Transport{QUIC, TCP} {
		t.Run(string(kind), func(t *testing.T) {
			book := &addressBook{}
			config := func(c *Config) {
				c.TCPOnly = kind == TCP
				c.Handlers = map[string]Handler{"echo": echoMessages}
				c.Timings.DeadAfter, c.Timings.Suspect = time.Hour, time.Hour
			}
			a := startLink(t, 1, book, config)
			b := startLink(t, 2, book, config)
			s := open(t, b, a, "echo")
			first := startLink(t, 3, book, config)
			toFirst := open(t, a, first, "echo")
			// The second life of node 3 appears at another address, while the first
			// still answers: only the hello can tell.
			second := startLink(t, 3, book, config)
			mustCall(t, second, a.cfg.Self)
			_, err := toFirst.Read(make([]byte, 1))
			var lost *PeerLostError
			if !errors.As(err, &lost) || !strings.Contains(lost.Why, "started again") {
				t.Errorf("%v", err)
			}
			if err := WriteMessage(s, []byte("x")); err != nil {
				t.Errorf("an innocent stream: %v", err)
			}
			s.Close()
		})
	}
}

// Where UDP does not pass, TCP is used, one warning says so, and QUIC is used again
// when it works, without harm to streams that are open.
func TestFallbackAndBack(t *testing.T) {
	book := &addressBook{}
	b := startLink(t, 2, book, func(c *Config) { c.Handlers = map[string]Handler{"echo": echoMessages} })
	r := startRelay(t, b.Addr())
	var log logs
	a := startLink(t, 1, book, func(c *Config) { c.Logger = log.logger() })
	book.set(nodeID(2), r.addr())
	r.set(func(r *relay) { r.cutUDP = true })
	start := time.Now()
	s := open(t, a, b, "echo")
	if took := time.Since(start); took > quick.QUIC+time.Second {
		t.Errorf("connected after %v", took)
	}
	p := status(a, b.cfg.Self)
	if p.Transport != TCP || !strings.Contains(p.Fallback, "UDP") || !strings.Contains(p.Fallback, r.addr()) {
		t.Errorf("status %+v", p)
	}
	timer := time.NewTimer(3 * quick.Retry)
	<-timer.C
	a.Drop(nodeID(9)) // of a peer that nobody knows
	mustCall(t, a, b.cfg.Self)
	if n := log.count("does not answer by QUIC"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	r.set(func(r *relay) { r.cutUDP = false })
	until(t, "QUIC", 10*time.Second, func() bool { return status(a, b.cfg.Self).Transport == QUIC })
	if p := status(a, b.cfg.Self); p.Fallback != "" {
		t.Errorf("status %+v", p)
	}
	if err := WriteMessage(s, []byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := ReadMessage(s, 1); err != nil {
		t.Errorf("a stream on TCP: %v", err)
	}
	s.Close()
	until(t, "TCP retired", 10*time.Second, func() bool { return status(a, b.cfg.Self).Connections == 1 })
	mustCall(t, a, b.cfg.Self)
}

// Paths of any size work, with QUIC where 1200 bytes pass and TCP where not.
func TestPacketSizes(t *testing.T) {
	for _, limit := range []int{1500, 1400, 1280, 1252, 1228, 1200, 1100} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			book := &addressBook{}
			b := startLink(t, 2, book, func(c *Config) { c.Handlers = map[string]Handler{"echo": echoMessages} })
			r := startRelay(t, b.Addr())
			r.set(func(r *relay) { r.dropOver = limit })
			a := startLink(t, 1, book, nil)
			book.set(nodeID(2), r.addr())
			if err := call(a, b.cfg.Self, make([]byte, 1<<20), 10*time.Second); err != nil {
				t.Fatal(err)
			}
			want := QUIC
			if limit < 1200 {
				want = TCP
			}
			if p := status(a, b.cfg.Self); p.Transport != want || p.Connections != 1 {
				t.Errorf("%+v", p)
			}
		})
	}
}

// A path that begins to drop large packets is noticed, though small ones pass.
func TestPathShrinks(t *testing.T) {
	book := &addressBook{}
	b := startLink(t, 2, book, func(c *Config) { c.Handlers = map[string]Handler{"echo": echoMessages} })
	r := startRelay(t, b.Addr())
	a := startLink(t, 1, book, nil)
	book.set(nodeID(2), r.addr())
	mustCall(t, a, b.cfg.Self)
	until(t, "large packets", 10*time.Second, func() bool {
		if err := call(a, b.cfg.Self, make([]byte, 1<<18), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.largest > 1400
	})
	r.set(func(r *relay) { r.dropOver = 1200 })
	start := time.Now()
	// Nothing is sent but pings: they must notice.
	until(t, "the connection is given up", 10*time.Second, func() bool { return status(a, b.cfg.Self).Connections == 0 })
	until(t, "a request works again", 20*time.Second, func() bool {
		return call(a, b.cfg.Self, make([]byte, 1<<18), 3*time.Second) == nil
	})
	if p := status(a, b.cfg.Self); p.Transport != QUIC {
		t.Errorf("%+v", p)
	}
	t.Logf("works again after %v", time.Since(start))
}

// The source port changes while bytes flow: they all arrive, on the same connection.
func TestSourcePortChanges(t *testing.T) {
	book := &addressBook{}
	b := startLink(t, 2, book, func(c *Config) { c.Handlers = map[string]Handler{"echo": echo} })
	r := startRelay(t, b.Addr())
	a := startLink(t, 1, book, nil)
	book.set(nodeID(2), r.addr())
	s := open(t, a, b, "echo")
	since, before := status(a, b.cfg.Self).Since, status(b, a.cfg.Self).Addr
	const pieces, size = 40, 100_000
	go func() {
		for i := range pieces {
			s.Write(bytes.Repeat([]byte{byte(i)}, size))
		}
		s.CloseWrite()
	}()
	for i := range pieces {
		got := make([]byte, size)
		if _, err := io.ReadFull(s, got); err != nil {
			t.Fatalf("piece %d: %v", i, err)
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("piece %d differs", i)
		}
		if i%4 == 3 {
			r.rebind()
		}
	}
	s.Close()
	until(t, "the new address in the status", 5*time.Second, func() bool { return status(b, a.cfg.Self).Addr != before })
	if p := status(a, b.cfg.Self); !p.Since.Equal(since) || p.Transport != QUIC {
		t.Errorf("another connection: %+v", p)
	}
}

func TestSeveralAddresses(t *testing.T) {
	book := &addressBook{}
	b := startLink(t, 2, book, func(c *Config) { c.Handlers = map[string]Handler{"echo": echoMessages} })
	other := startLink(t, 3, book, nil)
	dead := startRelay(t, "127.0.0.1:1")
	a := startLink(t, 1, book, nil)
	book.set(nodeID(2), "127.0.0.1:1", dead.addr(), other.Addr(), "no-such-host.invalid:9", b.Addr())
	mustCall(t, a, nodeID(2))
	if p := status(a, nodeID(2)); p.Addr != b.Addr() || p.Transport != QUIC {
		t.Errorf("%+v", p)
	}
	book.set(nodeID(4))
	_, err := a.Open(within(t, 5*time.Second), nodeID(4), "echo")
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !strings.Contains(err.Error(), "no address") {
		t.Errorf("no address: %v", err)
	}
	book.set(nodeID(4), "127.0.0.1:1")
	start := time.Now()
	_, err = a.Open(within(t, 10*time.Second), nodeID(4), "echo")
	if !errors.As(err, &unreachable) || unreachable.Peer != nodeID(4) || !strings.Contains(err.Error(), "quic 127.0.0.1:1") || !strings.Contains(err.Error(), "tcp 127.0.0.1:1") {
		t.Errorf("nobody there: %v", err)
	}
	if took := time.Since(start); took > quick.QUIC+quick.TCP+time.Second {
		t.Errorf("it took %v", took)
	}
	if p := status(a, nodeID(4)); p.LastError == "" || p.Fallback != "" {
		t.Errorf("%+v", p)
	}
}

func TestDropAndClose(t *testing.T) {
	pairs(t, func(t *testing.T, _ Transport, a, b *Link, _ *relay) {
		begun := make(chan struct{}, 3)
		b.Handle("wait", func(ctx context.Context, s *Stream) error { begun <- struct{}{}; <-ctx.Done(); return nil })
		serving := func() *Stream {
			s := open(t, a, b, "wait")
			<-begun
			until(t, "both know the connection", 5*time.Second, func() bool { return status(b, a.cfg.Self).Connections == 1 })
			return s
		}
		s := serving()
		b.Drop(a.cfg.Self)
		_, err := s.Read(make([]byte, 1))
		var lost *PeerLostError
		if !errors.As(err, &lost) || !strings.Contains(lost.Why, "no longer a member") {
			t.Errorf("dropped by the peer: %v", err)
		}
		s = serving()
		a.Drop(b.cfg.Self)
		if _, err := s.Read(make([]byte, 1)); !errors.As(err, &lost) || !strings.Contains(lost.Why, "no longer a member") {
			t.Errorf("dropped here: %v", err)
		}
		s = serving()
		if err := b.Close(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.As(err, &lost) || !strings.Contains(lost.Why, "shuts down") {
			t.Errorf("closed: %v", err)
		}
		if _, err := b.Open(within(t, time.Second), a.cfg.Self, "wait"); !errors.Is(err, ErrClosed) {
			t.Errorf("open after close: %v", err)
		}
		if err := b.Close(within(t, time.Second)); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
}

// Close waits for handlers no longer than its context.
func TestCloseIsBounded(t *testing.T) {
	book := &addressBook{}
	a, b := startLink(t, 1, book, nil), startLink(t, 2, book, nil)
	release := make(chan struct{})
	begun := make(chan struct{})
	b.Handle("stubborn", func(ctx context.Context, s *Stream) error { close(begun); <-release; return nil })
	s := open(t, a, b, "stubborn")
	defer s.Close()
	<-begun
	if err := b.Close(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	close(release)
	if err := b.Close(within(t, 5*time.Second)); err != nil {
		t.Errorf("%v", err)
	}
}
