package xfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"crypto/sha256"
	mathrand "math/rand/v2"

	"golang.org/x/net/nettest"
)

func TestEcho(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		to.Handle("echo", echo)
		sent := make([]byte, 3<<20+17)
		rng := mathrand.NewChaCha8(sha256.Sum256(nil))
		rng.Read(sent)
		s := open(t, from, to, "echo")
		if s.Peer() != to.cfg.Self {
			t.Errorf("peer %s", s.Peer())
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := s.Write(sent); err != nil {
				t.Errorf("write: %v", err)
			}
			if err := s.CloseWrite(); err != nil {
				t.Errorf("close write: %v", err)
			}
		})
		got, err := io.ReadAll(s)
		wg.Wait()
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes of %d, equal %v, %v", len(got), len(sent), bytes.Equal(got, sent), err)
		}
		if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("after the end: %d, %v", n, err)
		}
		s.Close()
		noStreams(t, from, to)
	})
}

func TestEndsOfStreams(t *testing.T) {
	read := func(s *Stream) error { _, err := io.ReadAll(s); return err }
	tests := []struct {
		name    string
		service string
		handler Handler
		opener  func(s *Stream) error
		check   func(t *testing.T, err error)
	}{
		{"a handler's error", "svc", func(ctx context.Context, s *Stream) error {
			s.Write([]byte("some"))
			return errors.New("the disk is full")
		}, func(s *Stream) error {
			got, err := io.ReadAll(s)
			if string(got) != "some" {
				return fmt.Errorf("read %q before the end", got)
			}
			return err
		}, wantRemote(CodeFailed, "the disk is full")},
		{"a handler's error with a code", "svc", func(ctx context.Context, s *Stream) error {
			return &RemoteError{Code: CodeService + 3, Text: "no such block"}
		}, read, wantRemote(CodeService+3, "no such block")},
		{"an unknown service", "other", func(ctx context.Context, s *Stream) error { return nil }, read, wantRemote(CodeNoService, `no service "other"`)},
		{"writing to an unknown service", "other", func(ctx context.Context, s *Stream) error { return nil }, func(s *Stream) error {
			for {
				if _, err := s.Write(make([]byte, 1<<16)); err != nil {
					return err
				}
			}
		}, wantRemote(CodeNoService, `no service "other"`)},
		{"a handler cancels", "svc", func(ctx context.Context, s *Stream) error {
			s.Cancel("enough")
			return nil
		}, read, wantRemote(CodeCancelled, "enough")},
		{"a handler returns while the opener writes", "svc", func(ctx context.Context, s *Stream) error { return nil }, func(s *Stream) error {
			for {
				if _, err := s.Write(make([]byte, 1<<16)); err != nil {
					return err
				}
			}
		}, func(t *testing.T, err error) {
			if !errors.Is(err, ErrPeerDone) {
				t.Errorf("%v", err)
			}
		}},
		{"a handler fails while the opener writes", "svc", func(ctx context.Context, s *Stream) error { return errors.New("no") }, func(s *Stream) error {
			for {
				if _, err := s.Write(make([]byte, 1<<16)); err != nil {
					return err
				}
			}
		}, wantRemote(CodeFailed, "no")},
		{"a long reason is cut", "svc", func(ctx context.Context, s *Stream) error { return errors.New(strings.Repeat("é", 4000)) }, read,
			wantRemote(CodeFailed, strings.Repeat("é", textBytesMax/2))},
		{"read after Close", "svc", echo, func(s *Stream) error { s.Close(); return read(s) }, func(t *testing.T, err error) {
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v", err)
			}
		}},
		{"read after Cancel", "svc", echo, func(s *Stream) error { s.Cancel("bored"); return read(s) }, func(t *testing.T, err error) {
			var cancelled *CancelledError
			if !errors.As(err, &cancelled) || cancelled.Reason != "bored" {
				t.Errorf("%v", err)
			}
		}},
		{"a read deadline", "svc", echo, func(s *Stream) error {
			s.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := s.Read(make([]byte, 1))
			s.SetReadDeadline(time.Time{})
			if _, err := s.Write([]byte("x")); err != nil {
				return err
			}
			if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
				return err
			}
			return err
		}, wantTimeout},
		{"a write deadline", "svc", func(ctx context.Context, s *Stream) error { <-ctx.Done(); return nil }, func(s *Stream) error {
			s.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, err := s.Write(make([]byte, 8*StreamBufferMax))
			return err
		}, wantTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transports(t, func(t *testing.T, from, to *Link) {
				to.Handle("svc", tt.handler)
				s := open(t, from, to, tt.service)
				tt.check(t, tt.opener(s))
				s.Close()
				noStreams(t, from, to)
			})
		})
	}
}

func wantRemote(code Code, text string) func(t *testing.T, err error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var remote *RemoteError
		if !errors.As(err, &remote) || remote.Code != code || !strings.Contains(remote.Text, text) || remote.Peer == "" {
			t.Errorf("%v; want code %d and %q", err, code, text)
		}
	}
}

func wantTimeout(t *testing.T, err error) {
	t.Helper()
	var timeout net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("%v; want a timeout", err)
	}
}

// A cancel does not wait behind data that nobody reads.
func TestCancelOvertakesData(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		ended := make(chan error, 1)
		to.Handle("deaf", func(ctx context.Context, s *Stream) error {
			<-ctx.Done() // it never reads
			_, err := s.Read(make([]byte, 1))
			ended <- errors.Join(context.Cause(ctx), err)
			return nil
		})
		s := open(t, from, to, "deaf")
		s.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := s.Write(make([]byte, 16*StreamBufferMax)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a stream that nobody reads took everything: %v", err)
		}
		start := time.Now()
		s.Cancel("the client left")
		select {
		case err := <-ended:
			wantRemote(CodeCancelled, "the client left")(t, err)
			if n := strings.Count(err.Error(), "the client left"); n != 2 {
				t.Errorf("context and Read should both say why: %v", err)
			}
		case <-time.After(2 * time.Second):
			t.Fatal("the handler did not hear of the cancel")
		}
		t.Logf("cancel heard after %v", time.Since(start))
		noStreams(t, from, to)
	})
}

// A writer that waits for a slow reader is woken by a cancel of either side.
func TestCancelWakesWriter(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		start := make(chan struct{})
		to.Handle("deaf", func(ctx context.Context, s *Stream) error {
			<-start
			s.Cancel("too much")
			return nil
		})
		s := open(t, from, to, "deaf")
		wrote := make(chan error, 1)
		go func() {
			_, err := s.Write(make([]byte, 16*StreamBufferMax))
			wrote <- err
		}()
		close(start)
		select {
		case err := <-wrote:
			wantRemote(CodeCancelled, "too much")(t, err)
		case <-time.After(2 * time.Second):
			t.Fatal("still writing")
		}
		noStreams(t, from, to)
	})
}

// An opener that closes or whose context ends takes the handler with it.
func TestHandlerContextEnds(t *testing.T) {
	tests := []struct {
		name string
		end  func(s *Stream, cancel context.CancelFunc)
		want string
	}{
		{"close", func(s *Stream, _ context.CancelFunc) { s.Close() }, "ended the stream"},
		{"cancel", func(s *Stream, _ context.CancelFunc) { s.Cancel("no more") }, "no more"},
		{"context", func(_ *Stream, cancel context.CancelFunc) { cancel() }, "context canceled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			transports(t, func(t *testing.T, from, to *Link) {
				begun, ended := make(chan struct{}), make(chan error, 1)
				to.Handle("wait", func(ctx context.Context, s *Stream) error {
					close(begun)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					return context.Cause(ctx)
				})
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				s, err := from.OpenBound(ctx, to.cfg.Self, "wait")
				if err != nil {
					t.Fatal(err)
				}
				<-begun
				tt.end(s, cancel)
				select {
				case err := <-ended:
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("cause %v; want %q", err, tt.want)
					}
				case <-time.After(2 * time.Second):
					t.Fatal("the handler goes on")
				}
				noStreams(t, from, to)
			})
		})
	}
}

// The deadline of the opener is that of the handler.
func TestDeadlineTravels(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		left := make(chan time.Duration, 2)
		to.Handle("wait", func(ctx context.Context, s *Stream) error {
			by, ok := ctx.Deadline()
			if !ok {
				left <- 0
				return nil
			}
			left <- time.Until(by)
			return nil
		})
		s, err := from.OpenBound(within(t, 10*time.Second), to.cfg.Self, "wait")
		if err != nil {
			t.Fatal(err)
		}
		if d := <-left; d < 5*time.Second || d > 10*time.Second {
			t.Errorf("the handler has %v", d)
		}
		s.Close()
		if s, err = from.Open(within(t, 10*time.Second), to.cfg.Self, "wait"); err != nil {
			t.Fatal(err)
		}
		if d := <-left; d != 0 {
			t.Errorf("Open gave the handler a deadline of %v", d)
		}
		s.Close()
	})
}

// Many streams that nobody reads do not hold up others.
func TestSlowReaders(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		to.Handle("deaf", func(ctx context.Context, s *Stream) error { <-ctx.Done(); return nil })
		to.Handle("echo", echo)
		var slow []*Stream
		for range 60 {
			s := open(t, from, to, "deaf")
			s.SetWriteDeadline(time.Now().Add(time.Millisecond))
			s.Write(make([]byte, 4*StreamBufferMax))
			slow = append(slow, s)
		}
		var wg sync.WaitGroup
		for range 60 { // fill what the first milliseconds did not
			s := slow[0]
			slow = append(slow[1:], s)
			wg.Go(func() {
				s.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
				if _, err := s.Write(make([]byte, 4*StreamBufferMax)); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a stream that nobody reads: %v", err)
				}
			})
		}
		wg.Wait()
		s := open(t, from, to, "echo")
		sent := bytes.Repeat([]byte("tandem"), 100_000)
		go func() { s.Write(sent); s.CloseWrite() }()
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d of %d bytes, %v", len(got), len(sent), err)
		}
		for _, s := range slow {
			s.Cancel("over")
		}
		s.Close()
		noStreams(t, from, to)
	})
}

// Who wants more streams than allowed waits for a place.
func TestStreamLimit(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		to.Handle("wait", func(ctx context.Context, s *Stream) error { <-ctx.Done(); return nil })
		var all []*Stream
		for range StreamsMax {
			all = append(all, open(t, from, to, "wait"))
		}
		if _, err := from.Open(within(t, 50*time.Millisecond), to.cfg.Self, "wait"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprint(StreamsMax)) {
			t.Fatalf("one more: %v", err)
		}
		opened := make(chan error, 1)
		go func() {
			s, err := from.Open(within(t, 5*time.Second), to.cfg.Self, "wait")
			if err == nil {
				s.Close()
			}
			opened <- err
		}()
		all[7].Close()
		if err := <-opened; err != nil {
			t.Fatalf("after a place is free: %v", err)
		}
		for _, s := range all {
			s.Close()
		}
		noStreams(t, from, to)
	})
}

// endingContext ends right after the first question whether it has.
type endingContext struct {
	context.Context
	asked bool
}

func (c *endingContext) Err() error {
	if !c.asked {
		c.asked = true
		return nil
	}
	return c.Context.Err()
}

// That all places are used up is said only where they are.
func TestOpenAsContextEnds(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		to.Handle("echo", echoMessages)
		mustCall(t, from, to.cfg.Self)
		c, err := from.connection(t.Context(), to.cfg.Self)
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			s, err := c.open(&endingContext{Context: ended}, "echo", 0)
			if err == nil {
				s.Close()
			} else if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "the most that it takes") {
				t.Fatalf("places are free: %v", err)
			}
		}
		noStreams(t, from, to)
	})
}

// Thousands of streams that end in all ways leave nothing behind.
func TestChurn(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		to.Handle("echo", echoMessages)
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				rng := mathrand.New(mathrand.NewPCG(1, uint64(worker)))
				for i := range 100 {
					s, err := from.Open(within(t, 10*time.Second), to.cfg.Self, "echo")
					if err != nil {
						t.Errorf("worker %d stream %d: %v", worker, i, err)
						return
					}
					s.SetDeadline(time.Now().Add(10 * time.Second))
					m := make([]byte, rng.IntN(50_000))
					switch rng.IntN(5) {
					case 0:
						s.Cancel("never mind")
					case 1:
						s.Write(m)
						s.Close()
					case 2:
						WriteMessage(s, m)
						s.CloseWrite()
						s.Cancel("half way")
					default:
						if err := WriteMessage(s, m); err != nil {
							t.Errorf("worker %d stream %d: %v", worker, i, err)
						}
						got, err := ReadMessage(s, MessageMax)
						if err != nil || len(got) != len(m) {
							t.Errorf("worker %d stream %d: %d of %d bytes, %v", worker, i, len(got), len(m), err)
						}
						s.CloseWrite()
						if _, err := s.Read(make([]byte, 1)); err != io.EOF {
							t.Errorf("worker %d stream %d ended with %v", worker, i, err)
						}
						s.Close()
					}
				}
			})
		}
		wg.Wait()
		noStreams(t, from, to)
	})
}

// A stream behaves as every net.Conn should.
func TestNetConn(t *testing.T) {
	transports(t, func(t *testing.T, from, to *Link) {
		arrived := make(chan *Stream)
		to.Handle("conn", func(ctx context.Context, s *Stream) error {
			arrived <- s
			<-s.Done()
			return nil
		})
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
			a, err := from.Open(context.Background(), to.cfg.Self, "conn")
			if err != nil {
				return nil, nil, nil, err
			}
			b := <-arrived
			return a, b, func() { a.Close(); b.Close() }, nil
		})
	})
}
