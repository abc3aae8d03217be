package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tandem/cluster/member"
)

// pouring sends bytes until the puller has enough.
func pouring(_ context.Context, s *Stream) error {
	piece := make([]byte, 256<<10)
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
	a, _, _ := bulkPair(t, func(n int, c *Config) {
		if n == 2 {
			c.Versions = Versions{1, 1}
		}
	})
	for _, test := range []struct {
		way  Transport
		lane int
	}{{Loop, 0}, {QUIC, BulkLanes(QUIC)}, {TCP, -1}} {
		if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", test.way, test.lane); err == nil || !strings.Contains(err.Error(), "allowed: 0 to") {
			t.Errorf("%v: %v", test, err)
		}
	}
	if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", TCP, 0); err == nil || !strings.Contains(err.Error(), "update it") {
		t.Errorf("an older program: %v", err)
	}
	if _, err := a.OpenBound(t.Context(), nodeID(2), "count"); err != nil {
		t.Errorf("it can be reached nevertheless: %v", err)
	}
}

// A transport that fails answers at once for a while, and works again afterwards.
func TestBulkRemembersFailures(t *testing.T) {
	a, b, book := bulkPair(t, nil)
	book.set(nodeID(2), "127.0.0.1:1")
	var unreachable *UnreachableError
	if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", TCP, 0); !errors.As(err, &unreachable) {
		t.Fatalf("nobody is there: %v", err)
	}
	book.set(nodeID(2), b.Addr())
	if _, err := a.OpenBulk(t.Context(), nodeID(2), "count", TCP, 0); !errors.As(err, &unreachable) {
		t.Errorf("at once: %v", err)
	}
	if s, err := a.OpenBulk(t.Context(), nodeID(2), "count", TCP, 1); err != nil {
		t.Errorf("another lane: %v", err)
	} else {
		s.Close()
	}
	deadline := time.Now().Add(4 * bulkFailedFor)
	for {
		s, err := a.OpenBulk(t.Context(), nodeID(2), "count", TCP, 0)
		if err == nil {
			s.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		runtime.Gosched()
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
	for deadline := time.Now().Add(20 * time.Second); len(peerOf(a, 2).Bulk)+len(peerOf(b, 1).Bulk) > 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %+v", peerOf(a, 2), peerOf(b, 1))
		}
	}
}

// Questions are answered while data flows at full speed, over both transports.
func TestBulkDoesNotDelayControl(t *testing.T) {
	a, _, _ := bulkPair(t, func(_ int, c *Config) { c.Timings = Timings{} })
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var moved atomic.Int64
	for _, way := range []Transport{QUIC, TCP} {
		s, err := a.OpenBulk(ctx, nodeID(2), "pour", way, 0)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer s.Close()
			buf := make([]byte, 1<<20)
			for {
				n, err := s.Read(buf)
				moved.Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	for range 50 {
		if rtt, err := a.Probe(t.Context(), nodeID(2)); err != nil || rtt > 2*time.Second {
			t.Fatalf("a ping took %v, %v", rtt, err)
		}
	}
	if p := peerOf(a, 2); p.Connections != 1 {
		t.Errorf("%+v", p)
	}
	cancel()
	all.Wait()
	t.Logf("%d MB beside it", moved.Load()/1e6)
}

// BenchmarkBulk is data over some lanes, a MiB at a time.
func BenchmarkBulk(b *testing.B) {
	for _, way := range []Transport{QUIC, TCP} {
		for _, lanes := range []int{1, 2, 4} {
			if lanes > BulkLanes(way) {
				continue
			}
			b.Run(fmt.Sprintf("%s/%d", way, lanes), func(b *testing.B) {
				a, _, _ := bulkPair(b, nil)
				streams := make([]*Stream, lanes)
				for lane := range lanes {
					s, err := a.OpenBulk(b.Context(), nodeID(2), "pour", way, lane)
					if err != nil {
						b.Fatal(err)
					}
					defer s.Close()
					streams[lane] = s
				}
				b.SetBytes(1 << 20)
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for _, s := range streams {
					all.Go(func() {
						buf := make([]byte, 1<<20)
						for left.Add(-1) >= 0 {
							if _, err := io.ReadFull(s, buf); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}
