package xfer

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/cluster/member"
)

// pouring sends bytes until the puller has enough.
func pouring(_ context.Context, s *Stream) error {
	piece := make([]byte, 1<<20)
	for {
		if _, err := s.Write(piece); err != nil {
			return nil
		}
	}
}

// counting sends 3 MiB.
func counting(_ context.Context, s *Stream) error {
	piece := make([]byte, 1<<20)
	for range 3 {
		if _, err := s.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

func bulkPair(t testing.TB, change func(n int, c *Config)) (a, b *Link, book *addressBook) {
	book = &addressBook{}
	links := [2]*Link{}
	for i := range links {
		links[i] = startLink(t, i+1, book, func(c *Config) {
			c.Handlers = map[string]Handler{"pour": pouring, "count": counting}
			if change != nil {
				change(i+1, c)
			}
		})
	}
	return links[0], links[1], book
}

// peerOf is the status of a node's link to node n.
func peerOf(l *Link, n int) PeerStatus {
	for _, p := range l.Peers() {
		if p.ID == nodeID(n) {
			return p
		}
	}
	return PeerStatus{}
}

// Each lane is a connection of its own, and none of them carries anything else.
func TestBulkConnections(t *testing.T) {
	for _, way := range []Transport{QUIC, TCP} {
		t.Run(string(way), func(t *testing.T) {
			a, b, _ := bulkPair(t, nil)
			for round := range 2 {
				for lane := range BulkLanes(way) {
					s, err := a.OpenBulk(t.Context(), nodeID(2), "count", way, lane)
					if err != nil {
						t.Fatal(err)
					}
					if n, err := io.Copy(io.Discard, s); n != 3<<20 || err != nil || s.Transport() != way {
						t.Errorf("lane %d: %d bytes over %s, %v", lane, n, s.Transport(), err)
					}
					s.Close()
				}
				p := peerOf(a, 2)
				if p.Connections != 0 || len(p.Bulk) != 1 || p.Bulk[0].Connections != BulkLanes(way) || p.Bulk[0].Transport != way || p.Bulk[0].Got < uint64(round+1)*uint64(BulkLanes(way))*3<<20 {
					t.Errorf("round %d: %+v", round, p)
				}
			}
			// The other side has no way back over them.
			s, err := b.OpenBound(t.Context(), nodeID(1), "count")
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, s)
			s.Close()
			if p := peerOf(b, 1); p.Connections != 1 || len(p.Bulk) != 1 || p.Bulk[0].Connections != BulkLanes(way) {
				t.Errorf("the other side: %+v", p)
			}
		})
	}
	a, _, _ := bulkPair(t, nil)
	s, err := a.OpenBulk(t.Context(), nodeID(1), "count", TCP, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, s); n != 3<<20 || err != nil {
		t.Errorf("to itself: %d bytes, %v", n, err)
	}
}

func TestBulkRefusals(t *testing.T) {
	a, _, _ := bulkPair(t, func(n int, c *Config) { c.TCPOnly = n == 1 })
	for _, test := range []struct {
		way  Transport
		lane int
		want string
	}{{Loop, 0, "allowed: 0 to"}, {QUIC, BulkLanes(QUIC), "allowed: 0 to"}, {TCP, -1, "allowed: 0 to"}, {QUIC, 0, "does not use QUIC"}} {
		if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", test.way, test.lane); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v", test, err)
		}
	}
	if p := peerOf(a, 2); p.ID != "" {
		t.Errorf("a connection was tried: %+v", p)
	}
}

// Lanes need version 2 on both sides. Otherwise the error says who must be updated,
// and no connection is made that the other side takes for one of control.
func TestBulkVersions(t *testing.T) {
	tests := []struct {
		name string
		a, b Versions
		want string // in the error; "": it works
	}{
		{"N and N", Versions{2, 3}, Versions{2, 3}, ""},
		{"N and N-1", Versions{2, 3}, Versions{1, 2}, ""},
		{"N-1 and N", Versions{1, 2}, Versions{2, 3}, ""},
		{"lanes and none", Versions{1, 2}, Versions{1, 1}, "update"},
		{"none and lanes", Versions{1, 1}, Versions{1, 2}, "has no connections for data"},
	}
	for _, tt := range tests {
		for _, way := range []Transport{QUIC, TCP} {
			t.Run(tt.name+"/"+string(way), func(t *testing.T) {
				a, b, _ := bulkPair(t, func(n int, c *Config) { c.Versions = map[int]Versions{1: tt.a, 2: tt.b}[n] })
				_, err := a.OpenBulk(within(t, 5*time.Second), nodeID(2), "count", way, 0)
				if tt.want == "" {
					if err != nil || peerOf(b, 1).Connections != 0 {
						t.Errorf("%v; %+v", err, peerOf(b, 1))
					}
					return
				}
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("nothing known of the peer: %v", err)
				}
				if p := peerOf(b, 1); p.Connections != 0 || len(p.Bulk) != 0 {
					t.Errorf("the other side has %+v", p)
				}
				s, err := a.OpenBound(within(t, 5*time.Second), nodeID(2), "count")
				if err != nil {
					t.Fatalf("control: %v", err)
				}
				defer s.Close()
				until(t, "known there", 5*time.Second, func() bool { return peerOf(b, 1).Connections == 1 })
				if _, err := a.OpenBulk(within(t, 5*time.Second), nodeID(2), "count", way, 1); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("with a connection for control: %v", err)
				}
				if p := peerOf(b, 1); p.Connections != 1 || len(p.Bulk) != 0 {
					t.Errorf("the other side has %+v", p)
				}
			})
		}
	}
}

// A transport that gives no connection answers at once, for all lanes, until it is
// time to try again or a connection for control shows that the peer is back. The
// other transport is not concerned.
func TestBulkRemembersFailures(t *testing.T) {
	const retry = 2 * time.Second
	for _, way := range []Transport{QUIC, TCP} {
		t.Run(string(way), func(t *testing.T) {
			for _, cure := range []string{"time", "control"} {
				t.Run(cure, func(t *testing.T) {
					a, b, book := bulkPair(t, func(_ int, c *Config) {
						c.TCPOnly = false
						c.Timings.RetryBulk = retry
						if cure == "control" {
							c.Timings.RetryBulk = time.Hour
						}
					})
					r := startRelay(t, b.Addr())
					book.set(nodeID(2), r.addr())
					r.set(func(r *relay) { r.cutUDP, r.cutTCP = way == QUIC, way == TCP })
					var unreachable *UnreachableError
					if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", way, 0); !errors.As(err, &unreachable) {
						t.Fatalf("nothing passes: %v", err)
					}
					r.set(func(r *relay) { r.cutUDP, r.cutTCP = false, false })
					for lane := range BulkLanes(way) {
						if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", way, lane); !errors.As(err, &unreachable) {
							t.Errorf("lane %d, at once: %v", lane, err)
						}
					}
					other := map[Transport]Transport{QUIC: TCP, TCP: QUIC}[way]
					if s, err := a.OpenBulk(t.Context(), nodeID(2), "count", other, 0); err != nil {
						t.Errorf("%s: %v", other, err)
					} else {
						s.Close()
					}
					if cure == "control" {
						if _, err := a.Probe(within(t, 10*time.Second), nodeID(2)); err != nil {
							t.Fatal(err)
						}
					}
					until(t, "it works again", 10*retry, func() bool {
						s, err := a.OpenBulk(t.Context(), nodeID(2), "count", way, 0)
						if err == nil {
							s.Close()
						}
						return err == nil
					})
				})
			}
		})
	}
}

// A node takes so many connections for data of one peer, and says so.
func TestBulkConnectionLimit(t *testing.T) {
	a, b, _ := bulkPair(t, nil)
	dial := func(way Transport, n lane) (*conn, error) {
		return a.race(t.Context(), nodeID(2), way, n, []string{b.Addr()})
	}
	for i := range bulkConnsMax {
		c, err := dial([]Transport{QUIC, TCP}[i%2], lane(i/2+1))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.fail(ErrClosed, nil)
		until(t, "it is known there", 5*time.Second, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			p := b.peers[nodeID(1)]
			return p != nil && len(p.bulkIn) == i+1
		})
	}
	for _, way := range []Transport{QUIC, TCP} {
		_, err := dial(way, 1)
		wantRefused(t, err, CodeBusy, "16 connections for data", "the most that it takes")
	}
	// A connection for control is none of them.
	if _, err := a.Probe(within(t, 5*time.Second), nodeID(2)); err != nil {
		t.Error(err)
	}
}

// Only who dialled opens streams on a connection for data.
func TestBulkIsOneWay(t *testing.T) {
	a, b, _ := bulkPair(t, nil)
	s, err := a.OpenBulk(t.Context(), nodeID(2), "pour", TCP, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var c *conn
	until(t, "the connection is known there", 5*time.Second, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, in := range b.peerLocked(nodeID(1)).bulkIn {
			c = in
		}
		return c != nil
	})
	if _, err := c.open(within(t, 5*time.Second), "count", 0); err != nil {
		t.Fatal(err)
	}
	s.SetDeadline(time.Now().Add(10 * time.Second))
	_, err = io.Copy(io.Discard, s)
	var lost *PeerLostError
	if !errors.As(err, &lost) || !strings.Contains(lost.Why, "broke the protocol") {
		t.Errorf("%v", err)
	}
	s, err = a.OpenBulk(t.Context(), nodeID(2), "count", QUIC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	until(t, "a connection of QUIC there", 5*time.Second, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, in := range b.peerLocked(nodeID(1)).bulkIn {
			c = in
		}
		return c != nil && c.kind == QUIC
	})
	if _, err := c.open(within(t, 200*time.Millisecond), "count", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("QUIC lets no stream pass: %v", err)
	}
}

// A connection that is lost is made anew, and the end of the link ends all.
func TestBulkConnectionLost(t *testing.T) {
	a, _, _ := bulkPair(t, nil)
	for range 3 {
		s, err := a.OpenBulk(t.Context(), nodeID(2), "pour", QUIC, 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(s, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		s.conn.fail(s.conn.lostBecause("the test cut it", nil), nil)
		if _, err := io.Copy(io.Discard, s); err == nil {
			t.Error("the stream outlived its connection")
		}
		s.Close()
	}
	if p := peerOf(a, 2); len(p.Bulk) > 0 {
		t.Errorf("%+v", p)
	}
}

// A node that is dropped while it is dialled gets no second connection for a lane
// beside the first: nobody would close that one.
func TestDropWhileDiallingBulk(t *testing.T) {
	for _, way := range []Transport{QUIC, TCP} {
		t.Run(string(way), func(t *testing.T) {
			a, b, book := bulkPair(t, nil)
			hold := make(chan struct{})
			asked := make(chan struct{}, 8)
			addrs := book.get(nodeID(2))
			a.cfg.Address = func(_ member.ID) []string { asked <- struct{}{}; <-hold; return addrs }
			results := make(chan error, 2)
			pull := func() {
				s, err := a.OpenBulk(within(t, 10*time.Second), nodeID(2), "count", way, 0)
				if err == nil {
					defer s.Close()
				}
				results <- err
			}
			go pull()
			<-asked
			a.Drop(nodeID(2))
			go pull()
			select {
			case <-asked:
			case <-time.After(500 * time.Millisecond):
			}
			close(hold)
			for range 2 {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
			if n := len(asked); n != 0 {
				t.Errorf("%d more attempts", n)
			}
			until(t, "one connection there", 5*time.Second, func() bool { p := peerOf(b, 1); return len(p.Bulk) == 1 && p.Bulk[0].Connections == 1 })
		})
	}
}

// A connection may be lost at any moment while others take it from the pool.
func TestBulkConnectionLostAsTaken(t *testing.T) {
	a, _, _ := bulkPair(t, nil)
	key := bulkKey{TCP, 1}
	for range 20 {
		c, err := a.bulkConnection(t.Context(), nodeID(2), key)
		if err != nil {
			t.Fatal(err)
		}
		var all, begun sync.WaitGroup
		begun.Add(4)
		for range 4 {
			all.Go(func() {
				begun.Done()
				for c.ctx.Err() == nil {
					if c, err := a.bulkConnection(t.Context(), nodeID(2), key); c == nil && err == nil {
						t.Error("neither a connection nor an error")
						return
					}
				}
			})
		}
		begun.Wait()
		c.fail(c.lostBecause("the test cut it", nil), nil)
		all.Wait()
	}
}

// Connections for data that nobody uses are closed.
func TestBulkConnectionRetires(t *testing.T) {
	a, b, _ := bulkPair(t, func(_ int, c *Config) { c.Timings.RetireBulk = 300 * time.Millisecond })
	s, err := a.OpenBulk(t.Context(), nodeID(2), "count", TCP, 0)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, s)
	s.Close()
	until(t, "it is closed on both sides", 20*time.Second, func() bool { return len(peerOf(a, 2).Bulk)+len(peerOf(b, 1).Bulk) == 0 })
}

// drain reads a stream until it ends.
func drain(s *Stream, moved *atomic.Int64) {
	defer s.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := s.Read(buf)
		moved.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// Questions are answered while data flows at full speed over all lanes, and the
// connection that carries them stays.
func TestBulkDoesNotDelayControl(t *testing.T) {
	a, _, _ := bulkPair(t, func(_ int, c *Config) {
		c.Timings = Timings{}
		c.Handlers["echo"] = echoMessages
	})
	mustCall(t, a, nodeID(2))
	since := peerOf(a, 2).Since
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var moved atomic.Int64
	for _, way := range []Transport{QUIC, TCP} {
		for lane := range BulkLanes(way) {
			s, err := a.OpenBulk(ctx, nodeID(2), "pour", way, lane)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() { drain(s, &moved) })
		}
	}
	until(t, "data flows", 10*time.Second, func() bool { return moved.Load() > 16<<20 })
	start, before := time.Now(), moved.Load()
	var took []time.Duration
	for range 50 {
		rtt, err := a.Probe(t.Context(), nodeID(2))
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, rtt)
		mustCall(t, a, nodeID(2))
	}
	rate := float64(moved.Load()-before) / time.Since(start).Seconds() / 1e6
	cancel()
	all.Wait()
	slices.Sort(took)
	if took[25] > 500*time.Millisecond || took[49] > 3*time.Second {
		t.Errorf("pings took %v in the middle, %v at most", took[25], took[49])
	}
	if p := peerOf(a, 2); p.Connections != 1 || !p.Since.Equal(since) {
		t.Errorf("another connection is used: %+v", p)
	}
	t.Logf("pings: %v, at most %v, beside %.0f MB/s", took[25], took[49], rate)
}

// Nobody reads for longer than a silent peer is waited for, so that windows are full,
// that of a QUIC connection, too. The peer is not taken for dead, and then all comes.
func TestBulkReaderStops(t *testing.T) {
	for _, way := range []Transport{QUIC, TCP} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			const enough = 2 * bulkStreamWindow
			a, _, _ := bulkPair(t, func(_ int, c *Config) {
				c.Handlers["much"] = func(_ context.Context, s *Stream) error {
					_, err := s.Write(make([]byte, enough))
					return err
				}
			})
			var streams []*Stream
			for range 4 {
				s, err := a.OpenBulk(t.Context(), nodeID(2), "much", way, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				streams = append(streams, s)
			}
			c := streams[0].conn
			timer := time.NewTimer(2 * c.deadAfter)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-c.ctx.Done():
			}
			if c.ctx.Err() != nil {
				t.Fatalf("given up: %v", context.Cause(c.ctx))
			}
			var all sync.WaitGroup
			for i, s := range streams {
				all.Go(func() {
					if n, err := io.Copy(io.Discard, s); n != enough || err != nil {
						t.Errorf("stream %d: %d bytes, %v", i, n, err)
					}
				})
			}
			all.Wait()
		})
	}
}

// A link that is full for a long time is slow, not dead; one that is cut is given up.
func TestBulkOnSlowLink(t *testing.T) {
	for _, way := range []Transport{QUIC, TCP} {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			a, b, book := bulkPair(t, nil)
			r := startRelay(t, b.Addr())
			book.set(nodeID(2), r.addr())
			r.set(func(r *relay) { r.rate = 2e6 })
			var moved atomic.Int64
			var all sync.WaitGroup
			var c *conn
			for range 4 {
				s, err := a.OpenBulk(t.Context(), nodeID(2), "pour", way, 0)
				if err != nil {
					t.Fatal(err)
				}
				c = s.conn
				all.Go(func() { drain(s, &moved) })
			}
			timer := time.NewTimer(2 * c.deadAfter)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-c.ctx.Done():
			}
			if c.ctx.Err() != nil {
				t.Fatalf("given up after %d KB: %v", moved.Load()/1e3, context.Cause(c.ctx))
			}
			if moved.Load() == 0 {
				t.Error("nothing came")
			}
			t.Logf("%d KB in %v", moved.Load()/1e3, 2*c.deadAfter)
			r.set(func(r *relay) { r.cutUDP, r.cutTCP = true, true })
			start := time.Now()
			all.Wait()
			if took := time.Since(start); took > 3*c.deadAfter {
				t.Errorf("the cut was noticed after %v", took)
			}
		})
	}
}
